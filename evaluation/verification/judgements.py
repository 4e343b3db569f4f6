"""Judgements as pytrec_eval takes them, read from a file of qrels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
import pytrec_eval
from numpy.typing import NDArray

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Judgements:
    """The judgements of one file. Keep it between runs: pytrec_eval's own form of them is made once.

    `graded` is `{query id: {document id: grade}}`, queries sorted by their bytes. Negative grades mean unjudged and are
    left out; a query that has no others is judged all the same.
    """

    def __init__(self, text: bytes) -> None:
        """Read TREC qrels (four fields) or BEIR's (three, mostly under a header). Raises ValueError."""
        graded: dict[bytes, dict[str, int]] = {}
        for number, line in enumerate(text.removeprefix(_BYTE_ORDER_MARK).split(b"\n")):
            fields = line.split()
            if not fields or (number == 0 and len(fields) == 3 and not fields[2].lstrip(b"+-").isdigit()):
                continue  # blank, or BEIR's header
            query, *_, document, grade = fields
            of_query = graded.setdefault(query, {})
            if int(grade) >= 0:
                of_query[document.decode()] = int(grade)
        self.graded: Mapping[str, dict[str, int]] = {
            query.decode(): graded[query] for query in sorted(graded)
        }
        self._evaluators: dict[tuple[frozenset[str], int], pytrec_eval.RelevanceEvaluator] = {}

    @cached_property
    def grades(self) -> dict[str, NDArray[np.int64]]:
        """By query all its grades, in no order."""
        return {query: np.array([*graded.values()], np.int64) for query, graded in self.graded.items()}

    @cached_property
    def documents(self) -> frozenset[str]:
        """Every document that is judged for any query."""
        return frozenset().union(*self.graded.values())

    def evaluator(self, measures: Iterable[str], level: int) -> pytrec_eval.RelevanceEvaluator:
        """pytrec_eval for these of its measures, documents being relevant from grade `level` on.

        It takes no level of 0, so grades go one up for that; of its measures only those without a level feel it.
        """
        key = frozenset(measures), level
        if key not in self._evaluators:
            graded: Mapping[str, dict[str, int]] = self.graded
            if level == 0:
                graded = {
                    query: {name: grade + 1 for name, grade in of_query.items()}
                    for query, of_query in self.graded.items()
                }
            self._evaluators[key] = pytrec_eval.RelevanceEvaluator(graded, set(key[0]), level or 1)
        return self._evaluators[key]
