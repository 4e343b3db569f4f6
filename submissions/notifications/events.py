"""Events that people are told of, each once: submissions that ended, rounds that open or close soon, and events of
boards, which `leaderboard.core.work_requests.request_notice` stores as rows.

The notices, the messages to webhooks and the mark that the event was told are one transaction: a crash tells nobody, or
everybody once.
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
from leaderboard.judgements.rescoring.switched import page_of
from leaderboard.judgements.rescoring.table import line_of
from leaderboard.models import Challenge, Dataset, Entry, Membership, Rescore, Round, User, WorkRequest
from leaderboard.rounds.lifecycle import datasets_of, listed_rounds, utc
from submissions.jobs.changes import RETRIES
from submissions.models import TERMINAL, Job, NoticeKind, State, Submission
from submissions.notifications.inbox import Message, notify, team_members
from submissions.notifications.webhooks import has_webhooks, queue_delivery
from submissions.quotas.counting import charges_of
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

#: What ended longer ago is no news: what an older release never told of, or a site that was switched off.
NEWS_FOR = timedelta(days=3)
#: At most so many submissions at a time, so that everything else has its turn.
AT_A_TIME = 50
#: Of a team's rescored results so many are told one by one; the board has all.
OUTCOMES = 10
#: How long before its end a round is said to close. One that lasts no longer is announced when it opens, and no more.
BEFORE_CLOSING = timedelta(hours=24)

#: The kind and the subject of the notice on a submission's end. People know of what they ended themselves.
_ENDINGS = {
    State.DONE: (NoticeKind.FINISHED, gettext_noop("Scored: {what}")),
    State.REJECTED: (NoticeKind.REJECTED, gettext_noop("Not scored: {what}")),
    State.FAILED: (NoticeKind.FAILED, gettext_noop("Failed: {what}")),
    State.TIMED_OUT: (NoticeKind.FAILED, gettext_noop("Failed: {what}")),
}
#: So many problems of a long report are told; the status page has all.
PROBLEMS = 8
#: The announcements of a round.
ANNOUNCED = (NoticeKind.ROUND_OPENING, NoticeKind.ROUND_CLOSING)


def notify_finished() -> int:
    """Notify people of submissions whose jobs all ended, unless they have been told. Return how many ended."""
    bulks = sum(_notify_bulk(bulk) for bulk in finished_bulks())
    return bulks + _notify_each(_notify_submission, with_jobs(finished_submissions())[:AT_A_TIME])


def _notify_each(tell: Callable[[Any], bool], rows: Iterable[Any]) -> int:
    """Notify people of each row in its own transaction; a failure does not affect others. Return how many were told."""
    count = 0
    for row in rows:
        try:
            with transaction.atomic():
                count += tell(row)
        except Exception:
            logger.exception("%s %s: nobody could be notified", row._meta.verbose_name, row.pk)
    return count


def finished_submissions() -> QuerySet[Submission]:
    """Return submissions whose jobs all ended, without results that wait for their turn, and not yet told.

    Those of a bulk import are told together.
    """
    jobs = Job.objects.filter(submission=OuterRef("pk"))
    ended = Submission.objects.filter(*_all_finished(jobs), Exists(jobs), noticed_at=None, bulk="")
    return ended.order_by("created_at", "pk")


def finished_bulks() -> list[str]:
    """Return bulk imports whose jobs all ended and whose people have not been told."""
    jobs = Job.objects.filter(submission__bulk=OuterRef("bulk"))
    ended = Submission.objects.filter(*_all_finished(jobs), noticed_at=None).exclude(bulk="")
    return list(ended.order_by("bulk").values_list("bulk", flat=True).distinct())


def _all_finished(jobs: QuerySet[Job]) -> tuple[Any, Any]:
    """Return the conditions that no job is under way, and no result waits for its turn."""
    in_turn = jobs.filter(entry__visibility=Entry.Visibility.HELD, entry__due_at__lte=timezone.now())
    return ~Exists(jobs.exclude(state__in=TERMINAL)), ~Exists(in_turn)


@transaction.atomic
def _notify_bulk(bulk: str) -> int:
    """Send one notice of all of an import's submissions, unless another turn has; webhooks get each result."""
    submissions = list(with_jobs(Submission.objects.filter(bulk=bulk).order_by("created_at", "pk")))
    if not Submission.objects.filter(bulk=bulk, noticed_at=None).update(noticed_at=timezone.now()):
        return 0
    statuses = with_standings(describe(each, complete=True, compare=False) for each in submissions)
    notify(team_members([submissions[0].team]), _bulk_message(bulk, statuses))
    if has_webhooks(submissions[0].team):
        for status in statuses:
            _deliver_result(status)
    return len(statuses)


def _notify_submission(submission: Submission) -> bool:
    """Notify people of one submission, unless another turn has."""
    now = timezone.now()
    if not Submission.objects.filter(pk=submission.pk, noticed_at=None).update(noticed_at=now):
        return False
    status = describe_with_standing(submission, complete=True, compare=False)
    jobs = submission.jobs.all()
    ended = [job.finished_at for job in jobs if job.finished_at]
    # An entry is published later than its job ended where it waited for its turn.
    ended += [job.entry.published_at for job in jobs if job.entry is not None]
    if status.state in _ENDINGS and max(ended, default=now) > now - NEWS_FOR:
        notify(team_members([submission.team]), _finished_message(status))
        _deliver_result(status)
    return True


def _deliver_result(status: SubmissionStatus) -> None:
    queue_delivery(status.submission.team, "finished", _end_key(status), result_body(status))


def result_body(status: SubmissionStatus, dataset: Dataset | None = None) -> dict[str, Any]:
    """Return the body of a webhook's message: state, published scores, and the outcome in words.

    Args:
        status: the submission, described with standings.
        dataset: the only dataset to include, if given.
    """
    submission = status.submission
    parts = {
        part.jobs[0].job.dataset.slug: part
        for part in status.parts
        if dataset is None or part.jobs[0].job.dataset_id == dataset.pk
    }
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
    """Announce rounds that opened or close soon, unless they were. Return how many."""
    return sum(_notify_each(partial(_announce, kind), _unannounced(kind)) for kind in ANNOUNCED)


def has_announcements() -> bool:
    """Return whether `announce_rounds` would announce anything."""
    return any(_unannounced(kind) for kind in ANNOUNCED)


def _unannounced(kind: NoticeKind) -> list[Round]:
    """Return the open rounds that were not announced so, except those of a dataset that has no page yet."""
    now = timezone.now()
    rounds = listed_rounds().filter(opens_at__lte=now, closes_at__gt=now)
    if kind == NoticeKind.ROUND_CLOSING:
        rounds = rounds.filter(closes_at__lte=now + BEFORE_CLOSING)
    return [
        round_
        for round_ in rounds
        if kind.value not in round_.announced
        and (kind == NoticeKind.ROUND_OPENING or round_.closes_at - round_.opens_at > BEFORE_CLOSING)
    ]


def _announce(kind: NoticeKind, round_: Round) -> bool:
    row = Round.objects.select_for_update(no_key=True).get(pk=round_.pk)
    if kind.value in row.announced:
        return False
    announced = {**row.announced, kind.value: timezone.now().isoformat()}
    Round.objects.filter(pk=row.pk).update(announced=announced)
    notify(round_recipients(round_, kind), _round_message(kind, round_))
    return True


def round_recipients(round_: Round, kind: NoticeKind) -> list[User]:
    """Return people of teams that submitted to the round's datasets, and those who want to know of every round."""
    submitted = Submission.objects.filter(jobs__dataset__in=datasets_of(round_))
    teams = Membership.objects.filter(team__in=submitted.values("team"))
    wanted = Q(notice_preferences__kind=kind, notice_preferences__everywhere=True)
    concerned = Q(pk__in=teams.values("user")) | wanted
    return list(User.objects.filter(concerned, is_active=True).distinct().order_by("pk"))


def process_events() -> int:
    """Store notices for the requested events. Return how many events.

    The subject of an event may be gone by now; then nobody is told.
    """
    requests = WorkRequest.objects.filter(kind=WorkRequest.Kind.NOTIFY, taken_at=None)
    return _notify_each(_process_event, requests)


def _process_event(request: WorkRequest) -> bool:
    if not WorkRequest.objects.filter(pk=request.pk, taken_at=None).update(taken_at=timezone.now()):
        return False
    tell = _EVENTS.get(request.payload.get("event", ""))
    if tell is None:
        logger.error("the event of request %s is unknown", request.pk)
        return False
    tell(request.payload)
    return True


def _notify_rescored(payload: Mapping[str, Any]) -> None:
    """Notify teams with results on the dataset of their own results, and their webhooks of each result."""
    rescore = Rescore.objects.filter(pk=payload["rescore"]).select_related("dataset").first()
    if rescore is None or rescore.state != Rescore.State.SWITCHED:
        return
    entries = Entry.objects.filter(dataset=rescore.dataset).exclude(submission_reference="")
    entries = entries.exclude(visibility=Entry.Visibility.WITHDRAWN).select_related("system")
    submissions = Submission.objects.filter(pk__in=entries.values("submission_reference"), withdrawn_at=None)
    by_team: dict[int, list[Submission]] = defaultdict(list)
    for submission in submissions.select_related("system", "team").order_by("-created_at"):
        by_team[submission.team_id].append(submission)
    outcomes, name, page = _rescored_outcomes(rescore, entries), rescore.dataset.name, page_of(rescore)
    subject = _("Rescored: {dataset}").format(dataset=name)
    grown = _("The judgements of {dataset} have grown, and every stored run was scored again.")
    for person in team_members(by_team):
        teams = set(person.memberships.values_list("team", flat=True)) & set(by_team)
        # Of each team the newest submissions.
        latest = [submission for team in sorted(teams) for submission in by_team[team][:OUTCOMES]]
        lines = [line for submission in latest for line in outcomes.get(str(submission.pk), ())]
        text = "\n\n".join([grown.format(dataset=name), "\n".join(lines)])
        notify([person], Message(NoticeKind.RESCORED, f"rescore-{rescore.pk}", subject, text, page))
    for own in by_team.values():
        if has_webhooks(own[0].team):
            for submission in own:
                current = with_jobs(Submission.objects.filter(pk=submission.pk)).get()
                status = describe_with_standing(current, complete=True, compare=False)
                body = result_body(status, rescore.dataset)
                queue_delivery(submission.team, "rescored", f"rescore-{rescore.pk}-{submission.pk}", body)


def _notify_revealed(payload: Mapping[str, Any]) -> None:
    round_ = listed_rounds().filter(pk=payload["round"]).first()
    if round_ is not None and round_.revealed_at is not None:
        kind = NoticeKind.ROUND_REVEALED
        notify(round_recipients(round_, kind), _round_message(kind, round_))


def _notify_challenged(payload: Mapping[str, Any]) -> None:
    """Notify the system's team, and of the settlement also the person who raised the challenge."""
    known = Challenge.objects.select_related("system__team", "dataset", "raised_by")
    challenge = known.filter(pk=payload["challenge"]).first()
    if challenge is None:
        return
    people: dict[int, User] = {}
    if challenge.system.team is not None:
        people = {person.pk: person for person in team_members([challenge.system.team])}
    if challenge.state != Challenge.State.OPEN and challenge.raised_by.is_active:
        people.setdefault(challenge.raised_by_id, challenge.raised_by)
    notify(people.values(), _challenge_message(challenge))


_EVENTS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    NoticeKind.RESCORED.value: _notify_rescored,
    NoticeKind.ROUND_REVEALED.value: _notify_revealed,
    NoticeKind.CHALLENGED.value: _notify_challenged,
}


# --- the words of notices: plain text, without addresses of people and hidden results


def _finished_message(status: SubmissionStatus) -> Message:
    """Return the message on a submission that ended; the status is one with standings."""
    kind, subject = _ENDINGS[status.state]
    submission = status.submission
    system = submission.system.name
    named = f"{system} ({submission.configuration})" if submission.configuration else system
    datasets = list(dict.fromkeys(job.job.dataset.name for job in status.jobs))
    where = datasets[0] if len(datasets) == 1 else _("{n} datasets").format(n=len(datasets))
    # The subject says what ended how: the text begins with what more there is to say.
    lines = [outcome_text(status)] if kind == NoticeKind.FINISHED else []
    lines += [_failure_text(job) for job in status.jobs if job.lost]
    for cost in charges_of(submission, now=False):
        if not cost.is_counted:
            told = _("It does not count towards the quota on {dataset}.")
            if cost.refund_reason:
                told = _("It does not count towards the quota on {dataset}, because {why}.")
            lines.append(told.format(dataset=cost.dataset.name, why=cost.refund_reason))
    return Message(
        kind=kind,
        key=_end_key(status),
        subject=_(subject).format(what=_("{system} on {where}").format(system=named, where=where)),
        text="\n\n".join(lines),
        path=submission.get_absolute_url(),
    )


def _end_key(status: SubmissionStatus) -> str:
    """Return the name of a submission's end: a new one if it was tried again."""
    retries = max((job.job.payload.get(RETRIES, 0) for job in status.jobs), default=0)
    return f"submission-{status.submission.pk}" + (f"-{retries}" if retries else "")


def _bulk_message(bulk: str, statuses: Sequence[SubmissionStatus]) -> Message:
    """Return the message on a bulk import: the number of scored runs, and the first others, with reasons."""
    lost = [status for status in statuses if status.state != State.DONE]
    datasets = {job.job.dataset.name: None for status in statuses for job in status.jobs}
    scored = _("{n:,} of {all:,} runs").format(n=len(statuses) - len(lost), all=len(statuses))
    everything = ngettext("The run is scored.", "All {n:,} runs are scored.", len(statuses))
    lines = [_("{runs} are scored.").format(runs=scored) if lost else everything.format(n=len(statuses))]
    lines += [
        f"{status.submission.system.name}\n{_failure_text(job)}"
        for status in lost[:PROBLEMS]
        for job in status.jobs
        if job.lost
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
    """Return why one dataset's part has no score, and what to do."""
    file = f", {job.job.file_name}" if job.job.file_name else ""
    lines = [f"{job.job.dataset.name}{file}: {job.error or job.meaning}"]
    for problem in job.problems[:PROBLEMS]:
        where = at_lines(problem.get("lines") or (), problem.get("count", 0))
        hint = f" {problem['hint']}" if problem.get("hint") else ""
        lines.append(f"- {problem['message']}{where}.{hint}".replace("..", "."))
    if len(job.problems) > PROBLEMS:
        lines.append(_("- and {n} more").format(n=len(job.problems) - PROBLEMS))
    if job.model.remedy:
        lines.append(job.model.remedy)
    return "\n".join(lines)


def _rescored_outcomes(rescore: Rescore, entries: Iterable[Entry]) -> Mapping[str, list[str]]:
    """Return a line for each entry by submission: the primary measure and the rank, old → new.

    Nothing new is told of a held entry.
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


def _round_message(kind: NoticeKind, round_: Round) -> Message:
    """Return the message on a round that opens, closes soon, or was revealed."""
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
    values = {
        "round": round_,
        "subject": str(round_.dataset or round_.benchmark),
        "most": round_.runs_per_team,
        "late": late,
        "topics": topics,
    }
    text = text.format(end=utc(round_.closes_at), **values).strip()
    return Message(kind, f"round-{round_.pk}", subject.format(**values), text, round_.get_absolute_url())


def _challenge_message(challenge: Challenge) -> Message:
    """Return the message on a system that was challenged, or a challenge that was settled."""
    system, state = challenge.system, challenge.get_state_display()
    what = (
        _("{system} on {where}").format(system=system, where=challenge.dataset)
        if challenge.dataset
        else system
    )
    values = {"system": system, "what": what, "state": state, "doubted": challenge.get_claim_display()}
    if challenge.state == Challenge.State.OPEN:
        subject = _("Challenged: {system}")
        text = _(
            "Somebody doubts what is said of {what}: {doubted}. Their reasons are on its page; a curator will settle "
            "it. You may correct what the system says of itself at any time."
        )
    else:
        subject, text = _("Challenge {state}: {system}"), _("The challenge of {what} ({doubted}): {state}.")
    subject, text = subject.format(**values), text.format(**values)
    text += f"\n\n{challenge.decision}" if challenge.decision else ""
    key = f"challenge-{challenge.pk}-{challenge.state}"
    return Message(NoticeKind.CHALLENGED, key, subject, text, system.get_absolute_url())
