"""Which view of a board is meant: read from the query string, written back into links.

Every choice that a reader has is here, so that an address says all of what is seen, and a form without JavaScript can
say it too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol
from urllib.parse import quote_plus, urlencode

from evaluation.text.languages import known_language_code
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import canonical_name
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import Entry, architecture_choices

Order = Literal["asc", "desc"]

VIEWS = ("score", "delta", "relative", "rank")
#: Facets of systems and results, in the order of the page, with their values where these are few and known.
FACETS: Mapping[str, tuple[str, ...]] = {
    "architecture": tuple(value for value, _ in architecture_choices()),
    "provenance": tuple(Entry.Provenance.values),
    "training": tuple(Entry.Training.values),
    "gap": ("shown", "not-shown"),
    "weights": ("open", "closed", "unknown"),
    "commercial": ("yes", "no", "unknown"),
    "licence": (),
    "year": (),
    "team": (),
    # Of datasets: on a board of several they choose which ones are shown and counted.
    "language": (),
    "domain": (),
    "task": (),
}
#: The groups of columns that boards have, by the names that addresses have for them.
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
#: Choices of columns that have a name; the first is a page's own. `boards.filtering` says what each has.
PRESETS = ("overview", "effectiveness", "efficiency", "training", "all")
#: So many columns may be chosen one by one.
MOST_COLUMNS = 80
#: What a reader may weigh, as in Dynascore.
WEIGHED = ("effectiveness", "latency", "memory", "cost")

#: The query parameters of a board; `*` stands for the key of a column.
PARAMETERS = (
    "measure", "view", "sort", "order", *FACETS, "min-*", "max-*", "zero-shot", "cpu-only", "corpus", "hide", "columns",
    "exact", "pin", *(f"weight-{name}" for name in WEIGHED), "rows", "page", "q", "hardware",
)  # fmt: skip

#: What names of measures have in them, left readable in addresses.
_PLAIN = "@(),':"
#: Columns that had another name once: addresses that were shared go on to work.
_RENAMED = {"group": "ranks"}
_SLUG = re.compile(r"[a-z0-9-]*")
#: The longest text that a board is searched for; more is cut.
LONGEST_QUERY = 100
#: So many columns decide the order, and so many systems may be pinned.
MOST_SORTS, MOST_PINS = 3, 12
#: Only how weights compare is of interest; sums of far greater ones are no numbers any more.
GREATEST_WEIGHT = 1_000_000
#: The spellings of a switch.
_ON, _OFF = ("1", "on", "true"), ("0", "off", "false")
#: Rows of a page; `rows=all` shows them all.
ROWS_OF_A_PAGE = 200


class Parameters(Protocol):
    """What is used of a query string; Django's QueryDict is one."""

    def getlist(self, key: str) -> list[str]:
        """All values of a parameter, in order."""

    def __iter__(self) -> Iterator[str]:
        """The names of the parameters."""

    def __len__(self) -> int:
        """How many names there are."""


def query_of(*pairs: tuple[str, str]) -> str:
    """`?name=value&…` of the pairs that have a value, empty where none has."""
    given = [pair for pair in pairs if pair[1]]
    return "?" + urlencode(given, safe="@()=,':") if given else ""


class Sort(NamedTuple):
    """A column that decides the order; without an `order` the column's own first one (best first)."""

    key: str
    order: Order | Literal[""] = ""

    def __str__(self) -> str:
        return f"{self.key}:{self.order}" if self.order else self.key


class Range(NamedTuple):
    """Only rows whose value of a column lies between two bounds, both included; None is no bound."""

    key: str
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class BoardState:
    """A view: empty fields mean the board's own default. Equal views have equal query strings."""

    measure: str = ""
    #: One of VIEWS, "" for scores: what the datasets' columns of a benchmark show.
    view: str = ""
    sorts: tuple[Sort, ...] = ()
    #: Facet → chosen values, sorted by facet as in FACETS; a facet without a choice is not there.
    facets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ranges: tuple[Range, ...] = ()
    text: str = ""
    hardware: str = ""
    zero_shot: bool = False
    cpu_only: bool = False
    #: How many documents the reader's own corpus has; 0 where they did not say.
    corpus: int = 0
    #: Groups of columns that are not shown, by slug.
    hidden: tuple[str, ...] = ()
    #: The columns that are shown: one of PRESETS, or keys. Empty: pages show the first preset, exports every column.
    columns: tuple[str, ...] = ()
    #: Whether pages write scores with as many decimals as they are published with, and not three.
    exact: bool = False
    #: Slugs of systems that stand on top.
    pins: tuple[str, ...] = ()
    #: What is weighed → weight above 0, of WEIGHED; empty where there is no weighted score.
    weights: tuple[tuple[str, float], ...] = ()
    page: int = 1
    all_rows: bool = False

    @classmethod
    def read(cls, parameters: Parameters) -> BoardState:
        """Return the view that a query string asks for. Empty parameters are ignored. Raises UnknownChoice."""
        if not parameters:
            return cls()
        view = choice(parameters, "view", VIEWS)
        every = choice(parameters, "rows", ("all", str(ROWS_OF_A_PAGE))) == "all"
        return cls(
            measure=canonical_name(last_value(parameters, "measure")),
            view="" if view == VIEWS[0] else view,
            sorts=_sorts(parameters),
            facets=_facets(parameters),
            ranges=_ranges(parameters),
            text=last_value(parameters, "q").strip()[:LONGEST_QUERY],
            hardware=last_value(parameters, "hardware"),
            zero_shot=_switch(parameters, "zero-shot"),
            cpu_only=_switch(parameters, "cpu-only"),
            corpus=whole_number(parameters, "corpus", 0),
            hidden=_known_values(parameters, "hide", GROUPS),
            columns=_columns(parameters),
            exact=_switch(parameters, "exact"),
            pins=tuple(dict.fromkeys(value for value in parameters.getlist("pin") if value))[:MOST_PINS],
            weights=_weights(parameters),
            page=1 if every else max(whole_number(parameters, "page", 1), 1),
            all_rows=every,
        )

    @property
    def filtered(self) -> bool:
        """Whether it hides rows."""
        return bool(self.facets or self.ranges or self.text or self.zero_shot or self.cpu_only)

    @property
    def is_common(self) -> bool:
        """Whether it is one of few: with nothing in it that can be written in a million ways."""
        free = self.text or self.ranges or self.corpus or self.hidden or self.pins or self.weights
        free = free or (self.columns and self.columns[0] not in PRESETS)
        closed = all(FACETS[name] and len(values) == 1 for name, values in self.facets)
        return not free and closed and len(self.facets) <= 1 and len(self.sorts) <= 1

    def chosen(self, facet: str) -> tuple[str, ...]:
        """The values chosen of a facet."""
        return dict(self.facets).get(facet, ())

    def pairs(self) -> list[tuple[str, str]]:
        """Its parameters, in one fixed order."""
        single = {"measure": self.measure, "view": self.view, "q": self.text, "hardware": self.hardware}
        found = [(name, value) for name, value in single.items() if value]
        found += [("sort", str(sort)) for sort in self.sorts]
        found += [(name, value) for name, values in self.facets for value in values]
        for key, low, high in self.ranges:
            found += [(f"min-{key}", _number(low))] if low is not None else []
            found += [(f"max-{key}", _number(high))] if high is not None else []
        found += [("zero-shot", "1")] if self.zero_shot else []
        found += [("cpu-only", "1")] if self.cpu_only else []
        found += [("corpus", str(self.corpus))] if self.corpus else []
        found += [("hide", group) for group in self.hidden]
        found += [("columns", key) for key in self.columns]
        found += [("exact", "1")] if self.exact else []
        found += [("pin", slug) for slug in self.pins]
        found += [(f"weight-{name}", _number(weight)) for name, weight in self.weights]
        found += [("rows", "all")] if self.all_rows else []
        found += [("page", str(self.page))] if self.page > 1 else []
        return found

    def query_string(self) -> str:
        """`?sort=…`, or nothing for the default view."""
        written = (
            f"{quote_plus(name, safe=_PLAIN)}={quote_plus(value, safe=_PLAIN)}"
            for name, value in self.pairs()
        )
        query = "&".join(written)
        return f"?{query}" if query else ""

    def but(self, **changes: object) -> BoardState:
        """The same view with other values, from its first page on unless a page is named."""
        return replace(self, **{"page": 1, **changes})  # type: ignore[arg-type]

    def with_facet(self, facet: str, values: Iterable[str]) -> BoardState:
        """The same view with these values of a facet, none for all."""
        chosen = {**dict(self.facets), facet: tuple(sorted(set(values)))}
        return self.but(facets=tuple((name, chosen[name]) for name in FACETS if chosen.get(name)))


def last_value(parameters: Parameters, name: str) -> str:
    """The last value of a parameter, empty where there is none."""
    values = parameters.getlist(name)
    return values[-1] if values else ""


def choice(parameters: Parameters, name: str, choices: Iterable[str]) -> str:
    """Return the last value of a parameter, empty where there is none. Raises UnknownChoice."""
    value, known = last_value(parameters, name), list(choices)
    if value and value not in known:
        raise UnknownChoice(name, value, known)
    return value


def _sorts(parameters: Parameters) -> tuple[Sort, ...]:
    """`sort=mean&sort=latency:asc`, the first deciding; `order=` is the first one's where it names none itself."""
    order = choice(parameters, "order", ("asc", "desc"))
    found: dict[str, Sort] = {}
    for value in parameters.getlist("sort"):
        key, colon, direction = value.rpartition(":")
        if not colon or direction not in ("asc", "desc"):
            key, direction = value, ""
        key = _column(_RENAMED.get(key, key))
        if key and key not in found:
            found[key] = Sort(key, direction)  # type: ignore[arg-type]
    first, *others = list(found.values())[:MOST_SORTS] or [Sort("")]
    if order and not first.order:
        first = first._replace(order=order)  # type: ignore[arg-type]
    return (first, *others) if first.key or first.order else ()


def _column(key: str) -> str:
    """A column's key in its own spelling; words that a dataset may be called by stay as they are (`map`)."""
    return key if _SLUG.fullmatch(key) else canonical_name(key)


def _facets(parameters: Parameters) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = []
    for name, known in FACETS.items():
        wanted = _known_values(parameters, name, known)
        if name == "language":
            wanted = tuple(sorted(set(map(known_language_code, wanted))))
        if wanted:
            found.append((name, wanted))
    return tuple(found)


def _known_values(parameters: Parameters, name: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the values of a parameter, sorted; any if none are `known`. Raises UnknownChoice."""
    wanted = sorted({value for value in parameters.getlist(name) if value})
    for value in wanted if known else ():
        if value not in known:
            raise UnknownChoice(name, value, known)
    return tuple(wanted)


def _columns(parameters: Parameters) -> tuple[str, ...]:
    """One preset, or single columns; those that a board does not have show nothing, since columns come and go."""
    wanted = dict.fromkeys(value for value in parameters.getlist("columns") if value)
    preset = next((value for value in wanted if value in PRESETS), None)
    if preset is not None:
        return () if preset == PRESETS[0] else (preset,)
    return tuple(_column(value) for value in wanted)[:MOST_COLUMNS]


def _ranges(parameters: Parameters) -> tuple[Range, ...]:
    """`min-latency=…` and `max-latency=…`, one pair for each column."""
    bounds: dict[str, list[float | None]] = {}
    for name in parameters:
        start, _, key = name.partition("-")
        if start not in ("min", "max") or not key:
            continue
        value = last_value(parameters, name).strip()
        if value:
            bounds.setdefault(_column(key), [None, None])[start == "max"] = _float(name, value)
    return tuple(Range(key, *bounds[key]) for key in sorted(bounds))


def _weights(parameters: Parameters) -> tuple[tuple[str, float], ...]:
    found = []
    for name in WEIGHED:
        value = last_value(parameters, f"weight-{name}").strip()
        if value:
            weight = _float(f"weight-{name}", value)
            if not 0 <= weight <= GREATEST_WEIGHT:
                raise UnknownChoice(f"weight-{name}", value, expected=f"0 to {GREATEST_WEIGHT:,}")
            if weight > 0:
                found.append((name, weight))
    return tuple(found)


def _switch(parameters: Parameters, name: str) -> bool:
    return choice(parameters, name, (*_ON, *_OFF)) in _ON


def whole_number(parameters: Parameters, name: str, default: int) -> int:
    """Return a parameter that is a whole number. Raises UnknownChoice."""
    value = last_value(parameters, name).strip().replace(",", "")
    if not value:
        return default
    number = parse_number(value, 13)
    if number is None:
        raise UnknownChoice(name, value, expected="a whole number")
    return number


def _float(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UnknownChoice(name, value, expected="a number")
    return number


def _number(value: float) -> str:
    return f"{value:.12g}"
