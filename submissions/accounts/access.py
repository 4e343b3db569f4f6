"""Ways in, and how they end: API tokens, sessions, the second factor, and records of sign-ins.

Tokens are shown once, stored hashed, and last for 90 days at most.
"""

import base64
import hashlib
import logging
import re
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from allauth.account.authentication import get_authentication_records
from allauth.account.internal.flows.login import record_authentication
from allauth.account.signals import password_reset
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authentication_failed, authenticator_added
from allauth.usersessions.models import UserSession
from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.contrib.sessions.models import Session
from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.encoding import force_bytes

from leaderboard.core import audit
from leaderboard.models import User
from submissions.accounts.authentication import has_good_address
from submissions.core.errors import ChangeRefused
from submissions.models import ApiToken, Scope

#: Hours after which staff must show their second factor again.
STAFF_SESSION_HOURS = 12
#: For how many days a token may be made; the last is what a script gets that does not say.
LIFETIMES = (7, 30, 90)
#: How long a token works at most.
LIFETIME = timedelta(days=max(LIFETIMES))
#: How many tokens that work a person may hold at a time.
LIMIT = 10
#: How long a token that has expired stays in the list, to say so.
REMEMBERED = timedelta(days=30)


class TokenRefused(ChangeRefused):
    """The token cannot be made; the message says why and what would be right."""


class TooManyTokens(TokenRefused):
    """The person holds as many tokens as they may."""


@transaction.atomic
def make_token(
    user: User, name: str, *, scopes: Iterable[str] = Scope.values, days: int = LIFETIME.days
) -> str:
    """Create token and return its text, which is stored nowhere. Raises TokenRefused."""
    chosen = [scope for scope in Scope.values if scope in set(scopes)]
    if not chosen:
        raise TokenRefused("Choose what the token may be used for.")
    if not 1 <= days <= LIFETIME.days:
        raise TokenRefused(f"A token works for 1 to {LIFETIME.days} days.")
    if not has_good_address(user):
        raise TokenRefused("Verify your e-mail address first.")
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # of two at once the second counts the first
    now = timezone.now()
    ApiToken.objects.filter(user=user, expiry__lt=now - REMEMBERED).delete()
    if ApiToken.objects.filter(user=user).exclude(expiry__lt=now).count() >= LIMIT:
        raise TooManyTokens(f"You hold {LIMIT} tokens. Revoke one you no longer use, then make a new one.")
    _, text = ApiToken.objects.create(user=user, expiry=timedelta(days=days), name=name, scopes=chosen)
    return str(text)


def revoke_token(user: User, digest: str) -> bool:
    """End one of the person's tokens; whether there was one."""
    deleted, _ = ApiToken.objects.filter(user=user, digest=digest).delete()
    return deleted > 0


# --- sessions


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
    """Return the person's sessions that are still good, the one of this request first, then the latest used."""
    rows = UserSession.objects.purge_and_list(person)
    return sorted(rows, key=lambda row: (not row.is_current(), -row.last_seen_at.timestamp()))


def end_access(person: User, *, keep: str | None = None) -> dict[str, int]:
    """End the person's sessions, but for the one to keep, and their tokens: a password is no longer good, or the
    account is closed. Returns how many of each ended, in words for a record.
    """
    sessions = end_sessions(person, keep=keep)
    tokens, _ = ApiToken.objects.filter(user=person).delete()
    return {"sessions ended": sessions, "tokens ended": tokens}


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


# --- the second factor


class SecondFactorAdapter(DefaultMFAAdapter):
    """allauth's handling; secrets lie encrypted, and staff who need a second factor cannot switch it off themselves."""

    error_messages = DefaultMFAAdapter.error_messages | {
        "cannot_delete_authenticator": "Curators need a second factor, so yours cannot be switched off.",
        "cannot_generate_recovery_codes": "Set up a second factor first.",
        "incorrect_code": "This code is wrong, was used already, or is too old. Type the one that is shown now.",
        "unverified_email": "Verify your e-mail addresses before you set up a second factor.",
    }

    def encrypt(self, text: str) -> str:
        """Return a secret as the database has it: who reads a copy of the tables cannot make codes of it."""
        return _fernet().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Return a secret as it is. Raises InvalidToken where `SECRET_KEY` is another than it was stored with."""
        return _fernet().decrypt(encrypted_text.encode()).decode()

    def can_delete_authenticator(self, authenticator: Authenticator) -> bool:
        """Return whether it may go: not the one that staff come in with."""
        person = authenticator.user
        return not (settings.STAFF_MFA_REQUIRED and (person.is_staff or person.is_superuser))


def _fernet() -> MultiFernet:
    """By the present `SECRET_KEY`, and for reading by those it replaced (`SECRET_KEY_FALLBACKS`)."""
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet(
        [
            Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"second factor:" + force_bytes(key)).digest()))
            for key in keys
        ]
    )


def session_has_second_factor(request: HttpRequest, person: User) -> bool:
    """Return whether this session has shown the person's second factor within the hours for which it counts."""
    since = time.time() - STAFF_SESSION_HOURS * 3600
    records = get_authentication_records(request, person)
    shown = any(each.get("method") == "mfa" and each.get("at", 0) >= since for each in records)
    # Recovery codes alone are no second factor.
    return shown and Authenticator.objects.filter(user=person, type=Authenticator.Type.TOTP).exists()


@transaction.atomic
def reset_second_factor(person: User) -> int:
    """Take the person's second factor and recovery codes away and end all their sessions and tokens; how many ended.

    For an operator who knows by other means that it is them: what was lost may be in other hands. Inside
    `audit.acting`, which says who and why.
    """
    removed, _ = Authenticator.objects.filter(user=person).delete()
    ended = end_access(person)
    audit.record("second factor reset", person, before={"second factor": bool(removed)}, after=ended)
    return sum(ended.values())


# --- sign-ins; connected when the site starts


logger = logging.getLogger("runboard.sign_in")


@receiver(authenticator_added)
def count_enrolment(request: HttpRequest, user: User, authenticator: Authenticator, **kwargs: Any) -> None:
    """Who sets up a second factor has just shown a code of it: the session counts as one that has."""
    if authenticator.type == Authenticator.Type.TOTP:
        record_authentication(request, user, "mfa", id=authenticator.pk, type=authenticator.type)


@receiver(password_reset)
def end_access_after_reset(request: HttpRequest, user: User, **kwargs: Any) -> None:
    """Who resets a password may have lost the account: sessions and tokens end with the old one."""
    end_access(user, keep=request.session.session_key)
    logger.info("password reset account=%s", user.pk)


@receiver(user_logged_in)
def log_sign_in(request: HttpRequest, user: User, **kwargs: Any) -> None:
    """Who came in, by number."""
    logger.info("signed in account=%s", user.pk)


@receiver(user_logged_out)
def log_sign_out(request: HttpRequest, user: User | None, **kwargs: Any) -> None:
    """Who left, by number."""
    logger.info("signed out account=%s", user.pk if user else None)


@receiver(user_login_failed)
def log_failure(credentials: dict[str, Any], request: HttpRequest | None = None, **kwargs: Any) -> None:
    """That somebody failed to come in: the address as a keyed hash, which tells one account from many.

    Never the address nor, of course, the password: people type one into the field of the other.
    """
    address = str(credentials.get("email") or credentials.get("username") or "").strip().lower()
    digest = salted_hmac("failed sign-in", address).hexdigest()[:12]
    logger.warning("sign-in failed address_hash=%s", digest)


@receiver(authentication_failed)
def log_wrong_code(user: User, **kwargs: Any) -> None:
    """That a wrong code was sent after a right password: somebody may know it."""
    logger.warning("second factor failed account=%s", user.pk)
