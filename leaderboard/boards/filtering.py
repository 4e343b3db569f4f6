"""Views of ranked boards: filters, order, pins, pages, and columns.

A preset names groups and keys of columns. The overview has about ten columns, so that a board fits a screen. Exports
have every column unless the URL selects some.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from math import inf
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from leaderboard.boards.columns.about import FILE_SIZE, SIZE
from leaderboard.boards.columns.costs import describe_costs
from leaderboard.boards.facets import DATASET_FACETS, count_facets, matches_facet, offered_facets
from leaderboard.boards.model import (
    DELTA,
    EFFECTIVENESS,
    JUDGED_SHARE,
    OTHER_MEASURES,
    RATIOS,
    SYSTEM,
    Block,
    Board,
    Column,
    FacetCounts,
    Row,
    Value,
)
from leaderboard.boards.state import FACETS, PRESETS, ROWS_PER_PAGE, BoardState, Sort
from leaderboard.core.http.choices import UnknownChoice, UnknownParameter
from leaderboard.core.measures import canonical_name
from leaderboard.models import Entry
from leaderboard.results.board_rows.entry_rows import PRIVATE, REPORTED, UNRANKED, rank_values

#: Training exposures of a zero-shot view. Adaptation to the corpus uses no labels; undeclared systems may
#: have been trained on anything.
ZERO_SHOT = (Entry.Training.ZERO_SHOT.value, Entry.Training.ADAPTED.value)


def apply_view(
    board: Board, state: BoardState, default: str, omitted_keys: Collection[str] = (), *, copies_rows: bool = True
) -> Board:
    """Return a view of a ranked board: filtered, sorted, and paged rows, and the columns to show.

    The board must have all its rows in order of publication. Pinned rows come first and ignore filters. Rows are
    copied unless `copies_rows` is false, because views share those of the ranked board. `default` is the default sort
    column. Pages omit the columns with `omitted_keys`.

    Raises UnknownChoice for a column or a facet value that the board does not have.
    """
    unfaceted_rows = _filter_without_facets(board, state)
    board = replace(board, total=len(board.rows), sorts=resolve_sorts(board, state, default))
    matching_rows = _filter_by_facets(unfaceted_rows, state)
    value_counts, display_names = board.counted or ({}, {})
    for facet, selected_values in state.facets:
        known_values = value_counts[facet] if not FACETS[facet] and facet not in DATASET_FACETS else selected_values
        if unknown_values := [value for value in selected_values if value not in known_values]:
            raise UnknownChoice(facet, unknown_values[0], sorted(known_values))
    facets = offered_facets(value_counts, [row.facets for row in unfaceted_rows], state, display_names)
    if board.member_facets:
        facets += offered_facets(count_facets(board.member_facets, DATASET_FACETS), board.member_facets, state)
    filled_columns = [
        column for column in _filled_columns(board, matching_rows, state, default) if column.key not in omitted_keys
    ]
    # Pinned rows are on every page, regardless of filters.
    pinned_rows = [
        row for slug in state.pins for row in sort_rows(board, [row for row in board.rows if row.entry.slug == slug])
    ]
    slugs = {row.entry.slug for row in pinned_rows}
    other_rows = sort_rows(
        board, [row for row in matching_rows if row.entry.slug not in slugs] if slugs else matching_rows
    )
    page_count = 1 if state.all_rows else max(1, -(-len(other_rows) // ROWS_PER_PAGE))
    page = min(state.page, page_count)
    if page_count > 1:
        other_rows = other_rows[(page - 1) * ROWS_PER_PAGE : page * ROWS_PER_PAGE]
    rows = [row.copy() if copies_rows else row for row in [*pinned_rows, *other_rows]]
    board = replace(
        board,
        rows=rows,
        found=len(matching_rows),
        pinned=len(pinned_rows),
        pages=page_count,
        page=page,
        facets=facets,
        unhidden=filled_columns,
        columns=[column for column in filled_columns if column.group_slug not in state.hidden],
        data_columns=[column for column in board.columns if column.group_slug not in state.hidden],
    )
    page_columns = _select_columns(board, board.columns, state)
    if state.columns:
        data_columns = _select_columns(board, board.data_columns, state)
        board = replace(board, columns=page_columns, data_columns=data_columns)
    describe_costs(board.columns, board.rows)
    return replace(board, shown=page_columns)


def resolve_sorts(board: Board, state: BoardState, default: str) -> list[Sort]:
    """Return the sort columns with their orders, or the default one if the view has none.

    Columns that are still being computed are omitted. Raises UnknownChoice for a column that the board does not have.
    """
    by_key = {column.key: column for column in board.columns}
    available_sorts = [sort for sort in state.sorts if sort.key not in board.pending_columns]
    sorts = []
    for sort in available_sorts or (Sort(default),):
        key = sort.key or default
        key = key if key in by_key else canonical_name(key)
        if key not in by_key:
            raise UnknownChoice("sort", key, by_key)
        sorts.append(Sort(key, sort.order or by_key[key].first_order))
    return sorts


def filter_rows(board: Board, state: BoardState) -> list[Row]:
    """Return the rows on all pages of a view. Raises UnknownChoice for a range of a column without numbers."""
    return _filter_by_facets(_filter_without_facets(board, state), state)


def _filter_without_facets(board: Board, state: BoardState) -> list[Row]:
    """Return the rows that match the view's text, switches, and ranges.

    The text is searched in the names of systems, configurations, teams, and publications. Ranges of columns that are
    still being computed are ignored. Raises UnknownParameter for a range of a column without numbers.
    """
    rows = list(board.rows)
    if state.text:
        text, get_names = state.text.casefold(), attrgetter("system", "configuration", "team", "source_key")
        rows = [row for row in rows if any(text in (name or "").casefold() for name in get_names(row.entry))]
    if state.zero_shot:
        rows = [row for row in rows if matches_facet(row.facets, "training", ZERO_SHOT)]
    if state.cpu_only:
        rows = [row for row in rows if row.measured and not row.measured.machine.has_gpu]
    numeric_keys = [column.key for column in board.columns if column.numeric]
    for key, low, high in state.ranges:
        if key in board.pending_columns:
            continue
        if key not in numeric_keys:
            bound = "max-" if low is None else "min-"
            raise UnknownParameter(bound + key, [bound + name for name in numeric_keys])
        lower, upper = -inf if low is None else low, inf if high is None else high
        rows = [row for row in rows if isinstance(value := row.value(key), (int, float)) and lower <= value <= upper]
    return rows


def _filter_by_facets(rows: list[Row], state: BoardState) -> list[Row]:
    """Return the rows with a selected value of every facet.

    Facets of datasets are ignored, because they select columns.
    """
    for facet, selected_values in state.facets:
        if facet not in DATASET_FACETS:
            rows = [row for row in rows if matches_facet(row.facets, facet, selected_values)]
    return rows


def count_rows(rows: Sequence[Row]) -> FacetCounts:
    """Return the number of rows by facet and value, and display names of teams and publications.

    The names are those of the column “By”, by slug or key.
    """
    display_names = {
        str(row.facets.get("team")): row.entry.team if row.entry.team and row.entry.team_slug else str(owner)
        for row in rows
        if (owner := row.value("by")) is not None
    }
    return count_facets([row.facets for row in rows]), display_names


def _filled_columns(board: Board, matching_rows: Sequence[Row], state: BoardState, default: str) -> list[Column]:
    """Return the columns with a value in the rows of the view, and those used for sorting or filtering.

    For benchmarks, and for views without rows, only figures and additional measures are omitted when empty.
    """
    rows = matching_rows or board.rows
    check_all_kinds = bool(matching_rows) and not board.views
    if board.views:  # Private rows must not affect the columns.
        rows = [row for row in board.rows if row.ranked_in != PRIVATE]
    needed_keys = {default, *(sort.key for sort in board.sorts), *(bounds.key for bounds in state.ranges)}
    needed_keys.update(key for row in rows for key, cell in row.cells.items() if cell.text)
    needed_keys.update(key for row in rows[:1] for key, value in row.values.items() if value)
    values_of_rows = [row.values for row in rows]

    def is_kept(column: Column) -> bool:
        """Return whether a column is needed or has a value; for sizes, 0 does not count."""
        if column.key in needed_keys or not (
            check_all_kinds or column.kind == "figure" or column.group in (OTHER_MEASURES, JUDGED_SHARE)
        ):
            return True
        empty_values = {None, 0} if column.key in (SIZE.key, FILE_SIZE.key) else {None}
        return not empty_values.issuperset(map(dict.get, values_of_rows, repeat(column.key)))

    return [column for column in board.columns if is_kept(column)]


def sort_rows(board: Board, rows: Sequence[Row]) -> list[Row]:
    """Return the rows sorted by the board's sort columns within each section."""
    sorted_rows = list(rows)
    for key, order in reversed(board.sorts):  # The sort is stable.
        column = board.column(key)
        if column is not None:
            sorted_rows = sort_by_column(sorted_rows, key, order or column.first_order)
    return sorted(sorted_rows, key=board.get_section)


def sort_by_column(rows: Sequence[Row], key: str, order: Literal["asc", "desc"]) -> list[Row]:
    """Return rows, given in order of publication, sorted by one column, missing values last."""
    valued_pairs = [(value, row) for row in rows if (value := row.values.get(key)) is not None]
    rows_without_value = [row for row in rows if row.values.get(key) is None]

    def sort_key(pair: tuple[Value, Row]) -> tuple[bool, Any]:  # Numbers before texts, ignoring case.
        value = pair[0]
        return (True, value.casefold()) if isinstance(value, str) else (False, value)

    has_texts = any(isinstance(value, str) for value, _ in valued_pairs)
    valued_pairs.sort(key=sort_key if has_texts else itemgetter(0), reverse=order == "desc")
    return [row for _, row in valued_pairs] + rows_without_value


def assign_ranks(rows: Iterable[Row], key: str, *, lower_is_better: bool = False) -> None:
    """Set the ranks by one column among the rows of each ranking: 1, 1, 3. Rows without a value get no rank."""
    values_by_kind: dict[str, list[tuple[float, Row]]] = defaultdict(list)
    for row in rows:
        value = row.value(key)
        row.rank = None
        if isinstance(value, (float, int)) and row.ranked_in not in UNRANKED:
            values_by_kind[row.ranking].append((value, row))
    for valued_rows in values_by_kind.values():
        ranks = rank_values([value for value, _ in valued_rows], lower_is_better=lower_is_better)
        for value, row in valued_rows:
            row.rank = ranks[value]


def reported_rankings(rows: Iterable[Row], key: str) -> list[str]:
    """Return the rankings of reported rows with a value in the column `key`, those with most rows first."""
    counts = Counter(row.ranking for row in rows if row.ranked_in == REPORTED and row.value(key) is not None)
    return [ranking for ranking, _ in counts.most_common()]


#: Kinds of columns whose best values are marked.
_KINDS_WITH_BEST = ("score", "figure", "number", "rank")
BestValues = dict[tuple[str, str], float]


def best_values(columns: Iterable[Column], rows: Iterable[Row]) -> tuple[BestValues, BestValues]:
    """Return the best and second-best values by column and ranking, for columns with a better direction.

    Rows without ranks do not count. A value with noise is the best if it is better than all others even in the worst
    case. If ranges overlap, the best one is unknown.
    """
    rows_by_kind: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.ranked_in not in UNRANKED:
            rows_by_kind[row.ranking].append(row)
    values_by_kind = {kind: [row.values for row in kind_rows] for kind, kind_rows in rows_by_kind.items()}
    best: BestValues = {}
    second: BestValues = {}
    for column in columns:
        # Differences that replace scores in a view are marked like scores.
        replaces_score = column.kind in ("delta", "relative") and column.group.startswith(EFFECTIVENESS)
        if column.better and (column.kind in _KINDS_WITH_BEST or replaces_score):
            for kind, kind_rows in rows_by_kind.items():
                numbers = map(dict.get, values_by_kind[kind], repeat(column.key))
                for values, value in zip((best, second), _two_best(column, kind_rows, list(numbers)), strict=False):
                    values[column.key, kind] = value
    return best, second


def _two_best(column: Column, rows: Sequence[Row], numbers: Sequence[Any]) -> list[float]:
    """Return the best and the second-best distinct values, as far as they are certain despite noise.

    `numbers` are the values of the rows. A column with a single value has no best one, and values that are not better
    than all doubtful ones are not marked.
    """
    key, choose_best = column.key, max if column.better == "higher" else min
    remaining_numbers = set(numbers) if len(numbers) - numbers.count(None) > 1 else set()
    remaining_numbers.discard(None)
    ranges: list[tuple[Any, float]] = []
    cells = [row.cells[key] for row in rows if key in row.cells] if column.kind == "figure" else []
    if remaining_numbers and any(cell.noise for cell in cells):
        ranges = [(value, row[key].noise) for row in rows if (value := row.values.get(key)) is not None]
    doubtful_numbers = [cell.doubtful_value for cell in cells if cell.doubtful_value is not None]
    best_values_so_far: list[float] = []
    while remaining_numbers and len(best_values_so_far) < 2:
        best_number = choose_best(remaining_numbers)
        best_noise = max((noise for value, noise in ranges if value == best_number), default=0.0)
        if any(abs(value - best_number) <= noise + best_noise for value, noise in ranges if value != best_number):
            break
        if any(choose_best(value, best_number) == value for value in doubtful_numbers):
            break
        best_values_so_far.append(best_number)
        remaining_numbers.discard(best_number)
        ranges = [pair for pair in ranges if pair[0] != best_number]
    return best_values_so_far


#: Maximum number of columns of an overview, without and with the narrow columns of datasets.
MAX_OVERVIEW_COLUMNS, MAX_OVERVIEW_COLUMNS_WITH_DATASETS = 9, 16


class Preset(NamedTuple):
    """A named selection of columns: label of its tab, slugs of groups, and keys of single columns."""

    label: Promise | str
    groups: Collection[str] = ()
    keys: Collection[str] = ()


#: First columns of every selection: the score and its difference from the baseline.
_SCORE = ("mean", DELTA, *RATIOS)
#: Columns that a preset omits if it has another one with the same values for more rows.
_REPLACEMENTS = {"model-parameters": "parameters"}
_PRESETS: Mapping[str, Preset] = dict(
    zip(
        PRESETS,
        (
            Preset(
                _("Overview"),
                keys=(
                    *_SCORE, "wins", "private", "mean-latency", "index-bytes", "cost",
                    "published", "weighted-score", "corpus-index",
                ),
            ),
            Preset(
                _("Effectiveness"),
                (
                    "effectiveness", "over-all", "delta", "ranks-over-all", "private-part", "agreement",
                    "other-measures", "judged",
                ),
            ),
            Preset(
                _("Efficiency"), ("efficiency", "reported"), (*_SCORE, "parameters", "model-bytes", "weighted-score")
            ),
            Preset(
                _("Training data"),
                keys=(
                    *_SCORE, "architecture", "provenance", "training-data", "gap", "gap-shown", "weights", "licence",
                    "parameters", "model-bytes", "maximum-length", "by", "published",
                ),
            ),
            Preset(_("All")),
        ),
        strict=True,
    )
)  # fmt: skip
#: Groups that fill up an overview: the first additional measures, and groups that are added only as a whole.
_MEASURE_GROUP = "other-measures"
EFFECTIVENESS_GROUP = "effectiveness"
_WHOLE_GROUPS = (EFFECTIVENESS_GROUP, "ranks-over-all", "reported")


def offered_presets(columns: Iterable[Column], hidden_groups: Collection[str]) -> list[tuple[str, str]]:
    """Return names and labels of the presets, without “Efficiency” if no column belongs to its groups.

    Columns of `hidden_groups`, which are slugs, do not count.
    """
    groups = {column.group_slug for column in columns}.difference(hidden_groups)
    return [
        (name, str(preset.label))
        for name, preset in _PRESETS.items()
        if name != "efficiency" or not groups.isdisjoint(preset.groups)
    ]


def _select_columns(board: Board, columns: Sequence[Column], state: BoardState) -> list[Column]:
    """Return the columns of the view's preset, or the single columns that it names, in the board's order.

    The default is the overview, which is also used if the board has none of the named columns. The system's name and
    the sort columns are always included.
    """
    name = state.columns[0] if state.columns else PRESETS[0]
    if name == "all":
        return list(columns)
    if name not in _PRESETS and not any(column.key in state.columns for column in columns):
        name = PRESETS[0]  # The board has none of the columns.
    preset = _PRESETS.get(name) or Preset("", keys=state.columns)
    sort_keys = {sort.key for sort in board.sorts}
    # Sort columns are always visible, so that the order is evident.
    keys = {SYSTEM, *preset.keys, *sort_keys}
    if name in _PRESETS:
        keys.add(board.measure)
    if name == PRESETS[0]:
        # A team's private rows must not change which columns it sees.
        rows = [row for row in board.rows if board.get_block(row) is not Block.INCOMPLETE and row.ranked_in != PRIVATE]
        columns = [column for column in columns if column.key in sort_keys or not _is_sparse(rows, column)]
        # A ratio is shown below its difference, and a date common to all results below the table.
        redundant_keys = set(RATIOS) if any(column.key == DELTA for column in columns) else set()
        if len({row.value("published") for row in board.rows} - {None}) == 1:
            redundant_keys.add("published")
        keys -= redundant_keys - sort_keys
    selected_columns = [column for column in columns if column.key in keys or column.group_slug in preset.groups]
    if name in _PRESETS:
        selected_keys = {column.key for column in selected_columns}
        selected_columns = [column for column in selected_columns if _REPLACEMENTS.get(column.key) not in selected_keys]
    return _fill_overview(board, columns, selected_columns) if name == PRESETS[0] else selected_columns


def _is_sparse(rows: Sequence[Row], column: Column) -> bool:
    """Return whether no row has a value in a cost column, or at most 20% of the rows in one of an additional measure.

    Only unfolded rows of the page count.
    """
    is_measure = column.group_slug == _MEASURE_GROUP
    if not rows or not (is_measure or column.kind == "figure"):
        return False
    filled = sum(row.values.get(column.key) is not None or bool(row[column.key].text) for row in rows)
    return filled <= (0.2 * len(rows) if is_measure else 0)


def _fill_overview(board: Board, columns: Sequence[Column], selected_columns: Sequence[Column]) -> list[Column]:
    """Return the selected columns and others, up to the width of an overview, in the board's order.

    Additional measures are added first, and whole groups on boards of several datasets.
    """
    keys = {column.key for column in selected_columns}
    measure_keys = [column.key for column in columns if column.group_slug == _MEASURE_GROUP]
    keys.update(measure_keys[: max(0, MAX_OVERVIEW_COLUMNS - len(keys))])
    for group in _WHOLE_GROUPS if board.views else ():
        group_keys = {column.key for column in columns if column.group_slug == group} - keys
        has_datasets = group == EFFECTIVENESS_GROUP
        if len(keys | group_keys) <= (MAX_OVERVIEW_COLUMNS_WITH_DATASETS if has_datasets else MAX_OVERVIEW_COLUMNS):
            keys |= group_keys
    return [column for column in columns if column.key in keys]
