"""Everything a system has: per dataset its values beside BM25 and the best of the same kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from django.db.models import Count, Q, TextField
from django.db.models.functions import Cast

from leaderboard.boards import deltas
from leaderboard.boards.dataset_board import ARCHITECTURES
from leaderboard.boards.measured import Measured, measured_of
from leaderboard.boards.measures import better
from leaderboard.boards.reading import short_citation
from leaderboard.boards.system_result import Result, SeedResult
from leaderboard.boards.word_pieces import is_word_pieces, job_of, scores_by_job
from leaderboard.models import Entry, Seed, System
from leaderboard.models.results import EntryQuerySet


class _Other(NamedTuple):
    """An entry to compare with."""

    dataset_id: int
    comparison_group: str
    provenance: str
    is_baseline: bool
    system: str
    slug: str
    scores: Mapping[str, float]


def system_facts(slug: str) -> dict[str, Any] | None:
    """What the system says of itself, None where there is no such system with anything public. One query."""
    facts = (
        System.objects.filter(slug=slug)
        .annotate(shown=Count("entries", filter=~Q(entries__visibility=Entry.Visibility.PRIVATE)))
        .values(
            "pk",
            "slug",
            "name",
            "architecture",
            "description",
            "parameters",
            "team__name",
            "team__slug",
            "source__title",
            "source__authors",
            "source__year",
            "source__venue",
            "source__url",
            "source__bibtex",
            "training_declared",
            "training_datasets",
            "backbone",
            "dimension",
            "maximum_length",
            "paper_url",
            "code_url",
            "model_url",
            "licence",
            "bibtex",
            "authors",
            "year",
            "variant_of__name",
            "variant_of__slug",
            "open_weights",
            "commercial_use",
            "closed_api",
            "parameter_count",
            "training_compute",
            "adapted_to",
            "shown",
        )
        .first()
    )
    if facts is None or not facts["shown"]:
        return None
    return {
        **facts,
        "architecture_label": ARCHITECTURES.get(facts["architecture"], facts["architecture"]),
        "cited": short_citation(facts["source__authors"], facts["source__year"]),
        "year_shown": facts["year"] or facts["source__year"],
    }


def results_of(system_id: int) -> list[Result]:
    """The system's public entries, by dataset. Five queries at most."""
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
            "facts",
            "comparison_group",
            "provenance",
            "training",
            "is_baseline",
            "configuration",
            "locator",
            "submission_reference",
            "seed_count",
            "deviations",
            published=Cast("published_at", TextField()),
        )
    )
    seeds = _seeds([row["pk"] for row in mine if row["seed_count"]])
    others = _others({row["dataset_id"] for row in mine})
    measured: dict[int, list[Measured]] = {}
    for one in measured_of(system_id):
        measured.setdefault(one.entry_id, []).append(one)
    word_pieces = scores_by_job(mine)
    results = (
        _result(
            {**row, "seeds": seeds.get(row["pk"], [])},
            others,
            measured.get(row["pk"], []),
            word_pieces.get(job_of(row), {}),
        )
        for row in mine
    )
    return [result for result in results if result is not None]


def _seeds(entries: Collection[int]) -> dict[int, list[tuple[str, dict[str, float]]]]:
    """The seeds of these entries, by label with what each has. One query, none where there is no set."""
    found: dict[int, list[tuple[str, dict[str, float]]]] = {}
    rows = Seed.objects.filter(entry__in=entries).values_list("entry_id", "label", "scores")
    for entry, label, scores in rows if entries else ():
        found.setdefault(entry, []).append((label, scores))
    return found


def _others(dataset_ids: Iterable[int]) -> dict[int, list[_Other]]:
    rows = (
        EntryQuerySet(Entry)
        .public()
        .filter(dataset_id__in=list(dataset_ids))
        .order_by("published_at", "pk")
        .values_list(
            "dataset_id",
            "comparison_group",
            "provenance",
            "is_baseline",
            "system__name",
            "system__slug",
            Cast("scores", TextField()),
        )
    )
    found: dict[int, list[_Other]] = {}
    for row in rows:
        other = _Other._make((*row[:-1], orjson.loads(row[-1])))
        found.setdefault(other.dataset_id, []).append(other)
    return found


def _result(
    row: Mapping[str, Any],
    others: Mapping[int, list[_Other]],
    measured: list[Measured],
    of_word_pieces: Mapping[str, float],
) -> Result | None:
    scores: dict[str, float] = row["scores"]
    ordered = [name for name in row["dataset__measures"] if name in scores] or list(scores)
    if not ordered:
        return None
    measure, group = ordered[0], row["comparison_group"]
    reported = row["provenance"] == Entry.Provenance.REPORTED
    peers = [
        other
        for other in others[row["dataset_id"]]
        if measure in other.scores
        and (other.provenance == "reported" if reported else other.comparison_group == group)
    ]
    sign = -1 if better(measure) == "lower" else 1
    best = max(peers, key=lambda other: sign * other.scores[measure])
    value = scores[measure]
    compared = next((other for other in peers if other.is_baseline and other.comparison_group == group), None)
    baseline = compared.scores[measure] if compared else None
    word_pieces = None if is_word_pieces(row["configuration"]) else of_word_pieces.get(measure)
    return Result(
        dataset=row["dataset__name"],
        dataset_slug=row["dataset__slug"],
        measure=measure,
        value=value,
        baseline=baseline,
        delta=deltas.absolute(value, baseline),
        relative=deltas.relative(value, baseline),
        best=best.scores[measure],
        best_system=best.system,
        best_slug=best.slug,
        rank=1 + sum(sign * other.scores[measure] > sign * value for other in peers),
        of=len(peers),
        decimals=3 if reported or row["dataset__hidden"] else 4,
        provenance=row["provenance"],
        training=row["training"],
        is_baseline=row["is_baseline"],
        configuration=row["configuration"],
        locator=row["locator"],
        submission=row["submission_reference"],
        published="" if reported else row["published"][:10],
        scores=[(name, scores[name]) for name in ordered[1:]],
        figures=[figure for figure in row["figures"] if figure["name"] not in scores],
        facts=row["facts"],
        measured=measured,
        word_pieces=word_pieces,
        word_pieces_delta=deltas.absolute(value, word_pieces),
        word_pieces_relative=deltas.relative(value, word_pieces),
        deviations=row["deviations"],
        seeds=[
            SeedResult(
                label,
                of_seed.get(measure),
                [(name, of_seed[name]) for name in ordered[1:] if name in of_seed],
            )
            for label, of_seed in row["seeds"]
        ],
        baseline_slug=compared.slug if compared else "",
    )
