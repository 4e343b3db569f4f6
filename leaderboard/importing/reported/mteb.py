"""Import of results in MTEB's layout as reported figures, for this site's datasets and measures.

The layout is `<organisation>__<model>/<revision>/<Task>.json` with a `model_meta.json` next to the tasks, as written
by the library mteb and stored in its public results repository. All problems are found before anything is published.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
#: Folder with results under other settings, which are ignored because the variants have no names.
_EXPERIMENTS = "experiments"
#: Maximum file size in bytes; a task with hundreds of languages has half a megabyte.
MAX_FILE_BYTES = 4_000_000
ZIP_POLICY = ZipPolicy(
    max_members=100_000,
    members_hint="Pack the folders of fewer models.",
    expansion_hint="Pack the folders of fewer models.",
    free_bytes=2**30,
)
#: Field of ModelMeta → field of a system with the same value.
_FIELDS = {
    "n_parameters": "parameter_count", "embed_dim": "dimension", "max_tokens": "maximum_length", "license": "licence",
    "open_weights": "open_weights", "reference": "model_url", "public_training_code": "code_url",
    "adapted_from": "backbone", "citation": "bibtex",
}  # fmt: skip
_NAME = re.compile(r"[\w.-]+/[\w.-][\w.+ ()=,:-]*")
#: Maximum number of problems or tasks in one message.
_MAX_LISTED = 100
_ARCHITECTURES = {types[0]: kind for kind, types in MODEL_TYPES.items() if types} | {"router": Architecture.OTHER}


@dataclass(frozen=True, slots=True)
class Place:
    """Dataset, split, and subset of a task's results; an empty split or subset means the dataset's own."""

    dataset: Dataset
    split: str = ""
    subset: str = ""


@dataclass(slots=True)
class MtebResults:
    """Results in a folder; `unknown_tasks` counts tasks without a dataset on this site."""

    figures: list[CuratedFigure] = field(default_factory=list)
    unknown_tasks: Counter[str] = field(default_factory=Counter)
    experiments: int = 0

    def left_out(self) -> list[str]:
        """Return a sentence for each kind of results that were ignored."""
        sentences = []
        if self.unknown_tasks:
            names = ", ".join(_shorten(sorted(self.unknown_tasks)))
            sentences.append(f"Ignored because no dataset on this site matches the task: {names}.")
        if self.experiments:
            sentences.append(f"Ignored: {self.experiments} files below {_EXPERIMENTS}/, which use other settings.")
        return sentences


class _InvalidFile(Exception):
    """A problem with a file, such as `name is 5, but should be text`."""


def read_mteb_results(
    path: Path, source: str, work: Path, task_places: Mapping[str, Place] | None = None
) -> MtebResults:
    """Read the results in a folder or zip for this site's datasets.

    `source` is the URL of `path`, and `task_places` assigns datasets to tasks. A zip is expanded into `work`. Raises
    InvalidContent with up to a hundred problems by file and field, also if there are no results.
    """
    results, problems = MtebResults(), list[str]()
    files = _list_files(path, work)
    places = {**_datasets_by_task(), **{task: [place] for task, place in (task_places or {}).items()}}
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
            model = _read_model(files, meta, folder)
        except _InvalidFile as error:
            problems.append(f"{meta}: {error}")
            continue
        for file in tasks:
            name = f"{folder}/{file}".lstrip("/")
            try:
                results.figures += _read_task(files[name], file, model, places, f"{source.rstrip('/')}/{quote(name)}")
            except _InvalidFile as error:
                problems.append(f"{name}: {error}")
    addresses: defaultdict[tuple[object, ...], list[str]] = defaultdict(list)
    for figure in results.figures:
        addresses[figure.dataset.slug, figure.system, figure.configuration, figure.measure].append(figure.address)
    for urls in sorted({tuple(urls) for urls in addresses.values() if len(urls) > 1}):
        problems.append(f"{' and '.join(urls)} have the same model, revision, and dataset. Keep only one")
    if not results.figures and not problems:
        problems.append(f"{path.name} has no results for datasets on this site. {' '.join(results.left_out())}".strip())
    if problems:
        raise InvalidContent.build(*(Problem("error", "mteb_result", 1, text, "") for text in _shorten(problems)))
    return results


def _shorten(texts: Sequence[str]) -> list[str]:
    """Return the first texts, and the number of the remaining ones if there are more."""
    remaining_count = len(texts) - _MAX_LISTED
    return [*texts[:_MAX_LISTED], *([f"and {remaining_count:,} more"] if remaining_count > 0 else [])]


def _list_files(path: Path, work: Path) -> dict[str, Path]:
    """Return the JSON files in a folder or zip, by relative name. A zip is expanded into `work`.

    Raises InvalidContent for any other path.
    """
    if path.is_dir():
        return {file.relative_to(path).as_posix(): file for file in path.rglob("*.json") if file.is_file()}
    if not path.is_file() or not is_zip(path):
        raise InvalidContent.build(Problem("error", "mteb_result", 1, f"{path.name} is neither a folder nor a zip", ""))
    with open_archive(path, ZIP_POLICY) as archive:
        names = [name for name in archive.names if name.endswith(".json")]
        files = {name: work / f"{number}.json" for number, name in enumerate(names)}
        archive.extract(files)
    return files


def _datasets_by_task() -> dict[str, list[Place]]:
    """Return the possible datasets for each task name.

    A dataset is found by MTEB's name for it, or otherwise by its own name and that of its repository.
    """
    places_by_name: defaultdict[str, list[Place]] = defaultdict(list)
    for dataset in Dataset.objects.listed().select_related("current_version", "current_qrels"):
        names = {task_name(dataset.slug, dataset.name)}
        label = dataset.current_version.label if dataset.current_version else ""
        if dataset.slug not in TASKS and "@" in label:
            names.add(label.partition("@")[0].rpartition("/")[2])
        for name in names:
            places_by_name[name].append(Place(dataset))
    slugs = {task: slug for slug, task in TASKS.items()}
    return {
        name: [place for place in places if place.dataset.slug == slugs.get(name)] or places
        for name, places in places_by_name.items()
    }


@dataclass(frozen=True, slots=True)
class _Model:
    """Name and revision of a model, and its metadata as fields of `System`."""

    name: str
    revision: str
    fields: dict[str, Any]

    @property
    def configuration(self) -> str:
        """Label of the revision; commits are abbreviated to twelve digits."""
        if self.revision == NO_REVISION:
            return ""
        is_commit = re.fullmatch(r"[0-9a-f]{40}", self.revision)
        return f"revision {self.revision[:12] if is_commit else self.revision[:60]}"


def _read_model(files: Mapping[str, Path], metadata_path: str, folder: str) -> _Model:
    """Return the model of a folder's results from its metadata file.

    The revision defaults to the name of the folder. Raises _InvalidFile for a missing or invalid file.
    """
    if metadata_path not in files:
        raise _InvalidFile("the file is missing. Add the one that mteb writes next to the results")
    meta = _read_object(files[metadata_path])
    model_name, revision = meta.get("name"), meta.get("revision") or folder.rpartition("/")[2] or NO_REVISION
    if not isinstance(model_name, str) or not _NAME.fullmatch(model_name):
        raise _InvalidFile(f"name is {_abbreviate(model_name)}, but should be organisation/model")
    if not isinstance(revision, str):
        raise _InvalidFile(f"revision is {_abbreviate(revision)}, but should be text")
    return _Model(model_name, revision, _system_fields(model_name, meta))


def _system_fields(name: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a system from MTEB's ModelMeta, validated and cleaned.

    Raises _InvalidFile with all fields of a wrong type, or with other invalid values.
    """
    if problems := [
        f"{name} is {_abbreviate(meta[name])}, but should be {description}"
        for name, (is_valid, description) in _TYPES.items()
        if meta.get(name) is not None and not is_valid(meta[name])
    ]:
        raise _InvalidFile("; ".join(problems))
    fields = {field: meta[meta_name] for meta_name, field in _FIELDS.items() if meta.get(meta_name) is not None}
    if isinstance(fields.get("dimension"), list):  # Matryoshka: all possible dimensions
        fields["dimension"] = max(fields["dimension"], default=None)
    if isinstance(maximum_length := fields.get("maximum_length"), float):
        fields["maximum_length"] = int(maximum_length) if math.isfinite(maximum_length) else None
    if meta.get("release_date") is not None:
        fields["year"] = date.fromisoformat(meta["release_date"]).year
    if (training_datasets := meta.get("training_datasets")) is not None:
        if not isinstance(training_datasets, dict | list) or not all(
            isinstance(task, str) for task in training_datasets
        ):
            raise _InvalidFile(f"training_datasets is {_abbreviate(training_datasets)}, but should be names of tasks")
        slugs: dict[Any, str] = {task: slug for slug, task in TASKS.items()}
        fields["training_declared"] = True
        fields["training_datasets"] = sorted({slugs.get(task, str(task)) for task in training_datasets})
    # mteb treats models without a type as dense.
    types, framework = meta.get("model_type") or ["dense"], meta.get("framework") or []
    if meta.get("is_cross_encoder") and "model_type" not in meta:
        types = ["cross-encoder"]
    kind = _ARCHITECTURES.get(types[0]) if isinstance(types, list) and isinstance(types[0], str) else None
    if kind is None:
        raise _InvalidFile(f"model_type is {_abbreviate(types)}, but should be one of {', '.join(_ARCHITECTURES)}")
    is_bm25 = name in BASELINES or ("bm25" in name.lower() and types == ["sparse"])
    fields["architecture"] = Architecture.LEXICAL if is_bm25 else kind
    fields["closed_api"] = "API" in framework
    meta_name = {system_name: name for name, system_name in _FIELDS.items()}
    system = System(name=name, **fields)
    try:
        system.clean_fields(exclude=["slug"])
    except ValidationError as error:
        problems = [f"{meta_name.get(field, field)}: {' '.join(texts)}" for field, texts in error.message_dict.items()]
        raise _InvalidFile(" ".join(problems)) from error
    return {field: getattr(system, field) for field in fields}


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and value % 1 == 0


def _is_date(value: Any) -> bool:
    try:
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", value) and date.fromisoformat(value))
    except (TypeError, ValueError):
        return False


#: Field of ModelMeta → validation function, and description of valid values. `max_tokens` may be infinite.
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


def _read_task(
    path: Path, file: str, model: _Model, places: Mapping[str, Sequence[Place]], address: str
) -> Iterator[CuratedFigure]:
    """Yield the figures of one result file: the scores of the dataset's measures on its split and language.

    Raises _InvalidFile for an ambiguous task, an old or invalid file, and if no measure has a score.
    """
    task = file.removesuffix(".json")
    if len(places[task]) > 1:
        slugs = ", ".join(place.dataset.slug for place in places[task])
        raise _InvalidFile(f"{task} matches several datasets, {slugs}. Choose one with --task {task}=SLUG")
    (place,) = places[task]
    dataset, result = place.dataset, _read_object(path)
    if "scores" not in result and "mteb_dataset_name" in result:
        raise _InvalidFile("the file is older than mteb 1.11. Update it with mteb: TaskResult.from_disk(…).to_disk(…)")
    if result.get("task_name") != task:
        raise _InvalidFile(f"task_name is {_abbreviate(result.get('task_name'))}, and the file is named {task}")
    revision, version = result.get("dataset_revision"), result.get("mteb_version")
    if not isinstance(revision, str) or not isinstance(version, str | None):
        raise _InvalidFile("dataset_revision and mteb_version should be text")
    scores, location = _select_subset(result.get("scores"), place)
    # A board compares only results on its own split.
    split = f"split {place.split}; " if place.split else ""
    values = {measure: scores.get(measure_name(measure)) for measure in dataset.measures}
    if not any(value is not None for value in values.values()):
        names = ", ".join(map(measure_name, dataset.measures))
        raise _InvalidFile(f"{location} has none of the measures of {dataset.name}, {names}")
    for measure, value in values.items():
        if value is not None:
            yield CuratedFigure(
                dataset=dataset,
                system=model.name,
                measure=measure,
                value=_parse_share(value, f"{location}.{measure_name(measure)}"),
                scale="share",
                locator=f"{split}dataset {revision[:40]}; mteb {version or 'unknown'}"[:80],
                architecture=model.fields["architecture"],
                configuration=model.configuration,
                address=address,
                group=revision[:30],
                baseline=model.name in BASELINES,
                details=model.fields,
            )


def _select_subset(scores: Any, place: Place) -> tuple[dict[str, Any], str]:
    """Return the scores on the dataset's split and language, and their location in the file.

    `place` may name another split or subset. Raises _InvalidFile if there are none, or several.
    """
    dataset = place.dataset
    if not isinstance(scores, dict) or not scores:
        raise _InvalidFile("scores is missing or not an object of splits, so this is not a result file of mteb")
    qrels = dataset.current_qrels
    split = place.split or (qrels.split if qrels else SPLITS.get(dataset.slug, "test"))
    if not isinstance(subset_scores := scores.get(split), list):
        raise _InvalidFile(f"scores has {', '.join(scores)}, but {dataset.name} is judged on {split}")
    subsets: defaultdict[str, list[int]] = defaultdict(list)
    for number, item in enumerate(subset_scores):
        if not isinstance(item, dict) or not isinstance(item.get("hf_subset"), str):
            raise _InvalidFile(f"scores.{split}[{number}].hf_subset is missing")
        subsets[item["hf_subset"]].append(number)
    candidates = [place.subset] if place.subset else ["default", dataset.language]
    same_language = [name for name in subsets if known_language_code(name) == known_language_code(dataset.language)]
    candidates += same_language if len(same_language) == 1 and not place.subset else []
    subset = next((name for name in candidates if name in subsets), None)
    if subset is None:
        raise _InvalidFile(f"scores.{split} has the subsets {', '.join(subsets)}, and not {' or '.join(candidates)}")
    if len(subsets[subset]) > 1:
        raise _InvalidFile(f"scores.{split} has the subset {subset} {len(subsets[subset])} times")
    return subset_scores[subsets[subset][0]], f"scores.{split}[{subsets[subset][0]}]"


def _parse_share(value: Any, location: str) -> str:
    """Return a score as decimal text. Raises _InvalidFile if it is not a number between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _InvalidFile(f"{location} is {_abbreviate(value)}, but should be a number between 0 and 1")
    return f"{value:.6f}".rstrip("0").rstrip(".") or "0"


def _read_object(path: Path) -> dict[str, Any]:
    """Return a file's JSON object.

    Raises _InvalidFile for a file that is too large, other content, repeated names, or invalid characters.
    """
    if path.stat().st_size > MAX_FILE_BYTES:
        raise _InvalidFile(f"it is larger than {describe_bytes(MAX_FILE_BYTES)}")

    def reject_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return the pairs as an object. Raises _InvalidFile for a repeated name."""
        result = dict(pairs)
        if len(result) < len(pairs):
            repeated_name = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise _InvalidFile(f"{_abbreviate(repeated_name)} occurs twice in one object")
        return result

    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=reject_repeated_names)
        encoded_text = json.dumps(content, ensure_ascii=False)
        encoded_text.encode()  # fails for unpaired surrogates
        if "\\u0000" in encoded_text:
            raise ValueError("it contains the character NUL")
    except (ValueError, RecursionError) as error:
        raise _InvalidFile(f"it is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise _InvalidFile("it is not a JSON object")
    return content


def _abbreviate(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"
