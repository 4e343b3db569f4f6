"""The site of these tests: one for the session, its processes kept from test to test, since they are slow to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from tests.faults.site import Site
from tests.faults.work import Work, idle


def full() -> bool:
    """Whether all repetitions are wanted (`make test-faults`), not the short cut of `make test`."""
    return os.environ.get("RUNBOARD_FAULTS") == "full"


@pytest.fixture(scope="session")
def running_site(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Processes that tests of this session share; each test starts those that it needs and are not there."""
    with django_db_blocker.unblock():
        if connection.vendor != "postgresql":
            pytest.skip("faults are tested on PostgreSQL: RUNBOARD_TEST_DATABASE=postgresql")
    site = Site(tmp_path_factory.mktemp("site"), environment={"SANDBOX": "none", "MODEL_THREADS": "1"})
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
def work(site: Site, tmp_path: Any) -> Work:
    """Datasets and somebody who submits."""
    return Work(tmp_path / "work")
