"""`/models/`: what may be brought as a model, what runs it, and what is refused, as the registries have it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evaluation.checkpoints.codes import CODES
from evaluation.checkpoints.library import library_models
from evaluation.core.problems import codes_about
from evaluation.engines import ENGINES
from evaluation.engines.prompts import TEMPLATES, shown
from leaderboard.core.cache.pages import cache_page
from submissions.checkpoints import reference
from submissions.checkpoints.hub import fetches


def _revision() -> str:
    return f"hub {fetches()}"


@require_safe
@cache_page(_revision)
def models(request: HttpRequest) -> HttpResponse:
    """Kinds, engines with their parameters, types of models, prompts, limits, refusals."""
    context = {
        "section": "models",
        "kinds": reference.kinds(),
        "engines": list(ENGINES.values()),
        "library": library_models().version,
        "templates": [(each, shown(each.query), shown(each.document)) for each in TEMPLATES],
        "limits": reference.limits(),
        "hub": fetches(),
        "codes": list(CODES.items()),
        "failure_codes": [code for code in codes_about("model") if code not in CODES],
    }
    return render(request, "submissions/models.html", context)
