"""Judgements handed out to a person: the one place that does it, and it writes down who, before the first byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leaderboard.core.audit import record
from leaderboard.core.storage.store import Area, path_of
from leaderboard.models import Qrels

READ = "read judgements"


def hand_out(qrels: Qrels) -> Path:
    """The file of these judgements, after the reading is recorded. Call within `leaderboard.core.audit.acting`.

    Whoever calls it has asked for the right `leaderboard.read_qrels`. The record is committed before anything is read:
    not within a transaction that could take it back.
    """
    path = path_of(Area.QRELS, qrels.sha256)
    record_reading(qrels, qrels.version.dataset_id, qrels=qrels.pk)
    return path


def record_reading(subject: object, dataset: int, **what: Any) -> None:
    """Write down that somebody reads judgements, or something that tells them. Within `audit.acting`."""
    record(READ, subject, dataset=dataset, after=what)
