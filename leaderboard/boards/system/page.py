"""Everything a system has: per dataset its values beside BM25 and the best of the same kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Exists, F, OuterRef, TextField
from django.db.models.functions import Cast

from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.boards.system.rank import RankedBoard, ranked_boards
from leaderboard.boards.system.result import (
    Result,
    SeedResult,
    is_word_pieces,
    job_of,
    scores_by_job,
)
from leaderboard.boards.wording import separation_text, significance_text
from leaderboard.core import anonymity
from leaderboard.core.text import deltas
from leaderboard.core.text.baselines import baseline_label
from leaderboard.models import DECLARED_NUMBERS, Entry, Seed, System
from leaderboard.models.results import EntryQuerySet
from leaderboard.results.board_rows.entry_rows import EntryRow, short_citation
from leaderboard.results.board_rows.measurements import MeasuredEntry, measured_of
from leaderboard.results.reported_facts import is_address
from leaderboard.results.significance.statements import NOTHING_SAID, BoardStatements, statements
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
    for one in measured_of(system_id):
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
    delta = deltas.absolute(value, baseline)
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
        relative=deltas.relative(value, baseline),
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
        word_pieces_delta=deltas.absolute(value, word_pieces),
        word_pieces_relative=deltas.relative(value, word_pieces),
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
