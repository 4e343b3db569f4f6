"""What other sites and tools read: a system's results, what to cite for it, a dataset's description."""

from __future__ import annotations

import json

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe

from leaderboard.boards.exchange import croissant
from leaderboard.boards.exchange.system_results import (
    every_eval_ever_record,
    mteb_archive,
    results_of,
    to_yaml,
)
from leaderboard.boards.exports.bibtex import bibliography
from leaderboard.core import anonymity
from leaderboard.core.cache.pages import cache_page, vary_on_site_address
from leaderboard.core.http.site_url import absolute
from leaderboard.core.text.bibtex import parse_entries
from leaderboard.datasets.files import offered_files
from leaderboard.models import Dataset, Entry, System
from leaderboard.models.results import EntryQuerySet
from leaderboard.results import citations
from leaderboard.views.board_views import site_revision

#: Every answer names addresses of the site.
_kept = cache_page(site_revision, vary_on_site_address())


def _system(slug: str) -> System:
    """A system with anything on a board. Raises Http404."""
    seen = System.objects.filter(pk__in=EntryQuerySet(Entry).public().values("system_id"))
    return anonymity.public_system(get_object_or_404(seen.select_related("team", "source"), slug=slug))


def _attached(content: str | bytes, content_type: str, name: str) -> HttpResponse:
    response = HttpResponse(content, content_type=content_type)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@require_safe
@_kept
def system_mteb(request: HttpRequest, slug: str) -> HttpResponse:
    """The system's results as MTEB's results repository has them: a zip."""
    system = _system(slug)
    page = absolute(request, reverse("system", args=[slug]))
    packed = mteb_archive(system, results_of(system.pk), page)
    return _attached(packed, "application/zip", f"{slug}-mteb.zip")


@require_safe
@_kept
def system_eval_results(request: HttpRequest, slug: str) -> HttpResponse:
    """The system's results as Hugging Face's model pages take them."""
    system = _system(slug)
    page = absolute(request, reverse("system", args=[slug]))
    user = anonymity.team_shown(system)
    text = to_yaml(results_of(system.pk), settings.SITE_NAME, page, user)
    return _attached(text, "application/yaml; charset=utf-8", f"{slug}.yaml")


@require_safe
@_kept
def system_every_eval_ever(request: HttpRequest, slug: str) -> HttpResponse:
    """The system's results as Every Eval Ever collects them."""
    system = _system(slug)
    record = every_eval_ever_record(
        system,
        results_of(system.pk),
        settings.SITE_NAME,
        absolute(request, reverse("system", args=[slug])),
        lambda result: absolute(request, reverse("dataset", args=[result.dataset_slug])),
    )
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    return _attached(text, "application/json; charset=utf-8", f"{slug}-every-eval-ever.json")


@require_safe
@_kept
def system_bibtex(request: HttpRequest, slug: str) -> HttpResponse:
    """What to cite for the system: its own BibTeX or its source's, else its authors, else its page."""
    _system(slug)
    page = absolute(request, reverse("system", args=[slug]))
    entries = bibliography(parse_entries(citations.citation(slug, page, settings.SITE_NAME)))
    return _attached("\n\n".join(entries) + "\n", "text/x-bibtex; charset=utf-8", f"{slug}.bib")


@require_safe
@_kept
def dataset_croissant(request: HttpRequest, slug: str) -> HttpResponse:
    """The dataset as Croissant 1.1, with what everyone may download, whoever asks."""
    datasets = Dataset.objects.exclude(state=Dataset.State.PREPARING)
    dataset = get_object_or_404(datasets.select_related("current_version", "current_qrels"), slug=slug)
    description = croissant.describe(
        dataset,
        offered_files(dataset, AnonymousUser()),
        absolute(request, dataset.get_absolute_url()),
        lambda file: absolute(request, reverse("dataset-file", args=[slug, file.name])),
    )
    return JsonResponse(description, content_type="application/ld+json", json_dumps_params={"indent": 1})
