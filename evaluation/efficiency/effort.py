"""How much is measured, and how long that may take: the numbers of the protocol (`evaluation.efficiency.protocol`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evaluation.engines.base import Retrieval

#: How many queries the engine is handed at once for throughput.
BATCH = 64
#: The share of the seconds of building and searching that measuring may take, and the seconds that it always may.
SHARE_OF_JOB, LEAST_SECONDS = 0.1, 60.0
#: The share of its time that it may warm up for, and how many queries it times at least, where there are so many.
SHARE_OF_WARM_UP, LEAST_QUERIES = 0.1, 2


class TooSlow(Exception):
    """Not even the least number of queries can be timed in the time that there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many searches warm up, and how many are timed at least, of how many queries at most.

    Throughput is measured over at most `batched` queries. There are `rounds` of timed searches unless these take
    `seconds`; if the interval of their mean is not narrow then, rounds continue up to `most_rounds` or `most_seconds`.
    """

    warm_up: int
    searches: int
    queries: int
    batched: int
    rounds: int
    seconds: float
    most_rounds: int
    most_seconds: float

    def within(self, seconds: float, search: float, queries: int) -> Effort:
        """As much of it as fits into `seconds` where one search takes `search`, for so many queries. Raises TooSlow."""
        wanted = max(self.searches, 2 * min(self.queries, queries))
        searches = affordable(wanted, seconds, search)
        timed = min(self.queries, queries, searches // 2)
        if timed < min(LEAST_QUERIES, queries):
            raise TooSlow
        least = self.searches if searches == wanted else searches // timed * timed
        return replace(
            self,
            queries=timed,
            searches=least,
            seconds=min(self.seconds, seconds),
            most_seconds=min(self.most_seconds, seconds),
        )


WHOLE = Effort(
    warm_up=20,
    searches=200,
    queries=100,
    batched=1000,
    rounds=10,
    seconds=10.0,
    most_rounds=40,
    most_seconds=30.0,
)
#: For what a system gives beside its main result: model and index are warm from the retrieval.
OF_VARIANT = Effort(
    warm_up=5,
    searches=50,
    queries=25,
    batched=2 * BATCH,
    rounds=4,
    seconds=2.0,
    most_rounds=8,
    most_seconds=4.0,
)


def plan_efforts(results: int) -> tuple[Effort, ...]:
    """The effort for each of so many results of one system, the main one last; at least one."""
    return (*[OF_VARIANT] * (results - 1), WHOLE)


def measuring_seconds(retrieval: Retrieval) -> float:
    """How many seconds measuring all results of a retrieval may take."""
    return max(LEAST_SECONDS, SHARE_OF_JOB * (retrieval.build_seconds + retrieval.search_seconds))


def affordable(wanted: int, seconds: float, each: float) -> int:
    """How many of what is wanted fit into so many seconds."""
    return wanted if wanted * each <= seconds else int(seconds / each)
