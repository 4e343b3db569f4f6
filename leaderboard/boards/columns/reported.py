"""Columns from the figures that entries carry beside their scores: latency, index size, dimension, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.utils.text import slugify

from leaderboard.boards.model import EFFICIENCY, REPORTED_BESIDE, Column, Row
from leaderboard.results.reported_facts import COSTS


class FigureKey(NamedTuple):
    """Figures of one key share a column. `hardware` is set only where an entry has the figure on several."""

    name: str
    unit: str
    hardware: str


Figures = Sequence[Mapping[str, Any]]

#: Seconds are told in milliseconds, so that one column can be sorted.
MILLISECONDS = {"s": 1000.0}


def figure_columns(of_rows: Sequence[tuple[Figures, Mapping[str, float]]]) -> dict[FigureKey, Column]:
    """The columns that the rows' figures need. A figure that repeats one of the row's own scores needs none."""
    split = {name for figures, _ in of_rows for name in _repeated([figure["name"] for figure in figures])}
    columns: dict[FigureKey, Column] = {}
    for figures, scores in of_rows:
        for figure in figures:
            if figure["name"] in scores:
                continue
            key = key_of(figure, split)
            if key not in columns:
                columns[key] = _column(key, {column.key for column in columns.values()})
    return dict(sorted(columns.items(), key=lambda item: (item[1].group != EFFICIENCY, _position(item[0]))))


def _position(key: FigureKey) -> tuple[int, str, str]:
    names = list(COSTS)
    return (names.index(key.name) if key.name in COSTS else len(names), key.name, key.hardware)


def _repeated(names: Sequence[str]) -> set[str]:
    return {name for name in names if names.count(name) > 1}


def key_of(figure: Mapping[str, Any], split: set[str]) -> FigureKey:
    """The column that the figure belongs to; those of `split` names have one for each hardware."""
    hardware = str(figure.get("hardware", "")) if figure["name"] in split else ""
    unit = str(figure.get("unit", ""))
    return FigureKey(str(figure["name"]), "ms" if unit in MILLISECONDS else unit, hardware)


def _column(key: FigureKey, taken: set[str]) -> Column:
    label = f"{key.name[:1].upper()}{key.name[1:]}" + (f", {key.hardware}" if key.hardware else "")
    slug = slugify(f"{key.name} {key.hardware}") or "figure"
    return Column(
        key=slugify(f"{slug} {key.unit}") if slug in taken else slug,
        label=label,
        group=EFFICIENCY if key.name in COSTS else REPORTED_BESIDE,
        kind="figure",
        better="lower" if COSTS.get(key.name) == "lower" else "",
        unit=key.unit,
        note="As the source states it; hardware differs between sources.",
    )


def place_figures(row: Row, figures: Figures, places: Mapping[FigureKey, int]) -> None:
    """Put the row's figures into their columns. A doubtful one is shown as printed and has no value to sort by."""
    split = {key.name for key in places if key.hardware}
    for figure in figures:
        place = places.get(key_of(figure, split))
        if place is None:
            continue
        factor = MILLISECONDS.get(str(figure.get("unit", "")), 1.0)
        printed = str(figure.get("as_printed") or f"{figure['value']:g}")
        if figure.get("doubtful"):
            row.shown[place] = f"{printed} {figure['unit']}" if factor != 1.0 else printed
            row.marks[place] = "?"
        else:
            row.values[place] = round(float(figure["value"]) * factor, 6)
            row.shown[place] = printed if factor == 1.0 else f"{row.values[place]:g}"
