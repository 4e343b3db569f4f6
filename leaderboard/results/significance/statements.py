"""Statements about the significance of results: better than the baseline, or tied with the best.

All texts, colors, cards, feeds, and badges take their certainty from `statements`, which respects the protection of a
dataset's judgments. Open boards report their tests. Hidden boards report only what follows from published values
(docs/decisions/0019).

The contamination gap is defined for systems scored on both a dataset and its twin (`evaluation.statistics.gap`). For
an open half it uses the bootstrap intervals of the differences from the baseline. For a hidden half it uses published
values and the least significant difference, which bounds their spread, so that it reveals nothing new
(docs/decisions/0019). It is computed on demand and never stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from hashlib import blake2b
from itertools import groupby
from math import comb
from operator import itemgetter, or_
from typing import Any, NamedTuple

import orjson
from django.db.models import IntegerField, JSONField, Q, TextField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast, Coalesce

from evaluation.measures.registry import QUERY_SPANNING_MEASURES
from evaluation.statistics.gap import Interval, compute_gap, published_interval
from evaluation.statistics.randomisation import TEST
from leaderboard.core.cache.memory import LONG_LIFETIME
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.models import Certainty, Dataset, Entry, can_be_best
from leaderboard.results.board_rows.entry_rows import REPORTED, EntryRow, present_group
from leaderboard.results.board_rows.rows import BoardRows, Revision, board_cache, decoded_size
from leaderboard.results.significance.hidden import (
    PublishedComparison,
    comparison_at,
    published_comparisons,
)
from leaderboard.results.significance.types import (
    ALPHA,
    METHOD,
    BoardCertainty,
    EntryCertainty,
    MeasureCertainty,
    TestSettings,
    is_lost_by_correction,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """Certainty of one entry under one measure; None for unknown or unpublished values.

    `better` and `worse` compare with the baseline at 0.05, in the entry's own, uncorrected test; False means that no
    difference was shown. `p`, `interval`, and `p_corrected` refer to the difference from the baseline; the correction
    covers the `comparisons` of the board with its baseline. `p_best` refers to the difference from the best, corrected
    over all pairs of the board. `ranks` are the first and the last rank that the tests of all pairs cannot rule out.
    On boards of hidden datasets, these values and `worse` are None. The best ties with itself. `gap` is the
    contamination gap between the dataset and its twin in the primary measure. `least_p` is the smallest corrected
    p-value that exact tests over the `sample` (`7 datasets`) can have, 0 if it is significant.
    """

    better: bool | None = None
    worse: bool | None = None
    p: float | None = None
    p_corrected: float | None = None
    comparisons: int = 0
    interval: tuple[float, float] | None = None
    tied_with_best: bool | None = None
    p_best: float | None = None
    ranks: tuple[int, int] | None = None
    gap: Gap | None = None
    least_p: float = 0.0
    sample: str = ""

    @property
    def holds_after_correction(self) -> bool:
        """Whether the difference from the baseline remains significant after correction for all comparisons with it."""
        return self.p_corrected is not None and self.p_corrected < ALPHA

    @property
    def is_lost_by_correction(self) -> bool:
        """Whether the difference from the baseline is significant in its own test, but not after correction."""
        return is_lost_by_correction(self.p, self.p_corrected, self.ranks)

    @property
    def is_kept_by_pairs(self) -> bool:
        """Whether the difference from the baseline is significant after correction only in the tests of all pairs."""
        return bool(self.better or self.worse) and (self.p_corrected or 0) >= ALPHA and not self.is_lost_by_correction


UNKNOWN = Statement()


@dataclass(frozen=True, slots=True)
class BoardStatements:
    """Statements about the results of one board.

    `certainty` contains the tests of an open board, `published` the comparison of published scores with hidden
    judgments, and `gaps` the contamination gaps by entry id in the measure `gap_measure`. On benchmarks, `certainty` is
    that of the leading ranking, and `other_rankings` have their own.
    """

    certainty: BoardCertainty | None = None
    published: PublishedComparison | None = None
    gaps: Mapping[int, Gap] = field(default_factory=dict)
    gap_measure: str = ""
    other_rankings: Sequence[BoardCertainty] = ()

    def for_entry(self, entry: int, measure: str) -> Statement:
        """Return the statement about an entry under a measure; all its fields are None if nothing is known.

        With hidden judgments, only the primary measure has statements.
        """
        gap = self.gaps.get(entry) if measure == self.gap_measure else None
        if self.published is not None and measure == self.published.measure:
            is_tied = entry in self.published.tied if entry in self.published.ranked else None
            return Statement(better=self.published.better.get(entry), tied_with_best=is_tied, gap=gap)
        board = self.find_ranking(entry, measure)
        if board is None or (tests := board.for_measure(measure)) is None:
            return Statement(gap=gap) if gap is not None else UNKNOWN
        least_p, sample = board.settings.least_p(comparisons := tests.comparison_count)
        certainty = tests.entries[entry]
        sign = numbers.direction(certainty.delta, measure) if differs(certainty) else ""
        is_tested = certainty.p_baseline is not None
        return Statement(
            better=sign == "up" if is_tested else None,
            worse=sign == "down" if is_tested else None,
            p=certainty.p_baseline,
            p_corrected=certainty.p_baseline_corrected,
            comparisons=comparisons,
            interval=certainty.delta_interval,
            tied_with_best=certainty.ties_with_best,
            p_best=certainty.p_best_corrected,
            ranks=certainty.ranks,
            gap=gap,
            least_p=least_p,
            sample=sample,
        )

    @property
    def rankings(self) -> Sequence[BoardCertainty]:
        """Tests of each ranking, the leading one first."""
        return [] if self.certainty is None else [self.certainty, *self.other_rankings]

    def find_ranking(self, entry: int, measure: str) -> BoardCertainty | None:
        """Return the tests of the ranking with the entry, or None if it was not tested."""
        for board in self.rankings:
            if (tests := board.for_measure(measure)) is not None and entry in tests.entries:
                return board
        return None

    def gains(self, measure: str) -> tuple[int, Mapping[int, Interval]]:
        """Return the baseline's entry id (0 if there is none) and each entry's improvement over it with an interval.

        Improvements are positive if the entry is better, whatever the measure's direction. With hidden judgments, they
        are those in the primary measure.
        """
        if self.published is not None:
            least_difference, step = self.published.least_difference, self.published.step
            differences = self.published.differences.items()
            gains = {entry: published_interval(difference, least_difference, step) for entry, difference in differences}
            return self.published.baseline or 0, gains
        tests = self.tests(measure)
        if tests is None:
            return 0, {}
        gains = {
            entry: Interval(value.delta, *value.delta_interval)
            for entry, value in tests.entries.items()
            if value.delta is not None and value.delta_interval is not None
        }
        if better(measure) == "lower":
            gains = {entry: Interval(-value.value, -value.high, -value.low) for entry, value in gains.items()}
        return tests.baseline or 0, gains

    def tests(self, measure: str) -> MeasureCertainty | None:
        """Return the tests of one measure, or None if there are none."""
        return self.certainty.for_measure(measure) if self.certainty is not None else None

    def pair_count(self, measure: str) -> int:
        """Return the number of pairs of entries that the tests of ties with the best are corrected for."""
        if self.published is not None:
            return comb(len(self.published.ranked), 2)
        tests = self.tests(measure)
        return tests.pair_count if tests is not None else 0

    def tied_with_best(self, measure: str) -> frozenset[int]:
        """Return the ids of the entries that may be the best, including the best itself; empty if unknown."""
        if self.published is not None:
            return self.published.tied if measure == self.published.measure else frozenset()
        tests = self.tests(measure)
        if tests is None:
            return frozenset()
        return frozenset(entry for entry, certainty in tests.entries.items() if certainty.ties_with_best)

    def least_difference(self, measure: str) -> float | None:
        """Return the least significant difference from the baseline with hidden judgments, or None if unknown."""
        published = self.published
        return published.least_difference if published is not None and measure == published.measure else None


#: Statements of a board without known or publishable significance.
NO_STATEMENTS = BoardStatements()


def statements(datasets: Collection[int]) -> Mapping[int, BoardStatements]:
    """Return the statements of each dataset's current board, by dataset id. Every id has a value.

    They include the contamination gaps between datasets and their twins.
    """
    twins = find_twins(datasets)
    dataset_ids = {*datasets, *(half for twin in twins for half in twin[:2])}
    certainties = read_certainty(dataset_ids)
    comparisons = published_comparisons([dataset for dataset in dataset_ids if dataset not in certainties])
    boards = {dataset: BoardStatements(certainties.get(dataset), comparisons.get(dataset)) for dataset in dataset_ids}
    if twins:
        boards = with_gaps(boards, twins, present_results(twins))
    return {dataset: boards[dataset] for dataset in datasets}


def statements_at(
    revisions: Mapping[int, Revision], rows: Mapping[int, BoardRows], twins: Sequence[Twins] = ()
) -> Mapping[int, BoardStatements]:
    """Return the statements of boards at the given revisions, by dataset id.

    `rows` are the board rows of the same revisions. `twins` have gaps if both halves are among the revisions.
    """
    boards = {dataset: PastBoard.from_revision(revision, rows[dataset]) for dataset, revision in revisions.items()}
    certainties = read_certainty_at({dataset: board for dataset, board in boards.items() if board.entries})
    comparisons = {
        dataset: comparison
        for dataset, board in boards.items()
        if dataset not in certainties
        and (comparison := comparison_at(revisions[dataset].facts, board.entries, board.baseline))
    }
    statements_by_dataset = {
        dataset: BoardStatements(certainties.get(dataset), comparisons.get(dataset)) for dataset in revisions
    }
    past_twins = []
    for twin in twins:  # Use the primary measure of that time, if both halves had the same.
        measures = {revisions[half].facts["primary_measure"] for half in twin[:2]}
        past_twins.append(twin._replace(measure=measures.pop() if len(measures) == 1 else ""))
    results = {
        dataset: {row.pk: (row.system_id, row.configuration) for row in _scored_rows(rows[dataset])}
        for twin in past_twins
        for dataset in twin[:2]
    }
    return with_gaps(statements_by_dataset, past_twins, results)


def _scored_rows(rows: BoardRows) -> list[EntryRow]:
    return [row for row in rows.entries if row.is_public and row.provenance != REPORTED]


def differs(certainty: EntryCertainty | None) -> bool:
    """Return whether the difference from the baseline is significant in the entry's own test."""
    return certainty is not None and certainty.p_baseline is not None and certainty.p_baseline < ALPHA


def lost_class(test: EntryCertainty | Statement | None) -> str:
    """Return the additional CSS class of a difference that is significant only before correction, empty for others."""
    return " is-lost" if test is not None and test.is_lost_by_correction else ""


def outcome_class(direction: str, p: float | None, lost: str = "", *, better: bool | None = None) -> str:
    """Return the CSS class of a difference: its `direction` with `lost` if it is significant, `ns`, or `untested`.

    `p` is the p-value of the entry's own test. `better` is the published comparison on hidden judgments, which does not
    test worse scores. A difference without a direction is `ns`.
    """
    if p is None and (better is None or direction == "down"):
        return "untested" if direction else "ns"
    is_significant = better if p is None else p < ALPHA
    return direction + lost if is_significant and direction else "ns"


class Twins(NamedTuple):
    """Ids of two datasets over one corpus, with their common primary measure (empty if they differ)."""

    public: int
    hidden: int
    measure: str


class Gap(NamedTuple):
    """Contamination gap: a system's additional gain over the baseline on public topics, with its 95% interval.

    `public` and `hidden` are the two gains. Higher is better in all fields, for every measure.
    """

    value: float
    low: float
    high: float
    public: float
    hidden: float

    def as_data(self) -> dict[str, float | bool]:
        """Return plain values for exports and the API."""
        return {**self._asdict(), "shown": self.shown}

    @property
    def shown(self) -> bool:
        return self.low > 0


def find_twins(datasets: Collection[int]) -> list[Twins]:
    """Return the pairs of twins that include any of these datasets and both have a public page, in one query."""
    twin_datasets = Dataset.objects.filter(Q(pk__in=datasets) | Q(twin_of__in=datasets), twin_of__isnull=False)
    twin_datasets = twin_datasets.exclude(state=Dataset.State.PREPARING).exclude(twin_of__state=Dataset.State.PREPARING)
    rows = twin_datasets.values_list("twin_of", "pk", "primary_measure", "twin_of__primary_measure")
    return [
        Twins(public, hidden, measure if measure == other_measure else "")
        for public, hidden, measure, other_measure in rows
        if public is not None
    ]


#: Dataset id → entry id → system id and configuration of public results scored by Runboard, oldest first.
Results = Mapping[int, Mapping[int, tuple[int, str]]]


def present_results(twins: Collection[Twins]) -> Results:
    """Return the current public results scored by Runboard on both halves of the twins, in one query."""
    results: dict[int, dict[int, tuple[int, str]]] = {half: {} for twin in twins for half in twin[:2]}
    public_entries = Entry.objects.filter(dataset__in=results, visibility=Entry.Visibility.PUBLIC)
    rows = public_entries.exclude(provenance=Entry.Provenance.REPORTED).order_by("published_at", "pk")
    columns = ("dataset_id", "pk", "system_id", "configuration")
    for dataset, entry, system, configuration in rows.values_list(*columns):
        results[dataset][entry] = system, configuration
    return results


def with_gaps(
    boards: Mapping[int, BoardStatements], twins: Collection[Twins], results: Results
) -> dict[int, BoardStatements]:
    """Return the boards with contamination gaps for systems that have results on both halves of a pair of twins.

    Results match by system and configuration; the newest one counts. There are no gaps unless both halves have the same
    baseline system and primary measure. `boards` and `results` must cover all datasets of the `twins`.
    """
    result = dict(boards)
    for public, hidden, measure in twins:
        gaps = {half: dict(result[half].gaps) for half in (public, hidden)}
        baseline, gains = boards[public].gains(measure)
        other_baseline, other_gains = boards[hidden].gains(measure)
        if measure and results[public].get(baseline, "") == results[hidden].get(other_baseline):
            hidden_entries = {key: entry for entry, key in results[hidden].items() if entry in other_gains}
            for entry, key in results[public].items():
                if entry in gains and (hidden_entry := hidden_entries.get(key)) is not None:
                    pair = gains[entry], other_gains[hidden_entry]
                    gap = Gap(*compute_gap(*pair), *(gain.value for gain in pair))
                    gaps[public][entry] = gaps[hidden][hidden_entry] = gap
        for half in (public, hidden):
            result[half] = replace(result[half], gaps=gaps[half], gap_measure=measure)
    return result


#: Id of a dataset's latest certainty; raw SQL for the same reason as `board_rows.rows.CHANGED_AT`.
_LATEST_CERTAINTY = RawSQL(
    "(SELECT id FROM leaderboard_certainty WHERE dataset_id = leaderboard_dataset.id "
    "ORDER BY from_revision DESC LIMIT 1)",
    (),
    IntegerField(),
)


def read_certainty(dataset_ids: Collection[int]) -> dict[int, BoardCertainty]:
    """Return the latest certainty of each open dataset's board, by id, using a cache.

    It is not `current` if the board has changed since. Datasets with hidden judgments are omitted, and so are boards
    without a certainty for their comparison group.
    """
    rows = Dataset.objects.filter(pk__in=dataset_ids, hidden=False).values_list(
        "pk", "created_at", "board_revision", _LATEST_CERTAINTY
    )
    # Every change of a board, including its list of measures, increments its revision. The creation date
    # distinguishes a restored database, in which the same ids are assigned to other rows.
    keys = {
        dataset: (latest, f"tests {dataset}:{created.timestamp()}:{revision}:{latest}")
        for dataset, created, revision, latest in rows
        if latest is not None
    }
    certainties = {dataset: board_cache.get(key) for dataset, (_, key) in keys.items()}
    uncached_ids = {dataset: keys[dataset][0] for dataset, certainty in certainties.items() if certainty is None}
    if uncached_ids:
        current_boards = compared_boards(uncached_ids)
        for row in _read_certainties(list(uncached_ids.values())):
            board = current_boards.get(row["dataset_id"])
            if board is None or board.comparison_group != row["comparison_group"]:
                continue  # It was computed on earlier judgments, so it does not apply to the current numbers.
            certainty = _build_certainty(row, current=board.key == row["key"], baseline=board.baseline)
            certainties[certainty.dataset] = certainty
            size = decoded_size(len(row["text"]))
            board_cache.put(keys[certainty.dataset][1], certainty, size, LONG_LIFETIME)
    return {dataset: certainty for dataset, certainty in certainties.items() if certainty is not None}


class PastBoard(NamedTuple):
    """A revision of a dataset's board: the compared entries of one group, and their baseline's id."""

    revision: int
    comparison_group: str
    entries: Sequence[EntryRow]
    baseline: int | None = None

    @classmethod
    def from_revision(cls, revision: Revision, rows: BoardRows) -> PastBoard:
        """Build the past board of a revision from its rows: the public scored entries of its comparison group."""
        scored_rows, facts = _scored_rows(rows), revision.facts
        groups = [(row.comparison_group, bool(row.is_baseline)) for row in scored_rows]
        group = present_group(facts["current_version_id"], facts["current_qrels_id"], groups)
        compared_rows = [row for row in scored_rows if row.comparison_group == group]
        baselines = [row.pk for row in compared_rows if row.is_baseline]
        return cls(revision.number, group, compared_rows, baselines[-1] if baselines else None)

    def matches(self, certainty: BoardCertainty) -> bool:
        """Return whether the certainty was computed from exactly these entries and this baseline."""
        entries = {entry for measure in certainty.content.values() for entry in measure["entries"]}
        baselines = {measure["baseline"] for measure in certainty.content.values()} - {None}
        return entries == {entry.pk for entry in self.entries} and baselines == {self.baseline} - {None}


def read_certainty_at(boards: Mapping[int, PastBoard]) -> dict[int, BoardCertainty]:
    """Return the last certainty of each board up to its revision, by dataset, in two queries.

    It is `current` if it was computed from exactly the board's entries and baseline. Boards without certainty for their
    comparison group are omitted, and so are those of datasets whose judgments are hidden now.
    """
    if not boards:
        return {}
    conditions = (Q(dataset=dataset, from_revision__lte=board.revision) for dataset, board in boards.items())
    certainty_rows = Certainty.objects.filter(reduce(or_, conditions), dataset__hidden=False).order_by("from_revision")
    latest_ids = dict(certainty_rows.values_list("dataset_id", "pk"))
    certainties = {}
    for row in _read_certainties(list(latest_ids.values())):
        board = boards[row["dataset_id"]]
        if row["comparison_group"] == board.comparison_group:
            certainty = _build_certainty(row, current=True, baseline=board.baseline)
            certainties[certainty.dataset] = replace(certainty, current=board.matches(certainty))
    return certainties


def _read_certainties(ids: Sequence[int]) -> list[dict[str, Any]]:
    """Return the columns of certainties, with their own or the referenced content as JSON text."""
    # Read as text, because orjson decodes the JSON of a thousand systems three times as fast.
    content = Coalesce("same_as__content", "content", output_field=JSONField())
    fields = ("dataset_id", "key", "comparison_group", "from_revision", "computed_at", "settings")
    return list(Certainty.objects.filter(pk__in=ids).values(*fields, text=Cast(content, TextField())))


def _build_certainty(row: Mapping[str, Any], *, current: bool, baseline: int | None) -> BoardCertainty:
    """Build a board's certainty from a row of `_read_certainties`."""
    return BoardCertainty(
        dataset=row["dataset_id"],
        key=row["key"],
        comparison_group=row["comparison_group"],
        from_revision=row["from_revision"],
        computed_at=row["computed_at"],
        settings=TestSettings(**{**row["settings"], "test": TEST}),
        current=current,
        baseline=baseline,
        content=orjson.loads(row["text"]),
    )


class ComparedBoard(NamedTuple):
    """The public entries of an open dataset's board that are scored on its current qrels, by date of publication."""

    dataset: int
    comparison_group: str
    entries: Sequence[int]
    baseline: int | None
    measures: Sequence[str]
    #: Entries of closed APIs and references, which never count as the best.
    never_best: Sequence[int] = ()

    @property
    def key(self) -> str:
        """Digest of all inputs of the tests. An entry id stands for its evaluations, which are fixed within a group."""
        inputs = [
            self.comparison_group,
            sorted(self.entries),
            self.baseline,
            self.measures,
            sorted(self.never_best),
            # The first spelling of the test's name, so that a new one does not invalidate the stored tests.
            {**TestSettings().as_dict(), "test": "paired randomisation test"},
        ]
        digest = blake2b(orjson.dumps(inputs, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
        return f"{METHOD}:{digest}"


def compared_boards(datasets: Collection[int]) -> dict[int, ComparedBoard]:
    """Return the boards of open datasets that have results on their current qrels, by id, in two queries."""
    open_datasets = Dataset.objects.filter(pk__in=datasets, hidden=False, current_qrels__isnull=False)
    datasets_by_id = {
        open_dataset.pk: open_dataset
        for open_dataset in open_datasets.only("current_version", "current_qrels", "measures")
    }
    entries = Entry.objects.filter(dataset__in=list(datasets_by_id), visibility=Entry.Visibility.PUBLIC)
    entries = entries.exclude(provenance=Entry.Provenance.REPORTED).order_by("dataset_id", "published_at", "pk")
    columns = ("dataset_id", "pk", "comparison_group", "is_baseline", "run_type", "system__closed_api")
    boards = {}
    for pk, group_of_rows in groupby(entries.values(*columns), itemgetter("dataset_id")):
        dataset, rows = datasets_by_id[pk], list(group_of_rows)
        groups = [(row["comparison_group"], row["is_baseline"]) for row in rows]
        group = present_group(dataset.current_version_id, dataset.current_qrels_id, groups)
        members = [row for row in rows if group and row["comparison_group"] == group]
        if members:
            boards[pk] = ComparedBoard(
                pk,
                group,
                [row["pk"] for row in members],
                next((row["pk"] for row in reversed(members) if row["is_baseline"]), None),
                [measure for measure in dataset.measures if measure not in QUERY_SPANNING_MEASURES],
                [row["pk"] for row in members if not can_be_best(row["system__closed_api"], row["run_type"])],
            )
    return boards


def is_known(board: ComparedBoard) -> bool:
    """Return whether the latest certainty was computed for exactly this board, in one query."""
    certainties = Certainty.objects.filter(dataset=board.dataset).order_by("-from_revision")
    return certainties.values_list("key", flat=True).first() == board.key
