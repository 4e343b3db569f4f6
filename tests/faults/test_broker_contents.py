"""Workers on a broker into which others write, and a retriever with the rights of compose.yaml."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from django.conf import settings

from leaderboard.core.wakeup import send_wakeup
from leaderboard.management.supervisor import services
from leaderboard.settings.services import cache_location
from submissions.queue.queue import WORK
from tests.docker.compose_broker import start_compose_broker
from tests.faults.site import database_environment
from tests.servers import processes

#: Entries of a queue that Celery and Kombu cannot read as messages.
BROKEN = (
    b"", b"no JSON", b"{", b"[]", b"7", b'"text"', b"null", b"{}", b"[" * 100_000, b'{"body": 1}', b"\xff\xfe",
    b'{"body": "", "headers": {}, "properties": {}}',
    b'{"body": "x", "headers": 5, "properties": {"delivery_info": 3, "delivery_tag": []}}',
    b'{"body": "!", "content-encoding": "utf-8", "content-type": "application/x-python-serialize", '
    b'"headers": {"task": "runboard.work"}, '
    b'"properties": {"body_encoding": "base64", "delivery_tag": "1", "delivery_info": {}}}',
)  # fmt: skip


def test_a_retriever_sends_wakeups_and_works_on_its_own_queue(
    transactional_db: None, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    compose_broker = start_compose_broker(tmp_path, request.addfinalizer)
    environment = {
        **database_environment(),
        "REDIS_URL": compose_broker.retriever_url,
        "PYTHONUNBUFFERED": "1",
    }
    sender = (
        "import django; django.setup(); from leaderboard.core.wakeup import count_pending, send_wakeup; "
        "assert all(send_wakeup('runboard.work', queue, queue=queue) for queue in ('score', 'notices', 'cpu')); "
        "assert count_pending('score') == 1"
    )
    subprocess.run([sys.executable, "-c", sender], env={**os.environ, **environment}, check=True)
    log = tmp_path / "retriever.log"
    command = services.worker("retriever", "cpu", 1, environment)
    process = processes.start(command.arguments, log, command.environment)
    try:
        with redis.Redis.from_url(compose_broker.site_url) as client:
            processes.wait_until(lambda: not client.llen("cpu"), process, log, 180)
            assert client.llen("score") == client.llen("notices") == 1
    finally:
        processes.stop(process)
    assert compose_broker.refusals() == []


@pytest.fixture
def scorer(
    transactional_db: None, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A Celery worker as `make run` starts it, ready, and its log. With 0 as a parameter it has no pool."""
    size = getattr(request, "param", 1)
    log = tmp_path / "scorer.log"
    command = services.worker("scorer", "score", size, {**database_environment(), "PYTHONUNBUFFERED": "1"})
    process = processes.start(command.arguments, log, command.environment)
    processes.wait_until(lambda: " ready." in log.read_text(errors="replace"), process, log, 180)
    yield process, log
    processes.stop(process)


def takes_messages(client: redis.Redis) -> bool:
    """Whether a wakeup is taken from the queue within a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if send_wakeup(WORK, "score", queue="score"):
            time.sleep(0.5)
            if client.type("score") == b"none":
                return True
        time.sleep(0.2)
    return False


def test_a_worker_outlives_queues_of_another_type(scorer: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, log = scorer
    with redis.Redis.from_url(cache_location(settings.REDIS_URL)) as client:
        for key in ("score", "score\x06\x163"):
            client.set(key, "clobber")
            # The worker waits for messages with BRPOP, which sees the key when it asks again.
            client.lpush("score\x06\x169", "no JSON")
            assert takes_messages(client), processes.last_lines(log, 20)
            assert client.type(key) == b"none"
    assert process.poll() is None
    assert log.read_text(errors="replace").count("which is not a queue") == 2


@pytest.mark.parametrize("scorer", [1, pytest.param(0, marks=pytest.mark.long)], indirect=True)
def test_a_worker_outlives_entries_that_are_no_messages(
    scorer: tuple[subprocess.Popen[bytes], Path],
) -> None:
    process, log = scorer
    with redis.Redis.from_url(cache_location(settings.REDIS_URL)) as client:
        for entry in BROKEN:
            client.lpush("score", entry)
        assert takes_messages(client), processes.last_lines(log, 20)
    assert process.poll() is None, processes.last_lines(log, 20)
