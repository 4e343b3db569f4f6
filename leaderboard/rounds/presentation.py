"""What pages and API say of a round: its phase in words, its timeline, how many runs have come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import CharField, Count, Q, Value
from django.db.models.functions import Cast, Concat

from leaderboard.models import Dataset, Round, Run
from leaderboard.rounds.lifecycle import (
    Phase,
    announced_rounds,
    datasets_of,
    governing_round,
    listed_datasets,
    phase,
    relative_time,
    utc,
)


@dataclass(frozen=True, slots=True)
class RoundListing:
    """A round as lists show it. `next` is what happens next, and when; `subject` whose it is, with its address."""

    row: Round
    phase: Phase
    next: str
    moment: datetime
    subject: str
    address: str

    @property
    def label(self) -> str:
        """The phase as a badge says it."""
        return "announced" if self.phase == Phase.BEFORE else self.phase.value


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """One point of a round's timeline: `when` is past, now or to come."""

    label: str
    moment: datetime
    when: str
    how_far: str


@dataclass(frozen=True, slots=True)
class RunCounts:
    """How many runs a round has: counts, and nothing of whose or which."""

    runs: int
    teams: int
    late: int


def describe_round(row: Round, now: datetime) -> RoundListing:
    """The round at `now`."""
    is_in = phase(row, now)
    ahead = {
        Phase.BEFORE: ("opens", row.opens_at),
        Phase.OPEN: ("closes", row.closes_at),
        Phase.CLOSED: ("is revealed", row.reveals_at),
    }
    verb, moment = ahead.get(is_in, ("was revealed", row.revealed_at or row.reveals_at))
    if is_in == Phase.CLOSED and now >= row.reveals_at:
        text = "is to be revealed: its curator decides when"
    else:
        text = f"{verb} {relative_time(moment, now)}"
    subject = row.dataset or row.benchmark
    return RoundListing(
        row, is_in, text, moment, str(subject), subject.get_absolute_url() if subject is not None else ""
    )


def closed_reason(row: Round | None, now: datetime) -> str:
    """Why no run may come for the datasets of the round that governs them, and from when on; empty where one may.

    Pages, answers and refusals say it in these words.
    """
    is_in = phase(row, now) if row is not None else None
    if row is None or is_in in (Phase.OPEN, Phase.REVEALED) or (is_in == Phase.CLOSED and row.takes_late):
        return ""
    if is_in == Phase.BEFORE:
        return (
            f"{row} opens at {utc(row.opens_at)} ({relative_time(row.opens_at, now)}); submissions open then."
        )
    again = f", {utc(row.reveals_at)} at the earliest" if now < row.reveals_at else ""
    closed = f"{row} closed at {utc(row.closes_at)} and takes no late runs"
    return f"{closed}; submissions reopen after its reveal{again}."


def closed_datasets(datasets: Iterable[int], now: datetime) -> dict[int, str]:
    """Those of the datasets that take no run at `now`, by id, and why. One query, some more where rounds are on."""
    rounds: dict[int, list[Round]] = {}
    for row in announced_rounds(datasets):
        for dataset in listed_datasets(row):
            rounds.setdefault(dataset.pk, []).append(row)
    found = {key: closed_reason(governing_round(rows, now), now) for key, rows in rounds.items()}
    return {key: why for key, why in found.items() if why}


def timeline(row: Round, now: datetime) -> list[TimelineStep]:
    """Opening, closing and reveal, in order, each past or to come; the one that comes next is marked."""
    points = [("Opens", row.opens_at), ("Closes", row.closes_at)]
    points.append(
        ("Revealed", row.revealed_at) if row.revealed_at else ("Reveal, at the earliest", row.reveals_at)
    )
    steps, next_is_marked = [], False
    for label, moment in points:
        done = now >= moment and not (moment == row.reveals_at and row.revealed_at is None)
        when = "past" if done else "to come" if next_is_marked else "next"
        next_is_marked = next_is_marked or not done
        steps.append(TimelineStep(label, moment, when, relative_time(moment, now)))
    return steps


#: `System.contributor` as a single value in a query.
CONTRIBUTOR = Concat(
    Cast("system__team", CharField()), Value(":"), "system__participant", output_field=CharField()
)


def count_runs(rows: Iterable[Round]) -> dict[int, RunCounts]:
    """Count the stored submissions, teams (a participant counts as one), and late submissions of each round."""
    wanted = [row.pk for row in rows]
    in_time, late = Q(late=False), Q(late=True)
    counted = (
        Run.objects.filter(round__in=wanted)
        .values("round")
        .annotate(
            runs=Count("submission_reference", filter=in_time, distinct=True),
            teams=Count(CONTRIBUTOR, filter=in_time, distinct=True),
            late_runs=Count("submission_reference", filter=late, distinct=True),
        )
    )
    found = {each["round"]: RunCounts(each["runs"], each["teams"], each["late_runs"]) for each in counted}
    return {key: found.get(key, RunCounts(0, 0, 0)) for key in wanted}


def within_quota(row: Round, dataset: Dataset) -> int | None:
    """The most submissions to the dataset that days and months (UTC) of the open round allow; None for no limit."""
    if not dataset.hidden:
        return None
    opens, closes = row.opens_at.astimezone(UTC), row.closes_at.astimezone(UTC)
    days = (closes.date() - opens.date()).days + 1
    months = 12 * (closes.year - opens.year) + closes.month - opens.month + 1
    limits = [
        units * quota
        for units, quota in ((days, dataset.daily_quota), (months, dataset.monthly_quota))
        if quota is not None
    ]
    return min(limits, default=None)


def quota_warning(row: Round) -> str:
    """Which datasets' quotas keep a team from sending as many runs as the round takes, and what to do; else empty."""
    short = [
        f"{dataset} lets a team send {most} while the round is open"
        for dataset in datasets_of(row)
        if (most := within_quota(row, dataset)) is not None and most < row.runs_per_team
    ]
    if not short:
        return ""
    return (
        f"The round takes {row.runs_per_team} runs of a team, but by its quota {'; '.join(short)}. "
        "Raise the dataset's quota, leave the round open longer, or take fewer runs."
    )
