"""Pages of boards as they were at a time. What is made of the rows is the present's own code: `boards.pages`."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from django.db.models import F, QuerySet

from leaderboard.boards import pages
from leaderboard.boards.benchmark.board import benchmark_board
from leaderboard.boards.benchmark.composite import compose, wholes_of
from leaderboard.boards.columns.significance import AWAITED, OUTDATED
from leaderboard.boards.dataset_board import dataset_board
from leaderboard.boards.facts import BenchmarkFacts, DatasetFacts, DatasetPart, Member
from leaderboard.boards.model import Board
from leaderboard.boards.remarks import remarks_on
from leaderboard.boards.state import BoardState
from leaderboard.models import Benchmark, BenchmarkVersion, BoardChange, Dataset, Entry, Qrels
from leaderboard.results.board_rows import past
from leaderboard.results.board_rows.rows import NEVER, BoardRows, Revision, rows_at
from leaderboard.results.kinds import GONE, QUARANTINED, SCORED
from leaderboard.results.significance.gaps import Twins, twins_of
from leaderboard.results.significance.statements import statements_at

WITHDRAWN = Entry.Visibility.WITHDRAWN.value


class PastPage(NamedTuple):
    """A board as it was. `at` is when it had changed last, `rows` is what it is made of."""

    board: Board
    at: datetime.datetime
    tombstones: Sequence[pages.Tombstone]
    rows: Collection[BoardRows]


def dataset_page(slug: str, state: BoardState, at: datetime.datetime) -> PastPage | None:
    """The dataset's board at a time, None where it was not public yet. Raises UnknownChoice."""
    dataset_id = _listed(slug)
    if dataset_id is None:
        return None
    revisions = past.revisions_at([dataset_id], at)
    revision = revisions.get(dataset_id)
    if revision is None:
        return None
    rows = rows_at(revisions)
    gone = past.removed_since(rows)
    parts = _parts(revision, revisions)
    whole = compose(rows[dataset_id], parts, rows)
    entries = whole.rows.entries
    facts = pages.composite_facts(pages.facts_of({**revision.facts, **_judging(revision.facts)}), parts)
    twins, other = _twins_at([dataset_id], at)
    halves = {dataset_id: revision, **other}
    statements = statements_at(halves, rows | rows_at(other), twins)[dataset_id]
    board = dataset_board(facts, entries, state, rows[dataset_id].measured, statements.certainty, statements)
    _mark_gone(board, gone, whole.made_of, {})
    board.notes = [note for note in board.notes if note not in (AWAITED, OUTDATED)]
    remarks = remarks_on(revision.facts["current_qrels_id"], hidden=facts.hidden)
    board.notes += [
        *pages.notes_on_parts(parts), *remarks, *_untested(revision.facts, board), *_note(bool(gone))
    ]  # fmt: skip
    since = max(each.at for each in (*revisions.values(), *other.values()))
    return PastPage(board, since, pages.tombstones_of(entries), rows.values())


def _twins_at(
    datasets: Collection[int], at: datetime.datetime
) -> tuple[Sequence[Twins], Mapping[int, Revision]]:
    """Return the twins whose halves both had boards at the time, and the revisions of halves not in `datasets`."""
    twins = twins_of(datasets)
    other = past.revisions_at({half for each in twins for half in each[:2]}.difference(datasets), at)
    return [each for each in twins if not other.keys().isdisjoint(each[:2])], other


def _judging(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields about judges and labels of the qrels at the time, named as in `pages.DATASET_FIELDS`."""
    qrels = Qrels.objects.filter(pk=facts["current_qrels_id"])
    columns = qrels.values(current_qrels__judged_by=F("judged_by"), current_qrels__statistics=F("statistics"))
    return columns.first() or {}


def _listed(slug: str) -> int | None:
    return _public().filter(slug=slug).values_list("pk", flat=True).first()


def _untested(facts: Mapping[str, Any], board: Board) -> list[str]:
    unjudged = facts["current_qrels_id"] is None
    if facts["hidden"] or unjudged or (board.certainty is not None and board.certainty.current):
        return []
    scored = any(row.ranked_in == SCORED for row in board.rows)
    return ["Tests between these results had not been computed yet at that time."] if scored else []


def _note(any_gone: bool) -> list[str]:
    return (
        ["Results taken off since keep their place and their figures, with the reason where that is public."]
        if any_gone
        else []
    )


def benchmark_page(slug: str, state: BoardState, at: datetime.datetime) -> PastPage | None:
    """The benchmark's board at a time, None where there was none yet. Raises UnknownChoice."""
    benchmark_id = Benchmark.objects.filter(slug=slug).values_list("pk", flat=True).first()
    row = past.benchmark_at(benchmark_id, at) if benchmark_id is not None else None
    if row is None:
        return None
    revisions = past.revisions_at([member["dataset_id"] for member in row["members"]], at)
    members = _members(row, revisions)
    if not members:
        return None
    rows = rows_at(revisions)
    facts = BenchmarkFacts(row["name"], row["measure"], members, row["source_id"], row["efficiency_from_id"])
    wholes = wholes_of(members, rows)
    of_members = {member.dataset_id: member.revision for member in members}
    statements = statements_at(of_members, rows)
    certain = {dataset: each.certainty for dataset, each in statements.items() if each.certainty is not None}
    of_wholes = {dataset: whole.rows for dataset, whole in wholes.items()}
    board = benchmark_board(facts, {**rows, **of_wholes}, state, certainty=certain)
    gone = past.removed_since(rows)
    made_of = {pk: ids for whole in wholes.values() for pk, ids in whole.made_of.items()}
    _mark_gone(board, gone, made_of, _names(members))
    board.notes += _note(bool(gone))
    since = max(revision.at for revision in revisions.values())
    return PastPage(board, since, [], rows.values())


def _members(row: Mapping[str, Any], revisions: Mapping[int, Revision]) -> list[Member]:
    """The datasets that were public then, as they were."""
    return [
        pages.read_member({**member, **revision.facts}, revision, _parts(revision, revisions))
        for member in row["members"]
        if (revision := revisions.get(member["dataset_id"])) is not None
    ]


def _parts(revision: Revision, revisions: Mapping[int, Revision]) -> list[DatasetPart]:
    """What the dataset was the mean of, as it was; a part that was not public yet has no columns."""
    found = []
    for dataset_id in revision.parts:
        of_part = revisions.get(dataset_id)
        if of_part is None:
            found.append(DatasetPart(dataset_id, "", DatasetFacts("", False, "", []), NEVER, listed=False))
            continue
        facts = pages.facts_of(of_part.facts)
        found.append(DatasetPart(dataset_id, of_part.facts["slug"], facts, of_part))
    return found


def _names(members: Sequence[Member]) -> dict[int, str]:
    """The names of the benchmark's datasets, by their ids and by those of their parts."""
    of_parts = {part.dataset_id: member.facts.name for member in members for part in member.parts}
    return of_parts | {member.dataset_id: member.facts.name for member in members}


def _mark_gone(
    board: Board,
    gone: Mapping[int, past.RemovedEntry],
    made_of: Mapping[int, Sequence[int]],
    names: Mapping[int, str],
) -> None:
    """Say at each row that it was taken off since, and why; with the datasets' names where it is made of several.

    A row is made of the entries whose values it shows, and of no other of the same system.
    """
    if not gone:
        return
    board.rows = [row.copy() for row in board.rows]
    for row in board.rows:
        ids = (each for pk in row.entries for each in made_of.get(pk, (pk,)))
        since = [gone[pk] for pk in ids if pk in gone]
        if since:
            reasons = "; ".join(dict.fromkeys(_reason(each, names) for each in since))
            states = {each.visibility for each in since}
            row.entry = row.entry._replace(
                visibility=next((state for state in (QUARANTINED, WITHDRAWN) if state in states), GONE),
                withdrawal_reason=reasons,
                moderation_reason=reasons,
            )
    board.without_page = past.without_page(gone.values())


def _reason(gone: past.RemovedEntry, names: Mapping[int, str]) -> str:
    return f"{gone.reason} ({names[gone.dataset_id]})" if gone.dataset_id in names else gone.reason


def key_of(kind: str, slug: str, at: datetime.datetime) -> str:
    """What names a board as it was, with what was taken off it since; empty where there was none."""
    row = None
    if kind == "dataset":
        members = [key for key in [_listed(slug)] if key is not None]
    else:
        benchmark_id = Benchmark.objects.filter(slug=slug).values_list("pk", flat=True).first()
        row = past.benchmark_at(benchmark_id, at) if benchmark_id is not None else None
        members = [member["dataset_id"] for member in row["members"]] if row else []
    revisions = past.revisions_at(members, at)
    if not revisions:
        return ""
    shown = {**revisions, **(_twins_at(members, at)[1] if kind == "dataset" else {})}
    numbers = ",".join(f"{dataset}:{shown[dataset].key}" for dataset in sorted(shown))
    return f"{numbers} {past.removals_key(revisions)} {orjson.dumps(row).decode()}"


def first_published(kind: str, slug: str) -> datetime.datetime | None:
    """When the board begins, None where there is none that anybody may see."""
    if kind == "dataset":
        changes = BoardChange.objects.filter(dataset__slug=slug, dataset__in=_public()).order_by("revision")
        times = (at for at, facts in changes.values_list("at", "facts") if past.is_public(facts))
        return next(times, None)
    versions = BenchmarkVersion.objects.filter(benchmark__slug=slug).order_by("at", "pk")
    return versions.values_list("at", flat=True).first()


def _public() -> QuerySet[Dataset]:
    return Dataset.objects.exclude(state=Dataset.State.PREPARING)
