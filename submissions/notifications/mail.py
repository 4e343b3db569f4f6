"""Sending the mail that waits in the outbox. Never in a web request; a row is claimed for each attempt."""

from __future__ import annotations

import logging
import smtplib
import time
from collections.abc import Callable
from datetime import timedelta
from email.utils import parseaddr
from typing import TypeVar

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.db.models import F, Model, Q, QuerySet
from django.urls import reverse
from django.utils import timezone

from leaderboard.core.http.site_url import own_address
from submissions.models import Notice

logger = logging.getLogger(__name__)

Row = TypeVar("Row", bound=Model)

ATTEMPTS = 3
#: How long after the first and the second failure it is tried again.
BACKOFF = (timedelta(minutes=1), timedelta(minutes=15))
#: How long a claim lasts: whoever died while sending leaves the mail to another after it.
CLAIM = timedelta(minutes=2)
#: What lies in one mail and says nothing of the server: the next mail may go.
OF_ONE_MAIL = (smtplib.SMTPRecipientsRefused, smtplib.SMTPSenderRefused, smtplib.SMTPDataError, ValueError)


def mail_is_due() -> bool:
    """Whether any mail is to be sent now."""
    return _due().exists()


def send_mail(until: float) -> int:
    """Send what is due until `time.monotonic()` is `until`, or the server is away. Returns how many were sent."""
    return send_each(until, "notice", _claim, _message, _sent, _failed)


def send_each(
    until: float,
    kind: str,
    claim: Callable[[], Row | None],
    message: Callable[[Row, BaseEmailBackend], EmailMessage],
    sent: Callable[[Row], object],
    failed: Callable[[Row], object],
) -> int:
    """Claim rows and send the mail of each until `time.monotonic()` is `until`, or the server is away.

    Returns how many were sent. `kind` is what the log calls a row.
    """
    count = 0
    connection: BaseEmailBackend = get_connection()
    try:
        while time.monotonic() < until and (row := claim()) is not None:
            try:
                message(row, connection).send()
            except Exception as error:
                # No text of the error: servers repeat the address in it.
                logger.warning("%s %s could not be mailed: %s", kind, row.pk, type(error).__name__)
                failed(row)
                connection.close()
                if not isinstance(error, OF_ONE_MAIL):
                    break
            else:
                sent(row)
                count += 1
    finally:
        connection.close()
    return count


def _sent(notice: Notice) -> None:
    _settle(notice, mail_state="sent", not_before=None)


def _due() -> QuerySet[Notice]:
    now = timezone.now()
    return Notice.objects.filter(Q(not_before=None) | Q(not_before__lte=now), mail_state="waiting")


def _claim() -> Notice | None:
    """Take the oldest mail that is due, for the length of a claim."""
    while (found := _due().order_by("pk").select_related("person").first()) is not None:
        if found.mail_attempts >= ATTEMPTS or not found.person.is_active:
            _settle(found, mail_state="failed", in_inbox=True)  # it ended in the middle of the last attempt
            continue
        mine = _due().filter(pk=found.pk, mail_attempts=found.mail_attempts)
        if mine.update(mail_attempts=F("mail_attempts") + 1, not_before=timezone.now() + CLAIM):
            found.mail_attempts += 1
            return found
    return None


def _failed(notice: Notice) -> None:
    """Try again later; after the last attempt the inbox has it, whatever the person's wish, and says so."""
    if notice.mail_attempts >= ATTEMPTS:
        _settle(notice, mail_state="failed", in_inbox=True)
    else:
        _settle(notice, not_before=timezone.now() + BACKOFF[notice.mail_attempts - 1])


def _settle(notice: Notice, **changes: object) -> None:
    """Note what came of an attempt, unless somebody else has claimed the mail since."""
    Notice.objects.filter(pk=notice.pk, mail_attempts=notice.mail_attempts, mail_state="waiting").update(
        **changes
    )


def _message(notice: Notice, connection: BaseEmailBackend) -> EmailMessage:
    address = own_address()
    preferences = address + reverse("notice-preferences")
    parts = [notice.text]
    if notice.path:
        parts.append(address + notice.path)
    parts.append(f"-- \n{settings.SITE_NAME}. Choose what you are told of: {preferences}\n")
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    return EmailMessage(
        subject=" ".join(notice.subject.split()),
        body="\n\n".join(parts),
        to=[notice.person.email],
        headers={
            # The same for each attempt: a program that gets it twice shows it once.
            "Message-ID": f"<notice-{notice.pk}@{domain}>",
            "List-Unsubscribe": f"<{preferences}>",
            "Auto-Submitted": "auto-generated",
        },
        connection=connection,
    )
