"""What stands around a system's results: where to look closer, its history, its kin, its authors and its badge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models import Q, TextField
from django.db.models.functions import Cast
from django.urls import NoReverseMatch, reverse

from leaderboard.boards.system.page import Result
from leaderboard.boards.system.team import Author, author_facts, authors_in
from leaderboard.core import anonymity
from leaderboard.models import BoardChange, Dataset, Entry, System
from leaderboard.models.results import EntryQuerySet

#: Events of the history that are shown, the newest.
MOST_EVENTS = 40
#: Exports that a system may have, by the names of their addresses.
_CITATIONS = (
    ("system_bibtex", "BibTeX"),
    ("system_mteb", "MTEB results"),
    ("system_eval_results", "Hugging Face .eval_results"),
    ("system_every_eval_ever", "Every Eval Ever"),
)


class ResultLinks(NamedTuple):
    """Links from a result on open judgements to pages that say more of it; empty where there is none."""

    dataset: str
    dataset_slug: str
    with_baseline: str
    baseline_name: str
    with_best: str
    best_system: str
    queries: str


class Event(NamedTuple):
    """Something that happened on a day (ISO) to results on `datasets`, which are pairs of slug and name."""

    day: str
    what: str
    note: str
    datasets: list[tuple[str, str]]


class BadgeSnippet(NamedTuple):
    """A badge and what to write to have it elsewhere."""

    dataset: str
    markdown: str
    shields: str


def system_details(system: dict[str, Any], results: Sequence[Result], site: str) -> dict[str, Any]:
    """All of it, for `leaderboard/_system_more.html`. `site` is the site's own address.

    Four queries, and more for a system whose results were all withdrawn.
    """
    authors, reporters, kin = _authors_and_variants(system["pk"])
    if not results:  # else each of them has a page, with this system on it
        authors, reporters = _with_pages(authors), _with_pages(reporters)
    closer = _result_links(system["slug"], results)
    said_already = len(closer) == len({result.dataset_slug for result in results}) == 1
    return {
        "closer": closer,
        "compare_all": [] if said_already else _compare_all(system["slug"], results),
        "history": history(system["pk"]),
        "authors": authors,
        "reporters": [] if authors else reporters,
        "kin": kin,
        "citations": _citations(system["slug"]) if results else [],
        "badges": _badges(system["slug"], results, site),
    }


def _address(*slugs: str, **more: str) -> str:
    return f"{reverse('compare')}?{urlencode([*(('system', slug) for slug in slugs), *more.items()])}"


def _result_links(slug: str, results: Sequence[Result]) -> list[ResultLinks]:
    """The datasets whose judgements are open, each once. One query."""
    scored = [result for result in results if result.provenance != "reported"]
    by_dataset = {result.dataset_slug: result for result in reversed(scored)}
    open_ones = set(
        Dataset.objects.filter(slug__in=by_dataset, hidden=False, state=Dataset.State.PUBLISHED)
        .exclude(current_qrels=None)
        .values_list("slug", flat=True)
    )
    found = []
    for result in reversed(by_dataset.values()):
        if result.dataset_slug not in open_ones:
            continue
        chosen = {"dataset": result.dataset_slug}
        baseline = result.baseline_slug if result.baseline_slug != slug else ""
        best = result.best_slug if result.best_slug not in (slug, baseline) else ""
        found.append(
            ResultLinks(
                result.dataset,
                result.dataset_slug,
                _address(baseline, slug, **chosen) if baseline else "",
                result.baseline_name,
                _address(best, slug, **chosen) if best else "",
                result.best_system,
                reverse("queries", args=[result.dataset_slug]),
            )
        )
    return found


def _compare_all(slug: str, results: Sequence[Result]) -> list[tuple[str, str]]:
    """(what, address): with the baseline, and with the system that is the best, on most of its datasets."""
    baselines = Counter(
        (each.baseline_slug, each.baseline_name) for each in results if each.baseline_slug not in ("", slug)
    )
    best = Counter((each.best_slug, each.best_system) for each in results if each.best_slug != slug)
    links = []
    baseline_slug, baseline_name = baselines.most_common(1)[0][0] if baselines else ("", "")
    if baseline_slug:
        links.append((f"Compare with {baseline_name}", _address(baseline_slug, slug)))
    if best and best.most_common(1)[0][0][0] != baseline_slug:
        best_slug, name = best.most_common(1)[0][0]
        links.append((f"Compare with {name}", _address(best_slug, slug)))
    return links


def history(system_id: int) -> list[Event]:
    """What happened to its results, the newest first: published, measured, withdrawn. Two queries."""
    seen = EntryQuerySet(Entry).seen().filter(system_id=system_id)
    entries = seen.values_list(
        Cast("published_at", TextField()), "provenance", "configuration", "dataset__name", "dataset__slug"
    )
    events = [
        (at, "reported" if how == "reported" else "published", configuration, (slug, name))
        for at, how, configuration, name, slug in entries
    ]
    kinds = {
        BoardChange.Kind.WITHDRAWN: "withdrawn",
        BoardChange.Kind.MEASURED: "measured",
        BoardChange.Kind.BASELINE: "named the baseline",
        BoardChange.Kind.QUARANTINED: "quarantined by a curator",
        BoardChange.Kind.RESTORED: "restored by a curator",
    }
    changes = BoardChange.objects.filter(entry__in=seen, kind__in=kinds).values_list(
        Cast("at", TextField()),
        "kind",
        "entry__withdrawal_reason",
        "entry__moderation_reason",
        "entry__configuration",
        "dataset__name",
        "dataset__slug",
    )
    for at, kind, by_team, by_curator, configuration, name, slug in changes:
        reasons = {BoardChange.Kind.WITHDRAWN: by_team, BoardChange.Kind.QUARANTINED: by_curator}
        said = reasons.get(BoardChange.Kind(kind), configuration)
        events.append((at, kinds[BoardChange.Kind(kind)], said, (slug, name)))
    return _by_day(events)[:MOST_EVENTS]


def _by_day(events: list[tuple[str, str, str, tuple[str, str]]]) -> list[Event]:
    """What happened on one day to several results is one event; the newest first."""
    found: dict[tuple[str, str, str], Event] = {}
    for at, what, note, dataset in sorted(events, key=lambda event: event[0], reverse=True):
        event = found.setdefault((at[:10], what, note), Event(at[:10], what, note, []))
        if dataset not in event.datasets:
            event.datasets.append(dataset)
    for event in found.values():
        event.datasets.sort(key=lambda dataset: dataset[1].casefold())
    return list(found.values())


def _authors_and_variants(system_id: int) -> tuple[list[Author], list[Author], list[tuple[str, str, str]]]:
    """Its authors, those of the publication that reports it, and (relation, slug, name) of what it is a variant of and
    of its own variants. One query.
    """
    public = EntryQuerySet(Entry).public().values("system_id")
    # Kin is mostly of the same team: who is anonymous has none, and is nobody's.
    itself = System.objects.exclude(anonymity.anonymous_now()).filter(pk=system_id)
    kin_of = Q(variant_of__in=itself) | Q(variants__in=itself)
    rows = System.objects.filter(Q(pk=system_id) | ~anonymity.anonymous_now() & Q(pk__in=public) & kin_of)
    authors: list[Author] = []
    reporters: list[Author] = []
    kin = []
    columns = ("pk", "slug", "name", "authors", "source__authors", "variant_of_id", "anonymous_until")
    for row in map(anonymity.public_columns, rows.order_by("name", "pk").distinct().values(*columns)):
        if row["pk"] == system_id:
            authors, reporters = authors_in(row["authors"]), authors_in(row["source__authors"])
        else:
            relation = "a variant of it" if row["variant_of_id"] == system_id else "it is a variant of"
            kin.append((relation, row["slug"], row["name"]))
    return authors, reporters, sorted(kin, key=lambda one: one[0])


def _with_pages(authors: Sequence[Author]) -> list[Author]:
    """The authors, without an address where a person has nothing public. Two queries for each."""
    return [author if author_facts(author.slug) else author._replace(slug="") for author in authors]


def _citations(slug: str) -> list[tuple[str, str]]:
    """(label, address) of the exports that this site has."""
    found = []
    for name, label in _CITATIONS:
        try:
            found.append((label, reverse(name, args=[slug])))
        except NoReverseMatch:
            continue
    return found


def _badges(slug: str, results: Sequence[Result], site: str) -> list[BadgeSnippet]:
    """One for each dataset."""
    page = site + reverse("system", args=[slug])
    found = {}
    for result in results:
        query = "?" + urlencode({"dataset": result.dataset_slug})
        picture = site + reverse("system_badge", args=[slug]) + query
        data = site + reverse("system_badge_data", args=[slug]) + query
        text = f"{result.measure} on {result.dataset}".replace("[", "(").replace("]", ")")
        found[result.dataset_slug] = BadgeSnippet(
            result.dataset,
            f"[![{text}]({picture})]({page})",
            f"https://img.shields.io/endpoint?{urlencode({'url': data})}",
        )
    return list(found.values())
