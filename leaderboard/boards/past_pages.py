"""Pages of boards as they were at a time. What is made of the rows is the present's own code: `boards.pages`."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import orjson
from django.db.models import QuerySet

from leaderboard import certainty
from leaderboard.boards import pages, past
from leaderboard.boards.benchmark_board import benchmark_board
from leaderboard.boards.certainty_columns import AWAITED, OUTDATED
from leaderboard.boards.dataset_board import dataset_board
from leaderboard.boards.groups import present_group
from leaderboard.boards.members import BenchmarkFacts, Member, Part
from leaderboard.boards.model import REPORTED, SCORED, Board, Identity
from leaderboard.boards.parts import compose, rows_of_whole, with_parts
from leaderboard.boards.reading import EntryRow, SystemRow
from leaderboard.boards.state import BoardState
from leaderboard.models import Benchmark, BenchmarkVersion, BoardChange, Dataset, Entry

WITHDRAWN = Entry.Visibility.WITHDRAWN.value


class PastPage(NamedTuple):
    """A board as it was. `at` is when it had changed last, `bibtex` what its systems said to cite, by slug."""

    board: Board
    at: datetime.datetime
    tombstones: Sequence[pages.Tombstone]
    bibtex: Mapping[str, str]


def dataset_page(slug: str, state: BoardState, at: datetime.datetime) -> PastPage | None:
    """The dataset's board at a time, None where it was not public yet. Raises UnknownChoice."""
    dataset_id = _listed(slug)
    if dataset_id is None:
        return None
    parts = pages.parts_of([dataset_id]).get(dataset_id, [])
    revisions = past.revisions_at([dataset_id, *(part.dataset_id for part in parts)], at)
    revision = revisions.get(dataset_id)
    if revision is None:
        return None
    rows = past.rows_at(revisions)
    gone = past.gone_since(rows.values())
    entries = rows[dataset_id].entries()
    as_then = [] if revision.facts["current_version_id"] else _as_then(parts, revisions)
    if as_then:
        entries = sorted([*_of_whole(as_then, rows), *entries], key=lambda entry: entry.published)
    compared = _compared(revision.facts, entries)
    found = certainty.read_at(dataset_id, revision.number, compared) if compared else None
    board = dataset_board(pages.facts_of(revision.facts), entries, state, rows[dataset_id].measured(), found)
    _mark_gone(board, rows.values(), gone, {})
    board.notes = [note for note in board.notes if note not in (AWAITED, OUTDATED)]
    board.notes += [*pages.notes_on_parts(as_then), *_untested(revision.facts, board), *_note(bool(gone))]
    since = max(each.at for each in revisions.values())
    return PastPage(board, since, pages.tombstones_of(entries), _bibtex(rows.values()))


def _as_then(parts: Sequence[Part], revisions: Mapping[int, past.Revision]) -> list[Part]:
    return [_part(part, revisions.get(part.dataset_id)) for part in parts]


def _of_whole(parts: Sequence[Part], rows: Mapping[int, past.PastRows]) -> list[EntryRow]:
    """What systems had on all of the parts, as rows of the whole; nothing while a part was not public."""
    if not all(part.listed for part in parts):
        return []
    composed = compose(parts, {part.dataset_id: rows[part.dataset_id].lines() for part in parts})
    return rows_of_whole(composed, rows[parts[0].dataset_id].entries())


def _bibtex(rows: Iterable[past.PastRows]) -> dict[str, str]:
    return {slug: text for of_dataset in rows for slug, text in of_dataset.bibtex().items()}


def _listed(slug: str) -> int | None:
    return _public().filter(slug=slug).values_list("pk", flat=True).first()


def _untested(facts: Mapping[str, Any], board: Board) -> list[str]:
    if facts["hidden"] or (board.certainty is not None and board.certainty.current):
        return []
    scored = any(row.ranked_in == SCORED for row in board.rows)
    return ["Tests between these results had not been computed yet at that time."] if scored else []


def _note(any_gone: bool) -> list[str]:
    return (
        ["Results taken off since keep their place and their figures, with the reason."] if any_gone else []
    )


def _compared(facts: Mapping[str, Any], entries: Sequence[EntryRow]) -> list[int]:
    """The ids of the entries that tests were between."""
    public = [entry for entry in entries if entry.visibility == "public" and entry.provenance != REPORTED]
    group = present_group(
        facts["current_version_id"],
        facts["current_qrels_id"],
        [(entry.comparison_group, bool(entry.is_baseline)) for entry in public],
    )
    return [entry.pk for entry in public if entry.comparison_group == group]


def benchmark_page(slug: str, state: BoardState, at: datetime.datetime) -> PastPage | None:
    """The benchmark's board at a time, None where there was none yet. Raises UnknownChoice."""
    benchmark_id = Benchmark.objects.filter(slug=slug).values_list("pk", flat=True).first()
    row = past.benchmark_at(benchmark_id, at) if benchmark_id is not None else None
    if row is None:
        return None
    ids = [member["dataset_id"] for member in row["members"]]
    parts = pages.parts_of(ids)
    revisions = past.revisions_at(
        [*ids, *(part.dataset_id for found in parts.values() for part in found)], at
    )
    members = _members(row, parts, revisions)
    if not members:
        return None
    rows = past.rows_at(revisions)
    entries = {dataset: of_dataset.lines() for dataset, of_dataset in rows.items()}
    absent = {part.dataset_id for member in members for part in member.parts}.difference(entries)
    entries |= {dataset: past.PastRows(dataset, []).lines() for dataset in absent}
    facts = BenchmarkFacts(row["name"], row["measure"], members, row["source_id"], row["efficiency_from_id"])
    board = benchmark_board(facts, with_parts(members, entries), lambda ids: _systems(rows.values()), state)
    gone = past.gone_since(rows.values())
    _mark_gone(board, rows.values(), gone, {each.dataset_id: each.facts.name for each in members})
    board.notes += _note(bool(gone))
    since = max(revision.at for revision in revisions.values())
    return PastPage(board, since, [], _bibtex(rows.values()))


def _members(
    row: Mapping[str, Any], parts: Mapping[int, list[Part]], revisions: Mapping[int, past.Revision]
) -> list[Member]:
    """The datasets that were public then, as they were."""
    found = []
    for member in row["members"]:
        revision = revisions.get(member["dataset_id"])
        if revision is None:
            continue
        columns = {f"dataset__{name}": value for name, value in revision.facts.items()}
        own = [] if revision.facts["current_version_id"] else parts.get(member["dataset_id"], [])
        found.append(pages.member_of({**member, **columns}, revision.key, _as_then(own, revisions)))
    return found


def _part(part: Part, revision: past.Revision | None) -> Part:
    if revision is None:
        return replace(part, revision="at:0", listed=False)
    return replace(part, facts=pages.facts_of(revision.facts), revision=revision.key, listed=True)


def _systems(rows: Iterable[past.PastRows]) -> dict[int, SystemRow]:
    return {key: system for of_dataset in rows for key, system in of_dataset.systems().items()}


def _mark_gone(
    board: Board, rows: Iterable[past.PastRows], gone: Mapping[int, str], names: Mapping[int, str]
) -> None:
    """Say at each row that it was taken off since, and why; with the datasets' names where it is made of several."""
    if not gone:
        return
    reasons: dict[tuple[str, str], list[str]] = {}
    for of_dataset in rows:
        where = f" ({names[of_dataset.dataset_id]})" if of_dataset.dataset_id in names else ""
        for kept in of_dataset.kept:
            entry = kept["entry"]
            if entry["pk"] in gone:
                found = reasons.setdefault((entry["slug"], entry["configuration"]), [])
                found.append(gone[entry["pk"]] + where)
    for row in board.rows:
        shown = row.entry
        if not isinstance(shown, EntryRow | Identity) or row.ranked_in == REPORTED:
            continue
        if isinstance(shown, EntryRow) and shown.pk > 0:
            reason = gone.get(shown.pk)
        else:
            reason = "; ".join(dict.fromkeys(reasons.get((shown.slug, shown.configuration), ())))
        if reason:
            row.entry = shown._replace(visibility=WITHDRAWN, withdrawal_reason=reason)


def key_of(kind: str, slug: str, at: datetime.datetime) -> str:
    """What names a board as it was, with what was taken off it since; empty where there was none."""
    row = None
    if kind == "dataset":
        members = [key for key in [_listed(slug)] if key is not None]
    else:
        benchmark_id = Benchmark.objects.filter(slug=slug).values_list("pk", flat=True).first()
        row = past.benchmark_at(benchmark_id, at) if benchmark_id is not None else None
        members = [member["dataset_id"] for member in row["members"]] if row else []
    ids = [*members, *(part.dataset_id for found in pages.parts_of(members).values() for part in found)]
    revisions = past.revisions_at(ids, at)
    if not revisions:
        return ""
    numbers = ",".join(f"{dataset}:{revisions[dataset].key}" for dataset in sorted(revisions))
    return f"{numbers} {past.gone_key(ids)} {orjson.dumps(row).decode()}"


def first_time(kind: str, slug: str) -> datetime.datetime | None:
    """When the board begins, None where there is none that anybody may see."""
    if kind == "dataset":
        changes = BoardChange.objects.filter(dataset__slug=slug, dataset__in=_public()).order_by("revision")
        times = (at for at, facts in changes.values_list("at", "facts") if past.is_public(facts))
        return next(times, None)
    versions = BenchmarkVersion.objects.filter(benchmark__slug=slug).order_by("at", "pk")
    return versions.values_list("at", flat=True).first()


def _public() -> QuerySet[Dataset]:
    return Dataset.objects.exclude(state=Dataset.State.PREPARING)
