"""Jobs that list and download collections for *Import dataset*.

They run on retrievers, because processes with judgments need no internet access. A curator confirms the result.
"""

from typing import Any

from evaluation.core.problems import InvalidContent
from leaderboard.datasets.problems import problem
from leaderboard.importing.collections.detection import detect_facts
from leaderboard.importing.collections.fetching import fetch_collection, list_repository
from leaderboard.importing.collections.importer import DiskSpaceError
from leaderboard.importing.collections.source import ImportOptions, Progress
from leaderboard.importing.collections.staging import store_download
from submissions.jobs.kinds.score import begin
from submissions.models import Job, State
from submissions.queue.lease import Lease, advance_claimed

#: Options that the source states.
_STATED = ("slug", "version_label", "source", "ir_datasets_id", "card")


def download_job(job: Job, lease: Lease) -> None:
    """List the source in the payload, or download, inspect, and stage its collection, and store the result there.

    The result is `listing` if the payload `only_lists`, else `collection`. A source that cannot be read rejects the job
    with the problems as its report.
    """
    begin(job, State.RETRIEVING, "fetching")
    source, split = job.payload["source"], job.payload["split"]
    # A repository may have judgments for other splits only. The curator can choose one of them.
    options = ImportOptions(slug="staged", split=split, collecting=source.startswith("hf:"))

    def progress(stage: str, share: float) -> None:
        lease.report_stage("fetching" if stage.startswith("fetching") else "reading", share, stage)

    try:
        if job.payload["only_lists"]:
            result = {"listing": list_repository(source, options)}
        else:
            result = {"collection": _download(source, options, progress)}
    except (InvalidContent, DiskSpaceError) as error:
        if not isinstance(error, InvalidContent):
            error = InvalidContent.build(problem("disk_full", str(error), "Ask an operator for more disk space."))
        line = "The collection was not downloaded."
        advance_claimed(job, State.REJECTED, line=line, report=error.report.as_dict(), error_code="not_fetched")
        return
    advance_claimed(job, State.DONE, progress=1.0, payload={**job.payload, **result})


def _download(source: str, options: ImportOptions, progress: Progress) -> dict[str, Any]:
    """Download a collection, and return its facts and the key of its staged file, as values for JSON."""
    with fetch_collection(source, options, progress) as (folder, completed_options):
        facts = detect_facts(folder, completed_options, progress)
        stated = {name: getattr(completed_options, name) for name in _STATED}
        return {"sha256": store_download(folder), "facts": facts, "options": stated}
