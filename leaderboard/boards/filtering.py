"""From all rows of a board to what a view shows: filters, order, pins, pages, columns. Both boards end here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

from leaderboard.boards.columns.about import SIZE
from leaderboard.boards.columns.costs import describe_costs
from leaderboard.boards.facets import OF_DATASETS, count_facets, matches_facet, offered_facets
from leaderboard.boards.model import (
    EFFECTIVENESS,
    JUDGED_SHARE,
    OTHER_MEASURES,
    Board,
    Column,
    Counted,
    Row,
    Value,
)
from leaderboard.boards.presets import choose_columns
from leaderboard.boards.state import FACETS, ROWS_OF_A_PAGE, BoardState, Sort
from leaderboard.core.http.choices import UnknownChoice, UnknownParameter
from leaderboard.core.measures import canonical_name
from leaderboard.models import Entry
from leaderboard.results.kinds import UNRANKED, rank_values

#: What a view of zero-shot results shows. Adaptation to the corpus saw no label; whoever declared nothing may have
#: trained on anything.
ZERO_SHOT = (Entry.Training.ZERO_SHOT.value, Entry.Training.ADAPTED.value)


def apply_view(board: Board, state: BoardState, default: str, *, copies: bool = False) -> Board:
    """Leave of the board's rows those that the view shows, in its order; `default` is the column sorted by otherwise.

    Those are `copies` where more is to be said of them: views share the rows.

    The rows must be all there are, ranked, in order of publication. Best and second are found among all of them, so
    that no filter moves these. Raises UnknownChoice for a column that the board does not have.
    """
    every = board.rows
    board.total = len(every)
    board.sorts = resolved_sorts(board, state, default)
    mark_best(board, every)
    left = _filter_without_facets(board, every, state)
    found = _chosen(left, state)
    _offer_facets(board, every, left, state)
    board.found = len(found)
    _take_page(board, every, found, state)
    if copies:
        board.rows = [row.copy() for row in board.rows]
    board.ranges = [column for column in board.columns if column.numeric]
    _hide_groups(board, state)
    choose_columns(board, state)
    describe_costs(board)
    return board


def resolved_sorts(board: Board, state: BoardState, default: str) -> list[Sort]:
    """The columns that decide the order, each with its order; one that is awaited decides nothing.

    Raises UnknownChoice.
    """
    by_key = {column.key: column for column in board.columns}
    wanted = [sort for sort in state.sorts if sort.key not in board.awaited]
    sorts = []
    for sort in wanted or (Sort(default),):
        key = sort.key or default
        if key not in by_key:
            key = canonical_name(key)
        if key not in by_key:
            raise UnknownChoice("sort", key, by_key)
        sorts.append(Sort(key, sort.order or by_key[key].first_order))
    return sorts


def filter_rows(board: Board, rows: Sequence[Row], state: BoardState) -> list[Row]:
    """The rows that the view shows, on all of its pages. Raises UnknownChoice for a range of no numeric column."""
    return _chosen(_filter_without_facets(board, rows, state), state)


def _filter_without_facets(board: Board, rows: Sequence[Row], state: BoardState) -> list[Row]:
    """The rows that all filters but facets leave: text, switches, ranges."""
    found = list(rows)
    if state.text:
        text = state.text.casefold()
        found = [row for row in found if _mentions(row, text)]
    if state.zero_shot:
        found = [row for row in found if matches_facet(row.facets, "training", ZERO_SHOT)]
    if state.cpu_only:
        found = [row for row in found if row.measured and not row.measured.machine.has_gpu]
    numeric = [column.key for column in board.columns if column.numeric]
    for key, low, high in state.ranges:
        if key in board.awaited:
            continue
        if key not in numeric:
            bound = "max-" if low is None else "min-"
            raise UnknownParameter(bound + key, [bound + each for each in numeric])
        found = [row for row in found if _within(row.value(key), low, high)]
    return found


def _chosen(rows: list[Row], state: BoardState) -> list[Row]:
    """The rows that have a chosen value of every facet of rows. Those of datasets choose columns, not rows."""
    for facet, wanted in state.facets:
        if facet not in OF_DATASETS:
            rows = [row for row in rows if matches_facet(row.facets, facet, wanted)]
    return rows


def _mentions(row: Row, text: str) -> bool:
    entry = row.entry
    named = (entry.system, entry.configuration, entry.team or "", entry.source_key or "")
    return any(text in part.casefold() for part in named)


def _within(value: object, low: float | None, high: float | None) -> bool:
    if not isinstance(value, (int, float)):
        return False
    return (low is None or value >= low) and (high is None or value <= high)


def _offer_facets(board: Board, every: Sequence[Row], left: Sequence[Row], state: BoardState) -> None:
    board.counted = board.counted or count_rows(every)
    had, called = board.counted
    for facet, wanted in state.facets:
        known = had[facet] if not FACETS[facet] and facet not in OF_DATASETS else wanted
        if unknown := [value for value in wanted if value not in known]:
            raise UnknownChoice(facet, unknown[0], sorted(known))
    board.facets = offered_facets(had, [row.facets for row in left], state, called)
    if board.of_datasets:
        had = count_facets(board.of_datasets, OF_DATASETS)
        board.facets += offered_facets(had, board.of_datasets, state)


def count_rows(rows: Sequence[Row]) -> Counted:
    """How many rows have each value of a facet, and how teams and publications are called, as in the column “By”."""
    called = {
        str(row.facets.get("team")): row.entry.team if row.entry.team and row.entry.team_slug else str(by)
        for row in rows
        if (by := row.value("by")) is not None
    }
    return count_facets([row.facets for row in rows]), called


def leave_out_empty(
    board: Board, rows: Sequence[Row], state: BoardState, default: str, *, every_kind: bool
) -> None:
    """Drop columns without a value in `rows` from pages, unless the view sorts or filters by them.

    Without `every_kind`, only figures and further measures are dropped. `data_columns` keeps every column.
    """
    board.data_columns = board.columns
    needed = {default, *(sort.key for sort in resolved_sorts(board, state, default))}
    needed.update(bounds.key for bounds in state.ranges)
    needed.update(key for row in rows for key, cell in row.cells.items() if cell.text)

    def stays(column: Column) -> bool:
        if column.key in needed or not (
            every_kind or column.kind == "figure" or column.group in (OTHER_MEASURES, JUDGED_SHARE)
        ):
            return True
        values = (row.values.get(column.key) for row in rows)
        return any(values) if column == SIZE else any(value is not None for value in values)

    board.columns = [column for column in board.columns if stays(column)]


def _take_page(board: Board, every: Sequence[Row], found: Sequence[Row], state: BoardState) -> None:
    """The pinned rows, then the page's. Pins survive filters, and come again on every page; their ranks are their own.

    A board of a thousand systems comes in pages: a browser would lay out all of them at once.
    """
    pinned = [row for slug in state.pins for row in sort_rows(board, _of(every, slug))]
    slugs = {row.entry.slug for row in pinned}
    others = sort_rows(board, [row for row in found if row.entry.slug not in slugs] if slugs else found)
    board.pinned = len(pinned)
    board.pages = 1 if state.all_rows else max(1, -(-len(others) // ROWS_OF_A_PAGE))
    board.page = min(state.page, board.pages)
    if board.pages > 1:
        first = (board.page - 1) * ROWS_OF_A_PAGE
        others = others[first : first + ROWS_OF_A_PAGE]
    board.rows = pinned + others


def _of(rows: Sequence[Row], slug: str) -> list[Row]:
    return [row for row in rows if row.entry.slug == slug]


def sort_rows(board: Board, rows: Sequence[Row]) -> list[Row]:
    """The rows as the view orders them: by its last column first, since sorting keeps the order of equals.

    Each block of the board is ordered by itself: rows scored here come before reported ones, incomplete ones last."""
    found = list(rows)
    for key, order in reversed(board.sorts):
        column = board.column(key)
        if column is not None:
            found = ordered(found, key, order or column.first_order)
    return sorted(found, key=board.block_of)


def _hide_groups(board: Board, state: BoardState) -> None:
    """Leave out the columns of hidden groups; what decides the order may be hidden too."""
    for column in board.columns:
        if column.group_slug:
            board.groups.setdefault(column.group_slug, column.group_label)
    every = board.data_columns or board.columns
    board.data_columns = [column for column in every if column.group_slug not in state.hidden]
    board.columns = [column for column in board.columns if column.group_slug not in state.hidden]


#: Kinds of columns whose best values are marked.
_MARKED = ("score", "figure", "number", "rank")


def ordered(rows: Sequence[Row], key: str, order: Literal["asc", "desc"]) -> list[Row]:
    """The rows by one column. They must come in order of publication, which then decides among equals."""
    present = [(value, row) for row in rows if (value := row.values.get(key)) is not None]
    missing = [row for row in rows if row.values.get(key) is None]
    texts = any(isinstance(value, str) for value, _ in present)
    present.sort(key=_text_key if texts else itemgetter(0), reverse=order == "desc")
    return [row for _, row in present] + missing


def _text_key(pair: tuple[Value, Row]) -> tuple[bool, Any]:
    """Numbers come before texts, whose case does not count."""
    value = pair[0]
    return (True, value.casefold()) if isinstance(value, str) else (False, value)


def assign_ranks(rows: Sequence[Row], key: str, *, lower_is_better: bool = False) -> None:
    """Give each row its rank by one column among the rows of its kind: 1, 1, 3. Unranked and missing ones get none."""
    kinds: dict[str, list[tuple[float, Row]]] = defaultdict(list)
    for row in rows:
        value = row.value(key)
        row.rank = None
        if isinstance(value, (float, int)) and row.ranked_in not in UNRANKED:
            kinds[row.ranked_in].append((value, row))
    for ranked in kinds.values():
        found = rank_values([value for value, _ in ranked], lower_is_better=lower_is_better)
        for value, row in ranked:
            row.rank = found[value]


@dataclass(frozen=True, slots=True)
class SharedRows:
    """What all views of a board share: its rows before costs, orders and filters, and what is best of their columns."""

    rows: Sequence[Row]
    counted: Counted | None = None
    marked: Collection[str] = ()
    best: Mapping[tuple[str, str], float] = field(default_factory=dict)
    second: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Row], columns: Sequence[Column]) -> SharedRows:
        """Rows with the columns that no view fills otherwise."""
        board = Board("", list(columns), [], "")
        mark_best(board, rows)
        return cls(rows, count_rows(rows), {column.key for column in columns}, board.best, board.second)

    def give_to(self, board: Board, *, copies: bool) -> None:
        """Give the board the rows, or `copies` where it ranks them anew or fills further columns of all."""
        board.rows = [row.copy() for row in self.rows] if copies else list(self.rows)
        board.counted = self.counted
        board.marked, board.best, board.second = self.marked, {**self.best}, {**self.second}


def mark_best(board: Board, rows: Sequence[Row]) -> None:
    """Find the best and the second best value of every column that has a better direction, per kind of row.

    Of values with noise the best is one that is better than every other whatever the noise, and so is the second of the
    rest: where their ranges overlap nobody knows which is the better one.
    """
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.ranked_in not in UNRANKED:
            kinds[row.ranked_in].append(row)
    marked = [
        column
        for column in board.columns
        if column.better and column.key not in board.marked and (column.kind in _MARKED or _is_view(column))
    ]
    for kind, of_kind in kinds.items():
        for column in marked:
            for found, value in zip((board.best, board.second), _two_best(column, of_kind), strict=False):
                found[column.key, kind] = value


def _is_view(column: Column) -> bool:
    """Whether it shows differences in the place of scores, whose best is marked as the score's would be."""
    return column.kind in ("delta", "relative") and column.group.startswith(EFFECTIVENESS)


def _two_best(column: Column, rows: Sequence[Row]) -> list[float]:
    """The best and the second best distinct value, as far as noise leaves no doubt of them."""
    key, choose = column.key, max if column.better == "higher" else min
    numbers: list[Any] = [value for row in rows if (value := row.values.get(key)) is not None]
    noises = (
        {id(row): row.cells[key].noise for row in rows if key in row.cells} if column.kind == "figure" else {}
    )
    noisy = any(noises.values())
    ranges = (
        [(value, noises.get(id(row), 0.0)) for row in rows if (value := row.values.get(key)) is not None]
        if noisy
        else []
    )
    found: list[float] = []
    while numbers and len(found) < 2:
        best = choose(numbers)
        if (len(numbers) < 2 and not found) or (noisy and not _is_clear(best, ranges)):
            break
        found.append(best)
        numbers = [number for number in numbers if number != best]
        ranges = [each for each in ranges if each[0] != best]
    return found


def _is_clear(value: float, ranges: Sequence[tuple[Any, float]]) -> bool:
    """Whether the range of a value overlaps with that of no other one."""
    own = max(off for each, off in ranges if each == value)
    return all(abs(each - value) > off + own for each, off in ranges if each != value)
