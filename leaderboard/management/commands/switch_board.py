"""`manage.py switch_board DATASET`: switch a board to the judgments of its rescore."""

from functools import partial

from leaderboard.admin.rescores import DECISIONS
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, DECISIONS["switch"], "rescore")
