"""`manage.py import_runs FOLDER --dataset SLUG`: import runs of many participants."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from leaderboard.core.audit import actor
from leaderboard.management.curating import CurationCommand, find_dataset, list_problems, require_right
from leaderboard.models import Team, architecture_choices
from submissions.intake.bulk import BulkRefused, import_runs


class Command(CurationCommand):
    """Command that submits all runs of a folder, or none."""

    help = "Submit the runs in a folder for a dataset: all of them, or none if any has a problem."

    right = "leaderboard.change_dataset"

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="folder with the run files, plain or compressed")
        parser.add_argument("--dataset", required=True, help="slug of the dataset")
        parser.add_argument("--team", required=True, help="slug of the submitting team")
        parser.add_argument(
            "--architecture",
            required=True,
            choices=[value for value, _ in architecture_choices()],
            help="architecture of the systems",
        )
        parser.add_argument(
            "--participants",
            type=Path,
            metavar="CSV",
            help="participants of the runs: run, participant[, name, architecture]",
        )
        parser.add_argument("--private", action="store_true", help="show the results only to the team")

    def curate(self, **options: Any) -> str:
        """Submit all runs of the folder for the curator's team and return a summary.

        Raises CommandError, in which case nothing is imported, if an argument or a run is invalid.
        """
        dataset, person = find_dataset(options["dataset"]), actor().person
        if dataset.hidden:  # no quota limits how much an import reveals of its judgments
            require_right("leaderboard.read_qrels")
        team = Team.objects.filter(slug=options["team"], memberships__user=person).first()
        if team is None or person is None:
            raise CommandError(f"{actor().name} is not a member of a team {options['team']}. Enter the slug of a team.")
        for path in filter(None, (options["folder"], options["participants"])):
            if not path.exists():
                raise CommandError(f"{path}: no such file or folder")
        if not options["folder"].is_dir():
            raise CommandError(f"{options['folder']} is a file. Enter the folder that contains the runs.")
        try:
            submissions, skipped_names = import_runs(
                options["folder"],
                dataset,
                submitter=person,
                team=team,
                participants=options["participants"],
                architecture=options["architecture"],
                public=not options["private"],
            )
        except BulkRefused as refusal:
            files = [list_problems(f"{file.name}:", file.report.errors) for file in refusal.reports]
            raise CommandError("\n".join(["No runs were imported.", *files])) from refusal
        remark = f" Skipped files, which are not runs: {', '.join(skipped_names)}." if skipped_names else ""
        return (
            f"Runs submitted for {dataset.name}: {len(submissions):,}. You will get one notice about their "
            f"results.{remark}"
        )
