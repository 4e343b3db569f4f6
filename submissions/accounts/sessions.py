"""Where somebody is signed in: the list its owner sees, and the ways a session ends before its time."""

from __future__ import annotations

import re
from datetime import timedelta

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.utils import timezone

from leaderboard.models import User
from submissions.accounts.tokens import revoke_all

#: What a browser calls itself, the particular before what others pretend to be.
_BROWSERS = (
    ("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", "Firefox"), ("Chrome", "Chrome"), ("Safari", "Safari"),
    ("curl", "curl"),
)  # fmt: skip
_SYSTEMS = (
    ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"), ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)  # fmt: skip
#: For how long a session that is listed and not there may still come.
_SEEN_LATELY = timedelta(days=1)
#: For how long after it was written a session that is not listed is looked for.
_WRITTEN_LATELY = timedelta(hours=1)


def sessions_of(person: User) -> list[UserSession]:
    """The person's sessions that are still good, the one of this request first, then the latest used."""
    rows = UserSession.objects.purge_and_list(person)
    return sorted(rows, key=lambda row: (not row.is_current(), -row.last_seen_at.timestamp()))


def end_access(person: User, *, keep: str | None = None) -> dict[str, int]:
    """End the person's sessions, but for the one to keep, and their tokens: a password is no longer good, or the
    account is closed. Returns how many of each ended, in words for a record.
    """
    return {"sessions ended": end_sessions(person, keep=keep), "tokens ended": revoke_all(person)}


def device_name(agent: str, unknown: str = "") -> str:
    """Browser and system in a few words, from what the browser says of itself: “Firefox on Linux”.

    `unknown` is said of other programs, whose own words may be an address to click on, and have no place in mail.
    """
    names = (next((name for mark, name in known if mark in agent), "") for known in (_BROWSERS, _SYSTEMS))
    device = " on ".join(filter(None, names))
    return device or unknown or re.sub(r"[^\w ./-]", "", agent)[:40] or "unknown"


def end_session(person: User, key: int) -> bool:
    """Sign out one of the person's sessions; whether there was one."""
    row = UserSession.objects.filter(user=person, pk=key).first()
    if row is None:
        return False
    row.end()
    return True


def end_sessions(person: User, *, keep: str | None = None) -> int:
    """Sign out every session of the person but the one to keep; how many ended.

    Those of the list, and those that were written lately: one that was begun while the list could not be written comes
    into it with its next request. Looking into all sessions would take a minute where somebody has made a million.
    """
    listed = UserSession.objects.filter(user=person).exclude(session_key=keep or "")
    keys = set(listed.values_list("session_key", flat=True))
    lately = timezone.now() + timedelta(seconds=settings.SESSION_COOKIE_AGE) - _WRITTEN_LATELY
    for row in Session.objects.filter(expire_date__gt=lately).exclude(session_key__in=keys).iterator():
        if row.session_key != keep and row.get_decoded().get(SESSION_KEY) == str(person.pk):
            keys.add(row.session_key)
    listed.delete()
    Session.objects.filter(session_key__in=keys).delete()
    return len(keys)


def delete_expired_sessions() -> int:
    """Remove sessions that have expired, and the list's rows of sessions that are gone; how many of both.

    A row that was seen within a day stays: its session may be about to be written.
    """
    now = timezone.now()
    expired, _ = Session.objects.filter(expire_date__lt=now).delete()
    gone = UserSession.objects.filter(last_seen_at__lt=now - _SEEN_LATELY)
    listed, _ = gone.exclude(session_key__in=Session.objects.values("session_key")).delete()
    return expired + listed
