"""Submitting through the API: from the file to the published row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leaderboard.models import Dataset, Entry, System
from submissions.models import Job, Submission
from tests.submissions.clients import Api, upload
from tests.submissions.collections import QUERIES, make_collection, run_text
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


def test_a_run_goes_in_and_its_scores_come_out(demo: Dataset, baseline: None, api: Api) -> None:
    accepted = api.submit(configuration="seed 1")
    assert accepted.status == 201
    assert accepted.body["state"] == "queued"
    assert accepted.body["jobs"][0]["scores"] == {}
    assert accepted.headers["Location"].endswith(f"/submissions/{accepted.body['id']}/")
    work()
    done = api.get(f"submissions/{accepted.body['id']}/").body
    assert (done["state"], done["kind"], done["configuration"]) == ("done", "run", "seed 1")
    job = done["jobs"][0]
    assert job["scores"]["RR@10"] == 1.0
    assert job["scores"]["R@100"] == 1.0
    assert job["board"].endswith("/datasets/demo/")
    assert any("Validated" in line for line in job["log"])
    entry = Entry.objects.get(submission_reference=done["id"])
    assert entry.scores == job["scores"]
    assert entry.provenance == "scored"


def test_hidden_datasets_publish_three_decimals(secret: Dataset, api: Api) -> None:
    accepted = api.submit(run_text(QUERIES[3:], skip=2), dataset="secret")
    work()
    job = api.get(f"submissions/{accepted.body['id']}/").body["jobs"][0]
    assert job["scores"]
    assert all(round(value, 3) == value for value in job["scores"].values())
    assert job["missing_queries"] is None


def test_a_refused_run_leaves_nothing_behind(demo: Dataset, api: Api, stored_files: Callable[[], set[str]]) -> None:
    before = stored_files()
    answer = api.submit(run_text() + "only three fields\n")
    assert answer.status == 400
    assert set(answer.body) >= {"code", "detail", "problems"}
    assert answer.body["code"] == "invalid_run"
    assert answer.problem("fields")["lines"] == [241]
    assert not Submission.objects.exists()
    assert not Job.objects.exists()
    assert not System.objects.filter(name="My system").exists()
    assert stored_files() == before


def test_several_files_pair_with_datasets_in_order(demo: Dataset, secret: Dataset, api: Api) -> None:
    answer = api.submit(
        dataset=["secret", "demo"],
        file=[upload(run_text(tag="s"), "a.txt"), upload(run_text(tag="d"), "b.txt")],
    )
    assert answer.status == 201
    assert {(job.dataset.slug, job.payload["tag"]) for job in Job.objects.all()} == {
        ("secret", "s"),
        ("demo", "d"),
    }


def test_one_bad_file_of_two_refuses_both_and_is_named(demo: Dataset, secret: Dataset, api: Api) -> None:
    answer = api.submit(dataset=["secret", "demo"], file=[upload(run_text(), "good.txt"), upload("junk\n", "bad.txt")])
    assert answer.status == 400
    assert "bad.txt" in answer.body["detail"]
    assert answer.problem("fields")["message"].startswith("bad.txt: ")
    assert [file["valid"] for file in answer.body["files"]] == [True, False]
    assert not Submission.objects.exists()


def test_files_and_datasets_that_do_not_pair_are_refused(demo: Dataset, secret: Dataset, api: Api) -> None:
    answer = api.submit(dataset=["demo", "secret"])
    assert answer.status == 400
    assert answer.problem("pairing")["hint"].startswith("Send one dataset per file")


def test_an_unknown_dataset_is_refused_with_those_there_are(demo: Dataset, api: Api) -> None:
    answer = api.submit(dataset="dmeo")
    assert answer.status == 400
    assert "demo" in answer.problem("unknown_dataset")["hint"]


def test_a_file_named_after_its_dataset_needs_no_dataset(demo: Dataset, api: Api) -> None:
    assert api.submit(dataset=None, file=upload(run_text(), "demo.run.txt")).status == 201


def test_the_same_run_twice_is_refused_with_the_earlier_one(demo: Dataset, api: Api) -> None:
    first = api.submit()
    again = api.submit()
    assert again.status == 400
    assert first.body["id"] in again.problem("already_submitted")["message"]
    assert api.submit(configuration="seed 2").status == 201
    assert Submission.objects.count() == 2


def test_a_run_withdrawn_before_it_was_scored_may_be_sent_again(demo: Dataset, api: Api) -> None:
    first = api.submit()
    api.post(f"submissions/{first.body['id']}/withdraw/", reason="wrong index")
    again = api.submit()
    assert again.status == 201
    work()
    assert api.get(f"submissions/{again.body['id']}/").body["state"] == "done"


def test_a_result_that_was_withdrawn_does_not_come_back(demo: Dataset, api: Api) -> None:
    first = api.submit()
    work()
    api.post(f"submissions/{first.body['id']}/withdraw/", reason="wrong index")
    assert "was withdrawn" in api.submit().problem("already_submitted")["message"]
    relabelled = api.submit(configuration="right after all")
    work()
    assert api.get(f"submissions/{relabelled.body['id']}/").body["state"] == "done"


def test_a_system_is_made_once_and_then_named(demo: Dataset, secret: Dataset, api: Api) -> None:
    assert api.submit(parameters="k1=0.9, b=0.4", training_datasets="Demo").status == 201
    by_name = api.submit(dataset="secret", parameters='{"k1": 0.9, "b": 0.4}', training_datasets="demo")
    assert by_name.status == 201
    by_slug = api.submit(run_text(depth=7), system="my-system", architecture=None, configuration="top 7")
    assert by_slug.status == 201
    system = System.objects.get(name="My system")
    assert system.parameters == {"k1": 0.9, "b": 0.4}
    assert system.training_datasets == ["demo"]
    assert system.team is not None
    assert system.team.name == "Alice"


def test_contradicting_what_a_system_says_of_itself_is_refused(demo: Dataset, api: Api) -> None:
    api.submit()
    answer = api.submit(run_text(depth=7), architecture="lexical")
    assert answer.status == 400
    assert "a different architecture" in answer.problem("invalid_system")["message"]


def test_a_system_may_be_a_json_object(demo: Dataset, api: Api) -> None:
    described = {
        "name": "Careful",
        "architecture": "late-interaction",
        "paper": "https://example.org/paper",
        "training_datasets": [],
        "parameters": {"bits": 2},
        "dimension": 128,
    }
    assert api.submit(system=json.dumps(described), architecture=None).status == 201
    system = System.objects.get(name="Careful")
    assert (system.paper_url, system.dimension, system.parameters) == (
        "https://example.org/paper",
        128,
        {"bits": 2},
    )
    assert system.training_declared
    assert system.training_datasets == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"architecture": None}, "invalid_architecture"),
        ({"architecture": "quantum"}, "invalid_architecture"),
        ({"system": None}, "invalid_system"),
        ({"system": "{broken"}, "invalid_system"),
        ({"kind": "song"}, "invalid_kind"),
        ({"public": "perhaps"}, "invalid_public"),
        ({"parameters": "k1"}, "invalid_parameters"),
        ({"parameters": '{"a": NaN}'}, "invalid_parameters"),
        ({"parameters": '{"a": "\\u0000"}'}, "invalid_parameters"),
        ({"parameters": '{"a": ' + "[" * 400 + "]" * 400 + "}"}, "invalid_parameters"),
        ({"system": '{"name": "\\ud800", "architecture": "dense"}'}, "invalid_system"),
        ({"paper": "javascript:alert(1)"}, "invalid_paper"),
        ({"paper": "ftp://example.org/x"}, "invalid_paper"),
        ({"configuration": "x" * 81}, "invalid_configuration"),
        ({"file": None}, "no_file"),
    ],
)
def test_a_malformed_request_says_which_field(fields: dict[str, Any], code: str, demo: Dataset, api: Api) -> None:
    answer = api.submit(**fields)
    assert answer.status == 400
    assert answer.problem(code)["message"]
    assert not Submission.objects.exists()


def test_somebody_elses_system_is_not_mine(demo: Dataset, api: Api, stranger: Api) -> None:
    api.submit()
    answer = stranger.submit(run_text(depth=7), system="my-system", architecture=None)
    assert answer.status == 400
    assert answer.problem("invalid_architecture")["message"].startswith("You have no system")


def test_my_submissions_are_listed_and_not_others(demo: Dataset, api: Api, stranger: Api) -> None:
    mine = api.submit().body["id"]
    stranger.submit()
    listed = api.get("submissions/")
    assert listed.status == 200
    assert [row["id"] for row in listed.body["results"]] == [mine]


def test_waiting_shows_position_and_whether_a_worker_is_alive(demo: Dataset, api: Api, live_worker: None) -> None:
    api.submit()
    second = api.submit(configuration="seed 2").body
    assert second["queue_position"] == 1
    assert second["workers_alive"] == 1
    assert second["jobs"][0]["queue_position"] == 1


def test_without_a_worker_the_submission_waits_and_says_so(demo: Dataset, api: Api) -> None:
    answer = api.submit().body
    assert (answer["queue_position"], answer["workers_alive"]) == (0, 0)


def test_a_collecting_dataset_takes_runs_that_wait(api: Api, tmp_path: Path) -> None:
    dataset = make_collection(tmp_path, "pool")
    Dataset.objects.filter(pk=dataset.pk).update(state=Dataset.State.COLLECTING, current_qrels=None)
    answer = api.submit(dataset="pool")
    assert answer.status == 201
    work()
    waiting = api.get(f"submissions/{answer.body['id']}/").body
    assert waiting["state"] == "queued"
    assert "collecting" in waiting["jobs"][0]["meaning"]


def test_mteb_predictions_are_taken(demo: Dataset, api: Api) -> None:
    ranking = {f"q{query}": {"d1": 0.9, "d3": 0.8, "d7": 0.1} for query in range(1, 13)}
    predictions = json.dumps({"mteb_model_meta": {"model_name": "org/model"}, "default": {"test": ranking}})
    answer = api.submit(predictions, file=upload(predictions, "demo_predictions.json"))
    assert answer.status == 201, answer.body
    work()
    assert api.get(f"submissions/{answer.body['id']}/").body["jobs"][0]["scores"]["RR@10"] == 1.0


@pytest.mark.parametrize("field", ["system", "dataset", "configuration", "note"])
def test_nul_characters_are_refused(field: str, demo: Dataset, api: Api) -> None:
    answer = api.submit(**{field: "a\0b"})
    assert answer.status == 400
    assert "NUL" in answer.body["detail"]


def test_a_request_with_too_long_fields_is_answered_in_the_same_shape(demo: Dataset, api: Api) -> None:
    answer = api.submit(note="x" * 3_000_000)
    assert answer.status == 413
    assert answer.body["code"] == "invalid"


def test_a_json_body_that_is_no_object_is_refused(demo: Dataset, api: Api) -> None:
    identifier = api.submit().body["id"]
    path = f"/api/v1/submissions/{identifier}/visibility/"
    response = api.client.post(path, "[1]", content_type="application/json", headers=api.headers)
    assert response.status_code == 400
    good = api.client.post(path, '{"public": false}', content_type="application/json", headers=api.headers)
    assert good.json()["public"] is False


@pytest.mark.long_on_postgresql
def test_listing_many_submissions_takes_few_queries(
    demo: Dataset, api: Api, signed_in: Any, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        api.submit(run_text(depth=number + 3), configuration=f"top {number + 3}")
    work()
    with django_assert_max_num_queries(14):
        assert len(api.get("submissions/").body["results"]) == 5
    signed_in.get("/submissions/")  # once in five minutes a session is noted
    with django_assert_max_num_queries(15):
        assert signed_in.get("/submissions/").status_code == 200


def test_strange_metadata_of_predictions_does_no_harm(demo: Dataset, api: Api) -> None:
    ranking = {f"q{query}": {"d1": 0.9, "d3": 0.8} for query in range(1, 13)}
    metadata = {"revision": "a\0b", "nested": [[1]], "release": 3}
    predictions = json.dumps({"mteb_model_meta": metadata, "default": {"test": ranking}})
    answer = api.submit(file=upload(predictions, "predictions.json"))
    assert answer.status == 201
    work()
    assert api.get(f"submissions/{answer.body['id']}/").body["state"] == "done"


def test_errors_have_one_shape(demo: Dataset, api: Api, nobody: Api) -> None:
    for answer, status in [
        (nobody.submit(), 401),
        (nobody.get("submissions/"), 401),
        (api.get("submissions/nothere/"), 404),
        (api.post("submissions/nothere/cancel/"), 404),
        (api.submit(kind="model"), 400),
    ]:
        assert answer.status == status
        assert set(answer.body) >= {"code", "detail", "problems"}
        assert answer.body["code"]
        assert answer.body["detail"]
