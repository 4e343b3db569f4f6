"""/healthz says whether the site can work, and never more than that."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from leaderboard.views import health

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def test_a_working_site_is_ok_at_the_cost_of_one_query(client: Client, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "database": "ok", "broker": "ok"}
    assert "no-store" in answer["Cache-Control"]
    assert not answer.cookies


def test_a_broker_that_is_away_is_named(client: Client, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "unavailable", "database": "ok", "broker": "unavailable"}


def test_a_database_that_is_away_is_named_without_its_message(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        def cursor(self) -> None:
            raise OperationalError("connection to db.internal failed")

    monkeypatch.setattr(health, "connection", Away())
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "unavailable", "database": "unavailable", "broker": "ok"}


def test_it_answers_without_tls_behind_a_proxy(client: Client, settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert client.get("/healthz").status_code == 200


def test_it_only_answers_questions(client: Client) -> None:
    assert client.post("/healthz").status_code == 405


def test_a_site_of_one_version_is_ready(client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(health, "describe_mismatch", lambda: "")
    settings.REDIS_URL = "redis://127.0.0.1:1/0"  # harms nobody: pages are computed, idle workers look for themselves
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "database": "ok", "disk": "ok", "broker": "unavailable"}


def test_a_database_of_another_version_gets_no_requests(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "describe_mismatch", lambda: "The database lacks leaderboard.0005.")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["database"] == "another version"


def test_a_full_disk_is_told_and_keeps_no_reader_away(
    client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Readers need no room, and every other process has the same disk."""
    monkeypatch.setattr(health, "describe_mismatch", lambda: "")
    settings.DISK_RESERVE_BYTES = 2**62
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["disk"]) == ("degraded", "full")


@pytest.fixture
def hanging(settings: Any) -> Iterator[socket.socket]:
    """A broker that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.setblocking(False)
        settings.REDIS_URL = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        health._broker.cache_clear()
        yield server


def asked(server: socket.socket) -> int:
    """How many connections came since this was called last."""
    count = 0
    while True:
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def test_many_who_ask_while_the_broker_hangs_are_answered_by_one_question(
    client: Client, hanging: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "BROKER_MEMORY", 3600.0)
    monkeypatch.setattr(health, "describe_mismatch", lambda: "")
    with ThreadPoolExecutor(24) as pool:
        assert not any(pool.map(lambda _: health.broker_answers(), range(48)))
    for path, status in (("/healthz", 503), ("/readyz", 200)):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["broker"]) == (status, "unavailable")
    assert asked(hanging) == 1
    assert caplog.text.count("The broker does not answer") == 1


def test_a_broker_that_hangs_is_asked_again_later_and_by_one(
    settings: Any, hanging: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "BROKER_MEMORY", 0.0)
    assert not health.broker_answers()
    assert asked(hanging) == 1
    assert not health.broker_answers()
    assert asked(hanging) == 1
    assert caplog.text.count("The broker does not answer") == 1  # a line a minute
    with ThreadPoolExecutor(1) as pool, health._broker(settings.REDIS_URL)._ping_lock:
        assert pool.submit(health.broker_answers).result(60) is False
    assert asked(hanging) == 0
