"""The run that a curator names as the baseline of a dataset."""

from dataclasses import dataclass
from pathlib import Path

from django.utils.text import slugify

from evaluation.collections.document_ids import DocumentIds
from evaluation.core.problems import InvalidContent, InvalidRun
from evaluation.runs.score import ScoringTarget, check_run
from evaluation.runs.stored import run_name
from leaderboard.core.storage.runs import StoredRun, store_run
from leaderboard.core.work_requests import request_work
from leaderboard.datasets.problems import in_file
from leaderboard.importing.collections.inspection import InspectedCollection
from leaderboard.models import Architecture, Dataset, Entry, WorkRequest
from leaderboard.results.publishing.visibility import name_baseline
from leaderboard.systems.records import house_system


@dataclass(frozen=True, slots=True)
class BaselineRun:
    """A run that passed its check and is in the store."""

    name: str
    stored: StoredRun
    lines: int
    tag: str


def read_baseline_run(path: Path, inspected: InspectedCollection) -> BaselineRun:
    """Check the run against the collection and store it. Raises InvalidContent with its problems."""
    documents = DocumentIds.open(inspected.id_table) if inspected.id_table else None
    try:
        report = check_run(path, ScoringTarget(query_ids=inspected.topics.ids, document_ids=documents))
    except InvalidContent as error:
        raise InvalidContent.of(*in_file(path.name, error.report.problems)) from error
    if not report.valid:
        raise InvalidRun.of(*in_file(path.name, report.errors))
    tags = report.statistics.tags
    return BaselineRun(
        run_name(path, tags), store_run(path), report.statistics.lines, tags[0] if tags else ""
    )


def name_run_on_board(dataset: Dataset, run: BaselineRun) -> bool:
    """Make the result that the board has of this very run the baseline; False if there is none, or it is one already.

    A second result of the same run would be compared with itself, and count as one more test.
    """
    same = Entry.objects.public().filter(
        dataset=dataset, evaluation__qrels=dataset.current_qrels, evaluation__run__sha256=run.stored.sha256
    )
    # A team's own result goes before the site's, which was imported as the baseline alone.
    rows = same.select_related("dataset", "system").order_by("published_at", "pk")
    first = min(rows, key=lambda entry: entry.system.team_id is None, default=None)
    if first is None or first.is_baseline:
        return False
    name_baseline(first)
    return True


def request_baseline_run(dataset: Dataset, run: BaselineRun) -> bool:
    """Ask for the run to be scored as the baseline; False if it is the baseline, or asked for, already."""
    baselines = Entry.objects.filter(
        dataset=dataset, is_baseline=True, evaluation__qrels=dataset.current_qrels
    )
    if baselines.filter(evaluation__run__sha256=run.stored.sha256).exists():
        return False
    system = house_system(
        slug=slugify(f"{run.name}-{dataset.slug}".replace(".", "-"))[:120],
        name=f"{run.name[: max(1, 117 - len(dataset.name))]} ({dataset.name})"[:120],
        architecture=Architecture.OTHER,
        description=f"The run that the curator named as the baseline of {dataset.name}.",
        parameters={},
        training_declared=False,
    )
    payload = {
        "run_sha256": run.stored.sha256,
        "size": run.stored.size,
        "lines": run.lines,
        "system_slug": system.slug,
        "baseline": True,
        "tag": run.tag,
    }
    waiting = WorkRequest.objects.filter(kind=WorkRequest.Kind.SCORE, dataset=dataset, taken_at=None)
    if any(request.payload == payload for request in waiting):
        return False
    request_work(WorkRequest.Kind.SCORE, dataset, payload)
    return True
