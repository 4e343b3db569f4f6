"""What follows when somebody signs in, fails to, or has their password reset. Connected when the site starts."""

from __future__ import annotations

import logging
from typing import Any

from allauth.account.internal.flows.login import record_authentication
from allauth.account.signals import password_reset
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authentication_failed, authenticator_added
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

from leaderboard.models import User
from submissions.accounts.sessions import end_access

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
