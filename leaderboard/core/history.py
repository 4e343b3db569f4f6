"""Histories name the person and the reason that the audit names, whoever saves: a page, a command, a verb."""

from __future__ import annotations

from typing import Any

from simple_history.signals import pre_create_historical_record

from leaderboard.core.audit import actor


def connect() -> None:
    """From now on every new row of a history has its reason."""
    pre_create_historical_record.connect(_say_why, dispatch_uid="leaderboard.core.history")


def _say_why(sender: Any, history_instance: Any, **others: Any) -> None:
    who = actor()
    if who.reason and not history_instance.history_change_reason:
        history_instance.history_change_reason = who.reason
    if who.person is not None and history_instance.history_user_id is None:
        history_instance.history_user = who.person
