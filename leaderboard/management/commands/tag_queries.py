"""`manage.py tag_queries SLUG --tags tags.tsv`: replace the tags of a dataset's queries."""

from functools import partial

from leaderboard.admin.datasets import DatasetAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, DatasetAdmin.tag_queries, "dataset")
