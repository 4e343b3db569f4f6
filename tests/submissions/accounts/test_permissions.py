"""Who sees and changes what."""

from __future__ import annotations

import pytest
from django.test import Client

from leaderboard.models import Dataset, Entry, Membership, User
from submissions.accounts.teams import personal_team
from submissions.models import Submission
from tests.factories import make_a_curator, make_user
from tests.submissions.clients import Api
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db


@pytest.fixture
def private(demo: Dataset, api: Api) -> str:
    """The id of a scored private submission."""
    identifier: str = api.submit(public="false", note="not for others").body["id"]
    work()
    return identifier


@pytest.fixture
def public(demo: Dataset, api: Api) -> str:
    """The id of a scored public submission."""
    identifier: str = api.submit(note="not for others").body["id"]
    work()
    return identifier


def test_a_private_submission_does_not_exist_for_others(private: str, stranger: Api, nobody: Api) -> None:
    for person in (stranger, nobody):
        assert person.get(f"submissions/{private}/").status == 404
        assert person.client.get(f"/submissions/{private}/").status_code == 404
        assert person.client.get(f"/submissions/{private}/progress/").status_code == 404
    assert stranger.post(f"submissions/{private}/withdraw/", reason="x").status == 404
    assert Entry.objects.get(submission_reference=private).visibility == "private"


def test_a_waiting_public_submission_does_not_exist_for_others_yet(demo: Dataset, api: Api, stranger: Api) -> None:
    waiting = api.submit().body["id"]
    assert stranger.get(f"submissions/{waiting}/").status == 404


def test_a_rejected_submission_stays_with_its_team(
    demo: Dataset, api: Api, stranger: Api, settings: pytest.FixtureRequest
) -> None:
    settings.VALIDATE_AT_ONCE_BYTES = 10  # type: ignore[attr-defined]
    rejected = api.submit("junk that no worker can score\n").body["id"]
    work()
    assert api.get(f"submissions/{rejected}/").body["state"] == "rejected"
    assert stranger.get(f"submissions/{rejected}/").status == 404


def test_everyone_sees_the_facts_of_a_public_result_and_no_more(public: str, stranger: Api, nobody: Api) -> None:
    for person in (stranger, nobody):
        answer = person.get(f"submissions/{public}/").body
        assert answer["state"] == "done"
        assert answer["jobs"][0]["scores"]["RR@10"] == 1.0
        assert answer["jobs"][0]["log"] == []
        page = person.client.get(f"/submissions/{public}/")
        assert page.status_code == 200
        text = page.content.decode()
        assert "My system" in text
        assert "not for others" not in text
        assert "run.txt" not in text
        assert "@example.org" not in text
        assert "Withdraw" not in text


@pytest.mark.parametrize("action", ["cancel", "withdraw", "visibility"])
def test_strangers_cannot_change_what_they_can_see(action: str, public: str, stranger: Api, nobody: Api) -> None:
    fields = {"reason": "mischief", "public": "false"}
    assert stranger.post(f"submissions/{public}/{action}/", **fields).status == 403
    assert nobody.post(f"submissions/{public}/{action}/", **fields).status == 401
    client = Client()
    client.force_login(make_user("Carol"))
    assert client.post(f"/submissions/{public}/{action}/", fields).status_code == 403
    submission = Submission.objects.get(pk=public)
    assert submission.public
    assert submission.withdrawn_at is None


def test_teammates_and_staff_see_and_change_everything(private: str, alice: User) -> None:
    teammate, curator = make_user("Tom"), make_a_curator("Cora")
    Membership.objects.create(team=personal_team(alice), user=teammate)
    for person in (teammate, curator):
        client = Client()
        client.force_login(person)
        page = client.get(f"/submissions/{private}/").content.decode()
        assert "not for others" in page
        assert "Withdraw" in page
    assert [row["id"] for row in Api(teammate).get("submissions/").body["results"]] == [private]
    assert Api(curator).get("submissions/").body["results"] == []


def test_pages_for_members_send_others_to_sign_in(db: None, client: Client) -> None:
    for path in ("/submit/model/", "/submissions/", "/account/"):
        response = client.get(path)
        assert response.status_code == 302
        assert response["Location"] == f"/account/login/?next={path}"


def test_changes_need_post(public: str, signed_in: Client) -> None:
    for action in ("cancel", "withdraw", "visibility"):
        assert signed_in.get(f"/submissions/{public}/{action}/").status_code == 405
