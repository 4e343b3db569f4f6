"""Details of a system's page besides its results, and the pages of teams and authors, which never list members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models import Count, Max, Q, TextField
from django.db.models.functions import Cast
from django.urls import reverse
from django.utils.text import slugify

from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.boards.system.page import Result
from leaderboard.core import anonymity
from leaderboard.core.text.baselines import baselines_label
from leaderboard.core.text.bibtex import parse_authors, to_latin
from leaderboard.datasets.lists import recent_results
from leaderboard.models import BoardChange, Dataset, Entry, EntryQuerySet, Source, System, Team

#: Maximum number of events in the history.
MAX_EVENTS = 40
#: URL names and labels of a system's exports.
_CITATIONS = (
    ("system_bibtex", "BibTeX"),
    ("system_mteb", "MTEB results"),
    ("system_eval_results", "Hugging Face .eval_results"),
    ("system_every_eval_ever", "Every Eval Ever"),
)


#: Changes of boards shown in the history.
_EVENT_NAMES = {
    BoardChange.Kind.WITHDRAWN: "withdrawn",
    BoardChange.Kind.MEASURED: "measured",
    BoardChange.Kind.BASELINE: "selected as the baseline",
    BoardChange.Kind.QUARANTINED: "quarantined by a curator",
    BoardChange.Kind.RESTORED: "restored by a curator",
}


class Event(NamedTuple):
    """An event on a day (ISO date) that concerns results on `datasets`, which are pairs of slug and name."""

    day: str
    what: str
    note: str
    datasets: list[tuple[str, str]]


def system_details(system: dict[str, Any], results: Sequence[Result], site: str) -> dict[str, Any]:
    """Return links to comparisons, history, authors, variants, exports, and badges of a system.

    They are the context of `leaderboard/_system_more.html`; `site` is the site's own address. Takes four database
    queries, and more for a system whose results were all withdrawn.
    """
    authors, reporters, variants = _authors_and_variants(system["pk"])
    if not results:  # If there are results, every author has a page with this system.
        authors, reporters = _with_pages(authors), _with_pages(reporters)
    slug = system["slug"]
    scored_results = [result for result in results if result.provenance != "reported"]
    by_dataset = {result.dataset_slug: result for result in reversed(scored_results)}
    open_slugs = set(
        Dataset.objects.filter(slug__in=by_dataset, hidden=False, state=Dataset.State.PUBLISHED)
        .exclude(current_qrels=None)
        .values_list("slug", flat=True)
    )
    links = []
    for dataset, result in reversed(by_dataset.items()):
        if dataset in open_slugs:
            baseline = result.baseline_slug if result.baseline_slug != slug else ""
            best = result.best_slug if result.best_slug not in (slug, baseline) else ""
            row = {
                "dataset": result.dataset,
                "with_baseline": _compare_url(baseline, slug, dataset=dataset) if baseline else "",
                "baseline_name": result.baseline_name,
                "with_best": _compare_url(best, slug, dataset=dataset) if best else "",
                "best_system": result.best_system,
                "queries": reverse("queries", args=[dataset]),
            }
            links.append(row)
    is_repeated = len(links) == len({result.dataset_slug for result in results}) == 1
    return {
        "closer": links,
        "compare_all": [] if is_repeated else _compare_all(slug, results),
        "history": history(system["pk"]),
        "authors": authors,
        "reporters": [] if authors else reporters,
        "kin": variants,
        "citations": [(label, reverse(name, args=[slug])) for name, label in _CITATIONS if results],
        "badges": _badges(slug, results, site),
    }


def _compare_url(*slugs: str, **parameters: str) -> str:
    return f"{reverse('compare')}?{urlencode([*(('system', slug) for slug in slugs), *parameters.items()])}"


def _compare_all(slug: str, results: Sequence[Result]) -> list[tuple[str, str]]:
    """Return labels and URLs of up to two comparisons over all datasets.

    One is with the most frequent baseline of the results, the other with the most frequent best system of their boards.
    """
    baselines = Counter(
        (result.baseline_slug, result.baseline_name) for result in results if result.baseline_slug not in ("", slug)
    )
    leaders = Counter((result.best_slug, result.best_system) for result in results if result.best_slug != slug)
    names_by_slug: dict[str, str] = {}
    for counts in (baselines, leaders):
        for (other_slug, name), _ in counts.most_common(1):
            names_by_slug.setdefault(other_slug, name)
    return [(f"Compare with {name}", _compare_url(other_slug, slug)) for other_slug, name in names_by_slug.items()]


def history(system_id: int) -> list[Event]:
    """Return the newest events of the system's results, newest first, combined by day. Two database queries.

    Results are published or reported, measured, selected as the baseline, withdrawn, quarantined, and restored.
    """
    visible_entries = EntryQuerySet(Entry).seen().filter(system_id=system_id)
    entries = visible_entries.values_list(
        Cast("published_at", TextField()), "provenance", "configuration", "dataset__slug", "dataset__name"
    )
    events = [
        (time, "reported" if provenance == "reported" else "published", configuration, tuple(dataset))
        for time, provenance, configuration, *dataset in entries
    ]
    changes = BoardChange.objects.filter(entry__in=visible_entries, kind__in=_EVENT_NAMES).values_list(
        Cast("at", TextField()),
        "kind",
        "entry__withdrawal_reason",
        "entry__moderation_reason",
        "entry__configuration",
        "dataset__slug",
        "dataset__name",
    )
    for time, kind, by_team, by_curator, configuration, *dataset in changes:
        reasons = {BoardChange.Kind.WITHDRAWN: by_team, BoardChange.Kind.QUARANTINED: by_curator}
        note = reasons.get(BoardChange.Kind(kind), configuration)
        events.append((time, _EVENT_NAMES[BoardChange.Kind(kind)], note, tuple(dataset)))
    events_by_key: dict[tuple[str, str, str], Event] = {}
    for time, what, note, dataset in sorted(events, key=lambda event: event[0], reverse=True):
        event = events_by_key.setdefault((time[:10], what, note), Event(time[:10], what, note, []))
        if dataset not in event.datasets:
            event.datasets.append(dataset)
    for event in events_by_key.values():
        event.datasets.sort(key=lambda dataset: dataset[1].casefold())
    return list(events_by_key.values())[:MAX_EVENTS]


def _authors_and_variants(system_id: int) -> tuple[list[Author], list[Author], list[tuple[str, str, str]]]:
    """Return the system's authors, those of the publication that reports it, and its variants.

    Variants are tuples (relation, slug, name), including the system that it is a variant of itself. Anonymous systems
    have no variants. Takes one database query.
    """
    public_systems = EntryQuerySet(Entry).public().values("system_id")
    # Variants are mostly of the same team, so that they would identify anonymous systems.
    system = System.objects.exclude(anonymity.anonymous_now()).filter(pk=system_id)
    is_variant = Q(variant_of__in=system) | Q(variants__in=system)
    rows = System.objects.filter(Q(pk=system_id) | ~anonymity.anonymous_now() & Q(pk__in=public_systems) & is_variant)
    authors: list[Author] = []
    reporters: list[Author] = []
    variants = []
    columns = ("pk", "slug", "name", "authors", "source__authors", "variant_of_id", "anonymous_until")
    for row in map(anonymity.public_columns, rows.order_by("name", "pk").distinct().values(*columns)):
        if row["pk"] == system_id:
            authors, reporters = authors_in(row["authors"]), authors_in(row["source__authors"])
        else:
            relation = "variant" if row["variant_of_id"] == system_id else "variant of"
            variants.append((relation, row["slug"], row["name"]))
    return authors, reporters, sorted(variants, key=lambda variant: variant[0])


def _with_pages(authors: Sequence[Author]) -> list[Author]:
    """Return the authors, without a slug if they have nothing public. Two database queries per author."""
    return [author if author_facts(author.slug) else author._replace(slug="") for author in authors]


def _badges(slug: str, results: Sequence[Result], site: str) -> list[dict[str, str]]:
    """Return Markdown and shields.io URLs of the badges, for each dataset."""
    page = site + reverse("system", args=[slug])
    badges = {}
    for result in results:
        query = "?" + urlencode({"dataset": result.dataset_slug})
        picture, data = (site + reverse(name, args=[slug]) + query for name in ("system_badge", "system_badge_data"))
        text = f"{result.measure} on {result.dataset}".replace("[", "(").replace("]", ")")
        badges[result.dataset_slug] = {
            "dataset": result.dataset,
            "markdown": f"[![{text}]({picture})]({page})",
            "shields": f"https://img.shields.io/endpoint?{urlencode({'url': data})}",
        }
    return list(badges.values())


#: Maximum number of results, the newest first.
MAX_RESULTS = 200


def team_facts(slug: str) -> dict[str, Any] | None:
    """Return a team with its public systems and newest results, or None if it does not exist.

    Anonymous systems are omitted. Takes four database queries.
    """
    team = Team.objects.filter(slug=slug).values("pk", "slug", "name", "created_at").first()
    if team is None:
        return None
    has_public_result = Q(entries__in=EntryQuerySet(Entry).public())
    systems = (
        System.objects.filter(team_id=team["pk"])
        .exclude(anonymity.anonymous_now())
        .annotate(
            datasets=Count("entries__dataset", filter=has_public_result, distinct=True),
            newest=Max(Cast("entries__published_at", TextField()), filter=has_public_result),
        )
        .filter(datasets__gt=0)
        .order_by("name")
        .values("name", "slug", "architecture", "datasets", "newest")
    )
    shown_systems = [
        {
            **system,
            "architecture": ARCHITECTURES.get(system["architecture"], system["architecture"]),
            "newest": system["newest"][:10],
        }
        for system in systems
    ]
    public_results = EntryQuerySet(Entry).public().filter(system__team_id=team["pk"])
    results = recent_results(public_results.exclude(anonymity.anonymous_now("system__")), MAX_RESULTS)
    return {
        **team,
        "systems": shown_systems,
        "results": results,
        "baseline": baselines_label(result["baseline"] for result in results),
        "datasets": len({result["dataset_slug"] for result in results}),
        "newest": max((system["newest"] for system in shown_systems), default=""),
    }


class Author(NamedTuple):
    """A person; `slug` is empty for a name that cannot be converted to one."""

    name: str
    slug: str


def authors_in(text: str | None) -> list[Author]:
    """Return the people in a text such as `Nandan Thakur and Reimers, Nils and others`, with first names first."""
    return [Author(name.display_name, author_slug(name.display_name)) for name in parse_authors(text)]


def author_slug(name: str) -> str:
    """Return the slug of a person's page; a name without Latin letters keeps its script."""
    return slugify(to_latin(name)) or slugify(name, allow_unicode=True)


def author_facts(slug: str) -> dict[str, Any] | None:
    """Return a person's systems and publications with public results, or None if there are none.

    Anonymous systems are omitted. Takes two database queries.
    """
    public_entries = EntryQuerySet(Entry).public()
    systems = [
        {**row, "architecture": ARCHITECTURES.get(row["architecture"], row["architecture"])}
        for row in System.objects.filter(pk__in=public_entries.values("system_id"))
        .exclude(anonymity.anonymous_now())
        .exclude(authors="")
        .annotate(datasets=Count("entries__dataset", filter=Q(entries__in=public_entries), distinct=True))
        .order_by("name")
        .values("slug", "name", "architecture", "authors", "year", "team__name", "team__slug", "datasets")
        if _has_author(row["authors"], slug)
    ]
    sources = [
        row
        for row in Source.objects.filter(pk__in=public_entries.exclude(source=None).values("source_id"))
        .annotate(number=Count("systems", distinct=True))
        .order_by("-year", "title")
        .values("title", "authors", "year", "venue", "url", "number")
        if _has_author(row["authors"], slug)
    ]
    authors = (author for row in (*systems, *sources) for author in authors_in(str(row["authors"])))
    name = next((author.name for author in authors if author.slug == slug and slug), "")
    return {"name": name, "slug": slug, "systems": systems, "sources": sources} if name else None


def _has_author(authors: str, slug: str) -> bool:
    return any(author.slug == slug for author in authors_in(authors))
