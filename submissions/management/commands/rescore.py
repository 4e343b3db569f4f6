"""`manage.py rescore DATASET`: every stored run evaluated on other judgements; the board stays until it is switched."""

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
    """Starts a rescore, or goes on with one that failed."""

    help = "Evaluate a dataset's stored runs on other judgements. switch_board or discard_rescore decides."

    why_help = "kept in the record"

    subjects = ("dataset",)

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("--note", default="", help="what changed the judgements; public after the switch")
        parser.add_argument("--qrels", type=int, help="their number; the newest")
        parser.add_argument(
            "--here", action="store_true", help="evaluate in this process, instead of waiting for a worker"
        )

    def curate(self, dataset: Dataset, **options: Any) -> str:
        failed = dataset.rescores.filter(state=Rescore.State.FAILED).first()
        wanted = Qrels.objects.filter(version=dataset.current_version_id)
        if dataset.current_qrels is not None:
            wanted = wanted.filter(split=dataset.current_qrels.split)
        if options["qrels"]:
            wanted = wanted.filter(number=options["qrels"])
        qrels = wanted.order_by("-number").first()
        if qrels is None:
            raise CommandError(f"{dataset} has no such judgements.")
        if failed is not None and failed.to_qrels_id == qrels.pk:
            resume_rescore(failed)
            return f"Rescore {failed.pk} goes on: {failed.done:,} of {failed.total:,} runs are evaluated."
        rescore = start_rescore(dataset, qrels, options["note"].strip())
        return f"Rescore {rescore.pk} of {dataset} on qrels v{qrels.number} was started."

    def handle(self, *args: Any, **options: Any) -> None:
        """Start, and where that is asked for evaluate."""
        super().handle(*args, **options)
        if not options["here"]:
            return
        create_requested_jobs()
        dataset = find_dataset(options["dataset"])
        own = Q(kind=Job.Kind.RESCORE, dataset=dataset)
        while (job := claim([Job.Queue.SCORE], f"{socket.gethostname()}:{os.getpid()}", own)) is not None:
            run_job(job)
        rescore = dataset.rescores.first()
        if rescore is not None:
            self.stdout.write(
                f"{rescore.done:,} of {rescore.total:,} runs, {len(rescore.lost):,} cannot be evaluated: "
                f"{rescore.get_state_display()}."
            )
