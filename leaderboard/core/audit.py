"""Who changed what, when, and why: the only writer of `AuditRecord`.

Whoever acts says so around the act:

    with acting(person, "near-duplicate of an earlier run"):
        quarantine(entry, …)

and every public number that changes inside is recorded with the person and the reason, by `revisions`, which all
changes of boards go through. Outside of it the site itself is named.
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

#: Whose act it is where nobody said.
THE_SITE = "the site"
#: What of an entry's row is a public number, or decides which numbers are shown.
NUMBERS = (
    "scores", "deviations", "private_scores", "visibility", "is_baseline", "comparison_group", "seed_count",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and why."""

    person: User | None
    reason: str

    @property
    def name(self) -> str:
        """Shown in records: never an e-mail address. Of people who curate nothing the number alone, so that no name
        stays of who closes their account."""
        if self.person is None:
            return THE_SITE
        return self.person.name_on_record[:150] or named(self.person)


_NOBODY = Actor(None, "")
_acting: ContextVar[Actor] = ContextVar("acting", default=_NOBODY)


@contextmanager
def acting(person: User | None, reason: str = "") -> Iterator[None]:
    """Name the person and the reason for whatever is recorded inside."""
    token = _acting.set(Actor(person, reason))
    try:
        yield
    finally:
        _acting.reset(token)


def actor() -> Actor:
    """Who acts now."""
    return _acting.get()


def named(subject: object) -> str:
    """What records call it: an account by its number, since a record is never deleted, and its address is private."""
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
    """Write down an act of curation, in the transaction that does it. Never a judgement, secret or hidden text."""
    values = {"before": dict(before or {}), "after": dict(after or {})}
    row = _record_of(
        action, named(subject), timezone.now(), dataset_id=_key(dataset), entry_id=_key(entry), **values
    )
    row.save()
    return row


def _record_of(action: str, subject: str, at: datetime, **values: Any) -> AuditRecord:
    """A record of what whoever acts does at that time, not written yet."""
    who = actor()
    return AuditRecord(
        at=at,
        actor=who.person,
        actor_name=who.name,
        action=action,
        subject=subject[:300],
        reason=who.reason,
        **values,
    )


def record_numbers(
    dataset: int,
    revision: int,
    action: str,
    before: Mapping[int, Mapping[str, Any]],
    after: Mapping[int, Mapping[str, Any]],
) -> None:
    """Write down which public numbers of a board changed: rows by entry, as they were and as they are now."""
    records, now = [], timezone.now()
    for entry in sorted({*before, *after}):
        old, new = _numbers(before.get(entry)), _numbers(after.get(entry))
        if old != new:
            system = (after.get(entry) or before[entry]).get("system", "")
            values = {"revision": revision, "before": old, "after": new}
            records.append(_record_of(action, system, now, dataset_id=dataset, entry_id=entry, **values))
    AuditRecord.objects.bulk_create(records, batch_size=500)


def _numbers(row: Mapping[str, Any] | None) -> dict[str, Any]:
    if row is None:
        return {}
    return {name: row[name] for name in NUMBERS if row.get(name) not in (None, {}, 0)}


def _key(row: Dataset | Entry | int | None) -> int | None:
    return row if row is None or isinstance(row, int) else row.pk


def connect_histories() -> None:
    """Let histories name the person and the reason that the audit names, whoever saves: a page, a command, a model."""

    def name_actor(sender: Any, history_instance: Any, **others: Any) -> None:
        who = actor()
        if who.reason and not history_instance.history_change_reason:
            history_instance.history_change_reason = who.reason
        if who.person is not None and history_instance.history_user_id is None:
            history_instance.history_user = who.person

    dispatch_uid = "leaderboard.core.history"
    pre_create_historical_record.connect(name_actor, weak=False, dispatch_uid=dispatch_uid)
