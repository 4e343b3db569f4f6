"""What Prometheus is told, and who may ask."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from leaderboard.models import Dataset
from submissions.models import State
from submissions.queue.lease import NO_LIMIT, StageTimer, add_stage_times
from tests.factories import make_user
from tests.submissions.clients import Api
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


def scrape(client: Client, **headers: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample, by its name and labels."""
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


@pytest.fixture
def scraper(client: Client, settings: Any) -> Client:
    """One that has the token."""
    settings.METRICS_TOKEN = "let-me-see-the-figures"
    return Client(headers={"Authorization": "Bearer let-me-see-the-figures"})


def test_a_job_is_seen_waiting_and_ended_with_its_stages(demo: Dataset, api: Api, scraper: Client) -> None:
    assert api.submit().status == 201
    waiting = scrape(scraper)
    assert waiting["runboard_queue_jobs", (("queue", "score"),)] == 1
    assert waiting["runboard_queue_oldest_seconds", (("queue", "score"),)] >= 0
    assert waiting["runboard_queue_jobs", (("queue", "gpu"),)] == 0
    work()
    ended = scrape(scraper)
    assert ended["runboard_queue_jobs", (("queue", "score"),)] == 0
    done = (("code", ""), ("kind", "score"), ("state", str(State.DONE)))
    assert ended["runboard_jobs_ended", done] == 1
    scoring = (("kind", "score"), ("stage", "scoring"))
    assert ended["runboard_job_stage_seconds_count", scoring] == 1
    assert ended["runboard_job_stage_seconds_sum", scoring] > 0


def test_no_counter_falls_when_somebody_withdraws(demo: Dataset, api: Api, scraper: Client) -> None:
    identifier = api.submit().body["id"]
    work()
    before = scrape(scraper)
    assert api.post(f"submissions/{identifier}/withdraw/", reason="mistake").status == 200
    after = scrape(scraper)
    done, withdrawn = (
        ("runboard_jobs_ended", (("code", ""), ("kind", "score"), ("state", str(state))))
        for state in (State.DONE, State.WITHDRAWN)
    )
    assert (before[done], after.get(done, 0), after[withdrawn]) == (1, 0, 1)
    counters = {key for key in before if key[0].endswith(("_total", "_count", "_bucket"))}
    assert counters
    assert not [key for key in counters if after.get(key, 0) < before[key]]


def test_buckets_count_all_that_took_at_most_so_long(db: None, scraper: Client) -> None:
    for seconds in (0.05, 3.0, 100_000.0):
        add_stage_times("model", {"encoding": seconds})
    found = {
        dict(labels).get("le"): value
        for (name, labels), value in scrape(scraper).items()
        if name == "runboard_job_stage_seconds_bucket"
    }
    assert found == {
        **dict.fromkeys(["0.1", "0.5", "1.0"], 1.0),
        **dict.fromkeys(["5.0", "15.0", "60.0", "300.0", "1800.0", "7200.0", "21600.0"], 2.0),
        "+Inf": 3.0,
    }
    assert NO_LIMIT == 0


def test_time_goes_to_the_stage_it_was_spent_in() -> None:
    clock = StageTimer("")
    clock.enter("encoding")
    clock.enter("searching")
    clock.enter("encoding")
    assert list(clock.finish()) == ["starting", "encoding", "searching"]


def test_pages_are_counted_by_where_they_came_from(scraper: Client, demo: Dataset) -> None:
    before = scrape(scraper)
    reader = Client()
    for _ in range(3):
        assert reader.get(f"/datasets/{demo.slug}/").status_code == 200
    after = scrape(scraper)

    def more(outcome: str) -> float:
        key = ("runboard_pages_total", (("outcome", outcome),))
        return after[key] - before[key]

    assert more("made") == 1
    assert more("own") == 2


def test_strangers_and_researchers_see_no_metrics(db: None, settings: Any) -> None:
    settings.METRICS_TOKEN = ""
    person = Client()
    person.force_login(make_user("Bob"))
    for client in (Client(), person, Client(headers={"Authorization": "Bearer "})):
        assert client.get("/metrics").status_code == 404
    staff = Client()
    staff.force_login(make_user("Carla", is_staff=True))
    assert staff.get("/metrics").status_code == 200
