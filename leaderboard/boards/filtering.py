"""From a ranked board to what a view shows: filters, order, pins, pages, and columns.

A preset names groups and keys of columns. The overview has about ten columns, so that a board fits a screen. Exports
have every column unless the address chooses some.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from leaderboard.boards.columns.about import SIZE
from leaderboard.boards.columns.costs import describe_costs
from leaderboard.boards.facets import OF_DATASETS, count_facets, matches_facet, offered_facets
from leaderboard.boards.model import (
    DELTA,
    EFFECTIVENESS,
    JUDGED_SHARE,
    OTHER_MEASURES,
    RELATIVE,
    SYSTEM,
    Block,
    Board,
    Column,
    Counted,
    Row,
    Value,
)
from leaderboard.boards.state import FACETS, PRESETS, ROWS_OF_A_PAGE, BoardState, Sort
from leaderboard.core.http.choices import UnknownChoice, UnknownParameter
from leaderboard.core.measures import canonical_name
from leaderboard.models import Entry
from leaderboard.results.board_rows.entry_rows import PRIVATE, UNRANKED, rank_values

#: The training of rows in a zero-shot view. Adaptation to the corpus saw no label; without a declaration, a system may
#: have been trained on anything.
ZERO_SHOT = (Entry.Training.ZERO_SHOT.value, Entry.Training.ADAPTED.value)


def apply_view(board: Board, state: BoardState, default: str, omitted: Collection[str] = ()) -> Board:
    """Return the view of a ranked board that has all its rows in order of publication.

    The rows are copies, because views share those of the ranked board. `default` is the column that the view is sorted
    by otherwise. Pages leave out the `omitted` columns.
    Raises UnknownChoice for a column that the board does not have.
    """
    left = _filter_without_facets(board, state)
    board = replace(board, total=len(board.rows), sorts=resolved_sorts(board, state, default))
    found = _filter_by_facets(left, state)
    had, called = board.counted or ({}, {})
    for facet, wanted in state.facets:
        known = had[facet] if not FACETS[facet] and facet not in OF_DATASETS else wanted
        if unknown := [value for value in wanted if value not in known]:
            raise UnknownChoice(facet, unknown[0], sorted(known))
    facets = offered_facets(had, [row.facets for row in left], state, called)
    if board.of_datasets:
        facets += offered_facets(count_facets(board.of_datasets, OF_DATASETS), board.of_datasets, state)
    filled = [column for column in _filled_columns(board, found, state, default) if column.key not in omitted]
    # Pinned rows are on every page, whatever the filters.
    pinned = [
        row
        for slug in state.pins
        for row in sort_rows(board, [row for row in board.rows if row.entry.slug == slug])
    ]
    slugs = {row.entry.slug for row in pinned}
    others = sort_rows(board, [row for row in found if row.entry.slug not in slugs] if slugs else found)
    pages = 1 if state.all_rows else max(1, -(-len(others) // ROWS_OF_A_PAGE))
    page = min(state.page, pages)
    if pages > 1:
        others = others[(page - 1) * ROWS_OF_A_PAGE : page * ROWS_OF_A_PAGE]
    rows = [row.copy() for row in [*pinned, *others]]
    board = replace(
        board,
        rows=rows,
        found=len(found),
        pinned=len(pinned),
        pages=pages,
        page=page,
        facets=facets,
        unhidden=filled,
        columns=[column for column in filled if column.group_slug not in state.hidden],
        data_columns=[column for column in board.columns if column.group_slug not in state.hidden],
    )
    shown = _chosen_columns(board, board.columns, state)
    if state.columns:
        data = _chosen_columns(board, board.data_columns, state)
        board = replace(board, columns=shown, data_columns=data)
    describe_costs(board.columns, board.rows)
    return replace(board, shown=shown)


def resolved_sorts(board: Board, state: BoardState, default: str) -> list[Sort]:
    """Return the columns that decide the order, each with its order, without those that are still being computed.

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


def filter_rows(board: Board, state: BoardState) -> list[Row]:
    """Return the rows on all pages of a view. Raises UnknownChoice for a range of a column without numbers."""
    return _filter_by_facets(_filter_without_facets(board, state), state)


def _filter_without_facets(board: Board, state: BoardState) -> list[Row]:
    """Return the rows that match the text, the switches, and the ranges."""
    found = list(board.rows)
    if state.text:
        text = state.text.casefold()
        entries = [(row, row.entry) for row in found]
        found = [
            row
            for row, entry in entries
            if any(
                text in (name or "").casefold()
                for name in (entry.system, entry.configuration, entry.team, entry.source_key)
            )
        ]
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
        least, most = -inf if low is None else low, inf if high is None else high
        found = [
            row
            for row in found
            if isinstance(value := row.value(key), (int, float)) and least <= value <= most
        ]
    return found


def _filter_by_facets(rows: list[Row], state: BoardState) -> list[Row]:
    """Return the rows with a chosen value of every facet of rows. Facets of datasets choose columns."""
    for facet, wanted in state.facets:
        if facet not in OF_DATASETS:
            rows = [row for row in rows if matches_facet(row.facets, facet, wanted)]
    return rows


def count_rows(rows: Sequence[Row]) -> Counted:
    """Count the rows of each value of a facet, and name teams and publications as in the column “By”."""
    called = {
        str(row.facets.get("team")): row.entry.team if row.entry.team and row.entry.team_slug else str(by)
        for row in rows
        if (by := row.value("by")) is not None
    }
    return count_facets([row.facets for row in rows]), called


def _filled_columns(board: Board, found: Sequence[Row], state: BoardState, default: str) -> list[Column]:
    """Return the columns with a value in the rows of the view, and those that it sorts or filters by.

    In a view of a benchmark, and in one without rows, only figures and further measures are left out.
    """
    rows = found or board.rows
    every_kind = bool(found) and not board.views
    if board.views:  # private rows decide nothing
        rows = [row for row in board.rows if row.ranked_in != PRIVATE]
    needed = {default, *(sort.key for sort in board.sorts), *(bounds.key for bounds in state.ranges)}
    needed.update(key for row in rows for key, cell in row.cells.items() if cell.text)
    values_of_rows = [row.values for row in rows]

    def stays(column: Column) -> bool:
        if column.key in needed or not (
            every_kind or column.kind == "figure" or column.group in (OTHER_MEASURES, JUDGED_SHARE)
        ):
            return True
        values = [row.get(column.key) for row in values_of_rows]
        return any(values) if column == SIZE else values.count(None) < len(values)

    return [column for column in board.columns if stays(column)]


def sort_rows(board: Board, rows: Sequence[Row]) -> list[Row]:
    """Return the rows in the order of the view, the board's blocks one after the other."""
    found = list(rows)
    for key, order in reversed(board.sorts):  # sorting keeps the order of equals
        column = board.column(key)
        if column is not None:
            found = ordered(found, key, order or column.first_order)
    return sorted(found, key=board.block_of)


def ordered(rows: Sequence[Row], key: str, order: Literal["asc", "desc"]) -> list[Row]:
    """Return rows, given in order of publication, in the order of one column. Missing values are last."""
    present = [(value, row) for row in rows if (value := row.values.get(key)) is not None]
    missing = [row for row in rows if row.values.get(key) is None]
    texts = any(isinstance(value, str) for value, _ in present)
    if texts:  # numbers before texts, and these regardless of case

        def place(pair: tuple[Value, Row]) -> tuple[bool, Any]:
            value = pair[0]
            return (True, value.casefold()) if isinstance(value, str) else (False, value)

        present.sort(key=place, reverse=order == "desc")
    else:
        present.sort(key=itemgetter(0), reverse=order == "desc")
    return [row for _, row in present] + missing


def assign_ranks(rows: Iterable[Row], key: str, *, lower_is_better: bool = False) -> None:
    """Set the ranks by one column among the rows of each kind: 1, 1, 3. Missing values have no rank."""
    kinds: dict[str, list[tuple[float, Row]]] = defaultdict(list)
    for row in rows:
        value = row.value(key)
        row.rank = None
        if isinstance(value, (float, int)) and row.ranked_in not in UNRANKED:
            kinds[row.ranked_in].append((value, row))
    for ranked in kinds.values():
        places = rank_values([value for value, _ in ranked], lower_is_better=lower_is_better)
        for value, row in ranked:
            row.rank = places[value]


#: Kinds of columns whose best values are marked.
_MARKED = ("score", "figure", "number", "rank")
Best = dict[tuple[str, str], float]


def best_values(columns: Iterable[Column], rows: Iterable[Row]) -> tuple[Best, Best]:
    """Return the best and the second-best values by column and kind of row, of columns with a better direction.

    A value with noise is the best if it is better than all others whatever the noise. Where ranges overlap, the better
    one is not known.
    """
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.ranked_in not in UNRANKED:
            kinds[row.ranked_in].append(row)
    best: Best = {}
    second: Best = {}
    for column in columns:
        # Differences that replace scores in a view are marked like scores.
        replaces_score = column.kind in ("delta", "relative") and column.group.startswith(EFFECTIVENESS)
        if column.better and (column.kind in _MARKED or replaces_score):
            for kind, of_kind in kinds.items():
                for values, value in zip((best, second), _two_best(column, of_kind), strict=False):
                    values[column.key, kind] = value
    return best, second


def _two_best(column: Column, rows: Sequence[Row]) -> list[float]:
    """Return the best and the second-best distinct value, unless noise leaves a doubt."""
    key, choose = column.key, max if column.better == "higher" else min
    numbers: list[Any] = [value for row in rows if (value := row.values.get(key)) is not None]
    ranges: list[tuple[Any, float]] = []
    if column.kind == "figure" and any(row.cells[key].noise for row in rows if key in row.cells):
        ranges = [(value, row[key].noise) for row in rows if (value := row.values.get(key)) is not None]
    found: list[float] = []
    while numbers and len(found) < 2:
        best = choose(numbers)
        if len(numbers) < 2 and not found:
            break
        own = max((noise for value, noise in ranges if value == best), default=0.0)
        if any(abs(value - best) <= noise + own for value, noise in ranges if value != best):
            break
        found.append(best)
        numbers = [number for number in numbers if number != best]
        ranges = [each for each in ranges if each[0] != best]
    return found


#: The number of columns that an overview is filled up to.
OVERVIEW_WIDTH = 9


class Preset(NamedTuple):
    """A named choice of columns: `label` is its tab, `groups` are slugs of groups, `keys` those of single columns."""

    label: Promise | str
    groups: Collection[str] = ()
    keys: Collection[str] = ()


#: The first columns of every choice: the score and how it compares with the baseline.
_SCORE = ("mean", DELTA, RELATIVE, "average-relative")
#: Columns that a preset omits if it has another one with the same values for more rows.
_REPLACED_BY = {"model-parameters": "parameters"}
_PRESETS: Mapping[str, Preset] = dict(
    zip(
        PRESETS,
        (
            Preset(
                _("Overview"),
                keys=(
                    *_SCORE, "coverage", "wins", "private", "mean-latency", "index-bytes", "published",
                    "weighted-score", "corpus-index",
                ),
            ),
            Preset(
                _("Effectiveness"),
                (
                    "effectiveness", "over-all", "delta", "ranks-over-all", "private-part", "other-measures", "judged",
                ),
            ),
            Preset(_("Efficiency"), ("efficiency", "reported"), (*_SCORE, "parameters", "weighted-score")),
            Preset(
                _("Training data"),
                keys=(
                    *_SCORE, "architecture", "provenance", "training-data", "gap", "gap-shown", "weights", "licence",
                    "parameters", "maximum-length", "by", "published",
                ),
            ),
            Preset(_("All")),
        ),
        strict=True,
    )
)  # fmt: skip
#: Groups that fill up an overview: the first further measures; a benchmark's datasets and the like if all fit.
_FURTHER_MEASURES = "other-measures"
_WHOLE_GROUPS = ("effectiveness", "ranks-over-all", "reported")


def offered_presets(columns: Iterable[Column], hidden: Collection[str]) -> list[tuple[str, str]]:
    """Return the names and labels of the presets for these columns without those of hidden groups."""
    groups = {column.group_slug for column in columns}.difference(hidden)
    return [
        (name, str(preset.label))
        for name, preset in _PRESETS.items()
        if name != "efficiency" or not groups.isdisjoint(preset.groups)
    ]


def _chosen_columns(board: Board, columns: Sequence[Column], state: BoardState) -> list[Column]:
    name = state.columns[0] if state.columns else PRESETS[0]
    if name == "all":
        return list(columns)
    if name not in _PRESETS and not any(column.key in state.columns for column in columns):
        name = PRESETS[0]  # the board has none of the columns
    preset = _PRESETS.get(name) or Preset("", keys=state.columns)
    sorted_by = {sort.key for sort in board.sorts}
    keys = {SYSTEM, *preset.keys, *sorted_by}  # so that the order explains itself
    if name in _PRESETS:
        keys.add(board.measure)
    # A team sees everyone else's rows as all visitors do, whichever private rows it has.
    if not any(board.block_of(row) is Block.INCOMPLETE and row.ranked_in != PRIVATE for row in board.rows):
        keys.discard("coverage")
    if name == PRESETS[0]:
        # A ratio is below its difference, and the date of all results below the table.
        elsewhere = {RELATIVE} if any(column.key == DELTA for column in columns) else set()
        if len({row.value("published") for row in board.rows} - {None}) == 1:
            elsewhere.add("published")
        keys -= elsewhere - sorted_by
    found = [column for column in columns if column.key in keys or column.group_slug in preset.groups]
    if name in _PRESETS:
        shown = {column.key for column in found}
        found = [column for column in found if _REPLACED_BY.get(column.key) not in shown]
    return _fill_overview(board, columns, found) if name == PRESETS[0] else found


def _fill_overview(board: Board, columns: Sequence[Column], found: Sequence[Column]) -> list[Column]:
    """Return the columns that were found, and others in the room that is left, in the board's order."""
    keys = {column.key for column in found}
    further = [column.key for column in columns if column.group_slug == _FURTHER_MEASURES]
    keys.update(further[: max(0, OVERVIEW_WIDTH - len(keys))])
    for group in _WHOLE_GROUPS if board.views else ():
        more = {column.key for column in columns if column.group_slug == group} - keys
        if len(keys | more) <= OVERVIEW_WIDTH:
            keys |= more
    return [column for column in columns if column.key in keys]
