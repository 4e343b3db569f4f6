"""The Celery application. It carries wakeups, never truth: the rows in the database say what is to be done."""

import os
from typing import Any

from celery import Celery
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "leaderboard.settings")


def own_settings() -> dict[str, Any]:
    """What Celery is told: our settings whose names begin with CELERY_, under its own names, and no others."""
    return {
        name.removeprefix("CELERY_").lower(): getattr(settings, name)
        for name in dir(settings)
        if name.startswith("CELERY_")
    }


app = Celery("runboard")
app.add_defaults(own_settings)  # asked for on first use: our settings are not read yet
app.autodiscover_tasks()
