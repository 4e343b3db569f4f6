"""Taking back, stopping, showing and hiding."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard.models import AuditRecord, Dataset, Entry, Membership, User
from submissions.jobs.changes import cancel
from submissions.jobs.kinds import score as score_kind
from submissions.models import Job, State, Submission
from submissions.queue.queue import claim, request_cancel
from tests.factories import make_a_curator, make_user, team_of
from tests.submissions.clients import Api
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


def test_a_withdrawn_result_leaves_the_board_and_a_tombstone_stays(
    demo: Dataset, api: Api, nobody: Api, signed_in: Client
) -> None:
    identifier = api.submit().body["id"]
    work()
    revision = Dataset.objects.get(pk=demo.pk).board_revision
    response = signed_in.post(f"/submissions/{identifier}/withdraw/", {"reason": "wrong index used"}, follow=True)
    assert "wrong index used" in response.content.decode()
    entry = Entry.objects.get(submission_reference=identifier)
    assert (entry.visibility, entry.withdrawal_reason) == ("withdrawn", "wrong index used")
    assert Dataset.objects.get(pk=demo.pk).board_revision > revision
    seen = nobody.get(f"submissions/{identifier}/").body
    assert (seen["state"], seen["withdrawal_reason"]) == ("withdrawn", "wrong index used")
    assert seen["jobs"][0]["scores"] == {}


def test_withdrawing_needs_a_reason(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit().body["id"]
    response = signed_in.post(f"/submissions/{identifier}/withdraw/", {"reason": " "})
    assert response.status_code == 400
    assert "It remains visible" in response.content.decode()
    answer = api.post(f"submissions/{identifier}/withdraw/", reason="")
    assert answer.status == 400
    assert answer.problem("invalid_reason")
    assert Submission.objects.get().withdrawn_at is None


def test_withdrawing_stops_waiting_and_running_jobs(demo: Dataset, api: Api) -> None:
    identifier = api.submit().body["id"]
    running = claim(["score"], "worker")
    assert running is not None
    answer = api.post(f"submissions/{identifier}/withdraw/", reason="mistake")
    assert answer.body["state"] == "withdrawn"
    assert Job.objects.get().state == State.WITHDRAWN
    work()
    assert not Entry.objects.exists()


def test_withdrawing_twice_changes_nothing(demo: Dataset, api: Api) -> None:
    identifier = api.submit().body["id"]
    api.post(f"submissions/{identifier}/withdraw/", reason="first")
    assert api.post(f"submissions/{identifier}/withdraw/", reason="second").body["withdrawal_reason"] == "first"


def test_cancelling_stops_what_waits(demo: Dataset, api: Api) -> None:
    identifier = api.submit().body["id"]
    answer = api.post(f"submissions/{identifier}/cancel/")
    assert answer.status == 200
    assert answer.body["state"] == "cancelled"
    work()
    assert not Entry.objects.exists()


def test_cancelling_what_has_ended_changes_nothing(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit().body["id"]
    work()
    response = signed_in.post(f"/submissions/{identifier}/cancel/", follow=True)
    assert "All jobs have already ended" in response.content.decode()
    assert api.get(f"submissions/{identifier}/").body["state"] == "done"


def test_what_a_curator_does_to_a_submission_is_told_as_that_and_recorded(demo: Dataset, api: Api) -> None:
    cora = make_a_curator()
    client, theirs = Client(), Api(cora)
    client.force_login(cora)
    waiting, running = (api.submit(system=name).body["id"] for name in ("One", "Two"))
    held = claim(["score"], "worker")
    assert held is not None
    asked, stopped = (running, waiting) if held.submission_id == running else (waiting, running)
    assert client.post(f"/submissions/{stopped}/cancel/").status_code == 302
    assert theirs.post(f"submissions/{asked}/cancel/").status == 200
    logs = [Job.objects.get(submission=each).log for each in (stopped, asked)]
    assert "Canceled by a curator." in logs[0]
    assert "A curator requested cancellation." in logs[1]
    assert not any(word in log for log in logs for word in ("submitter", "Cora"))
    client.post(f"/submissions/{asked}/reusable/", {"reusable": "yes"})
    theirs.post(f"submissions/{asked}/reusable/", reusable="false")
    theirs.post(f"submissions/{asked}/visibility/", public="false")
    client.post(f"/submissions/{asked}/withdraw/", {"reason": "the team asked"})
    found = AuditRecord.objects.filter(actor=cora).order_by("pk")
    assert [(each.action, each.subject, each.before, each.after) for each in found] == [
        ("submission cancelled", f"submission {stopped}", {}, {"jobs": 1}),
        ("submission cancelled", f"submission {asked}", {}, {"jobs": 1}),
        ("runs lent", f"submission {asked}", {"reusable": False}, {"reusable": True}),
        ("runs no longer lent", f"submission {asked}", {"reusable": True}, {"reusable": False}),
        ("visibility", f"submission {asked}", {"public": True}, {"public": False}),
        ("submission withdrawn", f"submission {asked}", {}, {"reason": "the team asked"}),
    ]


def test_what_a_curator_began_to_cancel_is_recorded_whatever_comes(
    demo: Dataset, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    cora, submission = make_a_curator(), Submission.objects.get(pk=api.submit().body["id"])

    def ends_and_breaks(job: Job) -> bool:
        request_cancel(job)
        raise OSError("the database went away")

    monkeypatch.setattr("submissions.jobs.changes.request_cancel", ends_and_breaks)
    with pytest.raises(OSError, match="went away"):
        cancel(submission, cora)
    assert submission.jobs.get().state == State.CANCELLED
    assert AuditRecord.objects.get(actor=cora).action == "submission cancelled"
    assert cancel(submission, cora) == 0  # nothing is left, and nothing to record
    assert AuditRecord.objects.filter(actor=cora).count() == 1


def test_what_a_team_does_to_its_own_is_told_as_that_and_no_act_of_curation(
    demo: Dataset, api: Api, alice: User
) -> None:
    bob = make_user("Bob")
    Membership.objects.create(team=team_of(alice), user=bob)
    for who, words in ((api, "Canceled by the submitter."), (Api(bob), "Canceled by its team.")):
        identifier = api.submit().body["id"]
        who.post(f"submissions/{identifier}/reusable/", reusable="true")
        who.post(f"submissions/{identifier}/cancel/")
        assert words in Job.objects.get(submission=identifier).log
    assert not AuditRecord.objects.exists()


def test_a_private_result_can_be_shown_and_hidden_again(demo: Dataset, api: Api, nobody: Api) -> None:
    identifier = api.submit(public="false").body["id"]
    work()
    assert nobody.get(f"submissions/{identifier}/").status == 404
    shown = api.post(f"submissions/{identifier}/visibility/", public="true")
    assert shown.body["public"] is True
    assert Entry.objects.get(submission_reference=identifier).visibility == "public"
    assert nobody.get(f"submissions/{identifier}/").status == 200
    api.post(f"submissions/{identifier}/visibility/", public="false")
    assert Entry.objects.get(submission_reference=identifier).visibility == "private"
    assert nobody.get(f"submissions/{identifier}/").status == 404


def test_what_is_made_private_while_it_waits_is_published_privately(demo: Dataset, api: Api) -> None:
    identifier = api.submit().body["id"]
    api.post(f"submissions/{identifier}/visibility/", public="false")
    work()
    assert Entry.objects.get(submission_reference=identifier).visibility == "private"


def test_what_is_made_private_while_it_is_scored_is_published_privately(
    demo: Dataset, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = api.submit().body["id"]
    score = score_kind.score_run

    def hidden_meanwhile(*arguments: Any, **options: Any) -> Any:
        api.post(f"submissions/{identifier}/visibility/", public="false")
        return score(*arguments, **options)

    monkeypatch.setattr(score_kind, "score_run", hidden_meanwhile)
    work()
    assert api.get(f"submissions/{identifier}/").body["state"] == "done"
    assert Entry.objects.get(submission_reference=identifier).visibility == "private"


def test_a_private_result_that_is_withdrawn_leaves_no_tombstone_for_others(
    demo: Dataset, api: Api, nobody: Api
) -> None:
    identifier = api.submit(public="false").body["id"]
    work()
    api.post(f"submissions/{identifier}/withdraw/", reason="mistake")
    assert "My system" not in nobody.client.get("/datasets/demo/").content.decode()
    assert nobody.get(f"submissions/{identifier}/").status == 404
    assert api.get(f"submissions/{identifier}/").body["state"] == "withdrawn"


@pytest.mark.parametrize("public", ["true", "false"])
def test_a_withdrawn_submission_cannot_be_shown_again(public: str, demo: Dataset, api: Api) -> None:
    identifier = api.submit(public=public).body["id"]
    work()
    api.post(f"submissions/{identifier}/withdraw/", reason="mistake")
    api.post(f"submissions/{identifier}/visibility/", public="true")
    assert Entry.objects.get(submission_reference=identifier).visibility != "public"


@pytest.mark.parametrize("path", ["withdraw", "visibility"])
@pytest.mark.parametrize(
    "body",
    [
        rb'{"reason": "\ud800", "public": "\ud800"}',
        b"[" * 5000,
        b'{"reason": ' + b"[" * 5000,
        b"\xff",
        b'{"reason": NaN}',
        b"[]",
        b"1",
    ],
)
def test_a_body_that_is_no_usable_json_is_the_senders_error(demo: Dataset, api: Api, path: str, body: bytes) -> None:
    address = f"/api/v1/submissions/{api.submit().body['id']}/{path}/"
    answer = api.client.post(address, body, content_type="application/json", headers=api.headers)
    assert answer.status_code == 400
    assert set(answer.json()) == {"code", "detail", "problems"}


def test_a_json_body_is_no_larger_than_a_form_may_be(demo: Dataset, api: Api, settings: Any) -> None:
    address = f"/api/v1/submissions/{api.submit().body['id']}/withdraw/"
    body = b" " * settings.DATA_UPLOAD_MAX_MEMORY_SIZE + b'{"reason": "wrong index"}'
    answer = api.client.post(address, body, content_type="application/json", headers=api.headers)
    assert answer.status_code == 413


def test_a_curator_withdraws_from_the_command_line(demo: Dataset, api: Api, curator: User) -> None:
    sent = api.submit(system="Mine")
    work()
    call_command("withdraw", sent.body["id"], by=curator.email, why="the team asked for it")
    entry = Entry.objects.get()
    assert (entry.visibility, entry.withdrawal_reason) == (
        Entry.Visibility.WITHDRAWN,
        "the team asked for it",
    )
    with pytest.raises(CommandError, match="already withdrawn"):
        call_command("withdraw", sent.body["id"], by=curator.email, why="again")
    with pytest.raises(CommandError, match="There is no submission"):
        call_command("withdraw", "nonsense", by=curator.email, why="again")
