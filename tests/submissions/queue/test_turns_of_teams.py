"""Teams take turns: sixty jobs of one do not stand before everybody else's first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db.models import Q

from leaderboard.models import Dataset, Team
from submissions.jobs.checkpoints import running as shards
from submissions.jobs.checkpoints.encodings import SHARDS_A_TURN, EncodingSetting, wait_for_shards
from submissions.models import Checkpoint, Encoding, Job, State
from submissions.queue.queue import claim, next_turn, queue_position
from tests.factories import make_dataset, make_job, make_model_submission, make_user, make_version, team_of

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def two_teams(db: None) -> tuple[Team, Team]:
    """Of one person each."""
    return team_of(make_user("Many")), team_of(make_user("Few"))


def send(team: Team, dataset: Dataset, **fields: Any) -> Job:
    """A job of the team, as it comes in."""
    submission = make_model_submission(team)
    turn = next_turn("cpu", team.pk)
    return make_job(dataset, kind=Job.Kind.MODEL, queue="cpu", submission=submission, turn=turn, **fields)


def order() -> list[int]:
    """All waiting jobs as a worker gets them."""
    found = []
    while job := claim(["cpu"], "worker"):
        found.append(job.pk)
    return found


def test_a_later_team_does_not_wait_for_all_of_an_earlier_ones(two_teams: tuple[Team, Team]) -> None:
    many, few = two_teams
    dataset = make_dataset()
    first = [send(many, dataset) for _ in range(5)]
    second = [send(few, dataset) for _ in range(2)]
    assert [queue_position(job) for job in second] == [1, 3]
    assert queue_position(first[4]) == 6
    expected = [first[0], second[0], first[1], second[1], *first[2:]]
    assert order() == [job.pk for job in expected]


def test_who_comes_late_is_in_the_present_round(two_teams: tuple[Team, Team]) -> None:
    """Rounds that are over are nobody's: no team saves up turns by sending nothing."""
    many, few = two_teams
    dataset = make_dataset()
    first = [send(many, dataset) for _ in range(6)]
    for _ in range(3):
        claim(["cpu"], "worker")
    late = [send(few, dataset) for _ in range(2)]
    expected = [first[3], late[0], first[4], late[1], first[5]]
    assert order() == [job.pk for job in expected]


def test_a_team_alone_has_its_jobs_in_the_order_in_which_they_came(two_teams: tuple[Team, Team]) -> None:
    jobs = [send(two_teams[0], make_dataset()) for _ in range(3)]
    assert order() == [job.pk for job in jobs]


def share_out(team: Team, dataset: Dataset, documents: int) -> None:
    """A job of the team that waits for its corpus, each document of which is a shard."""
    version = make_version(dataset, corpus_sha256="c" * 64, statistics={"documents": documents})
    sha256 = f"{team.pk:064x}"
    checkpoint = Checkpoint.objects.create(
        team=team, sha256=sha256, model_sha256=sha256, kind="static-embeddings", description={}, size=1
    )
    job = send(team, dataset, state=State.RETRIEVING)
    assert wait_for_shards(job, EncodingSetting(checkpoint, version, "dense", {}, "a-machine", "cpu", 1, 1))


def test_shards_take_turns_by_eights(two_teams: tuple[Team, Team]) -> None:
    many, few = two_teams
    dataset = make_dataset()
    share_out(many, dataset, 20)
    other = send(few, dataset)
    own = send(many, dataset)
    claimed = order()
    assert claimed.index(other.pk) == SHARDS_A_TURN
    assert claimed[-1] == own.pk


def test_a_child_that_crashes_gets_no_new_time_before_the_turns_of_others(
    two_teams: tuple[Team, Team], monkeypatch: pytest.MonkeyPatch
) -> None:
    many, few = two_teams
    share_out(many, make_dataset(), 64)
    share_out(few, make_dataset(), 64)
    now = 0.0
    monkeypatch.setattr(shards, "create_encoder", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(shards, "time", SimpleNamespace(monotonic=lambda: now))
    device = shards.WarmEncoder()

    def encode_next() -> Job:
        job = device.claim_next("cpu", "worker", Q())
        assert job is not None
        device.get(job.shard.encoding, "cpu")
        return job

    taken = [encode_next() for _ in range(SHARDS_A_TURN)]
    now = 0.8 * shards.PREFERENCE_SECONDS
    device.end_child()
    Job.objects.filter(pk=taken[-1].pk).update(state=State.QUEUED, lease_expires_at=None)
    assert encode_next() == taken[-1]
    now = 1.1 * shards.PREFERENCE_SECONDS
    assert encode_next().shard.encoding.checkpoint.team == few
    device.close()


def test_devices_keep_their_model_for_a_while_and_teams_get_as_much(
    two_teams: tuple[Team, Team], settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four devices in step, which by turns of eight shards alone would load a model for each shard."""
    settings.VAR = tmp_path
    for team in two_teams:
        share_out(team, make_dataset(), 64)
    now, starts = 0.0, 0
    encoded = dict.fromkeys(Encoding.objects.values_list("pk", flat=True), 0)

    def start(*_: object) -> SimpleNamespace:
        nonlocal starts
        starts += 1
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(shards, "create_encoder", start)
    monkeypatch.setattr(shards, "time", SimpleNamespace(monotonic=lambda: now))
    devices = [shards.WarmEncoder() for _ in range(4)]
    while Job.objects.waiting().exists():
        for device in devices:
            job = device.claim_next("cpu", "worker", Q())
            assert job is not None
            device.get(job.shard.encoding, "cpu")
            encoded[job.shard.encoding_id] += 1
        now += shards.PREFERENCE_SECONDS / 8
        assert max(encoded.values()) - min(encoded.values()) <= 4 * 8
    for device in devices:
        device.close()
    assert list(encoded.values()) == [64, 64]
    assert starts == 4 * 4
