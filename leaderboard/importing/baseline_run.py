"""The run that a curator names as the baseline of a dataset without documents."""

from __future__ import annotations

from pathlib import Path

from django.utils.text import slugify

from evaluation.errors import InvalidContent, InvalidRun
from evaluation.scoring import check_run
from leaderboard.importing.problems import in_file
from leaderboard.judgements import scoring_target
from leaderboard.models import Architecture, Dataset, DatasetVersion, Entry, WorkRequest
from leaderboard.runs import store_run
from leaderboard.systems import house_system
from leaderboard.work import request_work


def request_baseline_run(dataset: Dataset, version: DatasetVersion, path: Path) -> bool:
    """Check and store the run, and ask for it to be scored as the baseline; False if it is the baseline already.

    Raises InvalidContent with the problems of the run.
    """
    try:
        report = check_run(path, scoring_target(version))
    except InvalidContent as error:
        raise InvalidContent.of(*in_file(path.name, error.report.problems)) from error
    if not report.valid:
        raise InvalidRun.of(*in_file(path.name, report.errors))
    stored = store_run(path)
    baselines = Entry.objects.filter(
        dataset=dataset, is_baseline=True, evaluation__qrels=dataset.current_qrels
    )
    if baselines.filter(evaluation__run__sha256=stored.sha256).exists():
        return False
    name = path.name.split(".")[0]
    system = house_system(
        slug=slugify(f"{name}-{dataset.slug}")[:120],
        name=f"{name} ({dataset.name})"[:120],
        architecture=Architecture.OTHER,
        description=f"The run that the curator named as the baseline of {dataset.name}.",
        parameters={},
        training_declared=False,
    )
    tags = report.statistics.tags
    payload = {
        "run_sha256": stored.sha256,
        "size": stored.size,
        "lines": report.statistics.lines,
        "system_slug": system.slug,
        "baseline": True,
        "tag": tags[0] if tags else "",
    }
    pending = WorkRequest.objects.filter(dataset=dataset, kind=WorkRequest.Kind.SCORE, payload=payload)
    if not pending.filter(taken_at=None).exists():
        request_work(WorkRequest.Kind.SCORE, dataset, payload)
    return True
