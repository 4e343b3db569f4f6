"""What stands around a system's results: where to look closer, its history, its kin, its authors and its badge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models import Q, TextField
from django.db.models.functions import Cast
from django.urls import NoReverseMatch, reverse

from leaderboard.boards.authors import Author, authors_in
from leaderboard.boards.system_result import Result
from leaderboard.models import BoardChange, Dataset, Entry, System

#: Events of the history that are shown, the newest.
MOST_EVENTS = 40
#: Exports that a system may have, by the names of their addresses.
_CITATIONS = (
    ("system_bibtex", "BibTeX"),
    ("system_mteb", "MTEB results"),
    ("system_eval_results", "Hugging Face .eval_results"),
)


class Closer(NamedTuple):
    """Links from a result to pages that say more of it; empty where there is none."""

    dataset: str
    dataset_slug: str
    with_baseline: str
    with_best: str
    best_system: str
    queries: str


class Event(NamedTuple):
    """Something that happened to a result. `day` is ISO."""

    day: str
    what: str
    dataset: str
    dataset_slug: str
    note: str


class Snippet(NamedTuple):
    """A badge and what to write to have it elsewhere."""

    dataset: str
    markdown: str
    shields: str


def system_more(system: dict[str, Any], results: Sequence[Result], site: str) -> dict[str, Any]:
    """All of it, for `leaderboard/_system_more.html`. `site` is the site's own address. Four queries."""
    authors, kin = _authors_and_kin(system["pk"])
    return {
        "closer": (closer := _closer(system["slug"], results)),
        "compare_all": _compare_all(system["slug"], results) if len(closer) > 1 else [],
        "history": history(system["pk"]),
        "authors": authors,
        "kin": kin,
        "citations": _citations(system["slug"]),
        "badges": _badges(system["slug"], results, site),
    }


def _address(*slugs: str, **more: str) -> str:
    return f"{reverse('compare')}?{urlencode([*(('system', slug) for slug in slugs), *more.items()])}"


def _closer(slug: str, results: Sequence[Result]) -> list[Closer]:
    """Each dataset once. One query."""
    by_dataset = {result.dataset_slug: result for result in reversed(results)}
    open_ones = set(
        Dataset.objects.filter(slug__in=by_dataset, hidden=False, state=Dataset.State.PUBLISHED)
        .exclude(current_qrels=None)
        .values_list("slug", flat=True)
    )
    found = []
    for result in reversed(by_dataset.values()):
        chosen = {"dataset": result.dataset_slug} if result.dataset_slug in open_ones else {}
        baseline = result.baseline_slug if result.baseline_slug != slug else ""
        best = result.best_slug if result.best_slug not in (slug, baseline) else ""
        found.append(
            Closer(
                result.dataset,
                result.dataset_slug,
                _address(baseline, slug, **chosen) if baseline else "",
                _address(best, slug, **chosen) if best else "",
                result.best_system,
                f"{reverse('queries', args=[result.dataset_slug])}" if chosen else "",
            )
        )
    return found


def _compare_all(slug: str, results: Sequence[Result]) -> list[tuple[str, str]]:
    """(what, address): with BM25, and with the system that is the best on most of its datasets."""
    baselines = Counter(each.baseline_slug for each in results if each.baseline_slug not in ("", slug))
    best = Counter((each.best_slug, each.best_system) for each in results if each.best_slug != slug)
    links = []
    if baselines:
        links.append(("Compare with BM25", _address(baselines.most_common(1)[0][0], slug)))
    if best and (not baselines or best.most_common(1)[0][0][0] != baselines.most_common(1)[0][0]):
        best_slug, name = best.most_common(1)[0][0]
        links.append((f"Compare with {name}", _address(best_slug, slug)))
    return links


def history(system_id: int) -> list[Event]:
    """What happened to its results, the newest first: published, measured, withdrawn. Two queries."""
    seen = Entry.objects.filter(system_id=system_id).exclude(visibility=Entry.Visibility.PRIVATE)
    seen = seen.exclude(dataset__state=Dataset.State.PREPARING)
    entries = seen.values_list(
        Cast("published_at", TextField()), "provenance", "configuration", "dataset__name", "dataset__slug"
    )
    events = [
        (at, Event(at[:10], "reported" if how == "reported" else "published", name, slug, configuration))
        for at, how, configuration, name, slug in entries
    ]
    kinds = {
        BoardChange.Kind.WITHDRAWN: "withdrawn",
        BoardChange.Kind.MEASURED: "measured",
        BoardChange.Kind.BASELINE: "named the baseline",
    }
    changes = BoardChange.objects.filter(entry__in=seen, kind__in=kinds).values_list(
        Cast("at", TextField()),
        "kind",
        "entry__withdrawal_reason",
        "entry__configuration",
        "dataset__name",
        "dataset__slug",
    )
    for at, kind, reason, configuration, name, slug in changes:
        what = kinds[BoardChange.Kind(kind)]
        events.append(
            (at, Event(at[:10], what, name, slug, reason if what == "withdrawn" else configuration))
        )
    return [event for _, event in sorted(events, key=lambda pair: pair[0], reverse=True)[:MOST_EVENTS]]


def _authors_and_kin(system_id: int) -> tuple[list[Author], list[tuple[str, str, str]]]:
    """Its authors, and (relation, slug, name) of what it is a variant of and of its own variants. One query."""
    public = Entry.objects.filter(visibility=Entry.Visibility.PUBLIC).values("system_id")
    rows = System.objects.filter(
        Q(pk=system_id) | Q(pk__in=public) & (Q(variant_of_id=system_id) | Q(variants__pk=system_id))
    )
    authors: list[Author] = []
    kin = []
    for row in (
        rows.order_by("name", "pk").distinct().values("pk", "slug", "name", "authors", "variant_of_id")
    ):
        if row["pk"] == system_id:
            authors = authors_in(row["authors"])
        else:
            relation = "a variant of it" if row["variant_of_id"] == system_id else "it is a variant of"
            kin.append((relation, row["slug"], row["name"]))
    return authors, kin


def _citations(slug: str) -> list[tuple[str, str]]:
    """(label, address) of the exports that this site has."""
    found = []
    for name, label in _CITATIONS:
        try:
            found.append((label, reverse(name, args=[slug])))
        except NoReverseMatch:
            continue
    return found


def _badges(slug: str, results: Sequence[Result], site: str) -> list[Snippet]:
    """One for each dataset."""
    page = site + reverse("system", args=[slug])
    found = {}
    for result in results:
        query = "?" + urlencode({"dataset": result.dataset_slug})
        picture = site + reverse("system_badge", args=[slug]) + query
        data = site + reverse("system_badge_data", args=[slug]) + query
        text = f"{result.measure} on {result.dataset}".replace("[", "(").replace("]", ")")
        found[result.dataset_slug] = Snippet(
            result.dataset,
            f"[![{text}]({picture})]({page})",
            f"https://img.shields.io/endpoint?{urlencode({'url': data})}",
        )
    return list(found.values())
