"""Latency, index size and cost as publications state them: never mixed between two of them, or between machines."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import NamedTuple

from leaderboard.boards.columns.reported import MILLISECONDS
from leaderboard.models import Entry
from leaderboard.models.results import EntryQuerySet
from leaderboard.results.history.entry_rows import short_citation

#: What a publication calls the axis.
STATED = {"latency": "latency", "index": "index size", "cost": "cost"}

#: Whose figure it is: a system's slug and its configuration.
Key = tuple[str, str]


class Setting(NamedTuple):
    """Where figures that may be compared come from: one dataset, publication, machine and unit."""

    dataset_id: int
    dataset: str
    source: str
    source_key: str
    hardware: str
    unit: str

    def __str__(self) -> str:
        where = f" on {self.hardware}" if self.hardware else ""
        return f"{self.source}{where}, {self.dataset}"


def stated(axis: str, datasets: Collection[int], source_id: int | None) -> dict[Setting, dict[Key, float]]:
    """The figures for an axis that entries on these datasets carry, by setting, without doubtful ones. One query."""
    if axis not in STATED:
        return {}
    entries = (
        EntryQuerySet(Entry).public().filter(dataset_id__in=datasets, provenance=Entry.Provenance.REPORTED)
    )
    if source_id is not None:
        entries = entries.filter(source_id=source_id)
    rows = entries.exclude(figures=[]).values_list(
        "dataset_id",
        "dataset__name",
        "source__authors",
        "source__year",
        "source__key",
        "system__slug",
        "configuration",
        "figures",
    )
    found: dict[Setting, dict[Key, float]] = {}
    for dataset_id, dataset, authors, year, source_key, slug, configuration, figures in rows:
        for figure in figures:
            if figure["name"] != STATED[axis] or figure.get("doubtful"):
                continue
            unit = str(figure.get("unit", ""))
            value = round(float(figure["value"]) * MILLISECONDS.get(unit, 1.0), 6)
            if value <= 0:  # which no logarithmic axis has a place for
                continue
            setting = Setting(
                dataset_id,
                dataset,
                short_citation(authors, year),
                source_key or "",
                str(figure.get("hardware", "")),
                "ms" if unit in MILLISECONDS else unit,
            )
            found.setdefault(setting, {})[slug, configuration] = value
    return found


def fullest(
    settings: Mapping[Setting, Mapping[Key, float]], scored: Set[Key], in_view: Set[Key], device: str
) -> tuple[Setting | None, Sequence[Setting]]:
    """The setting that has figures of most `scored` rows, on the device wished for, and the others with rows in view.

    `scored` are the rows of the whole board that have a score, as a point needs both. Whichever rows are in view: a
    facet never changes the machine, so that two pictures of a board can be compared.
    """
    wished = [
        setting
        for setting in settings
        if not device or ("GPU" in setting.hardware.upper()) == (device == "gpu")
    ]

    def plotted(setting: Setting) -> tuple[int, int, str]:
        return len(scored & settings[setting].keys()), len(settings[setting]), str(setting)

    best = max(wished, key=plotted, default=None)
    return best, [
        setting for setting in settings if setting != best and not in_view.isdisjoint(settings[setting])
    ]
