"""The outbox of account mail. The notifier sends what is written here."""

from django.core.mail import EmailMessage
from django.db import transaction

from leaderboard.core import wakeup
from submissions.models import AccountMail

#: The notifier's task and its queue. Names on the wire.
NOTIFY, QUEUE = "runboard.notify", "notices"


def queue_account_mail(message: EmailMessage) -> None:
    """Write the mail down for its one recipient, and wake the notifier: it is sent at once where that is alive."""
    (address,) = message.to
    AccountMail.objects.create(
        address=address,
        sender=message.from_email,
        subject=one_line(str(message.subject)),
        text=str(message.body),
    )
    transaction.on_commit(lambda: wakeup.send_wakeup(NOTIFY, QUEUE))


def one_line(text: str) -> str:
    """Return a text that somebody typed as mail may have it: on one line, without characters that nobody can see."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
