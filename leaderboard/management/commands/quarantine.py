"""`manage.py quarantine ENTRY`: out of the ranking, with the reason for everyone to read."""

from functools import partial

from leaderboard.admin.results import EntryAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, EntryAdmin.quarantine, "entry")
