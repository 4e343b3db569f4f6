"""What a board is made of, whichever page or export shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from django.utils.text import slugify

from leaderboard.results.kinds import CLOSED, GONE, QUARANTINED, REPORTED

if TYPE_CHECKING:
    from leaderboard.boards.facets import Facet, Facets
    from leaderboard.boards.state import Sort
    from leaderboard.results.history.measurements import Machine, Measured
    from leaderboard.results.significance import BoardCertainty, EntryCertainty, Settings, Verdict

Kind = Literal["score", "delta", "relative", "rank", "number", "figure", "count", "text", "date"]
Value = float | str | None

#: The mark of a value that differs from its baseline's by more than chance.
SEPARATED = "*"

#: The keys of a dataset's differences, in the measure's own unit and relative to the baseline.
DELTA, RELATIVE = "delta", "relative"

#: Column groups, in the order of the page.
EFFECTIVENESS = "Effectiveness"
DIFFERENCE = "Δ BM25"
OTHER_MEASURES = "Other measures"
JUDGED_SHARE = "Judged"
EFFICIENCY = "Efficiency"
REPORTED_BESIDE = "Also reported"
ABOUT = "About"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `key` names it in `?sort=` and in exports; `better` says which way is good, if any.

    Values of a `score` are shares (0 to 1), of a `relative` column ratios (0.1 is +10 %), of a `figure` in `unit`.
    """

    key: str
    label: str
    group: str
    kind: Kind
    better: Literal["higher", "lower", ""] = ""
    unit: str = ""
    note: str = ""
    #: Whether its head says which way is good; the group's head may say it for all.
    arrow: bool = True
    #: How many decimals a `number` has; None: as many as the column's need, four at most.
    decimals: int | None = None

    @property
    def group_slug(self) -> str:
        """What `?hide=` calls its group; empty for the name, which is never hidden."""
        head = _plain(self.group)
        if head.startswith(_DIFFERENCES):
            return _GROUP_SLUGS[DIFFERENCE]
        return _GROUP_SLUGS.get(head) or slugify(head)

    @property
    def group_label(self) -> str:
        """The head of its group without what it is of: `Efficiency` of `Efficiency on a laptop`."""
        return _plain(self.group)

    @property
    def numeric(self) -> bool:
        """Whether its cells are aligned as numbers."""
        return self.kind not in ("text", "date")

    @property
    def first_order(self) -> Literal["asc", "desc"]:
        """The order that one click gives: best first, newest first, else alphabetical."""
        if self.better == "lower" or self.kind == "text":
            return "asc"
        return "desc"


#: How the heads of differences begin, whatever they are taken to.
_DIFFERENCES = "Δ "

#: Groups by the names that the page's address has for them; others are called after their heads.
_GROUP_SLUGS = {
    EFFECTIVENESS: "effectiveness",
    DIFFERENCE: "delta",
    OTHER_MEASURES: "other-measures",
    JUDGED_SHARE: "judged",
    EFFICIENCY: "efficiency",
    REPORTED_BESIDE: "reported",
    ABOUT: "about",
}


def _plain(group: str) -> str:
    return next((head for head in _GROUP_SLUGS if group.startswith(head)), group)


class ColumnGroup(NamedTuple):
    """A group of columns that a reader may hide."""

    slug: str
    label: str
    shown: bool


#: The first column of every board.
SYSTEM_COLUMN = Column("system", "System", "", "text")


class Identity(NamedTuple):
    """Whose row it is. A dataset's row is an entry of the same names; a benchmark's is made of `entries`, their ids."""

    system: str
    slug: str
    architecture: str
    team: str | None
    team_slug: str | None
    source_key: str | None
    provenance: str
    configuration: str
    is_baseline: bool
    training: str = ""
    comparison_group: str = ""
    submission: str = ""
    missing_queries: int | None = None
    visibility: str = "public"
    withdrawal_reason: str = ""
    moderation_reason: str = ""
    seed_count: int = 0
    deviations: Mapping[str, float] = MappingProxyType({})
    entries: Sequence[int] = ()
    challenged: int = 0


class Identified(Protocol):
    """What rows need of an entry; `Identity` is the plainest one."""

    @property
    def system(self) -> str: ...
    @property
    def slug(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def team(self) -> str | None: ...
    @property
    def team_slug(self) -> str | None: ...
    @property
    def source_key(self) -> str | None: ...
    @property
    def provenance(self) -> str: ...
    @property
    def configuration(self) -> str: ...
    @property
    def is_baseline(self) -> bool | int: ...
    @property
    def training(self) -> str: ...
    @property
    def comparison_group(self) -> str: ...
    @property
    def submission(self) -> str: ...
    @property
    def missing_queries(self) -> int | None: ...
    @property
    def visibility(self) -> str: ...
    @property
    def withdrawal_reason(self) -> str: ...
    @property
    def moderation_reason(self) -> str: ...
    @property
    def seed_count(self) -> int: ...
    @property
    def deviations(self) -> Mapping[str, float]: ...
    @property
    def challenged(self) -> int: ...


@dataclass(slots=True)
class Row:
    """One row. `values` has one place per column: None is missing, sorts last and is never 0.

    `shown` replaces the text of a cell (a doubtful figure as printed), `marks` follow it (in-domain ‡), `spreads` too
    (`± 0.0012 (5)`: the sample standard deviation over seeds, and how many), `titles` say more on hover.
    `noise` is how far the values of costs may be off, by place: infinite where nobody knows, absent where exact.
    `measured` is what the efficiency columns show, `intervals` are the ends of those drawn into cells of scores, and
    `certainty` is all that was found of the measure in focus, `found` by cell where there are several datasets.
    `ranked_in` names whom the row is ranked among: rows of different kinds are never ranked together.
    """

    entry: Identified
    ranked_in: str
    decimals: int
    values: list[Value]
    rank: int | None = None
    shown: dict[int, str] = field(default_factory=dict)
    marks: dict[int, str] = field(default_factory=dict)
    titles: dict[int, str] = field(default_factory=dict)
    measured: Measured | None = None
    facets: Facets = field(default_factory=dict)
    spreads: dict[int, str] = field(default_factory=dict)
    intervals: dict[int, tuple[float, float]] = field(default_factory=dict)
    certainty: EntryCertainty | None = None
    found: dict[int, EntryCertainty] = field(default_factory=dict)
    noise: dict[int, float] = field(default_factory=dict)

    def copy(self) -> Row:
        """Another row of the same content, which may be changed."""
        return Row(
            self.entry,
            self.ranked_in,
            self.decimals,
            self.values[:],
            self.rank,
            self.shown.copy(),
            self.marks.copy(),
            self.titles.copy(),
            self.measured,
            self.facets,
            self.spreads.copy(),
            self.intervals.copy(),
            self.certainty,
            self.found.copy(),
            self.noise.copy(),
        )

    def keep_only(self, places: list[int]) -> None:
        """Leave out all cells but those at `places`, which ascend."""
        moved = {old: new for new, old in enumerate(places)}
        self.values = [self.values[place] for place in places]
        self.shown = {moved[place]: text for place, text in self.shown.items() if place in moved}
        self.marks = {moved[place]: mark for place, mark in self.marks.items() if place in moved}
        self.titles = {moved[place]: title for place, title in self.titles.items() if place in moved}
        self.spreads = {moved[place]: spread for place, spread in self.spreads.items() if place in moved}
        self.noise = {moved[place]: noise for place, noise in self.noise.items() if place in moved}
        self.intervals = {moved[place]: ends for place, ends in self.intervals.items() if place in moved}
        self.found = {moved[place]: found for place, found in self.found.items() if place in moved}

    @property
    def rank_label(self) -> str:
        """The rank as the page writes it: `r 3` among reported figures, `c 3` among closed interfaces.

        Empty where there is none.
        """
        return rank_label(self.rank, self.ranked_in)


_RANK_MARKS = {REPORTED: "r ", CLOSED: "c "}


def reason_gone(entry: Identified) -> str:
    """Why a result is no longer ranked: what its team said who withdrew it, or a curator who quarantined it."""
    if entry.visibility == QUARANTINED:
        return entry.moderation_reason
    return entry.withdrawal_reason if entry.visibility in ("withdrawn", GONE) else ""


def rank_label(rank: int | None, ranked_in: str) -> str:
    """A rank with the mark of its kind, empty where there is none."""
    return "" if rank is None else f"{_RANK_MARKS.get(ranked_in, '')}{rank}"


@dataclass(slots=True)
class Board:
    """Columns, rows in the order of the page, and what a reader has to know to read them.

    `best` and `second` hold, by column and by `ranked_in`, the two best distinct values of the whole board, where noise
    leaves no doubt of them: filters hide rows, but move neither these nor the ranks.
    """

    title: str
    columns: list[Column]
    rows: list[Row]
    measure: str
    sorts: list[Sort] = field(default_factory=list)
    #: How many rows there are in all, how many the view has on all its pages, and which page this is of how many.
    total: int = 0
    found: int = 0
    page: int = 1
    pages: int = 1
    #: So many of the first rows are pinned.
    pinned: int = 0
    measures: list[str] = field(default_factory=list)
    #: How what differences are taken to is called.
    baseline: str = "the baseline"
    notes: list[str] = field(default_factory=list)
    best: dict[tuple[int, str], float] = field(default_factory=dict)
    second: dict[tuple[int, str], float] = field(default_factory=dict)
    #: On which machine the costs were measured that it shows, of which ones it can, and the head of their columns.
    machine: Machine | None = None
    machines: list[Machine] = field(default_factory=list)
    cost_group: str = ""
    #: How sure the scores are, where anything was found of them.
    certainty: BoardCertainty | None = None
    #: Which is best, which tie with it, how many beat the baseline, by corrected tests; and the rows that this names.
    verdict: Verdict | None = None
    named: Mapping[int, Identified] = field(default_factory=dict)
    #: Keys of columns that it has at other times: what asks for their order or bounds is no mistake.
    awaited: frozenset[str] = frozenset()
    #: How that of single cells was found, on a board of several datasets.
    found_with: Settings | None = None
    #: The facets that rows may be chosen by, and those of its datasets, which `of_datasets` has, one for each.
    facets: list[Facet] = field(default_factory=list)
    of_datasets: Sequence[Facets] = ()
    #: The groups of columns that it has, hidden ones too, and the columns that ranges can be taken of.
    groups: list[ColumnGroup] = field(default_factory=list)
    ranges: list[Column] = field(default_factory=list)
    #: Which of VIEWS it can show, none where there is one only, and which one it shows, "" for scores.
    views: Sequence[str] = ()
    view: str = ""
    #: Slugs of systems that have no page by now: those of a board of the past may have nothing public left.
    without_page: frozenset[str] = frozenset()

    @property
    def sort(self) -> str:
        """The column that decides first."""
        return self.sorts[0].key

    @property
    def order(self) -> str:
        """Which way."""
        return self.sorts[0].order

    def drop(self, key: str) -> None:
        """Leave out a column, before best and second are found. Raises KeyError for one that is not there."""
        left_out = self.index(key)
        places = [place for place in range(len(self.columns)) if place != left_out]
        self.columns = [self.columns[place] for place in places]
        for row in self.rows:
            row.keep_only(places)

    def index(self, key: str) -> int:
        """The place of a column. Raises KeyError for one that the board does not have."""
        for place, column in enumerate(self.columns):
            if column.key == key:
                return place
        raise KeyError(key)
