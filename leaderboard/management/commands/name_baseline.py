"""`manage.py name_baseline ENTRY`: the result that others are compared with."""

from functools import partial

from leaderboard.admin.results import EntryAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, EntryAdmin.make_baseline, "entry")
