"""Home page, list of boards with facets, and search."""

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from evaluation.text.languages import known_language_code, language_name
from leaderboard.boards.state import choice, whole_number
from leaderboard.comparison.leaders import BoardCard, board_cards, standing_lines
from leaderboard.comparison.search import KINDS, ROLLING_BENCHMARKS, distinguish, read_query, search, similar_words
from leaderboard.core.cache.pages import PageVariant, cache_page
from leaderboard.core.http.query_parameters import reads
from leaderboard.results.profiles.public import public_overlaps
from leaderboard.rounds.lifecycle import describe_round, unfinished_rounds
from leaderboard.views.board_views import is_part, site_revision

#: Number of cards of each kind on the home page: a row in the widest layout; and of search results on a page, enough
#: for the first ones of every kind.
HOME_CARDS, RESULTS_PER_PAGE = 4, 80


@require_safe
@cache_page(site_revision)
def home(request: HttpRequest) -> HttpResponse:
    """Show an introduction, a forest plot, and cards of the newest benchmarks and recently changed open boards.

    The plot shows the board with the most systems, preferably with open judgments.
    """
    cards, now = board_cards(with_reported=False), timezone.now()
    drawn_cards = [
        card for card in (*cards.datasets, *cards.benchmarks) if card.board.summary and card.board.summary.forest_plot
    ]
    context = {
        "section": "home",
        "rounds": [describe_round(row, now) for row in unfinished_rounds()],
        "benchmarks": cards.benchmarks[:HOME_CARDS],
        "datasets": sorted(cards.datasets, key=SORTS["changed"][1])[:HOME_CARDS],
        "board_count": cards.total,
        "drawn": max(drawn_cards, key=lambda card: (card.board.total, card.judgements == "open"), default=None),
    }
    return render(request, "leaderboard/home.html", context)


#: Facets of datasets: label, and value of a card.
FACETS: Mapping[str, tuple[str, Callable[[BoardCard], str]]] = {
    "task": ("Task", lambda card: card.about["task"]),
    "domain": ("Domain", lambda card: card.about["domain"]),
    "language": ("Language", lambda card: known_language_code(card.about["language"])),
    "judgements": ("Judgments", lambda card: card.judgements),
}
SORTS: Mapping[str, tuple[str, Callable[[BoardCard], Any]]] = {
    "name": ("Name", lambda card: card.about["name"].casefold()),
    "changed": ("Last change", lambda card: -(card.at.timestamp() if card.at else 0)),
    "results": ("Number of results", lambda card: -card.board.total),
}


def _excluding_filters(card: BoardCard, selections: Mapping[str, str], words: str) -> list[str]:
    """Return the names of the filters that exclude a card: facets, and `q` if a word is missing from its texts."""
    facts = [card.about.get(name) or "" for name in ("name", "task", "domain", "language")]
    text = " ".join([*facts, card.judgements, card.board.summary.name if card.board.summary else ""]).casefold()
    names = [name for name, value in selections.items() if FACETS[name][1](card) != value]
    return names if all(word in text for word in words.casefold().split()) else [*names, "q"]


def _describe_removal(query: QueryDict, name: str, value: str, matches: int) -> tuple[str, int, str]:
    """Return the filter's text (`Language: German`), the number of datasets without it, and the page without it."""
    label = FACETS[name][0] if name in FACETS else "Words"
    fields = [pair for pair in query.items() if pair[0] != name and pair[1]]
    value = language_name(value) if name == "language" else value
    return f"{label}: {value}", matches, f"/benchmarks/?{urlencode(fields)}".rstrip("?")


def _list_variant(request: HttpRequest) -> PageVariant:
    view = "\n".join(request.GET.get(name, "") for name in (*FACETS, "sort", "q"))
    return PageVariant(view, common=not view.strip())


@require_safe
@cache_page(site_revision, _list_variant)
@reads(*FACETS, "sort", "q")
def leaderboards(request: HttpRequest) -> HttpResponse:
    """List all boards, filtered by words and facets: datasets, and benchmarks with one of these datasets."""
    cards, words = board_cards(), read_query(request.GET.get("q", ""))
    sort = choice(request.GET, "sort", SORTS)
    facets: list[tuple[str, str, list[tuple[str, int]], str]] = []
    for name, (label, value) in FACETS.items():
        counts = Counter(filter(None, map(value, cards.datasets)))
        code = known_language_code(request.GET.get(name, "")) if name == "language" else ""
        selection = code if code in counts else choice(request.GET, name, sorted(counts))
        facets.append((name, label, sorted(counts.items()), selection))
    selections = {name: selection for name, *_, selection in facets if selection}
    excluding_filters = {card.about["pk"]: _excluding_filters(card, selections, words) for card in cards.datasets}
    visible_cards = [card for card in cards.datasets if not excluding_filters[card.about["pk"]]]
    visible_cards.sort(key=SORTS[sort or "name"][1])
    visible_ids = {dataset for dataset, names in excluding_filters.items() if names in ([], ["q"])}
    benchmarks = [card for card in cards.benchmarks if not selections or card.about["datasets"] & visible_ids]
    benchmarks = [card for card in benchmarks if not _excluding_filters(card, {}, words)]
    removable_filters = Counter(names[0] for names in excluding_filters.values() if len(names) == 1)
    context = {
        "section": "leaderboards",
        "benchmarks": sorted(benchmarks, key=SORTS[sort][1]) if sort else benchmarks,
        "words": words,
        "takes_runs": [card for card in visible_cards if card.about["takes_runs"]],
        "reported": [card for card in visible_cards if not card.about["takes_runs"]],
        "any": bool(cards.datasets),
        "rolling_benchmarks": ROLLING_BENCHMARKS.all(),
        "facets": facets,
        "filtered": bool(selections or words),
        "removable_filters": [
            _describe_removal(request.GET, name, selections.get(name, words), matches)
            for name, matches in removable_filters.most_common(1)
        ],
        "sorts": [(name, label) for name, (label, _) in SORTS.items()],
        "sort": sort,
        "collections": len(public_overlaps().datasets),
    }
    return render(request, "leaderboard/leaderboards.html", context)


def search_variant(request: HttpRequest) -> PageVariant:
    """Return the view of a search, which depends on its words and is therefore not shared."""
    query = read_query(request.GET.get("q", ""))
    kind, page = choice(request.GET, "kind", KINDS), whole_number(request.GET, "page", 1)
    return PageVariant(f"{is_part(request)} {kind} {page} {query}", common=False)


@require_safe
@cache_page(site_revision, search_variant)
@reads("q", "kind", "page")
def search_page(request: HttpRequest) -> HttpResponse:
    """Show search results for `q` by kind, or pages of the results of a single `kind`, of all of them without `q`."""
    query = read_query(request.GET.get("q", ""))
    results = distinguish(search(query, choice(request.GET, "kind", KINDS)))
    page = Paginator(results, RESULTS_PER_PAGE).get_page(whole_number(request.GET, "page", 1))
    lines = standing_lines() if results and not is_part(request) else {}
    results = [result._replace(detail=lines.get(result.url, result.detail)) for result in page]
    words = similar_words(query) if query and not results and not is_part(request) else ()
    context = {
        "section": "search",
        "query": query,
        "page": page,
        "kinds": [(kind, list(matches)) for kind, matches in groupby(results, attrgetter("kind"))],
        "near": [(word, f"/search/?{urlencode({'q': word})}") for word in words],
    }
    response = render(request, f"leaderboard/{'_found' if is_part(request) else 'search'}.html", context)
    patch_vary_headers(response, ["HX-Request", "HX-History-Restore-Request"])
    return response
