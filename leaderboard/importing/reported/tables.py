"""Typed rows of the tables in `data/`."""

import csv
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from leaderboard.results.mteb import describe_result

DATA = Path(__file__).parent / "data"
#: Folders with sources, benchmarks, datasets, and systems; the boards of the first one come first.
FOLDERS = (DATA / "2026", DATA)

T = TypeVar("T")

#: Type of a field → parser for the column's text.
_READERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    float: float,
    float | None: lambda text: float(text) if text else None,
    int | None: lambda text: int(text) if text else None,
    bool: "1".__eq__,
    list[str]: lambda text: [part for part in text.split(";") if part],
}

#: Scale of printed values → printed value of 1.
SCALES = {"share": 1.0, "percent": 100.0}

#: Columns of `datasets.csv` with Table 1 of the BEIR paper, and their types.
_STATISTICS: dict[str, type[int] | type[float]] = {
    "documents": int,
    "queries": int,
    "relevant_per_query": float,
    "words_per_query": float,
    "words_per_document": float,
    "relevance_levels": int,
    "has_titles": int,
    "train_pairs": int,
    "dev_queries": int,
}


@dataclass(frozen=True, slots=True)
class ReportedDataset:
    """A dataset with reported results, as fields of `Dataset`; `reported_statistics` are the printed values only.

    `ir_datasets_id` is its id in ir_datasets, and `beir_name` is BEIR's name of the archive; both may be empty.
    """

    slug: str
    name: str
    task: str
    domain: str
    licence: str
    homepage: str
    drop_self_matches: bool
    measures: list[str]
    language: str
    reported_statistics: dict[str, Any]
    ir_datasets_id: str
    beir_name: str


@dataclass(frozen=True, slots=True)
class ReportedSystem:
    """A system as named by one source; `adapted` means trained on the target corpus without labels.

    `year` is the year of the system's first publication if it differs from the year of the source.
    """

    source: str
    name: str
    slug: str
    architecture: str
    training_declared: bool
    training_datasets: list[str]
    adapted: bool
    paper_url: str
    year: int | None


@dataclass(frozen=True, slots=True)
class ReportedPlace:
    """Key of the entry that a value belongs to.

    `group` is the revision of the dataset, empty if unstated, and None for a source whose groups are its hardware.
    """

    source: str
    dataset: str
    system: str
    configuration: str
    group: str | None = field(default=None, compare=False)

    @property
    def comparison_group(self) -> str:
        """Group of comparable values: one source and one revision or hardware (the configuration up to `;`)."""
        group = self.configuration.partition(";")[0] if self.group is None else self.group
        return f"reported:{self.source}" + (f":{group}" if group else "")


@dataclass(frozen=True, slots=True)
class ReportedFigure:
    """A score, or another figure: latency, index size, dimension, or cost.

    For a score, `name` is the measure, `value` a share between 0 and 1, and `scale` the printed scale. `doubt` is the
    reason why a figure is doubtful.
    """

    place: ReportedPlace
    name: str
    value: float
    as_printed: str
    is_score: bool = False
    unit: str = ""
    scale: str = ""
    hardware: str = ""
    locator: str = ""
    doubt: str = ""


def sources() -> dict[str, dict[str, Any]]:
    """Return the fields of each publication by key."""
    return _read_toml("sources.toml")


def benchmarks() -> dict[str, dict[str, Any]]:
    """Return the definition of each reported benchmark by slug, in the order of the file."""
    return _read_toml("benchmarks.toml")


def datasets() -> list[ReportedDataset]:
    """Return the datasets with reported results, with their statistics in Table 1 of the BEIR paper."""
    return [
        row
        for folder in FOLDERS
        for row in read_rows(
            ReportedDataset,
            folder / "datasets.csv",
            language=lambda row: row.get("language", "en"),
            reported_statistics=lambda row: {name: kind(row[name]) for name, kind in _STATISTICS.items() if row[name]},
        )
    ]


def dataset_texts() -> dict[str, dict[str, Any]]:
    """Return the `description` and the publication of datasets by slug, if known.

    The fields of the publication are `key`, `title`, `authors`, `year`, and `venue`, optionally `type` (default:
    "inproceedings"), and `doi` or `url`.
    """
    return _read_toml("dataset_texts.toml")


def systems() -> list[ReportedSystem]:
    return [row for folder in FOLDERS for row in read_rows(ReportedSystem, folder / "systems.csv")]


@cache
def models() -> Mapping[str, Mapping[str, Any]]:
    """Return MTEB's description (ModelMeta) of the models with results in its repository, by name."""
    descriptions: Mapping[str, Mapping[str, Any]] = json.loads((DATA / "2026" / "models.json").read_text("utf-8"))
    return descriptions


def scores() -> list[ReportedFigure]:
    """Return all reported scores."""
    makers = {"place": _read_place, "name": lambda row: row["measure"], "is_score": lambda row: True}
    makers |= dict.fromkeys(("unit", "hardware", "doubt"), lambda row: "")
    return [*read_rows(ReportedFigure, DATA / "scores.csv", **makers), *_read_results()]


#: Columns of `results.csv` that are not measures.
_RESULT_COLUMNS = ("source", "dataset", "system", "configuration", "revision", "collection", "locator")


def _read_results() -> Iterator[ReportedFigure]:
    """Yield the scores of `results.csv`, which has a row per system and dataset, and a column per measure.

    Results of MTEB name the revisions of model and collection (commits abbreviated to twelve digits, in full in
    `revisions.csv`), and their `locator` is the version of mteb.
    """
    path = FOLDERS[0] / "results.csv"
    if not path.exists():
        return
    publications = sources()
    revisions = {row["revision"][:12]: row["revision"] for row in _read_csv(path.parent / "revisions.csv")}
    for row in _read_csv(path):
        group, locator = "", row["locator"]
        if row["revision"]:
            collection = revisions.get(row["collection"], row["collection"])
            group = collection[:30] or "unknown"
            locator = describe_result(collection, locator, revisions.get(row["revision"], row["revision"]))
        place = ReportedPlace(row["source"], row["dataset"], row["system"], row["configuration"], group)
        scale = publications[place.source].get("scale", "share")
        for measure, text in row.items():
            if text and measure not in _RESULT_COLUMNS:
                value = round(float(text) / SCALES[scale], 8)
                yield ReportedFigure(place, measure, value, text, is_score=True, scale=scale, locator=locator)


def figures() -> list[ReportedFigure]:
    return read_rows(ReportedFigure, DATA / "figures.csv", place=_read_place, is_score=lambda row: False)


@dataclass(frozen=True, slots=True)
class PublishedAverage:
    """Published aggregates of a system over all datasets, with their locations.

    `average` is the average relative to BM25 in percent, and `wins` the number of datasets on which it beats BM25;
    None if not printed.
    """

    average: float | None
    wins: int | None
    locators: tuple[str, ...]


@lru_cache
def published_averages(source: str, measure: str) -> Mapping[str, PublishedAverage]:
    """Return the published aggregates of systems over all datasets, by name; empty if the source prints none."""

    def read_by_system(file_name: str) -> dict[str, dict[str, str]]:
        rows = (row for row in _read_csv(DATA / file_name) if row["source"] == source and row["measure"] == measure)
        return {row["system"]: row for row in rows}

    averages, wins = read_by_system("averages.csv"), read_by_system("wins.csv")
    return {
        system: PublishedAverage(
            average=float(averages[system]["average_relative_to_bm25_percent"]) if system in averages else None,
            wins=int(wins[system]["wins_against_bm25"]) if system in wins else None,
            locators=tuple(rows[system]["locator"] for rows in (averages, wins) if system in rows),
        )
        for system in dict.fromkeys([*averages, *wins])
    }


def _read_place(row: dict[str, str]) -> ReportedPlace:
    return ReportedPlace(row["source"], row["dataset"], row["system"], row["configuration"])


def read_rows(kind: type[T], path: Path, /, **makers: Callable[[dict[str, str]], Any]) -> list[T]:
    """Return the lines of a CSV table as instances of `kind`, with columns parsed by the types of its fields.

    `makers` compute fields from a whole line instead.
    """
    readers = {field: _READERS[hint] for field, hint in get_type_hints(kind).items() if field not in makers}
    return [
        kind(
            **{field: read(row[field]) for field, read in readers.items()},
            **{field: make(row) for field, make in makers.items()},
        )
        for row in _read_csv(path)
    ]


def _read_csv(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _read_toml(name: str) -> dict[str, dict[str, Any]]:
    """Return the tables of this file in all folders that have it."""
    tables: dict[str, dict[str, Any]] = {}
    for folder in FOLDERS:
        if (folder / name).exists():
            tables |= tomllib.loads((folder / name).read_text(encoding="utf-8"))
    return tables
