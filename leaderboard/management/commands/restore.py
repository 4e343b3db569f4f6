"""`manage.py restore ENTRY`: return a result to the board, or to its team if the team keeps it private."""

from functools import partial

from leaderboard.admin.results import EntryAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, EntryAdmin.restore, "entry")
