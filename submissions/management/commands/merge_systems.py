"""`manage.py merge_systems DUPLICATE INTO`: two systems that are one."""

from functools import partial

from leaderboard.management.curating import OperationCommand
from submissions.admin.results import MERGE

Command = partial(OperationCommand, MERGE, "duplicate")
