"""A tiny dataset with open judgements and real runs on it, stored and scored as a worker would."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from evaluation.measures.registry import SPEC_VERSION
from evaluation.runs.score import score_run
from leaderboard.core.storage.runs import store_run
from leaderboard.datasets.qrels import scoring_target
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, Entry, Run, System
from leaderboard.results.publishing.scored import publish_entry
from leaderboard.results.publishing.visibility import mark_published
from leaderboard.results.records import record_evaluation, record_run
from tests.leaderboard.entries import make_system
from tests.leaderboard.tiny_collection import write_folder

_numbers = count(1)


def open_dataset(
    tmp_path: Path, changes: dict[str, str | None] | None = None, slug: str = "tiny", **options: Any
) -> Dataset:
    """The tiny collection, imported with open judgements and published."""
    folder = write_folder(tmp_path / f"collection-{next(_numbers)}", changes or {})
    imported = import_dataset(folder, ImportOptions(slug=slug, **{"hidden": False, **options}))
    mark_published(imported.dataset)
    return Dataset.objects.select_related("current_version", "current_qrels").get(slug=slug)


def lines(rankings: dict[str, list[str]]) -> str:
    """A run that ranks the documents of each query so."""
    return "".join(
        f"{query} Q0 {document} {rank} {100 - rank} tag\n"
        for query, documents in rankings.items()
        for rank, document in enumerate(documents, 1)
    )


def run_for(
    dataset: Dataset,
    system: System | str,
    rankings: dict[str, list[str]],
    *,
    baseline: bool = False,
    public: bool = True,
) -> Entry:
    """The entry of a run that was stored and scored."""
    import tempfile

    assert dataset.current_version is not None
    assert dataset.current_qrels is not None
    with tempfile.NamedTemporaryFile("w", suffix=".run") as file:
        file.write(lines(rankings))
        file.flush()
        stored = store_run(Path(file.name))
        target = scoring_target(dataset.current_version, qrels=dataset.current_qrels)
        scored = score_run(Path(file.name), target, dataset.measures)
    run = record_run(
        version=dataset.current_version,
        system=make_system(system) if isinstance(system, str) else system,
        sha256=stored.sha256,
        origin=Run.Origin.UPLOADED,
        size=stored.size,
        lines=scored.report.statistics.lines,
    )
    evaluation = record_evaluation(
        run=run,
        qrels=dataset.current_qrels,
        specification=SPEC_VERSION,
        measures=[measure.name for measure in scored.measures],
        means=scored.means,
        per_query=scored.per_query,
        missing_queries=scored.missing_queries,
    )
    return publish_entry(
        Entry(
            provenance=Entry.Provenance.SCORED,
            public_wanted=public,
            submission_reference=f"open{next(_numbers)}",
        ),
        evaluation,
        is_baseline=baseline,
    )


def seeds_for(dataset: Dataset, system: System, seeds: dict[str, dict[str, list[str]]]) -> Entry:
    """The entry of a seed set: rankings by the seeds' labels."""
    evaluations = {}
    for label, rankings in seeds.items():
        entry = run_for(dataset, system, rankings)
        assert entry.evaluation is not None
        evaluations[label] = entry.evaluation
        entry.delete()
    return publish_entry(Entry(provenance=Entry.Provenance.SCORED, submission_reference="seeds"), evaluations)
