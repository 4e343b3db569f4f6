"""The Celery application. It carries bells, never truth: the rows in the database say what is to be done."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "leaderboard.settings")

app = Celery("runboard")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
