"""News as a page and as Atom feeds."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Collection, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.contrib.syndication.views import Feed
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.feedgenerator import Atom1Feed
from django.views.decorators.http import require_safe

from leaderboard.boards import news
from leaderboard.boards.state import whole_number
from leaderboard.core.cache.pages import PageVariant, cache_page, vary_on_site_address
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.text.plain import for_xml
from leaderboard.models import Benchmark, Dataset
from leaderboard.views.board_views import site_revision


def _page_number(request: HttpRequest) -> int:
    return whole_number(request.GET, "page", 1)


@require_safe
@cache_page(site_revision, lambda request: PageVariant(str(_page_number(request))))
@reads("page")
def news_page(request: HttpRequest) -> HttpResponse:
    """Show a page of changes by day; numbers beyond the last page redirect to it."""
    page, items = news.news_page(_page_number(request))
    if page.number != _page_number(request):
        return redirect(f"{reverse('news')}?page={page.number}")
    context = {"section": "news", "page": page, "days": news.group_by_day(items)}
    return render(request, "leaderboard/news.html", context)


if TYPE_CHECKING:
    _Feed = Feed[news.Item, "FeedSubject"]
else:
    _Feed = Feed  # It is generic only for type checkers.


#: Namespace of the ids of news items.
_NEWS = uuid.uuid5(uuid.NAMESPACE_URL, "tag:runboard,2026:news")


def _configured_address(path: str) -> str:
    """Return the path at the configured address; without one, Django adds that of the request."""
    return f"{settings.SITE_ADDRESS}{path}"


class FeedSubject(NamedTuple):
    """Subject of a feed: name, path of its page, and ids of its datasets, None for all."""

    name: str
    page: str
    datasets: Collection[int] | None = None


class NewsFeed(_Feed):
    """Atom 1.0 feed of the latest news of the site or of a board."""

    feed_type = Atom1Feed

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> FeedSubject:
        """Return the subject of the feed: a dataset with its parts, a benchmark with its datasets, or the site.

        Raises Http404 for an unknown dataset or benchmark.
        """
        kind, slug = kwargs.get("kind"), kwargs.get("slug")
        if kind == "dataset":
            dataset = get_object_or_404(Dataset.objects.listed(), slug=slug)
            parts = Dataset.objects.filter(part_of=dataset).values_list("pk", flat=True)
            return FeedSubject(dataset.name, dataset.get_absolute_url(), [dataset.pk, *parts])
        if kind == "benchmark":
            board = get_object_or_404(Benchmark, slug=slug)
            members = board.members.values_list("dataset_id", flat=True)
            return FeedSubject(board.name, board.get_absolute_url(), list(members))
        return FeedSubject("news", "/news/")

    def link(self, obj: FeedSubject) -> str:
        return _configured_address(obj.page)

    def feed_url(self, obj: FeedSubject) -> str:
        return _configured_address(f"{obj.page}atom.xml")

    def title(self, obj: FeedSubject) -> str:
        return for_xml(f"{settings.SITE_NAME}: {obj.name}")

    def author_name(self) -> str:
        """Return the site's name: Atom requires an author for entries without their own."""
        return settings.SITE_NAME

    subtitle = "New datasets, results, withdrawals and reported figures."

    def items(self, obj: FeedSubject) -> Sequence[news.Item]:
        return news.news_page(1, obj.datasets)[1]

    def item_title(self, item: news.Item) -> str:
        """Return the title as plain text, the default type of Atom titles."""
        return for_xml(item.title)

    def item_description(self, item: news.Item) -> str:
        """Return the title and whether it is a best score, as HTML, the type that Django declares for summaries."""
        note = (
            "Best score so far, significantly better than the baseline." if item.significant else "Best score so far."
        )
        return escape(f"{for_xml(item.title)}{f'. {note}' if item.new_best else ''}")

    def item_link(self, item: news.Item) -> str:
        return _configured_address(item.url)

    def item_guid(self, item: news.Item) -> str:
        """Return a permanent id that does not depend on the URL.

        It combines the key of the change with its time in microseconds, so that no two sites share an id.
        """
        return uuid.uuid5(_NEWS, f"{item.at.timestamp():.6f}:{item.key}").urn

    def item_pubdate(self, item: news.Item) -> datetime.datetime:
        return item.at

    def item_updateddate(self, item: news.Item) -> datetime.datetime:
        return item.updated or item.at


_feed = NewsFeed()


@require_safe
@cache_page(site_revision, vary_on_site_address())
def atom(request: HttpRequest, kind: str = "", slug: str = "") -> HttpResponse:
    """Return the feed of the site or of a board."""
    return _feed(request, kind=kind, slug=slug)
