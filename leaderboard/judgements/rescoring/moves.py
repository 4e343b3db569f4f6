"""What a switch would do to each result of a board: which evaluation it would stand on, or why it would stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from evaluation.measures import SPEC_VERSION
from leaderboard.models import Entry, Evaluation, Rescore, Seed
from leaderboard.results.protection import policy_of
from leaderboard.results.values import (
    comparison_group,
    over_seeds,
    published_private_scores,
    published_scores,
    told_of_seed,
)


@dataclass(frozen=True, slots=True)
class Move:
    """An entry and what it comes to stand on: one evaluation, or one for each of its seeds.

    `before` are the evaluations that it stands on now. The numbers are published values.
    """

    entry: Entry
    seeds: Sequence[Seed]
    before: Sequence[Evaluation]
    after: Sequence[Evaluation]
    seed_scores: Sequence[dict[str, float]]
    scores: dict[str, float]
    deviations: dict[str, float]
    private_scores: dict[str, float]
    comparison_group: str
    missing_queries: int | None
    is_baseline: bool


@dataclass(frozen=True, slots=True)
class Stay:
    """An entry that keeps its numbers, and is stale after the switch unless it is a publication's."""

    entry: Entry
    why: str


def moves_of(rescore: Rescore) -> tuple[list[Move], list[Stay]]:
    """Every entry of the dataset, as it would move, or why it would not; in order of publication."""
    entries = _entries(rescore)
    new = {
        evaluation.run_id: evaluation
        for evaluation in Evaluation.objects.filter(qrels=rescore.to_qrels, specification=SPEC_VERSION)
        .select_related("run", "qrels")
        .defer("values")
        .prefetch_related("parts")
    }
    taken = set(Entry.objects.filter(evaluation__qrels=rescore.to_qrels).values_list("evaluation", flat=True))
    taken |= set(Seed.objects.filter(evaluation__qrels=rescore.to_qrels).values_list("evaluation", flat=True))
    found: dict[int, Move | Stay] = {}
    # Of two results of one run that on the present judgements counts: an older one would only repeat it.
    for entry in sorted(entries, key=lambda each: not _on(each, rescore.from_qrels_id)):
        why = _stays(entry, rescore, new, taken)
        if why:
            found[entry.pk] = Stay(entry, why)
        else:
            move = _move(entry, rescore, new)
            taken |= {evaluation.pk for evaluation in move.after}
            found[entry.pk] = move
    ordered = [found[entry.pk] for entry in entries]
    moves = [each for each in ordered if isinstance(each, Move)]
    return _with_one_baseline(moves), [each for each in ordered if isinstance(each, Stay)]


def _entries(rescore: Rescore) -> list[Entry]:
    entries = (
        Entry.objects.filter(dataset=rescore.dataset_id)
        .select_related("system", "source", "evaluation__run__version", "evaluation__qrels")
        .defer("evaluation__values")
        .order_by("published_at", "pk")
    )
    seeds: dict[int, list[Seed]] = {}
    for seed in (
        Seed.objects.filter(entry__dataset=rescore.dataset_id)
        .select_related("evaluation__run__version", "evaluation__qrels")
        .defer("evaluation__values")
    ):
        seeds.setdefault(seed.entry_id, []).append(seed)
    found = list(entries)
    for entry in found:
        entry.__dict__["of_seeds"] = seeds.get(entry.pk, [])
    return found


def _seeds(entry: Entry) -> list[Seed]:
    return entry.__dict__["of_seeds"]


def _evaluations(entry: Entry) -> list[Evaluation]:
    """What the entry stands on; nothing for a publication's."""
    if entry.evaluation is not None:
        return [entry.evaluation]
    return [seed.evaluation for seed in _seeds(entry)]


def _on(entry: Entry, qrels_id: int) -> bool:
    return any(evaluation.qrels_id == qrels_id for evaluation in _evaluations(entry))


def _stays(entry: Entry, rescore: Rescore, new: dict[int, Evaluation], taken: set[int]) -> str:
    """Why the entry cannot move; empty where it can."""
    evaluations, target = _evaluations(entry), rescore.to_qrels
    if not evaluations:
        return "a publication's figure: its run is not here"
    first = evaluations[0]
    if first.run.version_id != target.version_id:
        return f"scored on version {first.run.version.number} of the dataset"
    if first.qrels.split != target.split:
        return f"scored on the split {first.qrels.split}"
    if first.qrels_id == target.pk:
        return "scored on these judgements before"
    for evaluation in evaluations:
        if evaluation.run_id not in new:
            return rescore.lost.get(str(evaluation.run_id), "not evaluated yet")
        if new[evaluation.run_id].pk in taken:
            return "another result of the same run takes its place"
    return ""


def _move(entry: Entry, rescore: Rescore, new: dict[int, Evaluation]) -> Move:
    dataset, before = rescore.dataset, _evaluations(entry)
    after = [new[evaluation.run_id] for evaluation in before]
    held = entry.visibility == Entry.Visibility.HELD  # what is held has no published value, now or then
    published = [{} if held else published_scores(evaluation, dataset) for evaluation in after]
    scores = published[0]
    deviations: dict[str, float] = {}
    if _seeds(entry):
        scores, deviations = over_seeds(published, hidden=dataset.hidden, step=policy_of(dataset).step)
    private: dict[str, float] = {}
    if entry.private_scores:  # revealed before: what is told of the other part is of the same judgements
        found = [published_private_scores(evaluation, dataset) for evaluation in after]
        private = over_seeds(found, hidden=dataset.hidden)[0] if _seeds(entry) else found[0]
    return Move(
        entry=entry,
        seeds=_seeds(entry),
        before=before,
        after=after,
        seed_scores=[told_of_seed(each, dataset) for each in published],
        scores=scores,
        deviations=deviations,
        private_scores=private,
        comparison_group=comparison_group(after[0]),
        missing_queries=None if dataset.hidden else max(each.missing_queries for each in after),
        is_baseline=entry.is_baseline and before[0].qrels_id == rescore.from_qrels_id,
    )


def _with_one_baseline(moves: Iterable[Move]) -> list[Move]:
    """All of them come into one comparison group, which has one baseline: the last that everyone sees."""
    moves = list(moves)
    named = [each for each in moves if each.is_baseline]
    public = [each for each in named if each.entry.visibility == Entry.Visibility.PUBLIC]
    chosen = (public or named)[-1:]
    return [
        each
        if not each.is_baseline or any(each is one for one in chosen)
        else replace(each, is_baseline=False)
        for each in moves
    ]
