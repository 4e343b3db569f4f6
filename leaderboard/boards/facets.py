"""Facets by which readers filter rows, with the number of rows for each value.

A row has one value per facet, or several if its entries differ. The count of a value follows the usual rule: it
includes the rows that match all *other* filters, and so predicts the result of selecting the value.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from leaderboard.boards.state import ANONYMOUS, FACET_KINDS, FACETS, THIS_SITE, UNKNOWN, BoardState
from leaderboard.results.board_rows.entry_rows import EntryRow

#: Value of each facet, or a tuple of several values.
Facets = Mapping[str, str | tuple[str, ...]]

LABELS = {name: kind.label for name, kind in FACET_KINDS.items()}
#: Facets of datasets, which select the datasets that a board of several shows and counts.
DATASET_FACETS = ("language", "domain", "task")
ROW_FACETS = tuple(name for name in FACETS if name not in DATASET_FACETS)


@dataclass(frozen=True, slots=True)
class Option:
    """A value of a facet with its label and the number of rows that selecting it would show."""

    value: str
    label: str
    count: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class Facet:
    """A facet with at least two values or a selected one; `counts` is the unit of its counts."""

    name: str
    label: str
    options: Sequence[Option]
    counts: str = "rows"

    @property
    def chosen(self) -> int:
        return sum(option.chosen for option in self.options)


def row_facets(system: EntryRow, provenances: Collection[str], trainings: Collection[str], gap: str = "") -> Facets:
    """Return the facet values of a system's row.

    `provenances` and `trainings` are those of the row's entries. `gap` is the value of the contamination gap's facet,
    empty if the row has no gap.
    """
    open_weights = False if system.closed_api else system.open_weights
    return {
        "architecture": system.architecture,
        "provenance": _one_or_several(provenances),
        "training": _one_or_several(trainings),
        "gap": gap,
        "weights": _answer_value(open_weights, "open", "closed"),
        "commercial": _answer_value(system.commercial_use, "yes", "no"),
        "licence": system.licence or UNKNOWN,
        "year": str(system.year or system.source_year or UNKNOWN),
        "team": system.team_slug or system.source_key or (ANONYMOUS if system.team else THIS_SITE),
    }


def _one_or_several(values: Collection[str]) -> str | tuple[str, ...]:
    return next(iter(values)) if len(values) == 1 else tuple(sorted(values))


def _answer_value(answer: int | None, yes: str, no: str) -> str:
    return UNKNOWN if answer is None else yes if answer else no


def matches_facet(facets: Facets, facet: str, selected_values: Sequence[str]) -> bool:
    """Return whether a row has one of the selected values of a facet."""
    value = facets.get(facet, "")
    return value in selected_values if isinstance(value, str) else any(item in selected_values for item in value)


def count_facets(rows: Collection[Facets], names: Iterable[str] = ROW_FACETS) -> dict[str, Counter[str]]:
    return {name: _count_values(rows, name) for name in names}


def offered_facets(
    totals: Mapping[str, Counter[str]],
    rows: Sequence[Facets],
    state: BoardState,
    names_by_key: Mapping[str, str] | None = None,
) -> list[Facet]:
    """Return the facets that have at least two values or a selected one, with the number of rows per value.

    `totals` are the counts of all rows, or of datasets, and `rows` those that match all filters except facets.
    `names_by_key` has the display names of teams and publications by slug or key.
    """
    names = tuple(totals)
    counts = _count_by_facet(rows, state, names) if state.filtered else totals
    unit = "datasets" if names == DATASET_FACETS else "rows"
    facets = []
    for name in names:
        values = set(totals[name]) - {""}
        selected_values = state.selected_values(name)
        if len(values) < 2 and not selected_values:
            continue
        options = [
            Option(value, facet_label(name, value, names_by_key), counts[name][value], value in selected_values)
            for value in _sort_values(name, values.union(selected_values), counts[name])
        ]
        facets.append(Facet(name, LABELS[name], options, unit))
    return facets


def facet_label(facet: str, value: str, display_names: Mapping[str, str] | None = None) -> str:
    """Return the label of a facet's value, which is the value itself if no label is known.

    Teams and publications are looked up in `display_names`, by slug or key.
    """
    display_name = (display_names or {}).get(value) if facet == "team" else None
    return display_name or FACET_KINDS[facet].words.get(value) or value


def _count_by_facet(rows: Sequence[Facets], state: BoardState, names: Sequence[str]) -> dict[str, Counter[str]]:
    """Return, by facet and value, the number of rows that match the selections of all other facets."""
    filters = [(name, state.selected_values(name)) for name in names if state.selected_values(name)]
    matching_rows: list[Facets] = []
    rows_failing_one: dict[str, list[Facets]] = {name: [] for name, _ in filters}
    for row in rows:
        failed_facets = [name for name, selected_values in filters if not matches_facet(row, name, selected_values)]
        if not failed_facets:
            matching_rows.append(row)
        elif len(failed_facets) == 1:
            rows_failing_one[failed_facets[0]].append(row)
    return {name: _count_values([*matching_rows, *rows_failing_one.get(name, ())], name) for name in names}


def _count_values(rows: Iterable[Facets], name: str) -> Counter[str]:
    """Count the values of a facet; a row with several values counts for each."""
    counts = Counter[str]()
    for value, number in Counter([row.get(name, "") for row in rows]).items():
        for item in (value,) if isinstance(value, str) else value:
            counts[item] += number
    return counts


def _sort_values(name: str, values: Iterable[str], counts: Counter[str]) -> list[str]:
    """Sort fixed values in their own order, years newest first, and others by frequency; unknown ones are last."""
    fixed_order = FACETS[name]
    if fixed_order:
        return sorted(values, key=fixed_order.index)
    if name == "year":
        return sorted(values, key=lambda value: (value != UNKNOWN, value), reverse=True)
    return sorted(values, key=lambda value: (value == UNKNOWN, -counts[value], value.casefold()))
