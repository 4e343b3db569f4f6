"""Reading the tables in `data/`: typed rows, nothing more."""

import csv
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

DATA = Path(__file__).parent / "data"

T = TypeVar("T")

#: How the text of a column becomes a value of a field.
_READERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    float: float,
    float | None: lambda text: float(text) if text else None,
    bool: "1".__eq__,
    list[str]: lambda text: [part for part in text.split(";") if part],
}

#: Columns of `datasets.csv` that hold Table 1 of the BEIR paper, and their types.
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
    """A dataset that figures are reported on; `statistics` as printed, without what is not printed.

    `ir_datasets_id` is its name in the catalogue of ir_datasets, `beir_name` the archive's that BEIR hands out; both
    empty where there is none.
    """

    slug: str
    name: str
    task: str
    domain: str
    licence: str
    homepage: str
    drop_self_matches: bool
    measures: list[str]
    statistics: dict[str, Any]
    ir_datasets_id: str
    beir_name: str


@dataclass(frozen=True, slots=True)
class ReportedSystem:
    """A system as one source names it. `adapted`: trained on the target corpus without labels."""

    source: str
    name: str
    slug: str
    architecture: str
    training_declared: bool
    training_datasets: list[str]
    adapted: bool
    paper_url: str


@dataclass(frozen=True, slots=True)
class ReportedPlace:
    """Which entry a number belongs to."""

    source: str
    dataset: str
    system: str
    configuration: str

    @property
    def comparison_group(self) -> str:
        """Numbers of one source on one hardware may be compared; a setting after `;` is the same hardware."""
        hardware = self.configuration.partition(";")[0]
        return f"reported:{self.source}" + (f":{hardware}" if hardware else "")


@dataclass(frozen=True, slots=True)
class ReportedFigure:
    """A score, or a figure beside the scores: latency, index size, dimension, cost.

    The `name` of a score is its measure, its `value` a share between 0 and 1, and its `scale` how it is printed.
    `doubt` says why a figure is doubtful.
    """

    place: ReportedPlace
    name: str
    value: float
    as_printed: str
    unit: str = ""
    scale: str = ""
    hardware: str = ""
    locator: str = ""
    doubt: str = ""


def sources() -> dict[str, dict[str, Any]]:
    """Key → fields of the publication."""
    return _toml("sources.toml")


def benchmarks() -> dict[str, dict[str, Any]]:
    """Slug → what the reported board consists of, in the order of the file."""
    return _toml("benchmarks.toml")


def datasets() -> list[ReportedDataset]:
    """Return the datasets, with Table 1's statistics."""
    return read_rows(
        ReportedDataset,
        DATA / "datasets.csv",
        statistics=lambda row: {name: kind(row[name]) for name, kind in _STATISTICS.items() if row[name]},
    )


def dataset_texts() -> dict[str, dict[str, Any]]:
    """Slug → `description` of a dataset, and the fields of the publication to cite, where either is known.

    These are `key`, `title`, `authors`, `year` and `venue`; `type` of entry where it is not "inproceedings", and `doi`
    or `url` where there is one.
    """
    return _toml("dataset_texts.toml")


def systems() -> list[ReportedSystem]:
    """Return the systems of all sources."""
    return read_rows(ReportedSystem, DATA / "systems.csv")


def scores() -> list[ReportedFigure]:
    """Return every reported score."""
    makers = dict.fromkeys(("unit", "hardware", "doubt"), lambda row: "")
    return read_rows(
        ReportedFigure, DATA / "scores.csv", place=_place, name=lambda row: row["measure"], **makers
    )


def figures() -> list[ReportedFigure]:
    """Return every reported figure that is not a score."""
    return read_rows(ReportedFigure, DATA / "figures.csv", place=_place)


@dataclass(frozen=True, slots=True)
class PublishedAverage:
    """What a publication prints of a system over all datasets, and where.

    `average` is the average relative to BM25 in percent, `wins` on how many datasets it beats BM25; None: not printed.
    """

    average: float | None
    wins: int | None
    locators: tuple[str, ...]


@lru_cache
def published_averages(source: str, measure: str) -> Mapping[str, PublishedAverage]:
    """By system what a publication prints over all of its datasets for a measure; empty where it prints nothing."""

    def of(name: str) -> dict[str, dict[str, str]]:
        rows = (row for row in _csv(DATA / name) if row["source"] == source and row["measure"] == measure)
        return {row["system"]: row for row in rows}

    averages, wins = of("averages.csv"), of("wins.csv")
    return {
        system: PublishedAverage(
            average=float(averages[system]["average_relative_to_bm25_percent"])
            if system in averages
            else None,
            wins=int(wins[system]["wins_against_bm25"]) if system in wins else None,
            locators=tuple(rows[system]["locator"] for rows in (averages, wins) if system in rows),
        )
        for system in dict.fromkeys([*averages, *wins])
    }


def _place(row: dict[str, str]) -> ReportedPlace:
    return ReportedPlace(row["source"], row["dataset"], row["system"], row["configuration"])


def read_rows(kind: type[T], path: Path, /, **makers: Callable[[dict[str, str]], Any]) -> list[T]:
    """The lines of a table, read by the types of the fields of `kind`; `makers` make fields from a whole line."""
    readers = {field: _READERS[hint] for field, hint in get_type_hints(kind).items() if field not in makers}
    return [
        kind(
            **{field: read(row[field]) for field, read in readers.items()},
            **{field: make(row) for field, make in makers.items()},
        )
        for row in _csv(path)
    ]


def _csv(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _toml(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((DATA / name).read_text(encoding="utf-8"))
