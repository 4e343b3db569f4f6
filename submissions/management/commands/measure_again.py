"""`manage.py measure_again ENTRY`: measure the costs of a result again without changing its scores."""

from functools import partial

from leaderboard.management.curating import OperationCommand
from submissions.admin.results import MeasuredEntryAdmin

Command = partial(OperationCommand, MeasuredEntryAdmin.measure_again, "entry")
