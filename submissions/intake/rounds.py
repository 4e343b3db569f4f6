"""Admission to rounds: whether a submission may come now, as which of its team's runs, and what its team may change.

The page and the API, runs and models come through `check_admission`, under the locks of the quota: of two at once the
second one sees the first. A submission counts once in its round, however many of the round's datasets it is for. One
whose runs were all refused, cancelled or lost, or that was withdrawn, does not count: withdrawing before the round
closes frees its place. A place is taken of the team and of the person who sends: more teams give nobody more runs.
What comes late is marked, and takes no place.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from evaluation.core.problems import Problem, ProblemCode
from leaderboard.models import Dataset, Round, Team, User
from leaderboard.rounds.lifecycle import (
    Phase,
    announced_rounds,
    closed_reason,
    current_round,
    listed_datasets,
    phase,
    relative_time,
    utc,
    within_quota,
)
from submissions.intake.files import refuse
from submissions.models import Job, State, Submission

ROUND_NOT_OPEN = ProblemCode("round_not_open", "A round of the dataset is announced and has not opened.",
    "Send it from the opening on; the round's page says when, in UTC.", is_free=True)  # fmt: skip
ROUND_CLOSED = ProblemCode("round_closed", "The round has closed, and takes no late runs or changes of priority.",
    "After the reveal runs are taken again, outside of the round.", is_free=True)  # fmt: skip
ROUNDS_DIFFER = ProblemCode("rounds_differ", "The datasets of one submission are in different rounds, or some in "
    "none.", "Send what is for one round in one submission.", is_free=True)  # fmt: skip
ROUND_FULL = ProblemCode("round_full", "The team has sent as many runs as the round takes of each.",
    "Withdraw one before the round closes.", is_free=True)  # fmt: skip
RUN_TYPE_NEEDED = ProblemCode("run_type_needed", "The round asks whether the run is automatic or manual.",
    "Send run_type=automatic, or manual where somebody had a hand in queries or ranking.", is_free=True)  # fmt: skip
TAG_NEEDED = ProblemCode("tag_needed", "The round asks for a run tag, and neither request nor file has a usable one.",
    "Send tag=…, or write it as the last field of each line.", is_free=True)  # fmt: skip
INVALID_TAG = ProblemCode("invalid_tag", "The run tag has characters that it may not have, or too many.",
    "1 to 24 letters, digits, dots, hyphens and underscores.", is_free=True)  # fmt: skip
TAG_TAKEN = ProblemCode("tag_taken", "The team has a run with this tag in the round.", "Send another tag=….",
    is_free=True)  # fmt: skip
INVALID_PRIORITY = ProblemCode("invalid_priority", "The priority is no place among the team's runs.",
    "A whole number from 1 to the runs that the round takes of a team.", is_free=True)  # fmt: skip
PRIORITY_TAKEN = ProblemCode("priority_taken", "Another run of the team has this priority.", "Choose another, or "
    "change that one's first.", is_free=True)  # fmt: skip

#: What a run may be called: it stands in files, tables and footnotes.
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,23}")
#: How a run ends that is no run of its round.
LOST = (State.REJECTED, State.FAILED, State.CANCELLED, State.TIMED_OUT, State.WITHDRAWN)


@dataclass(frozen=True, slots=True)
class RoundEntry:
    """What a submitter says of a run for its round: `tag` empty, `priority` None and `run_type` empty if nothing."""

    tag: str = ""
    priority: int | None = None
    run_type: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """The admission of a submission to its round, if there is one, with the problems that prevent it."""

    round: Round | None = None
    late: bool = False
    priority: int | None = None
    problems: Sequence[Problem] = ()

    def columns(self) -> dict[str, Any]:
        """Return the values of the submission's columns."""
        return {"round": self.round, "late": self.late, "priority": self.priority}


@dataclass(frozen=True, slots=True)
class RoundStanding:
    """What a team has in a round, for the submit page; `used` counts what the person sent for other teams, if more."""

    round: Round
    datasets: Sequence[Dataset]
    phase: Phase
    used: int
    until: str

    @property
    def takes_runs(self) -> bool:
        """Whether runs may come now, late ones included."""
        return self.phase == Phase.OPEN or (self.phase == Phase.CLOSED and self.round.takes_late)

    @property
    def left(self) -> int:
        """How many more runs the person may send for the team."""
        return max(0, self.round.runs_per_team - self.used)

    @property
    def limited(self) -> bool:
        """Whether a dataset's quota counts beside the round's places."""
        return any(within_quota(self.round, dataset) is not None for dataset in self.datasets)


def counted_submissions(row: Round, **sender: Team | User | None) -> QuerySet[Submission]:
    """Return the submissions of a `team` or a `submitter` that take a place in the round, oldest first."""
    alive = Job.objects.filter(submission=OuterRef("pk")).exclude(state__in=LOST)
    counted = Submission.objects.filter(Exists(alive), round=row, late=False, withdrawn_at=None, **sender)
    return counted.order_by("created_at")


def check_admission(
    person: User,
    team: Team | None,
    datasets: Iterable[Dataset],
    entry: RoundEntry,
    tags: Sequence[str | None],
) -> Admission:
    """Return how a submission would enter its round, with every problem: they are reported together with its files'.

    `tags` are those of its files, None for one that nobody has read yet, empty for a model.
    """
    now = timezone.now()
    governing = {dataset: current_round(dataset, now) for dataset in dict.fromkeys(datasets)}
    rounds = {row.pk: row for row in governing.values() if row is not None}
    if not rounds:
        return Admission(priority=entry.priority, problems=_wrong_tag(entry))
    if len(rounds) > 1 or None in governing.values():
        listed = "; ".join(f"{dataset}: {row or 'in no round'}" for dataset, row in governing.items())
        hint = "Send what is for one round in one submission, and the others in another."
        problem = ROUNDS_DIFFER.problem(f"These datasets are not in one round: {listed}.", hint)
        return Admission(problems=[problem])
    row = next(iter(rounds.values()))
    if why := closed_reason(row, now):
        if phase(row, now) == Phase.BEFORE:
            hint = f"Check the file meanwhile: that stores nothing. The round closes at {utc(row.closes_at)}."
            return Admission(problems=[ROUND_NOT_OPEN.problem(why, hint)])
        hint = "Send it then: it will be outside of the round."
        return Admission(problems=[ROUND_CLOSED.problem(why, hint)])
    problems = _entry_problems(row, team, entry, tags)
    if phase(row, now) == Phase.CLOSED:
        return Admission(row, True, None, problems)
    priority, more = _place(row, person, team, entry.priority)
    return Admission(row, False, priority, [*problems, *more])


def readmit(submission: Submission) -> None:
    """Give a submission that we lost a place in its round again, with the next priority that is free.

    Raises Refused where none is left, or the round was revealed.
    """
    row, team = submission.round, submission.team
    if (
        row is None
        or submission.late
        or counted_submissions(row, team=team).filter(pk=submission.pk).exists()
    ):
        return
    if row.revealed_at is not None:
        hint = "Submit it again, outside of the round."
        refuse([ROUND_CLOSED.problem(f"{row} was revealed meanwhile.", hint)])
    priority, problems = _place(row, submission.submitter, team)
    refuse(problems)
    Submission.objects.filter(pk=submission.pk).update(priority=priority)


def _entry_problems(
    row: Round, team: Team | None, entry: RoundEntry, tags: Sequence[str | None]
) -> list[Problem]:
    """Return the problems of the run's type and tag, which a round needs."""
    problems = []
    if not entry.run_type:
        message = f"{row} asks whether the run is automatic or manual."
        hint = "Send run_type=automatic, or run_type=manual where a person had a hand in its queries or its ranking."
        problems.append(RUN_TYPE_NEEDED.problem(message, hint))
    if entry.tag:
        problems += _wrong_tag(entry)
    elif not tags or any(tag is None or not TAG.fullmatch(tag) for tag in tags):
        why = "the file is read later" if None in tags else "its file has none that can be used"
        message = f"{row} asks for a run tag, and {why if tags else 'none was given'}."
        hint = "Send tag=…: 1 to 24 letters, digits, dots, hyphens and underscores."
        problems.append(TAG_NEEDED.problem(message, hint))
    wanted = {entry.tag} if entry.tag else {tag for tag in tags if tag}
    jobs = Job.objects.filter(submission__round=row, submission__team=team).exclude(state__in=LOST)
    payloads = jobs.values_list("payload", flat=True)
    taken = {payload.get("run_tag") or payload.get("tag") for payload in payloads}
    for tag in sorted(wanted & taken):
        message = f"Your team has a run {tag} in {row} already."
        problems.append(TAG_TAKEN.problem(message, "Send another tag=…."))
    return problems


def _place(
    row: Round, person: User, team: Team | None, priority: int | None = None
) -> tuple[int | None, list[Problem]]:
    """Return the run's priority among its team's, and problems: no place is left, or the given one is taken."""
    there = list(counted_submissions(row, team=team))
    if len(there) >= row.runs_per_team:
        return None, [_full_problem(row, there, "of each team, and yours has sent")]
    own = list(counted_submissions(row, submitter=person))
    if len(own) >= row.runs_per_team:
        return None, [_full_problem(row, own, "of each person, over all teams, and you have sent")]
    taken = {each.priority for each in there}
    free = [number for number in range(1, row.runs_per_team + 1) if number not in taken]
    if priority is None or priority in free:
        return priority or free[0], []
    choose = f"Send one of {', '.join(map(str, free))}, or leave it out to get {free[0]}."
    if not 1 <= priority <= row.runs_per_team:
        message = f"Priority {priority} is not between 1 and {row.runs_per_team}, the runs of a team."
        return None, [INVALID_PRIORITY.problem(message, choose)]
    other = next(each for each in there if each.priority == priority)
    message = f"Priority {priority} is that of {other.get_absolute_url()}."
    return None, [PRIORITY_TAKEN.problem(message, choose)]


def _full_problem(row: Round, there: Sequence[Submission], whose: str) -> Problem:
    runs = "run" if row.runs_per_team == 1 else "runs"
    listed = ", ".join(each.get_absolute_url() for each in there)
    return ROUND_FULL.problem(
        f"{row} takes {row.runs_per_team} {runs} {whose} {len(there)}.",
        f"Withdraw one before the round closes at {utc(row.closes_at)}: {listed}.",
    )


def _wrong_tag(entry: RoundEntry) -> list[Problem]:
    if not entry.tag or TAG.fullmatch(entry.tag):
        return []
    hint = (
        "A tag has 1 to 24 letters, digits, dots, hyphens and underscores, and begins with a letter or digit."
    )
    return [INVALID_TAG.problem(f"“{entry.tag[:40]}” cannot be a run tag.", hint)]


def may_reorder(submission: Submission) -> bool:
    """Whether the submission's place among its team's runs may change now."""
    row = submission.round
    if row is None or submission.late or submission.withdrawn_at is not None:
        return False
    return phase(row, timezone.now()) == Phase.OPEN


def round_standings(person: User, team: Team | None) -> list[RoundStanding]:
    """Return the rounds that take runs, or will, with the standing of the person and the team, by opening."""
    now = timezone.now()
    taking = Dataset.objects.open_for_runs().values_list("pk", flat=True)
    standings = []
    for row in announced_rounds(taking):
        is_in = phase(row, now)
        used = counted_submissions(row, submitter=person).count()
        if team is not None:
            used = max(used, counted_submissions(row, team=team).count())
        moment = row.opens_at if is_in == Phase.BEFORE else row.closes_at
        verb = {Phase.BEFORE: "opens", Phase.OPEN: "closes"}.get(is_in, "closed")
        until = f"{verb} {relative_time(moment, now)}, {utc(moment)}"
        standings.append(RoundStanding(row, listed_datasets(row), is_in, used, until))
    return standings
