"""Import of results in MTEB's layout as reported figures, for this site's datasets and measures.

The layout is `<organisation>__<model>/<revision>/<Task>.json` with a `model_meta.json` next to the tasks, as written
by the library mteb and stored in its public results repository. All problems are found before anything is published.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from evaluation.archives.compression import describe_bytes
from evaluation.archives.zip import ZipPolicy, is_zip, open_archive
from evaluation.core.problems import InvalidContent, Problem
from evaluation.text.languages import known_language_code
from leaderboard.importing.reported import tables
from leaderboard.importing.reported.loader import CuratedFigure
from leaderboard.importing.reported.model_meta import InvalidFile, abbreviate, system_fields
from leaderboard.models import Benchmark, Dataset
from leaderboard.results.mteb import (
    BASELINES,
    EXTERNAL,
    NO_REVISION,
    SPLITS,
    TASKS,
    describe_result,
    measure_name,
    task_name,
)

META = "model_meta.json"
UNKNOWN_TASK = "no dataset on this site matches the task"
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
_NAME = re.compile(r"[\w.-]+/[\w.-][\w.+ ()=,:-]*")
#: Maximum number of problems or tasks in one message.
_MAX_LISTED = 100


@dataclass(frozen=True, slots=True)
class Place:
    """Dataset, split, and subset of a task's results; an empty split or subset means the dataset's own."""

    dataset: Dataset
    split: str = ""
    subset: str = ""


@dataclass(slots=True)
class ImportedResults:
    """Results in files; `ignored` has names of ignored results by reason.

    `invalid_files` are problems of files that were ignored.
    """

    figures: list[CuratedFigure] = field(default_factory=list)
    invalid_files: list[str] = field(default_factory=list)
    ignored: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def left_out(self) -> list[str]:
        """Return a sentence for each kind of results that were ignored."""
        sentences = [f"Ignored: {problem}." for problem in _shorten(self.invalid_files)]
        for reason, names in self.ignored.items():
            sentences.append(f"Ignored because {reason}: {', '.join(_shorten(sorted(names)))}.")
        return sentences


def read_mteb_results(
    path: Path,
    source: str,
    work: Path,
    task_places: Mapping[str, Place] | None = None,
    benchmark: Benchmark | None = None,
) -> ImportedResults:
    """Read the results in a folder or zip for this site's datasets.

    `source` is the URL of `path`, and `task_places` assigns datasets to tasks. A zip is expanded into `work`. Raises
    InvalidContent with up to a hundred problems by file and field, also if there are no results.

    With a `benchmark`, only its datasets are read, each model has one result per dataset (`_preference`) without a
    configuration, and invalid files are ignored.
    """
    results, problems = ImportedResults(), list[str]()
    files = _list_files(path, work)
    places = {**datasets_by_task(), **{task: [place] for task, place in (task_places or {}).items()}}
    if benchmark is not None:
        members = set(benchmark.members.values_list("dataset_id", flat=True))
        places = {task: [place for place in row if place.dataset.pk in members] for task, row in places.items()}
    folders: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(files):
        folder, _, file = name.rpartition("/")
        task = file.removesuffix(".json")
        if _EXPERIMENTS in folder.split("/"):
            results.ignored[f"files below {_EXPERIMENTS}/ use other settings"].add(name)
        elif places.get(task):
            folders[folder].append(file)
        elif file != META and benchmark is None:
            results.ignored[UNKNOWN_TASK].add(task)
    for folder, tasks in folders.items():
        try:
            meta = f"{folder}/{META}".lstrip("/")
            model = _read_model(files, meta, folder, may_lack=benchmark is not None)
        except InvalidFile as error:
            problems.append(f"{meta}: {error}")
            continue
        for file in tasks:
            name = f"{folder}/{file}".lstrip("/")
            try:
                results.figures += _read_task(files[name], file, model, places, f"{source.rstrip('/')}/{quote(name)}")
            except InvalidFile as error:
                problems.append(f"{name}: {error}")
    if benchmark is not None:
        results.figures, results.invalid_files, problems = _select_results(results.figures), problems, []
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


def _select_results(figures: Sequence[CuratedFigure]) -> list[CuratedFigure]:
    """Return the figures of the preferred result of each model and dataset, without configurations."""
    preferred_revisions = {name: meta.get("revision") for name, meta in tables.models().items()}
    best: dict[tuple[str, str], tuple[tuple[int, list[int]], str]] = {}
    for figure in figures:
        key = figure.system, figure.dataset.slug
        candidate = _preference(figure, preferred_revisions.get(figure.system)), figure.address
        best[key] = max(best.get(key, candidate), candidate)
    return [
        replace(figure, configuration="")
        for figure in figures
        if figure.address == best[figure.system, figure.dataset.slug][1]
    ]


def _preference(figure: CuratedFigure, preferred_revision: str | None) -> tuple[int, list[int]]:
    """Return the sort key of a result: the revision that MTEB names for the model, and the newest mteb, are the best.

    Results of other commits come next, then those without a revision, then those that the model's makers reported.
    """
    _, version, revision = figure.locator.rsplit("; ", 2)
    order = ["", f"revision {EXTERNAL}", f"revision {NO_REVISION}", "", f"revision {(preferred_revision or '')[:12]}"]
    return (order.index(revision) if revision in order else 3), list(map(int, re.findall(r"\d+", version)))


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


def datasets_by_task() -> dict[str, list[Place]]:
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


def _read_model(files: Mapping[str, Path], metadata_path: str, folder: str, *, may_lack: bool) -> _Model:
    """Return the model of a folder's results from its metadata file.

    The revision defaults to the name of the folder. If the file `may_lack`, as for old results in MTEB's repository,
    the name defaults to that of the parent folder. Raises InvalidFile for a missing or invalid file.
    """
    parent, _, folder_name = folder.rpartition("/")
    if metadata_path in files:
        meta = _read_object(files[metadata_path])
    elif may_lack:
        name = parent.rpartition("/")[2].replace("__", "/", 1)
        meta = {**tables.models().get(name, {}), "name": name, "revision": folder_name}
    else:
        raise InvalidFile("the file is missing. Add the one that mteb writes next to the results")
    model_name, revision = meta.get("name"), meta.get("revision") or folder_name or NO_REVISION
    if not isinstance(model_name, str) or not _NAME.fullmatch(model_name):
        raise InvalidFile(f"name is {abbreviate(model_name)}, but should be organisation/model")
    if not isinstance(revision, str):
        raise InvalidFile(f"revision is {abbreviate(revision)}, but should be text")
    return _Model(model_name, revision, system_fields(model_name, meta))


def _read_task(
    path: Path, file: str, model: _Model, places: Mapping[str, Sequence[Place]], address: str
) -> Iterator[CuratedFigure]:
    """Yield the figures of one result file: the scores of the dataset's measures on its split and language.

    Raises InvalidFile for an ambiguous task, an old or invalid file, and if no measure has a score.
    """
    task = file.removesuffix(".json")
    if len(places[task]) > 1:
        slugs = ", ".join(place.dataset.slug for place in places[task])
        raise InvalidFile(f"{task} matches several datasets, {slugs}. Choose one with --task {task}=SLUG")
    (place,) = places[task]
    dataset, result = place.dataset, _update_layout(_read_object(path))
    if result.get("task_name") != task:
        raise InvalidFile(f"task_name is {abbreviate(result.get('task_name'))}, and the file is named {task}")
    revision, version = result.get("dataset_revision") or "", result.get("mteb_version") or ""
    if not isinstance(revision, str) or not isinstance(version, str):
        raise InvalidFile("dataset_revision and mteb_version should be text")
    scores, location = _select_subset(result.get("scores"), place)
    # A board compares only results on its own split.
    split = f"split {place.split}; " if place.split else ""
    values = {measure: scores.get(measure_name(measure)) for measure in dataset.measures}
    if not any(value is not None for value in values.values()):
        names = ", ".join(map(measure_name, dataset.measures))
        raise InvalidFile(f"{location} has none of the measures of {dataset.name}, {names}")
    for measure, value in values.items():
        if value is not None:
            yield CuratedFigure(
                dataset=dataset,
                system=model.name,
                measure=measure,
                value=_parse_share(value, f"{location}.{measure_name(measure)}"),
                scale="share",
                locator=f"{split}{describe_result(revision, version, model.revision)}"[:80],
                architecture=model.fields["architecture"],
                configuration=model.configuration,
                address=address,
                group=revision[:30] or "unknown",
                baseline=model.name in BASELINES,
                details=model.fields,
            )


def _update_layout(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result in the current layout; files older than mteb 1.11 have the splits at the top, without subsets."""
    if "scores" in result or "mteb_dataset_name" not in result:
        return result
    splits = {name: [{"hf_subset": "default", **item}] for name, item in result.items() if isinstance(item, dict)}
    return {**result, "task_name": result["mteb_dataset_name"], "scores": splits}


def _select_subset(scores: Any, place: Place) -> tuple[dict[str, Any], str]:
    """Return the scores on the dataset's split and language, and their location in the file.

    `place` may name another split or subset. Raises InvalidFile if there are none, or several.
    """
    dataset = place.dataset
    if not isinstance(scores, dict) or not scores:
        raise InvalidFile("scores is missing or not an object of splits, so this is not a result file of mteb")
    split = place.split or judged_split(dataset)
    if not isinstance(subset_scores := scores.get(split), list):
        raise InvalidFile(f"scores has {', '.join(scores)}, but {dataset.name} is judged on {split}")
    subsets: defaultdict[str, list[int]] = defaultdict(list)
    for number, item in enumerate(subset_scores):
        if not isinstance(item, dict) or not isinstance(item.get("hf_subset"), str):
            raise InvalidFile(f"scores.{split}[{number}].hf_subset is missing")
        subsets[item["hf_subset"]].append(number)
    candidates = [place.subset] if place.subset else ["default", dataset.language]
    same_language = [name for name in subsets if known_language_code(name) == known_language_code(dataset.language)]
    candidates += same_language if len(same_language) == 1 and not place.subset else []
    subset = next((name for name in candidates if name in subsets), None)
    if subset is None:
        raise InvalidFile(f"scores.{split} has the subsets {', '.join(subsets)}, and not {' or '.join(candidates)}")
    if len(subsets[subset]) > 1:
        raise InvalidFile(f"scores.{split} has the subset {subset} {len(subsets[subset])} times")
    return subset_scores[subsets[subset][0]], f"scores.{split}[{subsets[subset][0]}]"


def judged_split(dataset: Dataset) -> str:
    """Return MTEB's name of the split of the dataset's judgments, or of the one that publications use."""
    qrels, usual_split = dataset.current_qrels, SPLITS.get(dataset.slug, "test")
    # MTEB calls the only split of BRIGHT `standard`; the splits of the collection are its domains.
    return qrels.split if qrels and usual_split != "standard" else usual_split


def _parse_share(value: Any, location: str) -> str:
    """Return a score as decimal text. Raises InvalidFile if it is not a number between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidFile(f"{location} is {abbreviate(value)}, but should be a number between 0 and 1")
    return f"{value:.6f}".rstrip("0").rstrip(".") or "0"


def _read_object(path: Path) -> dict[str, Any]:
    """Return a file's JSON object. Raises InvalidFile for a file that is too large, and as `parse_object`."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InvalidFile(f"it is larger than {describe_bytes(MAX_FILE_BYTES)}")
    return parse_object(path.read_bytes())


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Return a JSON object. Raises InvalidFile for other content, repeated names, or invalid characters."""

    def reject_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return the pairs as an object. Raises InvalidFile for a repeated name."""
        result = dict(pairs)
        if len(result) < len(pairs):
            repeated_name = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise InvalidFile(f"{abbreviate(repeated_name)} occurs twice in one object")
        return result

    try:
        content = json.loads(text, object_pairs_hook=reject_repeated_names)
        encoded_text = json.dumps(content, ensure_ascii=False)
        encoded_text.encode()  # fails for unpaired surrogates
        if "\\u0000" in encoded_text:
            raise ValueError("it contains the character NUL")
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"it is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise InvalidFile("it is not a JSON object")
    return content
