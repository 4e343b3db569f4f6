"""The Celery application, which transports wakeups only; work is defined by database rows."""

import os
from typing import Any

from celery import Celery
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "leaderboard.settings")
# Celery runs Django's checks, ignores their results, and loads all pages for them: 0.5 s and 25 MB per process.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")


def own_settings() -> dict[str, Any]:
    """Return our settings that begin with CELERY_, under Celery's names."""
    return {
        name.removeprefix("CELERY_").lower(): getattr(settings, name)
        for name in dir(settings)
        if name.startswith("CELERY_")
    }


app = Celery("runboard")
app.add_defaults(own_settings)  # A callable, because settings are not loaded yet.
app.autodiscover_tasks()
