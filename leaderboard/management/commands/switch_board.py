"""`manage.py switch_board DATASET`: use the judgements of its rescore on its board."""

from functools import partial

from leaderboard.admin.rescores import DECISIONS
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, DECISIONS["switch"], "rescore")
