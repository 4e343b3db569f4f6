"""The news, as a page and as an Atom feed."""

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


def _number(request: HttpRequest) -> int:
    return whole_number(request.GET, "page", 1)


@require_safe
@cache_page(site_revision, lambda request: PageVariant(str(_number(request))))
@reads("page")
def news_page(request: HttpRequest) -> HttpResponse:
    """What changed, by day."""
    page, items = news.news_page(_number(request))
    if page.number != _number(request):
        return redirect(f"{reverse('news')}?page={page.number}")
    context = {"section": "news", "page": page, "days": news.by_day(items)}
    return render(request, "leaderboard/news.html", context)


if TYPE_CHECKING:
    _Feed = Feed[news.Item, "FeedOf"]
else:
    _Feed = Feed  # which is generic for type checkers alone


#: The namespace of names of news.
_NEWS = uuid.uuid5(uuid.NAMESPACE_URL, "tag:runboard,2026:news")


def _configured_address(path: str) -> str:
    """The path at the configured address; without one, Django puts the visitor's before it."""
    return f"{settings.SITE_ADDRESS}{path}"


class FeedOf(NamedTuple):
    """What a feed is of: its name, the address of its page, and whose datasets' news it has, None for all."""

    name: str
    page: str
    datasets: Collection[int] | None = None


class NewsFeed(_Feed):
    """The newest page of the news, of the whole site or of one board, as Atom 1.0."""

    feed_type = Atom1Feed

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> FeedOf:
        """The board that is named, or the whole site. Raises Http404."""
        kind, slug = kwargs.get("kind"), kwargs.get("slug")
        if kind == "dataset":
            dataset = get_object_or_404(Dataset.objects.listed(), slug=slug)
            parts = Dataset.objects.filter(part_of=dataset).values_list("pk", flat=True)
            return FeedOf(dataset.name, dataset.get_absolute_url(), [dataset.pk, *parts])
        if kind == "benchmark":
            board = get_object_or_404(Benchmark, slug=slug)
            members = board.members.values_list("dataset_id", flat=True)
            return FeedOf(board.name, board.get_absolute_url(), list(members))
        return FeedOf("news", "/news/")

    def link(self, obj: FeedOf) -> str:
        """The page that it is the feed of."""
        return _configured_address(obj.page)

    def feed_url(self, obj: FeedOf) -> str:
        """Its own address."""
        return _configured_address(f"{obj.page}atom.xml")

    def title(self, obj: FeedOf) -> str:
        """The feed's name."""
        return for_xml(f"{settings.SITE_NAME}: {obj.name}")

    def author_name(self) -> str:
        """Who publishes it: Atom wants an author, and an entry without one of its own has its feed's."""
        return settings.SITE_NAME

    subtitle = "New datasets, results, withdrawals and reported figures."

    def items(self, obj: FeedOf) -> Sequence[news.Item]:
        """The newest ones."""
        return news.news_page(1, obj.datasets)[1]

    def item_title(self, item: news.Item) -> str:
        """The item in one line: plain text, as Atom's titles are unless they say otherwise."""
        return for_xml(item.title)

    def item_description(self, item: news.Item) -> str:
        """The same with what makes it special, as the HTML that Django declares a summary to be."""
        best = (
            "Best score so far, significantly better than the baseline."
            if item.significant
            else "Best score so far."
        )
        return escape(f"{for_xml(item.title)}{f'. {best}' if item.new_best else ''}")

    def item_link(self, item: news.Item) -> str:
        """Where to read on."""
        return _configured_address(item.url)

    def item_guid(self, item: news.Item) -> str:
        """A name that stays, whatever becomes of the address.

        It is made of the change's number and of its time, to the microsecond, so that no two sites share one.
        """
        return uuid.uuid5(_NEWS, f"{item.at.timestamp():.6f}:{item.key}").urn

    def item_pubdate(self, item: news.Item) -> datetime.datetime:
        """When."""
        return item.at

    #: An item never changes.
    item_updateddate = item_pubdate


_feed = NewsFeed()


@require_safe
@cache_page(site_revision, vary_on_site_address())
def atom(request: HttpRequest, kind: str = "", slug: str = "") -> HttpResponse:
    """The feed of the whole site, or of a board."""
    return _feed(request, kind=kind, slug=slug)
