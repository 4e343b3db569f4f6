"""Gives described submissions what may be said of their results: read together, however many there are."""

from collections.abc import Iterable
from dataclasses import replace

from leaderboard.boards.system.standing import standings
from leaderboard.models import Dataset
from leaderboard.results.publishing.publication import best_shown_result
from submissions.models import State, Submission
from submissions.status.description import DatasetPart, SubmissionStatus, describe
from submissions.status.scores import NO_CHANGE, is_held


def with_standings(statuses: Iterable[SubmissionStatus]) -> list[SubmissionStatus]:
    """Return the same, where each dataset's part says where its result stands."""
    statuses = list(statuses)
    entries = []
    for part in (part for status in statuses for part in status.parts):
        if part.entry is not None:
            part.entry.dataset = part.dataset  # the same row, which need not be read again
            entries.append(part.entry)
    found = standings(entries)
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


def outcome_text(status: SubmissionStatus, dataset: Dataset | None = None) -> str:
    """Return how a submission ended, for mails and webhooks: plain text, a line for each dataset, or for one alone.

    The status is one with standings, and its jobs have all ended.
    """
    return "\n".join(_outcome(part) for part in status.parts if dataset in (None, part.dataset))


def _outcome(part: DatasetPart) -> str:
    """One dataset's line: of a seed set what the set has, and nothing where it is not complete."""
    name, entry = part.dataset.name, part.entry
    if entry is not None and entry.waits_for_its_turn:
        return f"{name}: scored, and published in its turn."
    if entry is not None and is_held(entry):
        known = best_shown_result(entry)
        measure = part.dataset.primary_measure
        shown = known.scores.get(measure) if known is not None else None
        return f"{name}: {NO_CHANGE}." + (
            f" Your team has {measure} {shown:.3f}." if shown is not None else ""
        )
    if part.standing is not None:
        return f"{name}: {part.standing.score_text}. {part.standing.sentence[:1].upper()}{part.standing.sentence[1:]}."
    lost = [job for job in part.jobs if job.state != State.DONE]
    seeds = f" (seed {', '.join(job.job.seed for job in lost)})" if part.seeds is not None and lost else ""
    return f"{name}: {(lost or part.jobs)[0].state.label}{seeds}."
