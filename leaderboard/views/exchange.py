"""Exports for other sites and tools: system results, citations, and dataset descriptions."""

import json

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe

from leaderboard.boards.exchange import croissant
from leaderboard.boards.exchange.system_results import every_eval_ever_record, exchanged_results, mteb_archive, to_yaml
from leaderboard.boards.exports.texts import bibliography
from leaderboard.core import anonymity
from leaderboard.core.cache.pages import cache_page, vary_on_site_address
from leaderboard.core.http.downloads import send_text
from leaderboard.core.http.site_url import absolute
from leaderboard.core.text.bibtex import parse_entries
from leaderboard.datasets.files import offered_files
from leaderboard.models import Dataset, Entry, EntryQuerySet, System
from leaderboard.results import citations
from leaderboard.views.board_views import site_revision

#: Caching by site address, because all responses contain URLs of the site.
_cached = cache_page(site_revision, vary_on_site_address())


#: Exports of a system: content type, and end of the file name.
_EXPORTS = {
    "mteb": ("application/zip", "-mteb.zip"),
    "eval_results": ("application/yaml; charset=utf-8", ".yaml"),
    "every_eval_ever": ("application/json; charset=utf-8", "-every-eval-ever.json"),
    "bibtex": ("text/x-bibtex; charset=utf-8", ".bib"),
}


@require_safe
@_cached
def system_export(request: HttpRequest, slug: str, kind: str) -> HttpResponse:
    """Send the public results or the citation of a system in the format `kind` of another tool.

    Raises Http404 for systems without public results.
    """
    public_systems = System.objects.filter(pk__in=EntryQuerySet(Entry).public().values("system_id"))
    system = anonymity.public_system(get_object_or_404(public_systems.select_related("team", "source"), slug=slug))
    page, site = absolute(request, reverse("system", args=[slug])), settings.SITE_NAME
    content: str | bytes
    if kind == "bibtex":
        content = "\n\n".join(bibliography(parse_entries(citations.citation(slug, page, site)))) + "\n"
    elif kind == "mteb":
        content = mteb_archive(system, exchanged_results(system.pk), page)
    elif kind == "eval_results":
        content = to_yaml(exchanged_results(system.pk), site, page, anonymity.public_team_name(system))
    else:
        record = every_eval_ever_record(
            system,
            exchanged_results(system.pk),
            site,
            page,
            lambda result: absolute(request, reverse("dataset", args=[result.dataset_slug])),
        )
        content = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    content_type, suffix = _EXPORTS[kind]
    return send_text(content, f"{slug}{suffix}", content_type)


@require_safe
@_cached
def dataset_croissant(request: HttpRequest, slug: str) -> HttpResponse:
    """Return the dataset's description as Croissant 1.1, with the publicly available files only."""
    datasets = Dataset.objects.exclude(state=Dataset.State.PREPARING)
    dataset = get_object_or_404(datasets.select_related("current_version", "current_qrels"), slug=slug)
    description = croissant.describe_dataset(
        dataset,
        offered_files(dataset, AnonymousUser()),
        absolute(request, dataset.get_absolute_url()),
        lambda file: absolute(request, reverse("dataset-file", args=[slug, file.name])),
    )
    return JsonResponse(description, content_type="application/ld+json", json_dumps_params={"indent": 1})
