"""`manage.py rescore DATASET`: evaluate stored runs with other judgments. The board stays until it is switched."""

import os
import socket
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import Q

from leaderboard.judgements.rescoring.campaigns import resume_rescore, start_rescore
from leaderboard.management.curating import CurationCommand, find_dataset
from leaderboard.models import Dataset, Qrels, Rescore
from submissions.jobs.runner import run_job
from submissions.models import Job
from submissions.queue.queue import claim, create_requested_jobs


class Command(CurationCommand):
    """Command that starts a rescore or resumes a failed one."""

    help = "Evaluate a dataset's stored runs with other judgments. Then use switch_board or discard_rescore."

    why_help = "reason, stored in the record"

    subjects = ("dataset",)

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("--note", default="", help="reason for the new judgments; public after the switch")
        parser.add_argument("--qrels", type=int, help="number of the judgments (default: newest)")
        parser.add_argument(
            "--here", action="store_true", help="evaluate in this process instead of waiting for a worker"
        )

    def curate(self, dataset: Dataset, **options: Any) -> str:
        """Start a rescore, or resume a failed one with the same judgments; return a sentence about it.

        The judgments are those with the number `--qrels`, or the newest. Raises CommandError if there are none.
        """
        failed_rescore = dataset.rescores.filter(state=Rescore.State.FAILED).first()
        candidates = Qrels.objects.filter(version=dataset.current_version_id)
        if dataset.current_qrels is not None:
            candidates = candidates.filter(split=dataset.current_qrels.split)
        if options["qrels"]:
            candidates = candidates.filter(number=options["qrels"])
        qrels = candidates.order_by("-number").first()
        if qrels is None:
            raise CommandError(f"{dataset} has no judgments with this number.")
        if failed_rescore is not None and failed_rescore.to_qrels_id == qrels.pk:
            resume_rescore(failed_rescore)
            return (
                f"Resumed rescore {failed_rescore.pk}: {failed_rescore.done:,} of {failed_rescore.total:,} runs "
                "are evaluated."
            )
        rescore = start_rescore(dataset, qrels, options["note"].strip())
        return f"Started rescore {rescore.pk} of {dataset} with qrels v{qrels.number}."

    def handle(self, *args: Any, **options: Any) -> None:
        """Start the rescore and, if `--here` is given, evaluate its runs in this process and print the outcome."""
        super().handle(*args, **options)
        if not options["here"]:
            return
        create_requested_jobs()
        dataset = find_dataset(options["dataset"])
        is_rescore_job = Q(kind=Job.Kind.RESCORE, dataset=dataset)
        while (job := claim([Job.Queue.SCORE], f"{socket.gethostname()}:{os.getpid()}", is_rescore_job)) is not None:
            run_job(job)
        rescore = dataset.rescores.first()
        if rescore is not None:
            self.stdout.write(
                f"{rescore.done:,} of {rescore.total:,} runs, {len(rescore.lost):,} cannot be evaluated: "
                f"{rescore.get_state_display()}."
            )
