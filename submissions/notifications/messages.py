"""The words of notices: what happened, and what would be right. Plain text; no address of a person, nothing hidden."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from evaluation.core.problems import at_lines
from leaderboard.judgements.rescoring.switched import page_of
from leaderboard.judgements.rescoring.table import line_of
from leaderboard.models import Challenge, Entry, Rescore, Round
from leaderboard.rounds.lifecycle import utc
from submissions.jobs.changes import RETRIES
from submissions.models import NoticeKind, State, Webhook
from submissions.notifications.outbox import Message
from submissions.quotas.counting import charges_of
from submissions.status.description import JobStatus, SubmissionStatus
from submissions.status.scores import NO_CHANGE
from submissions.status.standings import outcome_text

#: Of a long report so many problems are told; the status page has all.
PROBLEMS = 8

_SUBJECTS = {
    NoticeKind.FINISHED: gettext_noop("Scored: {what}"),
    NoticeKind.REJECTED: gettext_noop("Not scored: {what}"),
    NoticeKind.FAILED: gettext_noop("Failed: {what}"),
}


def finished_message(kind: NoticeKind, status: SubmissionStatus) -> Message:
    """How a submission ended; the status is one with standings."""
    submission = status.submission
    system = submission.system.name
    named = f"{system} ({submission.configuration})" if submission.configuration else system
    datasets = list(dict.fromkeys(job.job.dataset.name for job in status.jobs))
    where = datasets[0] if len(datasets) == 1 else _("{n} datasets").format(n=len(datasets))
    # The subject says what ended how: the text begins with what more there is to say.
    lines = [outcome_text(status)] if kind == NoticeKind.FINISHED else []
    lines += [_failure_text(job) for job in status.jobs if job.state not in (State.DONE, State.WITHDRAWN)]
    for cost in charges_of(submission, now=False):
        if not cost.is_counted:
            told = _("It does not count towards the quota on {dataset}.")
            if cost.refund_reason:
                told = _("It does not count towards the quota on {dataset}, because {why}.")
            lines.append(told.format(dataset=cost.dataset.name, why=cost.refund_reason))
    return Message(
        kind=kind,
        key=key_of_end(status),
        subject=_(_SUBJECTS[kind]).format(what=_("{system} on {where}").format(system=named, where=where)),
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
    scored = _("{n:,} of {all:,} runs").format(n=len(statuses) - len(lost), all=len(statuses))
    everything = ngettext("The run is scored.", "All {n:,} runs are scored.", len(statuses))
    lines = [_("{runs} are scored.").format(runs=scored) if lost else everything.format(n=len(statuses))]
    lines += [
        f"{status.submission.system.name}\n{_failure_text(job)}"
        for status in lost[:PROBLEMS]
        for job in status.jobs
        if job.state not in (State.DONE, State.WITHDRAWN)
    ]
    if len(lost) > PROBLEMS:
        lines.append(_("And {n:,} more: the list of submissions has them.").format(n=len(lost) - PROBLEMS))
    return Message(
        kind=NoticeKind.REJECTED if lost else NoticeKind.FINISHED,
        key=f"bulk-{bulk}",
        subject=_("Scored: {runs} on {datasets}").format(runs=scored, datasets=", ".join(datasets)),
        text="\n\n".join(lines),
        path=reverse("submissions"),
    )


def _failure_text(job: JobStatus) -> str:
    """Why one dataset's part has no score, and what would be right."""
    file = f", {job.job.file_name}" if job.job.file_name else ""
    lines = [f"{job.job.dataset.name}{file}: {job.error or job.meaning}"]
    lines += [f"- {_problem_line(problem)}" for problem in job.problems[:PROBLEMS]]
    if len(job.problems) > PROBLEMS:
        lines.append(_("- and {n} more").format(n=len(job.problems) - PROBLEMS))
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
    text = _("The judgements of {dataset} have grown, and every stored run was scored again.")
    return Message(
        kind=NoticeKind.RESCORED,
        key=f"rescore-{rescore.pk}",
        subject=_("Rescored: {dataset}").format(dataset=dataset.name),
        text="\n\n".join([text.format(dataset=dataset.name), "\n".join(outcomes)]),
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
            outcomes[entry.submission_reference].append(
                _("{name}: not rescored. {why}").format(name=name, why=stayed[entry.pk])
            )
        elif entry.pk in moved:
            line = line_of(moved[entry.pk], measure, hidden=dataset.hidden)
            text = f"{name}: {measure} {line.text['before']} → {line.text['after']}"
            if line.rank_before is not None and line.rank_after is not None:
                text += _(", rank {old} → {new}").format(old=line.rank_before, new=line.rank_after)
            outcomes[entry.submission_reference].append(f"{text}.")
    return outcomes


def round_message(kind: NoticeKind, round_: Round) -> Message:
    """A round opens, closes soon, or was revealed."""
    late = (
        _("Runs that come later are taken and marked late.")
        if round_.takes_late
        else _("Later runs are refused.")
    )
    topics = _("Its page leads to your team's scores by topic.") if round_.per_topic_at_reveal else ""
    subject, text = {
        NoticeKind.ROUND_OPENING: (
            _("Open: {round}"),
            _("{round} takes runs for {subject} until {end}: {most} from each team."),
        ),
        NoticeKind.ROUND_CLOSING: (_("Closing soon: {round}"), _("{round} closes at {end}. {late}")),
        NoticeKind.ROUND_REVEALED: (
            _("Revealed: {round}"),
            _("The results of {round} on {subject} are revealed. {topics}"),
        ),
    }[kind]
    said = {
        "round": round_,
        "subject": _subject(round_),
        "most": round_.runs_per_team,
        "late": late,
        "topics": topics,
    }
    text = text.format(end=utc(round_.closes_at), **said).strip()
    return Message(kind, f"round-{round_.pk}", subject.format(**said), text, round_.get_absolute_url())


def challenge_message(challenge: Challenge) -> Message:
    """A system was challenged, or a challenge settled."""
    system, state = challenge.system, challenge.get_state_display()
    what = (
        _("{system} on {where}").format(system=system, where=challenge.dataset)
        if challenge.dataset
        else system
    )
    said = {"system": system, "what": what, "state": state, "doubted": challenge.get_claim_display()}
    if challenge.state == Challenge.State.OPEN:
        subject = _("Challenged: {system}")
        text = _(
            "Somebody doubts what is said of {what}: {doubted}. Their reasons are on its page; a curator will settle "
            "it. You may correct what the system says of itself at any time."
        )
    else:
        subject, text = _("Challenge {state}: {system}"), _("The challenge of {what} ({doubted}): {state}.")
    subject, text = subject.format(**said), text.format(**said)
    text += f"\n\n{challenge.decision}" if challenge.decision else ""
    key = f"challenge-{challenge.pk}-{challenge.state}"
    return Message(NoticeKind.CHALLENGED, key, subject, text, system.get_absolute_url())


def webhook_off_message(webhook: Webhook, days: int, since: datetime) -> Message:
    """A webhook was switched off because nothing that was sent to it arrived."""
    team = webhook.team
    text = _(
        "A webhook of {team} took nothing that was sent to it for {days} days, and was switched off. Its page "
        "says what it answered; there it can be switched on again."
    ).format(team=team.name, days=days)
    key = f"webhook-{webhook.pk}-{since:%Y%m%dT%H%M%S}"
    subject = _("A webhook of {team} was switched off").format(team=team.name)
    return Message(NoticeKind.WEBHOOK_OFF, key, subject, text, reverse("webhooks", args=[team.slug]))


def _subject(round_: Round) -> str:
    return str(round_.dataset or round_.benchmark)
