"""Lifecycle of rounds: phases, governing rounds, curation, and display.

A round is *announced* until it opens, *open* until it closes, *closed* until a curator reveals it, then *revealed*.
All times are UTC. A round of a benchmark covers all of its current datasets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import CharField, Count, Q, Value
from django.db.models.functions import Cast, Concat
from django.utils import timezone

from leaderboard.core import audit
from leaderboard.core.text.dates import format_moment
from leaderboard.core.work_requests import request_notice, request_work
from leaderboard.models import Dataset, Entry, Round, RoundQuerySet, RoundSummary, Run, WorkRequest
from leaderboard.results.board_rows.revisions import Kind, boards_changed, lock_boards
from leaderboard.results.protection import get_policy
from leaderboard.results.publishing.protection import reveal_private
from leaderboard.results.publishing.publication import update_shown
from leaderboard.results.publishing.scored import mark_pooled


class Phase(StrEnum):
    """Phase of a round between its announcement and its results."""

    BEFORE = "before opening"
    OPEN = "open"
    CLOSED = "closed"
    REVEALED = "revealed"


class RevealTooEarly(Exception):
    """The round cannot be revealed now; the message contains the reason and the earliest time."""


def phase(row: Round, now: datetime) -> Phase:
    """Return the phase of the round at `now`; it is open from `opens_at`, inclusive, to `closes_at`, exclusive."""
    if row.revealed_at is not None:
        return Phase.REVEALED
    if now < row.opens_at:
        return Phase.BEFORE
    return Phase.OPEN if now < row.closes_at else Phase.CLOSED


def get_rounds(*datasets: int) -> RoundQuerySet:
    """Return the rounds of the datasets with these ids and of their benchmarks, by opening."""
    condition = Q(dataset__in=datasets) | Q(benchmark__members__dataset__in=datasets)
    return Round.objects.filter(condition).order_by("opens_at", "pk").distinct()


def current_round(dataset: Dataset | int, now: datetime) -> Round | None:
    """Return the round that governs submissions to a dataset at `now`, or None outside of rounds.

    This is the open round, or else the last closed and unrevealed one, or else the next announced one.
    """
    dataset_id = dataset if isinstance(dataset, int) else dataset.pk
    return governing_round(list(get_rounds(dataset_id)), now)


def governing_round(rounds: Sequence[Round], now: datetime) -> Round | None:
    """Return the governing round among a dataset's rounds, which are ordered by opening; see `current_round`."""
    phases = [(row, phase(row, now)) for row in rounds]
    for target_phase, candidates in ((Phase.OPEN, phases), (Phase.CLOSED, phases[::-1]), (Phase.BEFORE, phases)):
        match = next((row for row, row_phase in candidates if row_phase == target_phase), None)
        if match is not None:
            return match
    return None


def round_datasets(row: Round) -> list[Dataset]:
    """Return the datasets of the round, in the benchmark's order."""
    if row.dataset is not None:
        return [row.dataset]
    if row.benchmark is None:
        return []
    members = row.benchmark.members.order_by("position", "pk").select_related("dataset")
    return [member.dataset for member in members]


def listed_datasets(row: Round) -> list[Dataset]:
    """Return the round's datasets that have a page; datasets in preparation have none."""
    datasets = [row.dataset] if row.dataset is not None else []
    if row.benchmark is not None:  # prefetched by listed()
        members = sorted(row.benchmark.members.all(), key=lambda member: (member.position, member.pk))
        datasets = [member.dataset for member in members]
    return [dataset for dataset in datasets if dataset.state != Dataset.State.PREPARING]


def relative_time(moment: datetime, now: datetime) -> str:
    """Return a time relative to `now`, such as `in 3 days`, `in 30 hours`, `2 days ago`, or `just now`.

    The unit is the largest that occurs at least twice, from days to minutes.
    """
    seconds = abs((moment - now).total_seconds())
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        # Require at least two of a unit: "in 30 hours" is more precise than "in 1 day".
        if seconds >= 2 * length or unit == "minute":
            count = int(seconds // length)
            break
    if count == 0:
        return "in less than a minute" if moment > now else "just now"
    words = f"{count} {unit}{'s' if count != 1 else ''}"
    return f"in {words}" if moment > now else f"{words} ago"


def check_round(row: Round) -> None:
    """Check subject, times, and limits of a round, overlaps with others, and changes to a round that has begun.

    Raises ValidationError with messages by field.
    """
    problems: dict[str, str] = {}
    if (row.dataset_id is None) == (row.benchmark_id is None):
        problems["dataset"] = "Choose either a dataset or a benchmark, not both."
    if row.opens_at and row.closes_at and row.closes_at <= row.opens_at:
        problems["closes_at"] = f"The round closes before it opens. Enter a time after {format_moment(row.opens_at)}."
    if row.closes_at and row.reveals_at and row.reveals_at < row.closes_at:
        problems["reveals_at"] = (
            f"Results cannot be revealed before the round closes. Enter {format_moment(row.closes_at)} or later."
        )
    if row.runs_per_team is not None and row.runs_per_team < 1:
        problems["runs_per_team"] = "Each team needs at least one run. Enter 1 or more, for example 5."
    if not problems:
        problems = {**_overlaps(row), **_locked_changes(row)}
    if problems:
        raise ValidationError(problems)


def _overlaps(row: Round) -> dict[str, str]:
    """Return an error, by field, if another round of one of the round's datasets is open at the same time."""
    for dataset in round_datasets(row):
        for other_round in get_rounds(dataset.pk):
            if (
                other_round.pk != row.pk
                and other_round.opens_at < row.closes_at
                and row.opens_at < other_round.closes_at
            ):
                return {
                    "opens_at": f"Another round of {dataset} overlaps: {other_round} is open from "
                    f"{format_moment(other_round.opens_at)} to {format_moment(other_round.closes_at)}. "
                    "Open after that, or close before it."
                }
    return {}


def _locked_changes(row: Round) -> dict[str, str]:
    """Return an error, by field, for a change that is no longer possible after the reveal or the first run."""
    stored_round = Round.objects.filter(pk=row.pk).first() if row.pk else None
    if stored_round is None:
        return {}
    if stored_round.revealed_at is not None:
        return {"slug": "The round was revealed and can no longer change. Create another one."}
    if stored_round.runs.exists():
        if (stored_round.dataset_id, stored_round.benchmark_id) != (row.dataset_id, row.benchmark_id):
            return {"dataset": "This round already has runs. Keep its dataset or benchmark, or create another round."}
        if row.opens_at > stored_round.opens_at:
            return {
                "opens_at": f"Runs were submitted since {format_moment(stored_round.opens_at)}. Keep this time or "
                "enter an earlier one."
            }
    return {}


@transaction.atomic
def save_round(row: Round) -> Round:
    """Validate, store, and record a new or changed round. Raises ValidationError; concurrent calls are serialized.

    If it changes the number of visible results per team, competition boards are updated.
    """
    lock_round(row)
    row.full_clean(validate_constraints=False)
    check_round(row)
    is_new = row.pk is None
    visible_before = Round.objects.filter(pk=row.pk).values_list("visible_per_team", flat=True).first()
    row.save()
    if visible_before not in (None, row.visible_per_team):
        refresh_round_boards(row)
    audit.record("round created" if is_new else "round changed", row, dataset=row.dataset_id, after=_facts(row))
    return row


def lock_round(row: Round) -> None:
    """Lock the boards of the round's old and new datasets, then its row, until the commit."""
    rows = [row, *Round.objects.filter(pk=row.pk)]
    lock_boards(dataset.pk for locked_row in rows for dataset in round_datasets(locked_row))
    list(Round.objects.select_for_update(no_key=True).filter(pk=row.pk).values_list("pk"))


def refresh_round_boards(row: Round) -> None:
    """Update the boards of competitions to the round's number of visible results per team."""
    moved_ids = {dataset.pk: update_shown(dataset) for dataset in round_datasets(row)}
    moved_entries = Entry.objects.filter(pk__in=set().union(*moved_ids.values()))
    boards_changed([dataset_id for dataset_id, entries in moved_ids.items() if entries], Kind.VISIBILITY, moved_entries)


def _facts(row: Round) -> dict[str, str | int | bool]:
    """Return the round's times and rules for the audit log."""
    return {
        "opens_at": format_moment(row.opens_at),
        "closes_at": format_moment(row.closes_at),
        "reveals_at": format_moment(row.reveals_at),
        "runs_per_team": row.runs_per_team,
        "visible_per_team": row.visible_per_team,
        "takes_late": row.takes_late,
        "per_topic_at_reveal": row.per_topic_at_reveal,
    }


@transaction.atomic
def reveal(row: Round, now: datetime | None = None) -> Round:
    """Reveal the round, once and not before its time. Call this within `audit.acting`.

    This publishes the private part of competitions, marks results of runs that contributed to a pool, and requests the
    per-topic summary if the round provides it.

    Raises:
        RevealTooEarly: Before the reveal time, without judgments, or if the round is already revealed.
    """
    now = now or timezone.now()
    lock_round(row)
    row = Round.objects.get(pk=row.pk)
    if row.revealed_at is not None:
        raise RevealTooEarly(f"{row} was already revealed at {format_moment(row.revealed_at)}.")
    if now < row.reveals_at:
        raise RevealTooEarly(
            f"{row} cannot be revealed before {format_moment(row.reveals_at)} ({relative_time(row.reveals_at, now)})."
        )
    datasets = round_datasets(row)
    if unjudged_names := [dataset.name for dataset in datasets if dataset.awaits_judgements]:
        raise RevealTooEarly(
            f"There are no judgments yet for {', '.join(unjudged_names)}, so there are no results to reveal."
        )
    row.revealed_at, row.revealed_by = now, audit.actor().person
    row.save(update_fields=["revealed_at", "revealed_by"])
    audit.record("round revealed", row, dataset=row.dataset_id, after=_facts(row))
    for dataset in datasets:
        mark_pooled(dataset)
        if get_policy(dataset).competition:
            reveal_private(dataset, row)
        if row.per_topic_at_reveal and dataset.current_qrels_id is not None:
            request_work(WorkRequest.Kind.REVEAL, dataset, {"round": row.pk})
    boards_changed([dataset.pk for dataset in datasets], Kind.REVEALED)
    request_notice("round_revealed", round=row.pk)
    return row


def get_summary(row: Round, dataset: Dataset) -> RoundSummary | None:
    """Return best, median, and worst per topic once the scorer has computed them, or None."""
    return RoundSummary.objects.filter(round=row, dataset=dataset).select_related("qrels").first()


def unfinished_rounds() -> list[Round]:
    """Return all rounds that are not revealed yet, by opening."""
    return list(Round.objects.listed().filter(revealed_at=None).order_by("opens_at", "pk"))


def announced_rounds(datasets: Iterable[int]) -> list[Round]:
    """Return the unrevealed rounds of datasets and of their benchmarks."""
    return list(get_rounds(*datasets).filter(revealed_at=None).listed())


def dataset_rounds(dataset: int) -> list[Round]:
    """Return the unrevealed rounds of a dataset and of its benchmarks, in one query."""
    return list(get_rounds(dataset).filter(revealed_at=None))


def benchmark_rounds(benchmark: int) -> list[Round]:
    return list(Round.objects.filter(benchmark=benchmark, revealed_at=None).order_by("opens_at", "pk"))


@dataclass(frozen=True, slots=True)
class RoundListing:
    """A round as shown in lists.

    `next` and `moment` are the next event and its time; `subject` is the dataset or benchmark, with its `address`.
    """

    row: Round
    phase: Phase
    next: str
    moment: datetime
    subject: str
    address: str

    @property
    def label(self) -> str:
        """Label of the phase for badges."""
        return "announced" if self.phase == Phase.BEFORE else self.phase.value


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Anonymous counts of a round's runs."""

    runs: int
    teams: int
    late: int


def describe_round(row: Round, now: datetime) -> RoundListing:
    """Return the round as shown in lists at `now`: phase, next event, and subject."""
    current_phase = phase(row, now)
    next_events = {
        Phase.BEFORE: ("opens", row.opens_at),
        Phase.OPEN: ("closes", row.closes_at),
        Phase.CLOSED: ("is revealed", row.reveals_at),
    }
    verb, moment = next_events.get(current_phase, ("was revealed", row.revealed_at or row.reveals_at))
    if current_phase == Phase.CLOSED and now >= row.reveals_at:
        text = "will be revealed by a curator"
    else:
        text = f"{verb} {relative_time(moment, now)}"
    subject = row.dataset or row.benchmark
    address = subject.get_absolute_url() if subject is not None else ""
    return RoundListing(row, current_phase, text, moment, str(subject), address)


def closed_reason(row: Round | None, now: datetime) -> str:
    """Return why the round accepts no runs at `now`, and when it will; empty if it accepts them, or without a round.

    Pages, API responses, and errors use this text.
    """
    if row is None:
        return ""
    current_phase = phase(row, now)
    if current_phase in (Phase.OPEN, Phase.REVEALED) or (current_phase == Phase.CLOSED and row.takes_late):
        return ""
    if current_phase == Phase.BEFORE:
        return (
            f"{row} opens at {format_moment(row.opens_at)} ({relative_time(row.opens_at, now)}); submissions open then."
        )
    earliest = f", {format_moment(row.reveals_at)} at the earliest" if now < row.reveals_at else ""
    statement = f"{row} closed at {format_moment(row.closes_at)} and accepts no late runs"
    return f"{statement}; submissions reopen after its reveal{earliest}."


def closed_datasets(datasets: Iterable[int], now: datetime) -> dict[int, str]:
    """Return the reasons why datasets accept no runs at `now`, by dataset id; datasets that accept them are omitted."""
    rounds: dict[int, list[Round]] = {}
    for row in announced_rounds(datasets):
        for dataset in listed_datasets(row):
            rounds.setdefault(dataset.pk, []).append(row)
    reasons = {key: closed_reason(governing_round(rows, now), now) for key, rows in rounds.items()}
    return {key: reason for key, reason in reasons.items() if reason}


def timeline(row: Round, now: datetime) -> list[dict[str, Any]]:
    """Return opening, closing, and reveal in order; `when` is “past”, “next” (the first step not done), or “to come”.

    The reveal is past only once it was made, even if its earliest time has passed.
    """
    points = [("Opens", row.opens_at), ("Closes", row.closes_at)]
    points.append(("Revealed", row.revealed_at) if row.revealed_at else ("Reveal, at the earliest", row.reveals_at))
    steps, next_is_marked = [], False
    for label, moment in points:
        is_past = now >= moment and not (moment == row.reveals_at and row.revealed_at is None)
        state = "past" if is_past else "to come" if next_is_marked else "next"
        next_is_marked = next_is_marked or not is_past
        steps.append({"label": label, "moment": moment, "when": state, "how_far": relative_time(moment, now)})
    return steps


#: `System.contributor` as a single value in a query.
CONTRIBUTOR = Concat(Cast("system__team", CharField()), Value(":"), "system__participant", output_field=CharField())


def count_runs(rows: Iterable[Round]) -> dict[int, RunCounts]:
    """Count each round's submissions in time, their teams (a participant counts as one), and late submissions.

    Return the counts by round id.
    """
    round_ids = [row.pk for row in rows]
    in_time, late = Q(late=False), Q(late=True)
    rows_by_round = (
        Run.objects.filter(round__in=round_ids)
        .values("round")
        .annotate(
            runs=Count("submission_reference", filter=in_time, distinct=True),
            teams=Count(CONTRIBUTOR, filter=in_time, distinct=True),
            late_runs=Count("submission_reference", filter=late, distinct=True),
        )
    )
    counts = {count["round"]: RunCounts(count["runs"], count["teams"], count["late_runs"]) for count in rows_by_round}
    return {round_id: counts.get(round_id, RunCounts(0, 0, 0)) for round_id in round_ids}


def within_quota(row: Round, dataset: Dataset) -> int | None:
    """Return how many submissions the dataset's quotas allow during the round, or None if unlimited.

    Only datasets with hidden judgments have quotas.
    """
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
    """Return a warning if quotas of datasets allow fewer submissions than the round, or an empty string."""
    limits = [
        f"{dataset} allows {limit} per team while the round is open"
        for dataset in round_datasets(row)
        if (limit := within_quota(row, dataset)) is not None and limit < row.runs_per_team
    ]
    if not limits:
        return ""
    return (
        f"The round accepts {row.runs_per_team} runs per team, but quotas are lower: {'; '.join(limits)}. "
        "Raise the dataset's quota, extend the round, or accept fewer runs."
    )
