"""API tokens, sessions, the second factor, and sign-in records.

Tokens are shown once, stored hashed, and valid for at most 90 days.
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
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authentication_failed, authenticator_added
from allauth.usersessions.models import UserSession
from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.contrib.sessions.models import Session
from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.encoding import force_bytes
from django.utils.translation import gettext

from leaderboard.core import audit
from leaderboard.core.permissions import has_second_factor
from leaderboard.models import User
from submissions.accounts.authentication import has_good_address
from submissions.core.errors import ChangeRefused
from submissions.models import ApiToken, Scope

#: Hours after which staff must show their second factor again.
STAFF_SESSION_HOURS = 12
#: Selectable lifetimes of a token in days. The last is the default for scripts.
LIFETIMES = (7, 30, 90)
#: Maximum lifetime of a token.
LIFETIME = timedelta(days=max(LIFETIMES))
#: Maximum number of valid tokens per user.
LIMIT = 10
#: Maximum number of passkeys per user.
MAX_PASSKEYS = 10
#: Time for which expired tokens remain listed, marked as expired.
EXPIRED_TOKEN_LISTING = timedelta(days=30)


class TokenRefused(ChangeRefused):
    """Refusal to create a token. The message states the reason and the remedy."""


class TooManyTokens(TokenRefused):
    """Refusal because the user has the maximum number of tokens."""


@transaction.atomic
def make_token(user: User, name: str, *, scopes: Iterable[str] = Scope.values, days: int = LIFETIME.days) -> str:
    """Create a token and return its text, which is not stored. It is valid for `days` days.

    Raises TokenRefused for missing scopes, an invalid lifetime, an unverified address, or too many tokens.
    """
    token_scopes = [scope for scope in Scope.values if scope in set(scopes)]
    if not token_scopes:
        raise TokenRefused("Choose at least one scope for the token.")
    if not 1 <= days <= LIFETIME.days:
        raise TokenRefused(f"A token is valid for 1 to {LIFETIME.days} days. Choose a lifetime in this range.")
    if not has_good_address(user):
        raise TokenRefused("Verify your email address first.")
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # concurrent requests count each other's tokens
    now = timezone.now()
    ApiToken.objects.filter(user=user, expiry__lt=now - EXPIRED_TOKEN_LISTING).delete()
    if ApiToken.objects.filter(user=user).exclude(expiry__lt=now).count() >= LIMIT:
        raise TooManyTokens(
            f"You have {LIMIT} tokens, which is the maximum. Revoke one that you no longer use, then create a new one."
        )
    _, text = ApiToken.objects.create(user=user, expiry=timedelta(days=days), name=name, scopes=token_scopes)
    return str(text)


def revoke_token(user: User, digest: str) -> bool:
    """Delete one of the user's tokens. Return whether it existed."""
    deleted, _ = ApiToken.objects.filter(user=user, digest=digest).delete()
    return deleted > 0


# --- sessions


#: Words that identify browsers in user agents, specific ones first, because most browsers also name others.
_BROWSERS = (
    ("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", "Firefox"), ("Chrome", "Chrome"), ("Safari", "Safari"),
    ("curl", "curl"),
)  # fmt: skip
_SYSTEMS = (
    ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"), ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)  # fmt: skip
#: Time for which a listed session may be missing from the session store.
_UNSTORED_PERIOD = timedelta(days=1)
#: Time after its last write for which a session that is missing from the list is searched for.
_UNLISTED_PERIOD = timedelta(hours=1)


def get_sessions(person: User) -> list[UserSession]:
    """Return the user's valid sessions, the current one first, then by last use."""
    rows = UserSession.objects.purge_and_list(person)
    return sorted(rows, key=lambda row: (not row.is_current(), -row.last_seen_at.timestamp()))


def end_access(person: User, *, keep: str | None = None) -> dict[str, int]:
    """End the user's sessions, except that with the key `keep`, and delete their tokens.

    Used when a password is no longer trusted or an account is closed. Returns both numbers by name, for the audit
    record.
    """
    sessions = end_sessions(person, keep=keep)
    tokens, _ = ApiToken.objects.filter(user=person).delete()
    return {"sessions ended": sessions, "tokens ended": tokens}


def device_name(agent: str, fallback: str = "") -> str:
    """Return browser and system from a user agent, such as “Firefox on Linux”.

    If `fallback` is given, it replaces unrecognized user agents, because their text could be a link, which emails must
    not contain.
    """
    names = (next((name for mark, name in marks if mark in agent), "") for marks in (_BROWSERS, _SYSTEMS))
    device = " on ".join(filter(None, names))
    return device or fallback or re.sub(r"[^\w ./-]", "", agent)[:40] or "unknown"


def end_session(person: User, key: int) -> bool:
    """Sign out one of the user's sessions. Return whether it existed."""
    row = UserSession.objects.filter(user=person, pk=key).first()
    if row is None:
        return False
    row.end()
    return True


def end_sessions(person: User, *, keep: str | None = None) -> int:
    """Sign out all sessions of the user except that with the key `keep`, and return their number.

    Covers listed sessions and recently written ones: a session that started while the list was not writable is listed
    with its next request. Decoding all sessions would take a minute if a user has created a million.
    """
    listed_sessions = UserSession.objects.filter(user=person).exclude(session_key=keep or "")
    keys = set(listed_sessions.values_list("session_key", flat=True))
    expires_after = timezone.now() + timedelta(seconds=settings.SESSION_COOKIE_AGE) - _UNLISTED_PERIOD
    for row in Session.objects.filter(expire_date__gt=expires_after).exclude(session_key__in=keys).iterator():
        if row.session_key != keep and row.get_decoded().get(SESSION_KEY) == str(person.pk):
            keys.add(row.session_key)
    listed_sessions.delete()
    Session.objects.filter(session_key__in=keys).delete()
    return len(keys)


def delete_expired_sessions() -> int:
    """Delete expired sessions, and rows of the session list whose session no longer exists. Return the total number.

    Rows used within a day remain, because their session may not be written yet.
    """
    now = timezone.now()
    session_count, _ = Session.objects.filter(expire_date__lt=now).delete()
    stale_rows = UserSession.objects.filter(last_seen_at__lt=now - _UNSTORED_PERIOD)
    row_count, _ = stale_rows.exclude(session_key__in=Session.objects.values("session_key")).delete()
    return session_count + row_count


# --- the second factor


class SecondFactorAdapter(DefaultMFAAdapter):
    """allauth adapter that encrypts secrets and requires staff to keep their second factor."""

    error_messages = DefaultMFAAdapter.error_messages | {
        "cannot_delete_authenticator": "You cannot turn off two-factor authentication, because curators need it.",
        "cannot_generate_recovery_codes": "Set up a second factor first.",
        "incorrect_code": "This code is wrong, already used, or expired. Enter the code that the app shows now.",
        "incorrect_passkey": "This passkey was not accepted. Try again with a passkey that belongs to your account.",
        "too_many_passkeys": f"You have {MAX_PASSKEYS} passkeys, which is the maximum. Remove one first.",
        "unverified_email": "Verify your email addresses before you set up a second factor.",
    }

    def encrypt(self, text: str) -> str:
        """Encrypt a secret for the database, so that a leaked copy of the tables cannot generate codes."""
        return _fernet().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Decrypt a secret. Raises InvalidToken if it was encrypted with an unknown `SECRET_KEY`."""
        return _fernet().decrypt(encrypted_text.encode()).decode()

    def can_delete_authenticator(self, authenticator: Authenticator) -> bool:
        """Return whether the user may delete the authenticator. Staff may not delete the last one if they need one."""
        person = authenticator.user
        is_needed = settings.STAFF_MFA_REQUIRED and (person.is_staff or person.is_superuser)
        return not is_needed or has_second_factor(person, except_for=authenticator)

    def generate_authenticator_name(self, user: AbstractBaseUser, type: Authenticator.Type) -> str:
        """Return a name for a new passkey: browser and system of the request."""
        return device_name(context.request.headers.get("User-Agent", ""), gettext("Passkey"))

    def _get_site_name(self) -> str:
        """Return the name that authenticator apps and devices show with codes and passkeys."""
        return str(settings.SITE_NAME)


def _fernet() -> MultiFernet:
    """Return the cipher for the current `SECRET_KEY`, which also decrypts with `SECRET_KEY_FALLBACKS`."""
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet(
        [
            Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"second factor:" + force_bytes(key)).digest()))
            for key in keys
        ]
    )


def session_has_second_factor(request: HttpRequest, person: User) -> bool:
    """Return whether the user used a second factor in this session within `STAFF_SESSION_HOURS`."""
    earliest = time.time() - STAFF_SESSION_HOURS * 3600
    records = get_authentication_records(request, person)
    has_shown_factor = any(record.get("method") == "mfa" and record.get("at", 0) >= earliest for record in records)
    return has_shown_factor and has_second_factor(person)


@transaction.atomic
def reset_second_factor(person: User) -> int:
    """Remove the user's second factor and recovery codes, and end all sessions and tokens. Return the number of both.

    For operators who have verified the user's identity by other means; someone else may have the lost device. Call it
    within `audit.acting`, which records the operator and the reason.
    """
    removed_count, _ = Authenticator.objects.filter(user=person).delete()
    ended_counts = end_access(person)
    audit.record("second factor reset", person, before={"second factor": bool(removed_count)}, after=ended_counts)
    return sum(ended_counts.values())


# --- sign-ins; connected when the site starts


logger = logging.getLogger("runboard.sign_in")


@receiver(authenticator_added)
def record_enrolment(request: HttpRequest, user: User, authenticator: Authenticator, **kwargs: Any) -> None:
    """Record the second factor for this session, because enrolment just verified it."""
    if authenticator.type != Authenticator.Type.RECOVERY_CODES:
        record_authentication(request, user, "mfa", id=authenticator.pk, type=authenticator.type)


@receiver(password_reset)
def end_access_after_reset(request: HttpRequest, user: User, **kwargs: Any) -> None:
    """End other sessions and tokens, because the account may have been compromised before the reset."""
    end_access(user, keep=request.session.session_key)
    logger.info("password reset account=%s", user.pk)


@receiver(user_logged_in)
def log_sign_in(request: HttpRequest, user: User, **kwargs: Any) -> None:
    logger.info("signed in account=%s", user.pk)


@receiver(user_logged_out)
def log_sign_out(request: HttpRequest, user: User | None, **kwargs: Any) -> None:
    logger.info("signed out account=%s", user.pk if user else None)


@receiver(user_login_failed)
def log_failure(credentials: dict[str, Any], request: HttpRequest | None = None, **kwargs: Any) -> None:
    """Log a failed sign-in with a keyed hash of the address, which identifies repeated attempts on an account.

    The address itself is never logged, because users sometimes type their password into that field.
    """
    address = str(credentials.get("email") or credentials.get("username") or "").strip().lower()
    digest = salted_hmac("failed sign-in", address).hexdigest()[:12]
    logger.warning("sign-in failed address_hash=%s", digest)


@receiver(authentication_failed)
def log_wrong_code(user: User, **kwargs: Any) -> None:
    """Log a wrong code after a correct password, which may be compromised."""
    logger.warning("second factor failed account=%s", user.pk)
