"""Fixtures of all tests. `tests/servers/plugin.py` starts the servers that they use."""

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
#: Value of the setting before `--nomigrations` changes it.
CONFIGURED_MIGRATIONS = dict(settings.MIGRATION_MODULES)
#: Timeout of the browser in milliseconds. It is long because a busy machine is slow.
TIMEOUT_MS = 60_000


def pytest_configure() -> None:
    """Use a fast password hasher and disable fsync, because tests need neither security nor durability."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    os.fsync = lambda descriptor: None


def pytest_collection_finish() -> None:
    """Exclude loaded modules from garbage collection, which would otherwise take an eighth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> None:
    """Put the SQLite database into the file that worker processes open, instead of into memory."""
    database = connections["default"].settings_dict
    if "sqlite" in database["ENGINE"]:
        database["TEST"]["NAME"] = str(database["NAME"])
    from tests.servers.emptying import empty_quickly

    empty_quickly()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_use_migrations: bool, django_db_blocker: Any) -> None:
    """Prepare the tables for tests.

    On SQLite, this drops the triggers that protect the audit log, because DELETE empties all tables between tests. If
    tables were created without migrations, the migrations are recorded anyway: workers reject another version.
    """
    with django_db_blocker.unblock():
        if connections["default"].vendor == "sqlite":
            with connections["default"].cursor() as cursor:
                for operation in ("update", "delete"):
                    cursor.execute(f"DROP TRIGGER IF EXISTS audit_no_{operation}")
        if not django_db_use_migrations:
            _record_migrations()


def _record_migrations() -> None:
    with override_settings(MIGRATION_MODULES=CONFIGURED_MIGRATIONS):
        migrations = known_migrations()  # the result is cached for this process
    recorder = MigrationRecorder(connections["default"])
    recorder.ensure_schema()
    for app, name in migrations:
        recorder.record_applied(app, name)


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """Return the folder of real collections, next to the project or in RUNBOARD_SHARED. Skip the test without it."""
    folder = Path(os.environ.get("RUNBOARD_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"there are no real collections in {folder}; set RUNBOARD_SHARED to use another folder")
    return folder


@pytest.fixture
def broker() -> Iterator[redis.Redis]:
    """Yield a client of the broker and cache."""
    with redis.Redis.from_url(cache_location(settings.REDIS_URL)) as client:
        yield client


@pytest.fixture(autouse=True)
def empty_broker(request: pytest.FixtureRequest) -> None:
    """Remove wakeups and cached pages of earlier tests before a test that uses the database, because row ids repeat.

    This also resets the counts of requests that earlier tests made while the cache was unavailable.
    """
    ForgivingRedisCache._silent_until = 0.0
    ForgivingRedisCache._local_counts.clear()
    if {"db", "transactional_db", "live_server"} & set(request.fixturenames) or request.node.get_closest_marker(
        "django_db"
    ):
        request.getfixturevalue("broker").flushdb()


@pytest.fixture(autouse=True)
def disable_lease_checks_in_transactions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable lease checks in tests with an open transaction: their own connection does not see its rows."""
    marker = request.node.get_closest_marker("django_db")
    if marker is None or marker.kwargs.get("transaction") or "transactional_db" in request.fixturenames:
        return
    monkeypatch.setattr("submissions.queue.lease.CHECK_INTERVAL", 3600.0)


@pytest.fixture(scope="session")
def worker_processes(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcesses]:
    """Yield one real worker and beat. Tests request `worker` and run last, so that other tests see no worker."""
    from submissions.models import Worker

    name = str(connections["default"].settings_dict["NAME"])
    running = WorkerProcesses(ROOT, tmp_path_factory.mktemp("worker"), name)
    yield running
    running.stop()
    with django_db_blocker.unblock():  # rows of workers remain for a day
        Worker.objects.all().delete()


@pytest.fixture
def worker(transactional_db: None, worker_processes: WorkerProcesses) -> Iterator[WorkerProcesses]:
    """Yield the real worker, ready to run the test's jobs. A test must wait for the jobs that it starts.

    Statistics and notifications run in the background. The fixture waits for them, because the next test's rows get
    the same ids.
    """
    worker_processes.wait_until_ready()
    yield worker_processes
    _wait_for_background_work(worker_processes.notifies)


def _wait_for_background_work(notifies: bool, seconds: float = 180.0) -> None:
    from leaderboard.models import WorkRequest
    from submissions.models import TERMINAL, Job
    from submissions.notifications.sending import has_notifications

    kinds = [Job.Kind.CERTAINTY, Job.Kind.STATISTICS]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        requested = WorkRequest.objects.filter(kind__in=kinds, taken_at=None).exists()
        active = Job.objects.filter(kind__in=kinds).exclude(state__in=TERMINAL).exists()
        if not (requested or active or (notifies and has_notifications())):
            return
        time.sleep(0.1)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Yield a headless Chromium. Without a browser, skip the test with a warning, or fail if CI is set."""
    expect.set_options(timeout=TIMEOUT_MS)
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
    """Yield a new browser context with the live server as base URL."""
    new_context = browser.new_context(base_url=live_server.url, viewport={"width": 1280, "height": 900})
    new_context.set_default_timeout(TIMEOUT_MS)
    yield new_context
    new_context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """Yield an empty page (`page.goto("/")`). The test fails on script errors and violations of the CSP."""
    new_page = context.new_page()
    errors: list[str] = []
    new_page.on("pageerror", lambda error: errors.append(str(error)))
    new_page.on("console", lambda line: errors.append(line.text) if "Content Security Policy" in line.text else None)
    yield new_page
    assert not errors, errors
