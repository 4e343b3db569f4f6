"""The roles of docker/roles.sql in a test's own transaction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection

SCRIPT = Path(__file__).resolve().parents[1] / "docker/roles.sql"


def make_roles() -> None:
    """The three roles with their rights, in this test's transaction alone. Skips the test on SQLite, which has none."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no roles")
    text = re.sub(r"^(\\|--).*$", "", SCRIPT.read_text(), flags=re.MULTILINE)
    text = re.sub(r":'\w+'", "'letters'", text)
    with connection.cursor() as cursor:
        cursor.execute(text)
        cursor.execute(text)  # it may be run again
    call_command("database_rights", verbosity=0)


@contextmanager
def working_as(role: str) -> Iterator[None]:
    """The connection has this role's rights inside."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL ROLE " + role)
        try:
            yield
        finally:
            cursor.execute("RESET ROLE")
