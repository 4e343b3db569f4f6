"""Whether this code and the database are of one version: by the migrations that each knows of."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

_SHOWN = 3


@functools.cache
def known_migrations() -> frozenset[tuple[str, str]]:
    """App and name of each migration that this code has."""
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)


def mismatch() -> str:
    """What is between this code and the database, as a sentence; empty when they match.

    Raises django.db.Error when the database does not answer.
    """
    known = known_migrations()
    recorded = set(MigrationRecorder(connection).applied_migrations())
    if missing := known - recorded:
        return f"The database lacks {_named(missing)}: manage.py migrate brings it up to date."
    apps = {app for app, _ in known}
    if unknown := {each for each in recorded if each[0] in apps} - known:
        return f"The database has {_named(unknown)}, which this version does not know: it is older, to be upgraded."
    return ""


def _named(migrations: Iterable[tuple[str, str]]) -> str:
    names = [f"{app}.{name}" for app, name in sorted(migrations)]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
