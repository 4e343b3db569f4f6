"""Admin of datasets that shows the jobs of their baselines, and downloads collections."""

from typing import Any

from django.contrib import admin

from leaderboard.admin.datasets import DatasetAdmin
from leaderboard.models import Dataset
from submissions.checkpoints.hub import fetches
from submissions.models import TERMINAL, Job, State
from submissions.queue.queue import queue_position, request_cancel, wake_worker


@admin.register(Dataset)
class ImportingDatasetAdmin(DatasetAdmin):
    """Admin of datasets that shows baseline jobs, and can import collections if the site allows downloads."""

    def may_download(self) -> bool:
        """Return whether curators may import from the Hugging Face hub and with ir_datasets."""
        return fetches()

    def baseline_job(self, dataset: Dataset) -> dict[str, Any]:
        """Describe the newest job that retrieves or scores the baseline; empty without jobs."""
        kinds = (Job.Kind.BASELINE, Job.Kind.SCORE)
        return _describe(Job.objects.filter(dataset=dataset, submission=None, kind__in=kinds).order_by("-pk").first())

    def request_download(self, source: str, split: str, dataset: Dataset | None, *, only_lists: bool) -> int:
        """Queue a job that downloads a source, or only lists a repository on the hub; return its key."""
        payload = {"source": source, "split": split, "only_lists": only_lists}
        columns = {"state": State.QUEUED, "validated": True, "dataset": dataset, "payload": payload}
        job = Job.objects.create(kind=Job.Kind.DOWNLOAD, queue=Job.Queue.CPU, **columns)
        wake_worker(job.queue)
        return job.pk

    def download_job(self, key: int) -> dict[str, Any]:
        """Describe a job of `request_download`. Empty if the job was deleted, a day after its end."""
        return _describe(Job.objects.filter(pk=key, kind=Job.Kind.DOWNLOAD).first())

    def cancel_download(self, key: int) -> None:
        for job in Job.objects.filter(pk=key, kind=Job.Kind.DOWNLOAD):
            request_cancel(job)


def _describe(job: Job | None) -> dict[str, Any]:
    """Return `row`, `is_active`, and `jobs_before` of a job; empty without one."""
    if job is None:
        return {}
    return {"row": job, "is_active": job.state not in TERMINAL, "jobs_before": queue_position(job)}
