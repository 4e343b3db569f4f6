"""Password validators: length, similarity to the user's data, common and breached passwords.

All characters are allowed, spaces too, and no character classes are required (NIST SP 800-63B-4; OWASP ASVS 5.0,
6.2). pwned-passwords-django could replace the twenty lines that query the service, but not the file. It adds five
packages and 10 MiB to the web process and reads responses of any length.
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

#: Minimum and maximum number of characters of a password.
CHARACTERS = (12, 4096)
#: Service for BREACHED_PASSWORDS, and the timeout in seconds after which a password is accepted without it.
BREACHED_PASSWORDS_API, _TIMEOUT = "https://api.pwnedpasswords.com/range/", 2.0
#: Maximum size of a response about one range. A usual response has about 2,000 lines of 40 bytes.
_MAX_BYTES = 1 << 20
_DIGITS = 40


class LengthValidator:
    """Validator of the number of characters, given by `CHARACTERS`."""

    def validate(self, password: str, user: object = None) -> None:
        """Raise ValidationError if the password is too short or too long."""
        minimum, maximum = CHARACTERS
        if len(password) < minimum:
            raise ValidationError(
                f"This password has {len(password)} characters; at least {minimum} are required. A passphrase "
                "works well.",
                code="password_too_short",
            )
        if len(password) > maximum:
            raise ValidationError(
                f"This password is too long. Use at most {maximum:,} characters.", code="password_too_long"
            )

    def get_help_text(self) -> str:
        return f"At least {CHARACTERS[0]} characters; a passphrase works well."


class SimilarityValidator(UserAttributeSimilarityValidator):
    """Validator that rejects passwords similar to the user's address or name."""

    def get_error_message(self) -> str:
        return "This password is too similar to your %(verbose_name)s. Choose another one."

    def get_help_text(self) -> str:
        return "Not similar to your name or address."


class KnownPasswordValidator(CommonPasswordValidator):
    """Validator that rejects Django's 20,000 common passwords and, if configured, breached ones."""

    def validate(self, password: str, user: object = None) -> None:
        """Raise ValidationError if the password is common or breached."""
        try:
            super().validate(password, user)  # type: ignore[arg-type]
        except ValidationError as error:
            raise ValidationError("This password is too common. Choose another one.", code=error.code) from error
        if is_breached(password):
            raise ValidationError(
                "This password is in a list of stolen passwords. Choose another one.",
                code="password_breached",
            )

    def get_help_text(self) -> str:
        checks_breaches = settings.BREACHED_PASSWORDS != "off"
        return f"Not a common password{' and not in lists of stolen passwords' if checks_breaches else ''}."


def is_breached(password: str) -> bool:
    """Return whether the service or file of BREACHED_PASSWORDS contains the password.

    Return False if the check is off or fails; failures are logged.
    """
    source = settings.BREACHED_PASSWORDS
    if source == "off":
        return False
    digest = hashlib.sha1(password.encode(), usedforsecurity=False).hexdigest().upper()
    return _service_contains(digest) if source == "on" else _file_contains(Path(source), digest)


def _file_contains(path: Path, digest: str) -> bool:
    """Return whether the sorted file of hashes has the digest. Log errors and return False.

    Bisects by byte, because haveibeenpwned.com's list has 40 GB.
    """
    encoded_digest = digest.encode()
    try:
        with path.open("rb") as file:

            def first_hash(position: int) -> bytes:
                """Return the first hash whose line starts at or after `position`, or a value above all hashes."""
                file.seek(max(position - 1, 0))
                if position:
                    file.readline(200)
                return file.readline(200)[:_DIGITS].upper() or b"~"

            size = file.seek(0, os.SEEK_END)
            return first_hash(bisect_left(range(size), encoded_digest, key=first_hash)) == encoded_digest
    except OSError as error:
        logger.warning("cannot read the BREACHED_PASSWORDS file: %s", type(error).__name__)
    return False


def _service_contains(digest: str) -> bool:
    """Return whether the service knows the digest. Log errors and return False.

    The query contains only the first five digits, so that the service does not learn the password.
    """
    prefix, digest_suffix = digest[:5], digest[5:]
    # With padding, the length of the response does not reveal the requested range.
    request = urllib.request.Request(  # noqa: S310
        BREACHED_PASSWORDS_API + prefix, headers={"Add-Padding": "true", "User-Agent": "Runboard"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
            text = answer.read(_MAX_BYTES).decode("ascii", errors="replace")
    except (OSError, HTTPException) as error:
        logger.warning("cannot query the list of breached passwords: %s", type(error).__name__)
        return False
    for line in text.splitlines():
        suffix, _, count = line.strip().partition(":")
        if suffix.upper() == digest_suffix:
            return count.strip() != "0"  # padding has a count of 0
    return False
