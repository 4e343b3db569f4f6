"""Results in MTEB's layout, read as figures of a publication: the site's measures of the datasets that are here.

`<organisation>__<model>/<revision>/<Task>.json` and, beside the tasks, `model_meta.json`, as the library mteb and its
public repository of results keep them. Everything that is wrong is found before anything is published.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.core.exceptions import ValidationError

from evaluation.archives.compression import describe_bytes
from evaluation.archives.zip import ZipPolicy, is_zip, open_archive
from evaluation.core.problems import InvalidContent, Problem
from evaluation.text.languages import known_language_code
from leaderboard.importing.reported.loader import CuratedFigure
from leaderboard.models import Architecture, Dataset, System
from leaderboard.results.mteb import (
    BASELINES,
    MODEL_TYPES,
    NO_REVISION,
    SPLITS,
    TASKS,
    measure_name,
    task_name,
)

META = "model_meta.json"
#: The folder of a model's results under other settings than its own: a model of its own, which has no name.
_EXPERIMENTS = "experiments"
#: The largest file that is read, in bytes. A task of hundreds of languages has half a megabyte.
LARGEST = 4_000_000
ZIP_POLICY = ZipPolicy(
    max_members=100_000,
    members_hint="Pack the folders of fewer models.",
    expansion_hint="Pack the folders of fewer models.",
    free_bytes=2**30,
)
#: A field of ModelMeta → the field of a system that it becomes as it is.
_FIELDS = {
    "n_parameters": "parameter_count", "embed_dim": "dimension", "max_tokens": "maximum_length", "license": "licence",
    "open_weights": "open_weights", "reference": "model_url", "public_training_code": "code_url",
    "adapted_from": "backbone", "citation": "bibtex",
}  # fmt: skip
_NAME = re.compile(r"[\w.-]+/[\w.-][\w.+ ()=,:-]*")
#: The most that one answer names, of problems or of tasks.
_NAMED = 100
_ARCHITECTURES = {types[0]: each for each, types in MODEL_TYPES.items() if types} | {
    "router": Architecture.OTHER
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task's results belong, and which of them: an empty split or subset is the dataset's own."""

    dataset: Dataset
    split: str = ""
    subset: str = ""


@dataclass(slots=True)
class MtebResults:
    """What a folder holds. `described` has the fields of each system; tasks that are not here are counted."""

    figures: list[CuratedFigure] = field(default_factory=list)
    described: dict[str, dict[str, Any]] = field(default_factory=dict)
    unknown_tasks: Counter[str] = field(default_factory=Counter)
    experiments: int = 0

    def left_out(self) -> list[str]:
        """Return what was not imported, a sentence for each kind."""
        found = []
        if self.unknown_tasks:
            names = ", ".join(_first(sorted(self.unknown_tasks)))
            found.append(f"Left out, since no dataset here is known to be the task: {names}.")
        if self.experiments:
            found.append(
                f"Left out: {self.experiments} files below {_EXPERIMENTS}/, which are other settings."
            )
        return found


class _Wrong(Exception):
    """One thing that is wrong with a file, as `field is so: do this`."""


def read_mteb_results(
    path: Path, source: str, work: Path, named: Mapping[str, Place] | None = None
) -> MtebResults:
    """The results in a folder or a zip, which lies at the address `source`; `named` are tasks with their datasets.

    A zip is expanded into `work`. Raises InvalidContent with what is wrong, by file and field, the first hundred.
    """
    results, wrong = MtebResults(), list[str]()
    files = _files(path, work)
    places = {**_places(), **{task: [place] for task, place in (named or {}).items()}}
    folders: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(files):
        folder, _, file = name.rpartition("/")
        if _EXPERIMENTS in folder.split("/"):
            results.experiments += 1
        elif file.removesuffix(".json") in places:
            folders[folder].append(file)
        elif file != META:
            results.unknown_tasks[file.removesuffix(".json")] += 1
    for folder, tasks in folders.items():
        try:
            meta = f"{folder}/{META}".lstrip("/")
            model = _model(files, meta, folder)
        except _Wrong as error:
            wrong.append(f"{meta}: {error}")
            continue
        results.described[model.name] = model.fields
        for file in tasks:
            name = f"{folder}/{file}".lstrip("/")
            try:
                results.figures += _figures(
                    files[name], file, model, places, f"{source.rstrip('/')}/{quote(name)}"
                )
            except _Wrong as error:
                wrong.append(f"{name}: {error}")
    wrong += _twice(results.figures)
    if not results.figures and not wrong:
        wrong.append(
            f"{path.name} has no result of a dataset that is here. {' '.join(results.left_out())}".strip()
        )
    if wrong:
        raise InvalidContent.of(*(Problem("error", "mteb_result", 1, each, "") for each in _first(wrong)))
    return results


def _first(texts: Sequence[str]) -> list[str]:
    """Return the first of them, and how many more there are."""
    left = len(texts) - _NAMED
    return [*texts[:_NAMED], *([f"and {left:,} more"] if left > 0 else [])]


def _files(path: Path, work: Path) -> dict[str, Path]:
    """Return the JSON files below a folder or in a zip, by their names there."""
    if path.is_dir():
        return {each.relative_to(path).as_posix(): each for each in path.rglob("*.json") if each.is_file()}
    if not path.is_file() or not is_zip(path):
        raise InvalidContent.of(
            Problem("error", "mteb_result", 1, f"{path.name} is neither a folder nor a zip", "")
        )
    with open_archive(path, ZIP_POLICY) as archive:
        names = [name for name in archive.names if name.endswith(".json")]
        files = {name: work / f"{number}.json" for number, name in enumerate(names)}
        archive.extract(files)
    return files


def _places() -> dict[str, list[Place]]:
    """Return the datasets that a task's name may stand for: MTEB's name of it, else its own, or its repository's."""
    found: defaultdict[str, list[Place]] = defaultdict(list)
    for dataset in Dataset.objects.listed().select_related("current_version", "current_qrels"):
        names = {task_name(dataset.slug, dataset.name)}
        label = dataset.current_version.label if dataset.current_version else ""
        if dataset.slug not in TASKS and "@" in label:
            names.add(label.partition("@")[0].rpartition("/")[2])
        for name in names:
            found[name].append(Place(dataset))
    known = {task: slug for slug, task in TASKS.items()}
    return {
        name: [each for each in places if each.dataset.slug == known.get(name)] or places
        for name, places in found.items()
    }


@dataclass(frozen=True, slots=True)
class _Model:
    name: str
    revision: str
    fields: dict[str, Any]

    @property
    def configuration(self) -> str:
        """What tells this revision from another; a commit by its first twelve digits."""
        if self.revision == NO_REVISION:
            return ""
        is_commit = re.fullmatch(r"[0-9a-f]{40}", self.revision)
        return f"revision {self.revision[:12] if is_commit else self.revision[:60]}"


def _model(files: Mapping[str, Path], name: str, folder: str) -> _Model:
    """Return the model that a folder's results are of. Its name and revision are also those of the folders."""
    if name not in files:
        raise _Wrong("it is missing: mteb writes it beside the results, and it says what the model is")
    meta = _read(files[name])
    named, revision = meta.get("name"), meta.get("revision") or folder.rpartition("/")[2] or NO_REVISION
    if not isinstance(named, str) or not _NAME.fullmatch(named):
        raise _Wrong(f"name is {_shown(named)}, and should be organisation/model")
    if not isinstance(revision, str):
        raise _Wrong(f"revision is {_shown(revision)}, and should be text")
    return _Model(named, revision, _system_fields(named, meta))


def _system_fields(name: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    """What ModelMeta says, as the fields of a system. Raises _Wrong with every field that a system cannot have."""
    if wrong := [
        f"{name} is {_shown(meta[name])}, and should be {right}"
        for name, (fits, right) in _TYPES.items()
        if meta.get(name) is not None and not fits(meta[name])
    ]:
        raise _Wrong("; ".join(wrong))
    said = {field: meta[theirs] for theirs, field in _FIELDS.items() if meta.get(theirs) is not None}
    if isinstance(said.get("dimension"), list):  # Matryoshka: those that it can be cut to
        said["dimension"] = max(said["dimension"], default=None)
    if isinstance(longest := said.get("maximum_length"), float):
        said["maximum_length"] = int(longest) if math.isfinite(longest) else None
    if meta.get("release_date") is not None:
        said["year"] = date.fromisoformat(meta["release_date"]).year
    if (trained := meta.get("training_datasets")) is not None:
        if not isinstance(trained, dict | list) or not all(isinstance(each, str) for each in trained):
            raise _Wrong(f"training_datasets is {_shown(trained)}, and should be names of tasks")
        slugs: dict[Any, str] = {task: slug for slug, task in TASKS.items()}
        said["training_declared"] = True
        said["training_datasets"] = sorted({slugs.get(each, str(each)) for each in trained})
    # Where nothing is said, mteb takes a model for a dense one.
    types, framework = meta.get("model_type") or ["dense"], meta.get("framework") or []
    if meta.get("is_cross_encoder") and "model_type" not in meta:
        types = ["cross-encoder"]
    kind = _ARCHITECTURES.get(types[0]) if isinstance(types, list) and isinstance(types[0], str) else None
    if kind is None:
        raise _Wrong(f"model_type is {_shown(types)}, and should be one of {', '.join(_ARCHITECTURES)}")
    is_bm25 = name in BASELINES or ("bm25" in name.lower() and types == ["sparse"])
    said["architecture"] = Architecture.LEXICAL if is_bm25 else kind
    said["closed_api"] = "API" in framework
    theirs = {ours: each for each, ours in _FIELDS.items()}
    system = System(name=name, **said)
    try:
        system.clean_fields(exclude=["slug"])
    except ValidationError as error:
        wrong = [f"{theirs.get(each, each)}: {' '.join(texts)}" for each, texts in error.message_dict.items()]
        raise _Wrong(" ".join(wrong)) from error
    return {each: getattr(system, each) for each in said}


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and value % 1 == 0


def _is_date(value: Any) -> bool:
    try:
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", value) and date.fromisoformat(value))
    except (TypeError, ValueError):
        return False


#: A field of ModelMeta → whether a value can be its, and what it should be. `max_tokens` is infinite for some models.
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "n_parameters": (_is_whole, "a whole number"),
    "embed_dim": (
        lambda value: all(map(_is_whole, value if isinstance(value, list) else [value])),
        "a whole number, or a list of them",
    ),
    "max_tokens": (
        lambda value: _is_whole(value) or (isinstance(value, float) and not math.isfinite(value)),
        "a whole number",
    ),
    "open_weights": (lambda value: isinstance(value, bool), "true or false"),
    "framework": (lambda value: isinstance(value, list), "a list of names"),
    "release_date": (_is_date, "a date such as 2021-08-30"),
    **dict.fromkeys(
        ("license", "reference", "public_training_code", "adapted_from", "citation"),
        (lambda value: isinstance(value, str), "text"),
    ),
}


def _figures(
    path: Path, file: str, model: _Model, places: Mapping[str, Sequence[Place]], address: str
) -> Iterator[CuratedFigure]:
    """Yield the figures of one file. Raises _Wrong."""
    task = file.removesuffix(".json")
    if len(places[task]) > 1:
        slugs = ", ".join(each.dataset.slug for each in places[task])
        raise _Wrong(f"{task} may be any of the datasets {slugs}: name one with --task {task}=SLUG")
    (place,) = places[task]
    dataset, result = place.dataset, _read(path)
    if "scores" not in result and "mteb_dataset_name" in result:
        raise _Wrong(
            "it is of mteb before 1.11: bring it up to date with mteb, TaskResult.from_disk(…).to_disk(…)"
        )
    if result.get("task_name") != task:
        raise _Wrong(f"task_name is {_shown(result.get('task_name'))}, and the file is named {task}")
    revision, version = result.get("dataset_revision"), result.get("mteb_version")
    if not isinstance(revision, str) or not isinstance(version, str | None):
        raise _Wrong("dataset_revision and mteb_version should be text")
    scores, where = _subset(result.get("scores"), place)
    found = {measure: scores.get(measure_name(measure)) for measure in dataset.measures}
    if not any(value is not None for value in found.values()):
        names = ", ".join(map(measure_name, dataset.measures))
        raise _Wrong(f"{where} has none of the measures of {dataset.slug}, {names}")
    for measure, value in found.items():
        if value is not None:
            yield CuratedFigure(
                dataset=dataset,
                system=model.name,
                measure=measure,
                value=_share(value, f"{where}.{measure_name(measure)}"),
                scale="share",
                locator=f"dataset {revision[:40]}; mteb {version or 'unknown'}"[:80],
                architecture=model.fields["architecture"],
                configuration=model.configuration,
                address=address,
                group=revision[:30],
                baseline=model.name in BASELINES,
            )


def _subset(scores: Any, place: Place) -> tuple[dict[str, Any], str]:
    """Return the scores on the dataset's split, in its language, and where in the file they are."""
    dataset = place.dataset
    if not isinstance(scores, dict) or not scores:
        raise _Wrong("scores is missing, or not an object of splits: this is no result of mteb")
    qrels = dataset.current_qrels
    split = place.split or (qrels.split if qrels else SPLITS.get(dataset.slug, "test"))
    if not isinstance(there := scores.get(split), list):
        raise _Wrong(f"scores has {', '.join(scores)}, and {dataset.slug} is judged on {split}")
    subsets: defaultdict[str, list[int]] = defaultdict(list)
    for number, each in enumerate(there):
        if not isinstance(each, dict) or not isinstance(each.get("hf_subset"), str):
            raise _Wrong(f"scores.{split}[{number}].hf_subset is missing")
        subsets[each["hf_subset"]].append(number)
    wanted = [place.subset] if place.subset else ["default", dataset.language]
    spoken = [name for name in subsets if known_language_code(name) == known_language_code(dataset.language)]
    wanted += spoken if len(spoken) == 1 and not place.subset else []
    chosen = next((name for name in wanted if name in subsets), None)
    if chosen is None:
        raise _Wrong(f"scores.{split} has the subsets {', '.join(subsets)}, and not {' or '.join(wanted)}")
    if len(subsets[chosen]) > 1:
        raise _Wrong(f"scores.{split} has the subset {chosen} {len(subsets[chosen])} times")
    return there[subsets[chosen][0]], f"scores.{split}[{subsets[chosen][0]}]"


def _share(value: Any, where: str) -> str:
    """Return a score as text. Raises _Wrong where it is no share."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _Wrong(f"{where} is {_shown(value)}, and should be a number between 0 and 1")
    return f"{value:.6f}".rstrip("0").rstrip(".") or "0"


def _read(path: Path) -> dict[str, Any]:
    """Return a file's JSON object. Raises _Wrong."""
    if path.stat().st_size > LARGEST:
        raise _Wrong(f"it is larger than {describe_bytes(LARGEST)}")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            often = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise _Wrong(f"{_shown(often)} is there twice in one object")
        return found

    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once)
        again = json.dumps(content, ensure_ascii=False)
        again.encode()  # half a surrogate pair is no text
        if "\\u0000" in again:
            raise ValueError("it has the character NUL")
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"it is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise _Wrong("it is not a JSON object")
    return content


def _twice(figures: Iterable[CuratedFigure]) -> list[str]:
    """Return problems of files that report the same result."""
    files: defaultdict[tuple[object, ...], list[str]] = defaultdict(list)
    for each in figures:
        files[each.dataset.slug, each.system, each.configuration, each.measure].append(each.address)
    same = {tuple(addresses) for addresses in files.values() if len(addresses) > 1}
    return [f"{' and '.join(each)} are of one model, revision and dataset: keep one" for each in sorted(same)]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"
