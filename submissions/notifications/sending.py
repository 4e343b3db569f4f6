"""Sending of mail about accounts, notices, and messages to webhooks, in a process of its own; never in a web request.

A signup waits for no mail server, and the web processes need no connection to one, nor to a server of a stranger. Mail
about accounts has links with secrets, so its row lasts until it is sent, or was tried as often as other mail.
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

#: Seconds of one turn, half of them for mail. The remaining messages are sent in the next turn.
TURN = 20.0
#: With several workers there is one turn at a time. The lock ends by itself; rows are claimed all the same.
_LOCK, _LOCK_SECONDS = "notices-turn", 60
ATTEMPTS = 3
#: How long after the first and the second failure it is tried again.
BACKOFF = (timedelta(minutes=1), timedelta(minutes=15))
#: Errors that concern one mail and say nothing about the server: the next mail may go.
OF_ONE_MAIL = (smtplib.SMTPRecipientsRefused, smtplib.SMTPSenderRefused, smtplib.SMTPDataError, ValueError)


class Mailer:
    """Sender of one kind of mail from its rows. A subclass has the rows, and `message`, `mark_sent` and `give_up`."""

    #: What the log calls a row.
    kind: str
    message: Callable[[Any], EmailMessage]
    mark_sent: Callable[[Any], None]
    give_up: Callable[[Any], None]

    def waiting(self) -> OutboxQuerySet:
        """Return the rows whose mail is not sent yet."""
        raise NotImplementedError

    def is_due(self) -> bool:
        """Return whether any mail is to be sent now."""
        return self.waiting().due().exists()

    def send(self, until: float) -> int:
        """Send what is due until `time.monotonic()` is `until`, or the server is away. Returns how many were sent."""
        count = 0
        connection = get_connection()
        try:
            while time.monotonic() < until and (row := self.claim()) is not None:
                try:
                    message = self.message(row)
                    message.connection = connection
                    message.send()
                except Exception as error:
                    # The error's own text stays out of the log: servers repeat the address in it.
                    logger.warning("%s %s could not be mailed: %s", self.kind, row.pk, type(error).__name__)
                    self.retry_later(row)
                    connection.close()
                    if not isinstance(error, OF_ONE_MAIL):
                        break
                else:
                    self.mark_sent(row)
                    count += 1
        finally:
            connection.close()
        return count

    def claim(self) -> Any:
        """Take the oldest row that is due, or None. One that was tried for the last time by a sender that died, or
        whose person is gone, is given up.
        """
        while (row := self.waiting().due().order_by("pk").first()) is not None:
            if row.attempts >= ATTEMPTS or not self.is_wanted(row):
                self.give_up(row)
            elif self.waiting().claim(row):
                return row
        return None

    def is_wanted(self, row: Any) -> bool:
        """Return whether anybody is there to read it."""
        return True

    def retry_later(self, row: Any) -> None:
        """Try again after a while; give up after the last attempt."""
        if row.attempts >= ATTEMPTS:
            self.give_up(row)
        else:
            not_before = timezone.now() + BACKOFF[row.attempts - 1]
            self.waiting().held(row).update(not_before=not_before)


class AccountMailer(Mailer):
    """Sends mail about accounts: verifying an address, a new password, what has changed, an invitation."""

    kind = "account mail"

    def waiting(self) -> OutboxQuerySet:
        """Every row: a row goes with its mail."""
        return AccountMail.objects.all()

    def message(self, row: AccountMail) -> EmailMessage:
        """Return the mail as it was written down."""
        return EmailMessage(
            row.subject, row.text, row.sender, [row.address], headers=_headers("account", row)
        )

    def mark_sent(self, row: AccountMail) -> None:
        """Delete the row, and with it the secret of its link."""
        self.waiting().held(row).delete()

    def give_up(self, row: AccountMail) -> None:
        """Delete the row."""
        self.mark_sent(row)
        logger.warning("account mail %s was given up", row.pk)


class NoticeMailer(Mailer):
    """Sends notices to people who want them by mail."""

    kind = "notice"

    def waiting(self) -> OutboxQuerySet:
        """Notices whose mail is not sent yet."""
        return Notice.objects.filter(mail_state="waiting").select_related("person")

    def message(self, row: Notice) -> EmailMessage:
        """Return the text, where to read more, and where to choose what mail to have."""
        address = default_site_address()
        preferences = address + reverse("notice-preferences")
        parts = [row.text]
        if row.path:
            parts.append(address + row.path)
        parts.append(f"-- \n{settings.SITE_NAME}. Choose what you are told of: {preferences}\n")
        return EmailMessage(
            subject=" ".join(row.subject.split()),
            body="\n\n".join(parts),
            to=[row.person.email],
            headers={**_headers("notice", row), "List-Unsubscribe": f"<{preferences}>"},
        )

    def mark_sent(self, row: Notice) -> None:
        """Keep the notice as sent."""
        self.waiting().held(row).update(mail_state="sent", not_before=None)

    def give_up(self, row: Notice) -> None:
        """Have the inbox show it, whatever the person's wish, and say that it could not be mailed."""
        self.waiting().held(row).update(mail_state="failed", in_inbox=True)

    def is_wanted(self, row: Notice) -> bool:
        """Return whether the person can still sign in."""
        return row.person.is_active


def _headers(kind: str, row: AccountMail | Notice) -> dict[str, str]:
    """Return the same for each attempt: a mail program that gets the mail twice shows it once."""
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    return {"Message-ID": f"<{kind}-{row.pk}@{domain}>", "Auto-Submitted": "auto-generated"}


account_mailer, notice_mailer = AccountMailer(), NoticeMailer()


# --- turns of the notifier


def wake_notifier() -> bool:
    """Wake a notifier if there is anything to tell. Return whether there is."""
    if not has_notifications():
        return False
    if not wakeup.count_pending(outbox.QUEUE):  # without a notifier they would pile up in the broker
        wakeup.send_wakeup(outbox.NOTIFY, outbox.QUEUE)
    return True


def has_notifications() -> bool:
    """Return whether a turn would store or send anything now."""
    requests = WorkRequest.objects.filter(kind=WorkRequest.Kind.NOTIFY, taken_at=None)
    return (
        requests.exists()
        or events.finished_submissions().exists()
        or bool(events.finished_bulks())
        or account_mailer.is_due()
        or notice_mailer.is_due()
        or deliveries_are_due()
        or events.has_announcements()
    )


def send_notifications() -> None:
    """Store notices of what happened, then send messages for `TURN` seconds at most, unless another worker does."""
    token = uuid.uuid4().hex
    if not cache.add(_LOCK, token, timeout=_LOCK_SECONDS):
        return
    try:
        # First: somebody waits for it in front of a page.
        account_mailer.send(until=time.monotonic() + TURN / 2)
        events.notify_finished()
        events.process_events()
        events.announce_rounds()
        now = time.monotonic()
        notice_mailer.send(until=now + TURN / 2)
        send_deliveries(until=now + TURN)
    finally:
        if cache.get(_LOCK) == token:  # else it ended before the turn did, and may be another's by now
            cache.delete(_LOCK)
