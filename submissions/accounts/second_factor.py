"""The second factor: who needs one, whether a session has shown it, and how an operator takes one away."""

from __future__ import annotations

import base64
import hashlib
import time

from allauth.account.authentication import get_authentication_records
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest
from django.utils.encoding import force_bytes

from leaderboard.core import audit
from leaderboard.models import User
from submissions.accounts.sessions import end_access

#: Hours after which staff must show their second factor again.
STAFF_SESSION_HOURS = 12


class SecondFactorAdapter(DefaultMFAAdapter):
    """allauth's handling; secrets lie encrypted, and staff who need a second factor cannot switch it off themselves."""

    error_messages = DefaultMFAAdapter.error_messages | {
        "cannot_delete_authenticator": "Curators need a second factor, so yours cannot be switched off.",
        "cannot_generate_recovery_codes": "Set up a second factor first.",
        "incorrect_code": "This code is wrong, was used already, or is too old. Type the one that is shown now.",
        "unverified_email": "Verify your e-mail addresses before you set up a second factor.",
    }

    def encrypt(self, text: str) -> str:
        """A secret as the database has it: who reads a copy of the tables cannot make codes of it."""
        return _fernet().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """A secret as it is. Raises InvalidToken where `SECRET_KEY` is another than it was stored with."""
        return _fernet().decrypt(encrypted_text.encode()).decode()

    def can_delete_authenticator(self, authenticator: Authenticator) -> bool:
        """Whether it may go: not the one that staff come in with."""
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


def has_second_factor(person: User) -> bool:
    """Whether the person has set one up; recovery codes alone are none."""
    return Authenticator.objects.filter(user=person, type=Authenticator.Type.TOTP).exists()


def session_has_second_factor(request: HttpRequest, person: User) -> bool:
    """Whether this session has shown the person's second factor within the hours for which it counts."""
    since = time.time() - STAFF_SESSION_HOURS * 3600
    records = get_authentication_records(request, person)
    shown = any(each.get("method") == "mfa" and each.get("at", 0) >= since for each in records)
    return shown and has_second_factor(person)


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
