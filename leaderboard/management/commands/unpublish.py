"""`manage.py unpublish ENTRY`: off the board; its team reads the reason."""

from functools import partial

from leaderboard.admin.results import EntryAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, EntryAdmin.unpublish, "entry")
