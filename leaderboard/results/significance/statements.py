"""What may be said of a result in words: whether it is better than the baseline, and whether it ties with the best.

Every sentence, colour, card, feed and badge takes its certainty from `statements`, which knows how a dataset's
judgements are protected. Open boards say what their tests found. Hidden ones say no more than follows from values that
were published (docs/decisions/0019).

The contamination gap is that of systems that were scored on a dataset and on its twin (`evaluation.statistics.gap`). An
open half gives the bootstrap interval that its board has of each row's difference to the baseline. A hidden half gives
published values and the least significant difference, which bounds how they spread: a gap tells no more of hidden
judgements than these do (docs/decisions/0019). It is computed when it is read, and stored nowhere.
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

from evaluation.statistics.gap import Interval, gap_between, published_interval
from leaderboard.core.cache.memory import LONG_LIFETIME
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.models import Certainty, Dataset, Entry
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
)


@dataclass(frozen=True, slots=True)
class Statement:
    """Certainty of one entry under one measure; None where it is not known, or not published.

    `better` and `worse` compare with the baseline at 0.05, in the entry's own, uncorrected test; False means that no
    difference was shown. `p`, `interval`, and `p_corrected` refer to the difference from the baseline; the correction
    covers the `comparisons` of the board with its baseline. `p_best` refers to the difference from the best, corrected
    over all pairs of the board. These, `worse`, and `ranks`, the first and the last rank that the tests of all pairs
    leave open, are known on open judgments only. The best ties with itself. `gap` is the contamination gap between the
    dataset and its twin, of the primary measure.
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

    @property
    def holds_after_correction(self) -> bool:
        """Whether the difference to the baseline is significant among all comparisons with it."""
        return self.p_corrected is not None and self.p_corrected < ALPHA


UNKNOWN = Statement()


@dataclass(frozen=True, slots=True)
class BoardStatements:
    """The statements of one board: of what its tests found, or over hidden judgements of its published scores.

    `gaps` are those of its entries, by their ids, in the measure `gaps_in`.
    """

    certainty: BoardCertainty | None = None
    published: PublishedComparison | None = None
    gaps: Mapping[int, Gap] = field(default_factory=dict)
    gaps_in: str = ""

    def of(self, entry: int, measure: str) -> Statement:
        """What may be said of the entry with this id; over hidden judgements of the primary measure alone."""
        gap = self.gaps.get(entry) if measure == self.gaps_in else None
        if self.published is not None and measure == self.published.measure:
            tied = entry in self.published.tied if entry in self.published.ranked else None
            return Statement(better=self.published.better.get(entry), tied_with_best=tied, gap=gap)
        found = self.tests(measure)
        one = found.of(entry) if found is not None else None
        if found is None or one is None:
            return Statement(gap=gap) if gap is not None else UNKNOWN
        sign = numbers.direction(one.delta, measure) if differs(one) else ""
        known = one.p_baseline is not None
        return Statement(
            better=sign == "up" if known else None,
            worse=sign == "down" if known else None,
            p=one.p_baseline,
            p_corrected=one.p_baseline_corrected,
            comparisons=found.comparisons,
            interval=one.delta_interval,
            tied_with_best=one.ties_with_best,
            p_best=one.p_best_corrected,
            ranks=one.ranks,
            gap=gap,
        )

    def gains(self, measure: str) -> tuple[int, Mapping[int, Interval]]:
        """Return the baseline's entry, 0 without one, and how much better than it each entry is, with an interval."""
        if self.published is not None:
            least, step = self.published.least_difference, self.published.step
            differences = self.published.differences.items()
            gains = {entry: published_interval(difference, least, step) for entry, difference in differences}
            return self.published.baseline or 0, gains
        found = self.tests(measure)
        if found is None:
            return 0, {}
        gains = {
            entry: Interval(one.delta, *one.delta_interval)
            for entry, one in found.entries.items()
            if one.delta is not None and one.delta_interval is not None
        }
        if better(measure) == "lower":
            gains = {entry: Interval(-one.value, -one.high, -one.low) for entry, one in gains.items()}
        return found.baseline or 0, gains

    def tests(self, measure: str) -> MeasureCertainty | None:
        """Return the tests of one measure, None where there are none."""
        return self.certainty.of(measure) if self.certainty is not None else None

    def pairs(self, measure: str) -> int:
        """Return the number of pairs that decide what is not separable from the best."""
        if self.published is not None:
            return comb(len(self.published.ranked), 2)
        found = self.tests(measure)
        return found.pairs if found is not None else 0

    def tied_with_best(self, measure: str) -> frozenset[int]:
        """The ids of the entries that may be the best, the best among them; empty where that is not known."""
        if self.published is not None:
            return self.published.tied if measure == self.published.measure else frozenset()
        found = self.tests(measure)
        if found is None:
            return frozenset()
        return frozenset(entry for entry, one in found.entries.items() if one.ties_with_best)

    def least_difference(self, measure: str) -> float | None:
        """Over hidden judgements the least difference to the baseline that is significant, where it is known."""
        if self.published is None or measure != self.published.measure:
            return None
        return self.published.least_difference


#: Of a board of which nothing may be said, or is known.
NOTHING_SAID = BoardStatements()


def statements(datasets: Collection[int]) -> Mapping[int, BoardStatements]:
    """Return the statements of each dataset's present board, by the dataset's id; every id has an answer."""
    twins = twins_of(datasets)
    wanted = {*datasets, *(half for each in twins for half in each[:2])}
    certain = read_certainty(wanted)
    published = published_comparisons([dataset for dataset in wanted if dataset not in certain])
    boards = {dataset: BoardStatements(certain.get(dataset), published.get(dataset)) for dataset in wanted}
    if twins:
        boards = with_gaps(boards, twins, present_results(twins))
    return {dataset: boards[dataset] for dataset in datasets}


def statements_at(
    revisions: Mapping[int, Revision], rows: Mapping[int, BoardRows], twins: Sequence[Twins] = ()
) -> Mapping[int, BoardStatements]:
    """Return the statements of the boards at these revisions, by the dataset's id.

    `rows` are those of the revisions. `twins` have gaps if both halves are among the revisions.
    """
    boards = {dataset: PastBoard.at(revision, rows[dataset]) for dataset, revision in revisions.items()}
    certain = read_certainty_at({dataset: board for dataset, board in boards.items() if board.entries})
    published = {
        dataset: comparison
        for dataset, board in boards.items()
        if dataset not in certain
        and (comparison := comparison_at(revisions[dataset].facts, board.entries, board.baseline))
    }
    said = {dataset: BoardStatements(certain.get(dataset), published.get(dataset)) for dataset in revisions}
    halves = []
    for each in twins:  # the measure that both halves had then
        measures = {revisions[half].facts["primary_measure"] for half in each[:2]}
        halves.append(each._replace(measure=measures.pop() if len(measures) == 1 else ""))
    results = {
        dataset: {row.pk: (row.system_id, row.configuration) for row in _scored(rows[dataset])}
        for each in halves
        for dataset in each[:2]
    }
    return with_gaps(said, halves, results)


def _scored(rows: BoardRows) -> list[EntryRow]:
    return [row for row in rows.entries if row.is_public and row.provenance != REPORTED]


def differs(one: EntryCertainty | None) -> bool:
    """Return whether the difference to the baseline is significant in the entry's own test."""
    return one is not None and one.p_baseline is not None and one.p_baseline < ALPHA


class Twins(NamedTuple):
    """Two datasets over one corpus, by id, and their common primary measure, which is empty where they differ."""

    public: int
    hidden: int
    measure: str


class Gap(NamedTuple):
    """How much more a system gains over the baseline on public topics, with the ends of its 95% interval.

    `public` and `hidden` are the two gains. More is better in all of them, whatever the measure.
    """

    value: float
    low: float
    high: float
    public: float
    hidden: float

    def as_data(self) -> dict[str, float | bool]:
        """As plain values, for exports and the API."""
        return {**self._asdict(), "shown": self.shown}

    @property
    def shown(self) -> bool:
        """Whether the interval lies above 0."""
        return self.low > 0


def twins_of(datasets: Collection[int]) -> list[Twins]:
    """Return the twins that include any of these datasets, if both halves have a page. One query."""
    listed = Dataset.objects.filter(Q(pk__in=datasets) | Q(twin_of__in=datasets), twin_of__isnull=False)
    listed = listed.exclude(state=Dataset.State.PREPARING).exclude(twin_of__state=Dataset.State.PREPARING)
    rows = listed.values_list("twin_of", "pk", "primary_measure", "twin_of__primary_measure")
    return [
        Twins(public, hidden, measure if measure == other else "")
        for public, hidden, measure, other in rows
        if public is not None
    ]


#: By dataset and entry id, oldest first: system and configuration of each public result that was scored here.
Results = Mapping[int, Mapping[int, tuple[int, str]]]


def present_results(twins: Collection[Twins]) -> Results:
    """Return the results that both halves of these twins show now. One query."""
    results: dict[int, dict[int, tuple[int, str]]] = {half: {} for each in twins for half in each[:2]}
    shown = Entry.objects.filter(dataset__in=results, visibility=Entry.Visibility.PUBLIC)
    rows = shown.exclude(provenance=Entry.Provenance.REPORTED).order_by("published_at", "pk")
    columns = ("dataset_id", "pk", "system_id", "configuration")
    for dataset, entry, system, configuration in rows.values_list(*columns):
        results[dataset][entry] = system, configuration
    return results


def with_gaps(
    boards: Mapping[int, BoardStatements], twins: Collection[Twins], results: Results
) -> dict[int, BoardStatements]:
    """Return the boards, those of the twins with the gap of each entry whose system has a result on the other half.

    Results of one system and configuration belong together, of several the newest; both halves must have the same
    baseline system. `boards` and `results` cover all datasets of the `twins`.
    """
    found = dict(boards)
    for public, hidden, measure in twins:
        gaps = {half: dict(found[half].gaps) for half in (public, hidden)}
        baseline, gains = boards[public].gains(measure)
        other_baseline, other_gains = boards[hidden].gains(measure)
        if measure and results[public].get(baseline, "") == results[hidden].get(other_baseline):
            others = {key: entry for entry, key in results[hidden].items() if entry in other_gains}
            for entry, key in results[public].items():
                if entry in gains and (other := others.get(key)) is not None:
                    pair = gains[entry], other_gains[other]
                    gap = Gap(*gap_between(*pair), *(gain.value for gain in pair))
                    gaps[public][entry] = gaps[hidden][other] = gap
        for half in (public, hidden):
            found[half] = replace(found[half], gaps=gaps[half], gaps_in=measure)
    return found


#: What was found last of a dataset's board. In SQL, as `history.rows.CHANGED_AT` is.
_LATEST = RawSQL(
    "(SELECT id FROM leaderboard_certainty WHERE dataset_id = leaderboard_dataset.id "
    "ORDER BY from_revision DESC LIMIT 1)",
    (),
    IntegerField(),
)


def read_certainty(dataset_ids: Collection[int]) -> dict[int, BoardCertainty]:
    """What was found last of each dataset's board, by id; nothing of hidden ones, nor where nothing was found yet."""
    rows = Dataset.objects.filter(pk__in=dataset_ids, hidden=False).values_list(
        "pk", "created_at", "board_revision", _LATEST
    )
    # Whatever changes a board, such as its list of measures, counts its revision up. The date is for a database that
    # was put back to an earlier state: there, other rows get the same ids.
    keys = {
        dataset: (found, f"tests {dataset}:{created.timestamp()}:{revision}:{found}")
        for dataset, created, revision, found in rows
        if found is not None
    }
    known = {dataset: board_cache.get(key) for dataset, (_, key) in keys.items()}
    missing = {dataset: keys[dataset][0] for dataset, found in known.items() if found is None}
    if missing:
        present = compared_boards(missing)
        for found in _rows(list(missing.values())):
            board = present.get(found["dataset_id"])
            if board is None or board.comparison_group != found["comparison_group"]:
                continue  # of the same results on earlier judgements: nothing of it holds for these numbers
            certainty = _certainty(found, current=board.key == found["key"], baseline=board.baseline)
            known[certainty.dataset] = certainty
            size = decoded_size(len(found["text"]))
            board_cache.put(keys[certainty.dataset][1], certainty, size, LONG_LIFETIME)
    return {dataset: found for dataset, found in known.items() if found is not None}


class PastBoard(NamedTuple):
    """A revision of a dataset's board: the compared entries of one group, and their baseline's id."""

    revision: int
    comparison_group: str
    entries: Sequence[EntryRow]
    baseline: int | None = None

    @classmethod
    def at(cls, revision: Revision, rows: BoardRows) -> PastBoard:
        """Return the entries of the revision that were compared with each other."""
        scored, facts = _scored(rows), revision.facts
        groups = [(row.comparison_group, bool(row.is_baseline)) for row in scored]
        group = present_group(facts["current_version_id"], facts["current_qrels_id"], groups)
        compared = [row for row in scored if row.comparison_group == group]
        baselines = [row.pk for row in compared if row.is_baseline]
        return cls(revision.number, group, compared, baselines[-1] if baselines else None)

    def is_compared_in(self, certainty: BoardCertainty) -> bool:
        """Return whether the certainty was computed from exactly these entries and this baseline."""
        compared = {entry for measure in certainty.content.values() for entry in measure["entries"]}
        baselines = {measure["baseline"] for measure in certainty.content.values()} - {None}
        return compared == {entry.pk for entry in self.entries} and baselines == {self.baseline} - {None}


def read_certainty_at(boards: Mapping[int, PastBoard]) -> dict[int, BoardCertainty]:
    """Return the last certainty of each board until its revision, by dataset. Two queries.

    It is current if it was computed from exactly these entries and this baseline. Boards without certainty for their
    comparison group, and those of datasets whose judgments are hidden now, are left out.
    """
    if not boards:
        return {}
    until = (Q(dataset=dataset, from_revision__lte=board.revision) for dataset, board in boards.items())
    known = Certainty.objects.filter(reduce(or_, until), dataset__hidden=False).order_by("from_revision")
    latest = dict(known.values_list("dataset_id", "pk"))
    certainties = {}
    for row in _rows(list(latest.values())):
        board = boards[row["dataset_id"]]
        if row["comparison_group"] == board.comparison_group:
            certainty = _certainty(row, current=True, baseline=board.baseline)
            certainties[certainty.dataset] = replace(certainty, current=board.is_compared_in(certainty))
    return certainties


def _rows(ids: Sequence[int]) -> list[dict[str, Any]]:
    # As text, since JSON of a thousand systems is read thrice as fast by orjson.
    content = Coalesce("same_as__content", "content", output_field=JSONField())
    fields = ("dataset_id", "key", "comparison_group", "from_revision", "computed_at", "settings")
    return list(Certainty.objects.filter(pk__in=ids).values(*fields, text=Cast(content, TextField())))


def _certainty(row: Mapping[str, Any], *, current: bool, baseline: int | None) -> BoardCertainty:
    return BoardCertainty(
        dataset=row["dataset_id"],
        key=row["key"],
        comparison_group=row["comparison_group"],
        from_revision=row["from_revision"],
        computed_at=row["computed_at"],
        settings=TestSettings(**row["settings"]),
        current=current,
        baseline=baseline,
        content=orjson.loads(row["text"]),
    )


class ComparedBoard(NamedTuple):
    """The public, present, scored entries of an open dataset's board, by date of publication."""

    dataset: int
    comparison_group: str
    entries: Sequence[int]
    baseline: int | None
    measures: Sequence[str]
    #: Those of closed APIs: ranked separately, so in no group, and never the best.
    closed: Sequence[int] = ()

    @property
    def key(self) -> str:
        """What decides all that is found: an entry has one set of evaluations in a group, its id stands for them."""
        named = [
            self.comparison_group,
            sorted(self.entries),
            self.baseline,
            self.measures,
            sorted(self.closed),
            TestSettings().as_dict(),
        ]
        digest = blake2b(orjson.dumps(named, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
        return f"{METHOD}:{digest}"


def compared_boards(datasets: Collection[int]) -> dict[int, ComparedBoard]:
    """The boards of open datasets that have results to compare, by id. Two queries."""
    open_ones = Dataset.objects.filter(pk__in=datasets, hidden=False, current_qrels__isnull=False)
    present = {each.pk: each for each in open_ones.only("current_version", "current_qrels", "measures")}
    entries = Entry.objects.filter(dataset__in=list(present), visibility=Entry.Visibility.PUBLIC)
    entries = entries.exclude(provenance=Entry.Provenance.REPORTED).order_by(
        "dataset_id", "published_at", "pk"
    )
    columns = ("dataset_id", "pk", "comparison_group", "is_baseline", "system__closed_api")
    boards = {}
    for pk, group_of_rows in groupby(entries.values(*columns), itemgetter("dataset_id")):
        dataset, rows = present[pk], list(group_of_rows)
        groups = [(row["comparison_group"], row["is_baseline"]) for row in rows]
        group = present_group(dataset.current_version_id, dataset.current_qrels_id, groups)
        members = [row for row in rows if group and row["comparison_group"] == group]
        if members:
            boards[pk] = ComparedBoard(
                pk,
                group,
                [row["pk"] for row in members],
                next((row["pk"] for row in reversed(members) if row["is_baseline"]), None),
                list(dataset.measures),
                [row["pk"] for row in members if row["system__closed_api"]],
            )
    return boards


def is_known(board: ComparedBoard) -> bool:
    """Whether what was found last is of this very board. One query."""
    latest = Certainty.objects.filter(dataset=board.dataset).order_by("-from_revision")
    return latest.values_list("key", flat=True).first() == board.key
