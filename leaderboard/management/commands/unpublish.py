"""`manage.py unpublish ENTRY`: remove a result from its board and tell its team the reason."""

from functools import partial

from leaderboard.admin.results import EntryAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, EntryAdmin.unpublish, "entry")
