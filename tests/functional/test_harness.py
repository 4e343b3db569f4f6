"""What the other tests rely on: no way out of this machine, a database of their own."""

from __future__ import annotations

import socket

import pytest
from django.conf import settings
from django.db import connection

from tests.servers.network import OutsideConnection


def test_other_machines_cannot_be_reached() -> None:
    with pytest.raises(OutsideConnection):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    with pytest.raises(OutsideConnection):
        socket.getaddrinfo("example.org", 443)


def test_state_is_kept_apart_from_a_site_beside_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert settings.VAR != settings.BASE_DIR / "var"
    assert "runboard-tests-" in str(settings.VAR)


@pytest.mark.database
@pytest.mark.django_db
def test_the_database_is_the_one_asked_for(pytestconfig: pytest.Config) -> None:
    import os

    assert connection.vendor == os.environ.get("RUNBOARD_TEST_DATABASE", "sqlite")
