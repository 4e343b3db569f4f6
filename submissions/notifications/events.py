"""Events that users are notified of once: finished submissions, rounds, and events of boards.

Events of boards are rows stored by `leaderboard.core.work_requests.request_notice`. Notices, webhook messages, and the
mark of the event are written in one transaction, so that a crash cannot notify some users twice or not at all.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from evaluation.core.problems import at_lines
from leaderboard.core.http.site_url import default_site_address
from leaderboard.core.text.dates import format_moment
from leaderboard.judgements.rescoring.switched import rescore_page
from leaderboard.judgements.rescoring.table import build_line
from leaderboard.models import Challenge, Dataset, Entry, Membership, Rescore, Round, User, WorkRequest
from leaderboard.rounds.lifecycle import round_datasets
from submissions.jobs.changes import RETRIES
from submissions.models import TERMINAL, Job, NoticeKind, State, Submission
from submissions.notifications.inbox import Message, notify, team_members
from submissions.notifications.webhooks import has_webhooks, queue_delivery
from submissions.quotas.counting import get_charges
from submissions.status.description import (
    JobStatus,
    SubmissionStatus,
    describe,
    describe_with_standing,
    outcome_text,
    with_jobs,
    with_standings,
)
from submissions.status.scores import NO_CHANGE

logger = logging.getLogger(__name__)

#: Maximum age of events. Older ones occurred under an older release, or while the site was down.
MAX_EVENT_AGE = timedelta(days=3)
#: Maximum number of submissions processed at a time, so that other events are processed too.
BATCH_SIZE = 50
#: Maximum number of a team's rescored results listed in a notice; the board shows all.
MAX_OUTCOMES = 10
#: Time before its end at which a round is announced as closing; rounds that are shorter are announced only at opening.
CLOSING_NOTICE_PERIOD = timedelta(hours=24)

#: Kind and subject of the notice by state. Users are not notified of submissions that they canceled or withdrew.
_ENDINGS = {
    State.DONE: (NoticeKind.FINISHED, gettext_noop("Scored: {what}")),
    State.REJECTED: (NoticeKind.REJECTED, gettext_noop("Not scored: {what}")),
    State.FAILED: (NoticeKind.FAILED, gettext_noop("Failed: {what}")),
    State.TIMED_OUT: (NoticeKind.FAILED, gettext_noop("Failed: {what}")),
}
#: Maximum number of problems listed in a notice; the status page lists all.
MAX_PROBLEMS = 8
#: Kinds of announcements of a round.
ANNOUNCED_KINDS = (NoticeKind.ROUND_OPENING, NoticeKind.ROUND_CLOSING)


def notify_finished() -> int:
    """Notify users of finished submissions and bulk imports, once each; return the number of submissions."""
    bulk_count = sum(_notify_bulk(bulk) for bulk in finished_bulks())
    return bulk_count + _notify_each(_notify_submission, with_jobs(finished_submissions())[:BATCH_SIZE])


def _notify_each(notify_row: Callable[[Any], bool], rows: Iterable[Any]) -> int:
    """Call `notify_row` for each row in its own transaction, logging failures; return the number of successes."""
    count = 0
    for row in rows:
        try:
            with transaction.atomic():
                count += notify_row(row)
        except Exception:
            logger.exception("Could not notify users of %s %s", row._meta.verbose_name, row.pk)
    return count


def finished_submissions() -> QuerySet[Submission]:
    """Return finished submissions without a notice, except bulk imports and results that wait for their release."""
    jobs = Job.objects.filter(submission=OuterRef("pk"))
    submissions = Submission.objects.filter(*_all_finished(jobs), Exists(jobs), noticed_at=None, bulk="")
    return submissions.order_by("created_at", "pk")


def finished_bulks() -> list[str]:
    """Return finished bulk imports without a notice."""
    jobs = Job.objects.filter(submission__bulk=OuterRef("bulk"))
    submissions = Submission.objects.filter(*_all_finished(jobs), noticed_at=None).exclude(bulk="")
    return list(submissions.order_by("bulk").values_list("bulk", flat=True).distinct())


def _all_finished(jobs: QuerySet[Job]) -> tuple[Any, Any]:
    """Return conditions on submissions: all their `jobs` have ended, and no result waits for its release."""
    held_jobs = jobs.filter(entry__visibility=Entry.Visibility.HELD, entry__due_at__lte=timezone.now())
    return ~Exists(jobs.exclude(state__in=TERMINAL)), ~Exists(held_jobs)


@transaction.atomic
def _notify_bulk(bulk: str) -> int:
    """Notify the team of a bulk import with one notice, and queue each result for webhooks.

    Return the number of submissions, or 0 if another process has done so.
    """
    submissions = list(with_jobs(Submission.objects.filter(bulk=bulk).order_by("created_at", "pk")))
    if not Submission.objects.filter(bulk=bulk, noticed_at=None).update(noticed_at=timezone.now()):
        return 0
    statuses = with_standings(describe(submission, complete=True, compare=False) for submission in submissions)
    notify(team_members([submissions[0].team]), _bulk_message(bulk, statuses))
    if has_webhooks(submissions[0].team):
        for status in statuses:
            _deliver_result(status)
    return len(statuses)


def _notify_submission(submission: Submission) -> bool:
    """Notify the team of a finished submission, and queue the result for webhooks.

    Canceled, withdrawn, and old submissions are only marked. Return False if another process has notified the team.
    """
    now = timezone.now()
    if not Submission.objects.filter(pk=submission.pk, noticed_at=None).update(noticed_at=now):
        return False
    status = describe_with_standing(submission, complete=True, compare=False)
    jobs = submission.jobs.all()
    end_times = [job.finished_at for job in jobs if job.finished_at]
    # An entry that waited for its release is published later than its job ended.
    end_times += [job.entry.published_at for job in jobs if job.entry is not None]
    if status.state in _ENDINGS and max(end_times, default=now) > now - MAX_EVENT_AGE:
        notify(team_members([submission.team]), _finished_message(status))
        _deliver_result(status)
    return True


def _deliver_result(status: SubmissionStatus) -> None:
    queue_delivery(status.submission.team, "finished", _end_key(status), result_body(status))


def result_body(status: SubmissionStatus, dataset: Dataset | None = None) -> dict[str, Any]:
    """Return the body of a webhook message: the submission, its state, published scores, and the outcome in words.

    Args:
        status: Status of the submission with standings.
        dataset: The only dataset to include, if given.
    """
    submission = status.submission
    parts = {part.dataset.slug: part for part in status.parts if dataset in (None, part.dataset)}
    return {
        "submission": submission.pk,
        "system": submission.system.slug,
        "team": submission.team.slug,
        "url": default_site_address() + submission.get_absolute_url(),
        "state": status.state.value,
        "datasets": list(parts),
        "scores": {
            slug: {score.measure: score.value for score in (part.seeds or part.jobs[0]).scores}
            for slug, part in parts.items()
        },
        "outcome": outcome_text(status, dataset),
    }


def announce_rounds() -> int:
    """Announce rounds that opened or close soon, once each; return the number of announcements."""
    return sum(_notify_each(partial(_announce, kind), _rounds_to_announce(kind)) for kind in ANNOUNCED_KINDS)


def has_announcements() -> bool:
    return any(_rounds_to_announce(kind) for kind in ANNOUNCED_KINDS)


def _rounds_to_announce(kind: NoticeKind) -> list[Round]:
    """Return the open rounds without this announcement; for the closing of rounds, only those that close soon.

    The closing of short rounds is not announced.
    """
    now = timezone.now()
    rounds = Round.objects.listed().filter(opens_at__lte=now, closes_at__gt=now)
    if kind == NoticeKind.ROUND_CLOSING:
        rounds = rounds.filter(closes_at__lte=now + CLOSING_NOTICE_PERIOD)
    return [
        round_
        for round_ in rounds
        if kind.value not in round_.announced
        and (kind == NoticeKind.ROUND_OPENING or round_.closes_at - round_.opens_at > CLOSING_NOTICE_PERIOD)
    ]


def _announce(kind: NoticeKind, round_: Round) -> bool:
    """Notify users of the round's opening or closing. Return False if they were notified before."""
    row = Round.objects.select_for_update(no_key=True).get(pk=round_.pk)
    if kind.value in row.announced:
        return False
    Round.objects.filter(pk=row.pk).update(announced={**row.announced, kind.value: timezone.now().isoformat()})
    notify(round_recipients(round_, kind), _round_message(kind, round_))
    return True


def round_recipients(round_: Round, kind: NoticeKind) -> list[User]:
    """Return members of teams that submitted to the round's datasets, and users who follow all rounds."""
    submitted = Submission.objects.filter(jobs__dataset__in=round_datasets(round_))
    teams = Membership.objects.filter(team__in=submitted.values("team"))
    follows_all = Q(notice_preferences__kind=kind, notice_preferences__everywhere=True)
    is_recipient = Q(pk__in=teams.values("user")) | follows_all
    return list(User.objects.filter(is_recipient, is_active=True).distinct().order_by("pk"))


def process_events() -> int:
    """Store notices for the requested events; return the number of events.

    Events whose subject was deleted are skipped.
    """
    return _notify_each(_process_event, WorkRequest.objects.filter(kind=WorkRequest.Kind.NOTIFY, taken_at=None))


def _process_event(request: WorkRequest) -> bool:
    """Notify users of the event in the request. Return False if it was processed before or is unknown."""
    if not WorkRequest.objects.filter(pk=request.pk, taken_at=None).update(taken_at=timezone.now()):
        return False
    notify_row = _EVENTS.get(request.payload.get("event", ""))
    if notify_row is None:
        logger.error("Unknown event in request %s", request.pk)
        return False
    notify_row(request.payload)
    return True


def _notify_rescored(payload: Mapping[str, Any]) -> None:
    """Notify teams with results on the rescored dataset of old and new scores, and queue each result for webhooks.

    Nothing happens if the rescore was deleted or its scores are not in use.
    """
    rescore = Rescore.objects.filter(pk=payload["rescore"]).select_related("dataset").first()
    if rescore is None or rescore.state != Rescore.State.SWITCHED:
        return
    entries = Entry.objects.filter(dataset=rescore.dataset).exclude(submission_reference="")
    entries = entries.exclude(visibility=Entry.Visibility.WITHDRAWN).select_related("system")
    submissions = Submission.objects.filter(pk__in=entries.values("submission_reference"), withdrawn_at=None)
    by_team: dict[int, list[Submission]] = defaultdict(list)
    for submission in submissions.select_related("system", "team").order_by("-created_at"):
        by_team[submission.team_id].append(submission)
    outcomes, name, page = _rescored_outcomes(rescore, entries), rescore.dataset.name, rescore_page(rescore)
    subject = _("Rescored: {dataset}").format(dataset=name)
    introduction = _("The judgments of {dataset} have grown, and Runboard rescored all stored runs.")
    for person in team_members(by_team):
        teams = set(person.memberships.values_list("team", flat=True)) & set(by_team)
        # List the newest submissions of each team.
        newest_submissions = [submission for team in sorted(teams) for submission in by_team[team][:MAX_OUTCOMES]]
        lines = [line for submission in newest_submissions for line in outcomes.get(str(submission.pk), ())]
        text = "\n\n".join([introduction.format(dataset=name), "\n".join(lines)])
        notify([person], Message(NoticeKind.RESCORED, f"rescore-{rescore.pk}", subject, text, page))
    for team_submissions in by_team.values():
        if has_webhooks(team_submissions[0].team):
            for submission in team_submissions:
                current_submission = with_jobs(Submission.objects.filter(pk=submission.pk)).get()
                status = describe_with_standing(current_submission, complete=True, compare=False)
                body = result_body(status, rescore.dataset)
                queue_delivery(submission.team, "rescored", f"rescore-{rescore.pk}-{submission.pk}", body)


def _notify_revealed(payload: Mapping[str, Any]) -> None:
    round_ = Round.objects.listed().filter(pk=payload["round"]).first()
    if round_ is not None and round_.revealed_at is not None:
        kind = NoticeKind.ROUND_REVEALED
        notify(round_recipients(round_, kind), _round_message(kind, round_))


def _notify_challenged(payload: Mapping[str, Any]) -> None:
    """Notify the system's team and, after the challenge is settled, the user who raised it."""
    challenges = Challenge.objects.select_related("system__team", "dataset", "raised_by")
    challenge = challenges.filter(pk=payload["challenge"]).first()
    if challenge is None:
        return
    people: dict[int, User] = {}
    if challenge.system.team is not None:
        people = {person.pk: person for person in team_members([challenge.system.team])}
    if challenge.state != Challenge.State.OPEN and challenge.raised_by.is_active:
        people.setdefault(challenge.raised_by_id, challenge.raised_by)
    system, state = challenge.system, challenge.get_state_display()
    subject_label = (
        _("{system} on {where}").format(system=system, where=challenge.dataset) if challenge.dataset else system
    )
    values = {"system": system, "what": subject_label, "state": state, "doubted": challenge.get_claim_display()}
    if challenge.state == Challenge.State.OPEN:
        subject = _("Challenged: {system}")
        text = _(
            "A user disputes a claim about {what}: {doubted}. The system's page shows the reasons, and a curator will "
            "settle the challenge. You can correct the system's description at any time."
        )
    else:
        subject, text = _("Challenge {state}: {system}"), _("The challenge to {what} ({doubted}) was {state}.")
    subject, text = subject.format(**values), text.format(**values)
    text += f"\n\n{challenge.decision}" if challenge.decision else ""
    key = f"challenge-{challenge.pk}-{challenge.state}"
    notify(people.values(), Message(NoticeKind.CHALLENGED, key, subject, text, system.get_absolute_url()))


_EVENTS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    NoticeKind.RESCORED.value: _notify_rescored,
    NoticeKind.ROUND_REVEALED.value: _notify_revealed,
    NoticeKind.CHALLENGED.value: _notify_challenged,
}


# --- texts of notices: plain text, without addresses of users and hidden results


def _finished_message(status: SubmissionStatus) -> Message:
    """Return the message about a finished submission.

    It has the scores, the failures with remedies, and the datasets whose quota the submission does not use. The status
    must come from `with_standings`.
    """
    kind, subject = _ENDINGS[status.state]
    submission = status.submission
    system = submission.system.name
    system_label = f"{system} ({submission.configuration})" if submission.configuration else system
    datasets = list(dict.fromkeys(job.job.dataset.name for job in status.jobs))
    dataset_label = datasets[0] if len(datasets) == 1 else _("{n} datasets").format(n=len(datasets))
    # The subject states the outcome, so the text begins with details.
    lines = [outcome_text(status)] if kind == NoticeKind.FINISHED else []
    lines += [_failure_text(job) for job in status.jobs if job.lost]
    for charge in get_charges(submission, now=False):
        if not charge.is_counted:
            sentence = _("It does not count towards the quota on {dataset}.")
            if charge.refund_reason:
                sentence = _("It does not count towards the quota on {dataset}, because {why}.")
            lines.append(sentence.format(dataset=charge.dataset.name, why=charge.refund_reason))
    return Message(
        kind=kind,
        key=_end_key(status),
        subject=_(subject).format(what=_("{system} on {where}").format(system=system_label, where=dataset_label)),
        text="\n\n".join(lines),
        path=submission.get_absolute_url(),
    )


def _end_key(status: SubmissionStatus) -> str:
    """Return the key of the end of a submission, which differs for each retry."""
    retries = max((job.job.payload.get(RETRIES, 0) for job in status.jobs), default=0)
    return f"submission-{status.submission.pk}" + (f"-{retries}" if retries else "")


def _bulk_message(bulk: str, statuses: Sequence[SubmissionStatus]) -> Message:
    """Return the message about a bulk import: the number of scored runs, and the first failures with reasons."""
    failures = [status for status in statuses if status.state != State.DONE]
    datasets = {job.job.dataset.name: None for status in statuses for job in status.jobs}
    scored_runs = _("{n:,} of {all:,} runs").format(n=len(statuses) - len(failures), all=len(statuses))
    all_scored = ngettext("The run is scored.", "All {n:,} runs are scored.", len(statuses))
    lines = [_("{runs} are scored.").format(runs=scored_runs) if failures else all_scored.format(n=len(statuses))]
    lines += [
        f"{status.submission.system.name}\n{_failure_text(job)}"
        for status in failures[:MAX_PROBLEMS]
        for job in status.jobs
        if job.lost
    ]
    if len(failures) > MAX_PROBLEMS:
        lines.append(_("And {n:,} more. See the list of submissions.").format(n=len(failures) - MAX_PROBLEMS))
    return Message(
        kind=NoticeKind.REJECTED if failures else NoticeKind.FINISHED,
        key=f"bulk-{bulk}",
        subject=_("Scored: {runs} on {datasets}").format(runs=scored_runs, datasets=", ".join(datasets)),
        text="\n\n".join(lines),
        path=reverse("submissions"),
    )


def _failure_text(job: JobStatus) -> str:
    """Return why a job has no score, with its first problems, and what to do."""
    file = f", {job.job.file_name}" if job.job.file_name else ""
    lines = [f"{job.job.dataset.name}{file}: {job.error or job.meaning}"]
    for problem in job.problems[:MAX_PROBLEMS]:
        lines_text = at_lines(problem.get("lines") or (), problem.get("count", 0))
        hint = f" {problem['hint']}" if problem.get("hint") else ""
        lines.append(f"- {problem['message']}{lines_text}.{hint}".replace("..", "."))
    if len(job.problems) > MAX_PROBLEMS:
        lines.append(_("- and {n} more").format(n=len(job.problems) - MAX_PROBLEMS))
    if job.model.remedy:
        lines.append(job.model.remedy)
    return "\n".join(lines)


def _rescored_outcomes(rescore: Rescore, entries: Iterable[Entry]) -> Mapping[str, list[str]]:
    """Return lines about each submission's entries after a rescore, keyed by submission id.

    A line has the old and new value of the primary measure and the ranks, or the reason why the entry was not rescored.
    Lines of withheld entries contain no new score.
    """
    outcomes: dict[str, list[str]] = defaultdict(list)
    dataset, comparison = rescore.dataset, rescore.comparison
    if not comparison:
        return outcomes
    measure = comparison["primary"]
    rescored_rows = {row["entry"]: row for row in comparison["rows"]}
    unchanged_reasons = {row["entry"]: row["why"] for row in comparison["stays"]}
    for entry in entries:
        name = f"{entry.system.name} ({entry.configuration})" if entry.configuration else entry.system.name
        lines = outcomes[entry.submission_reference]
        if entry.visibility == Entry.Visibility.HELD:
            lines.append(f"{name}: {NO_CHANGE}.")
        elif entry.pk in unchanged_reasons:
            lines.append(_("{name}: not rescored. {why}").format(name=name, why=unchanged_reasons[entry.pk]))
        elif entry.pk in rescored_rows:
            line = build_line(rescored_rows[entry.pk], measure, hidden=dataset.hidden)
            text = f"{name}: {measure} {line.text['before']} → {line.text['after']}"
            if line.rank_before is not None and line.rank_after is not None:
                text += _(", rank {old} → {new}").format(old=line.rank_before, new=line.rank_after)
            lines.append(f"{text}.")
    return outcomes


def _round_message(kind: NoticeKind, round_: Round) -> Message:
    """Return the message about a round that opens, closes soon, or was revealed, according to `kind`."""
    late_policy = _("Later runs are accepted and marked late.") if round_.takes_late else _("Later runs are refused.")
    topics = _("The page of the round links to your team's scores by topic.") if round_.per_topic_at_reveal else ""
    subject, text = {
        NoticeKind.ROUND_OPENING: (
            _("Open: {round}"),
            _("{round} accepts runs for {subject} until {end}. Runs per team: {most}."),
        ),
        NoticeKind.ROUND_CLOSING: (_("Closing soon: {round}"), _("{round} closes at {end}. {late}")),
        NoticeKind.ROUND_REVEALED: (
            _("Revealed: {round}"),
            _("The results of {round} on {subject} are revealed. {topics}"),
        ),
    }[kind]
    values = {
        "round": round_,
        "subject": str(round_.dataset or round_.benchmark),
        "most": round_.runs_per_team,
        "late": late_policy,
        "topics": topics,
    }
    text = text.format(end=format_moment(round_.closes_at), **values).strip()
    return Message(kind, f"round-{round_.pk}", subject.format(**values), text, round_.get_absolute_url())
