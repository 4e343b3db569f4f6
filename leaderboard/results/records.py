"""Storage of runs and their evaluations; the only writer of `Run` and `Evaluation`."""

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from django.db.models import prefetch_related_objects
from numpy.typing import NDArray

from leaderboard.models import DatasetVersion, Entry, Evaluation, Qrels, Run, System


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """The submission and round that a run belongs to, with its team's metadata; empty for runs produced by Runboard."""

    submission_reference: str = ""
    public: bool = False
    round_id: int | None = None
    late: bool = False
    run_type: str = ""
    priority: int | None = None


NO_SUBMISSION = RunOrigin()


def record_run(
    *,
    version: DatasetVersion,
    system: System,
    sha256: str,
    origin: Run.Origin,
    size: int,
    lines: int,
    tag: str = "",
    configuration: str = "",
    metadata: Mapping[str, Any] | None = None,
    reusable: bool = False,
    built_from: Collection[Run | int] = (),
    run_origin: RunOrigin = NO_SUBMISSION,
) -> Run:
    """Return the row of a stored run, creating it if necessary.

    The same bytes for the same system and configuration are one run. `reusable` lets others re-rank or fuse the run,
    and `built_from` are the input runs of a re-ranking or fusion, or their keys.
    """
    run, created = Run.objects.get_or_create(
        version=version,
        system=system,
        sha256=sha256,
        configuration=configuration,
        defaults={
            "origin": origin,
            "size": size,
            "lines": lines,
            "tag": tag[:120],
            "metadata": dict(metadata or {}),
            "reusable": reusable,
            **asdict(run_origin),
        },
    )
    if created and built_from:
        run.built_from.set(built_from)
    return run


def set_priority(submission_reference: str, priority: int | None) -> None:
    """Set the priority of a submission's runs within their team; pools drawn earlier do not change."""
    Run.objects.filter(submission_reference=submission_reference).update(priority=priority)


def delete_waiting_runs(submission_reference: str) -> None:
    """Delete the unused runs of a submission that was withdrawn before the first judgments."""
    Run.objects.filter(submission_reference=submission_reference, evaluations=None, pools=None, used_by=None).delete()


def set_waiting_visibility(submission_reference: str, *, public: bool) -> None:
    """Set whether a submission's runs are public while they wait for the first judgments."""
    Run.objects.filter(submission_reference=submission_reference).update(public=public)


def set_reusable(runs: Iterable[int], *, reusable: bool) -> None:
    """Allow or forbid reuse of runs; existing runs built from them remain, with credit."""
    Run.objects.filter(pk__in=list(runs)).update(reusable=reusable)


def record_evaluation(
    *,
    run: Run,
    qrels: Qrels,
    specification: str,
    measures: Sequence[str],
    means: Mapping[str, float],
    per_query: NDArray[np.float64],
    missing_queries: int,
) -> Evaluation:
    """Return the row of an evaluation, creating it if necessary; existing rows never change.

    `per_query` has the shape (queries, measures).
    """
    evaluation, _ = Evaluation.objects.get_or_create(
        run=run,
        qrels=qrels,
        specification=specification,
        defaults={
            "measures": list(measures),
            "means": dict(means),
            "values": zlib.compress(np.ascontiguousarray(per_query, dtype="<f8").tobytes(), 1),
            "judged_queries": per_query.shape[0],
            "missing_queries": missing_queries,
        },
    )
    return evaluation


def per_query_values(evaluation: Evaluation) -> NDArray[np.float64]:
    """Return the stored, unrounded values of shape (queries, measures)."""
    flat = np.frombuffer(zlib.decompress(bytes(evaluation.values)), dtype="<f8")
    return flat.reshape(evaluation.judged_queries, len(evaluation.measures))


def entry_evaluations(entry: Entry) -> list[Evaluation]:
    """Return an entry's evaluation, or those of its seeds; empty for a reported entry."""
    if entry.evaluation is not None:
        return [entry.evaluation]
    return [seed.evaluation for seed in entry.seeds.all()]


def mean_values(evaluations: Sequence[Evaluation]) -> tuple[list[str], NDArray[np.float64]]:
    """Return the measures that all evaluations have, and their mean unrounded values, of shape (queries, measures)."""
    first_evaluation, *others = evaluations
    if not others:
        return list(first_evaluation.measures), per_query_values(first_evaluation)
    measures = [name for name in first_evaluation.measures if all(name in other.measures for other in others)]
    columns = [[evaluation.measures.index(name) for name in measures] for evaluation in evaluations]
    values = [
        per_query_values(evaluation)[:, indices] for evaluation, indices in zip(evaluations, columns, strict=True)
    ]
    return measures, np.mean(values, axis=0)


def per_query_means(entry: Entry) -> tuple[list[str], NDArray[np.float64]]:
    """Return an entry's measures and its values of shape (queries, measures), in the query order of the qrels.

    Use this for open judgments only: with hidden ones, per-query values must not leave the scorer. For several
    entries, prefetch `evaluation` and `seeds__evaluation`.

    Raises:
        ValueError: For a reported entry, which has no per-query values.
    """
    if evaluations := entry_evaluations(entry):
        return mean_values(evaluations)
    raise ValueError(f"{entry} was not scored by Runboard, so it has no per-query values")


def measure_values(entry: Entry, measure: str) -> NDArray[np.float64] | None:
    """Return an entry's unrounded per-query values of one measure, or None if it lacks the measure."""
    measures, values = per_query_means(entry)
    return values[:, measures.index(measure)] if measure in measures else None


def entries_with_values(ids: Iterable[int]) -> dict[int, Entry]:
    """Return entries by id with their systems, runs, and per-query values, in one query (three with seed sets)."""
    rows = list(Entry.objects.filter(pk__in=set(ids)).select_related("evaluation__run", "system"))
    prefetch_related_objects([entry for entry in rows if entry.evaluation is None], "seeds__evaluation__run")
    return {entry.pk: entry for entry in rows}
