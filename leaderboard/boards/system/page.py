"""Everything a system has: per dataset its values beside BM25 and the best of the same kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db.models import Exists, F, OuterRef, TextField
from django.db.models.functions import Cast

from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.boards.columns.gap import gap_texts
from leaderboard.boards.columns.significance import (
    difference_interval_text,
    format_p_value,
    interval_text,
    ranks_text,
)
from leaderboard.boards.model import rank_label
from leaderboard.boards.system.standing import RankedBoard, ranked_boards
from leaderboard.boards.wording import separation_text, significance_text
from leaderboard.core import anonymity
from leaderboard.core.text import numbers
from leaderboard.core.text.baselines import baseline_label
from leaderboard.models import DECLARED_NUMBERS, Entry, EntryQuerySet, Seed, System
from leaderboard.results.board_rows.entry_rows import EntryRow, short_citation
from leaderboard.results.board_rows.measurements import MeasuredEntry, system_measurements
from leaderboard.results.reported_facts import fact_texts, is_address
from leaderboard.results.significance.statements import (
    NOTHING_SAID,
    BoardStatements,
    Gap,
    differs,
    statements,
)
from leaderboard.results.significance.types import EntryCertainty
from leaderboard.results.values import is_about_judging

#: Columns of an entry that its result shows unchanged.
_AS_READ = (
    "provenance", "training", "is_baseline", "configuration", "locator", "facts", "seed_count", "deviations",
)  # fmt: skip


def system_facts(slug: str) -> dict[str, Any] | None:
    """What the system says of itself, None where there is no such system with anything public. One query."""
    facts = (
        System.objects.filter(slug=slug)
        .annotate(shown=Exists(EntryQuerySet(Entry).known().filter(system=OuterRef("pk"))))
        .values(
            "pk",
            *(field.attname for field in System._meta.concrete_fields),
            "team__name",
            "team__slug",
            "source__title",
            "source__authors",
            "source__year",
            "source__venue",
            "source__url",
            "source__bibtex",
            "variant_of__name",
            "variant_of__slug",
            "variant_of__anonymous_until",
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
            (each.label, facts[each.name], each.unit if each.per == 1.0 else "") for each in DECLARED_NUMBERS
        ],
    }


def results_of(system_id: int) -> list[Result]:
    """The system's public entries, by dataset. Seven queries at most, and those of their certainty."""
    mine = list(
        EntryQuerySet(Entry)
        .public()
        .filter(system_id=system_id)
        .order_by("dataset__name", "published_at", "pk")
        .values(
            "pk",
            "dataset_id",
            "dataset__name",
            "dataset__slug",
            "dataset__hidden",
            "dataset__measures",
            "scores",
            "figures",
            "comparison_group",
            "submission_reference",
            "system__anonymous_until",
            *_AS_READ,
            published=Cast("published_at", TextField()),
        )
    )
    seeds = _seeds([row["pk"] for row in mine if row["seed_count"]])
    if mine and mine[0]["system__anonymous_until"] is not None:
        seeds = {entry: anonymity.unnamed_seeds(found) for entry, found in seeds.items()}
    boards = ranked_boards({row["dataset_id"] for row in mine})
    scored = {row["dataset_id"] for row in mine if row["provenance"] != Entry.Provenance.REPORTED}
    said = statements(scored) if scored else {}
    measured: dict[int, list[MeasuredEntry]] = {}
    for one in system_measurements(system_id):
        measured.setdefault(one.entry_id, []).append(one)
    word_pieces = scores_by_job(mine)
    results = []
    for row in mine:
        entry = next((each for each in boards[row["dataset_id"]].entries if each.pk == row["pk"]), None)
        if entry is None or not row["scores"]:  # it left the board between two queries, or has no score
            continue
        extra = {
            "seeds": seeds.get(entry.pk, []),
            "measured": measured.get(entry.pk, []),
            "word_pieces": word_pieces.get(job_of(row), {}),
        }
        board = said.get(row["dataset_id"], NOTHING_SAID)
        results.append(_result({**row, **extra}, entry, boards[row["dataset_id"]], board))
    return results


def quarantined_of(system_id: int) -> list[dict[str, Any]]:
    """The system's results under quarantine: their dataset, configuration and the curator's reason. One query."""
    entries = EntryQuerySet(Entry).seen().filter(system_id=system_id, visibility=Entry.Visibility.QUARANTINED)
    rows = entries.order_by("dataset__name", "pk").values(
        "configuration",
        dataset_name=F("dataset__name"),
        dataset_slug=F("dataset__slug"),
        reason=F("moderation_reason"),
    )
    return [dict(row) for row in rows]


def _seeds(entries: Collection[int]) -> dict[int, list[tuple[str, dict[str, float]]]]:
    """The seeds of these entries, by label with what each has. One query, none where there is no set.

    Over hidden judgements none: rows of earlier releases may have values still.
    """
    found: dict[int, list[tuple[str, dict[str, float]]]] = {}
    told = Seed.objects.filter(entry__in=entries, entry__dataset__hidden=False)
    rows = told.values_list("entry_id", "label", "scores")
    for entry, label, scores in rows if entries else ():
        found.setdefault(entry, []).append((label, scores))
    return found


def _result(row: Mapping[str, Any], entry: EntryRow, board: RankedBoard, said: BoardStatements) -> Result:
    """Return the entry as the page shows it."""
    scores: dict[str, float] = row["scores"]
    own = [name for name in row["dataset__measures"] if name in scores]
    about_judging = [name for name in scores if is_about_judging(name) and name not in own]
    ordered = [*own, *about_judging] if own else [*scores]
    measure, value = ordered[0], scores[ordered[0]]
    standing, compared = board.standing(entry, measure), board.baseline(entry, measure)
    baseline = compared.scores[measure] if compared else None
    delta = numbers.difference(value, baseline)
    word_pieces = None if is_word_pieces(row["configuration"]) else row["word_pieces"].get(measure)
    reported = row["provenance"] == Entry.Provenance.REPORTED
    statement, tests = said.of(entry.pk, measure), said.tests(measure)
    others_tied = len(said.tied_with_best(measure) - {entry.pk})
    return Result(
        **{name: row[name] for name in _AS_READ},
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
        rank=standing.rank,
        of=standing.of,
        ranked_in=standing.ranked_in,
        published="" if reported else row["published"][:10],
        scores=[(name, scores[name]) for name in ordered[1:]],
        figures=[figure for figure in row["figures"] if figure["name"] not in scores],
        address=next(filter(is_address, (figure["locator"] for figure in row["figures"])), ""),
        measured=row["measured"],
        word_pieces=word_pieces,
        word_pieces_delta=numbers.difference(value, word_pieces),
        word_pieces_relative=numbers.relative_difference(value, word_pieces),
        seeds=_seed_results(row["seeds"], ordered),
        baseline_slug=compared.slug if compared else "",
        baseline_name=baseline_label(compared.system, row["dataset__name"]) if compared else "",
        certainty=tests.of(entry.pk) if tests is not None else None,
        better_than_baseline=statement.better,
        tied_with_best=statement.tied_with_best,
        significance=significance_text(statement, delta, measure),
        separation=separation_text(standing.rank, statement, others_tied),
        contamination_gap=statement.gap,
    )


def _seed_results(
    seeds: Iterable[tuple[str, Mapping[str, float]]], ordered: Sequence[str]
) -> list[SeedResult]:
    """Each seed with its values of the measures, the first of them apart."""
    first, *others = ordered
    return [
        SeedResult(label, scores.get(first), [(name, scores[name]) for name in others if name in scores])
        for label, scores in seeds
    ]


class SeedResult(NamedTuple):
    """One run of a seed set."""

    label: str
    value: float | None
    scores: list[tuple[str, float]]


class Result(NamedTuple):
    """One entry of the system. `rank` and `of` count entries of its own kind (`ranked_in`) with that measure, as the
    dataset's board does; without a rank it is stale.

    `word_pieces` is what BM25 over word pieces had in the same job, where that gives it. Of a seed set `value` is the
    mean over `seed_count` runs, `deviations` are the sample standard deviations by measure, and `seeds` the runs, of
    which nothing is told over hidden judgements. `certainty` is what was found of `measure`: None over hidden
    judgements, of reported figures, and as long as nothing was found. `significance` and `separation` say in words
    whether it differs from the baseline, and from the other results.
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
    #: Where the file is that a reported figure was read from; empty where it is printed.
    address: str = ""

    @property
    def fact_texts(self) -> list[tuple[str, str]]:
        """What papers report of such a system, as label and value."""
        return fact_texts(self.facts)

    @property
    def text(self) -> dict[str, Any]:
        """Its numbers as the page writes them."""
        return {
            "rank": f"{rank_label(self.rank, self.ranked_in)} of {self.of}" if self.rank else "",
            "value": numbers.format_value(self.value, numbers.DECIMALS),
            "deviation": numbers.format_value(self.deviations.get(self.measure), numbers.DECIMALS),
            "baseline": numbers.format_value(self.baseline, numbers.DECIMALS),
            "best": numbers.format_value(self.best, numbers.DECIMALS),
            "delta": numbers.signed(self.delta, numbers.DECIMALS),
            "relative": numbers.signed(self.relative, 1, percent=True),
            "direction": self._direction(),
            "word_pieces": numbers.format_value(self.word_pieces, numbers.DECIMALS),
            "word_pieces_delta": numbers.signed(self.word_pieces_delta, numbers.DECIMALS),
            "word_pieces_relative": numbers.signed(self.word_pieces_relative, 1, percent=True),
            "gap": gap_texts(self.contamination_gap),
            **self._certain(),
        }

    def _direction(self) -> str:
        """Return the class of the difference, as on boards."""
        direction = numbers.direction(self.delta, self.measure)
        untested = self.better_than_baseline is False and self.certainty is None and direction == "down"
        significant = self.better_than_baseline or differs(self.certainty)
        return direction if significant else "untested" if untested else "ns"

    def _certain(self) -> dict[str, str]:
        sure = self.certainty
        if sure is None:
            return dict.fromkeys(
                ("interval", "ranks", "delta_interval", "p_baseline", "p_best", "tally"), "—"
            )
        compared = sure.p_baseline is not None
        return {
            "interval": interval_text(sure.low, sure.high),
            "ranks": ranks_text(sure) or "—",
            "delta_interval": difference_interval_text(sure) or "—",
            "p_baseline": "—" if sure.p_baseline is None else format_p_value(sure.p_baseline),
            "p_best": "—" if sure.p_best_corrected is None else format_p_value(sure.p_best_corrected),
            "tally": f"{sure.wins}/{sure.ties}/{sure.losses}" if compared else "—",
        }


#: The label of that variant: first in its entry's configuration, before the submission's own.
LABEL = "bm25-wordpiece"


def is_word_pieces(configuration: str) -> bool:
    """Whether an entry of this configuration is that variant."""
    return configuration.split(" · ")[0] == LABEL


def scores_by_job(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], Mapping[str, float]]:
    """The scores of each such variant among the entries of a system, by what `job_of` says of the entries beside it."""
    return {job_of(row): row["scores"] for row in rows if is_word_pieces(row["configuration"])}


def job_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What entries of one job share, and entries that may be compared."""
    return row["submission_reference"], row["dataset_id"], row["comparison_group"]
