"""A hundred submissions at once, through gunicorn as the site starts it: the quota is what is accepted."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest
from django.db import connection, connections
from django.utils import timezone

from leaderboard.management.supervisor import services
from leaderboard.models import Dataset, Membership, Team, User
from leaderboard.systems.records import SystemFields, create_system
from submissions.accounts.access import make_token
from submissions.accounts.teams import make_team
from submissions.models import Job, QuotaUse, Submission
from submissions.quotas.counting import start_of_day
from tests.factories import make_user, team_of
from tests.servers import processes
from tests.submissions.collections import make_collection, run_text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]
ROOT = Path(__file__).resolve().parents[3]
BOUNDARY = "a-line-between-fields"

#: Whose token, which system, and which run: the number makes each another one.
Request = tuple[str, str, int]


@pytest.fixture(scope="module")
def site(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of two gunicorn processes with four threads each, on the test database."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    environment = {}
    if url := os.environ.get("DATABASE_URL", ""):
        name = str(connections["default"].settings_dict["NAME"])
        environment["DATABASE_URL"] = re.sub(r"/[^/?]*(\?|$)", rf"/{name}\1", url, count=1)
    command = services.web(port, environment)
    served = "tests.submissions.quota_site:application"
    arguments = [served if word == "leaderboard.wsgi:application" else word for word in command.arguments]
    log = tmp_path_factory.mktemp("web") / "log"
    process = processes.start(arguments, log, environment, cwd=ROOT)
    deadline = time.monotonic() + 180
    while not _answers(port):
        ended = process.poll() is not None or time.monotonic() > deadline
        assert not ended, processes.last_lines(log)
        time.sleep(0.1)
    yield port
    processes.stop(process)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def send_at_once(port: int, requests: Sequence[Request]) -> list[tuple[int, str]]:
    """Status and code of the answers to requests that are all sent at the same moment."""
    start = Barrier(len(requests))

    def send(request: Request) -> tuple[int, str]:
        token, system, number = request
        fields = {"system": system, "dataset": "secret", "configuration": f"c{number}"}
        content = run_text(depth=5, skip=number, tag=f"t{number}")
        parts = [f'name="{name}"\r\n\r\n{value}' for name, value in fields.items()]
        parts.append(f'name="file"; filename="run.txt"\r\n\r\n{content}')
        body = "".join(f"--{BOUNDARY}\r\nContent-Disposition: form-data; {part}\r\n" for part in parts)
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
        }
        start.wait(30)
        asked.request("POST", "/api/v1/submissions/", f"{body}--{BOUNDARY}--\r\n".encode(), headers)
        answer = asked.getresponse()
        told = json.loads(answer.read())
        asked.close()
        return answer.status, str(told.get("code", ""))

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(send, requests))


def system_of(team: Team, name: str) -> str:
    return create_system(team, SystemFields(name=name, architecture="dense")).slug


def join(user: User, team: Team) -> None:
    Membership.objects.create(user=user, team=team)


def require_exactly_two(answers: Sequence[tuple[int, str]]) -> None:
    assert Counter(answers) == {(201, ""): 2, (400, "quota"): len(answers) - 2}
    assert QuotaUse.objects.filter(kind="submission", refunded_at=None).count() == 2
    assert QuotaUse.objects.count() == Submission.objects.count() == Job.objects.count() == 2


@pytest.fixture
def secret(tmp_path: Path) -> Dataset:
    """A dataset with hidden judgements and a quota of two a day, which does not end before the test does."""
    while timezone.now() > start_of_day(timezone.now()) + timedelta(hours=23, minutes=58):
        time.sleep(1)
    return make_collection(tmp_path, "secret", hidden=True)


@pytest.mark.parametrize("count", [30, pytest.param(100, marks=pytest.mark.long)])
def test_of_a_hundred_at_once_two_are_accepted(site: int, secret: Dataset, count: int) -> None:
    alice = make_user("Alice")
    token, system = make_token(alice, "test"), system_of(team_of(alice), "Mine")
    began = time.monotonic()
    require_exactly_two(send_at_once(site, [(token, system, number) for number in range(count)]))
    print(f"{connection.vendor}: {count} submissions at once answered in {time.monotonic() - began:.1f} s")


def test_people_of_one_team_share_two(site: int, secret: Dataset) -> None:
    people = [make_user(f"Member {number}") for number in range(5)]
    team = team_of(people[0])
    for person in people[1:]:
        join(person, team)
    systems = [system_of(team, f"System {number}") for number in range(5)]
    tokens = [make_token(person, "test") for person in people]
    requests = [(tokens[number % 5], systems[number // 5 % 5], number) for number in range(25)]
    require_exactly_two(send_at_once(site, requests))


def test_a_person_of_several_teams_has_two(site: int, secret: Dataset) -> None:
    alice = make_user("Alice")
    teams = [team_of(alice), *(make_team(f"Team {number}") for number in range(4))]
    for team in teams[1:]:
        join(alice, team)
    systems = [system_of(team, "The system") for team in teams]
    token = make_token(alice, "test")
    requests = [(token, systems[number % 5], number) for number in range(25)]
    require_exactly_two(send_at_once(site, requests))


def test_people_of_several_teams_at_once_wait_for_each_other_without_an_end(site: int, secret: Dataset) -> None:
    """Every person in every team, all systems: no deadlock, and nobody and no team has more than two."""
    people = [make_user(f"Person {number}") for number in range(3)]
    teams = [team_of(person) for person in people]
    for person in people:
        for team in teams:
            if team != team_of(person):
                join(person, team)
    systems = [system_of(team, "The system") for team in teams]
    tokens = [make_token(person, "test") for person in people]
    requests = [(tokens[number % 3], systems[number // 3 % 3], number) for number in range(18)]
    answers = Counter(send_at_once(site, requests))
    assert set(answers) == {(201, ""), (400, "quota")}
    by_person = Counter(QuotaUse.objects.values_list("person", flat=True))
    by_team = Counter(QuotaUse.objects.values_list("team", flat=True))
    assert max(by_person.values()) == max(by_team.values()) == 2
    assert answers[201, ""] == QuotaUse.objects.count()
