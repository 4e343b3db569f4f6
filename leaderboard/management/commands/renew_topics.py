"""`manage.py renew_topics SLUG`: start the next batch of a rolling benchmark and reveal the oldest hidden one."""

from functools import partial

from leaderboard.admin.topic_sources import TopicSourceAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, TopicSourceAdmin.renew_now, "rolling_benchmark")
