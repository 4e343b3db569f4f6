"""Mail of accounts: verifying an address, a new password, what has changed, an invitation. The notifier sends it.

Whoever signs up waits for no mail server, and the web processes need no way to one. The texts carry secrets of links,
so a row lasts until its mail is sent, or was tried as often as other mail.
"""

from __future__ import annotations

import logging
from email.utils import parseaddr

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from submissions.models import AccountMail
from submissions.notifications.mail import ATTEMPTS, BACKOFF, CLAIM, send_each

logger = logging.getLogger(__name__)


def account_mail_is_due() -> bool:
    """Whether any mail of an account is to be sent now."""
    return _due().exists()


def send_account_mail(until: float) -> int:
    """Send what is due until `time.monotonic()` is `until`, or the server is away. Returns how many were sent."""
    return send_each(until, "account mail", _claim, _message, lambda row: _held(row).delete(), _failed)


def _due() -> QuerySet[AccountMail]:
    return AccountMail.objects.filter(Q(not_before=None) | Q(not_before__lte=timezone.now()))


def _claim() -> AccountMail | None:
    """Take the oldest mail that is due, for the length of a claim."""
    while (found := _due().order_by("pk").first()) is not None:
        mine = _due().filter(pk=found.pk, attempts=found.attempts)
        if found.attempts >= ATTEMPTS:  # whoever had it ended in the middle of the last attempt
            mine.delete()
        elif mine.update(attempts=F("attempts") + 1, not_before=timezone.now() + CLAIM):
            found.attempts += 1
            return found
    return None


def _held(row: AccountMail) -> QuerySet[AccountMail]:
    """The row, unless somebody else has claimed it since."""
    return AccountMail.objects.filter(pk=row.pk, attempts=row.attempts)


def _failed(row: AccountMail) -> None:
    if row.attempts >= ATTEMPTS:
        _held(row).delete()
        logger.warning("account mail %s is given up", row.pk)
    else:
        _held(row).update(not_before=timezone.now() + BACKOFF[row.attempts - 1])


def _message(row: AccountMail, connection: BaseEmailBackend) -> EmailMessage:
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    # The same for each attempt: a program that gets it twice shows it once.
    headers = {"Message-ID": f"<account-{row.pk}@{domain}>", "Auto-Submitted": "auto-generated"}
    return EmailMessage(
        row.subject, row.text, row.sender, [row.address], headers=headers, connection=connection
    )
