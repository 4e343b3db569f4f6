"""Finds what there is to tell people, and writes it down, each event once: submissions that ended, rounds that open or
close soon, and what boards cause, which `leaderboard.core.work_requests.request_notice` asks for as rows.

The notices, the messages to webhooks and the mark that the event was told are one transaction: a crash tells nobody, or
everybody once.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from leaderboard.core.http.site_url import own_address
from leaderboard.models import Challenge, Dataset, Entry, Membership, Rescore, Round, User, WorkRequest
from leaderboard.rounds.lifecycle import datasets_of, listed_rounds
from submissions.models import TERMINAL, Job, NoticeKind, State, Submission
from submissions.notifications import messages
from submissions.notifications.outbox import notify, team_members
from submissions.notifications.webhooks import has_webhooks, queue_delivery
from submissions.status.description import SubmissionStatus, describe, with_jobs
from submissions.status.standings import describe_with_standing, outcome_text, with_standings

logger = logging.getLogger(__name__)

#: What ended longer ago is no news: what an older release never told of, or a site that was switched off.
NEWS_FOR = timedelta(days=3)
#: At most so many submissions at a time, so that everything else has its turn.
AT_A_TIME = 50
#: Of a team's rescored results so many are told one by one; the board has all.
OUTCOMES = 10
#: How long before its end a round is said to close. One that lasts no longer is announced when it opens, and no more.
BEFORE_CLOSING = timedelta(hours=24)

#: What a submission's end is, as a kind of notice. What its people ended themselves they know.
KINDS = {
    State.DONE: NoticeKind.FINISHED,
    State.REJECTED: NoticeKind.REJECTED,
    State.FAILED: NoticeKind.FAILED,
    State.TIMED_OUT: NoticeKind.FAILED,
}
#: What a round is announced as.
ANNOUNCED = (NoticeKind.ROUND_OPENING, NoticeKind.ROUND_CLOSING)


def notify_finished() -> int:
    """Tell of every submission whose jobs all ended and whose people have not been told. Returns how many ended."""
    bulks = sum(_notify_bulk(bulk) for bulk in finished_bulks())
    return bulks + _notify_each(_notify_submission, with_jobs(finished_submissions())[:AT_A_TIME])


def _notify_each(tell: Callable[[Any], bool], rows: Iterable[Any]) -> int:
    """Tell of each in a transaction of its own; a fault keeps no other from being told. Returns how many were told."""
    count = 0
    for row in rows:
        try:
            with transaction.atomic():
                count += tell(row)
        except Exception:
            logger.exception("%s %s: nobody could be notified", row._meta.verbose_name, row.pk)
    return count


def finished_submissions() -> QuerySet[Submission]:
    """Submissions whose jobs all ended, with no result that waits for its turn, and whose people have not been told.

    Those of a bulk import are told of together.
    """
    jobs = Job.objects.filter(submission=OuterRef("pk"))
    ended = Submission.objects.filter(*_all_finished(jobs), Exists(jobs), noticed_at=None, bulk="")
    return ended.order_by("created_at", "pk")


def finished_bulks() -> list[str]:
    """Bulk imports whose jobs all ended and whose people have not been told."""
    jobs = Job.objects.filter(submission__bulk=OuterRef("bulk"))
    ended = Submission.objects.filter(*_all_finished(jobs), noticed_at=None).exclude(bulk="")
    return list(ended.order_by("bulk").values_list("bulk", flat=True).distinct())


def _all_finished(jobs: QuerySet[Job]) -> tuple[Any, Any]:
    """The conditions that no job is under way, and no result waits for its turn."""
    in_turn = jobs.filter(entry__visibility=Entry.Visibility.HELD, entry__due_at__lte=timezone.now())
    return ~Exists(jobs.exclude(state__in=TERMINAL)), ~Exists(in_turn)


@transaction.atomic
def _notify_bulk(bulk: str) -> int:
    """One notice of all of an import's submissions, unless another turn has told of it; webhooks get each result."""
    submissions = list(with_jobs(Submission.objects.filter(bulk=bulk).order_by("created_at", "pk")))
    if not Submission.objects.filter(bulk=bulk, noticed_at=None).update(noticed_at=timezone.now()):
        return 0
    statuses = with_standings(describe(each, complete=True, compare=False) for each in submissions)
    notify(team_members([submissions[0].team]), messages.bulk_message(bulk, statuses))
    if has_webhooks(submissions[0].team):
        for status in statuses:
            _deliver_result(status)
    return len(statuses)


def _notify_submission(submission: Submission) -> bool:
    """Tell of one submission, unless another turn has."""
    now = timezone.now()
    if not Submission.objects.filter(pk=submission.pk, noticed_at=None).update(noticed_at=now):
        return False
    status = describe_with_standing(submission, complete=True, compare=False)
    jobs = submission.jobs.all()
    ended = [job.finished_at for job in jobs if job.finished_at]
    # An entry is published later than its job ended where it waited for its turn.
    ended += [job.entry.published_at for job in jobs if job.entry is not None]
    if status.state in KINDS and max(ended, default=now) > now - NEWS_FOR:
        notify(team_members([submission.team]), messages.finished_message(KINDS[status.state], status))
        _deliver_result(status)
    return True


def _deliver_result(status: SubmissionStatus) -> None:
    queue_delivery(status.submission.team, "finished", messages.key_of_end(status), result_body(status))


def result_body(status: SubmissionStatus, dataset: Dataset | None = None) -> dict[str, Any]:
    """What a webhook is told of a submission, described with standings: state, published scores, the outcome in words.

    `dataset`: of this one alone.
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
        "url": own_address() + submission.get_absolute_url(),
        "state": status.state.value,
        "datasets": list(parts),
        "scores": {
            slug: {score.measure: score.value for score in (part.seeds or part.jobs[0]).scores}
            for slug, part in parts.items()
        },
        "outcome": outcome_text(status, dataset),
    }


def announce_rounds() -> int:
    """Tell of every round that opened or closes soon and was not announced as such. Returns how many were."""
    return sum(_notify_each(partial(_announce, kind), _unannounced(kind)) for kind in ANNOUNCED)


def has_announcements() -> bool:
    """Whether `announce_rounds` would tell anybody of anything."""
    return any(_unannounced(kind) for kind in ANNOUNCED)


def _unannounced(kind: NoticeKind) -> list[Round]:
    """The rounds that take runs now and were not announced so; not those of a dataset that has no page yet."""
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
    notify(round_recipients(round_, kind), messages.round_message(kind, round_))
    return True


def round_recipients(round_: Round, kind: NoticeKind) -> list[User]:
    """Whom a round concerns: people of teams that submitted to its datasets, and who wants to know of every round."""
    submitted = Submission.objects.filter(jobs__dataset__in=datasets_of(round_))
    teams = Membership.objects.filter(team__in=submitted.values("team"))
    wanted = Q(notice_preferences__kind=kind, notice_preferences__everywhere=True)
    concerned = Q(pk__in=teams.values("user")) | wanted
    return list(User.objects.filter(concerned, is_active=True).distinct().order_by("pk"))


def process_events() -> int:
    """Write down for everyone concerned what was asked to be told. Returns how many events.

    What an event names may be gone by now; then there is nobody to tell.
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
    """The people of teams with results on the dataset, each of their own results; their webhooks of each result."""
    rescore = Rescore.objects.filter(pk=payload["rescore"]).select_related("dataset").first()
    if rescore is None or rescore.state != Rescore.State.SWITCHED:
        return
    entries = Entry.objects.filter(dataset=rescore.dataset).exclude(submission_reference="")
    entries = entries.exclude(visibility=Entry.Visibility.WITHDRAWN).select_related("system")
    submissions = Submission.objects.filter(pk__in=entries.values("submission_reference"), withdrawn_at=None)
    by_team: dict[int, list[Submission]] = defaultdict(list)
    for submission in submissions.select_related("system", "team").order_by("-created_at"):
        by_team[submission.team_id].append(submission)
    outcomes = messages.rescored_outcomes(rescore, entries)
    for person in team_members(by_team):
        teams = set(person.memberships.values_list("team", flat=True)) & set(by_team)
        # Of each team the newest submissions.
        latest = [submission for team in sorted(teams) for submission in by_team[team][:OUTCOMES]]
        lines = [line for submission in latest for line in outcomes.get(str(submission.pk), ())]
        notify([person], messages.rescored_message(rescore, lines))
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
        notify(round_recipients(round_, kind), messages.round_message(kind, round_))


def _notify_challenged(payload: Mapping[str, Any]) -> None:
    """The system's team; of how it was settled also who raised it."""
    known = Challenge.objects.select_related("system__team", "dataset", "raised_by")
    challenge = known.filter(pk=payload["challenge"]).first()
    if challenge is None:
        return
    people: dict[int, User] = {}
    if challenge.system.team is not None:
        people = {person.pk: person for person in team_members([challenge.system.team])}
    if challenge.state != Challenge.State.OPEN and challenge.raised_by.is_active:
        people.setdefault(challenge.raised_by_id, challenge.raised_by)
    notify(people.values(), messages.challenge_message(challenge))


_EVENTS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    NoticeKind.RESCORED.value: _notify_rescored,
    NoticeKind.ROUND_REVEALED.value: _notify_revealed,
    NoticeKind.CHALLENGED.value: _notify_challenged,
}
