"""The site of these tests: one for the session, its processes kept from test to test, since they are slow to start."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.faults import forked
from tests.faults.forked import ForkedService, forked_site
from tests.faults.kills import HEAD, Tally, repetitions, repetitions_of_celery
from tests.faults.repetitions import NEEDS_POSTGRESQL, full
from tests.faults.site import SCALE, Site
from tests.faults.work import Work, idle
from tests.figures import Figures
from tests.submissions.model_jobs import use_toy_engine

#: Times of the queue where models run, in parts of production's: a lease of fifteen seconds.
MODEL_SCALE = 0.25
#: The same where forked workers encode with the toy engine, which starts in a second: a lease of three.
ENCODING_SCALE = 0.05
TALLIES = pytest.StashKey[list[Tally]]()
NOTES = pytest.StashKey[list[str]]()
FIGURES = pytest.StashKey[Figures]()


@pytest.fixture(scope="session")
def running_site(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Processes that tests of this session share; each test starts those that it needs and are not there."""
    with django_db_blocker.unblock():
        if connection.vendor != "postgresql":
            pytest.skip(NEEDS_POSTGRESQL)
    site = Site(tmp_path_factory.mktemp("site"))
    yield site
    site.stop()


@pytest.fixture
def site(transactional_db: None, running_site: Site) -> Iterator[Site]:
    """The site, all in order. What a test leaves under way is ended with the processes that do it."""
    running_site.orders.clear()
    yield running_site
    running_site.orders.clear()
    try:
        running_site.wait_for(idle, "the site to be idle", 20)
    except AssertionError:
        running_site.stop()


@pytest.fixture
def scoring_site(site: Site) -> Site:
    """The site with workers that score, one job at a time each, a dispatcher and its clock, ready."""
    for name, queues in {"scorer-1": "score", "scorer-2": "score", "dispatcher": "dispatch"}.items():
        if name not in site.services:
            site.start_worker(name, queues)
    if "beat" not in site.services:
        site.start_beat()
    site.keep_up()
    site.wait_until_ready()
    return site


@pytest.fixture
def queue_site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Two workers that score and a dispatcher: Celery's where all repetitions are wanted, else forked from the test.

    `slower` gives the latter longer times, where a worker that stands still for a second must not lose its lease.
    """
    if full():
        yield request.getfixturevalue("scoring_site")
        return
    request.getfixturevalue("transactional_db")
    if connection.vendor != "postgresql":
        pytest.skip(NEEDS_POSTGRESQL)
    site = forked_site(request.getfixturevalue("tmp_path") / "site", 2, getattr(request, "param", forked.SCALE))
    yield site
    site.stop()


@pytest.fixture
def crowded_site(transactional_db: None, tmp_path: Path) -> Iterator[Site]:
    """Eight workers that score and a dispatcher, forked from the test: for kills by the hundred, several at a time."""
    if connection.vendor != "postgresql":
        pytest.skip(NEEDS_POSTGRESQL)
    site = forked_site(tmp_path / "site", 8, SCALE)
    yield site
    site.stop()


@pytest.fixture
def encoding_site(
    transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Iterator[Site]:
    """Three workers that encode shards of three documents with the toy engine, a scorer and a dispatcher, forked."""
    if connection.vendor != "postgresql":
        pytest.skip(NEEDS_POSTGRESQL)
    use_toy_engine(monkeypatch, settings)
    settings.SHARD_SIZE, settings.TIMING_LOCK = 3, str(tmp_path / "timing.lock")
    names = {
        "scorer": "score",
        "dispatcher": "dispatch",
        **{f"retriever-{number}": "cpu" for number in range(3)},
    }
    site = Site(tmp_path / "site", scale=ENCODING_SCALE)
    for name, queue in names.items():
        site.add(ForkedService(name, [queue], site.orders, site.folder / f"{name}.log", ENCODING_SCALE))
    yield site
    site.stop()


@pytest.fixture
def work(transactional_db: None, tmp_path: Any) -> Work:
    """Datasets and somebody who submits."""
    return Work(tmp_path / "work")


@pytest.fixture
def start_models(transactional_db: None, running_site: Site, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Starts a site of its own whose two workers for models have these variables.

    A process that loads a model may be silent for seconds on a busy machine, and is then held for hung: its leases are
    longer than elsewhere.
    """
    running_site.stop()
    site = Site(tmp_path / "site", scale=MODEL_SCALE, environment={"SANDBOX": "none", "MODEL_THREADS": "1"})

    def start(**environment: str) -> Site:
        for name, queue in {"scorer": "score", "dispatcher": "dispatch"}.items():
            site.start_worker(name, queue)
        for number in (1, 2):
            site.start_worker(f"retriever-{number}", "cpu", **environment)
        site.start_beat()
        site.wait_until_ready()
        return site

    yield start
    site.stop()


@pytest.fixture
def tallied(request: pytest.FixtureRequest) -> Callable[[Tally], None]:
    """Keep a tally for the table that is printed in the end."""
    return request.config.stash.setdefault(TALLIES, []).append


@pytest.fixture
def noted(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keep a figure that is told in the end."""
    return request.config.stash.setdefault(NOTES, []).append


def pytest_configure(config: pytest.Config) -> None:
    """Note time and load before anything is measured."""
    command = f"make test-faults REPEAT={repetitions()} REPEAT_CELERY={repetitions_of_celery()}"
    config.stash[FIGURES] = Figures(__file__, command)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the figures, and write them into the page that RUNBOARD_FAULTS_PAGE names."""
    notes, tallies = config.stash.get(NOTES, []), config.stash.get(TALLIES, [])
    if not full() or not (notes or tallies):
        return
    figures = config.stash[FIGURES]
    ended = {outcome: len(terminalreporter.stats.get(outcome, ())) for outcome in ("passed", "failed", "error")}
    figures.say(f"Tests on PostgreSQL: {', '.join(f'{count} {name}' for name, count in ended.items())}.")
    if tallies:
        figures.table(HEAD, [tally.as_row(figures) for tally in tallies])
    if notes:
        figures.say("\n".join(f"- {note}" for note in notes))
    terminalreporter.section("figures")
    terminalreporter.line(figures.markdown())
    if page := os.environ.get("RUNBOARD_FAULTS_PAGE"):
        figures.write(Path(page))
