"""A real worker hears what it is to do, and nothing else. These tests share it, since it starts slowly."""

from __future__ import annotations

import re
import time

import pytest
import redis

from leaderboard.celery import app
from leaderboard.core import wakeup
from leaderboard.core.wakeup import DISPATCH
from tests.servers.worker import WorkerProcesses


@pytest.mark.database
def test_a_real_worker_hears_messages(worker: WorkerProcesses) -> None:
    before = worker.log.stat().st_size
    assert wakeup.send_wakeup(DISPATCH, "dispatch")
    deadline = time.monotonic() + 60
    while not re.search(rf"{DISPATCH}\[\S+ succeeded", worker.log.read_text()[before:]):
        assert worker.worker.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.database
def test_a_worker_answers_to_nobody(worker: WorkerProcesses, broker: redis.Redis) -> None:
    """Not even where its broker permits everything, as the tests' does: nobody listens to any channel."""
    assert app.conf.worker_enable_remote_control is False
    assert broker.pubsub_numpat() == 0
    assert broker.pubsub_channels() == []
    assert not list(broker.scan_iter("*pidbox*"))
    app.control.shutdown()
    assert not app.control.inspect(timeout=0.5).conf()
    assert worker.worker.poll() is None
