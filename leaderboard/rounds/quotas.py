"""Rounds beside quotas: how many runs the datasets' quotas let a team send while a round is open."""

from __future__ import annotations

from datetime import UTC

from leaderboard.models import Dataset, Round
from leaderboard.rounds.lifecycle import datasets_of


def within_quota(row: Round, dataset: Dataset) -> int | None:
    """The most submissions to the dataset that days and months (UTC) of the open round allow; None for no limit."""
    if not dataset.hidden:
        return None
    opens, closes = row.opens_at.astimezone(UTC), row.closes_at.astimezone(UTC)
    days = (closes.date() - opens.date()).days + 1
    months = 12 * (closes.year - opens.year) + closes.month - opens.month + 1
    limits = [
        units * quota
        for units, quota in ((days, dataset.daily_quota), (months, dataset.monthly_quota))
        if quota is not None
    ]
    return min(limits, default=None)


def quota_warning(row: Round) -> str:
    """Which datasets' quotas keep a team from sending as many runs as the round takes, and what to do; else empty."""
    short = [
        f"{dataset} lets a team send {most} while the round is open"
        for dataset in datasets_of(row)
        if (most := within_quota(row, dataset)) is not None and most < row.runs_per_team
    ]
    if not short:
        return ""
    return (
        f"The round takes {row.runs_per_team} runs of a team, but by its quota {'; '.join(short)}. "
        "Raise the dataset's quota, leave the round open longer, or take fewer runs."
    )
