"""Rounds: in which phase one is, which one governs a dataset, what a curator does with one, and how pages show one.

A round is *announced* until it opens, *open* until it closes, *closed* until a curator reveals it, then *revealed*.
All times are UTC. A round of a benchmark is one of every dataset that it has now.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import CharField, Count, Q, QuerySet, Value
from django.db.models.functions import Cast, Concat
from django.utils import timezone

from leaderboard.core import audit
from leaderboard.core.work_requests import request_notice, request_work
from leaderboard.models import Dataset, Entry, Round, RoundSummary, Run, WorkRequest
from leaderboard.results.board_rows.revisions import Kind, boards_changed, lock_boards
from leaderboard.results.protection import policy_of
from leaderboard.results.publishing.protection import reveal_private
from leaderboard.results.publishing.publication import update_shown
from leaderboard.results.publishing.scored import mark_pooled


class Phase(StrEnum):
    """Where a round is between its announcement and its results."""

    BEFORE = "before opening"
    OPEN = "open"
    CLOSED = "closed"
    REVEALED = "revealed"


class RevealTooEarly(Exception):
    """The round cannot be revealed now; the text says why, and when it can be."""


def phase(row: Round, now: datetime) -> Phase:
    """In which phase the round is at `now`. It is open from the second it opens until before the one it closes."""
    if row.revealed_at is not None:
        return Phase.REVEALED
    if now < row.opens_at:
        return Phase.BEFORE
    return Phase.OPEN if now < row.closes_at else Phase.CLOSED


def rounds_of(*datasets: int) -> QuerySet[Round]:
    """Return the rounds of datasets and of benchmarks that they are in, by opening."""
    of_these = Q(dataset__in=datasets) | Q(benchmark__members__dataset__in=datasets)
    return Round.objects.filter(of_these).order_by("opens_at", "pk").distinct()


def current_round(dataset: Dataset | int, now: datetime) -> Round | None:
    """The round that says what becomes of a run that comes at `now`; None where any may come, as outside of rounds.

    That is the open one; else the last one that has closed and is not revealed yet; else the next that is announced.
    """
    key = dataset if isinstance(dataset, int) else dataset.pk
    return governing_round(list(rounds_of(key)), now)


def governing_round(rounds: Sequence[Round], now: datetime) -> Round | None:
    """Of a dataset's rounds, by opening, the one that `current_round` names."""
    phases = [(row, phase(row, now)) for row in rounds]
    for wanted, among in ((Phase.OPEN, phases), (Phase.CLOSED, phases[::-1]), (Phase.BEFORE, phases)):
        found = next((row for row, is_in in among if is_in == wanted), None)
        if found is not None:
            return found
    return None


def datasets_of(row: Round) -> list[Dataset]:
    """The datasets that the round takes runs for, in the benchmark's order."""
    if row.dataset is not None:
        return [row.dataset]
    if row.benchmark is None:
        return []
    members = row.benchmark.members.order_by("position", "pk").select_related("dataset")
    return [member.dataset for member in members]


def listed_rounds(rounds: QuerySet[Round] | None = None) -> QuerySet[Round]:
    """Return the rounds, by default all, with their datasets, without those of datasets in preparation."""
    rounds = Round.objects.all() if rounds is None else rounds
    rounds = rounds.exclude(dataset__state=Dataset.State.PREPARING).select_related("dataset", "benchmark")
    return rounds.prefetch_related("benchmark__members__dataset")


def listed_datasets(row: Round) -> list[Dataset]:
    """Those of `datasets_of` that have a page: what is in preparation is named to nobody."""
    found = [row.dataset] if row.dataset is not None else []
    if row.benchmark is not None:  # as listed_rounds has read them
        members = sorted(row.benchmark.members.all(), key=lambda member: (member.position, member.pk))
        found = [member.dataset for member in members]
    return [dataset for dataset in found if dataset.state != Dataset.State.PREPARING]


def utc(moment: datetime) -> str:
    """`5 December 2026, 12:00 UTC`, as pages and answers write a round's times."""
    return f"{moment.astimezone(UTC):%-d %B %Y, %H:%M} UTC"


def relative_time(moment: datetime, now: datetime) -> str:
    """How far off: `in 3 days`, `in 5 hours`, `2 days ago`; the next smaller unit is left out."""
    seconds = abs((moment - now).total_seconds())
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        # From two of a unit on: "in 30 hours" says more than "in 1 day".
        if seconds >= 2 * length or unit == "minute":
            count = int(seconds // length)
            break
    if count == 0:
        return "in less than a minute" if moment > now else "just now"
    words = f"{count} {unit}{'s' if count != 1 else ''}"
    return f"in {words}" if moment > now else f"{words} ago"


def check_round(row: Round) -> None:
    """Raises ValidationError, by field, for a round that cannot be as it is written, saying what would be right."""
    problems: dict[str, str] = {}
    if (row.dataset_id is None) == (row.benchmark_id is None):
        problems["dataset"] = "Name either a dataset or a benchmark: a round is of the one or the other."
    if row.opens_at and row.closes_at and row.closes_at <= row.opens_at:
        problems["closes_at"] = f"It closes before it opens. Give a time after {utc(row.opens_at)}."
    if row.closes_at and row.reveals_at and row.reveals_at < row.closes_at:
        problems["reveals_at"] = (
            f"Results are not revealed while runs still come. Give {utc(row.closes_at)} or later."
        )
    if row.runs_per_team is not None and row.runs_per_team < 1:
        problems["runs_per_team"] = "A team sends at least one run. Give 1 or more; five is usual."
    if not problems:
        problems = {**_overlaps(row), **_too_late(row)}
    if problems:
        raise ValidationError(problems)


def _overlaps(row: Round) -> dict[str, str]:
    for dataset in datasets_of(row):
        for other in rounds_of(dataset.pk):
            if other.pk != row.pk and other.opens_at < row.closes_at and row.opens_at < other.closes_at:
                return {
                    "opens_at": f"{dataset} has a round then: {other} is open from {utc(other.opens_at)} to "
                    f"{utc(other.closes_at)}. Open after that, or close before it."
                }
    return {}


def _too_late(row: Round) -> dict[str, str]:
    """What cannot change any more: of a round that was revealed nothing, of one with runs whose it is."""
    before = Round.objects.filter(pk=row.pk).first() if row.pk else None
    if before is None:
        return {}
    if before.revealed_at is not None:
        return {"slug": "The round was revealed, and stays as it is. Make another one."}
    moved = (before.dataset_id, before.benchmark_id) != (row.dataset_id, row.benchmark_id)
    if before.runs.exists():
        if moved:
            return {
                "dataset": "Runs have come to this round. Leave its dataset or benchmark, or make another."
            }
        if row.opens_at > before.opens_at:
            return {
                "opens_at": f"Runs have come since {utc(before.opens_at)}. Leave the time, or an earlier one."
            }
    return {}


@transaction.atomic
def save_round(row: Round) -> Round:
    """Write a round that is right, new or changed. Raises ValidationError; of two at once the second sees the first.

    Where it gives teams more places on a competition's board, or fewer, the board follows.
    """
    lock_round(row)
    row.full_clean(validate_constraints=False)
    check_round(row)
    new = row.pk is None
    places = Round.objects.filter(pk=row.pk).values_list("visible_per_team", flat=True).first()
    row.save()
    if places not in (None, row.visible_per_team):
        refresh_round_boards(row)
    audit.record("round created" if new else "round changed", row, dataset=row.dataset_id, after=_facts(row))
    return row


def lock_round(row: Round) -> None:
    """Lock the boards that the round is of, as it was and as it is to be, then its row, until the commit."""
    rows = [row, *Round.objects.filter(pk=row.pk)]
    lock_boards(dataset.pk for each in rows for dataset in datasets_of(each))
    list(Round.objects.select_for_update(no_key=True).filter(pk=row.pk).values_list("pk"))


def refresh_round_boards(row: Round) -> None:
    """Bring the boards of competitions up to date with how many results of a team the round shows at a time."""
    moved = {dataset.pk: update_shown(dataset) for dataset in datasets_of(row)}
    touched = Entry.objects.filter(pk__in=set().union(*moved.values()))
    boards_changed([key for key, entries in moved.items() if entries], Kind.VISIBILITY, touched)


def _facts(row: Round) -> dict[str, str | int | bool]:
    return {
        "opens_at": utc(row.opens_at),
        "closes_at": utc(row.closes_at),
        "reveals_at": utc(row.reveals_at),
        "runs_per_team": row.runs_per_team,
        "visible_per_team": row.visible_per_team,
        "takes_late": row.takes_late,
        "per_topic_at_reveal": row.per_topic_at_reveal,
    }


@transaction.atomic
def reveal(row: Round, now: datetime | None = None) -> Round:
    """End the round: what was kept back until now is shown. Once, and not before its time: raises RevealTooEarly.

    A competition's private part comes onto the board; results whose runs fed a pool are marked; the scorer sums up
    best, median and worst by topic, where the round gives these to its teams. Who acts is audit's.
    """
    now = now or timezone.now()
    lock_round(row)
    row = Round.objects.get(pk=row.pk)
    if row.revealed_at is not None:
        raise RevealTooEarly(f"{row} was revealed already, at {utc(row.revealed_at)}.")
    if now < row.reveals_at:
        raise RevealTooEarly(
            f"{row} can be revealed from {utc(row.reveals_at)} on ({relative_time(row.reveals_at, now)})."
        )
    datasets = datasets_of(row)
    if waiting := [dataset.name for dataset in datasets if dataset.awaits_judgements]:
        raise RevealTooEarly(
            f"{', '.join(waiting)}: there are no judgements yet, and so no results to reveal."
        )
    row.revealed_at, row.revealed_by = now, audit.actor().person
    row.save(update_fields=["revealed_at", "revealed_by"])
    audit.record("round revealed", row, dataset=row.dataset_id, after=_facts(row))
    for dataset in datasets:
        mark_pooled(dataset)
        if policy_of(dataset).competition:
            reveal_private(dataset, row)
        if row.per_topic_at_reveal and dataset.current_qrels_id is not None:
            request_work(WorkRequest.Kind.REVEAL, dataset, {"round": row.pk})
    boards_changed([dataset.pk for dataset in datasets], Kind.REVEALED)
    request_notice("round_revealed", round=row.pk)
    return row


def summary_of(row: Round, dataset: Dataset) -> RoundSummary | None:
    """Best, median and worst by topic, once the scorer has found them."""
    return RoundSummary.objects.filter(round=row, dataset=dataset).select_related("qrels").first()


def unfinished_rounds() -> list[Round]:
    """Every round that pages point to: announced, open, or closed until the reveal; by opening."""
    return list(listed_rounds().filter(revealed_at=None).order_by("opens_at", "pk"))


def announced_rounds(datasets: Iterable[int]) -> list[Round]:
    """Return the unfinished rounds of datasets and of their benchmarks."""
    return list(listed_rounds(rounds_of(*datasets).filter(revealed_at=None)))


def dataset_rounds(dataset: int) -> list[Round]:
    """Return the unfinished rounds of a dataset and of its benchmarks. One query."""
    return list(rounds_of(dataset).filter(revealed_at=None))


def benchmark_rounds(benchmark: int) -> list[Round]:
    """Return the unfinished rounds of a benchmark itself."""
    return list(Round.objects.filter(benchmark=benchmark, revealed_at=None).order_by("opens_at", "pk"))


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


def timeline(row: Round, now: datetime) -> list[dict[str, Any]]:
    """Return opening, closing and reveal, in order; `when` is “past”, “next” for the first to come, or “to come”."""
    points = [("Opens", row.opens_at), ("Closes", row.closes_at)]
    points.append(
        ("Revealed", row.revealed_at) if row.revealed_at else ("Reveal, at the earliest", row.reveals_at)
    )
    steps, next_is_marked = [], False
    for label, moment in points:
        done = now >= moment and not (moment == row.reveals_at and row.revealed_at is None)
        when = "past" if done else "to come" if next_is_marked else "next"
        next_is_marked = next_is_marked or not done
        steps.append({"label": label, "moment": moment, "when": when, "how_far": relative_time(moment, now)})
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
