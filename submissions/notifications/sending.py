"""Sending of account mail, notices, and webhook messages in the notifier's process, never in web requests.

Sign-ups therefore do not wait for mail servers, and web processes need no connection to mail servers or webhooks.
Account mail contains links with secrets, so its rows are deleted once it is sent or given up.
"""

import logging
import smtplib
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from email.utils import parseaddr
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.core.mail import EmailMessage, get_connection
from django.urls import reverse
from django.utils import timezone

from leaderboard.core import wakeup
from leaderboard.core.http.site_url import default_site_address
from leaderboard.models import WorkRequest
from submissions.accounts import outbox
from submissions.models import AccountMail, Notice
from submissions.models.notifications import OutboxQuerySet
from submissions.notifications import events
from submissions.notifications.webhooks import deliveries_are_due, send_deliveries

logger = logging.getLogger(__name__)

#: Duration of a turn in seconds, half of it for mail. Remaining messages are sent in the next turn.
TURN_SECONDS = 20.0
#: Cache lock for one turn at a time. It expires on its own; rows are claimed in any case.
_LOCK, _LOCK_SECONDS = "notices-turn", 60
ATTEMPTS = 3
#: Delays after the first and the second failure.
BACKOFF = (timedelta(minutes=1), timedelta(minutes=15))
#: Errors of a single email, after which sending continues.
SINGLE_MAIL_ERRORS = (smtplib.SMTPRecipientsRefused, smtplib.SMTPSenderRefused, smtplib.SMTPDataError, ValueError)


class Mailer:
    """Base class for sending one kind of mail; subclasses provide rows, `message`, `mark_sent`, and `give_up`."""

    #: Name of a row in the log.
    kind: str
    message: Callable[[Any], EmailMessage]
    mark_sent: Callable[[Any], None]
    give_up: Callable[[Any], None]

    def waiting(self) -> OutboxQuerySet:
        """Return the unsent rows."""
        raise NotImplementedError

    def is_due(self) -> bool:
        return self.waiting().due().exists()

    def send(self, deadline: float) -> int:
        """Send due mail until `time.monotonic()` reaches `deadline` or the server fails; return the number sent.

        Failed mail is retried later, or given up after the last attempt. Errors of a single recipient do not end
        sending.
        """
        count = 0
        connection = get_connection()
        try:
            while time.monotonic() < deadline and (row := self.claim()) is not None:
                try:
                    message = self.message(row)
                    message.connection = connection
                    message.send()
                except Exception as error:
                    # Do not log the text of the error: servers repeat the address in it.
                    logger.warning("Could not mail %s %s: %s", self.kind, row.pk, type(error).__name__)
                    self.retry_later(row)
                    connection.close()
                    if not isinstance(error, SINGLE_MAIL_ERRORS):
                        break
                else:
                    self.mark_sent(row)
                    count += 1
        finally:
            connection.close()
        return count

    def claim(self) -> Any:
        """Claim the oldest due row and return it, or return None if there is none.

        Rows without attempts left or without a recipient are given up.
        """
        while (row := self.waiting().due().order_by("pk").first()) is not None:
            if row.attempts >= ATTEMPTS or not self.is_wanted(row):
                self.give_up(row)
            elif self.waiting().claim(row):
                return row
        return None

    def is_wanted(self, row: Any) -> bool:
        """Return whether the recipient still exists."""
        return True

    def retry_later(self, row: Any) -> None:
        """Schedule another attempt, or give up after the last one."""
        if row.attempts >= ATTEMPTS:
            self.give_up(row)
        else:
            self.waiting().held(row).update(not_before=timezone.now() + BACKOFF[row.attempts - 1])


class AccountMailer(Mailer):
    """Sender of account mail: address verification, passwords, changes, and invitations."""

    kind = "account mail"

    def waiting(self) -> OutboxQuerySet:
        """Return all rows, since rows are deleted once they are sent."""
        return AccountMail.objects.all()

    def message(self, row: AccountMail) -> EmailMessage:
        return EmailMessage(row.subject, row.text, row.sender, [row.address], headers=_headers("account", row))

    def mark_sent(self, row: AccountMail) -> None:
        """Delete the row with the secret in its link."""
        self.waiting().held(row).delete()

    def give_up(self, row: AccountMail) -> None:
        self.mark_sent(row)
        logger.warning("Gave up account mail %s", row.pk)


class NoticeMailer(Mailer):
    """Sender of notices to users who want them by mail."""

    kind = "notice"

    def waiting(self) -> OutboxQuerySet:
        """Return the notices with unsent mail."""
        return Notice.objects.filter(mail_state="waiting").select_related("person")

    def message(self, row: Notice) -> EmailMessage:
        """Return the notice as an email with links to its page and to the user's preferences."""
        address = default_site_address()
        preferences = address + reverse("notice-preferences")
        parts = [row.text]
        if row.path:
            parts.append(address + row.path)
        parts.append(f"-- \n{settings.SITE_NAME}. Choose your notifications: {preferences}\n")
        return EmailMessage(
            subject=" ".join(row.subject.split()),
            body="\n\n".join(parts),
            to=[row.person.email],
            headers={**_headers("notice", row), "List-Unsubscribe": f"<{preferences}>"},
        )

    def mark_sent(self, row: Notice) -> None:
        self.waiting().held(row).update(mail_state="sent", not_before=None)

    def give_up(self, row: Notice) -> None:
        """Mark the mail as failed and show the notice in the inbox in any case."""
        self.waiting().held(row).update(mail_state="failed", in_inbox=True)

    def is_wanted(self, row: Notice) -> bool:
        """Return whether the recipient's account is active."""
        return row.person.is_active


def _headers(kind: str, row: AccountMail | Notice) -> dict[str, str]:
    """Return headers that are the same for all attempts, so that mail programs show duplicates once."""
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    return {"Message-ID": f"<{kind}-{row.pk}@{domain}>", "Auto-Submitted": "auto-generated"}


account_mailer, notice_mailer = AccountMailer(), NoticeMailer()


# --- turns of the notifier


def wake_notifier() -> bool:
    """Wake the notifier if messages are due. Return whether any are."""
    if not has_notifications():
        return False
    if not wakeup.count_pending(outbox.QUEUE):  # without a notifier, messages would pile up in the broker
        wakeup.send_wakeup(outbox.NOTIFY, outbox.QUEUE)
    return True


def has_notifications() -> bool:
    """Return whether `send_notifications` would store or send anything now."""
    return (
        WorkRequest.objects.filter(kind=WorkRequest.Kind.NOTIFY, taken_at=None).exists()
        or events.finished_submissions().exists()
        or bool(events.finished_bulks())
        or account_mailer.is_due()
        or notice_mailer.is_due()
        or deliveries_are_due()
        or events.has_announcements()
    )


def send_notifications() -> None:
    """Send due account mail, store notices of new events, and send due notices and webhook messages.

    Messages that remain after the time limits are sent in the next turn. Does nothing while another worker does the
    same.
    """
    token = uuid.uuid4().hex
    if not cache.add(_LOCK, token, timeout=_LOCK_SECONDS):
        return
    try:
        # Account mail is sent first, since users wait for it.
        account_mailer.send(deadline=time.monotonic() + TURN_SECONDS / 2)
        events.notify_finished()
        events.process_events()
        events.announce_rounds()
        now = time.monotonic()
        notice_mailer.send(deadline=now + TURN_SECONDS / 2)
        send_deliveries(deadline=now + TURN_SECONDS)
    finally:
        if cache.get(_LOCK) == token:  # otherwise it has expired, and another turn may hold it
            cache.delete(_LOCK)
