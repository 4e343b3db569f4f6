"""Paired tests of the systems on a page, each dataset's once for all of its pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from numpy.typing import NDArray

from evaluation.statistics import SEED
from evaluation.statistics.comparison import count_wins
from evaluation.statistics.randomisation import PERMUTATIONS, randomisation_test
from leaderboard.boards.columns.significance import format_p_value
from leaderboard.boards.wording import p_text
from leaderboard.core.cache.memory import FixedCache
from leaderboard.core.measures import better
from leaderboard.models import Entry
from leaderboard.results.records import entries_with_values, measure_values
from leaderboard.results.significance.statements import BoardStatements

#: A page draws so many signs at most, one for each query and permutation: about a second of a core.
MOST_SIGNS = 100_000_000
FEWEST_PERMUTATIONS = 1_000
#: Results of tests and overlaps of runs, for a week; some hundreds of bytes for six systems. None is ever stale: a key
#: names the contents that the result was computed from.
comparisons = FixedCache("comparison", 16_384, 7 * 24 * 3600)


class PairTest(NamedTuple):
    """A system against the first one: the p-value before its correction, and queries won, tied and lost."""

    p: float
    wins: int
    ties: int
    losses: int


class Family(NamedTuple):
    """Tests that are corrected together, as named in a cell and in a sentence, with a placeholder for their number."""

    short: str
    sentence: str


BOARD_PAIRS = Family(_("%(tests)d pairs"), _("p %(p)s corrected for the board’s %(tests)d pairs"))
BASELINE_COMPARISONS = Family(
    _("%(tests)d vs baseline"), _("p %(p)s corrected for the board’s %(tests)d comparisons with its baseline")
)
PAGE_PAIRS = Family(_("%(tests)d here"), _("p %(p)s corrected for the %(tests)d pairs of this page"))


class CorrectedP(NamedTuple):
    """The p-value of a pair, corrected for a number of tests."""

    p: float
    tests: int
    family: Family

    @property
    def text(self) -> str:
        """Text of a cell: `0.214 (153 pairs)`."""
        return f"{format_p_value(self.p)} ({gettext(self.family.short) % {'tests': self.tests}})"

    @property
    def sentence(self) -> str:
        """`p = 0.214 corrected for the board’s 153 pairs`."""
        return gettext(self.family.sentence) % {"p": p_text(self.p), "tests": self.tests}


class TestRequest(NamedTuple):
    """A dataset's test that the page needs: entries by id, the anchor first."""

    entries: tuple[int, ...]
    measure: str


def permutations_for(queries: int) -> int:
    """How many permutations a page draws whose datasets have so many judged queries together."""
    affordable = MOST_SIGNS // max(queries, 1)
    return max(FEWEST_PERMUTATIONS, min(PERMUTATIONS, affordable // 100 * 100))


def run_tests(questions: Sequence[TestRequest], permutations: int) -> dict[TestRequest, list[PairTest]]:
    """The answers: for each entry after the first one. Two queries more where one is not remembered."""
    keys = {question: _key(question, permutations) for question in questions}
    known = comparisons.get_many(keys.values())
    missing = [question for question, key in keys.items() if key not in known]
    if missing:
        entries = entries_with_values(pk for question in missing for pk in question.entries)
        new = {keys[question]: _run_test(question, entries, permutations) for question in missing}
        comparisons.set_many(new)
        known |= new
    return {question: [PairTest(*each) for each in known[key]] for question, key in keys.items()}


def values_of(entries: Sequence[Entry], measure: str) -> NDArray[np.float64] | None:
    """Shape (queries, entries); None where one has no values of the measure, or of other queries."""
    columns = [measure_values(entry, measure) for entry in entries]
    known = [column for column in columns if column is not None]
    if len(known) < len(columns) or len({len(column) for column in known}) != 1:
        return None
    return np.column_stack(known)


def _run_test(
    question: TestRequest, entries: Mapping[int, Entry], permutations: int
) -> list[tuple[Any, ...]]:
    found = [entries[pk] for pk in question.entries if pk in entries]
    values = values_of(found, question.measure) if len(found) == len(question.entries) else None
    if values is None:
        return []
    p = randomisation_test(values, 0, permutations=permutations)
    counts = count_wins(values, 0, lower_is_better=better(question.measure) == "lower")
    columns = (p.tolist(), *(count.tolist() for count in counts))
    return list(zip(*columns, strict=True))[1:]


def _key(question: TestRequest, permutations: int) -> str:
    # The evaluations of an entry never change: other judgements make other entries.
    return f"{question.entries} {question.measure} {permutations} {SEED}"


def corrected_on_board(board: BoardStatements, pair: tuple[int, int], measure: str) -> CorrectedP | None:
    """Return a board's p-value for a pair of its entries that includes its best or its baseline."""
    certainty = board.tests(measure)
    if certainty is None:
        return None
    for anchor, column, tests, family in (
        (certainty.best, "p_best_corrected", certainty.pairs, BOARD_PAIRS),
        (certainty.baseline, "p_baseline_corrected", certainty.comparisons, BASELINE_COMPARISONS),
    ):
        if anchor in pair and (other := certainty.of(pair[1 - pair.index(anchor)])) is not None:
            p = getattr(other, column)
            if p is not None and tests > 1:
                return CorrectedP(p, tests, family)
    return None
