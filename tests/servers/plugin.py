"""Chooses and starts what the tests run against, before Django reads its settings.

Loaded with `-p` (see pyproject.toml), because pytest-django imports the settings before any conftest.py.

RUNBOARD_TEST_DATABASE=sqlite (the default) or postgresql. The latter uses the server that DATABASE_URL names, else
one started here. REDIS_URL names a broker, else a Valkey is started here. With CI set, a server that cannot be had
is a failure; without, the tests are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers import network
from tests.servers.broker import Broker, lent_database, start_broker
from tests.servers.postgresql import Server, Unavailable, start_postgresql

#: What a developer's shell may have set for their own site, and the tests must not see.
FOREIGN = [
    "SECRET_KEY",
    "ALLOWED_HOSTS",
    "HTTPS",
    "DEBUG",
    "EMAIL_URL",
    "BEHIND_PROXY",
    "PORT",
    "EMBEDDINGS_STORAGE",
    "STORE_STORAGE",
    "EMBEDDINGS_FOLDER",
]

_state: dict[str, str] = {}
#: One in so many of the tests that are marked as sampled, and how many of a file were collected.
SAMPLED = 4
_sampled: dict[Path, int] = {}


@dataclass
class Servers:
    """What was started for this session: tests of faults kill these, and start them again."""

    database: Server | None = None
    broker: Broker | None = None


servers = Servers()


def in_ci() -> bool:
    """Whether missing servers and browsers are failures."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Set the environment that the settings are read from."""
    folder = Path(tempfile.mkdtemp(prefix="runboard-tests-"))
    early_config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    for name in FOREIGN:
        os.environ.pop(name, None)
    (folder / "var" / "static").mkdir(parents=True)
    # Here and not in pyproject.toml: modules that this plugin imports set the site's own settings as the default.
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    os.environ["RUNBOARD_VAR"] = str(folder / "var")
    # Tests time nothing that is kept, and need not wait for what else runs on this machine.
    os.environ["TIMING_LOCK"] = str(folder / "timing.lock")
    # Playwright's own event loop runs in the thread of the tests, where Django would refuse the database.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    # Compiled kernels are kept between sessions: compiling them takes longer than most tests.
    os.environ.setdefault("RUNBOARD_KERNEL_CACHE", str(early_config.rootpath / "build" / "kernel"))
    os.environ.setdefault("NUMBA_CACHE_DIR", str(early_config.rootpath / "build" / "numba"))
    _choose_database(early_config)
    named = os.environ.get("REDIS_URL", "")
    if named:
        os.environ["REDIS_URL"] = lent_database(named, early_config.add_cleanup)
    else:
        servers.broker = start_broker(early_config.add_cleanup)
        os.environ["REDIS_URL"] = servers.broker.url
    _state["broker"] = "named by REDIS_URL" if named else "a Valkey of its own"
    network.allow_loopback_only([os.environ.get("DATABASE_URL", ""), named])
    return (yield)


def _choose_database(config: pytest.Config) -> None:
    kind = os.environ.get("RUNBOARD_TEST_DATABASE", "sqlite")
    named = os.environ.pop("DATABASE_URL", "")
    if kind == "sqlite":
        _state["database"] = "SQLite"
    elif kind != "postgresql":
        raise pytest.UsageError(f"RUNBOARD_TEST_DATABASE is sqlite or postgresql, not {kind!r}.")
    elif named.startswith("postgres"):
        os.environ["DATABASE_URL"] = named
        _state["database"] = "PostgreSQL, named by DATABASE_URL"
    else:
        try:
            server = start_postgresql(config.add_cleanup)
        except Unavailable as reason:
            if in_ci():
                raise pytest.UsageError(f"PostgreSQL is not to be had: {reason}") from reason
            _state["skip"] = f"PostgreSQL is not to be had: {reason}"
            _state["database"] = "none"
            return
        servers.database = server
        os.environ["DATABASE_URL"] = server.url
        _state["database"] = server.description


def pytest_report_header() -> list[str]:
    """Say what the tests run against."""
    return [f"database: {_state['database']}; broker: {_state['broker']}"]


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Of tests that use the same tables in much the same way one in four runs on PostgreSQL too in `make test`."""
    if item.get_closest_marker("sampled_on_postgresql"):
        position = _sampled[item.path] = _sampled.get(item.path, -1) + 1
        item.add_marker("database")
        if position % SAMPLED:
            item.add_marker("long_on_postgresql")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with a real worker come last; skip everything when the database that was asked for is not to be had."""
    # It is started once, for the first of them, and would take the jobs of any other test.
    items.sort(key=lambda item: "worker_processes" in getattr(item, "fixturenames", ()))
    if reason := _state.get("skip"):
        for item in items:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what was not tested."""
    if reason := _state.get("skip"):
        terminalreporter.section("NOTHING WAS TESTED ON POSTGRESQL", red=True)
        terminalreporter.line(reason)
