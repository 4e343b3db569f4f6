"""`manage.py quarantine ENTRY`: remove a result from the ranking and publish the reason."""

from functools import partial

from leaderboard.admin.results import EntryAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, EntryAdmin.quarantine, "entry")
