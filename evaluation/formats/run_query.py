"""What is done when the last line of a query was read: duplicates, unknown documents, ties, depth, and ranks."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evaluation.identifiers import IdTable
from evaluation.kernel import layout as at
from evaluation.kernel.judged import JudgedTable
from evaluation.kernel.layout import Words, address
from evaluation.kernel.tables import finish_query, look_up_ids
from evaluation.ordering import place_among_ties

if TYPE_CHECKING:
    from evaluation.formats.run_pass import Noted

#: Grade of a document that is judged for another query only.
ELSEWHERE = -1

_LAST = -(1 << 40)  # below every score


@dataclass(frozen=True, slots=True)
class ReadingTask:
    """What a run is read against. `known` numbers the dataset's queries (none: every query is accepted), `rows` tells
    their rows in `judged` (-1: not judged). Documents are looked up in `documents` if there is such a set.
    `elsewhere` holds the documents judged for any query, wanted down to rank `elsewhere_depth`."""

    known: Mapping[bytes, int]
    rows: list[int]
    judged: JudgedTable | None
    documents: IdTable | None
    elsewhere: IdTable | None
    elsewhere_depth: int
    seed: int
    drop_self_matches: bool
    maximum_depth: int


class QueryAtHand:
    """The rows of one query, and what came of the queries before it."""

    def __init__(self, task: ReadingTask, state: Words, noted: Noted) -> None:
        self.task, self.state, self.noted = task, state, noted
        self.where = address(state)
        self.documents, self.elsewhere = _place(task.documents), _place(task.elsewhere)
        self.number = -1
        self.retrieved = np.zeros(len(task.known), np.int64)
        self.cut_lines = 0
        #: (query number, rank, grade) of judged documents retrieved, one after the other
        self.output: list[int] = []
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
        self.tracked = np.empty((self.room, at.TRACKED_SIZE), np.int64)
        self.state[at.ROWS], self.state[at.ROOM] = address(self.rows), self.room
        self.state[at.TABLE], self.state[at.TRACKED] = address(self.table), address(self.tracked)

    def begin(self, number: int) -> None:
        """Begin with query `number`, -1 for one that is not of the dataset."""
        state, task = self.state, self.task
        self.number = number
        state[at.QUERY_KNOWN] = number >= 0 or not task.known
        state[at.DESCENDING], state[at.SELF_MATCH], state[at.PREVIOUS_RANK] = 1, -1, -1
        row = task.rows[number] if number >= 0 else -1
        if task.judged is not None and row >= 0:
            state[at.JUDGED], state[at.JUDGED_MASK] = task.judged.addresses[row], task.judged.masks[row]
            state[at.JUDGED_TEXT] = task.judged.text
        else:
            state[at.JUDGED] = 0

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
        self.state[at.COUNT] = 0
        rows, task = self.rows[:count], self.task
        self._find_in_tables(rows, count)
        if not self.state[at.DESCENDING]:
            self._note_ties(rows)
        skip = int(self.state[at.SELF_MATCH]) if task.drop_self_matches else -1
        if skip >= 0:
            rows[skip, at.SCORE] = _LAST  # behind every other line, so that it takes no rank
            self.state[at.DESCENDING] = 0
        retrieved = count - (skip >= 0)
        if retrieved > task.maximum_depth:
            self.noted.add("depth", rows[task.maximum_depth : task.maximum_depth + 1, at.NUMBER])
            self.cut_lines += retrieved - task.maximum_depth
        if self.number >= 0:
            self.retrieved[self.number] = min(retrieved, task.maximum_depth)
        tracked = self.tracked[: self.judged_found]
        if self.elsewhere and self.state[at.JUDGED]:
            tracked = self._with_those_judged_elsewhere(rows, tracked, self.elsewhere)
        if len(tracked):
            self._put_out(rows, tracked, skip)

    def _find_in_tables(self, rows: Words, count: int) -> None:
        """Note duplicates and unknown documents; find what is judged."""
        state, documents = self.state, self.documents
        state[at.COUNT], state[at.TABLE_MASK] = count, (1 << (2 * count - 1).bit_length()) - 1
        found = finish_query(self.where)
        state[at.COUNT] = 0
        self.judged_found = found & 0xFFFFFFFF
        if found >> 32:
            self.noted.add("duplicate", rows[rows[:, at.FLAG] == 1, at.NUMBER])
        if documents is not None and self._look_up(rows, documents):
            self.noted.add("unknown_documents", rows[rows[:, at.FLAG] == 0, at.NUMBER])

    def _look_up(self, rows: Words, ids: tuple[int, int, int]) -> int:
        """Flag the rows whose document is in a set; how many are not."""
        return look_up_ids(int(self.state[at.ROWS]), len(rows), *ids)

    def _note_ties(self, rows: Words) -> None:
        """Lines with the score of an earlier one; the kernel has noted those that follow it directly."""
        scores = rows[:, at.SCORE]
        order = np.argsort(scores, kind="stable")
        tied = np.zeros(len(rows), np.bool_)
        tied[order[1:]] = scores[order[1:]] == scores[order[:-1]]
        tied[1:] &= scores[1:] != scores[:-1]
        self.noted.add("ties", rows[tied, at.NUMBER])

    def _with_those_judged_elsewhere(
        self, rows: Words, tracked: Words, elsewhere: tuple[int, int, int]
    ) -> Words:
        self._look_up(rows, elsewhere)
        others = rows[:, at.FLAG] == 1
        others[tracked[:, 0]] = False
        places = np.flatnonzero(others)
        more = np.zeros((len(places), at.TRACKED_SIZE), np.int64)
        more[:, at.TRACKED_PLACE], more[:, at.TRACKED_GRADE] = places, ELSEWHERE
        return np.concatenate([tracked, more])

    def _put_out(self, rows: Words, tracked: Words, skip: int) -> None:
        places, grades, firsts, equals = zip(*tracked.tolist(), strict=True)
        if self.state[at.DESCENDING] and all(equals):
            ranks = [
                first
                + 1
                + (self._place_among(rows[first : first + equal], place - first) if equal > 1 else 0)
                for place, first, equal in zip(places, firsts, equals, strict=True)
            ]
        else:
            ranks = self._ranks(rows, tracked[:, at.TRACKED_PLACE])
        for rank, grade, place in sorted(zip(ranks, grades, places, strict=True)):
            deepest = self.task.elsewhere_depth if grade == ELSEWHERE else self.task.maximum_depth
            if rank <= deepest and place != skip:
                self.output += (self.number, rank, grade)

    def _ranks(self, rows: Words, places: NDArray[np.int64]) -> list[int]:
        """The ranks, from 1, of the rows at `places`, whatever the order of the rows."""
        scores = rows[:, at.SCORE]
        wanted = scores[places]
        ascending = np.sort(scores)
        behind = np.searchsorted(ascending, wanted, "right")
        equal = behind - np.searchsorted(ascending, wanted, "left")
        ranks: list[int] = (len(rows) - behind + 1).tolist()
        ids_of: dict[int, list[bytes]] = {}
        for index in np.flatnonzero(equal > 1).tolist():
            score = int(wanted[index])
            if score not in ids_of:
                ids_of[score] = sorted(_ids(rows[scores == score]))
            own = _ids(rows[places[index] : places[index] + 1])[0]
            ranks[index] += place_among_ties(own, ids_of[score])
        return ranks

    @staticmethod
    def _place_among(equals: Words, place: int) -> int:
        """How many of these rows of one score come before that at `place`."""
        ids = _ids(equals)
        return place_among_ties(ids[place], sorted(ids))


def _ids(rows: Words) -> list[bytes]:
    """The document ids of rows."""
    return [ctypes.string_at(row[at.START], row[at.LENGTH]) for row in rows.tolist()]


def _place(table: IdTable | None) -> tuple[int, int, int] | None:
    """Where a set of ids lies, as the kernel's functions take it."""
    return (address(table.slots), table.mask, address(table.long_ids)) if table else None
