"""Which columns a page shows: those of a preset, or single ones that the reader chose.

A preset names groups and keys of columns. The overview has about ten columns, so that a board fits a screen; exports
have every column unless the address chooses some.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from leaderboard.boards.model import DELTA, RELATIVE, SYSTEM, Block, Board, Column
from leaderboard.boards.state import PRESETS, BoardState
from leaderboard.results.kinds import PRIVATE

#: As many columns as an overview is filled up to.
OVERVIEW_WIDTH = 9


class Preset(NamedTuple):
    """A named choice of columns: `label` is its tab, `groups` are slugs of groups, `keys` those of single columns."""

    label: Promise | str
    groups: Collection[str] = ()
    keys: Collection[str] = ()


#: What every choice begins with, as far as the board has it: the score and how it compares with the baseline.
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
#: What fills up an overview: further measures, the first ones; a benchmark's datasets, and the like, if all fit.
_FURTHER_MEASURES = "other-measures"
_WHOLE_GROUPS = ("effectiveness", "ranks-over-all", "reported")


def choose_columns(board: Board, state: BoardState) -> None:
    """Choose what a page of the board shows, and offer its presets; exports follow only where the address chooses."""
    if state.columns:
        board.data_columns = _chosen(replace(board, columns=board.data_columns), state)
    board.shown = _chosen(board, state)
    board.presets = [
        (name, str(preset.label))
        for name, preset in _PRESETS.items()
        if name != "efficiency" or any(column.group_slug in preset.groups for column in board.columns)
    ]
    if state.columns:
        board.columns = board.shown


def _chosen(board: Board, state: BoardState) -> list[Column]:
    name = state.columns[0] if state.columns else PRESETS[0]
    if name == "all":
        return board.columns
    if name not in _PRESETS and not any(column.key in state.columns for column in board.columns):
        name = PRESETS[0]  # nothing of what is asked for is here
    preset = _PRESETS.get(name) or Preset("", keys=state.columns)
    #: What decides the order is always in sight, so that the order explains itself.
    keys = {SYSTEM, *preset.keys, *(sort.key for sort in board.sorts)}
    if name in _PRESETS:
        keys.add(board.measure)
    # Private rows decide nothing: the page shows everyone else's rows to their team as to all.
    if not any(board.block_of(row) is Block.INCOMPLETE and row.ranked_in != PRIVATE for row in board.rows):
        keys.discard("coverage")
    if name == PRESETS[0]:
        keys -= _said_elsewhere(board) - {sort.key for sort in board.sorts}
    found = [column for column in board.columns if column.key in keys or column.group_slug in preset.groups]
    if name in _PRESETS:
        shown = {column.key for column in found}
        found = [column for column in found if _REPLACED_BY.get(column.key) not in shown]
    return _fill(board, found) if name == PRESETS[0] else found


def _said_elsewhere(board: Board) -> set[str]:
    """What an overview says without a column: a ratio stands below its difference, one date for all below the table."""
    dates = {row.value("published") for row in board.rows} - {None}
    return ({RELATIVE} if board.column(DELTA) else set()) | ({"published"} if len(dates) == 1 else set())


def _fill(board: Board, found: Sequence[Column]) -> list[Column]:
    """The columns, and beside them what there is room for, in the board's order."""
    keys = {column.key for column in found}
    further = [column.key for column in board.columns if column.group_slug == _FURTHER_MEASURES]
    keys.update(further[: max(0, OVERVIEW_WIDTH - len(keys))])
    for group in _WHOLE_GROUPS if board.views else ():
        more = {column.key for column in board.columns if column.group_slug == group} - keys
        if len(keys | more) <= OVERVIEW_WIDTH:
            keys |= more
    return [column for column in board.columns if column.key in keys]
