"""Columns from the figures that entries carry beside their scores: latency, index size, dimension, cost."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.utils.text import slugify
from django.utils.translation import gettext_noop as _

from leaderboard.boards.model import EFFICIENCY, REPORTED_BESIDE, Cell, Column, Row
from leaderboard.results.reported_facts import COSTS


class FigureKey(NamedTuple):
    """Figures of one key share a column. `hardware` is set only where an entry has the figure on several."""

    name: str
    unit: str
    hardware: str


Figures = Sequence[Mapping[str, Any]]

#: Seconds are told in milliseconds, so that one column can be sorted.
MILLISECONDS = {"s": 1000.0}


def figure_columns(
    of_rows: Sequence[tuple[Figures, Mapping[str, float]]], taken: Iterable[str] = ()
) -> list[Column]:
    """The columns that the figures of rows need, each row with its scores: a figure that repeats one needs none.

    `taken` are the keys that other columns of the board have.
    """
    split = {name for figures, _ in of_rows for name in _repeated([figure["name"] for figure in figures])}
    keys, found = set(taken), dict[FigureKey, Column]()
    for figures, scores in of_rows:
        for key in (key_of(figure, split) for figure in figures if figure["name"] not in scores):
            if key not in found:
                found[key] = _column(key, split, keys)
                keys.add(found[key].key)
    return [
        column
        for _, column in sorted(
            found.items(), key=lambda item: (item[1].group != EFFICIENCY, _position(item[0]))
        )
    ]


def _cell(figure: Mapping[str, Any]) -> Cell:
    """Make the cell of a figure; a doubtful one is shown as printed and has no value to sort by."""
    factor = MILLISECONDS.get(str(figure.get("unit", "")), 1.0)
    printed = str(figure.get("as_printed") or f"{figure['value']:g}")
    if figure.get("doubtful"):
        return Cell(text=f"{printed} {figure['unit']}" if factor != 1.0 else printed, mark="?")
    value = round(float(figure["value"]) * factor, 6)
    return Cell(value, printed if factor == 1.0 else f"{value:g}")


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


def _column(key: FigureKey, split: set[str], taken: set[str]) -> Column:
    def cell(line: Any) -> Cell | None:
        found = [figure for figure in line.figures if key_of(figure, split) == key]
        return _cell(found[-1]) if found else None

    label = f"{key.name[:1].upper()}{key.name[1:]}" + (f", {key.hardware}" if key.hardware else "")
    slug = slugify(f"{key.name} {key.hardware}") or "figure"
    return Column(
        key=slugify(f"{slug} {key.unit or 'reported'}") if slug in taken else slug,
        label=label,
        group=EFFICIENCY if key.name in COSTS else REPORTED_BESIDE,
        kind="figure",
        better="lower" if COSTS.get(key.name) == "lower" else "",
        unit=key.unit,
        note=_("As the source states it; hardware differs between sources."),
        cell=cell,
    )


def has_doubtful(rows: Iterable[Row], columns: Iterable[Column]) -> bool:
    """Whether a row shows a doubtful figure in one of the columns."""
    keys = [column.key for column in columns if column.kind == "figure"]
    return any(key in row.cells and row.cells[key].mark == "?" for row in rows for key in keys)
