"""Requests for another measurement of a result's costs, without another run or score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import Q

from leaderboard.core.audit import record
from leaderboard.models import Entry
from submissions.intake.run_records import MADE_BY
from submissions.jobs.kinds.handover import MEASURES, RetrievalResult
from submissions.models import TERMINAL, Checkpoint, Job, State
from submissions.queue.capability import UNPROTECTED
from submissions.queue.lifecycle import log_line
from submissions.queue.queue import next_turn, wake_worker

_RUN_MODELS = (Job.Kind.MODEL, Job.Kind.SAMPLE_MODEL)


class CannotMeasure(ValueError):
    """The costs of a result cannot be measured again; the text says why."""


@transaction.atomic
def request_measurement(entry: Entry) -> Job:
    """Queue a job that runs the entry's model again and measures it. The present costs remain until it ends.

    Call it as the requesting curator (`leaderboard.core.audit.acting`). Raises CannotMeasure.
    """
    evaluation = entry.evaluation
    made = evaluation.run.metadata.get(MADE_BY) if evaluation else None
    origin = Job.objects.filter(Q(entry=entry) | Q(further_entries=entry), kind__in=_RUN_MODELS).last()
    if evaluation is None or made is None or origin is None:
        raise CannotMeasure(f"{entry} was not made by a model that ran here, so nothing was timed.")
    if entry.visibility == Entry.Visibility.WITHDRAWN:
        raise CannotMeasure(f"{entry} was withdrawn.")
    if evaluation.run.version_id != entry.dataset.current_version_id:
        raise CannotMeasure(f"{entry} was made from earlier content of the dataset: run the model again.")
    if Job.objects.exclude(state__in=TERMINAL).filter(payload__measures=entry.pk).exists():
        raise CannotMeasure(f"{entry} is being measured already.")
    retrieval = RetrievalResult.from_payload(origin.payload)
    queue = retrieval.queue if retrieval else origin.queue  # a scorer may have ended it
    job = Job.objects.create(
        kind=Job.Kind.MODEL,
        queue=queue,
        turn=next_turn(queue, None),
        dataset=entry.dataset,
        state=State.QUEUED,
        validated=True,
        payload={
            MEASURES: entry.pk,
            "system": entry.system.slug,
            "engine": made["engine"],
            "parameters": made["parameters"],
            "checkpoint": _checkpoint(origin, made),
            "run_ids": origin.payload.get("run_ids", []),
            **({UNPROTECTED: True} if origin.payload.get(UNPROTECTED) else {}),
        },
        log=log_line(f"{entry} is measured again."),
    )
    record("measurement requested", entry, dataset=entry.dataset, entry=entry, after={"job": job.pk})
    wake_worker(queue)
    return job


def _checkpoint(origin: Job, made: Mapping[str, Any]) -> int | None:
    """Return the key of the checkpoint that the job ran, if any: the site's own one if it has no submission."""
    if origin.submission is not None:
        return origin.submission.checkpoint_id
    own = Checkpoint.objects.filter(team=None, model_sha256=made.get("checkpoint", {}).get("sha256", ""))
    return own.values_list("pk", flat=True).first()
