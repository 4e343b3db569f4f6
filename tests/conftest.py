"""Fixtures for every test. The servers behind them are started by `tests/servers/plugin.py`."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from leaderboard.core.cache.redis import ForgivingRedisCache
from leaderboard.core.schema_version import known_migrations
from leaderboard.settings import cache_location
from tests.servers import browser as chromium
from tests.servers.plugin import in_ci
from tests.servers.worker import WorkerProcesses

ROOT = Path(__file__).resolve().parent.parent
#: What the settings say before `--nomigrations` takes it away.
KNOWN_TO_WORKERS = dict(settings.MIGRATION_MODULES)
#: How long a browser waits for what must come, in milliseconds: a busy machine is slow.
PATIENCE = 60_000


def pytest_configure() -> None:
    """Passwords of test accounts protect nothing; nothing here has to outlive a power failure. Both are slow."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    os.fsync = lambda descriptor: None


def pytest_collection_finish() -> None:
    """Modules stay until the end: looking among them for garbage again and again takes an eighth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> None:
    """SQLite in the file that worker processes open too, not in the memory of this one."""
    database = connections["default"].settings_dict
    if "sqlite" in database["ENGINE"]:
        database["TEST"]["NAME"] = str(database["NAME"])
    from tests.servers.emptying import empty_quickly

    empty_quickly()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_use_migrations: bool, django_db_blocker: Any) -> None:
    """Make the tables fit for tests.

    On SQLite the triggers that keep the audit log whole go: between tests all tables are emptied by DELETE. Where
    tables were made without migrations these are recorded all the same: workers refuse another version.
    """
    with django_db_blocker.unblock():
        if connections["default"].vendor == "sqlite":
            with connections["default"].cursor() as cursor:
                for act in ("update", "delete"):
                    cursor.execute(f"DROP TRIGGER IF EXISTS audit_no_{act}")
        if not django_db_use_migrations:
            _record_migrations()


def _record_migrations() -> None:
    with override_settings(MIGRATION_MODULES=KNOWN_TO_WORKERS):
        migrations = known_migrations()  # remembered, so that this process knows them too
    recorder = MigrationRecorder(connections["default"])
    recorder.ensure_schema()
    for app, name in migrations:
        recorder.record_applied(app, name)


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder of real collections beside the project; RUNBOARD_SHARED may name another. Skips without it."""
    folder = Path(os.environ.get("RUNBOARD_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"the real collections are not here ({folder}; RUNBOARD_SHARED names another folder)")
    return folder


@pytest.fixture
def broker() -> Iterator[redis.Redis]:
    """A client of the broker and cache."""
    with redis.Redis.from_url(cache_location(settings.REDIS_URL)) as client:
        yield client


@pytest.fixture(autouse=True)
def empty_broker(request: pytest.FixtureRequest) -> None:
    """Begin a test that uses the database without wakeups and cached pages of the test before: row ids repeat.

    Nor does it count what somebody did while a test before it had the cache away.
    """
    ForgivingRedisCache._silent_until = 0.0
    ForgivingRedisCache._local_counts.clear()
    if {"db", "transactional_db", "live_server"} & set(request.fixturenames) or request.node.get_closest_marker(
        "django_db"
    ):
        request.getfixturevalue("broker").flushdb()


@pytest.fixture(autouse=True)
def leases_in_a_transaction_are_left_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever keeps leases has a connection of its own, which sees no row that a test's open transaction made."""
    marker = request.node.get_closest_marker("django_db")
    if marker is None or marker.kwargs.get("transaction") or "transactional_db" in request.fixturenames:
        return
    monkeypatch.setattr("submissions.queue.lease.CHECK_INTERVAL", 3600.0)


@pytest.fixture(scope="session")
def worker_processes(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcesses]:
    """One real worker and beat; tests ask for `worker`. They run last, so that tests elsewhere see none."""
    from submissions.models import Worker

    name = str(connections["default"].settings_dict["NAME"])
    running = WorkerProcesses(ROOT, tmp_path_factory.mktemp("worker"), name)
    yield running
    running.stop()
    with django_db_blocker.unblock():  # what a worker announced outlives it by a day
        Worker.objects.all().delete()


@pytest.fixture
def worker(transactional_db: None, worker_processes: WorkerProcesses) -> Iterator[WorkerProcesses]:
    """The real worker, ready to take this test's jobs. A test must wait for the jobs that it starts.

    What is found of boards and texts nobody waits for, nor for what people are told; it has ended before the next
    test's rows get the same ids.
    """
    worker_processes.wait_until_ready()
    yield worker_processes
    _wait_for_what_nobody_waits_for(worker_processes.notifies)


def _wait_for_what_nobody_waits_for(notifies: bool, seconds: float = 180.0) -> None:
    from leaderboard.models import WorkRequest
    from submissions.models import TERMINAL, Job
    from submissions.notifications.sending import has_notifications

    kinds = [Job.Kind.CERTAINTY, Job.Kind.STATISTICS]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        asked = WorkRequest.objects.filter(kind__in=kinds, taken_at=None).exists()
        under_way = Job.objects.filter(kind__in=kinds).exclude(state__in=TERMINAL).exists()
        if not (asked or under_way or (notifies and has_notifications())):
            return
        time.sleep(0.1)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium; skips loudly where there is none, fails where CI is set."""
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        try:
            running = chromium.launch(playwright)
        except chromium.NoBrowser as reason:
            if in_ci():
                pytest.fail(f"NO BROWSER: {reason}")
            pytest.skip(f"NO BROWSER: {reason}")
        yield running
        running.close()


@pytest.fixture
def context(browser: Browser, live_server: Any) -> Iterator[BrowserContext]:
    """A fresh browser profile; addresses without a host are the live server's."""
    fresh = browser.new_context(base_url=live_server.url, viewport={"width": 1280, "height": 900})
    fresh.set_default_timeout(PATIENCE)
    yield fresh
    fresh.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """An empty page (`page.goto("/")`). The test fails on script errors and on violations of the CSP."""
    fresh = context.new_page()
    faults: list[str] = []
    fresh.on("pageerror", lambda error: faults.append(str(error)))
    fresh.on("console", lambda line: faults.append(line.text) if "Content Security Policy" in line.text else None)
    yield fresh
    assert not faults, faults
