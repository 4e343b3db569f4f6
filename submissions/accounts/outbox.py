"""Outbox of account email. The notifier sends the messages that are stored here."""

from django.core.mail import EmailMessage
from django.db import transaction

from leaderboard.core import wakeup
from submissions.models import AccountMail

#: Name of the notifier's task and of its queue, which are part of the wire format.
NOTIFY, QUEUE = "runboard.notify", "notices"


def queue_account_mail(message: EmailMessage) -> None:
    """Store an email to one recipient and wake the notifier, which sends it immediately if it is running."""
    (address,) = message.to
    AccountMail.objects.create(
        address=address,
        sender=message.from_email,
        subject=one_line(str(message.subject)),
        text=str(message.body),
    )
    transaction.on_commit(lambda: wakeup.send_wakeup(NOTIFY, QUEUE))


def one_line(text: str) -> str:
    """Return user-provided text for use in emails: on one line and without invisible characters."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
