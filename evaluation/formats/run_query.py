"""What is done when the last line of a query was read: duplicates, unknown documents, ties, depth, and ranks."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evaluation.identifiers import IdTable
from evaluation.kernel import layout as at
from evaluation.kernel.layout import Words, address
from evaluation.kernel.tables import finish_query, look_up_ids
from evaluation.ordering import trec_order
from evaluation.qrels import Qrels

if TYPE_CHECKING:
    from evaluation.formats.run_pass import Noted

_LAST = -(1 << 40)  # below every score
_NOWHERE = 1 << 40  # behind every depth


@dataclass(frozen=True, slots=True)
class ReadingTask:
    """What a run is read against. `known` numbers the dataset's queries (none: every query is accepted), `rows` tells
    their rows in `qrels` (-1: not judged). Documents are looked up in `documents` if there is such a set.
    `elsewhere` holds the documents judged for any query, wanted down to rank `elsewhere_depth`."""

    known: Mapping[bytes, int]
    rows: list[int]
    qrels: Qrels | None
    documents: IdTable | None
    elsewhere: IdTable | None
    elsewhere_depth: int
    seed: int
    drop_self_matches: bool
    maximum_depth: int


class QueryAtHand:
    """The rows of one query, and what came of the queries before it.

    `found`: of each judgement whose document the run has, its number, the rank, the row (see `kernel/layout.py`).
    `found_elsewhere`: pairs of row in the qrels and rank, of documents judged for other queries only. `retrieved`
    is by query number.
    """

    def __init__(self, task: ReadingTask, state: Words, noted: Noted) -> None:
        self.task, self.state, self.noted = task, state, noted
        self.where = address(state)
        self.documents, self.elsewhere = _place(task.documents), _place(task.elsewhere)
        self.number = self.row = -1
        self.retrieved = np.zeros(len(task.known), np.int64)
        self.cut_lines = 0
        qrels = task.qrels
        self.found = np.zeros((qrels.number_of_judgements if qrels else 0, at.FOUND_SIZE), np.int64)
        self.found_elsewhere: list[Words] = []
        self.edges: list[int] = qrels.offsets.tolist() if qrels else []
        state[at.FOUND] = address(self.found)
        if qrels:
            self.judged_text = qrels.padded_documents
            state[at.JUDGED_TEXT] = address(self.judged_text)
            state[at.JUDGED_OFFSETS] = address(qrels.document_offsets)
        self.room = 0
        self.rows = np.zeros((0, at.ROW_SIZE), np.int64)
        self.grow()

    def grow(self) -> None:
        """Double the room for rows, keeping those that there are."""
        rows = self.rows
        self.room = max(2048, 2 * self.room)
        self.rows = np.empty((self.room, at.ROW_SIZE), np.int64)
        self.rows[: len(rows)] = rows
        self.table = np.empty(4 * self.room, np.int64)
        self.state[at.ROWS], self.state[at.ROOM] = address(self.rows), self.room
        self.state[at.TABLE] = address(self.table)

    def begin(self, number: int) -> None:
        """Begin with query `number`, -1 for one that is not of the dataset."""
        state, task = self.state, self.task
        self.number = number
        self.row = task.rows[number] if number >= 0 and task.qrels else -1
        state[at.QUERY_KNOWN] = number >= 0 or not task.known
        state[at.DESCENDING], state[at.SELF_MATCH], state[at.PREVIOUS_RANK] = 1, -1, -1
        if self.row >= 0:
            state[at.JUDGED_FROM], state[at.JUDGED_TO] = self.edges[self.row], self.edges[self.row + 1]
        else:
            state[at.JUDGED_TO] = state[at.JUDGED_FROM]

    def move(self, distance: int) -> None:
        """The text has moved in memory."""
        count = int(self.state[at.COUNT])
        if count and distance:
            self.rows[:count, at.START] += distance

    def finish(self) -> None:
        """Check the rows of the query, and keep the ranks of its judged documents."""
        count = int(self.state[at.COUNT])
        if not count:
            return
        rows, state, task = self.rows[:count], self.state, self.task
        skip = int(state[at.SELF_MATCH]) if task.drop_self_matches else -1
        if not state[at.DESCENDING]:
            self._note_ties(rows)
        if skip >= 0:
            rows[skip, at.SCORE] = _LAST  # behind every other line, so that it takes no rank
            state[at.DESCENDING] = 0
        before = int(state[at.FOUND_COUNT])
        self._find_in_tables(rows, count)
        found = self.found[before : int(state[at.FOUND_COUNT])]
        if self.elsewhere and self.row >= 0:
            self._find_elsewhere(rows, found)
        if len(found) and not found[:, at.FOUND_RANK].all():
            found[:, at.FOUND_RANK] = _ranks(rows)[found[:, at.FOUND_ROW]]
            found[found[:, at.FOUND_ROW] == skip, at.FOUND_RANK] = _NOWHERE
        retrieved = count - (skip >= 0)
        if retrieved > task.maximum_depth:
            self.noted.add("depth", rows[task.maximum_depth : task.maximum_depth + 1, at.NUMBER])
            self.cut_lines += retrieved - task.maximum_depth
        if self.number >= 0:
            self.retrieved[self.number] = min(retrieved, task.maximum_depth)

    def _find_in_tables(self, rows: Words, count: int) -> None:
        """Note duplicates and unknown documents; find what is judged."""
        state = self.state
        state[at.TABLE_MASK] = (1 << (2 * count - 1).bit_length()) - 1
        duplicates = finish_query(self.where)
        state[at.COUNT] = 0
        if duplicates:
            self.noted.add("duplicate", rows[rows[:, at.FLAG] == 1, at.NUMBER])
        if self.documents and look_up_ids(int(state[at.ROWS]), count, *self.documents):
            self.noted.add("unknown_documents", rows[rows[:, at.FLAG] == 0, at.NUMBER])

    def _note_ties(self, rows: Words) -> None:
        """Lines with the score of an earlier one; the kernel has noted those that follow it directly."""
        scores = rows[:, at.SCORE]
        order = np.argsort(scores, kind="stable")
        tied = np.zeros(len(rows), np.bool_)
        tied[order[1:]] = scores[order[1:]] == scores[order[:-1]]
        tied[1:] &= scores[1:] != scores[:-1]
        self.noted.add("ties", rows[tied, at.NUMBER])

    def _find_elsewhere(self, rows: Words, found: Words) -> None:
        """Keep the ranks of documents that are judged for another query only."""
        assert self.elsewhere is not None
        look_up_ids(int(self.state[at.ROWS]), len(rows), *self.elsewhere)
        others = rows[:, at.FLAG] == 1
        others[found[:, at.FOUND_ROW]] = False
        ranks = _ranks(rows)[others]
        ranks = ranks[ranks <= self.task.elsewhere_depth]
        self.found_elsewhere.append(np.column_stack([np.full(len(ranks), self.row), ranks]))


def _ranks(rows: Words) -> Words:
    """The rank of every row, from 1."""
    if rows[:, at.LENGTH].max() <= at.SHORT_BYTES:  # such an id is its key
        ids = np.ascontiguousarray(rows[:, at.FIRST : at.SECOND + 1]).view(f"S{at.SHORT_BYTES}").ravel()
    else:
        places = rows[:, at.START : at.LENGTH + 1].tolist()
        ids = np.array([ctypes.string_at(start, length) for start, length in places], np.bytes_)
    ranks = np.empty(len(rows), np.int64)
    ranks[trec_order(ids, rows[:, at.SCORE])] = np.arange(1, len(rows) + 1)
    return ranks


def _place(table: IdTable | None) -> tuple[int, int, int] | None:
    """Where a set of ids lies, as the kernel's functions take it."""
    return (address(table.slots), table.mask, address(table.long_ids)) if table else None
