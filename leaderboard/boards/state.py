"""The state of a board's view, read from the query string and written into links.

It includes every choice of the reader, so that a URL describes the view completely and forms work without JavaScript.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol
from urllib.parse import urlencode

from evaluation.text.languages import known_language_code
from leaderboard.core import anonymity
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import canonical_name
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import Entry, architecture_choices

Order = Literal["asc", "desc"]

VIEWS = ("score", "delta", "relative", "rank")
UNKNOWN = "unknown"
#: Value for the site's own systems, without a team or publication, and its name in the column “By”.
THIS_SITE, THIS_SITE_NAME = "this-site", "this site"
#: Value for systems whose team is hidden during a review.
ANONYMOUS = anonymity.ANONYMOUS
_UNDECLARED = {UNKNOWN: "not declared"}


class FacetKind(NamedTuple):
    """Label of a facet, and the labels of its values. If `is_fixed`, it has no other values."""

    label: str
    words: Mapping[str, str] = MappingProxyType({})
    is_fixed: bool = False


#: Facets of systems and results in page order, then those of datasets, which select the datasets that a board of
#: several shows and counts.
FACET_KINDS: Mapping[str, FacetKind] = {
    "architecture": FacetKind("Architecture", dict(architecture_choices()), is_fixed=True),
    "provenance": FacetKind("Provenance", {key: str(label) for key, label in Entry.Provenance.choices}, is_fixed=True),
    "training": FacetKind("Training data", {key: str(label) for key, label in Entry.Training.choices}, is_fixed=True),
    "gap": FacetKind(
        "Gap: open vs hidden half", {"shown": "significant", "not-shown": "not significant"}, is_fixed=True
    ),
    "weights": FacetKind("Weights", {"open": "open", "closed": "closed", **_UNDECLARED}, is_fixed=True),
    "commercial": FacetKind(
        "Commercial use", {"yes": "permitted", "no": "not permitted", **_UNDECLARED}, is_fixed=True
    ),
    "licence": FacetKind("License", _UNDECLARED),
    "year": FacetKind("Year", _UNDECLARED),
    "team": FacetKind("Team", {THIS_SITE: THIS_SITE_NAME}),
    "language": FacetKind("Language"),
    "domain": FacetKind("Domain"),
    "task": FacetKind("Task"),
}
#: Values of each facet, empty if they are not a fixed set.
FACETS = {name: tuple(kind.words) if kind.is_fixed else () for name, kind in FACET_KINDS.items()}
#: Slugs of column groups in URLs.
GROUPS = (
    "effectiveness",
    "over-all",
    "delta",
    "ranks-over-all",
    "other-measures",
    "judged",
    "efficiency",
    "reported",
    "public-against-hidden",
    "about",
)
#: Named selections of columns; the first is the default of pages. `boards.filtering` defines them.
PRESETS = ("overview", "effectiveness", "efficiency", "training", "all")
#: Maximum number of columns selected one by one.
MAX_COLUMNS = 80
#: Criteria of a weighted score, as in Dynascore.
WEIGHT_NAMES = ("effectiveness", "latency", "memory", "cost")

#: Query parameters of a board; `*` stands for the key of a column.
PARAMETERS = (
    "measure", "view", "sort", "order", *FACETS, "min-*", "max-*", "zero-shot", "cpu-only", "corpus", "hide", "columns",
    "exact", "pin", "slice", *(f"weight-{name}" for name in WEIGHT_NAMES), "rows", "page", "q", "hardware",
)  # fmt: skip

#: Characters in names of measures, left unquoted in URLs.
_UNQUOTED = "@(),':"
#: Columns that were renamed; shared URLs with the old names still work.
_RENAMED = {"group": "ranks"}
_SLUG = re.compile(r"[a-z0-9-]*")
#: Maximum length of search texts; longer ones are cut.
LONGEST_QUERY = 100
#: Maximum number of sort columns, and of pinned systems.
MAX_SORTS, MAX_PINS = 3, 12
#: Maximum weight; only ratios of weights matter, and sums of much greater numbers overflow.
MAX_WEIGHT = 1_000_000
#: Spellings of a switch.
_TRUE_VALUES, _FALSE_VALUES = ("1", "on", "true"), ("0", "off", "false")
#: Number of rows per page; `rows=all` shows them all.
ROWS_PER_PAGE = 200


class Parameters(Protocol):
    """The part of Django's QueryDict that is used here."""

    def getlist(self, key: str) -> list[str]:
        """Return all values of a parameter, in order."""

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the parameters."""

    def __len__(self) -> int:
        """Return the number of parameter names."""


def build_query(*pairs: tuple[str, str]) -> str:
    """Return `?name=value&…` for the pairs with a value, or an empty string if there are none."""
    nonempty_pairs = [pair for pair in pairs if pair[1]]
    return "?" + urlencode(nonempty_pairs, safe="@()=,':") if nonempty_pairs else ""


class Sort(NamedTuple):
    """A sort column; an empty `order` means the column's first order (best first)."""

    key: str
    order: Order | Literal[""] = ""

    def __str__(self) -> str:
        return f"{self.key}:{self.order}" if self.order else self.key


class Range(NamedTuple):
    """A filter for rows whose value in a column is within two inclusive bounds; None means unbounded."""

    key: str
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class BoardState:
    """State of a board's view; empty fields mean defaults. Equal states have equal query strings."""

    measure: str = ""
    #: Content of a benchmark's dataset columns: one of VIEWS, or empty for scores.
    view: str = ""
    sorts: tuple[Sort, ...] = ()
    #: Selected values by facet, in the order of FACETS; facets without a selection are omitted.
    facets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ranges: tuple[Range, ...] = ()
    text: str = ""
    hardware: str = ""
    #: Name of a slice of the judged queries, such as `length:short`; empty for all queries.
    slice: str = ""
    zero_shot: bool = False
    cpu_only: bool = False
    #: Number of documents in the reader's own corpus, 0 if not given.
    corpus: int = 0
    #: Slugs of hidden column groups.
    hidden: tuple[str, ...] = ()
    #: One of PRESETS, or keys of columns. If empty, pages show the first preset and exports every column.
    columns: tuple[str, ...] = ()
    #: Whether pages show scores with all published decimals instead of three.
    exact: bool = False
    #: Slugs of systems pinned to the top.
    pins: tuple[str, ...] = ()
    #: Positive weights of the criteria in WEIGHT_NAMES; empty if there is no weighted score.
    weights: tuple[tuple[str, float], ...] = ()
    page: int = 1
    all_rows: bool = False

    @classmethod
    def from_parameters(cls, parameters: Parameters) -> BoardState:
        """Return the state that a query string describes, ignoring empty parameters. Raises UnknownChoice."""
        if not parameters:
            return cls()
        view = choice(parameters, "view", VIEWS)
        show_all = choice(parameters, "rows", ("all", str(ROWS_PER_PAGE))) == "all"
        return cls(
            measure=canonical_name(last_value(parameters, "measure")),
            view="" if view == VIEWS[0] else view,
            sorts=_parse_sorts(parameters),
            facets=_parse_facets(parameters),
            ranges=_parse_ranges(parameters),
            text=last_value(parameters, "q").strip()[:LONGEST_QUERY],
            hardware=last_value(parameters, "hardware"),
            slice=last_value(parameters, "slice"),
            zero_shot=_parse_switch(parameters, "zero-shot"),
            cpu_only=_parse_switch(parameters, "cpu-only"),
            corpus=whole_number(parameters, "corpus", 0),
            hidden=_known_values(parameters, "hide", GROUPS),
            columns=_parse_columns(parameters),
            exact=_parse_switch(parameters, "exact"),
            pins=tuple(dict.fromkeys(value for value in parameters.getlist("pin") if value))[:MAX_PINS],
            weights=_parse_weights(parameters),
            page=1 if show_all else max(whole_number(parameters, "page", 1), 1),
            all_rows=show_all,
        )

    @property
    def filtered(self) -> bool:
        return bool(self.facets or self.ranges or self.text or self.zero_shot or self.cpu_only)

    @property
    def is_common(self) -> bool:
        """Whether it is one of a limited number of states, without free texts or numbers."""
        has_free_text = self.slice or self.text or (self.columns and self.columns[0] not in PRESETS)
        has_free_values = has_free_text or self.ranges or self.corpus or self.hidden or self.pins or self.weights
        has_plain_facets = all(FACETS[name] and len(values) == 1 for name, values in self.facets)
        return not has_free_values and has_plain_facets and len(self.facets) <= 1 and len(self.sorts) <= 1

    def selected_values(self, facet: str) -> tuple[str, ...]:
        return dict(self.facets).get(facet, ())

    def pairs(self) -> list[tuple[str, str]]:
        """Return its parameters as pairs of name and value, in a fixed order, without defaults."""
        pairs = [("measure", self.measure), ("view", self.view), ("q", self.text)]
        pairs += [("hardware", self.hardware), ("slice", self.slice)]
        pairs += [("sort", str(sort)) for sort in self.sorts]
        pairs += [(name, value) for name, values in self.facets for value in values]
        for key, low, high in self.ranges:
            pairs += [(f"min-{key}", _number_text(low))] if low is not None else []
            pairs += [(f"max-{key}", _number_text(high))] if high is not None else []
        pairs += [("zero-shot", "1" * self.zero_shot), ("cpu-only", "1" * self.cpu_only)]
        pairs += [("corpus", str(self.corpus or ""))]
        pairs += [("hide", group) for group in self.hidden]
        pairs += [("columns", key) for key in self.columns]
        pairs += [("exact", "1" * self.exact)]
        pairs += [("pin", slug) for slug in self.pins]
        pairs += [(f"weight-{name}", _number_text(weight)) for name, weight in self.weights]
        pairs += [("rows", "all" * self.all_rows), ("page", str(self.page) * (self.page > 1))]
        return [pair for pair in pairs if pair[1]]

    def query_string(self) -> str:
        """Return `?sort=…`, or an empty string for the default view."""
        pairs = self.pairs()
        return "?" + urlencode(pairs, safe=_UNQUOTED) if pairs else ""

    def with_values(self, **changes: object) -> BoardState:
        """Return the state with some values replaced, on the first page unless `page` is given."""
        return replace(self, **{"page": 1, **changes})  # type: ignore[arg-type]

    def with_facet(self, facet: str, values: Iterable[str]) -> BoardState:
        """Return the state with these values selected in a facet; without values, it does not filter."""
        selections = {**dict(self.facets), facet: tuple(sorted(set(values)))}
        return self.with_values(facets=tuple((name, selections[name]) for name in FACETS if selections.get(name)))


def last_value(parameters: Parameters, name: str) -> str:
    values = parameters.getlist(name)
    return values[-1] if values else ""


def choice(parameters: Parameters, name: str, choices: Iterable[str]) -> str:
    """Return the last value of a parameter, empty if there is none.

    Raises UnknownChoice if the value is not one of `choices`.
    """
    value, valid_values = last_value(parameters, name), list(choices)
    if value and value not in valid_values:
        raise UnknownChoice(name, value, valid_values)
    return value


def _parse_sorts(parameters: Parameters) -> tuple[Sort, ...]:
    """Return the sort columns of `sort=mean&sort=latency:asc`, the primary one first.

    `order=` applies to the primary one if it has no order of its own.
    """
    order = choice(parameters, "order", ("asc", "desc"))
    sorts: dict[str, Sort] = {}
    for value in parameters.getlist("sort"):
        key, colon, direction = value.rpartition(":")
        if not colon or direction not in ("asc", "desc"):
            key, direction = value, ""
        key = _canonical_column(_RENAMED.get(key, key))
        if key and key not in sorts:
            sorts[key] = Sort(key, direction)  # type: ignore[arg-type]
    primary_sort, *other_sorts = list(sorts.values())[:MAX_SORTS] or [Sort("")]
    if order and not primary_sort.order:
        primary_sort = primary_sort._replace(order=order)  # type: ignore[arg-type]
    return (primary_sort, *other_sorts) if primary_sort.key or primary_sort.order else ()


def _canonical_column(key: str) -> str:
    """Return a column's canonical key; slugs are unchanged, because a dataset may have one (`map`)."""
    return key if _SLUG.fullmatch(key) else canonical_name(key)


def _parse_facets(parameters: Parameters) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the selected values of each facet that has any, in the order of FACETS.

    Languages are converted to known codes. Raises UnknownChoice for a value that a facet with fixed values does not
    have.
    """
    selections = []
    for name, valid_values in FACETS.items():
        selected_values = _known_values(parameters, name, valid_values)
        if name == "language":
            selected_values = tuple(sorted(set(map(known_language_code, selected_values))))
        if selected_values:
            selections.append((name, selected_values))
    return tuple(selections)


def _known_values(parameters: Parameters, name: str, valid_values: Sequence[str]) -> tuple[str, ...]:
    """Return the sorted values of a parameter; if `valid_values` is empty, any are valid. Raises UnknownChoice."""
    values = sorted({item for item in parameters.getlist(name) if item})
    for item in values if valid_values else ():
        if item not in valid_values:
            raise UnknownChoice(name, item, valid_values)
    return tuple(values)


def _parse_columns(parameters: Parameters) -> tuple[str, ...]:
    """Return a preset or single columns. Unknown columns are ignored later, because columns may disappear."""
    names = dict.fromkeys(value for value in parameters.getlist("columns") if value)
    preset = next((value for value in names if value in PRESETS), None)
    if preset is not None:
        return () if preset == PRESETS[0] else (preset,)
    return tuple(_canonical_column(value) for value in names)[:MAX_COLUMNS]


def _parse_ranges(parameters: Parameters) -> tuple[Range, ...]:
    """Return the ranges of `min-latency=…` and `max-latency=…`, one pair per column."""
    bounds: dict[str, list[float | None]] = {}
    for name in parameters:
        start, _, key = name.partition("-")
        if start not in ("min", "max") or not key:
            continue
        value = last_value(parameters, name).strip()
        if value:
            bounds.setdefault(_canonical_column(key), [None, None])[start == "max"] = _parse_float(name, value)
    return tuple(Range(key, *bounds[key]) for key in sorted(bounds))


def _parse_weights(parameters: Parameters) -> tuple[tuple[str, float], ...]:
    """Return the positive weights of the parameters `weight-…`, by criterion.

    Raises UnknownChoice for a value that is not a number between 0 and MAX_WEIGHT.
    """
    weights = []
    for name in WEIGHT_NAMES:
        value = last_value(parameters, f"weight-{name}").strip()
        if value:
            weight = _parse_float(f"weight-{name}", value)
            if not 0 <= weight <= MAX_WEIGHT:
                raise UnknownChoice(f"weight-{name}", value, expected=f"0 to {MAX_WEIGHT:,}")
            if weight > 0:
                weights.append((name, weight))
    return tuple(weights)


def _parse_switch(parameters: Parameters, name: str) -> bool:
    return choice(parameters, name, (*_TRUE_VALUES, *_FALSE_VALUES)) in _TRUE_VALUES


def whole_number(parameters: Parameters, name: str, default: int) -> int:
    """Return the integer value of a parameter, or `default` if it is empty. Raises UnknownChoice for other texts."""
    value = last_value(parameters, name).strip().replace(",", "")
    if not value:
        return default
    number = parse_number(value, 13)
    if number is None:
        raise UnknownChoice(name, value, expected="a whole number")
    return number


def _parse_float(name: str, value: str) -> float:
    """Return the number in a parameter's text. Raises UnknownChoice if it is not a finite number."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UnknownChoice(name, value, expected="a number")
    return number


def _number_text(value: float) -> str:
    return f"{value:.12g}"
