"""What boards read of a dataset's entries, as plain values: `revisions` keeps these, `past` reads them.

The rows are the very ones that boards are built from, field by field, so that a column added there is kept from then
on, and one that an old row lacks is empty on its board.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from leaderboard.core.measures import better
from leaderboard.core.text.baselines import named_baseline
from leaderboard.models import Dataset, Entry
from leaderboard.results import citations
from leaderboard.results.history import entry_columns, entry_rows, measurements

#: What boards show of the dataset itself, as columns.
DATASET_FACTS = (
    "slug", "name", "task", "domain", "language", "state", "hidden", "protection", "primary_measure", "measures",
    "current_version_id", "current_qrels_id",
)  # fmt: skip
#: Of a dataset without a version the ids of its parts, which its scores are the means of.
PARTS = "parts"
#: Fields with this ending hold JSON text, and are kept as what it says.
TEXT = "_text"
#: Of a benchmark's line what the entry's own row says already, or says in a way that differs by database.
_KNOWN = ("dataset_id", "published_at", "pk", "scores", "figures", "deviations")


def dataset_facts(dataset_id: int) -> dict[str, Any]:
    """What boards show of the dataset itself, and their revision; under PARTS which it is the mean of. Two queries."""
    facts = dict(Dataset.objects.values("board_revision", *DATASET_FACTS).get(pk=dataset_id))
    if facts["current_version_id"] is None:
        parts = Dataset.objects.filter(part_of=dataset_id).order_by("name", "pk")
        facts[PARTS] = list(parts.values_list("pk", flat=True))
    return facts


def present_rows(dataset_id: int) -> dict[int, dict[str, Any]]:
    """Of each public or withdrawn entry, by its id, all that boards read. Five queries at most.

    A row has the fields of an `EntryRow` under `entry`, those of a benchmark's line under `line` (public entries
    only), the measurements under `measured`, and under `bibtex` what there is to cite for the system.
    """
    lines = {
        row["pk"]: {name: value for name, value in row.items() if name not in _KNOWN}
        for row in entry_columns.rows_of([dataset_id])
    }
    costs: dict[int, list[dict[str, Any]]] = {}
    for one in measurements.measured_on([dataset_id]):
        costs.setdefault(one.entry_id, []).append(_measured(one))
    rows = entry_rows.entries_of(dataset_id)
    cited = citations.bibtex_of(row.slug for row in rows)
    return {
        row.pk: {
            "entry": _plain(row),
            "line": lines.get(row.pk, {}),
            "measured": costs.get(row.pk, []),
            "bibtex": cited.get(row.slug, ""),
        }
        for row in rows
    }


def result_facts(
    rows: Mapping[int, Mapping[str, Any]], entry: int, measure: str, dataset: str
) -> dict[str, Any]:
    """What the news say of a new result: its score, its baseline's, and the best of the others that it is ranked with.

    `dataset` is the dataset's name, for the baseline's. All are published values; None where there is none.
    """
    own = rows[entry]["entry"]
    others = [
        row["entry"]
        for pk, row in rows.items()
        if pk != entry
        and row["entry"]["visibility"] == Entry.Visibility.PUBLIC
        and row["entry"]["comparison_group"] == own["comparison_group"]
    ]
    values = [each["scores"][measure] for each in others if measure in each["scores"]]
    baselines = [each for each in others if each["is_baseline"]]
    choose = min if better(measure) == "lower" else max
    return {
        "measure": measure,
        "value": own["scores"].get(measure),
        "baseline": baselines[-1]["scores"].get(measure) if baselines else None,
        "baseline_name": named_baseline(baselines[-1]["system"], dataset) if baselines else "",
        "best_before": choose(values) if values else None,
    }


def _plain(row: entry_rows.EntryRow) -> dict[str, Any]:
    return {
        name.removesuffix(TEXT): orjson.loads(value) if name.endswith(TEXT) else value
        for name, value in row._asdict().items()
    }


def _measured(one: measurements.Measured) -> dict[str, Any]:
    values = one._asdict()
    for name in ("dataset_id", "entry_id", "system_id", "configuration"):
        del values[name]
    return {**values, "machine": list(one.machine)}


def entry_row(kept: Mapping[str, Any]) -> entry_rows.EntryRow:
    """The row of a dataset's board as it was."""
    entry = kept["entry"]
    return entry_rows.EntryRow._make(
        orjson.dumps(entry.get(name.removesuffix(TEXT))).decode() if name.endswith(TEXT) else entry.get(name)
        for name in entry_rows.EntryRow._fields
    )


def system_row(kept: Mapping[str, Any]) -> entry_rows.SystemRow:
    """The system as it was named and described then."""
    entry = {**kept["entry"], "name": kept["entry"]["system"]}
    return entry_rows.SystemRow._make(entry.get(name) for name in entry_rows.SystemRow._fields)


def line_of(dataset_id: int, kept: Mapping[str, Any]) -> tuple[Any, ...]:
    """The entry as a row of `entry_columns`."""
    entry, line = kept["entry"], kept["line"]
    values = {
        **line,
        "dataset_id": dataset_id,
        "published_at": entry["published"],
        "pk": entry["pk"],
        **{name: orjson.dumps(entry[name]).decode() for name in entry_columns.TEXTS},
    }
    return tuple(values.get(name) for name in entry_columns.FIELD_NAMES)


def measured_rows(dataset_id: int, kept: Sequence[Mapping[str, Any]]) -> list[measurements.Measured]:
    """What had been measured of the entries, oldest first, at the prices of then."""
    found = [
        measurements.Measured(
            **{
                **one,
                "machine": measurements.Machine(*one["machine"]),
                "dataset_id": dataset_id,
                "entry_id": each["entry"]["pk"],
                "system_id": each["line"].get("system_id"),
                "configuration": each["entry"]["configuration"],
            }
        )
        for each in kept
        for one in each["measured"]
    ]
    return sorted(found, key=lambda one: (one.measured_at, one.entry_id))
