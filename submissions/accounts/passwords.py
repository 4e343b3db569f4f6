"""Which passwords are taken: long enough, and not among those that others have lost already.

Any character counts, spaces too, and nothing says which kinds there must be (NIST SP 800-63B-4; OWASP ASVS 5.0, 6.2).

pwned-passwords-django would take the place of the twenty lines that ask the service, not of the file; it brings five
packages and 10 MiB to the web process, and reads an answer of any length.
"""

import hashlib
import logging
import os
import urllib.request
from bisect import bisect_left
from http.client import HTTPException
from pathlib import Path

from django.conf import settings
from django.contrib.auth.password_validation import CommonPasswordValidator, UserAttributeSimilarityValidator
from django.core.exceptions import ValidationError

logger = logging.getLogger(__name__)

#: The least and the most characters of a password.
CHARACTERS = (12, 4096)
#: The service for BREACHED_PASSWORDS, and the seconds after which a password is accepted without its answer.
BREACHED_PASSWORDS_API, _TIMEOUT = "https://api.pwnedpasswords.com/range/", 2.0
#: How much of an answer about one range is read: about 2,000 lines of 40 bytes are usual.
_MOST_BYTES = 1 << 20
_DIGITS = 40


class LengthValidator:
    """A validator that accepts passwords of a length in `CHARACTERS`."""

    def validate(self, password: str, user: object = None) -> None:
        """Raise ValidationError if the password is too short or too long."""
        least, most = CHARACTERS
        if len(password) < least:
            raise ValidationError(
                f"This password has {len(password)} characters; {least} are needed. Several words do well.",
                code="password_too_short",
            )
        if len(password) > most:
            raise ValidationError(f"A password has {most:,} characters at most.", code="password_too_long")

    def get_help_text(self) -> str:
        """Return the help text of the form field."""
        return f"At least {CHARACTERS[0]} characters, of any kind: several words do well."


class SimilarityValidator(UserAttributeSimilarityValidator):
    """Not nearly the person's address or name."""

    def get_error_message(self) -> str:
        """What is said of one that is."""
        return "This password is nearly your %(verbose_name)s. Choose another."

    def get_help_text(self) -> str:
        """What a form says of it."""
        return "Not your name or address."


class KnownPasswordValidator(CommonPasswordValidator):
    """Not one of Django's 20,000 common ones, nor one that was stolen elsewhere, as far as such lists are asked."""

    def validate(self, password: str, user: object = None) -> None:
        """Raise ValidationError."""
        try:
            super().validate(password, user)  # type: ignore[arg-type]
        except ValidationError as error:
            raise ValidationError("Many use this password. Choose another.", code=error.code) from error
        if is_breached(password):
            raise ValidationError(
                "This password is in a list of passwords that were stolen elsewhere. Choose another.",
                code="password_breached",
            )

    def get_help_text(self) -> str:
        """What a form says of it."""
        checked = settings.BREACHED_PASSWORDS != "off"
        return f"Not one of those that many use{', nor one that was stolen elsewhere' if checked else ''}."


def is_breached(password: str) -> bool:
    """Return whether the service or file of BREACHED_PASSWORDS knows the password. Log and return False on errors."""
    source = settings.BREACHED_PASSWORDS
    if source == "off":
        return False
    digest = hashlib.sha1(password.encode(), usedforsecurity=False).hexdigest().upper()
    return _in_range(digest) if source == "on" else _in_file(Path(source), digest)


def _in_file(path: Path, digest: str) -> bool:
    """Binary search over bytes: the list of haveibeenpwned.com has 40 GB."""
    wanted = digest.encode()
    try:
        with path.open("rb") as file:

            def from_byte(place: int) -> bytes:
                """Return the first hash whose line begins there or later; above all others where there is none."""
                file.seek(max(place - 1, 0))
                if place:
                    file.readline(200)
                return file.readline(200)[:_DIGITS].upper() or b"~"

            size = file.seek(0, os.SEEK_END)
            return from_byte(bisect_left(range(size), wanted, key=from_byte)) == wanted
    except OSError as error:
        logger.warning("the file of BREACHED_PASSWORDS cannot be read: %s", type(error).__name__)
    return False


def _in_range(digest: str) -> bool:
    """Ask the service for all hashes with the same first five digits: it learns no more than these."""
    head, rest = digest[:5], digest[5:]
    # With padding the length of the answer does not tell which range was asked for either.
    request = urllib.request.Request(  # noqa: S310
        BREACHED_PASSWORDS_API + head, headers={"Add-Padding": "true", "User-Agent": "Runboard"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
            text = answer.read(_MOST_BYTES).decode("ascii", errors="replace")
    except (OSError, HTTPException) as error:
        logger.warning("the list of breached passwords does not answer: %s", type(error).__name__)
        return False
    for line in text.splitlines():
        suffix, _, count = line.strip().partition(":")
        if suffix.upper() == rest:
            return count.strip() != "0"  # padding has a count of 0
    return False
