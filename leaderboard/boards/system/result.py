"""One result of a system, as its page shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from leaderboard.boards.columns.gap import gap_texts
from leaderboard.boards.columns.significance import (
    difference_interval_text,
    format_p_value,
    interval_text,
    ranks_text,
)
from leaderboard.boards.model import rank_label
from leaderboard.core.text import numbers
from leaderboard.results.board_rows.measurements import MeasuredEntry
from leaderboard.results.reported_facts import fact_texts
from leaderboard.results.significance.gaps import Gap
from leaderboard.results.significance.statements import differs
from leaderboard.results.significance.types import EntryCertainty


class SeedResult(NamedTuple):
    """One run of a seed set."""

    label: str
    value: float | None
    scores: list[tuple[str, float]]


class Result(NamedTuple):
    """One entry of the system. `rank` and `of` count entries of its own kind (`ranked_in`) with that measure, as the
    dataset's board does; without a rank it is stale.

    `word_pieces` is what BM25 over word pieces had in the same job, where that gives it. Of a seed set `value` is the
    mean over `seed_count` runs, `deviations` are the sample standard deviations by measure, and `seeds` the runs, of
    which nothing is told over hidden judgements. `certainty` is what was found of `measure`: None over hidden
    judgements, of reported figures, and as long as nothing was found. `significance` and `separation` say in words
    whether it differs from the baseline, and from the other results.
    """

    dataset: str
    dataset_slug: str
    measure: str
    value: float
    baseline: float | None
    delta: float | None
    relative: float | None
    best: float
    best_system: str
    best_slug: str
    rank: int | None
    of: int
    ranked_in: str
    provenance: str
    training: str
    is_baseline: bool
    configuration: str
    locator: str
    submission: str
    published: str
    scores: list[tuple[str, float]]
    figures: list[dict[str, Any]]
    facts: Mapping[str, Any]
    measured: list[MeasuredEntry]
    word_pieces: float | None = None
    word_pieces_delta: float | None = None
    word_pieces_relative: float | None = None
    seed_count: int = 0
    deviations: Mapping[str, float] = MappingProxyType({})
    seeds: Sequence[SeedResult] = ()
    baseline_slug: str = ""
    baseline_name: str = ""
    certainty: EntryCertainty | None = None
    better_than_baseline: bool | None = None
    tied_with_best: bool | None = None
    significance: str = ""
    separation: str = ""
    contamination_gap: Gap | None = None
    #: Where the file is that a reported figure was read from; empty where it is printed.
    address: str = ""

    @property
    def fact_texts(self) -> list[tuple[str, str]]:
        """What papers report of such a system, as label and value."""
        return fact_texts(self.facts)

    @property
    def text(self) -> dict[str, Any]:
        """Its numbers as the page writes them."""
        return {
            "rank": f"{rank_label(self.rank, self.ranked_in)} of {self.of}" if self.rank else "",
            "value": numbers.format_value(self.value, numbers.DECIMALS),
            "deviation": numbers.format_value(self.deviations.get(self.measure), numbers.DECIMALS),
            "baseline": numbers.format_value(self.baseline, numbers.DECIMALS),
            "best": numbers.format_value(self.best, numbers.DECIMALS),
            "delta": numbers.signed(self.delta, numbers.DECIMALS),
            "relative": numbers.signed(self.relative, 1, percent=True),
            "direction": self._direction(),
            "word_pieces": numbers.format_value(self.word_pieces, numbers.DECIMALS),
            "word_pieces_delta": numbers.signed(self.word_pieces_delta, numbers.DECIMALS),
            "word_pieces_relative": numbers.signed(self.word_pieces_relative, 1, percent=True),
            "gap": gap_texts(self.contamination_gap),
            **self._certain(),
        }

    def _direction(self) -> str:
        """Return the class of the difference, as on boards."""
        direction = numbers.direction(self.delta, self.measure)
        untested = self.better_than_baseline is False and self.certainty is None and direction == "down"
        significant = self.better_than_baseline or differs(self.certainty)
        return direction if significant else "untested" if untested else "ns"

    def _certain(self) -> dict[str, str]:
        sure = self.certainty
        if sure is None:
            return dict.fromkeys(
                ("interval", "ranks", "delta_interval", "p_baseline", "p_best", "tally"), "—"
            )
        compared = sure.p_baseline is not None
        return {
            "interval": interval_text(sure.low, sure.high),
            "ranks": ranks_text(sure) or "—",
            "delta_interval": difference_interval_text(sure) or "—",
            "p_baseline": "—" if sure.p_baseline is None else format_p_value(sure.p_baseline),
            "p_best": "—" if sure.p_best_corrected is None else format_p_value(sure.p_best_corrected),
            "tally": f"{sure.wins}/{sure.ties}/{sure.losses}" if compared else "—",
        }


#: The label of that variant: first in its entry's configuration, before the submission's own.
LABEL = "bm25-wordpiece"


def is_word_pieces(configuration: str) -> bool:
    """Whether an entry of this configuration is that variant."""
    return configuration.split(" · ")[0] == LABEL


def scores_by_job(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], Mapping[str, float]]:
    """The scores of each such variant among the entries of a system, by what `job_of` says of the entries beside it."""
    return {job_of(row): row["scores"] for row in rows if is_word_pieces(row["configuration"])}


def job_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What entries of one job share, and entries that may be compared."""
    return row["submission_reference"], row["dataset_id"], row["comparison_group"]
