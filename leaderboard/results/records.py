"""Record runs and their evaluations: the only writer of `Run` and `Evaluation`."""

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
    """How a run came: with which submission and round, and what its team said of it. Nothing, of one made here."""

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
    sent: RunOrigin = NO_SUBMISSION,
) -> Run:
    """The row of a stored run; the same bytes for the same system and configuration are one run.

    `reusable` lets others re-rank or fuse it; `built_from` are the runs, or their keys, that it was made of.
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
            **asdict(sent),
        },
    )
    if created and built_from:
        run.built_from.set(built_from)
    return run


def set_priority(submission_reference: str, priority: int | None) -> None:
    """Give a submission's runs another place in their team's order; pools that were drawn before stay as they are."""
    Run.objects.filter(submission_reference=submission_reference).update(priority=priority)


def delete_waiting_runs(submission_reference: str) -> None:
    """Drop a submission's runs that nothing was made of: they were taken back while they waited for judgements."""
    Run.objects.filter(
        submission_reference=submission_reference, evaluations=None, pools=None, used_by=None
    ).delete()


def set_waiting_visibility(submission_reference: str, *, public: bool) -> None:
    """Let everyone know of a submission's runs while they wait for the first judgements, or its team alone."""
    Run.objects.filter(submission_reference=submission_reference).update(public=public)


def set_reusable(runs: Iterable[int], *, reusable: bool) -> None:
    """Let others build on these runs from now on, or no longer; what was built on them stays, with its credit."""
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
    """The row of an evaluation; `per_query` has the shape (queries, measures). Made once, never changed."""
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
    """The stored values, shape (queries, measures), unrounded."""
    flat = np.frombuffer(zlib.decompress(bytes(evaluation.values)), dtype="<f8")
    return flat.reshape(evaluation.judged_queries, len(evaluation.measures))


def entry_evaluations(entry: Entry) -> list[Evaluation]:
    """Return an entry's evaluation, or those of its seeds; none for a reported one."""
    if entry.evaluation is not None:
        return [entry.evaluation]
    return [seed.evaluation for seed in entry.seeds.all()]


def mean_values(evaluations: Sequence[Evaluation]) -> tuple[list[str], NDArray[np.float64]]:
    """Return the measures that all evaluations have, and their mean values, shape (queries, measures), unrounded."""
    first, *others = evaluations
    if not others:
        return list(first.measures), per_query_values(first)
    measures = [name for name in first.measures if all(name in each.measures for each in others)]
    columns = [[each.measures.index(name) for name in measures] for each in evaluations]
    values = [per_query_values(each)[:, of_each] for each, of_each in zip(evaluations, columns, strict=True)]
    return measures, np.mean(values, axis=0)


def per_query_means(entry: Entry) -> tuple[list[str], NDArray[np.float64]]:
    """Return an entry's measures and values, shape (queries, measures), queries in the order of the judgements.

    For open judgements only: nothing here leaves the scorer otherwise. Of many entries, prefetch `evaluation` and
    `seeds__evaluation`.

    Raises:
        ValueError: For a reported entry, which has no values by query.
    """
    if evaluations := entry_evaluations(entry):
        return mean_values(evaluations)
    raise ValueError(f"{entry} was not scored here: it has no values by query")


def measure_values(entry: Entry, measure: str) -> NDArray[np.float64] | None:
    """Return an entry's unrounded values of one measure by query, or None if it has none."""
    measures, values = per_query_means(entry)
    return values[:, measures.index(measure)] if measure in measures else None


def entries_with_values(ids: Iterable[int]) -> dict[int, Entry]:
    """Read entries with their systems, runs, and values by query. One query, three if a seed set is among them."""
    rows = list(Entry.objects.filter(pk__in=set(ids)).select_related("evaluation__run", "system"))
    prefetch_related_objects([entry for entry in rows if entry.evaluation is None], "seeds__evaluation__run")
    return {entry.pk: entry for entry in rows}
