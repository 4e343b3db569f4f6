"""What leaves the scorer for hidden judgements, by the policy of their dataset (docs/decisions/0017).

The policy says what a submission may learn of the judgements, as facts and as sentences. Young teams, whose results
over hidden judgements are told sparingly, since nobody knows them yet: YOUNG_TEAM_DAYS (0: no team is young) and
YOUNG_TEAM_READINGS, see docs/decisions/0018. The parts of a competition are drawn once for judgements, and evaluations
have means over each; what reads private storage for that is the scorer's alone. The only writer of `EvaluationPart`.

`publishing.protection` changes a policy and ends a competition, `publishing.publication` is the Ladder.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone
from numpy.typing import NDArray

from evaluation.judgements import splits as judged_parts
from evaluation.statistics.ladder import PUBLIC_STEP, STEP, YOUNG_STEP
from leaderboard.datasets.qrels import load_parts, load_qrels, store_parts
from leaderboard.models import Dataset, Entry, Evaluation, EvaluationPart, Protection, Qrels, Team, Visibility
from leaderboard.results.records import per_query_values

Part = EvaluationPart.Part

#: Decimals of a published value where the judgements are hidden. Three leave a probing run 1.7 to 6.2 bits.
HIDDEN_DECIMALS = 3
#: With hidden judgements every measure shown is another look at them.
MOST_MEASURES = 3


@dataclass(frozen=True, slots=True)
class ProtectionPolicy:
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
    def told_measures(self) -> tuple[str, ...]:
        """The measures whose values are told: in a competition, until its private part is, the primary one alone."""
        return self.measures[:1] if self.competition else self.measures

    @property
    def steps(self) -> dict[str, float]:
        """The steps in which the board's values are told, by measure; of those that have decimals instead nothing."""
        if not self.hidden:
            return {}
        return dict.fromkeys(self.measures if self.competition else self.measures[1:], PUBLIC_STEP)

    @property
    def sentences(self) -> list[str]:
        """The policy in plain English, for pages; empty where judgements are open."""
        return list(self._sentences()) if self.hidden else []

    def _sentences(self) -> Iterator[str]:
        texts = " Query texts are hidden, too." if self.queries_hidden else ""
        yield (
            "The judgements are hidden: only the scorer reads them, and curators with a special permission. Curators "
            "who download pools can see which documents are judged. Every access is logged."
            f"{texts}"
        )
        yield f"Published: {self._rounded}. Differences, means and ranks are computed from the rounded values."
        yield (
            f"Also published: the least significant difference in {self.measures[0]} at 0.05, computed once from the "
            "baseline's per-query scores and rounded up. It decides which results are significantly better than the "
            "baseline; widened for the number of pairs, it decides which tie with the best. Where the dataset has a "
            "public twin, it also bounds the contamination gap."
        )
        yield "Not published: per-query scores, intervals, p-values, wins, and the number of judged queries in a run."
        if limits := " and ".join(self._limits()):
            yield f"Each person and each team may submit {limits} (UTC). A seed set is one submission."
        yield "For seed sets only the mean is published."
        yield from self._of_newcomers()
        yield "Suspicious runs are accepted and flagged for review."
        if self.competition:
            yield from self._of_competition()

    @property
    def _rounded(self) -> str:
        first, further, every = (
            " and ".join(names if len(names) < 3 else (", ".join(names[:-1]), names[-1]))
            for names in (self.measures[:1], self.measures[1:], self.measures)
        )
        decimals = f"rounded to {HIDDEN_DECIMALS} decimals"
        if self.competition:
            return f"{first} in steps of {PUBLIC_STEP}, and of the private part {every}, {decimals}"
        return f"{first}, {decimals}" + (f", and {further} in steps of {PUBLIC_STEP}" if further else "")

    def _limits(self) -> Iterator[str]:
        if self.daily_quota is not None:
            yield f"{_times(self.daily_quota)} a day"
        if self.monthly_quota is not None:
            yield f"{_times(self.monthly_quota)} a month"

    def _of_newcomers(self) -> Iterator[str]:
        if settings.TEAM_APPROVAL:
            yield "A curator approves each team before its first submission."
        if days := settings.YOUNG_TEAM_DAYS:
            later = (
                ""
                if self.competition
                else " After that, a run whose result was held back can be submitted again."
            )
            yield (
                f"For {days} days after its approval, a team's first result is published, and further ones if they are "
                f"better by more than {YOUNG_STEP}. At most {settings.YOUNG_TEAM_READINGS} results of such teams are "
                f"published per day; others wait. Teams without approval count as one team.{later}"
            )

    def _of_competition(self) -> Iterator[str]:
        yield (
            f"The board shows the public part, about {100 * self.public_share:.0f}% of the judged queries. Which "
            "queries is secret and never changes. The others are the private part, revealed at the end of a round."
        )
        yield (
            "A result is published only if it improves on the best result of its team and its submitter (at first the "
            f"baseline) by more than {STEP} and by more than the standard error of the difference on the public part, "
            "or a multiple of it that grows with the number of results. Otherwise the team sees “no significant "
            "change”, and the board stays the same. This keeps noise and guesses off the board."
        )
        yield (
            "One result is visible per team and per person, or as many as the round allows: the best ones."
        )


def primary_step(*, competition: bool) -> float:
    """The step in which hidden results have their primary measure told."""
    return PUBLIC_STEP if competition else 10.0**-HIDDEN_DECIMALS


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


#: The columns of `Dataset` that decide.
COLUMNS = (
    "hidden", "protection", "measures", "public_share", "queries_visibility", "daily_quota", "monthly_quota",
)  # fmt: skip


def policy_of(dataset: Dataset) -> ProtectionPolicy:
    """The dataset's policy. One that hides nothing is in no competition, whatever its row says."""
    return policy_of_columns({name: getattr(dataset, name) for name in COLUMNS})


def policy_of_columns(dataset: Mapping[str, Any]) -> ProtectionPolicy:
    """The same of a dataset's COLUMNS as a mapping, for pages that read no more."""
    hidden = dataset["hidden"]
    competition = hidden and dataset["protection"] == Protection.COMPETITION
    return ProtectionPolicy(
        hidden=hidden,
        competition=competition,
        measures=tuple(dataset["measures"]),
        public_share=dataset["public_share"] if competition else 1.0,
        queries_hidden=dataset["queries_visibility"] == Visibility.CURATORS,
        daily_quota=dataset["daily_quota"] if hidden else None,
        monthly_quota=dataset["monthly_quota"] if hidden else None,
    )


def established_at(team: Team) -> datetime | None:
    """When the team is young no longer; None: never, since teams are approved here, and this one is not."""
    since = team.approved_at if settings.TEAM_APPROVAL else team.approved_at or team.created_at
    return None if since is None else since + timedelta(days=settings.YOUNG_TEAM_DAYS)


def is_new_team(team: Team) -> bool:
    """Whether the team is young now; with YOUNG_TEAM_DAYS 0 none is, whatever the clock says."""
    established = established_at(team)
    return settings.YOUNG_TEAM_DAYS > 0 and (established is None or established > timezone.now())


def established_teams() -> QuerySet[Team]:
    """The teams that are young no longer."""
    if not settings.YOUNG_TEAM_DAYS:
        return Team.objects.all()
    since = F("approved_at") if settings.TEAM_APPROVAL else Coalesce("approved_at", "created_at")
    long_ago = timezone.now() - timedelta(days=settings.YOUNG_TEAM_DAYS)
    return Team.objects.alias(since=since).filter(since__lte=long_ago)


def unknown_teams() -> Q:
    """Entries of teams that are young and that nobody approved: for all that is known they are one."""
    return Q(system__team__in=Team.objects.filter(approved_at=None).exclude(pk__in=established_teams()))


def daily_budget_left(dataset: Dataset) -> int:
    """How many results of young teams may still be told of the dataset today, from midnight to midnight UTC."""
    if not settings.YOUNG_TEAM_DAYS:
        return int(settings.YOUNG_TEAM_READINGS)
    now = timezone.now()
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    told = (
        Entry.objects.filter(dataset=dataset, system__team__isnull=False, published_at__gte=midnight)
        .exclude(visibility=Entry.Visibility.HELD)
        .exclude(provenance=Entry.Provenance.REPORTED)
        .exclude(system__team__in=established_teams())
    )
    return max(0, int(settings.YOUNG_TEAM_READINGS) - told.count())


@transaction.atomic
def draw_parts(qrels: Qrels) -> Qrels:
    """Draw the parts of these judgements, unless that was done; the row as it is then.

    Queries that have a part in earlier judgements of the dataset keep it: those that these were made from, or else the
    last ones that were parted. Raises ValueError for too few queries.
    """
    row = Qrels.objects.select_for_update(of=("self",)).select_related("version__dataset").get(pk=qrels.pk)
    if row.parts_sha256:
        return row
    dataset = row.version.dataset
    relevant = judged_parts.relevant_counts(load_qrels(row), dataset.relevance_level)
    before = row.made_from
    if before is None or not before.parts_sha256:
        parted = Qrels.objects.filter(version__dataset=row.version.dataset_id).exclude(parts_sha256="")
        before = parted.order_by("-pk").first()
    earlier = load_parts(before) if before is not None else None
    store_parts(row, judged_parts.draw_parts(relevant, dataset.public_share, earlier))
    return row


def public_queries(qrels: Qrels) -> NDArray[np.bool_]:
    """Which of the judged queries are public, shape (queries,), in the judgements' order."""
    return load_parts(draw_parts(qrels)).mask(load_qrels(qrels).query_ids)


def evaluate_parts(evaluation: Evaluation) -> None:
    """Keep the evaluation's means over both parts, unrounded. Again, nothing changes."""
    if EvaluationPart.objects.filter(evaluation=evaluation).count() == len(Part):
        return
    public = public_queries(evaluation.qrels)
    first, second = judged_parts.part_means(per_query_values(evaluation), evaluation.measures, public)
    count = int(np.count_nonzero(public))
    EvaluationPart.objects.bulk_create(
        [
            EvaluationPart(evaluation=evaluation, part=Part.PUBLIC, means=first, judged_queries=count),
            EvaluationPart(
                evaluation=evaluation, part=Part.PRIVATE, means=second, judged_queries=len(public) - count
            ),
        ],
        ignore_conflicts=True,
    )


def part_means(evaluation: Evaluation, part: EvaluationPart.Part) -> dict[str, float]:
    """The unrounded means over one part; empty where they were not computed. Of many, prefetch `parts`."""
    means: dict[str, float] = next((each.means for each in evaluation.parts.all() if each.part == part), {})
    return means
