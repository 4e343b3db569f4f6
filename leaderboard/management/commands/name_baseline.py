"""`manage.py name_baseline ENTRY`: make a result the baseline of its board."""

from functools import partial

from leaderboard.admin.results import EntryAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, EntryAdmin.make_baseline, "entry")
