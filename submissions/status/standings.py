"""Gives described submissions what may be said of their results: read together, however many there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from leaderboard.boards.system.standing import standings
from leaderboard.models import Entry
from submissions.models import Submission
from submissions.status.description import SubmissionStatus, describe


def with_standings(statuses: Iterable[SubmissionStatus]) -> list[SubmissionStatus]:
    """The same, where each dataset's part says where its result stands."""
    statuses = list(statuses)
    found = standings(_entries(statuses))
    return [
        replace(
            status,
            parts=tuple(
                replace(part, standing=found.get(part.entry.pk if part.entry else 0)) for part in status.parts
            ),
        )
        for status in statuses
    ]


def describe_with_standing(
    submission: Submission, *, complete: bool, compare: bool = True
) -> SubmissionStatus:
    """`describe` for one submission, with where its results stand."""
    return with_standings([describe(submission, complete=complete, compare=compare)])[0]


def _entries(statuses: Iterable[SubmissionStatus]) -> Iterable[Entry]:
    for status in statuses:
        for part in status.parts:
            if part.entry is not None:
                part.entry.dataset = part.dataset  # the same row, which is not to be read again
                yield part.entry
