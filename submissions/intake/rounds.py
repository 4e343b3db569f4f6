"""Admission to rounds: timing, places, run tags, and priorities.

Submissions of runs and of models call `check_admission` while holding the quota locks, so that concurrent requests
count each other. A submission uses one place in its round, even if it covers several of the round's datasets. Withdrawn
submissions and submissions without a surviving run use none, so withdrawing before the round closes frees a place.
Places are limited per team and per user, so that users cannot get more runs by creating teams. Late submissions are
marked and use no place.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from evaluation.core.problems import Problem, ProblemCode
from leaderboard.core.text.dates import format_moment
from leaderboard.models import Dataset, Round, Team, User
from leaderboard.rounds.lifecycle import (
    Phase,
    announced_rounds,
    closed_reason,
    current_round,
    listed_datasets,
    phase,
    relative_time,
    within_quota,
)
from submissions.intake.files import refuse
from submissions.models import Job, State, Submission

ROUND_NOT_OPEN = ProblemCode("round_not_open", "A round of the dataset is announced but has not opened.",
    "Submit after the round has opened. Its page shows the opening time in UTC.", is_free=True)  # fmt: skip
ROUND_CLOSED = ProblemCode(
    "round_closed", "The round has closed and accepts no late runs or changes of priority.",
    "Submit after the reveal, outside of the round.", is_free=True,
)  # fmt: skip
ROUNDS_DIFFER = ProblemCode(
    "rounds_differ", "The datasets of the submission are in different rounds, or some in none.",
    "Send one submission per round.", is_free=True,
)  # fmt: skip
ROUND_FULL = ProblemCode("round_full", "The team has submitted the maximum number of runs for the round.",
    "Withdraw one before the round closes.", is_free=True)  # fmt: skip
RUN_TYPE_NEEDED = ProblemCode("run_type_needed", "The round requires the type of the run.",
    "Send run_type=automatic, or manual if queries or ranking involved human intervention.", is_free=True)  # fmt: skip
TAG_NEEDED = ProblemCode(
    "tag_needed", "The round requires a run tag, but neither request nor file has a valid one.",
    "Send tag=…, or write the tag as the last field of each line.", is_free=True,
)  # fmt: skip
INVALID_TAG = ProblemCode("invalid_tag", "The run tag has invalid characters or is too long.",
    "Use 1 to 24 letters, digits, dots, hyphens, and underscores.", is_free=True)  # fmt: skip
TAG_TAKEN = ProblemCode(
    "tag_taken", "The team already has a run with this tag in the round.", "Send another tag=….", is_free=True,
)  # fmt: skip
INVALID_PRIORITY = ProblemCode("invalid_priority", "The priority is not in the range of the team's runs.",
    "Send a number from 1 to the number of runs per team.", is_free=True)  # fmt: skip
PRIORITY_TAKEN = ProblemCode(
    "priority_taken", "Another run of the team has this priority.",
    "Choose another one, or change the priority of the other run first.", is_free=True,
)  # fmt: skip

#: Format of run tags, which appear in files, tables, and footnotes.
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,23}")
#: States in which a job's run uses no place in its round.
LOST_STATES = (State.REJECTED, State.FAILED, State.CANCELLED, State.TIMED_OUT, State.WITHDRAWN)


@dataclass(frozen=True, slots=True)
class RoundEntry:
    """Tag, priority, and type of a run in a round. Empty fields and None are unspecified."""

    tag: str = ""
    priority: int | None = None
    run_type: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """Admission of a submission to its round, if any, with the problems that prevent it."""

    round: Round | None = None
    late: bool = False
    priority: int | None = None
    problems: Sequence[Problem] = ()

    def columns(self) -> dict[str, Any]:
        return {"round": self.round, "late": self.late, "priority": self.priority}


@dataclass(frozen=True, slots=True)
class RoundStanding:
    """A team's usage of a round, for the submit page. `used` is the larger of the user's and the team's count."""

    round: Round
    datasets: Sequence[Dataset]
    phase: Phase
    used: int
    until: str

    @property
    def takes_runs(self) -> bool:
        """Whether runs can be submitted now, possibly as late ones."""
        return self.phase == Phase.OPEN or (self.phase == Phase.CLOSED and self.round.takes_late)

    @property
    def limited(self) -> bool:
        """Whether the quota of a dataset applies in addition to the round's limit."""
        return any(within_quota(self.round, dataset) is not None for dataset in self.datasets)


def counted_submissions(row: Round, **sender: Team | User | None) -> QuerySet[Submission]:
    """Return the submissions of a `team` or `submitter` that use a place in the round, oldest first."""
    surviving_jobs = Job.objects.filter(submission=OuterRef("pk")).exclude(state__in=LOST_STATES)
    submissions = Submission.objects.filter(Exists(surviving_jobs), round=row, late=False, withdrawn_at=None, **sender)
    return submissions.order_by("created_at")


def check_admission(
    person: User,
    team: Team | None,
    datasets: Iterable[Dataset],
    entry: RoundEntry,
    tags: Sequence[str | None],
) -> Admission:
    """Return the submission's admission to the current round of its datasets, with all problems that prevent it.

    All datasets must be in the same round, or none in a round. The round must accept runs. Its requirements, the limits
    on runs, and the priority are checked. `tags` are the tags of the files: None for a file that was not read yet; no
    tags for a model.
    """
    now = timezone.now()
    rounds_by_dataset = {dataset: current_round(dataset, now) for dataset in dict.fromkeys(datasets)}
    rounds = {row.pk: row for row in rounds_by_dataset.values() if row is not None}
    if not rounds:
        return Admission(priority=entry.priority, problems=_tag_problems(entry))
    if len(rounds) > 1 or None in rounds_by_dataset.values():
        dataset_rounds = "; ".join(f"{dataset}: {row or 'in no round'}" for dataset, row in rounds_by_dataset.items())
        hint = "Send one submission per round, and another one for datasets without a round."
        problem = ROUNDS_DIFFER.problem(f"These datasets are not in the same round: {dataset_rounds}.", hint)
        return Admission(problems=[problem])
    row = next(iter(rounds.values()))
    if reason := closed_reason(row, now):
        if phase(row, now) == Phase.BEFORE:
            closes_at = format_moment(row.closes_at)
            hint = f"You can validate the file now without submitting it. The round closes at {closes_at}."
            return Admission(problems=[ROUND_NOT_OPEN.problem(reason, hint)])
        hint = "Submit then; the run will be outside of the round."
        return Admission(problems=[ROUND_CLOSED.problem(reason, hint)])
    problems = list(_entry_problems(row, team, entry, tags))
    if phase(row, now) == Phase.CLOSED:
        return Admission(row, True, None, problems)
    priority, place_problems = _assign_priority(row, person, team, entry.priority)
    return Admission(row, False, priority, [*problems, *place_problems])


def readmit(submission: Submission) -> None:
    """Restore the place of a submission that failed on our side, with the lowest free priority.

    Submissions without a round, late ones, and those that still have a place are not changed. Raises Refused if no
    place is free or the round was revealed.
    """
    row, team = submission.round, submission.team
    if row is None or submission.late or counted_submissions(row, team=team).filter(pk=submission.pk).exists():
        return
    if row.revealed_at is not None:
        hint = "Submit it again, outside of the round."
        refuse([ROUND_CLOSED.problem(f"{row} has been revealed in the meantime.", hint)])
    priority, problems = _assign_priority(row, submission.submitter, team)
    refuse(problems)
    Submission.objects.filter(pk=submission.pk).update(priority=priority)


def _entry_problems(row: Round, team: Team | None, entry: RoundEntry, tags: Sequence[str | None]) -> Iterator[Problem]:
    """Yield the problems of the run's type and tag, which the round requires.

    The tag must be well-formed and not used by another run of the team in the round.
    """
    if not entry.run_type:
        message = f"{row} requires the type of the run."
        hint = "Send run_type=automatic, or run_type=manual if queries or ranking involved human intervention."
        yield RUN_TYPE_NEEDED.problem(message, hint)
    has_valid_tags = bool(tags) and all(tag is not None and TAG.fullmatch(tag) for tag in tags)
    if entry.tag:
        yield from _tag_problems(entry)
    elif not has_valid_tags:
        reason = "the file is only read later" if None in tags else "the file has no valid one"
        message = f"{row} requires a run tag, but {reason if tags else 'none was sent'}."
        hint = "Send tag=… with 1 to 24 letters, digits, dots, hyphens, and underscores."
        yield TAG_NEEDED.problem(message, hint)
    run_tags = {entry.tag} if entry.tag else {tag for tag in tags if tag}
    jobs = Job.objects.filter(submission__round=row, submission__team=team).exclude(state__in=LOST_STATES)
    used_tags = {payload.get("run_tag") or payload.get("tag") for payload in jobs.values_list("payload", flat=True)}
    for tag in sorted(run_tags & used_tags):
        yield TAG_TAKEN.problem(f"Your team already has a run {tag} in {row}.", "Send another tag=….")


def _assign_priority(
    row: Round, person: User, team: Team | None, priority: int | None = None
) -> tuple[int | None, list[Problem]]:
    """Return the run's priority, or None, and the problem that prevents it, if any.

    Problems: the team has no place left, the user has none left over all teams, or `priority` is out of range or taken.
    By default, the run gets the lowest free priority.
    """
    team_submissions = list(counted_submissions(row, team=team))
    if len(team_submissions) >= row.runs_per_team:
        return None, [_full_problem(row, team_submissions, "per team, and yours has submitted")]
    user_submissions = list(counted_submissions(row, submitter=person))
    if len(user_submissions) >= row.runs_per_team:
        return None, [_full_problem(row, user_submissions, "per user over all teams, and you have submitted")]
    used_priorities = {submission.priority for submission in team_submissions}
    free_priorities = [number for number in range(1, row.runs_per_team + 1) if number not in used_priorities]
    if priority is None or priority in free_priorities:
        return priority or free_priorities[0], []
    hint = f"Send one of {', '.join(map(str, free_priorities))}, or omit the priority to get {free_priorities[0]}."
    if not 1 <= priority <= row.runs_per_team:
        message = f"Priority {priority} is not between 1 and {row.runs_per_team}, the number of runs per team."
        return None, [INVALID_PRIORITY.problem(message, hint)]
    other_submission = next(submission for submission in team_submissions if submission.priority == priority)
    message = f"Priority {priority} belongs to {other_submission.get_absolute_url()}."
    return None, [PRIORITY_TAKEN.problem(message, hint)]


def _full_problem(row: Round, submissions: Sequence[Submission], scope: str) -> Problem:
    """Build the problem that no place is left in the round. `submissions` use the places."""
    runs = "run" if row.runs_per_team == 1 else "runs"
    addresses = ", ".join(submission.get_absolute_url() for submission in submissions)
    return ROUND_FULL.problem(
        f"{row} accepts {row.runs_per_team} {runs} {scope} {len(submissions)}.",
        f"Withdraw one before the round closes at {format_moment(row.closes_at)}: {addresses}.",
    )


def _tag_problems(entry: RoundEntry) -> list[Problem]:
    """Return a problem if the entry has a malformed run tag."""
    if not entry.tag or TAG.fullmatch(entry.tag):
        return []
    hint = "Use 1 to 24 letters, digits, dots, hyphens, and underscores; start with a letter or digit."
    return [INVALID_TAG.problem(f"“{entry.tag[:40]}” is not a valid run tag.", hint)]


def may_reorder(submission: Submission) -> bool:
    """Return whether the submission's priority can change now."""
    row = submission.round
    if row is None or submission.late or submission.withdrawn_at is not None:
        return False
    return phase(row, timezone.now()) == Phase.OPEN


def round_standings(person: User, team: Team | None) -> list[RoundStanding]:
    """Return the open and announced rounds with the usage of the user and the team, in the order of opening."""
    now = timezone.now()
    open_datasets = Dataset.objects.open_for_runs().values_list("pk", flat=True)
    standings = []
    for row in announced_rounds(open_datasets):
        current_phase = phase(row, now)
        used = counted_submissions(row, submitter=person).count()
        if team is not None:
            used = max(used, counted_submissions(row, team=team).count())
        moment = row.opens_at if current_phase == Phase.BEFORE else row.closes_at
        verb = {Phase.BEFORE: "opens", Phase.OPEN: "closes"}.get(current_phase, "closed")
        deadline = f"{verb} {relative_time(moment, now)}, {format_moment(moment)}"
        standings.append(RoundStanding(row, listed_datasets(row), current_phase, used, deadline))
    return standings
