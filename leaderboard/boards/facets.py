"""What a reader may choose rows by, and how many rows each choice has.

A row has one value of each facet, or several of one that it mixes. Counts follow the usual rule: an option counts the
rows that all *other* filters leave, so that it says what choosing it would show.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from leaderboard.boards.state import FACETS, BoardState
from leaderboard.core import anonymity
from leaderboard.models import Entry, architecture_choices
from leaderboard.results.board_rows.entry_rows import EntryRow

#: Facet → value, or the values that a row mixes.
Facets = Mapping[str, str | tuple[str, ...]]

LABELS = {
    "architecture": "Architecture",
    "provenance": "Provenance",
    "training": "Training data",
    "gap": "Better on public queries",
    "weights": "Weights",
    "commercial": "Commercial use",
    "licence": "Licence",
    "year": "Year",
    "team": "By",
    "language": "Language",
    "domain": "Domain",
    "task": "Task",
}
#: Those of datasets: on a board of several they choose which ones are shown and counted.
OF_DATASETS = ("language", "domain", "task")
OF_ROWS = tuple(name for name in FACETS if name not in OF_DATASETS)
UNKNOWN = "unknown"
#: Of systems whose team is kept back while a review lasts.
ANONYMOUS = anonymity.ANONYMOUS
#: Of the site's own systems, which are no team's and no publication's; and how the column “By” calls it.
THIS_SITE, HOUSE = "this-site", "this site"

_WORDS: Mapping[str, Mapping[str, str]] = {
    "architecture": dict(architecture_choices()),
    "training": {value: str(label) for value, label in Entry.Training.choices},
    "gap": {"shown": "significant", "not-shown": "not significant"},
    "weights": {"open": "open", "closed": "closed", UNKNOWN: "not declared"},
    "commercial": {"yes": "permitted", "no": "not permitted", UNKNOWN: "not declared"},
    "licence": {UNKNOWN: "not declared"},
    "year": {UNKNOWN: "not declared"},
    "team": {THIS_SITE: HOUSE},
}


@dataclass(frozen=True, slots=True)
class Option:
    """A value of a facet, how it is called, and how many rows choosing it would show."""

    value: str
    label: str
    count: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class Facet:
    """A facet that is offered: at least two values, or one that is chosen. `counts` says what its counts count."""

    name: str
    label: str
    options: Sequence[Option]
    counts: str = "rows"

    @property
    def chosen(self) -> int:
        """How many of its values are chosen."""
        return sum(option.chosen for option in self.options)


def facets_of(
    system: EntryRow, provenances: Collection[str], trainings: Collection[str], gap: str = ""
) -> Facets:
    """The facets of a row of this system, with the different provenances and exposures that its entries have.

    `gap` is whether the contamination gap is shown, empty where the row has none.
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


def matches_facet(facets: Facets, facet: str, wanted: Sequence[str]) -> bool:
    """Whether a row has one of the wanted values of a facet."""
    value = facets.get(facet, "")
    return value in wanted if isinstance(value, str) else any(one in wanted for one in value)


def count_facets(rows: Collection[Facets], names: Iterable[str] = OF_ROWS) -> dict[str, Counter[str]]:
    """By facet, how many of these have each value."""
    return {name: _count(rows, name) for name in names}


def offered_facets(
    had: Mapping[str, Counter[str]],
    left: Sequence[Facets],
    state: BoardState,
    called: Mapping[str, str] | None = None,
) -> list[Facet]:
    """The facets worth offering, with counts among the rows that the filters without facets leave.

    `had` are the counts of all rows, or of datasets: facets of these are not rows'. `called` is how teams and
    publications are called, by slug and key.
    """
    names = tuple(had)
    counts = _counts(left, state, names) if state.filtered else had
    what = "datasets" if names == OF_DATASETS else "rows"
    facets = []
    for name in names:
        values = set(had[name]) - {""}
        chosen = state.chosen(name)
        if len(values) < 2 and not chosen:
            continue
        options = [
            Option(value, label_of(name, value, called), counts[name][value], value in chosen)
            for value in _sort_values(name, values.union(chosen), counts[name])
        ]
        facets.append(Facet(name, LABELS[name], options, what))
    return facets


def label_of(facet: str, value: str, called: Mapping[str, str] | None = None) -> str:
    """How a value is called, teams and publications as `called` has them."""
    known = (called or {}).get(value) if facet == "team" else None
    return known or _WORDS.get(facet, {}).get(value) or value


def _counts(rows: Sequence[Facets], state: BoardState, names: Sequence[str]) -> dict[str, Counter[str]]:
    """By facet, how many rows of each value the choices of the other facets leave."""
    filters = [(name, state.chosen(name)) for name in names if state.chosen(name)]
    passing: list[Facets] = []
    failing_one: dict[str, list[Facets]] = {name: [] for name, _ in filters}
    for row in rows:
        failed = [name for name, wanted in filters if not matches_facet(row, name, wanted)]
        if not failed:
            passing.append(row)
        elif len(failed) == 1:
            failing_one[failed[0]].append(row)
    return {name: _count([*passing, *failing_one.get(name, ())], name) for name in names}


def _count(rows: Iterable[Facets], name: str) -> Counter[str]:
    """A row that mixes several values counts for each."""
    counts = Counter[str]()
    for value, number in Counter([row.get(name, "") for row in rows]).items():
        for one in (value,) if isinstance(value, str) else value:
            counts[one] += number
    return counts


def _sort_values(name: str, values: Iterable[str], counts: Counter[str]) -> list[str]:
    """Known values in their own order, years newest first, others by how many rows they have; what is not said last."""
    known = FACETS[name]
    if known:
        return sorted(values, key=known.index)
    if name == "year":
        return sorted(values, key=lambda value: (value != UNKNOWN, value), reverse=True)
    return sorted(values, key=lambda value: (value == UNKNOWN, -counts[value], value.casefold()))
