"""Data structures of boards, shared by pages and exports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from django.utils.safestring import SafeString
from django.utils.text import slugify
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from leaderboard.results.board_rows.entry_rows import CLOSED, GONE, QUARANTINED, REPORTED, STALE, EntryRow
from leaderboard.results.significance.statements import BoardStatements
from leaderboard.results.slices import DatasetSlices, QuerySlice

if TYPE_CHECKING:
    from leaderboard.boards.facets import Facet, Facets
    from leaderboard.boards.state import Sort
    from leaderboard.results.agreement import PublishedScore
    from leaderboard.results.board_rows.measurements import Machine, MeasuredEntry
    from leaderboard.results.significance.statements import Statement
    from leaderboard.results.significance.types import BoardCertainty, EntryCertainty, TestSettings, Verdict
from evaluation.text.languages import known_language_code
from leaderboard.results.board_rows.rows import Revision

Kind = Literal["score", "delta", "relative", "rank", "number", "figure", "count", "text", "date"]
Value = float | str | None

#: Number of rows by facet and value, and display names of teams and publications by slug or key.
FacetCounts = tuple[Mapping[str, Counter[str]], Mapping[str, str]]

#: Mark of a value that differs significantly from the baseline's.
SEPARATED = "*"

#: Keys of differences, in the measure's unit and, on boards of one dataset, relative to the baseline.
DELTA, RELATIVE = "delta", "relative"
#: Keys of the ratios that belong to `DELTA`, on boards of one dataset and of several.
RATIOS = (RELATIVE, "average-relative")
#: Key of the first column of every board.
SYSTEM = "system"

#: Column groups, in page order.
EFFECTIVENESS = _("Effectiveness")
DIFFERENCE = "Δ vs BM25"
OTHER_MEASURES = _("Other measures")
JUDGED_SHARE = _("Judged")
EFFICIENCY = _("Efficiency")
OTHER_REPORTED = _("Also reported")
ABOUT = _("About")


@dataclass(slots=True)
class Cell:
    """Content of a row's column. Rows share cells, so replace a cell instead of changing it.

    A `value` of None is missing: it sorts last and never counts as 0. `text` is shown instead of the value (a doubtful
    figure as printed), followed by `mark` (in-domain ‡) and `spread` (`± 0.0012 (5)`: sample standard deviation and
    number of seeds); `title` is shown on hover. `interval` is drawn into the cell. `noise` is the maximum error of a
    cost: infinite if unknown, 0 if exact. On boards of several datasets, `certainty` has the cell's test results. The
    difference of a `published` score is a second line. `doubtful_value` is the number of a doubtful figure.
    """

    value: Value = None
    text: str = ""
    mark: str = ""
    title: str = ""
    spread: str = ""
    interval: tuple[float, float] | None = None
    noise: float = 0.0
    certainty: EntryCertainty | None = None
    published: PublishedScore | None = None
    doubtful_value: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A board's column. `key` identifies it in `?sort=` and exports; `better` is the good direction, if any.

    Values of a `score` are between 0 and 1, those of a `relative` column ratios (0.1 is +10%), those of a `figure` in
    `unit`. `cell` returns a row's cell from the line that the row is made from: a bare value if there is nothing else
    to show, None if there is no value. A column without it gets its cells from several rows together.
    """

    key: str
    label: str
    group: str
    kind: Kind
    better: Literal["higher", "lower", ""] = ""
    unit: str = ""
    note: str = ""
    #: Whether the head shows the good direction; the head of the group may show it for all columns.
    arrow: bool = True
    #: Number of decimals of a `number`; None for as many as its values need, at most four.
    decimals: int | None = None
    cell: Callable[[Any], Cell | Value] = field(default=lambda line: None, compare=False, repr=False)
    #: Function that returns the cells of all lines together, which takes half the time; None to call `cell` for each.
    cells: Callable[[Sequence[Any]], Iterable[Cell | Value]] | None = field(default=None, compare=False, repr=False)

    @property
    def group_slug(self) -> str:
        """Slug of its group in `?hide=`; empty for the system's name, which cannot be hidden."""
        return _group_slug(self.group)

    @property
    def group_label(self) -> str:
        """Head of its group without the details, such as `Efficiency` for `Efficiency on a laptop`."""
        return _short_head(self.group)

    @property
    def head(self) -> str:
        """Label in the reader's language; exports use the untranslated `label`."""
        return gettext(self.label)

    @property
    def numeric(self) -> bool:
        return self.kind not in ("text", "date")

    @property
    def first_order(self) -> Literal["asc", "desc"]:
        """Order of the first click: best first, newest first, or alphabetical."""
        return "asc" if self.better == "lower" or self.kind == "text" else "desc"


#: Common prefix of the heads of difference groups, for any baseline.
_DIFFERENCES = "Δ "

#: Heads of groups that may be followed by further words, such as the hardware.
_HEADS = (EFFECTIVENESS, OTHER_MEASURES, JUDGED_SHARE, EFFICIENCY, ABOUT)
#: Slugs of groups by head; other groups use their slugified head.
_GROUP_SLUGS = {
    DIFFERENCE: "delta",
    OTHER_REPORTED: "reported",
    "Gap: open vs hidden half": "public-against-hidden",
    "All datasets": "over-all",
    "Ranks over datasets": "ranks-over-all",
}


@lru_cache(256)
def _group_slug(group: str) -> str:
    head = _short_head(group)
    if head.startswith(_DIFFERENCES):
        return _GROUP_SLUGS[DIFFERENCE]
    return _GROUP_SLUGS.get(head) or slugify(head)


def _short_head(group: str) -> str:
    return next((head for head in (*_HEADS, *_GROUP_SLUGS) if group.startswith(head)), group)


class Block(IntEnum):
    """Parts of a board, in page order."""

    SCORED = 0
    REPORTED = 1
    #: Rows of a benchmark without a value on some of the counted datasets.
    INCOMPLETE = 2
    NOT_RANKED = 3


@dataclass(slots=True)
class Row:
    """A row: values by column key, and cells for columns that need more than a value.

    A dataset's row shows one `entry`. A benchmark's row shows several: `entry` has their common properties, and
    `entries` their ids by position of the dataset, 0 if the row has no value there. `measured` is the source of the
    efficiency columns, `certainty` has the test results for the current measure. `ranked_in` is the kind of rows among
    which it is ranked; rows of different kinds are never ranked together.
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
    #: Whether it differs significantly from its baseline; False if unknown.
    differs: bool = False

    def __getitem__(self, key: str) -> Cell:
        """Return the cell of a column, empty if the row has none."""
        return self.cells.get(key) or Cell(self.values.get(key))

    def __setitem__(self, key: str, cell: Cell) -> None:
        self.cells[key] = cell
        self.values[key] = cell.value

    def value(self, key: str) -> Value:
        return self.values.get(key)

    def copy(self) -> Row:
        """Return a copy whose cells can be replaced."""
        # `dataclasses.replace` takes several times as long.
        shared = self.facets, self.entries, self.rank, self.measured, self.certainty, self.differs
        return Row(self.entry, self.ranked_in, self.decimals, self.values.copy(), self.cells.copy(), *shared)

    @property
    def first_entry(self) -> int:
        """Id of the row's first result, which identifies the row in test results; 0 without results."""
        return next(filter(None, self.entries), 0)

    @property
    def ranking(self) -> str:
        """Key of the rows that it is ranked among: its kind or, for a reported row, its source and dataset revision."""
        return (self.entry.reported_group if self.ranked_in == REPORTED else "") or self.ranked_in

    @property
    def rank_label(self) -> str:
        """Rank as shown on the page: `r 3` among reported results, `c 3` among closed APIs, empty without a rank."""
        return rank_label(self.rank, self.ranked_in)


def fill_cells(rows: Sequence[Row], columns: Sequence[Column], lines: Sequence[object]) -> None:
    """Set all values and cells of rows from their lines, column by column because there are ten thousand cells."""
    keys = [column.key for column in columns]
    cells_by_column = [list(column.cells(lines) if column.cells else map(column.cell, lines)) for column in columns]
    for row, values in zip(rows, zip(*cells_by_column, strict=True), strict=bool(cells_by_column)):
        row.values.update(zip(keys, values, strict=True))
    for key, cells in zip(keys, cells_by_column, strict=True):
        if Cell in set(map(type, cells)):
            for row, cell in zip(rows, cells, strict=True):
                if isinstance(cell, Cell):
                    row[key] = cell


def spans(columns: Iterable[Column]) -> list[tuple[str, int]]:
    """Return the groups of neighboring columns, each with the number of its columns."""
    return [(group, len(list(members))) for group, members in groupby(columns, attrgetter("group"))]


_RANK_MARKS = {REPORTED: "r ", CLOSED: "c "}


def reason_gone(entry: EntryRow) -> str:
    """Return the reason for a withdrawal by the team or a quarantine by a curator; empty for ranked results."""
    if entry.visibility == QUARANTINED:
        return entry.moderation_reason
    return entry.withdrawal_reason if entry.visibility in ("withdrawn", GONE) else ""


def rank_label(rank: int | None, ranked_in: str) -> str:
    """Return a rank with the mark of its kind, empty without a rank."""
    return "" if rank is None else f"{_RANK_MARKS.get(ranked_in, '')}{rank}"


class Part(NamedTuple):
    """A statement of a summary: its label and its text.

    An optional `note` on the label and `detail` on the text are shown in parentheses.
    `state` is `up` for a significant lead, `ns` for one that is not significant, `warn` for a doubt, and else empty.
    """

    label: str
    text: str
    state: str = ""
    detail: str = ""
    note: str = ""

    @property
    def sentence(self) -> str:
        label = f"{self.label} ({self.note})" if self.note else self.label
        return f"{label}: {self.text}{f' ({self.detail})' if self.detail else ''}."


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a board, as statements and as data: slugs and published values, None if withheld or unknown.

    `label` precedes the `name` of the best system, and `after` follows it. The other parts have their own labels: the
    `primary_parts` are on lines of their own, and the `secondary_parts` share lines on wide screens.
    `relative` is the difference from the baseline, 0.1 for 10% more. `latency` is the mean latency of `cheapest`, the
    fastest comparable system, in milliseconds. If the best system beats the baseline, `above_bound` is true if it also
    exceeds the baseline's upper bound, and `baseline_tied` is true if the tests of all pairs do not separate the two.
    `challenged_id` is the id of the best system if one of its claims is challenged.
    `headline` continues the sentence that begins with the system's name. `forest_plot` is the figure of
    `boards.forest`, drawn once because a page shows it twice. `missing_queries` is the number that the best lacks.
    `better_reported` is the primary part on a better score that is ranked separately, if there is one.
    """

    label: str
    name: str
    after: str
    primary_parts: Sequence[Part]
    secondary_parts: Sequence[Part]
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
    challenged_id: int | None = None
    headline: str = ""
    forest_plot: SafeString = SafeString("")  # noqa: RUF009  # immutable
    origin: str = ""
    missing_queries: int = 0
    better_reported: Part | None = None

    @property
    def text(self) -> str:
        separator = " " if self.after.startswith("(") else ", "
        best = Part(self.label, f"{self.name}{separator}{self.after}", detail=self.origin)
        return " ".join(part.sentence for part in (best, *self.primary_parts, *self.secondary_parts))


@dataclass(frozen=True, slots=True)
class Board:
    """A board: columns, rows in page order, and the facts needed to interpret them.

    A ranked board has all rows in order of publication, and `filtering.apply_view` makes a view of it. `best` and
    `second` map a column and `Row.ranking` to the best and second-best distinct value of the ranked board, unless noise
    makes them uncertain. Filters hide rows, but do not change these values or the ranks.
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
    #: Hardware of the measured costs, all hardware to choose from, and the head of the cost columns.
    machine: Machine | None = None
    machines: Sequence[Machine] = ()
    cost_group: str = ""
    #: Statistical tests of a board, their conclusion after correction on a dataset's board, and the entries that it
    #: names. `tested_over` is the scope of a benchmark's tests.
    certainty: BoardCertainty | None = None
    verdict: Verdict | None = None
    verdict_entries: Mapping[int, EntryRow] = field(default_factory=dict)
    tested_over: str = ""
    #: Keys of columns that are still being computed: views that sort or filter by them are valid.
    pending_columns: frozenset[str] = frozenset()
    #: Statements about rows, by the id of their first entry.
    statements: BoardStatements = field(default_factory=BoardStatements)
    #: Slices of the judged queries, or the reason why there are none, and the selected slice.
    slices: DatasetSlices = field(default_factory=DatasetSlices)
    slice: QuerySlice | None = None
    #: Result of `filtering.count_rows` for all rows.
    counted: FacetCounts | None = None
    #: Facets of each dataset of a benchmark, and the views that the board offers.
    member_facets: Sequence[Facets] = ()
    views: Sequence[str] = ()
    summary: Summary | None = None
    #: Number of judged queries that most scored results lack; 0 if there is no such number.
    usual_missing_count: int = 0
    #: Number of rows that were tested against the baseline.
    compared: int = 0
    #: Numbers of all rows, of matching rows on all pages, of pinned rows at the top, and of pages.
    total: int = 0
    found: int = 0
    pinned: int = 0
    page: int = 1
    pages: int = 1
    sorts: Sequence[Sort] = ()
    view: str = ""
    notes: Sequence[str] = ()
    facets: Sequence[Facet] = ()
    #: Columns of the page, of CSV, JSON, and the API, and of the page including hidden groups.
    shown: Sequence[Column] = ()
    data_columns: Sequence[Column] = ()
    unhidden: Sequence[Column] = ()
    #: Key of the column without which a row is incomplete; empty if all rows are complete.
    completeness_key: str = ""
    #: Rankings of the reported rows, those with most rows first.
    rankings: Sequence[str] = ()
    #: Test settings of single cells, on a benchmark's board.
    found_with: TestSettings | None = None
    #: Slugs of systems on a past board whose results are no longer public.
    without_page: frozenset[str] = frozenset()

    @property
    def papers(self) -> Sequence[str]:
        """Display names of the publications that all rows are from; empty if any row was scored by Runboard."""
        facets, display_names = self.counted or ({}, {})
        if not facets or set(facets["provenance"]) != {REPORTED}:
            return ()
        return [display_names.get(key, key) for key in facets["team"]]

    @property
    def ranges(self) -> list[Column]:
        return [column for column in self.unhidden if column.numeric]

    @property
    def sort(self) -> str:
        return self.sorts[0].key

    @property
    def order(self) -> str:
        return self.sorts[0].order

    def column(self, key: str) -> Column | None:
        return next((column for column in self.columns if column.key == key), None)

    def exported(self, row: Row) -> dict[str, Value]:
        """Return the row's values by column key; counts such as 18/18 are written as on the page."""
        return {
            column.key: cell.text if column.kind == "count" and cell.value is not None and cell.text else cell.value
            for column in self.columns
            for cell in [row[column.key]]
        }

    def get_block(self, row: Row) -> Block:
        """Return the part of the table to which a row belongs."""
        if row.ranked_in in (STALE, QUARANTINED):
            return Block.NOT_RANKED
        if self.completeness_key and row.values.get(self.completeness_key) is None:
            return Block.INCOMPLETE
        return Block.REPORTED if row.ranked_in == REPORTED else Block.SCORED

    def get_section(self, row: Row) -> tuple[Block, int]:
        """Return the block of a row, and the position of its ranking within it. Sorting never mixes sections."""
        block = self.get_block(row)
        if block is not Block.REPORTED or row.ranking not in self.rankings:
            return block, len(self.rankings)
        return block, self.rankings.index(row.ranking)

    @property
    def has_ranges(self) -> bool:
        """Whether rank ranges are known for a board with several rows, even if filters leave a single one."""
        return self.certainty is not None and self.certainty.current and self.total > 1

    def separates(self, row: Row) -> bool:
        """Return whether the row differs significantly from the baseline after correction over the board."""
        p = row.certainty.p_baseline_corrected if row.certainty is not None else None
        return p is not None and self.certainty is not None and p < self.certainty.settings.alpha

    def emphasis(self, row: Row, key: str) -> Literal["best", "second", ""]:
        """Return whether a value is the best or second best of its column among rows of its kind."""
        value, group = row.value(key), (key, row.ranking)
        if value is None or isinstance(value, str):
            return ""
        if self.best.get(group) == value:
            return "best"
        return "second" if self.second.get(group) == value else ""


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """Properties of a dataset and its judgments that boards depend on."""

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
    #: Source of the collection: a short citation or a host, empty if unknown.
    source: str = ""
    #: Judged relevant documents per topic; None if unknown or hidden.
    relevant_per_query: float | None = None
    #: Checksum of the query tags, and the slice that scores are over; None for all judged queries.
    tags_sha256: str = ""
    slice: QuerySlice | None = None

    @property
    def title(self) -> str:
        """Name of the dataset, with the queries of a slice."""
        return self.name if self.slice is None else f"{self.name}, {self.slice.text}"


@dataclass(frozen=True, slots=True)
class Member:
    """A dataset of a board in one revision: the dataset itself, a benchmark's member, or a part of another dataset.

    `counted` and `stand_ins` (measures by the measure that they replace) are the benchmark's. A composite dataset
    averages its `parts`, and has no score until all of them are `listed`.
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

    def measure(self, requested: str) -> str:
        """Return the measure that it shows if the board shows `requested`."""
        return self.stand_ins.get(requested, requested)

    @property
    def facets(self) -> dict[str, str]:
        language = known_language_code(self.facts.language)
        return {"language": language, "domain": self.domain, "task": self.task}

    @property
    def key(self) -> str:
        """Text that changes with all properties of the dataset on which a board depends."""
        parts = ",".join(part.key for part in self.parts)
        choices = self.counted, dict(self.stand_ins), self.domain, self.task, self.listed
        return f"{self.revision.key} {self.dataset_id} {self.slug} {choices} {self.facts} [{parts}]"


@dataclass(frozen=True, slots=True)
class BenchmarkFacts:
    """Properties of a benchmark that boards depend on, and its members.

    `source_id` is the only publication whose reported results it shows, if any. `efficiency_from` is the dataset whose
    measured costs it shows, by default the one with costs of most systems. `left_out` are members that a view omits.
    """

    name: str
    measure: str
    members: Sequence[Member]
    source_id: int | None = None
    efficiency_from: int | None = None
    left_out: Sequence[Member] = ()

    @property
    def counted(self) -> list[Member]:
        return [member for member in self.members if member.counted]

    @property
    def ranks_sources_apart(self) -> bool:
        """Whether reported rows are ranked by source; a board of one dataset compares single results of all sources."""
        return self.source_id is None and self.all_counted > 1

    @property
    def all_counted(self) -> int:
        """Number of counted members, including those that a view omits."""
        return sum(member.counted for member in (*self.members, *self.left_out))
