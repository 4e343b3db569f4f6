"""Columns of figures that publications report, or that teams state in their runs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.utils.text import slugify
from django.utils.translation import gettext_noop as _

from leaderboard.boards.model import EFFICIENCY, OTHER_REPORTED, Cell, Column, Row
from leaderboard.results import reported_facts


class FigureKey(NamedTuple):
    """Key of reported figures that share a column; `hardware` is empty unless an entry has figures on several."""

    name: str
    unit: str
    hardware: str


Figures = Sequence[Mapping[str, Any]]


def figure_columns(
    figures_by_row: Sequence[tuple[Figures, Mapping[str, float]]], other_keys: Iterable[str] = ()
) -> list[Column]:
    """Return the columns for the reported figures of rows, except figures that repeat one of the row's scores.

    `figures_by_row` has each row's figures and scores, and `other_keys` has the keys of the board's other columns.
    """
    counts = [Counter(figure["name"] for figure in figures) for figures, _ in figures_by_row]
    split_names = {name for row_counts in counts for name, number in row_counts.items() if number > 1}
    keys, columns_by_key = set(other_keys), dict[FigureKey, Column]()
    for figures, scores in figures_by_row:
        for key in (figure_key(figure, split_names) for figure in figures if figure["name"] not in scores):
            if key not in columns_by_key:
                columns_by_key[key] = _reported_column(key, split_names, keys)
                keys.add(columns_by_key[key].key)
    other_names = {key.name for key in columns_by_key}.difference(reported_facts.COSTS)
    names = [*reported_facts.COSTS, *sorted(other_names)]
    ordered_keys = sorted(columns_by_key, key=lambda key: (names.index(key.name), key.hardware))
    return [columns_by_key[key] for key in ordered_keys]


def figure_key(figure: Mapping[str, Any], split_names: set[str]) -> FigureKey:
    """Return the key of a figure's column. Figures named in `split_names` have a column for each hardware."""
    hardware = str(figure.get("hardware", "")) if figure["name"] in split_names else ""
    return FigureKey(str(figure["name"]), reported_facts.board_unit(figure)[0], hardware)


def _reported_column(key: FigureKey, split_names: set[str], other_keys: set[str]) -> Column:
    """Return the column of a reported figure. If a row has several figures with this key, the last one is shown.

    If one of `other_keys` is the column's usual slug, the unit is added to it.
    """

    def cell(line: Any) -> Cell | None:
        matching_figures = [figure for figure in line.figures if figure_key(figure, split_names) == key]
        if not matching_figures:
            return None
        figure = matching_figures[-1]
        value, text = reported_facts.board_value(figure)
        unit = figure.get("unit", "")
        printed_text = f"{figure.get('as_printed', '')} {unit}" if unit != key.unit else ""
        if figure.get("doubtful"):  # Shown as printed, without a value to sort by.
            return Cell(text=printed_text or text, mark="?", title=str(figure.get("doubt", "")))
        return Cell(value, text, title=f"printed as {printed_text}" if printed_text else "")

    label = f"{key.name[:1].upper()}{key.name[1:]}" + (f", {key.hardware}" if key.hardware else "")
    slug = slugify(f"{key.name} {key.hardware}") or "figure"
    return Column(
        key=slugify(f"{slug} {key.unit or 'reported'}") if slug in other_keys else slug,
        label=label,
        group=EFFICIENCY if key.name in reported_facts.COSTS else OTHER_REPORTED,
        kind="figure",
        better="lower" if reported_facts.COSTS.get(key.name) == "lower" else "",
        unit=f"{key.unit}, self-reported" if key.name in reported_facts.SELF_REPORTED else key.unit,
        note=_("Self-reported by the publication, or by the team in its run; hardware differs between sources."),
        cell=cell,
    )


def has_doubtful(rows: Iterable[Row], columns: Iterable[Column]) -> bool:
    keys = [column.key for column in columns if column.kind == "figure"]
    return any(key in row.cells and row.cells[key].mark == "?" for row in rows for key in keys)
