"""`manage.py discard_rescore DATASET`: end a rescore without changing the board; evaluations remain."""

from functools import partial

from leaderboard.admin.rescores import DECISIONS
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, DECISIONS["discard"], "rescore")
