"""Pages of systems, teams, and authors, badges of systems, and preview images of boards."""

import io
from collections.abc import Callable
from functools import wraps

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from leaderboard.boards import pages
from leaderboard.boards.state import BoardState
from leaderboard.boards.system import page, tables
from leaderboard.boards.system.history import author_facts, system_details, team_facts
from leaderboard.boards.system.standing import Badge, as_shields, as_svg, system_badge
from leaderboard.comparison.leaders import benchmark_places
from leaderboard.core.cache.pages import PageVariant, cache_page, vary_on_site_address
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.http.site_url import site_address
from leaderboard.core.measures import canonical_name
from leaderboard.core.text.baselines import baselines_label
from leaderboard.models import DECLARED_NUMBERS, Entry
from leaderboard.results.board_rows import entry_rows
from leaderboard.results.values import WORD_PIECES
from leaderboard.systems.challenges import public_challenges
from leaderboard.systems.corrections import list_corrections
from leaderboard.systems.provenance import run_provenance, self_reported_costs
from leaderboard.views.board_views import REVISIONS, Kind, site_revision


@require_safe
@cache_page(entry_rows.system_revision, vary_on_site_address())
def system(request: HttpRequest, slug: str) -> HttpResponse:
    """Show a system with all its results, compared with BM25 and the best systems."""
    facts = page.system_facts(slug)
    if facts is None:
        raise Http404
    results = page.system_results(facts["pk"])
    challenges, places = public_challenges(facts["pk"]), benchmark_places(slug)
    configurations = run_provenance(facts["pk"])
    provenances = {result.provenance for result in results}
    weights = {configuration["checkpoint"].get("parameters") for configuration in configurations}
    weight = weights.pop() if len(weights) == 1 else None
    baseline = baselines_label(result.baseline_name for result in results)
    context = {
        "section": "leaderboards",
        "system": facts,
        "results": results,
        "headline": tables.headline(results),
        "places": [place for place in places if place[1] is not None],
        "incomplete_places": [place for place in places if place[1] is None],
        "quarantined": page.quarantined_results(facts["pk"]),
        "by_measure": tables.measure_table(results),
        "beside": tables.facts_table(results),
        "baseline": baseline,
        "sure": any(result.certainty for result in results),
        "differences": tables.draw_differences(results, baseline),
        "has_in_domain": any(result.training == "in-domain" for result in results),
        "has_seeds": any(result.seed_count for result in results),
        "word_pieces": WORD_PIECES if any(result.word_pieces is not None for result in results) else "",
        "published": [result for result in results if result.published_score],
        "costs": tables.cost_table(results),
        "depths": tables.depth_charts(results),
        "made": configurations,
        "size": page.declared_text(DECLARED_NUMBERS[0], facts["parameter_count"] or weight),
        "provenance": provenances.pop() if len(provenances) == 1 else "",
        "self_reported": self_reported_costs(facts["pk"]),
        "made_here": any(result.provenance == Entry.Provenance.MEASURED for result in results),
        "address": f"{site_address(request)}/systems/{slug}/",
        "challenges": challenges,
        "challenged": any(row.state == "open" for row in challenges),
        "corrections": list_corrections(facts["pk"]),
        "more": system_details(facts, results, site_address(request)),
    }
    return render(request, "leaderboard/system.html", context)


@require_safe
@cache_page(site_revision)
def team(request: HttpRequest, slug: str) -> HttpResponse:
    """Show a team and its systems."""
    facts = team_facts(slug)
    if facts is None:
        raise Http404
    return render(request, "leaderboard/team.html", {"section": "leaderboards", "team": facts})


def _badge_variant(request: HttpRequest) -> PageVariant:
    return PageVariant(f"{request.GET.get('dataset', '')}\n{request.GET.get('measure', '')}")


@require_safe
@cache_page(site_revision)
def author(request: HttpRequest, slug: str) -> HttpResponse:
    """Show an author's systems and publications."""
    facts = author_facts(slug)
    if facts is None:
        raise Http404
    return render(request, "leaderboard/author.html", {"section": "leaderboards", "author": facts})


def embeddable(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Return the view with a response header that lets other sites embed its image."""

    @wraps(view)
    def answer(request: HttpRequest, **arguments: str) -> HttpResponse:
        response = view(request, **arguments)
        response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
        return response

    return answer


@require_safe
@embeddable
@cache_page(site_revision, _badge_variant)
@reads("dataset", "measure")
def badge_svg(request: HttpRequest, slug: str) -> HttpResponse:
    """Render a system's rank on a dataset's board as an SVG badge."""
    return HttpResponse(as_svg(_badge(request, slug)), content_type="image/svg+xml")


@require_safe
@cache_page(site_revision, _badge_variant)
@reads("dataset", "measure")
def badge_data(request: HttpRequest, slug: str) -> HttpResponse:
    """Return the badge's data for shields.io."""
    return JsonResponse(as_shields(_badge(request, slug)))


def _badge(request: HttpRequest, slug: str) -> Badge:
    """Return the system's badge for the requested dataset and measure. Raises Http404 if there is none."""
    badge = system_badge(slug, request.GET.get("dataset", ""), canonical_name(request.GET.get("measure", "")))
    if badge is None:
        raise Http404
    return badge


@require_safe
@embeddable
@cache_page(lambda slug, kind: REVISIONS[kind](slug))
def board_preview_image(request: HttpRequest, slug: str, kind: Kind) -> HttpResponse:
    """Render the preview image of a board."""
    page = pages.READERS[kind](slug, BoardState())
    if page is None:
        raise Http404
    from leaderboard.views.share_image import (
        draw_board,
    )  # Imported late, because it loads Pillow, which few requests need.

    content = io.BytesIO()
    draw_board(page.board).save(content, "PNG", optimize=True)
    return HttpResponse(content.getvalue(), content_type="image/png")
