"""Command `python -m evaluation pack`: build the archive of a model that the site accepts."""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from evaluation.checkpoints.description import MODEL_KINDS, PICKLED_HEADS, CheckpointDescription, CheckpointKind
from evaluation.checkpoints.rebuilding import rebuild, validate_folder, write_archive
from evaluation.checkpoints.settings import NAME as SETTINGS
from evaluation.checkpoints.settings import TEMPLATE, TEMPLATES
from evaluation.cli.score import Subparsers
from evaluation.core.problems import InvalidContent, ModelFailure, Report
from evaluation.engines import ENGINES, InvalidParameter, Resources, RetrievalTask, retrieve

#: Extensions of copied files. Pickles are converted, and other files are omitted.
_COPIED_EXTENSIONS = (".json", ".safetensors", ".metadata", ".jinja")
_PICKLES = frozenset({"pytorch_model.bin", "pytorch_model.bin.index.json"})
_VOCABULARIES = frozenset({"vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model"})
_CONVERTED = _PICKLES | _VOCABULARIES | set(PICKLED_HEADS)
_SIDE_FOLDERS = frozenset({"onnx", "openvino", "coreml", ".git", ".cache", "__pycache__"})
#: Engines for trials of kinds that several engines run.
_TRIAL_ENGINES = {CheckpointKind.SEQ2SEQ: "doc2query"}
_TRIAL_PARAMETERS = {"queries_per_document": "1", "generated_tokens": "8"}
#: Subjects and predicates of twenty different texts for the trial.
_SUBJECTS = ("The heart", "A wing in supersonic flow", "The central bank", "A search engine", "The cat")
_PREDICATES = (
    "is examined in a large study",
    "changes with temperature",
    "was compared with an older method",
    "depends on the price of energy",
)


def add_parser(subparsers: Subparsers) -> None:
    """Add the command `pack`, which sets `run`, a function from the arguments to the exit status."""
    parser = subparsers.add_parser(
        "pack",
        description="Convert a model's folder to safetensors, check it as the site does, try it on 20 texts, and "
        "write the archive to upload. The same model always produces the same bytes.",
    )
    parser.add_argument("folder", type=Path, help="folder of the model")
    parser.add_argument("--out", type=Path, help="archive to write (default: FOLDER.tar.zst in the current folder)")
    parser.add_argument(
        "--kind",
        choices=[str(kind) for kind in MODEL_KINDS],
        help="kind of model, if its files do not determine it",
    )
    parser.add_argument(
        "--pooling",
        default="",
        help="for a model without modules.json: max or sum (SPLADE), sparta, mean, cls, max or lasttoken (dense)",
    )
    parser.add_argument(
        "--base",
        type=Path,
        action="append",
        default=[],
        help="for an adapter: folder of its base model, into which it is merged (needs peft); if it is an "
        "adapter too, repeat the option for its base",
    )
    parser.add_argument(
        "--bidirectional",
        action="store_true",
        help="for a decoder trained without a causal mask although its files do not say so, such as LLM2Vec",
    )
    parser.add_argument(
        "--template",
        choices=list(TEMPLATES),
        help="prompt template of a re-ranking language model with an unknown chat template; stored in the archive",
    )
    parser.add_argument(
        "--headers",
        action="store_true",
        help="omit the weights, for a small archive that the site only checks",
    )
    parser.add_argument("--no-trial", action="store_true", help="do not try the model on texts")
    parser.set_defaults(run=run_pack)


def run_pack(arguments: argparse.Namespace) -> int:
    """Check a model, try it, and write its archive. Return the exit status.

    The status is 1 if the site would refuse the model or it does not run, and 2 if its folder does not exist.
    """
    folder: Path = arguments.folder
    if not folder.is_dir():
        print(f"error: {folder} is not a folder", file=sys.stderr)
        return 2
    ending = ".headers.tar.zst" if arguments.headers else ".tar.zst"
    archive = arguments.out or Path(folder.resolve().name + ending)
    kind = CheckpointKind(arguments.kind) if arguments.kind else None
    with tempfile.TemporaryDirectory(prefix="pack-") as name:
        scratch = Path(name)
        try:
            staged = _copy_model_files(folder, scratch / "staged" / folder.resolve().name)
            if _is_adapter_alone(folder):
                _merge_adapter(folder, arguments.base, staged, scratch)
            if arguments.bidirectional:
                _write_into_configurations(staged, "config.json", {"is_causal": False})
            if arguments.template:
                _write_into_configurations(staged, SETTINGS, {TEMPLATE: arguments.template})
            validation = validate_folder(staged, kind, arguments.pooling)
            _print_report(validation.report)
            rebuilt = scratch / "rebuilt"
            description = rebuild(validation, rebuilt)
            kinds = ENGINES["cross-encoder"].checkpoints
            if arguments.template and description.kind not in kinds:
                message = f"--template is for {' and '.join(kinds)} models, but this is a {description.kind}"
                raise ModelFailure("invalid_parameter", f"{message}; pack it without --template")
            from evaluation.engines.neural.checking import check_checkpoint
            from evaluation.engines.prompts import prompt_remarks

            report = check_checkpoint(rebuilt)
            _print_report(report)
            if not report.valid:
                raise InvalidContent(report)
            remarks = prompt_remarks(description.kind, description.prompts, description.model_type, folder.name)
            _print_report(Report(tuple(remarks)))
            if not arguments.no_trial:
                for trial_kind in (description.kind, *description.also):
                    _try_model(rebuilt, trial_kind, scratch)
        except InvalidContent:
            print(f"{folder}: the site would refuse this model", file=sys.stderr)
            return 1
        except ModelFailure as failure:
            print(f"error: {failure.code}: {failure.message}", file=sys.stderr)
            return 1
        write_archive(rebuilt, archive, arguments.headers)
    print(_summarize(archive, description))
    return 0


def _copy_model_files(folder: Path, target: Path) -> Path:
    """Copy the relevant files to `target`, convert older formats, and return `target`.

    Links are followed, because the user owns them.
    """
    files = list(_iterate_files(folder))
    for path in files:
        copy = target / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in _COPIED_EXTENSIONS and path.name != "pytorch_model.bin.index.json":
            shutil.copyfile(path, copy)
    for source in dict.fromkeys(path.parent for path in files):
        names = {path.name for path in files if path.parent == source}
        if not names & _CONVERTED:
            continue
        from evaluation.engines.neural import converting

        copy = target / source.relative_to(folder)
        if names & _PICKLES and not any(copy.glob("model*.safetensors")):
            converting.convert_weights(source, copy)
            print(f"{source.name}: pickled weights were converted to safetensors", file=sys.stderr)
        for name in converting.convert_heads(source, copy):
            print(f"{source.name}: the head {name} was converted from a pickle", file=sys.stderr)
        lacks_tokenizer = not (copy / "tokenizer.json").exists() and (copy / "config.json").exists()
        if lacks_tokenizer and names & _VOCABULARIES and converting.convert_tokenizer(source, copy):
            print(f"{source.name}: tokenizer.json was made from older files", file=sys.stderr)
    return target


def _is_adapter_alone(folder: Path) -> bool:
    weights = (*folder.glob("model*.safetensors"), *folder.glob("pytorch_model*.bin"))
    return (folder / "adapter_config.json").is_file() and not weights


def _merge_adapter(folder: Path, bases: Sequence[Path], staged: Path, scratch: Path) -> None:
    """Merge an adapter into its base model, in `staged`. The adapters of adapters are merged first.

    `bases` begins with the adapter's base. If that is an adapter too, its own base follows, and so on. Raises
    ModelFailure if a base is missing or superfluous, or does not fit.
    """
    base, further_bases = (bases[0], bases[1:]) if bases else (None, bases)
    is_chained = base is not None and _is_adapter_alone(base)
    if base is None or not (is_chained or (base / "config.json").is_file()):
        reason = f"{base} has no model" if base else f"{folder} has only an adapter"
        raise ModelFailure("base_missing", f"{reason}; specify the folder of the adapter's base model with --base")
    if further_bases and not is_chained:
        reason = f"{base} is a complete model, so {further_bases[0]} cannot be its base"
        raise ModelFailure("not_merged", f"{reason}; specify each adapter's base after the adapter")
    from evaluation.engines.neural import converting

    merged_base = _copy_model_files(base, scratch / "base")
    if is_chained:
        _merge_adapter(base, further_bases, merged_base, scratch / "below")
    for path in _iterate_files(merged_base):
        target_path = staged / path.relative_to(merged_base)
        if not target_path.exists() and not (path.parent == merged_base and path.name.startswith("model")):
            target_path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target_path)
    converting.merge_adapter(folder, merged_base, staged)
    for path in staged.glob("adapter_*"):
        path.unlink()
    print(f"{folder.name}: the adapter was merged into {base.name}", file=sys.stderr)


def _write_into_configurations(staged: Path, name: str, values: Mapping[str, object]) -> None:
    """Add values to the file `name` next to each model configuration. Damaged files are refused later."""
    for path in staged.rglob("config.json"):
        with suppress(ValueError, TypeError, AttributeError):
            if "model_type" in json.loads(path.read_text(encoding="utf-8")):
                settings_path = path.with_name(name)
                present_values = json.loads(settings_path.read_text(encoding="utf-8")) if settings_path.exists() else {}
                settings_path.write_text(json.dumps({**present_values, **values}), encoding="utf-8")


def _iterate_files(folder: Path) -> Iterator[Path]:
    """Yield all files, without folders for other programs."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.name not in _SIDE_FOLDERS and not path.name.startswith("checkpoint-"):
                yield from _iterate_files(path)
        else:
            yield path


def _try_model(rebuilt: Path, kind: CheckpointKind, scratch: Path) -> None:
    """Index and search a few texts with the engine for the kind of model, and print the number of results.

    Raises ModelFailure.
    """
    name = _TRIAL_ENGINES.get(kind) or next(
        engine.name
        for engine in ENGINES.values()
        if kind in engine.checkpoints and len(engine.checkpoints) < len(MODEL_KINDS)
    )
    parameter_names = {parameter.name for parameter in ENGINES[name].parameters}
    sentences = [f"{subject} {predicate}." for subject in _SUBJECTS for predicate in _PREDICATES]
    texts = [{"_id": str(number), "title": "", "text": text} for number, text in enumerate(sentences)]
    for file, entries in (("corpus.jsonl", texts), ("queries.jsonl", texts[:3])):
        (scratch / file).write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    try:
        outcome = retrieve(
            RetrievalTask(
                name,
                scratch / "corpus.jsonl",
                scratch / "queries.jsonl",
                scratch / "run.txt",
                parameters={key: value for key, value in _TRIAL_PARAMETERS.items() if key in parameter_names},
                resources=Resources(checkpoint=rebuilt),
                work_folder=scratch,
            )
        )
    except InvalidParameter as error:  # The trial sets no parameters, so the model's files are ambiguous.
        remedy = "Pass it to pack as --template NAME, which the archive stores, or skip the trial with --no-trial."
        raise ModelFailure("choice_needed", f"{error} {remedy}") from error
    answered_queries = outcome.queries - outcome.queries_without_results
    print(
        f"tried with {name}: {outcome.documents} texts, {answered_queries} of {outcome.queries} queries have results",
        file=sys.stderr,
    )


def _print_report(report: Report) -> None:
    for problem in report.problems:
        print(f"{problem.severity}: {problem.code}: {problem.message}", file=sys.stderr)
        if problem.severity == "error" or problem.code.startswith("prompt_"):
            print(f"    {problem.hint}", file=sys.stderr)


def _summarize(archive: Path, model: CheckpointDescription) -> str:
    """Return lines with the archive's size, the model's properties, and its checksum."""
    parts = (
        model.kind,
        model.model_type,
        f"{model.parameters:,} parameters",
        model.dimension and f"{model.dimension:,} dimensions",
        model.maximum_length and f"{model.maximum_length:,} tokens",
        model.pooling and f"pooling {model.pooling}",
    )
    description = ", ".join(part for part in parts if part)
    return f"{archive}: {archive.stat().st_size / 1e6:,.1f} MB\n{description}\nsha256 of the model: {model.sha256}"
