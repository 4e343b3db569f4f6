"""Audit log of curation: the only code that writes `AuditRecord`.

Callers name the person and the reason around an action:

    with acting(person, "near-duplicate of an earlier run"):
        quarantine(entry, …)

Every public number that changes inside the block is recorded with both, because all board changes go through
`revisions`. Outside such a block, changes are attributed to the site itself.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone
from simple_history.signals import pre_create_historical_record

from leaderboard.models import AuditRecord, Dataset, Entry, User

#: Default actor.
THE_SITE = "the site"
#: Columns of an entry's board row that are public numbers, or that decide which numbers are shown.
NUMBERS = (
    "scores", "deviations", "private_scores", "visibility", "is_baseline", "comparison_group", "seed_count",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Actor:
    """A person who acts, and the reason."""

    person: User | None
    reason: str

    @property
    def name(self) -> str:
        """Name shown in records, never an email address.

        Users who do not curate appear as an account number, so that no name remains after they close their account.
        """
        if self.person is None:
            return THE_SITE
        return self.person.name_on_record[:150] or subject_name(self.person)


_SITE_ACTOR = Actor(None, "")
_acting: ContextVar[Actor] = ContextVar("acting", default=_SITE_ACTOR)


@contextmanager
def acting(person: User | None, reason: str = "") -> Iterator[None]:
    """Attribute everything recorded inside the block to a person and a reason."""
    token = _acting.set(Actor(person, reason))
    try:
        yield
    finally:
        _acting.reset(token)


def actor() -> Actor:
    return _acting.get()


def subject_name(subject: object) -> str:
    """Return the subject's name in records.

    Accounts appear by number, because records are never deleted and email addresses are private.
    """
    return f"account {subject.pk}" if isinstance(subject, User) else str(subject)


def record(
    action: str,
    subject: object,
    *,
    dataset: Dataset | int | None = None,
    entry: Entry | int | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> AuditRecord:
    """Store an audit record with the current actor and reason, in the caller's transaction.

    The values must not contain judgments, secrets or hidden text.
    """
    values = {"before": dict(before or {}), "after": dict(after or {})}
    row = _build_record(
        action, subject_name(subject), timezone.now(), dataset_id=_key(dataset), entry_id=_key(entry), **values
    )
    row.save()
    return row


def _build_record(action: str, subject: str, timestamp: datetime, **values: Any) -> AuditRecord:
    """Return an unsaved audit record with the current actor and reason."""
    current_actor = actor()
    return AuditRecord(
        at=timestamp,
        actor=current_actor.person,
        actor_name=current_actor.name,
        action=action,
        subject=subject[:300],
        reason=current_actor.reason,
        **values,
    )


def record_numbers(
    dataset: int,
    revision: int,
    action: str,
    before: Mapping[int, Mapping[str, Any]],
    after: Mapping[int, Mapping[str, Any]],
) -> None:
    """Store an audit record for each entry whose public numbers on a board changed.

    Args:
        dataset: Primary key of the board's dataset.
        revision: Revision of the board that the changes produce.
        action: Name of the action.
        before: Board rows before the change, by entry id.
        after: Board rows after the change, by entry id.
    """
    records, now = [], timezone.now()
    for entry in sorted({*before, *after}):
        numbers_before, numbers_after = _numbers(before.get(entry)), _numbers(after.get(entry))
        if numbers_before != numbers_after:
            system = (after.get(entry) or before[entry]).get("system", "")
            values = {"revision": revision, "before": numbers_before, "after": numbers_after}
            records.append(_build_record(action, system, now, dataset_id=dataset, entry_id=entry, **values))
    AuditRecord.objects.bulk_create(records, batch_size=500)


def _numbers(row: Mapping[str, Any] | None) -> dict[str, Any]:
    if row is None:
        return {}
    return {name: row[name] for name in NUMBERS if row.get(name) not in (None, {}, 0)}


def _key(row: Dataset | Entry | int | None) -> int | None:
    return row if row is None or isinstance(row, int) else row.pk


def connect_histories() -> None:
    """Connect a signal that adds the current person and reason to the history rows of django-simple-history."""

    def name_actor(sender: Any, history_instance: Any, **options: Any) -> None:
        current_actor = actor()
        if current_actor.reason and not history_instance.history_change_reason:
            history_instance.history_change_reason = current_actor.reason
        if current_actor.person is not None and history_instance.history_user_id is None:
            history_instance.history_user = current_actor.person

    dispatch_uid = "leaderboard.core.history"
    pre_create_historical_record.connect(name_actor, weak=False, dispatch_uid=dispatch_uid)
