"""Answers of systems to a query of an open dataset, with the labels of judges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from evaluation.judgements.labels import SUPPORT, Labels
from evaluation.runs.answer_runs import find_response
from leaderboard.core.storage.runs import run_path
from leaderboard.models import Entry
from leaderboard.results.records import entry_evaluations

#: Number of characters of an answer that a page shows.
SHOWN_CHARACTERS = 600


class ShownResponse(NamedTuple):
    """An answer as shown on a page, with its citations and labels; `is_cut` tells whether it continues."""

    answer: str
    is_cut: bool
    citations: Sequence[str]
    confidence: float | None
    labels: Sequence[tuple[str, str]]


def shown_responses(entries: Iterable[Entry], query_id: str, labels: Labels) -> dict[int, ShownResponse]:
    """Return the responses to a query by entry id, for entries that are answer runs and answered it."""
    responses = {}
    for entry in entries:
        evaluation = entry_evaluations(entry)[0]
        response = None
        if evaluation.is_answer_run:
            with suppress(FileNotFoundError):  # A missing run must not prevent the page from being shown.
                response = find_response(run_path(evaluation.run.sha256), query_id)
        if response is not None:
            answer = response.answer
            responses[entry.pk] = ShownResponse(
                answer[:SHOWN_CHARACTERS],
                len(answer) > SHOWN_CHARACTERS,
                response.citations[:20],
                response.confidence,
                [(key[0], _label_text(label)) for key, label in labels.items() if key[1:] == (query_id, answer)],
            )
    return responses


def _label_text(label: Mapping[str, Any]) -> str:
    """Return a label such as `correct, 1.5 of 2 nuggets`."""
    degree, support, texts = label.get("correct"), label.get("nuggets", {}), []
    if degree is not None:
        texts = [{0: _("incorrect"), 1: _("correct")}.get(degree) or _("%(degree).2g correct") % {"degree": degree}]
    if support:
        supported = sum(SUPPORT[each] for each in support.values())
        texts.append(_("%(number)g of %(total)d nuggets") % {"number": supported, "total": len(support)})
    return ", ".join(texts)
