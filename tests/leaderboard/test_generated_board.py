"""The generated board is for developers: it is refused elsewhere, and leaves nothing behind."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard.models import Benchmark, Dataset, Entry, Evaluation, Run, System, Team
from submissions.models import Job
from submissions.queue import take_requests

pytestmark = [pytest.mark.django_db, pytest.mark.database]

KINDS = (Benchmark, Dataset, Entry, Evaluation, Run, System, Team)


@pytest.mark.parametrize(("debug", "embedded"), [(False, True), (True, False), (False, False)])
def test_it_is_refused_outside_development(settings: object, debug: bool, embedded: bool) -> None:
    settings.DEBUG, settings.EMBEDDED = debug, embedded  # type: ignore[attr-defined]
    with pytest.raises(CommandError, match="development"):
        call_command("generate_board")
    assert not Benchmark.objects.exists()


def test_a_developer_gets_a_board_and_can_remove_it(settings: object, client: Client) -> None:
    settings.DEBUG = settings.EMBEDDED = True  # type: ignore[attr-defined]
    before = {kind: kind.objects.count() for kind in KINDS}
    call_command("generate_board", systems=12, datasets=3, verbosity=0)
    page = client.get("/benchmarks/generated/").content.decode()
    assert page.count("<tr") >= 12
    assert "Amber finder 1" in page
    with pytest.raises(CommandError, match="already"):
        call_command("generate_board")
    take_requests()  # what a worker found of it goes with it
    assert Job.objects.filter(dataset__benchmarks__slug="generated").exists()
    call_command("generate_board", remove=True)
    assert {kind: kind.objects.count() for kind in KINDS} == before
