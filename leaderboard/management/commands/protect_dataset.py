"""`manage.py protect_dataset SLUG --competition`: change the protection of hidden judgments."""

from functools import partial

from leaderboard.admin.datasets import DatasetAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, DatasetAdmin.change_protection, "dataset")
