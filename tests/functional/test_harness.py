"""What the other tests rely on: no way out of this machine, a real worker."""

from __future__ import annotations

import re
import socket
import time

import pytest
from django.conf import settings
from django.db import connection

from leaderboard.core import wakeup
from leaderboard.core.wakeup import DISPATCH
from tests.servers.network import OutsideConnection
from tests.servers.worker import WorkerProcesses


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


@pytest.mark.database
def test_a_real_worker_hears_messages(worker: WorkerProcesses) -> None:
    before = worker.log.stat().st_size
    assert wakeup.send_wakeup(DISPATCH, "dispatch")
    deadline = time.monotonic() + 60
    while not re.search(rf"{DISPATCH}\[\S+ succeeded", worker.log.read_text()[before:]):
        assert worker.worker.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
