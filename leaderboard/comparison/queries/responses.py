"""Answers of systems to a query of an open dataset, next to the correct answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from evaluation.judgements.answers import Answers, read_answers
from evaluation.runs.answer_runs import find_response
from leaderboard.core.storage.runs import run_path
from leaderboard.core.storage.store import Area, local_path
from leaderboard.models import DatasetVersion, Entry
from leaderboard.results.records import entry_evaluations

#: Number of characters of an answer that a page shows.
SHOWN_CHARACTERS = 600


class ShownResponse(NamedTuple):
    """An answer as shown on a page, with its citations; `is_cut` tells whether it continues."""

    answer: str
    is_cut: bool
    citations: Sequence[str]
    confidence: float | None


def shown_responses(entries: Iterable[Entry], query_id: str) -> dict[int, ShownResponse]:
    """Return the responses to a query by entry id, for entries that are answer runs and answered it."""
    responses = {}
    for entry in entries:
        evaluation = entry_evaluations(entry)[0]
        # Answer runs, and no other runs, have a score by CiteP.
        response = None
        if "CiteP" in evaluation.measures:
            with suppress(FileNotFoundError):  # A missing run must not prevent the page from being shown.
                response = find_response(run_path(evaluation.run.sha256), query_id)
        if response is not None:
            answer = response.answer
            is_cut = len(answer) > SHOWN_CHARACTERS
            responses[entry.pk] = ShownResponse(
                answer[:SHOWN_CHARACTERS], is_cut, response.citations[:20], response.confidence
            )
    return responses


def correct_answers(version: DatasetVersion | None, query_id: str) -> Sequence[str]:
    """Return the correct answers to a query, or their patterns, from the files that the dataset offers."""
    files = version.files.filter(name="answers.jsonl.gz") if version is not None else ()
    answers = next((_read_answers(file.sha256).get(query_id, Answers()) for file in files), Answers())
    return answers.texts or [pattern.pattern for pattern in answers.patterns]


@lru_cache(maxsize=8)
def _read_answers(sha256: str) -> dict[str, Answers]:
    return read_answers(local_path(Area.FILES, sha256), try_patterns=False)
