"""`manage.py import_runs FOLDER --dataset SLUG`: many runs at once, each by the participant that a CSV names."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from leaderboard.core.audit import actor
from leaderboard.management.curating import CurationCommand, find_dataset, list_problems, require_right
from leaderboard.models import Team, architecture_choices
from submissions.intake.bulk import BulkRefused, import_runs


class Command(CurationCommand):
    """Submits every run of a folder, or none."""

    help = (
        "Submit the runs of a folder for a dataset, in one act: all of them, or none where one has a problem."
    )

    right = "leaderboard.change_dataset"

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="its files are the runs, plain or compressed")
        parser.add_argument("--dataset", required=True, help="slug of the dataset that they are for")
        parser.add_argument("--team", required=True, help="slug of the team that sends them")
        parser.add_argument(
            "--architecture",
            required=True,
            choices=[value for value, _ in architecture_choices()],
            help="of the systems",
        )
        parser.add_argument(
            "--participants", type=Path, metavar="CSV", help="who made each run: run, participant[, name, architecture]"
        )  # fmt: skip
        parser.add_argument("--private", action="store_true", help="keep the results for the team")

    def curate(self, **options: Any) -> str:
        dataset, person = find_dataset(options["dataset"]), actor().person
        if dataset.hidden:  # no quota limits how much is learnt of its judgements
            require_right("leaderboard.read_qrels")
        team = Team.objects.filter(slug=options["team"], memberships__user=person).first()
        if team is None or person is None:
            raise CommandError(f"{actor().name} belongs to no team {options['team']}: give its slug.")
        for path in filter(None, (options["folder"], options["participants"])):
            if not path.exists():
                raise CommandError(f"{path}: no such file or folder")
        if not options["folder"].is_dir():
            raise CommandError(f"{options['folder']} is a file: name the folder of the runs.")
        try:
            taken, left_out = import_runs(
                options["folder"], dataset, submitter=person, team=team, participants=options["participants"],
                architecture=options["architecture"], public=not options["private"],
            )  # fmt: skip
        except BulkRefused as refused:
            files = [list_problems(f"{each.name}:", each.report.errors) for each in refused.reports]
            raise CommandError("\n".join(["Nothing was imported.", *files])) from refused
        remark = f" Left out, as not runs: {', '.join(left_out)}." if left_out else ""
        return (
            f"{len(taken):,} runs are submitted for {dataset.name}; one notice tells how they ended.{remark}"
        )
