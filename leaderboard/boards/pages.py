"""Boards by slug for pages, exports, and the API: current ones, and past ones as of a time."""

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
from leaderboard.boards.benchmark.composite import compose_rows, has_hidden_part
from leaderboard.boards.benchmark.published_means import PublishedMeans, compare_published_means
from leaderboard.boards.benchmark.significance import Analysis, analyse_tests, find_tested_rows, read_tests
from leaderboard.boards.columns.judging import collection_source, describe_judges
from leaderboard.boards.columns.significance import OUTDATED_NOTE, PENDING_NOTE
from leaderboard.boards.dataset_board import RankedDataset, dataset_view_key, rank_dataset
from leaderboard.boards.dataset_details import BM25_FINDS_NOTHING, qrels_remarks, remarks
from leaderboard.boards.model import BenchmarkFacts, Board, DatasetFacts, Member
from leaderboard.boards.slicing import slice_entries
from leaderboard.boards.state import BoardState
from leaderboard.core.cache.memory import LONG_LIFETIME
from leaderboard.datasets.files import are_sealed, without_checksums
from leaderboard.importing.reported.tables import published_averages
from leaderboard.models import (
    Benchmark,
    BenchmarkMember,
    BenchmarkVersion,
    BoardChange,
    CollectionProfile,
    Dataset,
    DatasetQuerySet,
    DatasetVersion,
    Entry,
    Protection,
    Qrels,
)
from leaderboard.results.board_rows import past
from leaderboard.results.board_rows.entry_rows import GONE, QUARANTINED, SCORED, EntryRow
from leaderboard.results.board_rows.revisions import private_rows
from leaderboard.results.board_rows.rows import (
    BENCHMARK_CHANGED_AT,
    BENCHMARK_HAS_ROUNDS,
    CHANGED_AT,
    DATASET_HAS_ROUNDS,
    NO_REVISION,
    TWIN_CHANGED_AT,
    BoardRows,
    Revision,
    board_cache,
    decoded_size,
    newest_revision,
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
from leaderboard.results.slices import DatasetSlices, current_slices, read_slices

R = TypeVar("R", RankedDataset, RankedBenchmark)
_VERSION_FIELDS = (
    "number", "label", "content_sha256", "corpus_sha256", "topics_sha256", "statistics", "profile__terms_sha256",
)  # fmt: skip
#: Fields of a dataset's page: all of its own columns, and some of its version, judgments, and twin.
DATASET_FIELDS = (
    "pk",
    *(field.attname for field in Dataset._meta.concrete_fields),
    *(f"current_version__{name}" for name in _VERSION_FIELDS),
    *(f"current_qrels__{name}" for name in ("sha256", "split", "number", "statistics", "judged_by")),
    *(f"{half}__{name}" for half in ("twin", "twin_of") for name in ("slug", "name", "state")),
    "topic_batch__source__slug",
)
#: Fields of a dataset on which a board of several datasets depends.
_FACTS = (
    "name", "hidden", "primary_measure", "measures", "language", "current_version_id", "current_qrels_id",
)  # fmt: skip
WITHDRAWN = Entry.Visibility.WITHDRAWN.value


class Tombstone(NamedTuple):
    """A withdrawn entry."""

    system: str
    slug: str
    date: str
    reason: str


class DatasetPage(NamedTuple):
    """A dataset, its board, withdrawn entries, and the parts that it averages.

    `remarks` are sentences on its collection. `at` is the time of the board's last change, None if unknown. `rows` are
    the stored rows behind the board.
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
        """Slug and name of the dataset with the other half of the topics, None if it has no page."""
        half = "twin_of" if self.dataset["twin_of_id"] else "twin"
        if self.dataset[f"{half}__state"] in (None, Dataset.State.PREPARING):
            return None
        return {name: self.dataset[f"{half}__{name}"] for name in ("slug", "name")}


class BenchmarkPage(NamedTuple):
    """A benchmark, its board, its datasets, and the comparison with published means.

    `at` and `rows` are as in `DatasetPage`.
    """

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
    """Return a dataset's page in a view, now or at a past time, or None if there is none. Raises UnknownChoice.

    The private results of the reader's `teams` are on the board. A past board marks results that were removed later.
    """
    match = _present_dataset(slug) if at is None else _past_dataset(slug, at)
    if match is None:
        return None
    dataset, member, collection_remarks = match
    pk, rows = member.dataset_id, read_rows([member])
    if at is None:
        change_times = [part.revision.at for part in (member, *member.parts)]
        last_change = _last_change([*change_times, dataset["twin_changed_at"] or change_times[0]])
        has_twin = dataset["twin_of_id"] is not None or dataset["twin__slug"] is not None
        is_open = not (dataset["hidden"] or has_twin)
        board_statements = BoardStatements(read_certainty([pk]).get(pk)) if is_open else statements([pk])[pk]
        slices = current_slices(partial_dataset(dataset))
    else:
        twin_pairs, other_halves = _twins_at([pk], at)
        last_change = max(part.revision.at for part in (member, *member.parts))
        last_change = max([last_change, *(revision.at for revision in other_halves.values())])
        halves = {pk: member.revision, **other_halves}
        board_statements = statements_at(halves, {**rows, **rows_at(other_halves)}, twin_pairs)[pk]
        slices = read_slices(member.facts.qrels_id, member.facts.tags_sha256)
    if queries := slices.choose(state.slice):
        member = replace(member, facts=replace(member.facts, slice=queries, relevant_per_query=None))
    own_entries = private_rows([pk], teams).get(pk, ())
    board = ranked_dataset(member, rows, board_statements, state, own_entries).view(state)
    parts_note = (
        f"Scored results are means over the {len(member.parts)} parts, for systems with results on all of them; each "
        "part has its own board."
    )
    notes = [*board.notes, *([parts_note] if member.parts else []), *collection_remarks]
    if at is not None:
        lacks_tests = dataset["current_qrels_id"] is not None and not dataset["hidden"]
        lacks_tests = lacks_tests and not (board.certainty is not None and board.certainty.current)
        notes = [note for note in notes if note not in (PENDING_NOTE, OUTDATED_NOTE)]
        notes += [NO_TESTS_NOTE] if lacks_tests and any(row.ranked_in == SCORED for row in board.rows) else []
    board = replace(board, notes=notes, slices=slices, slice=queries)
    if at is not None:
        board = _mark_removed(board, [member], rows)
    tombstones = [
        Tombstone(entry.system, entry.slug, entry.published[:10], entry.withdrawal_reason)
        for entry in rows[pk].entries
        if entry.visibility == WITHDRAWN
    ]
    return DatasetPage(dataset, board, tombstones, member.parts, last_change, rows.values(), collection_remarks)


NO_TESTS_NOTE = "Tests between these results had not been computed yet at that time."
#: Columns of a dataset, the dataset with its parts, and the remarks on its collection.
_DatasetMatch = tuple[dict[str, Any], Member, Sequence[str]]


#: Columns of listed datasets. Building this query for each page would take as long as running it.
_PRESENT_DATASETS = (
    DatasetQuerySet(Dataset)
    .listed()
    .values(
        *DATASET_FIELDS,
        changed_at=CHANGED_AT,
        twin_changed_at=TWIN_CHANGED_AT,
        finds_nothing=BM25_FINDS_NOTHING,
        has_rounds=DATASET_HAS_ROUNDS,
    )
)


def _present_dataset(slug: str) -> _DatasetMatch | None:
    """Return a listed dataset in its current revision, or None. Checksums of sealed datasets are removed."""
    dataset = next(iter(_PRESENT_DATASETS.filter(slug=slug)), None)
    if dataset is None:
        return None
    if are_sealed(dataset["hidden"], dataset["queries_visibility"]):
        dataset["current_version__content_sha256"] = ""
        dataset["current_version__statistics"] = without_checksums(dataset["current_version__statistics"] or {})
    pk = dataset["pk"]
    member = read_member(dataset, read_parts([pk]).get(pk, ()) if dataset["current_version_id"] is None else ())
    collection_remarks = remarks(
        finds_nothing=dataset["finds_nothing"],
        statistics=dataset["current_qrels__statistics"],
        hidden=member.facts.hidden,
    )
    return dataset, member, collection_remarks


def partial_dataset(row: Mapping[str, Any]) -> Dataset:
    """Return a dataset with the fields that access to its files and slices depend on, from `DATASET_FIELDS`."""
    dataset = Dataset(*(row[field.attname] for field in Dataset._meta.concrete_fields))
    if dataset.current_version_id is not None:
        version = DatasetVersion(pk=dataset.current_version_id, topics_sha256=row["current_version__topics_sha256"])
        CollectionProfile(version=version, terms_sha256=row["current_version__profile__terms_sha256"] or "")
        dataset.current_version = version
        if dataset.current_qrels_id is not None:
            checksum, split = row["current_qrels__sha256"], row["current_qrels__split"]
            dataset.current_qrels = Qrels(pk=dataset.current_qrels_id, version=version, sha256=checksum, split=split)
    return dataset


def _past_dataset(slug: str, at: datetime.datetime) -> _DatasetMatch | None:
    """Return a listed dataset as it was at a past time, or None if it was not public then."""
    ids = _listed_ids(slug)
    revisions = past.revisions_at(ids, at)
    if not ids or ids[0] not in revisions:
        return None
    facts = revisions[ids[0]].facts
    qrels = Qrels.objects.filter(pk=facts["current_qrels_id"])
    judging_columns = qrels.values(current_qrels__judged_by=F("judged_by"), current_qrels__statistics=F("statistics"))
    member = _past_member({"pk": ids[0], **(judging_columns.first() or {})}, revisions)
    return dict(facts), member, qrels_remarks(facts["current_qrels_id"], hidden=member.facts.hidden)


def benchmark_page(
    slug: str, state: BoardState, teams: Collection[int] = (), at: datetime.datetime | None = None
) -> BenchmarkPage | None:
    """Return a benchmark's page in a view, now or at a past time, or None if there is none. Raises UnknownChoice.

    The private results of the reader's `teams` are on the board. A past board marks results that were removed later,
    and is not compared with published means.
    """
    match = _present_benchmark(slug) if at is None else _past_benchmark(slug, at)
    if match is None:
        return None
    DatasetSlices().choose(state.slice)  # Raises UnknownChoice for any slice, because benchmarks have none.
    benchmark, members = match
    facts = benchmark_facts(benchmark, members)
    rows, ids = read_rows(members), [member.dataset_id for member in members]
    change_times = [part.revision.at for member in members for part in (member, *member.parts)]
    if at is None:
        certainty = read_certainty(ids)
        last_change = _last_change([*change_times, benchmark["changed_at"]]) if change_times else None
    else:
        board_statements = statements_at({member.dataset_id: member.revision for member in members}, rows)
        certainty = {pk: board.certainty for pk, board in board_statements.items() if board.certainty is not None}
        last_change = max(change_times)
    board = ranked_benchmark(facts, rows, state, private_rows(ids, teams)).view(state, certainty)
    if at is not None:
        marked_board = _mark_removed(board, members, rows, name_datasets=True)
        return BenchmarkPage(benchmark, marked_board, members, None, last_change, rows.values())
    published_means = None
    if (source := benchmark["source__key"]) and (averages := published_averages(source, facts.measure)):
        default_board = ranked_benchmark(facts, rows, BoardState()).board
        published_means = compare_published_means(facts, default_board, averages)
    return BenchmarkPage(benchmark, board, members, published_means, last_change, rows.values())


#: Columns of a benchmark, and its datasets.
_BenchmarkMatch = tuple[dict[str, Any], Sequence[Member]]


def benchmark_facts(row: Mapping[str, Any], members: Sequence[Member]) -> BenchmarkFacts:
    return BenchmarkFacts(row["name"], row["measure"], members, row["source_id"], row["efficiency_from_id"])


def analyse_benchmarks(dataset: Dataset) -> dict[str, Analysis]:
    """Return missing test results of benchmarks that include the dataset or its composite dataset, keyed by digest."""
    members = BenchmarkMember.objects.filter(dataset__in=[dataset.pk, dataset.part_of_id or dataset.pk], counted=True)
    analyses = {}
    for slug in members.values_list("benchmark__slug", flat=True).distinct().order_by("benchmark__slug"):
        match = _present_benchmark(slug)
        if match is not None:
            facts, rows = benchmark_facts(*match), read_rows(match[1])
            ranked = ranked_benchmark(facts, rows, BoardState())
            parts = {pk: ids for member in facts.counted for pk, ids in compose_rows(member, rows).components.items()}
            tests = find_tested_rows(facts, ranked.tables, ranked.board.rows)
            stored_keys = {certainty.key for certainty in read_tests(tests, facts)}
            for tested_rows in tests:
                if tested_rows.settings is not None and tested_rows.key not in stored_keys:
                    analyses[tested_rows.key] = analyse_tests(tested_rows, parts, facts)
    return analyses


#: Columns of benchmarks and of their members, prepared like `_PRESENT_DATASETS`.
_BENCHMARK_FIELDS = (
    "pk", "slug", "name", "description", "citation", "measure", "source_id", "efficiency_from_id", "source__key",
    "source__title", "source__url",
)  # fmt: skip
_PRESENT_BENCHMARKS = Benchmark.objects.values(
    *_BENCHMARK_FIELDS, changed_at=BENCHMARK_CHANGED_AT, has_rounds=BENCHMARK_HAS_ROUNDS
)
_PRESENT_MEMBERS = (
    BenchmarkMember.objects.exclude(dataset__state=Dataset.State.PREPARING)
    .order_by("position")
    .values(
        "counted",
        "stand_ins",
        pk=F("dataset_id"),
        **{name: F(f"dataset__{name}") for name in ("slug", "board_revision", "domain", "task", *_FACTS)},
        changed_at=CHANGED_AT,
    )
)


def _present_benchmark(slug: str) -> _BenchmarkMatch | None:
    """Return a benchmark and its datasets in their current revisions, or None if there is none.

    Datasets in preparation are omitted.
    """
    benchmark = _PRESENT_BENCHMARKS.filter(slug=slug).first()
    if benchmark is None:
        return None
    rows: list[Any] = list(_PRESENT_MEMBERS.filter(benchmark_id=benchmark["pk"]))
    parts = read_parts([row["pk"] for row in rows if row["current_version_id"] is None])
    return benchmark, [read_member(row, parts.get(row["pk"], ())) for row in rows]


def _past_benchmark(slug: str, at: datetime.datetime) -> _BenchmarkMatch | None:
    """Return a benchmark and its public datasets as of a past time, or None if it had no public datasets then."""
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


#: Functions that read pages, by kind of board.
READERS = {"dataset": dataset_page, "benchmark": benchmark_page}


def ranked_dataset(
    member: Member,
    rows: Mapping[int, BoardRows],
    board_statements: BoardStatements,
    state: BoardState,
    own_entries: Sequence[EntryRow] = (),
) -> RankedDataset:
    """Return the ranked board of a dataset for a view, from the cache if possible. Raises UnknownChoice.

    It has the private `own_entries` of the reader's teams.
    """

    def rank() -> RankedDataset:
        entries, known_statements = compose_rows(member, rows).rows.entries, board_statements
        if own_entries:
            entries = sorted([*entries, *own_entries], key=attrgetter("published"))
        if member.facts.slice is not None:
            entries, known_statements = slice_entries(member, member.facts.slice, entries, state)
        return rank_dataset(member.facts, entries, rows[member.dataset_id].measured, known_statements, state)

    is_free = own_entries or state.corpus or state.weights  # Users can create any number of such views.
    key = "" if is_free else f"{member.key} {board_statements} {dataset_view_key(member.facts, state)}"
    return _rank_once(key, rank)


def ranked_benchmark(
    facts: BenchmarkFacts,
    rows: Mapping[int, BoardRows],
    state: BoardState,
    own_entries: Mapping[int, Sequence[EntryRow]] = MappingProxyType({}),
) -> RankedBenchmark:
    """Return the ranked board of a benchmark for a view, from the cache if possible. Raises UnknownChoice.

    It has the private `own_entries` of the reader's teams, which are by dataset.
    """

    def rank() -> RankedBenchmark:
        composed_rows = {member.dataset_id: compose_rows(member, rows).rows for member in facts.members}
        return rank_benchmark(facts, composed_rows, state, own_entries)

    members = " ".join(member.key for member in facts.members)
    properties = (facts.name, facts.measure, facts.source_id, facts.efficiency_from)
    key = "" if own_entries or state.corpus or state.weights else f"{properties} {benchmark_view_key(state)} {members}"
    return _rank_once(key, rank)


def _rank_once(key: str, rank: Callable[[], R]) -> R:
    """Return the ranked board that is cached under a key, or rank it and cache it.

    An empty key disables the cache. Boards are cached per language, because their summaries are translated.
    """
    key = key and f"{get_language()} {key}"  # The cached board includes a translated summary.
    ranked_board: R | None = board_cache.get(key) if key else None
    if ranked_board is None:
        ranked_board = rank()
        if key:
            board_cache.put(key, ranked_board, decoded_size(1024 * len(ranked_board.board.rows)), LONG_LIFETIME)
    return ranked_board


def read_boards(seconds: float) -> list[tuple[str, str]]:
    """Rank boards of each kind for about `seconds`, so that they are cached. Return their kinds and slugs."""
    boards_read = list[tuple[str, str]]()
    benchmarks, datasets = Benchmark.objects.order_by("position"), Dataset.objects.listed().order_by("pk")
    for kind, boards in (("benchmark", benchmarks), ("dataset", datasets)):
        end = monotonic() + seconds
        for number, slug in enumerate(boards.values_list("slug", flat=True)):
            if not number or monotonic() < end:
                READERS[kind](slug, BoardState())
                boards_read.append((kind, slug))
    return boards_read


def read_rows(members: Iterable[Member]) -> dict[int, BoardRows]:
    """Return the rows of datasets and their public parts by dataset id. At most one database query."""
    listed_members = (part for member in members for part in (member, *member.parts) if part.listed)
    return rows_at({member.dataset_id: member.revision for member in listed_members})


def read_member(row: Mapping[str, Any], parts: Sequence[Member], revision: Revision | None = None) -> Member:
    """Return a dataset as a member of a board, from its columns and parts.

    Its revision is the current one if `revision` is None. A dataset with a hidden part counts as hidden.
    """
    statistics = row.get("current_qrels__statistics") or {}
    judged_by = row.get("current_qrels__judged_by") or {}
    hidden = row["hidden"]
    judges, agreement = describe_judges(judged_by, hidden=hidden)
    return Member(
        row["pk"],
        row["slug"],
        DatasetFacts(
            row["name"],
            hidden or has_hidden_part(parts),  # A mean over hidden judgments is rounded like them.
            row["primary_measure"],
            row["measures"],
            row["language"],
            version_id=row["current_version_id"],
            qrels_id=row["current_qrels_id"],
            competition=hidden and row.get("protection") == Protection.COMPETITION,
            judges=judges,
            agreement=agreement,
            source=collection_source(row.get("citation", ""), row.get("homepage", "")),
            relevant_per_query=None if hidden else statistics.get("relevant_per_query"),
            tags_sha256=row.get("tags_sha256", ""),
        ),
        revision or newest_revision(row["board_revision"], row["changed_at"]),
        row.get("counted", True),
        row.get("stand_ins", {}),
        row.get("domain", ""),
        row.get("task", ""),
        parts,
        listed=row.get("state") != Dataset.State.PREPARING,
    )


def read_parts(datasets: Collection[int]) -> dict[int, list[Member]]:
    """Return the parts of composite datasets by id of the whole. One database query, none without datasets."""
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
    """Return a dataset with its parts as they were at a past time.

    `revisions` are by dataset. Parts that were not public yet have no columns.
    """
    revision = revisions[row["pk"]]
    parts = [
        read_member({**revisions[pk].facts, "pk": pk}, (), revisions[pk])
        if pk in revisions
        else Member(pk, "", DatasetFacts("", False, "", []), NO_REVISION, listed=False)
        for pk in revision.parts
    ]
    return read_member({**row, **revision.facts}, parts, revision)


def _last_change(times: Iterable[datetime.datetime | None]) -> datetime.datetime | None:
    """Return the latest of these times, to the second, or None if any is unknown."""
    all_times = list(times)
    known_times = [at for at in all_times if at not in (None, NO_REVISION.at)]
    return max(known_times).replace(microsecond=0) if all_times and len(known_times) == len(all_times) else None


def collect_bibtex(rows: Iterable[BoardRows]) -> dict[str, str]:
    return {slug: text for board_rows in rows for slug, text in board_rows.bibtex.items()}


def _mark_removed(
    board: Board, members: Sequence[Member], rows: Mapping[int, BoardRows], *, name_datasets: bool = False
) -> Board:
    """Return a past board whose rows show why their results were removed later.

    Only entries with values in the row are considered, not other entries of the same system. `name_datasets` adds the
    dataset's name to each reason. If anything was removed, the board also gets a note.
    """
    removals = past.find_removed(rows)
    if not removals:
        return board
    component_ids = {pk: ids for member in members for pk, ids in compose_rows(member, rows).components.items()}
    datasets = {part.dataset_id: member for member in members for part in (*member.parts, member)}
    for row in board.rows:
        ids = (entry for pk in row.entries for entry in component_ids.get(pk, (pk,)))
        if row_removals := [removals[pk] for pk in ids if pk in removals]:
            texts = (
                f"{removal.reason} ({datasets[removal.dataset_id].facts.name})" if name_datasets else removal.reason
                for removal in row_removals
            )
            reasons, states = "; ".join(dict.fromkeys(texts)), {removal.visibility for removal in row_removals}
            row.entry = row.entry._replace(
                visibility=next((state for state in (QUARANTINED, WITHDRAWN) if state in states), GONE),
                withdrawal_reason=reasons,
                moderation_reason=reasons,
            )
    return replace(
        board,
        notes=[
            *board.notes,
            "Results that were removed later are still shown with rank and scores, and the reason if it is public.",
        ],
        without_page=past.systems_without_page(removals.values()),
    )


def _twins_at(datasets: Collection[int], at: datetime.datetime) -> tuple[Sequence[Twins], Mapping[int, Revision]]:
    """Return the pairs of twin datasets whose other half had a board at the time, and its revision.

    The revisions are by dataset, and only of halves that are not in `datasets`.
    """
    twins = find_twins(datasets)
    other_halves = past.revisions_at({half for pair in twins for half in pair[:2]}.difference(datasets), at)
    return [pair for pair in twins if not other_halves.keys().isdisjoint(pair[:2])], other_halves


def past_board_key(kind: str, slug: str, at: datetime.datetime) -> str:
    """Return a cache key for a past board; empty if there was no board.

    The key changes if the board is different, or if results are removed from it later.
    """
    row = None
    if kind == "dataset":
        ids = _listed_ids(slug)
    else:
        row = _benchmark_version(slug, at)
        ids = [member["dataset_id"] for member in row["members"]] if row else []
    revisions = past.revisions_at(ids, at)
    if not revisions:
        return ""
    all_revisions = {**revisions, **(_twins_at(ids, at)[1] if kind == "dataset" else {})}
    numbers = ",".join(f"{dataset}:{all_revisions[dataset].key}" for dataset in sorted(all_revisions))
    return f"{numbers} {past.removals_key(revisions)} {orjson.dumps(row).decode()}"


def first_publication_time(kind: str, slug: str) -> datetime.datetime | None:
    """Return the time at which the board was first published, None if there is no public board."""
    if kind == "dataset":
        changes = BoardChange.objects.filter(dataset__in=_listed_ids(slug)).order_by("revision")
        times = (at for at, facts in changes.values_list("at", "facts") if past.is_public(facts))
        return next(times, None)
    versions = BenchmarkVersion.objects.filter(benchmark__slug=slug).order_by("at", "pk")
    return versions.values_list("at", flat=True).first()


def _listed_ids(slug: str) -> list[int]:
    return list(DatasetQuerySet(Dataset).listed().filter(slug=slug).values_list("pk", flat=True))


def _benchmark_version(slug: str, at: datetime.datetime) -> dict[str, Any] | None:
    pk = Benchmark.objects.filter(slug=slug).values_list("pk", flat=True).first()
    return past.benchmark_at(pk, at) if pk is not None else None
