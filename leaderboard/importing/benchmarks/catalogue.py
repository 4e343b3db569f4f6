"""The catalogue of benchmarks, and how complete each is on this site."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from leaderboard.importing.reported.tables import read_rows
from leaderboard.models import Dataset

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class CataloguedDataset:
    """A dataset of a benchmark, or with `part_of` a part of one.

    `source` is what `import_dataset --from` takes; where it is empty, `note` says why nothing can be fetched. `bm25`
    is a published value of the measure `primary`, None where no source is known. `counted`: the benchmark's mean is
    over it.
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
    """Slug → `name`, and where known `description`, `licence` and `publication`, of every benchmark."""
    return tomllib.loads((DATA / "benchmarks.toml").read_text(encoding="utf-8"))


@cache
def datasets_of(benchmark: str) -> tuple[CataloguedDataset, ...]:
    """Its datasets in order, each followed by its parts; none for a benchmark that is not in the catalogue."""
    rows = read_rows(CataloguedDataset, DATA / "datasets.csv")
    return tuple(row for row in rows if row.benchmark == benchmark)


def completeness(benchmark: str) -> dict[str, Any] | None:
    """Return how many `of` a benchmark's datasets are `here`, and the `missing` ones, which take no runs here yet.

    A missing dataset says why; if it `is_reported`, its board has published figures alone. None is returned for a
    benchmark that is not in the catalogue. One query.
    """
    rows = datasets_of(benchmark)
    if not rows:
        return None
    states = dict(Dataset.objects.filter(slug__in=[row.slug for row in rows]).values_list("slug", "state"))
    here = {slug for slug, state in states.items() if state in Dataset.TAKES_RUNS}
    parts: dict[str, list[str]] = {}
    for row in rows:
        if row.part_of:
            parts.setdefault(row.part_of, []).append(row.slug)
    here |= {whole for whole, slugs in parts.items() if here.issuperset(slugs)}
    members = [row for row in rows if not row.part_of]
    missing = []
    for row in members:
        if row.slug in here:
            continue
        state, parts_here = states.get(row.slug), [slug for slug in parts.get(row.slug, ()) if slug in here]
        why = row.note or f"It has not been imported from {row.source.partition('@')[0]}."
        if state == Dataset.State.PREPARING:
            why = "It is here and waits for its baseline."
        elif parts_here:
            why = f"{row.note} Here are {', '.join(parts_here)}."
        columns = {name: getattr(row, name) for name in ("slug", "name", "bm25", "bm25_source")}
        missing.append({**columns, "why": why, "is_reported": state == Dataset.State.REPORTED})
    return {"here": len(members) - len(missing), "of": len(members), "missing": missing}
