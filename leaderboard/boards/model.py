"""What a board is made of, whichever page or export shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from django.utils.text import slugify
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from leaderboard.results.board_rows.entry_rows import CLOSED, GONE, QUARANTINED, REPORTED, STALE, EntryRow
from leaderboard.results.significance.statements import BoardStatements

if TYPE_CHECKING:
    from leaderboard.boards.facets import Facet, Facets
    from leaderboard.boards.state import Sort
    from leaderboard.results.board_rows.measurements import Machine, MeasuredEntry
    from leaderboard.results.significance.statements import Statement
    from leaderboard.results.significance.types import (
        BoardCertainty,
        EntryCertainty,
        TestSettings,
        Verdict,
    )
from evaluation.text.languages import known_language_code
from leaderboard.results.board_rows.rows import Revision

Kind = Literal["score", "delta", "relative", "rank", "number", "figure", "count", "text", "date"]
Value = float | str | None

#: By facet how many rows have each value, and by slug and key how teams and publications are called.
Counted = tuple[Mapping[str, Counter[str]], Mapping[str, str]]

#: The mark of a value that differs from its baseline's by more than chance.
SEPARATED = "*"

#: The keys of a dataset's differences, in the measure's own unit and relative to the baseline.
DELTA, RELATIVE = "delta", "relative"
#: The key of the first column of every board.
SYSTEM = "system"

#: Column groups, in the order of the page.
EFFECTIVENESS = _("Effectiveness")
DIFFERENCE = "Δ vs BM25"
OTHER_MEASURES = _("Other measures")
JUDGED_SHARE = _("Judged")
EFFICIENCY = _("Efficiency")
REPORTED_BESIDE = _("Also reported")
ABOUT = _("About")


@dataclass(slots=True)
class Cell:
    """What a row has in a column. Rows share cells: code that has more to say of one puts another in its place.

    A `value` of None is missing, sorts last and is never 0. `text` replaces it as written (a doubtful figure as
    printed), `mark` follows it (in-domain ‡), `spread` too (`± 0.0012 (5)`: the sample standard deviation over seeds,
    and how many), `title` says more on hover. `interval` are ends that are drawn into it. `noise` is how far a cost may
    be off: infinite where nobody knows, 0 where it is exact. `certainty` is what was found of it, on boards of several
    datasets.
    """

    value: Value = None
    text: str = ""
    mark: str = ""
    title: str = ""
    spread: str = ""
    interval: tuple[float, float] | None = None
    noise: float = 0.0
    certainty: EntryCertainty | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `key` names it in `?sort=` and in exports; `better` says which way is good, if any.

    Values of a `score` are shares (0 to 1), of a `relative` column ratios (0.1 is +10%), of a `figure` in `unit`.
    `cell` makes what a row has here from the line that the row is of: a bare value where there is no more to say, None
    where it has nothing. Without it, cells come from several rows together.
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
    cell: Callable[[Any], Cell | Value] = field(default=lambda line: None, compare=False, repr=False)

    @property
    def group_slug(self) -> str:
        """What `?hide=` calls its group; empty for the name, which is never hidden."""
        return _group_slug(self.group)

    @property
    def group_label(self) -> str:
        """The head of its group without what it is of: `Efficiency` of `Efficiency on a laptop`."""
        return _plain(self.group)

    @property
    def head(self) -> str:
        """Its label in the reader's language; exports have the label itself."""
        return gettext(self.label)

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
    "All datasets": "over-all",
    "Ranks over datasets": "ranks-over-all",
}


@lru_cache(256)
def _group_slug(group: str) -> str:
    head = _plain(group)
    if head.startswith(_DIFFERENCES):
        return _GROUP_SLUGS[DIFFERENCE]
    return _GROUP_SLUGS.get(head) or slugify(head)


def _plain(group: str) -> str:
    return next((head for head in _GROUP_SLUGS if group.startswith(head)), group)


class Block(IntEnum):
    """The parts of a board, in the order of the page."""

    SCORED = 0
    REPORTED = 1
    #: Of a benchmark: without a value on some of the datasets that count.
    INCOMPLETE = 2
    NOT_RANKED = 3


@dataclass(slots=True)
class Row:
    """One row: its values by the keys of their columns, and the cells of those that have more than a value.

    A dataset's row is of an `entry`. A benchmark's is of several, of which `entry` has what they have in common;
    `entries` are their ids by place of the dataset, 0 where the row has no value. `measured` is what the efficiency
    columns show, `certainty` all that was found of the measure in focus. `ranked_in` names whom the row is ranked
    among: rows of different kinds are never ranked together.
    """

    entry: EntryRow
    ranked_in: str
    decimals: int
    values: dict[str, Value] = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)
    facets: Facets = field(default_factory=dict)
    entries: Sequence[int] = ()
    rank: int | None = None
    measured: MeasuredEntry | None = None
    certainty: EntryCertainty | None = None
    #: Whether it differs from its baseline by more than chance, as far as that is told.
    differs: bool = False

    def __getitem__(self, key: str) -> Cell:
        """The cell of a column; an empty one where the row has none."""
        return self.cells.get(key) or Cell(self.values.get(key))

    def __setitem__(self, key: str, cell: Cell) -> None:
        self.cells[key] = cell
        self.values[key] = cell.value

    def value(self, key: str) -> Value:
        """What the row has in a column, None where that is nothing."""
        return self.values.get(key)

    def copy(self) -> Row:
        """The same row, which may be given other cells."""
        return Row(
            self.entry,
            self.ranked_in,
            self.decimals,
            self.values.copy(),
            self.cells.copy(),
            self.facets,
            self.entries,
            self.rank,
            self.measured,
            self.certainty,
            self.differs,
        )

    @property
    def rank_label(self) -> str:
        """The rank as the page writes it: `r 3` among reported figures, `c 3` among closed interfaces.

        Empty where there is none.
        """
        return rank_label(self.rank, self.ranked_in)


def fill_cells(rows: Sequence[Row], columns: Sequence[Column], lines: Sequence[object]) -> None:
    """Give each row what the columns make from its line: column by column, since there are ten thousand cells."""
    keys = [column.key for column in columns]
    made = [list(map(column.cell, lines)) for column in columns]
    for row, values in zip(rows, zip(*made, strict=True), strict=bool(made)):
        row.values.update(zip(keys, values, strict=True))
    for key, cells in zip(keys, made, strict=True):
        if Cell in set(map(type, cells)):
            for row, cell in zip(rows, cells, strict=True):
                if isinstance(cell, Cell):
                    row[key] = cell


def spans(columns: Iterable[Column]) -> list[tuple[str, int]]:
    """Return the groups of neighboring columns, each with the number of its columns."""
    return [(group, len(list(found))) for group, found in groupby(columns, attrgetter("group"))]


_RANK_MARKS = {REPORTED: "r ", CLOSED: "c "}


def reason_gone(entry: EntryRow) -> str:
    """Why a result is no longer ranked: what its team said who withdrew it, or a curator who quarantined it."""
    if entry.visibility == QUARANTINED:
        return entry.moderation_reason
    return entry.withdrawal_reason if entry.visibility in ("withdrawn", GONE) else ""


def rank_label(rank: int | None, ranked_in: str) -> str:
    """A rank with the mark of its kind, empty where there is none."""
    return "" if rank is None else f"{_RANK_MARKS.get(ranked_in, '')}{rank}"


class Part(NamedTuple):
    """A statement of a summary: its label, its text, and a `detail` that follows in parentheses.

    `state` is `up` for a significant lead, `ns` for one that is not significant, and else empty.
    """

    label: str
    text: str
    state: str = ""
    detail: str = ""

    @property
    def sentence(self) -> str:
        """Label, text, and detail as one sentence."""
        return f"{self.label}: {self.text}{f' ({self.detail})' if self.detail else ''}."


@dataclass(frozen=True, slots=True)
class Summary:
    """The sentences as `text`, and their facts: slugs of systems, values as published, None where nothing is told.

    `label` is what the best is called, `after` follows its `name`, the other `parts` have labels of their own.
    `relative` is to the baseline, 0.1 for 10% more; `latency` is the mean of the cheapest system near the best, in
    milliseconds. `above_bound`: whether a best that is better than the baseline lies above the baseline's upper bound
    too. `baseline_tied`: whether the baseline is not separable from a best that is better when tested alone.
    """

    label: str
    name: str
    after: str
    parts: Sequence[Part]
    best: str
    measure: str
    score: float
    relative: float | None
    statement: Statement
    tied: Sequence[str]
    cheapest: str | None = None
    latency: float | None = None
    above_bound: bool | None = None
    baseline_tied: bool = False

    @property
    def text(self) -> str:
        """All of it."""
        parts = (Part(self.label, f"{self.name}{self.after}"), *self.parts)
        return " ".join(part.sentence for part in parts)


@dataclass(frozen=True, slots=True)
class Board:
    """Columns, rows in the order of the page, and what a reader has to know to read them.

    A ranked board has all rows in order of publication, and `filtering.apply_view` makes a view of it. `best` and
    `second` hold, by column and by `ranked_in`, the two best distinct values of the ranked board if noise leaves no
    doubt of them: filters hide rows, but change neither these nor the ranks.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    measure: str
    measures: Sequence[str] = ()
    #: Display name of the baseline.
    baseline: str = "the baseline"
    best: Mapping[tuple[str, str], float] = field(default_factory=dict)
    second: Mapping[tuple[str, str], float] = field(default_factory=dict)
    #: The hardware of the measured costs, all hardware to choose from, and the head of the columns.
    machine: Machine | None = None
    machines: Sequence[Machine] = ()
    cost_group: str = ""
    #: Statistical tests of a dataset's board, the result of the corrected tests, and the entries that it refers to.
    certainty: BoardCertainty | None = None
    verdict: Verdict | None = None
    named: Mapping[int, EntryRow] = field(default_factory=dict)
    #: Keys of columns that are still being computed: views that sort or filter by them are valid.
    awaited: frozenset[str] = frozenset()
    #: Statements about a dataset's rows, by entry id.
    statements: BoardStatements = field(default_factory=BoardStatements)
    #: The result of `filtering.count_rows` for all rows.
    counted: Counted | None = None
    #: The facets of each dataset of a benchmark, and the views that it offers.
    of_datasets: Sequence[Facets] = ()
    views: Sequence[str] = ()
    summary: Summary | None = None
    #: Number of judged queries that are missing from every ranked result; 0 for a single result.
    missing_from_all: int = 0
    #: Number of rows that were tested against the baseline.
    compared: int = 0
    #: The number of all rows, of the rows on all pages of the view, of pinned first rows, and of pages.
    total: int = 0
    found: int = 0
    pinned: int = 0
    page: int = 1
    pages: int = 1
    sorts: Sequence[Sort] = ()
    view: str = ""
    notes: Sequence[str] = ()
    facets: Sequence[Facet] = ()
    #: The columns of a page, those of CSV, JSON, and the API, and those of all groups.
    shown: Sequence[Column] = ()
    data_columns: Sequence[Column] = ()
    unhidden: Sequence[Column] = ()
    #: The column that complete rows have a value in; empty if all rows count as complete.
    complete_by: str = ""
    #: Test settings of single cells, on a benchmark's board.
    found_with: TestSettings | None = None
    #: Slugs of systems on a past board whose results are no longer public.
    without_page: frozenset[str] = frozenset()

    @property
    def papers(self) -> Sequence[str]:
        """How the publications are called that all rows are from; none where any was scored here."""
        facets, called = self.counted or ({}, {})
        if not facets or set(facets["provenance"]) != {REPORTED}:
            return ()
        return [called.get(key, key) for key in facets["team"]]

    @property
    def ranges(self) -> list[Column]:
        """The columns that rows can be filtered by."""
        return [column for column in self.unhidden if column.numeric]

    @property
    def sort(self) -> str:
        """The column that decides first."""
        return self.sorts[0].key

    @property
    def order(self) -> str:
        """Which way."""
        return self.sorts[0].order

    def column(self, key: str) -> Column | None:
        """The column of this key, None where the board does not have it."""
        return next((column for column in self.columns if column.key == key), None)

    def exported(self, row: Row) -> dict[str, Value]:
        """The row's values by key; what counts something of something (18/18) is written as on the page."""
        cells = [(column, row[column.key]) for column in self.columns]
        return {
            column.key: cell.text
            if column.kind == "count" and cell.value is not None and cell.text
            else cell.value
            for column, cell in cells
        }

    def block_of(self, row: Row) -> Block:
        """Which part of the table the row stands in: no order mixes them."""
        if row.ranked_in in (STALE, QUARANTINED):
            return Block.NOT_RANKED
        if self.complete_by and row.values.get(self.complete_by) is None:
            return Block.INCOMPLETE
        return Block.REPORTED if row.ranked_in == REPORTED else Block.SCORED

    @property
    def has_ranges(self) -> bool:
        """Whether rank ranges are known for a board with several rows, even if filters leave a single one."""
        return self.certainty is not None and self.certainty.current and self.total > 1

    def separates(self, row: Row) -> bool:
        """Whether the row differs from the baseline after correction over the board, as far as that is known."""
        p = row.certainty.p_baseline_corrected if row.certainty is not None else None
        return p is not None and self.certainty is not None and p < self.certainty.settings.alpha

    def emphasis(self, row: Row, key: str) -> Literal["best", "second", ""]:
        """Whether a value is the best or the second best of its column among rows of its kind."""
        value, among = row.value(key), (key, row.ranked_in)
        if value is None or isinstance(value, str):
            return ""
        if self.best.get(among) == value:
            return "best"
        return "second" if self.second.get(among) == value else ""


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """Columns of a dataset, and facts about its judgments."""

    name: str
    hidden: bool
    primary_measure: str
    measures: Sequence[str]
    language: str = ""
    version_id: int | None = None
    qrels_id: int | None = None
    #: Whether scores are means over the public part of the judged queries.
    competition: bool = False
    #: The judges, each with its share of the judgments, and their agreement; of hidden judgments only the names.
    judges: Sequence[str] = ()
    agreement: Sequence[str] = ()
    #: Judged relevant documents per topic; None if unknown or hidden.
    relevant_per_query: float | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A dataset of a board in one revision: the dataset itself, a member of a benchmark, or a part of another dataset.

    `counted` and `stand_ins`, the measures that it shows instead of others, are those of a benchmark. `parts` are the
    datasets whose mean it is. Until all of them are `listed`, the whole has no score.
    """

    dataset_id: int
    slug: str
    facts: DatasetFacts
    revision: Revision = field(compare=False)
    counted: bool = True
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    domain: str = ""
    task: str = ""
    parts: Sequence[Member] = ()
    listed: bool = True

    def measure(self, wanted: str) -> str:
        """Return the measure that it shows if the board shows `wanted`."""
        return self.stand_ins.get(wanted, wanted)

    @property
    def facets(self) -> dict[str, str]:
        """Values of OF_DATASETS."""
        language = known_language_code(self.facts.language)
        return {"language": language, "domain": self.domain, "task": self.task}

    @property
    def key(self) -> str:
        """Text that changes with everything that a board shows of the dataset."""
        parts = ",".join(part.key for part in self.parts)
        own = (
            self.dataset_id,
            self.slug,
            self.counted,
            dict(self.stand_ins),
            self.domain,
            self.task,
            self.listed,
        )
        return f"{self.revision.key} {own} {self.facts} [{parts}]"


@dataclass(frozen=True, slots=True)
class BenchmarkFacts:
    """Columns of a benchmark, and its members.

    `source_id` is the only publication whose reported figures it shows, if any. `efficiency_from` is the dataset whose
    measured costs it shows, by default the one that most systems share. A view omits the members in `left_out`.
    """

    name: str
    measure: str
    members: Sequence[Member]
    source_id: int | None = None
    efficiency_from: int | None = None
    left_out: Sequence[Member] = ()

    @property
    def counted(self) -> list[Member]:
        """The members that aggregates are over."""
        return [member for member in self.members if member.counted]

    @property
    def all_counted(self) -> int:
        """Number of counted members, including those that a view omits."""
        return sum(member.counted for member in (*self.members, *self.left_out))
