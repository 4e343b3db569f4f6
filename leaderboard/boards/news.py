"""News about the boards; `boards.system.history` has the history of a single system.

All news items come from `BoardChange`. Results that are private now and datasets that are not public are never
mentioned, and all numbers are values that boards published.
"""

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from itertools import groupby
from operator import attrgetter, or_
from typing import Any, NamedTuple

from django.core.paginator import Page, Paginator
from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet

from leaderboard.core import anonymity
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.core.text.baselines import baseline_label
from leaderboard.judgements.rescoring.switched import rescore_news
from leaderboard.models import BoardChange, Dataset, Entry, EntryVersion, Protection, can_be_best, short_citation
from leaderboard.results.board_rows.past import is_public
from leaderboard.results.significance.statements import BoardStatements, statements
from leaderboard.results.values import published_value

Kind = BoardChange.Kind
#: Kinds of changes that are news.
NEWS_KINDS = (
    Kind.IMPORTED,
    Kind.PUBLISHED,
    Kind.REPORTED,
    Kind.WITHDRAWN,
    Kind.RESCORED,
    Kind.BASELINE,
    Kind.REVEALED,
    Kind.PROTECTED,
)
ITEMS_PER_PAGE = 50
#: Results that are listed together: the site's own and participants', which have no page of a team. Withdrawn and
#: quarantined results are listed alone, because each has its own note.
_RANKED = Q(kind=Kind.PUBLISHED, entry__visibility=Entry.Visibility.PUBLIC, entry__system__anonymous_until=None)
_IMPORTED_RESULTS = _RANKED & (Q(entry__system__team=None) | ~Q(entry__system__participant=""))
#: Columns of a publication, of a benchmark, and of the only system and dataset of its figures.
_CITATION = ("entry__source__authors", "entry__source__year", "entry__source__title")
_BOARD = ("dataset__benchmarks__name", "dataset__benchmarks__slug")
_NAMES = ("entry__system__name", "entry__system__slug", "dataset__name", "dataset__slug")


class Item(NamedTuple):
    """A news item, with or without a system and a dataset; `note` is a clause without a full stop."""

    key: str
    at: datetime.datetime
    label: str
    system: str
    system_slug: str
    dataset: str
    dataset_slug: str
    note: str
    new_best: bool = False
    #: Whether it is significantly better than the baseline.
    significant: bool = False
    team: str = ""
    team_slug: str | None = None
    #: Time of the latest of several results; None for other items, which never change.
    updated: datetime.datetime | None = None
    #: Name and slug of the benchmark with most datasets of a publication; empty for other items.
    board: Sequence[str] = ()

    @property
    def title(self) -> str:
        """The item in one line of plain text."""
        about = " on ".join(part for part in (self.system, self.dataset) if part)
        note = f": {self.note}" if self.note else ""
        return f"{self.label}, {about}{note}" if about else f"{self.label}{note}"

    @property
    def url(self) -> str:
        """Page with more information."""
        if self.dataset_slug:
            return f"/datasets/{self.dataset_slug}/"
        board_path = f"/benchmarks/{self.board[1]}/" if self.board else "/benchmarks/"
        return f"/systems/{self.system_slug}/" if self.system_slug else board_path


class Day(NamedTuple):
    """The news of a day, newest first."""

    day: datetime.date
    items: Sequence[Item]


def news_page(number: int, datasets: Collection[int] | None = None) -> tuple[Page[BoardChange], list[Item]]:
    """Return a page of the news of these or all datasets, newest first; past the end, the last page.

    The first imported result on a dataset and day represents all of them, so that they are never on several pages.
    """
    changes = _listed_changes(datasets)
    imports = changes.filter(_IMPORTED_RESULTS)
    first_results = imports.order_by().values("dataset", "at__date").annotate(first=Min("pk")).values("first")
    page = Paginator(changes.exclude(_IMPORTED_RESULTS & ~Q(pk__in=first_results)), ITEMS_PER_PAGE).get_page(number)
    same_import = Q(dataset=OuterRef("dataset"), at__date=OuterRef("at__date"), pk__in=[row.pk for row in page])
    return page, _news_items(page, set(imports.filter(Exists(imports.filter(same_import)))))


def group_by_day(items: Iterable[Item]) -> list[Day]:
    """Group items, given newest first, by day; within a day, new bests are first, newest first, then others by team."""
    return [
        Day(day, sorted(group, key=lambda row: (not row.new_best, "" if row.new_best else row.team)))
        for day, group in groupby(items, lambda item: item.at.date())
    ]


def _merged_item(results: Sequence[Item]) -> Item:
    """Return one item for several results on a dataset, newest first; it names the newest best result.

    Its key and time are those of the first result, so that its id in feeds does not change when results follow. It
    changes if the first result is withdrawn.
    """
    best = next((result for result in results if result.new_best), None)
    note = f"{len(results)} results" + (f", the best is {best.system} with {best.note}" if best else "")
    item = results[-1]._replace(label="New results", system="", system_slug="", note=note, team="")
    return item._replace(updated=results[0].at, new_best=best is not None, significant=bool(best and best.significant))


def _listed_changes(datasets: Collection[int] | None) -> QuerySet[BoardChange]:
    """Return the changes that are news, newest first, on these datasets or on all if None.

    Each result appears once, even if it was withheld and published again. A load of reported tables, which changes many
    boards at once, appears as the change of the first board.
    """
    changes = BoardChange.objects.filter(kind__in=NEWS_KINDS)
    same_load = BoardChange.objects.filter(kind=Kind.REPORTED, at=OuterRef("at"), pk__lt=OuterRef("pk"))
    if datasets is not None:
        changes, same_load = changes.filter(dataset__in=datasets), same_load.filter(dataset__in=datasets)
    earlier_changes = BoardChange.objects.filter(kind=Kind.PUBLISHED, entry=OuterRef("entry"), pk__lt=OuterRef("pk"))
    return (
        changes.exclude(dataset__state=Dataset.State.PREPARING)
        .filter(Q(entry=None) | Q(entry__visibility__in=Entry.SEEN))
        .exclude(Q(kind=Kind.REPORTED) & Exists(same_load))
        .exclude(Q(kind=Kind.PUBLISHED) & Exists(earlier_changes))
        .select_related("dataset", "entry__system__team")
        .order_by("-at", "-pk")
    )


def _news_items(changes: Iterable[BoardChange], imports: Collection[BoardChange]) -> list[Item]:
    """Return the items of the changes, newest first, with one item for all of a day's `imports` on a dataset.

    Changes at a time when their dataset was not public are omitted, and so are changes without visible effects.
    """
    newest_first = sorted({*changes, *imports}, key=attrgetter("at", "pk"), reverse=True)
    public_changes = [change for change in newest_first if is_public(change.facts)]
    previous_facts = _previous_facts([change for change in public_changes if change.kind == Kind.IMPORTED])
    reported_items = _reported_items([change.at for change in public_changes if change.kind == Kind.REPORTED])
    rescore_notes = rescore_news(change for change in public_changes if change.kind == Kind.RESCORED)
    results = [change for change in public_changes if change.kind == Kind.PUBLISHED]
    board_statements = statements({change.dataset_id for change in results})
    baselines = _later_baselines(results)
    items: list[Item] = []
    results_by_key: defaultdict[tuple[Any, ...], list[Item]] = defaultdict(list)
    for change in public_changes:
        if change.pk in rescore_notes:
            items.append(_change_item(change, "Rescored", rescore_notes[change.pk]))
        elif change.kind == Kind.REPORTED:
            items += reported_items.get(change.at, [])
        elif change.kind == Kind.IMPORTED:
            items += _import_items(change, previous_facts.get(change.pk, {}))
        elif change.kind == Kind.REVEALED:
            note = "scores on the private part, and their difference from the public part"
            items.append(_change_item(change, "Revealed", note))
        elif change.kind == Kind.PROTECTED and change.facts.get("protection") == Protection.COMPETITION:
            items.append(_change_item(change, "Competition", "the board shows the public part of the judged queries"))
        elif change.kind == Kind.PROTECTED:
            items.append(_change_item(change, "Competition over", "values are means over all judged queries again"))
        elif change.entry is not None:
            item = _entry_item(change, change.entry, board_statements, baselines.get(change.pk, {}))
            key = change.dataset_id, change.at.date(), None if change in imports else change.pk
            results_by_key[key].append(item)
    items += [_merged_item(group) if len(group) > 1 else group[0] for group in results_by_key.values()]
    return sorted(items, key=attrgetter("at"), reverse=True)


def _previous_facts(changes: Sequence[BoardChange]) -> dict[int, Mapping[str, Any]]:
    """Return the dataset's columns before each of these changes, by id of the change. One database query.

    They are empty for the first change of a dataset.
    """
    conditions = (Q(dataset=change.dataset_id, revision=change.revision - 1) for change in changes)
    before = BoardChange.objects.filter(reduce(or_, conditions, Q(pk__in=())))
    facts = {(row.dataset_id, row.revision): row.facts for row in before.only("dataset", "revision", "facts")}
    return {change.pk: facts.get((change.dataset_id, change.revision - 1), {}) for change in changes}


def _import_items(change: BoardChange, old_facts: Mapping[str, Any]) -> list[Item]:
    """Return the item about an import's main visible effect; none if only files or settings changed."""
    new_facts = change.facts
    if not is_public(old_facts):
        topics = ", ".join(part for part in (new_facts.get("task"), new_facts.get("domain")) if part)
        judgements = "hidden judgments" if new_facts.get("hidden") else ""
        label, note = "New dataset", f"{topics} ({judgements})" if topics and judgements else topics or judgements
    elif _takes_runs(new_facts) and not _takes_runs(old_facts):
        label, note = "Dataset opened", "now open for runs"
        if new_facts["state"] == Dataset.State.COLLECTING:
            note += ", which are scored once there are judgments"
    elif old_facts["state"] == Dataset.State.COLLECTING and new_facts["state"] == Dataset.State.PUBLISHED:
        label, note = "Judgments added", "the collected runs are now scored"
    elif not (_takes_runs(old_facts) and _takes_runs(new_facts)):
        return []
    elif old_facts["current_version_id"] != new_facts["current_version_id"]:
        label, note = "New version", "earlier results are stale until they are scored again"
    elif old_facts["current_qrels_id"] != new_facts["current_qrels_id"]:
        label, note = "New judgments", "earlier results are stale until they are scored again"
    elif old_facts["measures"] != new_facts["measures"]:
        label, note = "Measures changed", ", ".join(new_facts["measures"])
    else:
        return []
    return [_change_item(change, label, note)]


def _takes_runs(facts: Mapping[str, Any]) -> bool:
    """Return whether runs are accepted and scored.

    Several changes may lead to this state, but they form one news item.
    """
    return facts["state"] in Dataset.TAKES_RUNS and facts["current_version_id"] is not None


def _later_baselines(changes: Sequence[BoardChange]) -> dict[int, Mapping[str, Any]]:
    """Return score and name of the baselines of results that were published before there was one.

    They are by id of the change. Results that still have no baseline, and baselines themselves, are omitted. One
    database query.
    """
    changes_without_baseline = [
        change
        for change in changes
        if change.entry is not None and (change.facts.get("result") or {}).get("baseline") is None
    ]
    rows = (
        Entry.objects.public()
        .filter(dataset__in={change.dataset_id for change in changes_without_baseline}, is_baseline=True)
        .values_list("dataset", "comparison_group", "pk", "scores", "system__name", "dataset__name")
    )
    groups = {row[:2]: row[2:] for row in rows}
    baselines: dict[int, Mapping[str, Any]] = {}
    for change in changes_without_baseline:
        assert change.entry is not None
        measure = (change.facts.get("result") or {}).get("measure", "")
        key, scores, system, dataset = groups.get(
            (change.dataset_id, change.entry.comparison_group), (change.entry_id, {}, "", "")
        )
        if key != change.entry_id:
            baselines[change.pk] = {"baseline": scores.get(measure), "baseline_name": baseline_label(system, dataset)}
    return baselines


def _entry_item(
    change: BoardChange,
    entry: Entry,
    board_statements: Mapping[int, BoardStatements],
    baseline: Mapping[str, Any],
) -> Item:
    """Return the item about a result that was published or withdrawn, or that became the baseline.

    `baseline` has the score and the name of a baseline that was added later. A result that was quarantined or withdrawn
    since then is not a new best, and neither is a reference or the result of a closed API.
    """
    if change.kind == Kind.WITHDRAWN:
        return _change_item(change, "Withdrawn", entry.withdrawal_reason, entry)
    if change.kind == Kind.BASELINE:
        return _change_item(change, "New baseline", "now the baseline of the board", entry)
    facts = {**(change.facts.get("result") or {}), **baseline}
    note, new_best = _result_note(facts, hidden=change.facts.get("hidden") or change.dataset.hidden)
    new_best = new_best and can_be_best(entry.system.closed_api, entry.run_type)
    if entry.visibility == Entry.Visibility.QUARANTINED:
        note, new_best = "later quarantined by a curator", False
    if entry.visibility == Entry.Visibility.WITHDRAWN:
        note, new_best = "; ".join(part for part in (note, "later withdrawn") if part), False
    measure = change.dataset.primary_measure
    test = board_statements[change.dataset_id].for_entry(entry.pk, measure)
    is_significant = bool(new_best and test.better and not test.is_lost_by_correction)
    return _change_item(change, "New result", note, entry)._replace(new_best=new_best, significant=is_significant)


def _result_note(result: Mapping[str, Any], *, hidden: bool) -> tuple[str, bool]:
    """Return a note such as `nDCG@10 0.345, +0.020 over BM25`, and whether the result was a new best.

    `hidden` tells whether the judgments are or were hidden; the note then has rounded values only. Without a score, the
    note is empty.
    """
    measure = result.get("measure", "")
    value, baseline, old_best = (
        None if result.get(name) is None else published_value(result[name], hidden=hidden)
        for name in ("value", "baseline", "best_before")
    )
    if value is None:
        return "", False
    note = f"{measure} {numbers.format_value(value, numbers.DECIMALS)}"
    delta = numbers.difference(value, baseline)
    if delta is not None:
        note += f", {numbers.lead(delta, result.get('baseline_name') or 'the baseline')}"
    is_new_best = old_best is not None and (value < old_best if better(measure) == "lower" else value > old_best)
    return note, is_new_best


def _reported_items(times: Sequence[datetime.datetime]) -> dict[datetime.datetime, list[Item]]:
    """Return, by time, an item for each publication whose figures were loaded then.

    An item names its system or its dataset if it has one only. Takes one database query, and two more for each time.
    """
    changes = BoardChange.objects.filter(kind=Kind.REPORTED, at__in=times)
    items_by_time: defaultdict[datetime.datetime, list[Item]] = defaultdict(list)
    for time, group in groupby(sorted(changes.values_list("at", "pk", "dataset", "revision")), lambda row: row[0]):
        rows = list(group)
        conditions = reduce(or_, (Q(dataset=dataset, from_revision=number) for *_, dataset, number in rows))
        figures = EntryVersion.objects.filter(conditions, entry__source__isnull=False, entry__visibility__in=Entry.SEEN)
        figures = figures.exclude(dataset__state=Dataset.State.PREPARING)
        boards = figures.filter(dataset__benchmarks__isnull=False).values_list("entry__source__key", *_BOARD)
        by_size = boards.annotate(n=Count("dataset", distinct=True)).order_by("n", "-dataset__benchmarks__position")
        largest_boards = {source: board for source, *board, _n in by_size}
        sources = (
            figures.values_list("entry__source__key", *_CITATION)
            .annotate(*(Count(name, distinct=True) for name in ("entry__system", "dataset")), *map(Min, _NAMES))
            .order_by("entry__source__key")
        )
        for source, authors, year, title, systems, datasets, *names in sources:
            counts = f"{systems} system{'s' * (systems != 1)} on {datasets} dataset{'s' * (datasets != 1)}"
            note = f"{short_citation(authors, year)}, {title}: {counts}"
            system, system_slug = names[:2] if systems == 1 else ("", "")
            item = Item(f"{rows[0][1]}-{source}", time, "Reported figures", system, system_slug, "", "", note)
            board = {"dataset": names[2], "dataset_slug": names[3]} if datasets == 1 else {}
            items_by_time[time].append(item._replace(board=largest_boards.get(source, ()), **board))
    return items_by_time


def _change_item(change: BoardChange, label: str, note: str, entry: Entry | None = None) -> Item:
    """Return the item of a change. `entry` adds the system and its team, whose name is hidden if it is anonymous."""
    system = entry.system if entry else None
    shows_team = system and system.team and not system.participant and system.anonymous_until is None
    return Item(
        key=str(change.pk),
        at=change.at,
        label=label,
        system=system.name if system else "",
        system_slug=system.slug if system else "",
        dataset=change.dataset.name,
        dataset_slug=change.dataset.slug,
        note=note,
        team=anonymity.public_team_name(system) if system else "",
        team_slug=system.team.slug if system and system.team and shows_team else None,
    )
