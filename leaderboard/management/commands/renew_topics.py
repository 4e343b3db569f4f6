"""`manage.py renew_topics SLUG`: open the next batch of a hidden benchmark that renews itself."""

from functools import partial

from leaderboard.admin.topic_sources import TopicSourceAdmin
from leaderboard.management.curating import OperationCommand

Command = partial(OperationCommand, TopicSourceAdmin.renew_now, "topic_source")
