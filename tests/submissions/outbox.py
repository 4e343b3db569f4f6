"""What people were told, for tests of notices."""

from __future__ import annotations

import time
from typing import Any

from django.core import mail
from django.core.mail import EmailMessage

from leaderboard.models import (
    User,
)
from submissions.models import (
    Notice,
)
from submissions.notifications.sending import account_mailer
from tests.submissions.clients import Api
from tests.submissions.workers import work


def account_mail() -> list[EmailMessage]:
    """All mail that was sent, once the notifier has sent what waits about accounts."""
    account_mailer.send(deadline=time.monotonic() + 60)
    return mail.outbox


def notices_of(person: User) -> list[Notice]:
    """What the person was told, the oldest first."""
    return list(Notice.objects.filter(person=person).order_by("pk"))


def only_notice(person: User) -> Notice:
    """The one notice that the person has."""
    (notice,) = notices_of(person)
    return notice


def scored(api: Api, **fields: Any) -> str:
    """The id of a submission that was scored."""
    answer = api.submit(**fields)
    assert answer.status == 201, answer.body
    work()
    return str(answer.body["id"])
