"""Protection of hidden judgments: policies, new teams, and the parts of a competition (docs/decisions/0017).

A policy states what a submission may learn about the judgments, as values and as sentences. New teams get limited
feedback on hidden judgments, see the settings YOUNG_TEAM_DAYS (0 disables it) and YOUNG_TEAM_READINGS, and
docs/decisions/0018. The parts of a competition are drawn once per qrels, and evaluations have means over each part;
only the scorer may read the private storage that this needs. This module is the only writer of `EvaluationPart`.

`publishing.protection` changes policies and ends competitions, and `publishing.publication` implements the Ladder.
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
from evaluation.judgements.responses import STATED_FIGURES
from evaluation.statistics.ladder import PUBLIC_STEP, RESPONSE_STEP, STEP, YOUNG_ERRORS, YOUNG_STEP
from leaderboard.core.measures import reads_responses
from leaderboard.datasets.qrels import load_parts, load_qrels, store_parts
from leaderboard.models import Dataset, Entry, Evaluation, EvaluationPart, Protection, Qrels, Team, Visibility
from leaderboard.results.records import per_query_values

Part = EvaluationPart.Part

#: Decimals of published values with hidden judgments. A probing run still learns 1.7 to 6.2 bits from three.
HIDDEN_DECIMALS = 3
#: Maximum number of measures with hidden judgments, because each measure reveals more about them.
MAX_MEASURES = 3


def coarse_step(primary: str, *, competition: bool) -> float:
    """Return the rounding step of all measures in a competition, or of secondary measures elsewhere."""
    return RESPONSE_STEP if reads_responses(primary) and not competition else PUBLIC_STEP


@dataclass(frozen=True, slots=True)
class ProtectionPolicy:
    """Protection of a dataset's judgments. Open judgments have no limits, and `decimals` is None.

    `public_share` is the share of judged queries that a competition's board shows, or 1 outside of competitions.
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
        """Display name of the policy."""
        if not self.hidden:
            return "open"
        return "competition" if self.competition else "standard"

    @property
    def decimals(self) -> int | None:
        """Decimals of every published value, or None if values are published in full."""
        return HIDDEN_DECIMALS if self.hidden else None

    @property
    def published_measures(self) -> tuple[str, ...]:
        """Measures with published values: only the primary one in a competition until the private part is revealed."""
        return self.measures[:1] if self.competition else self.measures

    @property
    def steps(self) -> dict[str, float]:
        """Rounding steps by measure.

        Measures rounded to decimals are omitted, as are figures that answer runs state, because these do not depend on
        the judgments.
        """
        if not self.hidden:
            return {}
        coarse_measures = self.measures if self.competition else self.measures[1:]
        return dict.fromkeys([name for name in coarse_measures if name not in STATED_FIGURES], self._coarse_step)

    @property
    def _coarse_step(self) -> float:
        return coarse_step(self.measures[0], competition=self.competition)

    @property
    def sentences(self) -> list[str]:
        """Description of the policy for pages; empty for open judgments."""
        return list(self._sentences()) if self.hidden else []

    def _sentences(self) -> Iterator[str]:
        """Yield what is published, the submission limits, and the rules for new teams and for competitions."""
        texts = " Query texts are also hidden." if self.queries_hidden else ""
        yield (
            "The judgments are hidden: only the scorer and curators with a special permission can read them. Curators "
            "who download pools can see which documents are judged. Every access is logged."
            f"{texts}"
        )
        yield f"Published: {self._rounding_text}. Differences, means and ranks are computed from the rounded values."
        yield (
            f"Also published: the least significant difference in {self.measures[0]} at 0.05, computed once from the "
            "baseline's per-query scores and rounded up. It decides which results are significantly better than the "
            "baseline; widened for the number of pairs, it decides which tie with the best. If the dataset has a "
            "public twin, it also bounds the contamination gap."
        )
        yield "Not published: per-query scores, intervals, p-values, wins, and the number of judged queries in a run."
        if limits := " and ".join(self._limits()):
            yield f"Each person and each team may submit {limits} (UTC). A seed set is one submission."
        yield "For seed sets only the mean is published."
        yield from self._new_team_sentences()
        yield "Suspicious runs are accepted and flagged for review."
        if self.competition:
            yield from self._competition_sentences()

    @property
    def _rounding_text(self) -> str:
        """Published measures and their rounding, such as "nDCG@10, rounded to 3 decimals"."""
        decimal_measures = tuple(name for name in self.measures if name not in self.steps)
        primary, secondary, all_names = (
            " and ".join(names if len(names) < 3 else (", ".join(names[:-1]), names[-1]))
            for names in (self.measures[:1] if self.competition else decimal_measures, tuple(self.steps), self.measures)
        )
        decimals = f"rounded to {HIDDEN_DECIMALS} decimals"
        if self.competition:
            return f"{primary} in steps of {PUBLIC_STEP}, and of the private part {all_names}, {decimals}"
        return f"{primary}, {decimals}" + (f", and {secondary} in steps of {self._coarse_step}" if secondary else "")

    def _limits(self) -> Iterator[str]:
        if self.daily_quota is not None:
            yield f"{_frequency(self.daily_quota)} a day"
        if self.monthly_quota is not None:
            yield f"{_frequency(self.monthly_quota)} a month"

    def _new_team_sentences(self) -> Iterator[str]:
        """Yield the rules for new teams; none if teams need no approval and YOUNG_TEAM_DAYS is 0."""
        if settings.TEAM_APPROVAL:
            yield "A curator approves each team before its first submission."
        if days := settings.YOUNG_TEAM_DAYS:
            resubmission = "" if self.competition else " After that, a run that was held back can be submitted again."
            yield (
                f"For {days} days after its approval, a team's first result is published, and further ones only if "
                f"they exceed its best published result and the baseline by more than {YOUNG_STEP} and by more than "
                f"{YOUNG_ERRORS:g} standard errors of the difference. At most {settings.YOUNG_TEAM_READINGS} results "
                "of such teams are published per day; others wait. Teams without approval count as one "
                f"team.{resubmission}"
            )

    def _competition_sentences(self) -> Iterator[str]:
        """Yield the rules of a competition: public and private parts, and the improvement that a result must show."""
        yield (
            f"The board shows scores on the public part, about {100 * self.public_share:.0f}% of the judged queries. "
            "The selection is secret and never changes. The other queries are the private part, revealed at the end "
            "of a round."
        )
        yield (
            "A result is published only if it improves on the best result of its team and its submitter (at first the "
            f"baseline) by more than {STEP} and by more than the standard error of the difference on the public part, "
            "or a multiple of it that grows with the number of results. Otherwise the team sees “no significant "
            "change”, and the board stays the same. This excludes noise and guesses from the board."
        )
        yield "Only the best result per team and per person is visible, or as many as the round allows."


def primary_step(*, competition: bool) -> float:
    """Return the rounding step of the primary measure with hidden judgments."""
    return PUBLIC_STEP if competition else 10.0**-HIDDEN_DECIMALS


def _frequency(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


#: Columns of `Dataset` that determine its policy.
COLUMNS = (
    "hidden", "protection", "measures", "public_share", "queries_visibility", "daily_quota", "monthly_quota",
)  # fmt: skip


def get_policy(dataset: Dataset) -> ProtectionPolicy:
    """Return the dataset's policy; a competition requires hidden judgments."""
    return policy_from_columns({name: getattr(dataset, name) for name in COLUMNS})


def policy_from_columns(dataset: Mapping[str, Any]) -> ProtectionPolicy:
    """Return the policy from a mapping of a dataset's COLUMNS; a competition requires hidden judgments."""
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
    """Return the end of the team's time as a new team, or None if it still needs approval.

    The time begins at approval; without required approval, at creation for a team that was never approved.
    """
    start = team.approved_at if settings.TEAM_APPROVAL else team.approved_at or team.created_at
    return None if start is None else start + timedelta(days=settings.YOUNG_TEAM_DAYS)


def is_new_team(team: Team) -> bool:
    """Return whether the team counts as new; always False if YOUNG_TEAM_DAYS is 0."""
    end = established_at(team)
    return settings.YOUNG_TEAM_DAYS > 0 and (end is None or end > timezone.now())


def established_teams() -> QuerySet[Team]:
    """Return the teams that no longer count as new; all teams if YOUNG_TEAM_DAYS is 0."""
    if not settings.YOUNG_TEAM_DAYS:
        return Team.objects.all()
    start = F("approved_at") if settings.TEAM_APPROVAL else Coalesce("approved_at", "created_at")
    cutoff = timezone.now() - timedelta(days=settings.YOUNG_TEAM_DAYS)
    return Team.objects.alias(since=start).filter(since__lte=cutoff)


def unknown_teams() -> Q:
    """Return a filter for entries of new teams without approval, which count as one team."""
    return Q(system__team__in=Team.objects.filter(approved_at=None).exclude(pk__in=established_teams()))


def daily_budget_left(dataset: Dataset) -> int:
    """Return the number of new teams' results that may still be published for the dataset today (UTC).

    It is the whole daily budget if YOUNG_TEAM_DAYS is 0.
    """
    if not settings.YOUNG_TEAM_DAYS:
        return int(settings.YOUNG_TEAM_READINGS)
    now = timezone.now()
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    disclosed_entries = (
        Entry.objects.filter(dataset=dataset, system__team__isnull=False, published_at__gte=midnight)
        .exclude(visibility=Entry.Visibility.HELD)
        .exclude(provenance=Entry.Provenance.REPORTED)
        .exclude(system__team__in=established_teams())
    )
    return max(0, int(settings.YOUNG_TEAM_READINGS) - disclosed_entries.count())


@transaction.atomic
def draw_parts(qrels: Qrels) -> Qrels:
    """Draw the public and private parts of these qrels and store them, unless they exist. Return the current row.

    Queries keep the part that they had in the qrels from which this row was made. If those have no parts, the dataset's
    latest qrels with parts are used. Raises ValueError for too few queries.
    """
    row = Qrels.objects.select_for_update(of=("self",)).select_related("version__dataset").get(pk=qrels.pk)
    if row.parts_sha256:
        return row
    dataset = row.version.dataset
    relevant_counts = judged_parts.relevant_counts(load_qrels(row), dataset.relevance_level)
    predecessor = row.made_from
    if predecessor is None or not predecessor.parts_sha256:
        qrels_with_parts = Qrels.objects.filter(version__dataset=row.version.dataset_id).exclude(parts_sha256="")
        predecessor = qrels_with_parts.order_by("-pk").first()
    earlier_parts = load_parts(predecessor) if predecessor is not None else None
    store_parts(row, judged_parts.draw_parts(relevant_counts, dataset.public_share, earlier_parts))
    return row


def public_queries(qrels: Qrels) -> NDArray[np.bool_]:
    """Return a mask of the public queries, shape (queries,), in the order of the qrels."""
    return load_parts(draw_parts(qrels)).mask(load_qrels(qrels).query_ids)


def evaluate_parts(evaluation: Evaluation) -> None:
    """Compute and store the evaluation's unrounded means over the public and the private part, unless they exist."""
    if EvaluationPart.objects.filter(evaluation=evaluation).count() == len(Part):
        return
    public_mask = public_queries(evaluation.qrels)
    all_means = judged_parts.part_means(per_query_values(evaluation), evaluation.measures, public_mask)
    counts = np.count_nonzero(public_mask), np.count_nonzero(~public_mask)
    # Means over all responses have no per-query values, and are the same for both parts.
    parts = [
        EvaluationPart(evaluation=evaluation, part=part, means={**evaluation.means, **means}, judged_queries=int(size))
        for part, means, size in zip((Part.PUBLIC, Part.PRIVATE), all_means, counts, strict=True)
    ]
    EvaluationPart.objects.bulk_create(parts, ignore_conflicts=True)


def part_means(evaluation: Evaluation, part: EvaluationPart.Part) -> dict[str, float]:
    """Return the unrounded means over one part, or an empty dictionary if none are stored.

    For several evaluations, prefetch `parts`.
    """
    means: dict[str, float] = next(
        (stored_part.means for stored_part in evaluation.parts.all() if stored_part.part == part), {}
    )
    return means
