"""Admin of datasets that shows the jobs of their baselines."""

from typing import Any

from django.contrib import admin

from leaderboard.admin.datasets import DatasetAdmin
from leaderboard.models import Dataset
from submissions.checkpoints.hub import fetches
from submissions.models import TERMINAL, Job
from submissions.queue.queue import queue_position


@admin.register(Dataset)
class ImportingDatasetAdmin(DatasetAdmin):
    """Admin of datasets that shows baseline jobs, and can import collections if the site allows downloads."""

    def may_download(self) -> bool:
        """Return whether curators may import from the Hugging Face hub and with ir_datasets."""
        return fetches()

    def baseline_job(self, dataset: Dataset) -> dict[str, Any]:
        """Return the newest job that retrieves or scores the baseline: `row`, `is_active`, and `jobs_before`.

        The result is empty without jobs.
        """
        kinds = (Job.Kind.BASELINE, Job.Kind.SCORE)
        job = Job.objects.filter(dataset=dataset, submission=None, kind__in=kinds).order_by("-pk").first()
        if job is None:
            return {}
        return {"row": job, "is_active": job.state not in TERMINAL, "jobs_before": queue_position(job)}
