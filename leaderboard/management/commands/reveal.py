"""`manage.py reveal SLUG`: publish the private part of a competition."""

from functools import partial

from leaderboard.admin.datasets import DatasetAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, DatasetAdmin.reveal, "dataset")
