"""`manage.py merge_systems DUPLICATE INTO`: merge a duplicate system into another."""

from functools import partial

from leaderboard.management.curating import OperationCommand
from submissions.admin.results import MERGE

Command = partial(OperationCommand, MERGE, "duplicate")
