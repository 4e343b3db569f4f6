"""A system's results per dataset, with the baseline and the best system of the same kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db.models import Exists, F, OuterRef, TextField
from django.db.models.functions import Cast
from django.utils.translation import gettext as _

from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.boards.columns.costs import time_html
from leaderboard.boards.columns.gap import gap_texts
from leaderboard.boards.columns.significance import (
    difference_interval_text,
    format_p_value,
    interval_text,
    ranks_text,
)
from leaderboard.boards.system.standing import RankedBoard, ranked_boards
from leaderboard.boards.wording import separation_text, significance_text
from leaderboard.core import anonymity
from leaderboard.core.text import numbers
from leaderboard.core.text.baselines import baseline_label
from leaderboard.models import DECLARED_NUMBERS, DeclaredNumber, Entry, EntryQuerySet, Seed, System, short_citation
from leaderboard.results.agreement import PublishedScore
from leaderboard.results.board_rows.entry_rows import CLOSED, REPORTED, EntryRow
from leaderboard.results.board_rows.measurements import MeasuredEntry, system_measurements
from leaderboard.results.reported_facts import fact_texts, is_url
from leaderboard.results.significance.statements import (
    NO_STATEMENTS,
    BoardStatements,
    Gap,
    lost_class,
    outcome_class,
    statements,
)
from leaderboard.results.significance.types import EntryCertainty
from leaderboard.results.values import is_about_judging, is_word_pieces
from leaderboard.systems.baselines import BM25

#: Columns of an entry that its result contains unchanged.
_ENTRY_FIELDS = (
    "provenance", "training", "is_baseline", "configuration", "locator", "facts", "seed_count", "deviations",
)  # fmt: skip


def system_facts(slug: str) -> dict[str, Any] | None:
    """Return the public facts about a system, or None if it has nothing public. One database query."""
    facts = (
        System.objects.filter(slug=slug)
        .annotate(shown=Exists(EntryQuerySet(Entry).known().filter(system=OuterRef("pk"))))
        .values(
            "pk",
            *(field.attname for field in System._meta.concrete_fields),
            *(f"team__{name}" for name in ("name", "slug")),
            *(f"source__{name}" for name in ("title", "authors", "year", "venue", "url", "bibtex")),
            *(f"variant_of__{name}" for name in ("name", "slug", "anonymous_until")),
            "shown",
        )
        .first()
    )
    if facts is None or not facts["shown"]:
        return None
    return {
        **anonymity.public_columns(facts),
        "architecture_label": ARCHITECTURES.get(facts["architecture"], facts["architecture"]),
        "cited": short_citation(facts["source__authors"], facts["source__year"]),
        "year_shown": facts["year"] or facts["source__year"],
        "declared": [
            (fact.label, text) for fact in DECLARED_NUMBERS if (text := declared_text(fact, facts[fact.name]))
        ],
    }


def declared_text(fact: DeclaredNumber, value: int | None) -> str:
    return f"{numbers.format_quantity(value / fact.per)} {fact.unit}".rstrip() if value else ""


def system_results(system_id: int) -> list[Result]:
    """Return the system's public results, by dataset and date of publication.

    Results without scores are omitted. Takes at most seven database queries, and those of their certainty.
    """
    rows = list(
        EntryQuerySet(Entry)
        .public()
        .filter(system_id=system_id)
        .order_by("dataset__name", "published_at", "pk")
        .values(
            "pk",
            "dataset_id",
            *(f"dataset__{name}" for name in ("name", "slug", "hidden", "measures")),
            "scores",
            "figures",
            "comparison_group",
            "submission_reference",
            "system__anonymous_until",
            *_ENTRY_FIELDS,
            published=Cast("published_at", TextField()),
        )
    )
    seeds = _seeds_by_entry([row["pk"] for row in rows if row["seed_count"]])
    if rows and rows[0]["system__anonymous_until"] is not None:
        seeds = {entry: anonymity.unnamed_seeds(entry_seeds) for entry, entry_seeds in seeds.items()}
    boards = ranked_boards({row["dataset_id"] for row in rows})
    scored_datasets = {row["dataset_id"] for row in rows if row["provenance"] != Entry.Provenance.REPORTED}
    board_statements = statements(scored_datasets) if scored_datasets else {}
    measurements_by_entry: dict[int, list[MeasuredEntry]] = {}
    for measurement in system_measurements(system_id):
        measurements_by_entry.setdefault(measurement.entry_id, []).append(measurement)
    # Scores of BM25 variants over word pieces.
    word_pieces = {job_key(row): row["scores"] for row in rows if is_word_pieces(row["configuration"])}
    results = []
    for row in rows:
        entry = next((candidate for candidate in boards[row["dataset_id"]].entries if candidate.pk == row["pk"]), None)
        if entry is None or not row["scores"]:  # It left the board between two queries, or has no score.
            continue
        page_data = {
            "seeds": seeds.get(entry.pk, []),
            "measured": measurements_by_entry.get(entry.pk, []),
            "word_pieces": word_pieces.get(job_key(row), {}),
        }
        board = board_statements.get(row["dataset_id"], NO_STATEMENTS)
        results.append(_build_result({**row, **page_data}, entry, boards[row["dataset_id"]], board))
    return results


def quarantined_results(system_id: int) -> list[dict[str, Any]]:
    """Return dataset, configuration, and the curator's reason of the system's quarantined results. One query."""
    entries = EntryQuerySet(Entry).seen().filter(system_id=system_id, visibility=Entry.Visibility.QUARANTINED)
    rows = entries.order_by("dataset__name", "pk").values(
        "configuration",
        dataset_name=F("dataset__name"),
        dataset_slug=F("dataset__slug"),
        reason=F("moderation_reason"),
    )
    return [dict(row) for row in rows]


def _seeds_by_entry(entries: Collection[int]) -> dict[int, list[tuple[str, dict[str, float]]]]:
    """Return label and scores of the entries' seeds, by entry. One database query, none without entries.

    Seeds over hidden judgments are ignored, because earlier releases may have stored their values.
    """
    seeds_by_entry: dict[int, list[tuple[str, dict[str, float]]]] = {}
    seeds = Seed.objects.filter(entry__in=entries, entry__dataset__hidden=False)
    rows = seeds.values_list("entry_id", "label", "scores")
    for entry, label, scores in rows if entries else ():
        seeds_by_entry.setdefault(entry, []).append((label, scores))
    return seeds_by_entry


def _build_result(
    row: Mapping[str, Any], entry: EntryRow, board: RankedBoard, statements_by_entry: BoardStatements
) -> Result:
    """Return an entry of the system, compared with the baseline and the best result on its board.

    `row` has the entry's columns with its seeds, measurements, and scores over word pieces. The first of the dataset's
    measures that the entry has becomes the result's measure.
    """
    scores: dict[str, float] = row["scores"]
    dataset_measures = [name for name in row["dataset__measures"] if name in scores]
    about_judging = [name for name in scores if is_about_judging(name) and name not in dataset_measures]
    sorted_measures = [*dataset_measures, *about_judging] if dataset_measures else [*scores]
    measure, value = sorted_measures[0], scores[sorted_measures[0]]
    standing, baseline_entry = board.standing(entry, measure), board.baseline(entry, measure)
    baseline = baseline_entry.scores[measure] if baseline_entry else None
    delta = numbers.difference(value, baseline)
    word_pieces = None if is_word_pieces(row["configuration"]) else row["word_pieces"].get(measure)
    is_reported = row["provenance"] == Entry.Provenance.REPORTED
    # Boards give the baselines of all publications one name, too.
    baseline_name = BM25.name if is_reported or not baseline_entry else baseline_entry.system
    statement, tests = statements_by_entry.for_entry(entry.pk, measure), statements_by_entry.tests(measure)
    others_tied = len(statements_by_entry.tied_with_best(measure) - {entry.pk})
    return Result(
        **{name: row[name] for name in _ENTRY_FIELDS},
        dataset=row["dataset__name"],
        dataset_slug=row["dataset__slug"],
        submission=row["submission_reference"],
        measure=measure,
        value=value,
        baseline=baseline,
        delta=delta,
        relative=numbers.relative_difference(value, baseline),
        best=standing.best.scores[measure],
        best_system=standing.best.system,
        best_slug=standing.best.slug,
        rank=None if is_about_judging(measure) else standing.rank,
        of=standing.peer_count,
        ranked_in=standing.ranked_in,
        published="" if is_reported else row["published"][:10],
        scores=[(name, scores[name]) for name in sorted_measures[1:]],
        figures=[figure for figure in row["figures"] if figure["name"] not in scores],
        address=next(filter(is_url, (figure["locator"] for figure in row["figures"])), ""),
        measured=row["measured"],
        word_pieces=word_pieces,
        word_pieces_delta=numbers.difference(value, word_pieces),
        word_pieces_relative=numbers.relative_difference(value, word_pieces),
        seeds=_seed_results(row["seeds"], sorted_measures),
        baseline_slug=baseline_entry.slug if baseline_entry else "",
        baseline_name=baseline_label(baseline_name, row["dataset__name"]) if baseline_entry else "",
        certainty=tests.entries.get(entry.pk) if tests is not None else None,
        better_than_baseline=statement.better,
        tied_with_best=statement.tied_with_best,
        significance=significance_text(statement, delta, measure),
        separation=separation_text(standing.rank, statement, others_tied),
        contamination_gap=statement.gap,
        published_score=board.published(measure).get(entry.pk),
    )


def _seed_results(seeds: Iterable[tuple[str, Mapping[str, float]]], measures: Sequence[str]) -> list[SeedResult]:
    """Return each seed with its score for the first of the measures, and its scores for the others."""
    first_measure, *further_measures = measures
    return [
        SeedResult(
            label,
            scores.get(first_measure),
            [(name, scores[name]) for name in further_measures if name in scores],
        )
        for label, scores in seeds
    ]


class SeedResult(NamedTuple):
    label: str
    value: float | None
    scores: list[tuple[str, float]]


class Result(NamedTuple):
    """One result of the system, compared on its dataset's board.

    `rank` and `of` count results of its own kind (`ranked_in`) with the measure, as the board does; `rank` is None
    for stale results and for measures that do not rank. `word_pieces` is the score of BM25 over word pieces in the
    same job, if there is one. For a seed set, `value` is the mean over `seed_count` runs, `deviations` are sample
    standard deviations by measure, and `seeds` are the runs, empty over hidden judgments. `certainty` has the test
    results for `measure`: None over hidden judgments, for reported results, and before the tests are computed.
    `significance` and `separation` describe in words whether it differs from the baseline, and from the other
    results.
    """

    dataset: str
    dataset_slug: str
    measure: str
    value: float
    baseline: float | None
    delta: float | None
    relative: float | None
    best: float
    best_system: str
    best_slug: str
    rank: int | None
    of: int
    ranked_in: str
    provenance: str
    training: str
    is_baseline: bool
    configuration: str
    locator: str
    submission: str
    published: str
    scores: list[tuple[str, float]]
    figures: list[dict[str, Any]]
    facts: Mapping[str, Any]
    measured: list[MeasuredEntry]
    word_pieces: float | None = None
    word_pieces_delta: float | None = None
    word_pieces_relative: float | None = None
    seed_count: int = 0
    deviations: Mapping[str, float] = MappingProxyType({})
    seeds: Sequence[SeedResult] = ()
    baseline_slug: str = ""
    baseline_name: str = ""
    certainty: EntryCertainty | None = None
    better_than_baseline: bool | None = None
    tied_with_best: bool | None = None
    significance: str = ""
    separation: str = ""
    contamination_gap: Gap | None = None
    #: URL of the file that a reported figure was read from; empty if the figure is printed.
    address: str = ""
    published_score: PublishedScore | None = None

    @property
    def fact_texts(self) -> list[tuple[str, str]]:
        return fact_texts(self.facts)

    @property
    def text(self) -> dict[str, Any]:
        """Its numbers, formatted for the page."""
        return {
            "rank": f"{self.rank} of {self.of}" if self.rank else "—" if is_about_judging(self.measure) else _("stale"),
            "rank_kind": {REPORTED: _("reported"), CLOSED: _("closed APIs")}.get(self.ranked_in, ""),
            "value": numbers.format_value(self.value, numbers.DECIMALS),
            "deviation": numbers.format_value(self.deviations.get(self.measure), numbers.DECIMALS),
            "baseline": numbers.format_value(self.baseline, numbers.DECIMALS),
            "best": numbers.format_value(self.best, numbers.DECIMALS),
            "delta": numbers.signed(self.delta, numbers.DECIMALS),
            "relative": numbers.signed(self.relative, 1, percent=True),
            "direction": self.direction,
            "word_pieces": numbers.format_value(self.word_pieces, numbers.DECIMALS),
            "word_pieces_delta": numbers.signed(self.word_pieces_delta, numbers.DECIMALS),
            "word_pieces_relative": numbers.signed(self.word_pieces_relative, 1, percent=True),
            "gap": gap_texts(self.contamination_gap),
            "latency": self._latency_text(),
            **self._certainty_texts(),
        }

    @property
    def direction(self) -> str:
        """CSS class of the difference from the baseline; see `outcome_class`."""
        p = self.certainty.p_baseline if self.certainty is not None else None
        direction, lost = numbers.direction(self.delta, self.measure), lost_class(self.certainty)
        return outcome_class(direction, p, lost, better=self.better_than_baseline)

    @property
    def is_lost_by_correction(self) -> bool:
        return self.certainty is not None and self.certainty.is_lost_by_correction

    def _latency_text(self) -> str:
        """Return the newest mean latency of whole searches in milliseconds, marked if doubtful; empty if unknown."""
        latest = next((item for item in reversed(self.measured) if not item.over_stored_runs), None)
        return time_html(latest.latency["mean"], is_doubtful=bool(latest.doubt)) if latest else ""

    def _certainty_texts(self) -> dict[str, str]:
        """Return interval, rank range, p-values, and W/T/L as texts, with dashes for unknown ones."""
        certainty = self.certainty
        if certainty is None:
            return dict.fromkeys(("interval", "ranks", "delta_interval", "p_baseline", "p_best", "tally"), "—")
        has_baseline = certainty.p_baseline is not None
        return {
            "interval": interval_text(certainty.low, certainty.high),
            "ranks": ranks_text(certainty) or "—",
            "delta_interval": difference_interval_text(certainty) or "—",
            "p_baseline": "—" if certainty.p_baseline is None else format_p_value(certainty.p_baseline),
            "p_best": "—" if certainty.p_best_corrected is None else format_p_value(certainty.p_best_corrected),
            "tally": f"{certainty.wins}/{certainty.ties}/{certainty.losses}" if has_baseline else "—",
        }


def job_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the properties shared by comparable entries of one job."""
    return row["submission_reference"], row["dataset_id"], row["comparison_group"]
