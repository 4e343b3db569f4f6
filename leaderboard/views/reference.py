"""Pages that say how numbers are made and what files look like."""

from __future__ import annotations

from typing import NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evaluation.archives.compression import Limits
from evaluation.checkpoints.codes import CODES
from evaluation.core.problems import PROBLEM_CODES, codes_about
from evaluation.execution.failures import MODEL_FAILURES
from evaluation.measures import DEFAULT_MEASURES, FAMILIES, SPEC_VERSION, Family
from evaluation.statistics.ladder import PUBLIC_STEP, STEP
from leaderboard.core.cache.pages import kept_page
from leaderboard.results.publishing import HIDDEN_DECIMALS


def _fixed(**_: str) -> str:
    return SPEC_VERSION


class Explained(NamedTuple):
    """A family of measures as its page tells it."""

    label: str
    description: str
    definition: str
    source: str
    spellings: list[str]
    higher_is_better: bool


def _explained(family: Family) -> Explained:
    cutoff = {"required": "@k", "optional": "", "none": ""}[family.cutoff]
    return Explained(
        label=family.name + (f"({family.parameter})" if family.parameter else "") + cutoff,
        description=family.description,
        definition=family.definition,
        source=family.source,
        spellings=[alias.format(k="k") for alias in family.aliases],
        higher_is_better=family.higher_is_better,
    )


@require_safe
@kept_page(_fixed)
def measures(request: HttpRequest) -> HttpResponse:
    """Every measure with its names, formula and source, and the rules that all of them follow."""
    context = {
        "section": "measures",
        "families": [_explained(family) for family in FAMILIES.values()],
        "default_measures": DEFAULT_MEASURES,
        "specification": SPEC_VERSION,
        "hidden_decimals": HIDDEN_DECIMALS,
        "ladder_step": STEP,
        "public_step": PUBLIC_STEP,
    }
    return render(request, "leaderboard/measures.html", context)


@require_safe
@kept_page(_fixed)
def formats(request: HttpRequest) -> HttpResponse:
    """Run files, datasets, limits, and every problem a report may name."""
    context = {
        "section": "formats",
        "file_codes": codes_about("file"),
        "request_codes": codes_about("request"),
        "checkpoint_codes": [
            (code, accepted)
            for code, accepted in CODES.items()
            if code not in PROBLEM_CODES or code in MODEL_FAILURES
        ],
        "failure_codes": [code for code in codes_about("model") if code not in CODES],
        "checkpoint_limit": settings.CHECKPOINT_LIMIT_BYTES,
        "limits": Limits(),
        "upload_limit": settings.UPLOAD_LIMIT_BYTES,
        "at_once": settings.VALIDATE_AT_ONCE_BYTES,
    }
    return render(request, "leaderboard/formats.html", context)
