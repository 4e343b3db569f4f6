"""The catalog of benchmarks, and their completeness on this site."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from leaderboard.importing.reported.tables import read_rows
from leaderboard.models import Dataset

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class CataloguedDataset:
    """A dataset of a benchmark, or a part of one if `part_of` is set.

    `source` is an argument of `import_dataset --from`; if it is empty, `note` is the reason why the dataset is not
    available. `bm25` is a published score in the measure `primary`, or None. `counted` is whether the benchmark's mean
    includes the dataset.
    """

    benchmark: str
    slug: str
    name: str
    source: str
    split: str
    primary: str
    language: str
    counted: bool
    part_of: str
    drop_self_matches: bool
    bm25: float | None
    bm25_source: str
    note: str


@cache
def benchmarks() -> Mapping[str, dict[str, Any]]:
    """Return `name` and, if known, `description`, `licence`, and `publication` of every benchmark, by slug.

    `datasets` of a benchmark includes the rows that `datasets.csv` has for other benchmarks.
    """
    return tomllib.loads((DATA / "benchmarks.toml").read_text(encoding="utf-8"))


@cache
def catalogued_datasets(benchmark: str) -> tuple[CataloguedDataset, ...]:
    """Return the benchmark's datasets in order, each followed by its parts; empty for an unknown benchmark."""
    slugs = set(benchmarks().get(benchmark, {}).get("datasets", ()))
    return tuple(
        replace(row, benchmark=benchmark, part_of=row.part_of if row.part_of in slugs else "") if slugs else row
        for row in _read_catalogue()
        if row.benchmark == benchmark or not slugs.isdisjoint((row.slug, row.part_of))
    )


def _read_catalogue() -> list[CataloguedDataset]:
    return read_rows(CataloguedDataset, DATA / "datasets.csv")


def find_importable(dataset: str) -> CataloguedDataset | None:
    """Return the row of a dataset, by slug, that `import_benchmark` can import; None if there is none."""
    return next((row for row in _read_catalogue() if row.slug == dataset and row.source), None)


def completeness(benchmark: str) -> dict[str, Any] | None:
    """Return how many of a benchmark's datasets are available, or None for an unknown benchmark. One query.

    The result has the numbers `here` and `of`, the `missing` datasets with reasons, and whether any of them is
    `importable`. A dataset is also available if all its parts are. A missing dataset `is_reported` if its board has
    only published results.
    """
    rows = catalogued_datasets(benchmark)
    if not rows:
        return None
    states = dict(Dataset.objects.filter(slug__in=[row.slug for row in rows]).values_list("slug", "state"))
    available = {slug for slug, state in states.items() if state in Dataset.TAKES_RUNS}
    parts: dict[str, list[str]] = {}
    for row in rows:
        if row.part_of:
            parts.setdefault(row.part_of, []).append(row.slug)
    available |= {parent for parent, slugs in parts.items() if available.issuperset(slugs)}
    members = [row for row in rows if not row.part_of]
    missing_rows = []
    for row in members:
        if row.slug in available:
            continue
        state = states.get(row.slug)
        available_parts = [slug for slug in parts.get(row.slug, ()) if slug in available]
        reason = row.note or "Not imported yet."
        if state == Dataset.State.PREPARING:
            reason = "It was imported, but its baseline is not ready yet."
        elif available_parts:
            reason = f"{row.note} Available parts: {', '.join(available_parts)}."
        columns = {name: getattr(row, name) for name in ("slug", "name", "bm25", "bm25_source")}
        missing_rows.append({**columns, "why": reason, "is_reported": state == Dataset.State.REPORTED})
    missing_slugs = {row["slug"] for row in missing_rows}
    importable = any(row.source and not missing_slugs.isdisjoint((row.slug, row.part_of)) for row in rows)
    return {
        "here": len(members) - len(missing_rows), "of": len(members), "missing": missing_rows, "importable": importable,
    }  # fmt: skip
