"""Boards by their slugs, for pages, exports, and the API: present ones, and past ones as of a time."""

import datetime
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import orjson
from django.db.models import F
from django.utils.translation import get_language

from leaderboard.boards.benchmark.board import RankedBenchmark, benchmark_view_key, rank_benchmark
from leaderboard.boards.benchmark.composite import compose, has_hidden_part
from leaderboard.boards.benchmark.published_means import PublishedMeans, compare_published_means
from leaderboard.boards.columns.judging import describe_judges
from leaderboard.boards.columns.significance import AWAITED, OUTDATED
from leaderboard.boards.dataset_board import RankedDataset, dataset_view_key, rank_dataset
from leaderboard.boards.dataset_details import BM25_FINDS_NOTHING, remarks, remarks_on
from leaderboard.boards.model import BenchmarkFacts, Board, DatasetFacts, Member
from leaderboard.boards.state import BoardState
from leaderboard.core.cache.memory import LONG_LIFETIME
from leaderboard.datasets.files import are_sealed, without_checksums
from leaderboard.importing.reported.tables import published_averages
from leaderboard.models import (
    Benchmark,
    BenchmarkMember,
    BenchmarkVersion,
    BoardChange,
    Dataset,
    DatasetQuerySet,
    Entry,
    Protection,
    Qrels,
)
from leaderboard.results.board_rows import past
from leaderboard.results.board_rows.entry_rows import GONE, QUARANTINED, SCORED, EntryRow
from leaderboard.results.board_rows.revisions import private_rows
from leaderboard.results.board_rows.rows import (
    BENCHMARK_CHANGED_AT,
    CHANGED_AT,
    NEVER,
    TWIN_CHANGED_AT,
    BoardRows,
    Revision,
    board_cache,
    decoded_size,
    newest,
    rows_at,
)
from leaderboard.results.significance.statements import (
    BoardStatements,
    Twins,
    find_twins,
    read_certainty,
    statements,
    statements_at,
)
from leaderboard.results.significance.types import BoardCertainty

R = TypeVar("R", RankedDataset, RankedBenchmark)
#: The fields of a dataset's page: all of its own columns, and some of its version, judgments, and twin.
DATASET_FIELDS = (
    "pk",
    *(field.attname for field in Dataset._meta.concrete_fields),
    "current_version__number",
    "current_version__label",
    "current_version__content_sha256",
    "current_version__corpus_sha256",
    "current_version__statistics",
    "current_qrels__split",
    "current_qrels__number",
    "current_qrels__statistics",
    *(f"{half}__{name}" for half in ("twin", "twin_of") for name in ("slug", "name", "state")),
    "current_qrels__judged_by",
)
#: The fields of a dataset that a board of several depends on.
_FACTS = (
    "name",
    "hidden",
    "primary_measure",
    "measures",
    "language",
    "current_version_id",
    "current_qrels_id",
)
WITHDRAWN = Entry.Visibility.WITHDRAWN.value


class Tombstone(NamedTuple):
    """A withdrawn entry."""

    system: str
    slug: str
    date: str
    reason: str


class DatasetPage(NamedTuple):
    """A dataset, its board, withdrawn entries, and the datasets whose mean it is.

    `remarks` are sentences on its collection. `at` is the last change of the board, None if unknown. `rows` are the
    stored rows that it was made from.
    """

    dataset: dict[str, Any]
    board: Board
    tombstones: Sequence[Tombstone]
    parts: Sequence[Member]
    at: datetime.datetime | None
    rows: Collection[BoardRows]
    remarks: Sequence[str] = ()

    @property
    def twin(self) -> dict[str, str] | None:
        """Slug and name of the dataset with the other half of the topics, None if that has no page."""
        half = "twin_of" if self.dataset["twin_of_id"] else "twin"
        if self.dataset[f"{half}__state"] in (None, Dataset.State.PREPARING):
            return None
        return {name: self.dataset[f"{half}__{name}"] for name in ("slug", "name")}


class BenchmarkPage(NamedTuple):
    """A benchmark, its board, its datasets, and the published means; `at` and `rows` as of a dataset."""

    benchmark: dict[str, Any]
    board: Board
    members: Sequence[Member]
    printed: PublishedMeans | None
    at: datetime.datetime | None
    rows: Collection[BoardRows]
    tombstones: Sequence[Tombstone] = ()


def dataset_page(
    slug: str, state: BoardState, teams: Collection[int] = (), at: datetime.datetime | None = None
) -> DatasetPage | None:
    """Return a dataset's page in a view, as of now or of a time, or None if there is none. Raises UnknownChoice.

    `teams` are the reader's own, whose private results are on the board.
    """
    found = _present_dataset(slug) if at is None else _past_dataset(slug, at)
    if found is None:
        return None
    dataset, member, remarked = found
    pk, rows = member.dataset_id, read_rows([member])
    if at is None:
        changes = [each.revision.at for each in (member, *member.parts)]
        changed = _last_change([*changes, dataset["twin_changed_at"] or changes[0]])
        said = statements([pk])[pk]
    else:
        twins, other = _twins_at([pk], at)
        changed = max(each.revision.at for each in (member, *member.parts))
        changed = max([changed, *(revision.at for revision in other.values())])
        halves = {pk: member.revision, **other}
        said = statements_at(halves, {**rows, **rows_at(other)}, twins)[pk]
    board = dataset_board(member, rows, said, state, private_rows([pk], teams).get(pk, ()))
    on_parts = (
        f"Scored results are means over the {len(member.parts)} parts, for systems that have all of them; each part "
        "has its own board."
    )
    notes = [*board.notes, *([on_parts] if member.parts else []), *remarked]
    if at is not None:
        untested = dataset["current_qrels_id"] is not None and not dataset["hidden"]
        untested = untested and not (board.certainty is not None and board.certainty.current)
        notes = [note for note in notes if note not in (AWAITED, OUTDATED)]
        notes += [UNTESTED] if untested and any(row.ranked_in == SCORED for row in board.rows) else []
    board = replace(board, notes=notes)
    if at is not None:
        board = _mark_removed(board, [member], rows)
    tombstones = [
        Tombstone(entry.system, entry.slug, entry.published[:10], entry.withdrawal_reason)
        for entry in rows[pk].entries
        if entry.visibility == WITHDRAWN
    ]
    return DatasetPage(dataset, board, tombstones, member.parts, changed, rows.values(), remarked)


UNTESTED = "Tests between these results had not been computed yet at that time."
#: The columns of a dataset, the dataset with its parts, and the remarks on its collection.
_FoundDataset = tuple[dict[str, Any], Member, Sequence[str]]


def _present_dataset(slug: str) -> _FoundDataset | None:
    computed = {
        "changed_at": CHANGED_AT,
        "twin_changed_at": TWIN_CHANGED_AT,
        "finds_nothing": BM25_FINDS_NOTHING,
    }
    listed = DatasetQuerySet(Dataset).listed().filter(slug=slug)
    dataset = next(iter(listed.values(*DATASET_FIELDS, **computed)), None)
    if dataset is None:
        return None
    if are_sealed(dataset["hidden"], dataset["queries_visibility"]):
        dataset["current_version__content_sha256"] = ""
        dataset["current_version__statistics"] = without_checksums(
            dataset["current_version__statistics"] or {}
        )
    pk = dataset["pk"]
    member = read_member(dataset, parts_of([pk]).get(pk, ()) if dataset["current_version_id"] is None else ())
    remarked = remarks(
        finds_nothing=dataset["finds_nothing"],
        statistics=dataset["current_qrels__statistics"],
        hidden=member.facts.hidden,
    )
    return dataset, member, remarked


def _past_dataset(slug: str, at: datetime.datetime) -> _FoundDataset | None:
    ids = _listed_ids(slug)
    revisions = past.revisions_at(ids, at)
    if not ids or ids[0] not in revisions:
        return None
    facts = revisions[ids[0]].facts
    qrels = Qrels.objects.filter(pk=facts["current_qrels_id"])
    judging = qrels.values(current_qrels__judged_by=F("judged_by"), current_qrels__statistics=F("statistics"))
    member = _past_member({"pk": ids[0], **(judging.first() or {})}, revisions)
    return dict(facts), member, remarks_on(facts["current_qrels_id"], hidden=member.facts.hidden)


def benchmark_page(
    slug: str, state: BoardState, teams: Collection[int] = (), at: datetime.datetime | None = None
) -> BenchmarkPage | None:
    """Return a benchmark's page in a view, as of now or of a time, or None if there is none. Raises UnknownChoice.

    `teams` are the reader's own, as for `dataset_page`.
    """
    found = _present_benchmark(slug) if at is None else _past_benchmark(slug, at)
    if found is None:
        return None
    benchmark, members = found
    facts = BenchmarkFacts(
        benchmark["name"],
        benchmark["measure"],
        members,
        benchmark["source_id"],
        benchmark["efficiency_from_id"],
    )
    rows, ids = read_rows(members), [member.dataset_id for member in members]
    changes = [each.revision.at for member in members for each in (member, *member.parts)]
    if at is None:
        certainty = read_certainty(ids)
        changed = _last_change([*changes, benchmark["changed_at"]]) if changes else None
    else:
        said = statements_at({member.dataset_id: member.revision for member in members}, rows)
        certainty = {pk: each.certainty for pk, each in said.items() if each.certainty is not None}
        changed = max(changes)
    board = benchmark_board(facts, rows, certainty, state, private_rows(ids, teams))
    if at is not None:
        return BenchmarkPage(
            benchmark, _mark_removed(board, members, rows, named=True), members, None, changed, rows.values()
        )
    printed = None
    if (source := benchmark["source__key"]) and (averages := published_averages(source, facts.measure)):
        usual = ranked_benchmark(facts, rows, BoardState()).board
        printed = compare_published_means(facts, usual, averages)
    return BenchmarkPage(benchmark, board, members, printed, changed, rows.values())


#: The columns of a benchmark, and its datasets.
_FoundBenchmark = tuple[dict[str, Any], Sequence[Member]]


def _present_benchmark(slug: str) -> _FoundBenchmark | None:
    columns = (
        "pk", "slug", "name", "description", "citation", "measure", "source_id", "efficiency_from_id",
        "source__key", "source__title", "source__url",
    )  # fmt: skip
    found = Benchmark.objects.filter(slug=slug).values(*columns, changed_at=BENCHMARK_CHANGED_AT).first()
    if found is None:
        return None
    rows: list[Any] = list(
        BenchmarkMember.objects.filter(benchmark_id=found["pk"])
        .exclude(dataset__state=Dataset.State.PREPARING)
        .order_by("position")
        .values(
            "counted",
            "stand_ins",
            pk=F("dataset_id"),
            **{name: F(f"dataset__{name}") for name in ("slug", "board_revision", "domain", "task", *_FACTS)},
            changed_at=CHANGED_AT,
        )
    )
    parts = parts_of([row["pk"] for row in rows if row["current_version_id"] is None])
    return found, [read_member(row, parts.get(row["pk"], ())) for row in rows]


def _past_benchmark(slug: str, at: datetime.datetime) -> _FoundBenchmark | None:
    row = _benchmark_version(slug, at)
    if row is None:
        return None
    revisions = past.revisions_at([member["dataset_id"] for member in row["members"]], at)
    members = [
        _past_member({**member, "pk": member["dataset_id"]}, revisions)
        for member in row["members"]
        if member["dataset_id"] in revisions
    ]
    return (row, members) if members else None


#: The readers of pages, by kind of board.
READERS = {"dataset": dataset_page, "benchmark": benchmark_page}


def dataset_board(
    member: Member,
    rows: Mapping[int, BoardRows],
    said: BoardStatements,
    state: BoardState,
    own: Sequence[EntryRow] = (),
) -> Board:
    """Return a view of a dataset's board. `own` are private entries of the reader's teams. Raises UnknownChoice."""

    def rank() -> RankedDataset:
        entries = compose(member, rows).rows.entries
        if own:
            entries = sorted([*entries, *own], key=attrgetter("published"))
        return rank_dataset(member.facts, entries, rows[member.dataset_id].measured, said, state)

    is_free = own or state.corpus or state.weights  # readers can make any number of such views
    key = "" if is_free else f"{member.key} {said} {dataset_view_key(member.facts, state)}"
    return _rank_once(key, rank).view(state)


def benchmark_board(
    facts: BenchmarkFacts,
    rows: Mapping[int, BoardRows],
    certainty: Mapping[int, BoardCertainty],
    state: BoardState,
    own: Mapping[int, Sequence[EntryRow]] = MappingProxyType({}),
) -> Board:
    """Return a view of a benchmark's board, as `dataset_board` does; `certainty` and `own` are by dataset."""
    return ranked_benchmark(facts, rows, state, own).view(state, certainty)


def ranked_benchmark(
    facts: BenchmarkFacts,
    rows: Mapping[int, BoardRows],
    state: BoardState,
    own: Mapping[int, Sequence[EntryRow]] = MappingProxyType({}),
) -> RankedBenchmark:
    """Return the ranked board of a benchmark for a view."""

    def rank() -> RankedBenchmark:
        wholes = {each.dataset_id: compose(each, rows).rows for each in facts.members}
        return rank_benchmark(facts, wholes, state, own)

    members = " ".join(member.key for member in facts.members)
    about = (facts.name, facts.measure, facts.source_id, facts.efficiency_from)
    key = "" if own or state.corpus or state.weights else f"{about} {benchmark_view_key(state)} {members}"
    return _rank_once(key, rank)


def _rank_once(key: str, rank: Callable[[], R]) -> R:
    """Return the cached ranked board of this key; nothing is cached without a key."""
    key = key and f"{get_language()} {key}"  # of the summary
    ranked: R | None = board_cache.get(key) if key else None
    if ranked is None:
        ranked = rank()
        if key:
            board_cache.put(key, ranked, decoded_size(1024 * len(ranked.board.rows)), LONG_LIFETIME)
    return ranked


def read_boards(seconds: float) -> list[tuple[str, str]]:
    """Rank boards for about this time, those of benchmarks first, and return their kinds and slugs."""
    end, read = monotonic() + seconds, list[tuple[str, str]]()
    benchmarks, datasets = Benchmark.objects.order_by("position"), Dataset.objects.listed().order_by("pk")
    for kind, boards in (("benchmark", benchmarks), ("dataset", datasets)):
        for slug in boards.values_list("slug", flat=True):
            if monotonic() < end:
                READERS[kind](slug, BoardState())
                read.append((kind, slug))
    return read


def read_rows(members: Iterable[Member]) -> dict[int, BoardRows]:
    """Return the rows of datasets and their public parts, by id. One query, none if all are cached."""
    read = (each for member in members for each in (member, *member.parts) if each.listed)
    return rows_at({each.dataset_id: each.revision for each in read})


def read_member(row: Mapping[str, Any], parts: Sequence[Member], revision: Revision | None = None) -> Member:
    """Return a dataset from its columns, in its present revision or another one."""
    about = row.get("current_qrels__statistics") or {}
    judged_by = row.get("current_qrels__judged_by") or {}
    hidden = row["hidden"]
    judges, agreement = describe_judges(judged_by, hidden=hidden)
    return Member(
        row["pk"],
        row["slug"],
        DatasetFacts(
            row["name"],
            hidden or has_hidden_part(parts),  # a mean over hidden judgments is rounded like them
            row["primary_measure"],
            row["measures"],
            row["language"],
            version_id=row["current_version_id"],
            qrels_id=row["current_qrels_id"],
            competition=hidden and row.get("protection") == Protection.COMPETITION,
            judges=judges,
            agreement=agreement,
            relevant_per_query=None if hidden else about.get("relevant_per_query"),
        ),
        revision or newest(row["board_revision"], row["changed_at"]),
        row.get("counted", True),
        row.get("stand_ins", {}),
        row.get("domain", ""),
        row.get("task", ""),
        parts,
        listed=row.get("state") != Dataset.State.PREPARING,
    )


def parts_of(datasets: Collection[int]) -> dict[int, list[Member]]:
    """Return the parts of datasets that are the mean of others, by their ids. One query, none without datasets."""
    if not datasets:
        return {}
    rows = (
        Dataset.objects.filter(part_of_id__in=datasets)
        .order_by("name")
        .values("part_of_id", "pk", "slug", "state", "board_revision", *_FACTS, changed_at=CHANGED_AT)
    )
    parts: dict[int, list[Member]] = {}
    for row in rows:
        parts.setdefault(row["part_of_id"], []).append(read_member(row, ()))
    return parts


def _past_member(row: Mapping[str, Any], revisions: Mapping[int, Revision]) -> Member:
    """Return a dataset as it was. Parts that were not public yet have no columns."""
    revision = revisions[row["pk"]]
    parts = [
        read_member({**revisions[pk].facts, "pk": pk}, (), revisions[pk])
        if pk in revisions
        else Member(pk, "", DatasetFacts("", False, "", []), NEVER, listed=False)
        for pk in revision.parts
    ]
    return read_member({**row, **revision.facts}, parts, revision)


def _last_change(times: Iterable[datetime.datetime | None]) -> datetime.datetime | None:
    """Return the latest of these times, to the second, or None if any is unknown."""
    found = list(times)
    known = [at for at in found if at not in (None, NEVER.at)]
    return max(known).replace(microsecond=0) if found and len(known) == len(found) else None


def citation_bibtex(rows: Iterable[BoardRows]) -> dict[str, str]:
    """Return the BibTeX of systems, by slug."""
    return {slug: text for of_dataset in rows for slug, text in of_dataset.bibtex.items()}


def _mark_removed(
    board: Board, members: Sequence[Member], rows: Mapping[int, BoardRows], *, named: bool = False
) -> Board:
    """Return a past board that says at each row if and why it was removed since; `named` adds the dataset.

    A row consists of the entries whose values it shows, and of no other of the same system.
    """
    removed = past.removed_since(rows)
    if not removed:
        return board
    composed = {pk: ids for member in members for pk, ids in compose(member, rows).made_of.items()}
    datasets = {each.dataset_id: member for member in members for each in (*member.parts, member)}
    for row in board.rows:
        ids = (each for pk in row.entries for each in composed.get(pk, (pk,)))
        since = [removed[pk] for pk in ids if pk in removed]
        if since:
            told = (
                f"{each.reason} ({datasets[each.dataset_id].facts.name})" if named else each.reason
                for each in since
            )
            reasons, states = "; ".join(dict.fromkeys(told)), {each.visibility for each in since}
            row.entry = row.entry._replace(
                visibility=next((state for state in (QUARANTINED, WITHDRAWN) if state in states), GONE),
                withdrawal_reason=reasons,
                moderation_reason=reasons,
            )
    return replace(
        board,
        notes=[
            *board.notes,
            "Results taken off since keep their place and their figures, with the reason where that is public.",
        ],
        without_page=past.without_page(removed.values()),
    )


def _twins_at(
    datasets: Collection[int], at: datetime.datetime
) -> tuple[Sequence[Twins], Mapping[int, Revision]]:
    """Return the twins whose halves both had boards at the time, and the revisions of halves not in `datasets`."""
    twins = find_twins(datasets)
    other = past.revisions_at({half for each in twins for half in each[:2]}.difference(datasets), at)
    return [each for each in twins if not other.keys().isdisjoint(each[:2])], other


def key_of(kind: str, slug: str, at: datetime.datetime) -> str:
    """Return text that changes with the past board and with removals from it; empty if there was none."""
    row = None
    if kind == "dataset":
        ids = _listed_ids(slug)
    else:
        row = _benchmark_version(slug, at)
        ids = [member["dataset_id"] for member in row["members"]] if row else []
    revisions = past.revisions_at(ids, at)
    if not revisions:
        return ""
    shown = {**revisions, **(_twins_at(ids, at)[1] if kind == "dataset" else {})}
    numbers = ",".join(f"{dataset}:{shown[dataset].key}" for dataset in sorted(shown))
    return f"{numbers} {past.removals_key(revisions)} {orjson.dumps(row).decode()}"


def first_published(kind: str, slug: str) -> datetime.datetime | None:
    """Return the time at which the board begins, None if there is no public one."""
    if kind == "dataset":
        changes = BoardChange.objects.filter(dataset__in=_listed_ids(slug)).order_by("revision")
        times = (at for at, facts in changes.values_list("at", "facts") if past.is_public(facts))
        return next(times, None)
    versions = BenchmarkVersion.objects.filter(benchmark__slug=slug).order_by("at", "pk")
    return versions.values_list("at", flat=True).first()


def _listed_ids(slug: str) -> list[int]:
    """Return the id of the dataset with a page of this slug, if there is one."""
    return list(DatasetQuerySet(Dataset).listed().filter(slug=slug).values_list("pk", flat=True))


def _benchmark_version(slug: str, at: datetime.datetime) -> dict[str, Any] | None:
    pk = Benchmark.objects.filter(slug=slug).values_list("pk", flat=True).first()
    return past.benchmark_at(pk, at) if pk is not None else None
