"""The policy of a dataset: what a submission may learn of its judgements, as facts and as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evaluation.ladder import STEP
from leaderboard.models import Dataset
from leaderboard.models.datasets import Protection, Visibility

#: Decimals of a published value where the judgements are hidden. Three leave a probing run 1.7 to 6.2 bits.
HIDDEN_DECIMALS = 3
#: With hidden judgements every measure shown is another look at them.
MOST_MEASURES = 3


@dataclass(frozen=True, slots=True)
class Policy:
    """How a dataset's judgements are protected. Of open ones nothing is: `decimals` is None, nothing is limited.

    `public_share` is the share of the judged queries that a competition's board shows, else 1.
    """

    hidden: bool
    competition: bool
    measures: tuple[str, ...]
    public_share: float
    queries_hidden: bool
    daily_quota: int | None
    monthly_quota: int | None

    @property
    def name(self) -> str:
        """What it is called on pages."""
        if not self.hidden:
            return "open"
        return "competition" if self.competition else "standard"

    @property
    def decimals(self) -> int | None:
        """Decimals of every published value; None where values are published in full."""
        return HIDDEN_DECIMALS if self.hidden else None

    @property
    def most_measures(self) -> int | None:
        """How many measures the board may show; None without a limit."""
        return MOST_MEASURES if self.hidden else None

    @property
    def sentences(self) -> list[str]:
        """The policy in plain English, for pages; empty where judgements are open."""
        return list(self._sentences()) if self.hidden else []

    def _sentences(self) -> Iterator[str]:
        yield "The judgements stay with the scorer." + (
            " The queries' texts are shown to curators alone." if self.queries_hidden else ""
        )
        yield (
            f"Published: {' and '.join(_listed(self.measures))}, rounded to {HIDDEN_DECIMALS} decimals. Differences, "
            "means and ranks are computed from the rounded values."
        )
        yield "Not published: scores by query, intervals, tests, wins, and how many judged queries a run has."
        if self.competition:
            yield from self._of_competition()

    def _of_competition(self) -> Iterator[str]:
        share = f"{100 * self.public_share:.0f} %"
        yield (
            f"The board shows the public part, {share} of the judged queries. Which ones is secret, and fixed. "
            "The others are the private part, revealed when a round ends."
        )
        yield (
            "A result appears only when it is better than the best that its team or its submitter knows of, by more "
            f"than {STEP} and more than the standard error of the difference. Otherwise everyone, its team "
            "included, is told “no significant change” and nothing else."
        )
        yield "A team's earlier result gives way to its better one."


def _listed(names: tuple[str, ...]) -> tuple[str, ...]:
    """At most two items to be joined by “and”."""
    return names if len(names) < 3 else (", ".join(names[:-1]), names[-1])


def policy_of(dataset: Dataset) -> Policy:
    """The dataset's policy. One that hides nothing is in no competition, whatever its row says."""
    competition = dataset.hidden and dataset.protection == Protection.COMPETITION
    return Policy(
        hidden=dataset.hidden,
        competition=competition,
        measures=tuple(dataset.measures),
        public_share=dataset.public_share if competition else 1.0,
        queries_hidden=dataset.queries_visibility == Visibility.CURATORS,
        daily_quota=dataset.daily_quota if dataset.hidden else None,
        monthly_quota=dataset.monthly_quota if dataset.hidden else None,
    )
