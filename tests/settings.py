"""The site's settings for tests: plain static files, faster commits, and a faster queue.

Processes that tests start read the same settings. TEST_TIME_SCALE shortens all times of the queue, and
TEST_STATIC_STORAGE names another storage of static files.
"""

from __future__ import annotations

import os
from dataclasses import asdict

from leaderboard.settings import *  # noqa: F403
from leaderboard.settings import CELERY_BEAT_SCHEDULE, DATABASES, STORAGES
from leaderboard.settings.services import QueueTimes


def scaled(times: QueueTimes, scale: float) -> QueueTimes:
    """Return all times multiplied by `scale`."""
    return QueueTimes(
        **{
            name: tuple(scale * each for each in value) if isinstance(value, tuple) else scale * value
            for name, value in asdict(times).items()
        }
    )


QUEUE_TIMES = scaled(QueueTimes(), float(os.environ.get("TEST_TIME_SCALE", "1")))
for name in ("dispatch", "dispatch-all"):
    CELERY_BEAT_SCHEDULE[name]["schedule"] = CELERY_BEAT_SCHEDULE[name]["options"]["expires"] = QUEUE_TIMES.dispatch
STORAGES["staticfiles"]["BACKEND"] = os.environ.get(
    "TEST_STATIC_STORAGE", "django.contrib.staticfiles.storage.StaticFilesStorage"
)
_options = DATABASES["default"]["OPTIONS"]
if "init_command" in _options:  # SQLite: no test is about a loss of power
    _options["init_command"] = _options["init_command"].replace("synchronous=FULL", "synchronous=NORMAL")
else:  # A test in a transaction of its own may wait long on a busy machine.
    seconds = float(os.environ.get("TEST_IDLE_TRANSACTION_SECONDS", "3600"))
    _options["options"] = f"-c idle_in_transaction_session_timeout={round(seconds * 1000)}"
