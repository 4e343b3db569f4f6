"""`manage.py restore ENTRY`: back on the board, or back to its team if that keeps it private."""

from functools import partial

from leaderboard.admin.results import EntryAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, EntryAdmin.restore, "entry")
