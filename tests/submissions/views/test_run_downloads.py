"""Who may download a run that was scored."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from django.test import Client

from leaderboard.models import Dataset
from tests.factories import make_a_curator, make_user
from tests.submissions.clients import Api
from tests.submissions.collections import run_text
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db


def submitted(api: Api, dataset: str = "demo", **fields: Any) -> str:
    """The address of the run of a scored submission."""
    answer = api.submit(dataset=dataset, **fields)
    work()
    return f"/submissions/{answer.body['id']}/runs/{dataset}/"


def statuses(address: str, *clients: Client) -> list[int]:
    """What each is answered; the submission's page has the link exactly where it works."""
    found = []
    for client in clients:
        found.append(client.get(address).status_code)
        page = client.get(address.split("runs/")[0]).content.decode()
        assert (f'href="{address}"' in page) == (found[-1] == 200)
    return found


@pytest.fixture
def others() -> tuple[Client, Client, Client]:
    """A curator, somebody else, and a visitor."""
    curator, somebody = Client(), Client()
    curator.force_login(make_a_curator("Carol"))
    somebody.force_login(make_user("Bob"))
    return curator, somebody, Client()


def test_a_team_has_its_own_run_as_it_was_scored(demo: Dataset, api: Api, signed_in: Client) -> None:
    response = signed_in.get(submitted(api))
    assert gzip.decompress(response.getvalue()).decode() == run_text()
    assert response.headers["Content-Disposition"].startswith('attachment; filename="demo.my-system.')
    assert "sandbox" in response.headers["Content-Security-Policy"]
    assert response.headers["Cache-Control"] == "private, no-cache"


@pytest.mark.parametrize(
    ("visibility", "answers"),
    [("curators", [200, 404, 404]), ("participants", [200, 200, 404]), ("public", [200, 200, 200])],
)
def test_the_dataset_says_who_else_may_have_the_runs_of_public_results(
    demo: Dataset,
    api: Api,
    signed_in: Client,
    others: tuple[Client, ...],
    visibility: str,
    answers: list[int],
) -> None:
    address = submitted(api)
    Dataset.objects.update(runs_visibility=visibility)
    assert statuses(address, signed_in, *others) == [200, *answers]
    kept = "no-cache" if visibility == "public" else "private, no-cache"
    assert signed_in.get(address).headers["Cache-Control"] == kept


def test_a_run_over_hidden_judgements_is_for_its_team_alone(
    secret: Dataset, api: Api, signed_in: Client, others: tuple[Client, ...]
) -> None:
    address = submitted(api, "secret")
    Dataset.objects.update(runs_visibility="public")
    assert statuses(address, signed_in, *others) == [200, 404, 404, 404]
    assert signed_in.get(address).headers["Cache-Control"] == "private, no-cache"


def test_the_run_of_a_private_or_withdrawn_result_is_for_its_team_alone(
    demo: Dataset, api: Api, signed_in: Client, others: tuple[Client, ...]
) -> None:
    Dataset.objects.update(runs_visibility="public")
    private = submitted(api, public="false")
    assert [client.get(private).status_code for client in (signed_in, *others)] == [200, 404, 404, 404]
    withdrawn = submitted(api, configuration="seed 2")
    api.post(f"submissions/{withdrawn.split('/')[2]}/withdraw/", reason="wrong index")
    assert statuses(withdrawn, signed_in, *others) == [200, 404, 404, 404]


def test_there_is_nothing_to_download_before_it_is_scored(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit().body["id"]
    assert signed_in.get(f"/submissions/{identifier}/runs/demo/").status_code == 404
    work()
    assert signed_in.get(f"/submissions/{identifier}/runs/elsewhere/").status_code == 404


def test_who_has_the_run_already_is_not_sent_it_again(demo: Dataset, api: Api, signed_in: Client) -> None:
    address = submitted(api)
    etag = signed_in.get(address).headers["ETag"]
    assert signed_in.get(address, headers={"If-None-Match": etag}).status_code == 304


def test_submitters_are_told_before_they_submit(demo: Dataset, secret: Dataset, signed_in: Client) -> None:
    told = "runs of public results may be downloaded by everyone"
    assert told not in signed_in.get("/submit/").content.decode()
    Dataset.objects.update(runs_visibility="public")
    assert signed_in.get("/submit/").content.decode().count(told) == 1  # not for the hidden one
    assert "Everyone can download the runs of public results." in signed_in.get("/datasets/demo/").content.decode()


def test_the_api_links_the_run_where_it_may_be_had_and_a_token_is_enough(
    demo: Dataset, api: Api, stranger: Api
) -> None:
    identifier = api.submit().body["id"]
    assert api.get(f"submissions/{identifier}/").body["jobs"][0]["run_url"] is None  # not scored yet
    work()
    (job,) = api.get(f"submissions/{identifier}/").body["jobs"]
    assert api.get("submissions/").body["results"][0]["jobs"][0]["run_url"] == job["run_url"]
    response = Client().get(job["run_url"], headers=api.headers)
    assert gzip.decompress(response.getvalue()).decode() == run_text()
    assert "Authorization" in response.headers["Vary"]
    assert stranger.get(f"submissions/{identifier}/").body["jobs"][0]["run_url"] is None
    assert Client().get(job["run_url"], headers=stranger.headers).status_code == 404
    wrong = Client().get(job["run_url"], headers={"Authorization": "Bearer rb_wrong"})
    assert wrong.status_code == 401
    assert wrong.headers["WWW-Authenticate"] == "Bearer"
