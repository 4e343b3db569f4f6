"""Pages of rounds, and scores per topic for the members of participating teams."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from leaderboard.boards.state import choice
from leaderboard.core.cache.pages import own_teams
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.http.downloads import send_text
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.measures import canonical_name
from leaderboard.core.permissions import pending_agreements
from leaderboard.core.text import numbers
from leaderboard.figures.queries import ROUND_TOPICS, plot_round_topics
from leaderboard.models import Dataset, Round, RoundSummary, Run
from leaderboard.rounds.lifecycle import (
    Phase,
    count_runs,
    describe_round,
    get_summary,
    listed_datasets,
    phase,
    timeline,
    within_quota,
)
from leaderboard.rounds.topics import RoundRun, Topic, get_round_runs, topics


@require_safe
@never_cache
def rounds(request: HttpRequest) -> HttpResponse:
    """List all rounds with their phases, open ones first."""
    now = timezone.now()
    descriptions = [describe_round(row, now) for row in Round.objects.listed()]
    return render(
        request,
        "leaderboard/rounds.html",
        {
            "section": "rounds",  # Open rounds first, then upcoming ones by opening time.
            "on": sorted(
                (listing for listing in descriptions if listing.phase != Phase.REVEALED),
                key=lambda listing: (listing.phase == Phase.BEFORE, listing.moment),
            ),
            "over": [listing for listing in descriptions if listing.phase == Phase.REVEALED],
        },
    )


@require_safe
@never_cache
def one_round(request: HttpRequest, slug: str) -> HttpResponse:
    """Show a round with its phases, rules, and number of runs, and its results after the reveal."""
    row = get_object_or_404(Round.objects.listed(), slug=slug)
    now, teams = timezone.now(), own_teams(request)
    datasets = listed_datasets(row)
    team_runs = Run.objects.filter(round=row, system__team__in=teams) if teams else Run.objects.none()
    context = {
        "section": "rounds",
        "round": row,
        "described": describe_round(row, now),
        "timeline": timeline(row, now),
        "datasets": datasets,
        "limited": any(within_quota(row, dataset) is not None for dataset in datasets),
        "came": count_runs([row])[row.pk],
        "own": team_runs.select_related("system", "version__dataset").order_by("late", "priority", "pk"),
        "topics": _viewable_datasets(row, datasets, teams),
        "due": pending_agreements(request.user, rounds=[row.pk]),
        "competition": any(dataset.hidden and dataset.protection == "competition" for dataset in datasets),
    }
    return render(request, "leaderboard/round.html", context)


def _viewable_datasets(row: Round, datasets: list[Dataset], teams: list[int]) -> list[Dataset]:
    """Return the datasets for which the visitor's teams may see scores per topic; none before the reveal."""
    if phase(row, timezone.now()) != Phase.REVEALED or not row.per_topic_at_reveal or not teams:
        return []
    summaries = {summary.dataset_id: summary for summary in row.summaries.select_related("qrels")}
    return [
        dataset
        for dataset in datasets
        if dataset.pk in summaries and _displayed_runs(row, dataset, summaries[dataset.pk], teams)
    ]


def _displayed_runs(row: Round, dataset: Dataset, summary: RoundSummary, teams: list[int]) -> list[RoundRun]:
    """Return the teams' runs that still have a displayed measure, since a curator may have changed the measures."""
    return [run for run in get_round_runs(row, dataset, summary.qrels, teams) if run.measures]


@dataclass(frozen=True, slots=True)
class _TopicsPage:
    """Content of a page with scores per topic."""

    round: Round
    dataset: Dataset
    summary: RoundSummary
    runs: list[RoundRun]
    run: RoundRun
    measure: str

    @property
    def topics(self) -> list[Topic]:
        return topics(self.summary, self.run, self.measure)

    @property
    def query(self) -> str:
        """Query string of the view."""
        return f"?run={self.run.entry.pk}&measure={self.measure}"


def _topics_page(request: HttpRequest, slug: str, dataset_slug: str) -> _TopicsPage:
    """Return the content of a page of scores per topic, with the requested run and measure or the first ones.

    Raises Http404 before the reveal, and for visitors without a team that has a run. Raises UnknownChoice for an
    unknown measure.
    """
    row = get_object_or_404(Round.objects.listed(), slug=slug, revealed_at__isnull=False, per_topic_at_reveal=True)
    dataset = next((item for item in listed_datasets(row) if item.slug == dataset_slug), None)
    summary = get_summary(row, dataset) if dataset is not None else None
    if dataset is None or summary is None:
        raise Http404("This round has no scores per topic for this dataset.")
    runs = _displayed_runs(row, dataset, summary, own_teams(request))
    if not runs:
        raise Http404("Your teams have no run in this round.")
    by_key = {str(run.entry.pk): run for run in runs}
    run = by_key.get(choice(request.GET, "run", by_key), runs[0])
    measure = canonical_name(request.GET.get("measure", ""))
    if measure and measure not in run.measures:
        raise UnknownChoice("measure", measure, run.measures)
    return _TopicsPage(row, dataset, summary, runs, run, measure or run.measures[0])


def _topics_view(view: Callable[[HttpRequest, _TopicsPage], HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorate a function of request and page content as a view of scores per topic for signed-in users."""

    @require_safe
    @never_cache
    @login_required
    @reads("run", "measure")
    @wraps(view)
    def answer(request: HttpRequest, slug: str, dataset: str) -> HttpResponse:
        return view(request, _topics_page(request, slug, dataset))

    return answer


@_topics_view
def round_topics(request: HttpRequest, page: _TopicsPage) -> HttpResponse:
    """Show a team's scores per topic next to the round's best, median, and worst scores."""
    address = reverse("round_topics_json", args=[page.round.slug, page.dataset.slug]) + page.query
    rows = page.topics
    context: dict[str, Any] = {
        "section": "rounds",
        "asked": page,
        "topics": rows,
        "decimals": numbers.DECIMALS,
        "above": sum((topic.difference or 0) > 0 for topic in rows),
        "below": sum((topic.difference or 0) < 0 for topic in rows),
        "figure": ROUND_TOPICS,
        "plot": plot_round_topics(rows, page.run.label, page.measure, str(page.round)),
        "data_url": address,
        "json_url": address,
        "level": 2,
    }
    return render(request, "leaderboard/round_topics.html", context)


@_topics_view
def round_topics_json(request: HttpRequest, page: _TopicsPage) -> HttpResponse:
    figure = plot_round_topics(page.topics, page.run.label, page.measure, str(page.round))
    return JsonResponse(ROUND_TOPICS.as_data(figure))


@_topics_view
def round_topics_csv(request: HttpRequest, page: _TopicsPage) -> HttpResponse:
    """Send the scores per topic as CSV, one line per topic."""
    name = f"{page.round.slug}.{page.dataset.slug}.{page.run.entry.pk}.topics.csv"
    response = send_text("", name, "text/csv; charset=utf-8")
    writer = csv.writer(response)
    writer.writerow(["query", "measure", "own", "best", "median", "worst"])
    for topic in page.topics:
        row = [topic.own, topic.best, topic.median, topic.worst]
        writer.writerow([topic.query, page.measure, *("" if value is None else value for value in row)])
    return response
