"""What changed on the boards, in words: the news. A system's own history is in `boards.system.history`.

All of it is read from `BoardChange`. Nothing private is told: neither a result that is private now, nor one of a
dataset that is not public; numbers are those that boards published.
"""

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from itertools import groupby
from operator import attrgetter, or_
from typing import Any, NamedTuple

from django.core.paginator import Page, Paginator
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from leaderboard.core import anonymity
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.core.text.baselines import baseline_label
from leaderboard.judgements.rescoring.switched import news_of
from leaderboard.models import BoardChange, Dataset, Entry, EntryVersion, Protection
from leaderboard.results.board_rows.entry_rows import short_citation
from leaderboard.results.board_rows.past import is_public
from leaderboard.results.significance.statements import BoardStatements, statements
from leaderboard.results.values import published_value

Kind = BoardChange.Kind
#: What is news.
TOLD = (
    Kind.IMPORTED,
    Kind.PUBLISHED,
    Kind.REPORTED,
    Kind.WITHDRAWN,
    Kind.RESCORED,
    Kind.BASELINE,
    Kind.REVEALED,
    Kind.PROTECTED,
)
ITEMS_OF_A_PAGE = 50
#: How many of the newest results are looked through for new bests, and how many of these are told.
LOOKED_THROUGH, MOST_BESTS = 100, 5


class Item(NamedTuple):
    """One piece of news. Either a system or a dataset may be missing; `note` is a clause without a full stop."""

    key: str
    at: datetime.datetime
    kind: str
    label: str
    system: str
    system_slug: str
    dataset: str
    dataset_slug: str
    note: str
    new_best: bool = False
    #: Whether it is shown to be better than the baseline by more than chance.
    significant: bool = False
    team: str = ""
    team_slug: str | None = None

    @property
    def title(self) -> str:
        """The whole in one line of plain text."""
        about = " on ".join(part for part in (self.system, self.dataset) if part)
        note = f": {self.note}" if self.note else ""
        return f"{self.label}, {about}{note}" if about else f"{self.label}{note}"

    @property
    def url(self) -> str:
        """Where to read on."""
        if self.dataset_slug:
            return f"/datasets/{self.dataset_slug}/"
        return f"/systems/{self.system_slug}/" if self.system_slug else "/benchmarks/"


class Day(NamedTuple):
    """The news of a day, newest first."""

    day: datetime.date
    items: Sequence[Item]


def news_page(number: int, datasets: Collection[int] | None = None) -> tuple[Page[BoardChange], list[Item]]:
    """A page of the news, of these datasets or of all, newest first; the last one where there are fewer pages."""
    page = Paginator(_listed_changes(datasets), ITEMS_OF_A_PAGE).get_page(number)
    return page, _items(page.object_list)


def new_bests() -> list[Item]:
    """The newest results that were better than all before them on their board, significant ones first.

    Of each board one, of those among its newest results.
    """
    changes = _listed_changes(None).filter(kind=Kind.PUBLISHED)[:LOOKED_THROUGH]
    found: dict[str, Item] = {}
    for item in _items(changes):
        if item.new_best:
            found.setdefault(item.dataset_slug, item)
    return sorted(found.values(), key=lambda item: not item.significant)[:MOST_BESTS]


def by_day(items: Iterable[Item]) -> list[Day]:
    """The items grouped by their day, new bests first, and then together what one team or publication did."""
    days = [(day, list(found)) for day, found in groupby(items, lambda item: item.at.date())]
    return [Day(day, sorted(found, key=lambda item: (not item.new_best, item.team))) for day, found in days]


def _listed_changes(datasets: Collection[int] | None) -> QuerySet[BoardChange]:
    """The changes that are told, a result once: what was kept back and comes again is no news.

    Of reported tables, which change many boards at one time, the first board's.
    """
    changes = BoardChange.objects.filter(kind__in=TOLD)
    same = BoardChange.objects.filter(kind=Kind.REPORTED, at=OuterRef("at"), pk__lt=OuterRef("pk"))
    if datasets is not None:
        changes, same = changes.filter(dataset__in=datasets), same.filter(dataset__in=datasets)
    told = BoardChange.objects.filter(kind=Kind.PUBLISHED, entry=OuterRef("entry"), pk__lt=OuterRef("pk"))
    return (
        changes.exclude(dataset__state=Dataset.State.PREPARING)
        .filter(Q(entry=None) | Q(entry__visibility__in=Entry.SEEN))
        .exclude(Q(kind=Kind.REPORTED) & Exists(same))
        .exclude(Q(kind=Kind.PUBLISHED) & Exists(told))
        .select_related("dataset", "entry__system__team")
        .order_by("-at", "-pk")
    )


def _items(changes: Iterable[BoardChange]) -> list[Item]:
    shown = [change for change in changes if is_public(change.facts)]
    before = _facts_before([change for change in shown if change.kind == Kind.IMPORTED])
    reported = _reported([change.at for change in shown if change.kind == Kind.REPORTED])
    rescored = news_of(change for change in shown if change.kind == Kind.RESCORED)
    results = [change for change in shown if change.kind == Kind.PUBLISHED]
    said = statements({change.dataset_id for change in results})
    baselines = _baselines_named_since(results)
    items: list[Item] = []
    for change in shown:
        if change.pk in rescored:
            items.append(_item(change, "Rescored", rescored[change.pk]))
        elif change.kind == Kind.REPORTED:
            items += reported.get(change.at, [])
        elif change.kind == Kind.IMPORTED:
            items += _imported(change, before.get(change.pk, {}))
        elif change.kind == Kind.REVEALED:
            note = "the private part, and how it differs from the public one"
            items.append(_item(change, "Revealed", note))
        elif change.kind == Kind.PROTECTED and change.facts.get("protection") == Protection.COMPETITION:
            note = "the board shows the public part of the judged queries"
            items.append(_item(change, "Competition", note))
        elif change.kind == Kind.PROTECTED:
            note = "values are means over all judged queries again"
            items.append(_item(change, "Competition over", note))
        elif change.entry is not None:
            items.append(_entry_item(change, change.entry, said, baselines.get(change.pk, {})))
    return sorted(items, key=attrgetter("at"), reverse=True)


def _facts_before(changes: Sequence[BoardChange]) -> dict[int, Mapping[str, Any]]:
    """What each dataset's columns were before these changes, by the changes' ids. One query."""
    if not changes:
        return {}
    wanted = reduce(or_, (Q(dataset=each.dataset_id, revision=each.revision - 1) for each in changes))
    rows = BoardChange.objects.filter(wanted).values_list("dataset_id", "revision", "facts")
    facts = {(dataset, revision): found for dataset, revision, found in rows}
    return {each.pk: facts.get((each.dataset_id, each.revision - 1), {}) for each in changes}


def _imported(change: BoardChange, before: Mapping[str, Any]) -> list[Item]:
    """What an import changed that readers see; nothing for files and settings."""
    now = change.facts
    if not is_public(before):
        about = ", ".join(part for part in (now.get("task"), now.get("domain")) if part)
        label, note = "New dataset", about + " (hidden judgements)" * bool(now.get("hidden"))
    elif _takes_runs(now) and not _takes_runs(before):
        label, note = "Dataset opened", "now open for runs"
        if now["state"] == Dataset.State.COLLECTING:
            note += ", which are scored once there are judgements"
    elif before["state"] == Dataset.State.COLLECTING and now["state"] == Dataset.State.PUBLISHED:
        label, note = "Judgements arrived", "the collected runs are scored"
    elif not (_takes_runs(before) and _takes_runs(now)):
        return []
    elif before["current_version_id"] != now["current_version_id"]:
        label, note = "New version", "earlier results are stale until they are scored again"
    elif before["current_qrels_id"] != now["current_qrels_id"]:
        label, note = "New judgements", "earlier results are stale until they are scored again"
    elif before["measures"] != now["measures"]:
        label, note = "Measures changed", ", ".join(now["measures"])
    else:
        return []
    return [_item(change, label, note)]


def _takes_runs(facts: Mapping[str, Any]) -> bool:
    """Whether runs are accepted and scored here, which takes a dataset several steps but is one news item."""
    return facts["state"] in Dataset.TAKES_RUNS and facts["current_version_id"] is not None


def _baselines_named_since(changes: Sequence[BoardChange]) -> dict[int, Mapping[str, Any]]:
    """Return the baselines of results that were published before there was one, by the changes' ids. One query."""
    without = [
        change
        for change in changes
        if change.entry is not None and (change.facts.get("result") or {}).get("baseline") is None
    ]
    if not without:
        return {}
    rows = (
        Entry.objects.public()
        .filter(dataset__in={change.dataset_id for change in without}, is_baseline=True)
        .values_list("dataset", "comparison_group", "pk", "scores", "system__name", "dataset__name")
    )
    groups = {row[:2]: row[2:] for row in rows}
    baselines: dict[int, Mapping[str, Any]] = {}
    for change in without:
        assert change.entry is not None
        measure = (change.facts.get("result") or {}).get("measure", "")
        key, scores, system, dataset = groups.get(
            (change.dataset_id, change.entry.comparison_group), (change.entry_id, {}, "", "")
        )
        if key != change.entry_id:
            name = baseline_label(system, dataset)
            baselines[change.pk] = {"baseline": scores.get(measure), "baseline_name": name}
    return baselines


def _entry_item(
    change: BoardChange, entry: Entry, said: Mapping[int, BoardStatements], baseline: Mapping[str, Any]
) -> Item:
    if change.kind == Kind.WITHDRAWN:
        return _item(change, "Withdrawn", entry.withdrawal_reason, entry)
    if change.kind == Kind.BASELINE:
        return _item(change, "Baseline named", "differences are taken against it", entry)
    facts = {**(change.facts.get("result") or {}), **baseline}
    note, new_best = _result(facts, hidden=change.facts.get("hidden") or change.dataset.hidden)
    if entry.visibility == Entry.Visibility.QUARANTINED:
        note, new_best = "quarantined since by a curator", False
    if entry.visibility == Entry.Visibility.WITHDRAWN:
        note, new_best = "; ".join(part for part in (note, "withdrawn since") if part), False
    about = said[change.dataset_id].of(entry.pk, change.dataset.primary_measure) if new_best else None
    better = about is not None and about.better is True
    return _item(change, "New result", note, entry, new_best=new_best, significant=better)


def _result(result: Mapping[str, Any], *, hidden: bool) -> tuple[str, bool]:
    """`nDCG@10 0.345, +0.020 over BM25` (or how the baseline is called), and whether it was better than all before.

    `hidden` is whether the judgements are hidden now, or were: then nothing finer than rounded values is told.
    """
    measure = result.get("measure", "")
    value, baseline, best = (
        None if result.get(name) is None else published_value(result[name], hidden=hidden)
        for name in ("value", "baseline", "best_before")
    )
    if value is None:
        return "", False
    note = f"{measure} {numbers.format_value(value, numbers.DECIMALS)}"
    delta = numbers.difference(value, baseline)
    if delta is not None:
        note += f", {numbers.lead(delta, result.get('baseline_name') or 'the baseline')}"
    beaten = best is not None and (value < best if better(measure) == "lower" else value > best)
    return note, beaten


def _reported(times: Sequence[datetime.datetime]) -> dict[datetime.datetime, list[Item]]:
    """By time, one item for each publication whose figures were loaded then. Two queries."""
    if not times:
        return {}
    changes = BoardChange.objects.filter(kind=Kind.REPORTED, at__in=times)
    found: dict[datetime.datetime, list[Item]] = {}
    for at, group in groupby(
        sorted(changes.values_list("at", "pk", "dataset", "revision")), lambda row: row[0]
    ):
        rows = list(group)
        of_boards = reduce(or_, (Q(dataset=dataset, from_revision=number) for *_, dataset, number in rows))
        sources = (
            EntryVersion.objects.filter(of_boards, entry__source__isnull=False)
            .values(
                "entry__source__key", "entry__source__authors", "entry__source__year", "entry__source__title"
            )
            .annotate(systems=Count("entry__system", distinct=True), datasets=Count("dataset", distinct=True))
            .order_by("entry__source__key")
        )
        found[at] = []
        for source in sources:
            cited = short_citation(source["entry__source__authors"], source["entry__source__year"])
            systems, datasets = source["systems"], source["datasets"]
            note = (
                f"{cited}, {source['entry__source__title']}: {systems} system{'s' * (systems != 1)} on {datasets} "
                f"dataset{'s' * (datasets != 1)}"
            )
            key = f"{rows[0][1]}-{source['entry__source__key']}"
            label = "Reported figures"
            found[at].append(Item(key, at, Kind.REPORTED.value, label, "", "", "", "", note))
    return found


def _item(
    change: BoardChange,
    label: str,
    note: str,
    entry: Entry | None = None,
    *,
    new_best: bool = False,
    significant: bool = False,
) -> Item:
    system = entry.system if entry else None
    own = system and system.team and not system.participant and system.anonymous_until is None
    return Item(
        key=str(change.pk),
        at=change.at,
        kind=change.kind,
        label=label,
        system=system.name if system else "",
        system_slug=system.slug if system else "",
        dataset=change.dataset.name,
        dataset_slug=change.dataset.slug,
        note=note,
        new_best=new_best,
        significant=significant,
        team=anonymity.public_team_name(system) if system else "",
        team_slug=system.team.slug if system and system.team and own else None,
    )
