"""The words of notices: what happened, and what would be right. Plain text; no address of a person, nothing hidden."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.urls import reverse

from evaluation.core.problems import at_lines
from leaderboard.judgements.rescoring.switched import page_of
from leaderboard.judgements.rescoring.table import line_of
from leaderboard.models import Challenge, Entry, Rescore, Round
from leaderboard.rounds.lifecycle import utc
from submissions.jobs.retrying import RETRIES
from submissions.models import NoticeKind, State, Webhook
from submissions.notifications.outbox import Message
from submissions.quotas.counting import charges_of
from submissions.status.description import JobStatus, SubmissionStatus
from submissions.status.scores import NO_CHANGE
from submissions.status.standings import outcome_text

#: Of a long report so many problems are told; the status page has all.
PROBLEMS = 8

_SUBJECTS = {
    NoticeKind.FINISHED: "Scored: {what}",
    NoticeKind.REJECTED: "Not scored: {what}",
    NoticeKind.FAILED: "Failed: {what}",
}


def finished_message(kind: NoticeKind, status: SubmissionStatus) -> Message:
    """How a submission ended; the status is one with standings."""
    submission = status.submission
    system = submission.system.name
    named = f"{system} ({submission.configuration})" if submission.configuration else system
    datasets = list(dict.fromkeys(job.job.dataset.name for job in status.jobs))
    where = datasets[0] if len(datasets) == 1 else f"{len(datasets)} datasets"
    # The subject says what ended how: the text begins with what more there is to say.
    lines = [outcome_text(status)] if kind == NoticeKind.FINISHED else []
    lines += [_failure_text(job) for job in status.jobs if job.state not in (State.DONE, State.WITHDRAWN)]
    for cost in charges_of(submission, now=False):
        if cost.refunded:
            why = f", because {cost.refund_reason}" if cost.refund_reason else ""
            lines.append(f"It does not count towards the quota on {cost.dataset.name}{why}.")
    return Message(
        kind=kind,
        key=key_of_end(status),
        subject=_SUBJECTS[kind].format(what=f"{named} on {where}"),
        text="\n\n".join(lines),
        path=submission.get_absolute_url(),
    )


def key_of_end(status: SubmissionStatus) -> str:
    """What names the end of a submission: another one where it was tried again."""
    retries = max((job.job.payload.get(RETRIES, 0) for job in status.jobs), default=0)
    return f"submission-{status.submission.pk}" + (f"-{retries}" if retries else "")


def bulk_message(bulk: str, statuses: Sequence[SubmissionStatus]) -> Message:
    """How the submissions of a bulk import ended: how many are scored, and the first that are not, with why."""
    lost = [status for status in statuses if status.state != State.DONE]
    datasets = {job.job.dataset.name: None for status in statuses for job in status.jobs}
    scored = f"{len(statuses) - len(lost):,} of {len(statuses):,} runs"
    everything = "The run is scored." if len(statuses) == 1 else f"All {len(statuses):,} runs are scored."
    lines = [f"{scored} are scored." if lost else everything]
    lines += [
        f"{status.submission.system.name}\n{_failure_text(job)}"
        for status in lost[:PROBLEMS]
        for job in status.jobs
        if job.state not in (State.DONE, State.WITHDRAWN)
    ]
    if len(lost) > PROBLEMS:
        lines.append(f"And {len(lost) - PROBLEMS:,} more: the list of submissions has them.")
    return Message(
        kind=NoticeKind.REJECTED if lost else NoticeKind.FINISHED,
        key=f"bulk-{bulk}",
        subject=f"Scored: {scored} on {', '.join(datasets)}",
        text="\n\n".join(lines),
        path=reverse("submissions"),
    )


def _failure_text(job: JobStatus) -> str:
    """Why one dataset's part has no score, and what would be right."""
    file = f", {job.job.file_name}" if job.job.file_name else ""
    lines = [f"{job.job.dataset.name}{file}: {job.error or job.meaning}"]
    lines += [f"- {_problem_line(problem)}" for problem in job.problems[:PROBLEMS]]
    if len(job.problems) > PROBLEMS:
        lines.append(f"- and {len(job.problems) - PROBLEMS} more")
    if job.model.remedy:
        lines.append(job.model.remedy)
    return "\n".join(lines)


def _problem_line(problem: Mapping[str, Any]) -> str:
    where = at_lines(problem.get("lines") or (), problem.get("count", 0))
    hint = f" {problem['hint']}" if problem.get("hint") else ""
    return f"{problem['message']}{where}.{hint}".replace("..", ".")


def rescored_message(rescore: Rescore, outcomes: Sequence[str]) -> Message:
    """A dataset's board shows other judgements now. `outcomes`: a line for each of the person's own results."""
    dataset = rescore.dataset
    text = f"The judgements of {dataset.name} have grown, and every stored run was scored again."
    return Message(
        kind=NoticeKind.RESCORED,
        key=f"rescore-{rescore.pk}",
        subject=f"Rescored: {dataset.name}",
        text="\n\n".join([text, "\n".join(outcomes)]),
        path=page_of(rescore),
    )


def rescored_outcomes(rescore: Rescore, entries: Iterable[Entry]) -> Mapping[str, list[str]]:
    """By submission a line for each of its entries: the primary measure and the rank, old → new. Nothing new of what
    is held.
    """
    outcomes: dict[str, list[str]] = defaultdict(list)
    dataset, comparison = rescore.dataset, rescore.comparison
    if not comparison:
        return outcomes
    measure = comparison["primary"]
    moved = {row["entry"]: row for row in comparison["rows"]}
    stayed = {row["entry"]: row["why"] for row in comparison["stays"]}
    for entry in entries:
        name = f"{entry.system.name} ({entry.configuration})" if entry.configuration else entry.system.name
        if entry.visibility == Entry.Visibility.HELD:
            outcomes[entry.submission_reference].append(f"{name}: {NO_CHANGE}.")
        elif entry.pk in stayed:
            outcomes[entry.submission_reference].append(f"{name}: not rescored. {stayed[entry.pk]}")
        elif entry.pk in moved:
            line = line_of(moved[entry.pk], measure, hidden=dataset.hidden)
            text = f"{name}: {measure} {line.text['before']} → {line.text['after']}"
            if line.rank_before is not None and line.rank_after is not None:
                text += f", rank {line.rank_before} → {line.rank_after}"
            outcomes[entry.submission_reference].append(f"{text}.")
    return outcomes


def round_message(kind: NoticeKind, round_: Round) -> Message:
    """A round opens, closes soon, or was revealed."""
    subject, text = {
        NoticeKind.ROUND_OPENING: (
            f"Open: {round_}",
            f"{round_} takes runs for {_subject(round_)} until {utc(round_.closes_at)}: "
            f"{round_.runs_per_team} from each team.",
        ),
        NoticeKind.ROUND_CLOSING: (
            f"Closing soon: {round_}",
            f"{round_} closes at {utc(round_.closes_at)}. "
            + (
                "Runs that come later are taken and marked late."
                if round_.takes_late
                else "Later runs are refused."
            ),
        ),
        NoticeKind.ROUND_REVEALED: (
            f"Revealed: {round_}",
            f"The results of {round_} on {_subject(round_)} are revealed."
            + (" Its page leads to your team's scores by topic." if round_.per_topic_at_reveal else ""),
        ),
    }[kind]
    return Message(kind, f"round-{round_.pk}", subject, text, round_.get_absolute_url())


def challenge_message(challenge: Challenge) -> Message:
    """A system was challenged, or a challenge settled."""
    system, doubted = challenge.system, challenge.get_claim_display()
    where = f" on {challenge.dataset}" if challenge.dataset else ""
    if challenge.state == Challenge.State.OPEN:
        subject = f"Challenged: {system}"
        text = (
            f"Somebody doubts what {system} says{where}: {doubted}. Their reasons are on its page; a curator will "
            "settle it. You may correct what the system says of itself at any time."
        )
    else:
        subject = f"Challenge {challenge.get_state_display()}: {system}"
        text = f"The challenge of {system}{where} ({doubted}): {challenge.get_state_display()}."
        text += f"\n\n{challenge.decision}" if challenge.decision else ""
    key = f"challenge-{challenge.pk}-{challenge.state}"
    return Message(NoticeKind.CHALLENGED, key, subject, text, system.get_absolute_url())


def webhook_off_message(webhook: Webhook, days: int, since: datetime) -> Message:
    """A webhook was switched off because nothing that was sent to it arrived."""
    team = webhook.team
    text = (
        f"A webhook of {team.name} took nothing that was sent to it for {days} days, and was switched off. Its page "
        "says what it answered; there it can be switched on again."
    )
    key = f"webhook-{webhook.pk}-{since:%Y%m%dT%H%M%S}"
    subject = f"A webhook of {team.name} was switched off"
    return Message(NoticeKind.WEBHOOK_OFF, key, subject, text, reverse("webhooks", args=[team.slug]))


def _subject(round_: Round) -> str:
    return str(round_.dataset or round_.benchmark)
