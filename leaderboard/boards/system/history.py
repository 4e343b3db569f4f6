"""Details around a system's results, and the pages of teams and authors. A team's members are never listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
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

#: Events of the history that are shown, the newest.
MOST_EVENTS = 40
#: Exports that a system may have, by the names of their addresses.
_CITATIONS = (
    ("system_bibtex", "BibTeX"),
    ("system_mteb", "MTEB results"),
    ("system_eval_results", "Hugging Face .eval_results"),
    ("system_every_eval_ever", "Every Eval Ever"),
)


#: Changes of boards that its history shows.
_KINDS = {
    BoardChange.Kind.WITHDRAWN: "withdrawn",
    BoardChange.Kind.MEASURED: "measured",
    BoardChange.Kind.BASELINE: "named the baseline",
    BoardChange.Kind.QUARANTINED: "quarantined by a curator",
    BoardChange.Kind.RESTORED: "restored by a curator",
}


class Event(NamedTuple):
    """Something that happened on a day (ISO) to results on `datasets`, which are pairs of slug and name."""

    day: str
    what: str
    note: str
    datasets: list[tuple[str, str]]


def system_details(system: dict[str, Any], results: Sequence[Result], site: str) -> dict[str, Any]:
    """All of it, for `leaderboard/_system_more.html`. `site` is the site's own address.

    Four queries, and more for a system whose results were all withdrawn.
    """
    authors, reporters, kin = _authors_and_variants(system["pk"])
    if not results:  # else each of them has a page, with this system on it
        authors, reporters = _with_pages(authors), _with_pages(reporters)
    slug = system["slug"]
    scored = [result for result in results if result.provenance != "reported"]
    by_dataset = {result.dataset_slug: result for result in reversed(scored)}
    open_ones = set(
        Dataset.objects.filter(slug__in=by_dataset, hidden=False, state=Dataset.State.PUBLISHED)
        .exclude(current_qrels=None)
        .values_list("slug", flat=True)
    )
    links = []
    for dataset, result in reversed(by_dataset.items()):
        if dataset in open_ones:
            baseline = result.baseline_slug if result.baseline_slug != slug else ""
            best = result.best_slug if result.best_slug not in (slug, baseline) else ""
            row = {
                "dataset": result.dataset,
                "with_baseline": _address(baseline, slug, dataset=dataset) if baseline else "",
                "baseline_name": result.baseline_name,
                "with_best": _address(best, slug, dataset=dataset) if best else "",
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
        "kin": kin,
        "citations": [(label, reverse(name, args=[slug])) for name, label in _CITATIONS if results],
        "badges": _badges(slug, results, site),
    }


def _address(*slugs: str, **more: str) -> str:
    return f"{reverse('compare')}?{urlencode([*(('system', slug) for slug in slugs), *more.items()])}"


def _compare_all(slug: str, results: Sequence[Result]) -> list[tuple[str, str]]:
    """(what, address): with the baseline, and with the system that is the best, on most of its datasets."""
    baselines = Counter(
        (each.baseline_slug, each.baseline_name) for each in results if each.baseline_slug not in ("", slug)
    )
    best = Counter((each.best_slug, each.best_system) for each in results if each.best_slug != slug)
    others: dict[str, str] = {}
    for counts in (baselines, best):
        for (other, name), _ in counts.most_common(1):
            others.setdefault(other, name)
    return [(f"Compare with {name}", _address(other, slug)) for other, name in others.items()]


def history(system_id: int) -> list[Event]:
    """What happened to its results, the newest first: published, measured, withdrawn. Two queries."""
    seen = EntryQuerySet(Entry).seen().filter(system_id=system_id)
    entries = seen.values_list(
        Cast("published_at", TextField()), "provenance", "configuration", "dataset__slug", "dataset__name"
    )
    events = [
        (at, "reported" if how == "reported" else "published", configuration, tuple(dataset))
        for at, how, configuration, *dataset in entries
    ]
    changes = BoardChange.objects.filter(entry__in=seen, kind__in=_KINDS).values_list(
        Cast("at", TextField()),
        "kind",
        "entry__withdrawal_reason",
        "entry__moderation_reason",
        "entry__configuration",
        "dataset__slug",
        "dataset__name",
    )
    for at, kind, by_team, by_curator, configuration, *dataset in changes:
        reasons = {BoardChange.Kind.WITHDRAWN: by_team, BoardChange.Kind.QUARANTINED: by_curator}
        note = reasons.get(BoardChange.Kind(kind), configuration)
        events.append((at, _KINDS[BoardChange.Kind(kind)], note, tuple(dataset)))
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


def _badges(slug: str, results: Sequence[Result], site: str) -> list[dict[str, str]]:
    """Return what to write elsewhere to show a badge, for each dataset."""
    page = site + reverse("system", args=[slug])
    badges = {}
    for result in results:
        query = "?" + urlencode({"dataset": result.dataset_slug})
        picture, data = (
            site + reverse(name, args=[slug]) + query for name in ("system_badge", "system_badge_data")
        )
        text = f"{result.measure} on {result.dataset}".replace("[", "(").replace("]", ")")
        badges[result.dataset_slug] = {
            "dataset": result.dataset,
            "markdown": f"[![{text}]({picture})]({page})",
            "shields": f"https://img.shields.io/endpoint?{urlencode({'url': data})}",
        }
    return list(badges.values())


#: Results shown, the newest.
MOST_RESULTS = 200


def team_facts(slug: str) -> dict[str, Any] | None:
    """A team with its public systems and results, None where there is no such team. Four queries."""
    team = Team.objects.filter(slug=slug).values("pk", "slug", "name", "created_at").first()
    if team is None:
        return None
    public = Q(entries__in=EntryQuerySet(Entry).public())
    systems = (
        System.objects.filter(team_id=team["pk"])
        .exclude(anonymity.anonymous_now())
        .annotate(
            datasets=Count("entries__dataset", filter=public, distinct=True),
            newest=Max(Cast("entries__published_at", TextField()), filter=public),
        )
        .filter(datasets__gt=0)
        .order_by("name")
        .values("name", "slug", "architecture", "datasets", "newest")
    )
    shown = [
        {
            **system,
            "architecture": ARCHITECTURES.get(system["architecture"], system["architecture"]),
            "newest": system["newest"][:10],
        }
        for system in systems
    ]
    public_results = EntryQuerySet(Entry).public().filter(system__team_id=team["pk"])
    results = recent_results(public_results.exclude(anonymity.anonymous_now("system__")), MOST_RESULTS)
    return {
        **team,
        "systems": shown,
        "results": results,
        "baseline": baselines_label(result["baseline"] for result in results),
        "datasets": len({result["dataset_slug"] for result in results}),
        "newest": max((system["newest"] for system in shown), default=""),
    }


class Author(NamedTuple):
    """A person by name. `slug` is empty for a name that no address can be made of."""

    name: str
    slug: str


def authors_in(text: str | None) -> list[Author]:
    """The people of `Nandan Thakur and Reimers, Nils and others`, names in the order in which one says them."""
    return [Author(name.display_name, author_slug(name.display_name)) for name in parse_authors(text)]


def author_slug(name: str) -> str:
    """How a person's page is addressed; a name without Latin letters keeps its own."""
    return slugify(to_latin(name)) or slugify(name, allow_unicode=True)


def author_facts(slug: str) -> dict[str, Any] | None:
    """A person's systems and publications with public results, None where there are none. Two queries."""
    public = EntryQuerySet(Entry).public()
    systems = [
        {**row, "architecture": ARCHITECTURES.get(row["architecture"], row["architecture"])}
        for row in System.objects.filter(pk__in=public.values("system_id"))
        .exclude(anonymity.anonymous_now())
        .exclude(authors="")
        .annotate(datasets=Count("entries__dataset", filter=Q(entries__in=public), distinct=True))
        .order_by("name")
        .values("slug", "name", "architecture", "authors", "year", "team__name", "team__slug", "datasets")
        if _is_by(row["authors"], slug)
    ]
    sources = [
        row
        for row in Source.objects.filter(pk__in=public.exclude(source=None).values("source_id"))
        .annotate(number=Count("systems", distinct=True))
        .order_by("-year", "title")
        .values("title", "authors", "year", "venue", "url", "number")
        if _is_by(row["authors"], slug)
    ]
    name = _name(slug, (str(row["authors"]) for row in (*systems, *sources)))
    return {"name": name, "slug": slug, "systems": systems, "sources": sources} if name else None


def _is_by(authors: str, slug: str) -> bool:
    return any(author.slug == slug for author in authors_in(authors))


def _name(slug: str, texts: Iterable[str]) -> str:
    return next(
        (author.name for text in texts for author in authors_in(text) if author.slug == slug and slug), ""
    )
