"""A database as the migrations before the present ones left it: its tables are the same, its records are not."""

from __future__ import annotations

from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from leaderboard.core.schema_version import EARLIER_LAST

EARLIER = frozenset(
    {
        ("leaderboard", "0001_initial"),
        ("leaderboard", "0002_model_results"),
        ("submissions", "0001_initial"),
        ("submissions", "0002_model_submissions"),
        *EARLIER_LAST,
    }
)


def record_earlier_migrations() -> None:
    """Let the database say that the earlier migrations made it."""
    recorder = MigrationRecorder(connection)
    recorder.migration_qs.filter(app__in=["leaderboard", "submissions"]).delete()
    for app, name in sorted(EARLIER):
        recorder.record_applied(app, name)
