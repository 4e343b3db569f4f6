"""Events that the board causes, each taken once.

`leaderboard.core.work_requests.request_notice` asks for them as rows.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from leaderboard.models import Challenge, Entry, Rescore, User, WorkRequest
from leaderboard.rounds.lifecycle import listed_rounds
from submissions.models import NoticeKind, Submission
from submissions.notifications.deliveries import deliver, has_webhooks
from submissions.notifications.messages import (
    challenge_message,
    rescored_message,
    rescored_outcomes,
    round_message,
)
from submissions.notifications.outbox import members, tell
from submissions.notifications.results import result_body, status_of
from submissions.notifications.rounds import people_of_round

logger = logging.getLogger(__name__)

#: Of a team's results so many are told one by one; the board has all.
OUTCOMES = 10


def take_events() -> int:
    """Write down for everyone concerned what was asked to be told. Returns how many events.

    What an event names may be gone by now; then there is nobody to tell.
    """
    count = 0
    for request in WorkRequest.objects.filter(kind=WorkRequest.Kind.NOTIFY, taken_at=None):
        try:
            count += _take(request)
        except Exception:
            logger.exception("notice %s could not be written", request.pk)
    return count


@transaction.atomic
def _take(request: WorkRequest) -> bool:
    if not WorkRequest.objects.filter(pk=request.pk, taken_at=None).update(taken_at=timezone.now()):
        return False
    teller = _TELLERS.get(request.payload.get("event", ""))
    if teller is None:
        logger.error("nobody knows whom to tell of the event of request %s", request.pk)
        return False
    teller(request.payload)
    return True


def _rescored(payload: Mapping[str, Any]) -> None:
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
    said = _outcomes(rescore, entries, by_team)
    for person in members(by_team):
        teams = set(person.memberships.values_list("team", flat=True)) & set(by_team)
        tell([person], rescored_message(rescore, [each for team in sorted(teams) for each in said[team]]))
    for own in by_team.values():
        if has_webhooks(own[0].team):
            for submission in own:
                body = result_body(submission, status_of(submission.pk), rescore.dataset)
                deliver(submission.team, "rescored", f"rescore-{rescore.pk}-{submission.pk}", body)


def _outcomes(
    rescore: Rescore, entries: Iterable[Entry], by_team: Mapping[int, Sequence[Submission]]
) -> dict[int, list[str]]:
    """By team what is told of its results, the newest submissions first."""
    by_submission: dict[str, list[str]] = defaultdict(list)
    entries = list(entries)
    lines = rescored_outcomes(rescore, entries)
    for entry in entries:
        if entry.pk in lines:
            by_submission[entry.submission_reference].append(lines[entry.pk])
    return {
        team: [line for each in own[:OUTCOMES] for line in by_submission[str(each.pk)]]
        for team, own in by_team.items()
    }


def _round_revealed(payload: Mapping[str, Any]) -> None:
    round_ = listed_rounds().filter(pk=payload["round"]).first()
    if round_ is not None and round_.revealed_at is not None:
        kind = NoticeKind.ROUND_REVEALED
        tell(people_of_round(round_, kind), round_message(kind, round_))


def _challenged(payload: Mapping[str, Any]) -> None:
    """The system's team; of how it was settled also who raised it."""
    known = Challenge.objects.select_related("system__team", "dataset", "raised_by")
    challenge = known.filter(pk=payload["challenge"]).first()
    if challenge is None:
        return
    people: dict[int, User] = {}
    if challenge.system.team is not None:
        people = {person.pk: person for person in members([challenge.system.team])}
    if challenge.state != Challenge.State.OPEN and challenge.raised_by.is_active:
        people.setdefault(challenge.raised_by_id, challenge.raised_by)
    tell(people.values(), challenge_message(challenge))


_TELLERS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    NoticeKind.RESCORED.value: _rescored,
    NoticeKind.ROUND_REVEALED.value: _round_revealed,
    NoticeKind.CHALLENGED.value: _challenged,
}
