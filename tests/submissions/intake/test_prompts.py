"""Prompts of single datasets in one submission, by the API and the page, to what stands with the results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from leaderboard.core.storage.runs import read_text
from leaderboard.models import Dataset, Run
from leaderboard.results.reported_facts import fact_texts
from submissions.models import Job, State, Submission
from tests.pages import one_line
from tests.submissions.clients import Api, upload
from tests.submissions.model_jobs import (
    by_one_process,
    import_small,
    make_submission,
    queue_model,
    run_waiting,
)
from tests.submissions.models import collection, static_files, submit_model, with_corpus, zipped
from tests.submissions.views.test_model_page import NEW

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("models_run_here", "corpus")]

#: One that is for searching, under another name than query.
PROMPTS = {"web_search_query": "word3 word3 ", "sts_query": "word5 "}


@pytest.fixture
def corpus(demo: Dataset, tmp_path: Path) -> Dataset:
    """Two open datasets with their documents."""
    collection(tmp_path, "other")
    return with_corpus(demo, tmp_path)


def archive(prompts: Mapping[str, str]) -> bytes:
    """A model with these prompts of its own."""
    settings = json.dumps({"prompts": prompts, "model_type": "SentenceTransformer"}).encode()
    return zipped({**static_files(), "config_sentence_transformers.json": settings})


def with_prompts(api: Api, prompts: Any, **fields: Any) -> Any:
    """Submit a model over both datasets."""
    model = upload(archive(PROMPTS), "bge-base-en-v1.5.zip")
    given = {"dataset": ["demo", "other"], "checkpoint": model, "prompts": json.dumps(prompts), **fields}
    return submit_model(api, **given)


def test_each_dataset_has_its_prompts(api: Api) -> None:
    own = {"query_prompt": "Instruct: find\nQuery: ", "document_prompt": ""}
    accepted = with_prompts(
        api,
        {"other": own},
        parameters=json.dumps({"query_prompt": "auto:web_search_query", "document_prompt": ""}),
    )
    assert accepted.status == 201, accepted.body
    assert accepted.body["parameters"]["query_prompt"] == "auto:web_search_query"
    told = {job["dataset"]: job["parameters"] for job in accepted.body["jobs"]}
    assert told == {"demo": {}, "other": {"query_prompt": own["query_prompt"]}}  # the other one is as for all
    jobs = {job.dataset.slug: job.model_parameters for job in Job.objects.all()}
    assert jobs["demo"] == Submission.objects.get().parameters
    assert jobs["other"] == {**jobs["demo"], "query_prompt": own["query_prompt"]}


@pytest.mark.parametrize(
    ("prompts", "code", "said"),
    [
        (
            {"nowhere": {"query_prompt": "a"}},
            "unknown_prompt_dataset",
            "nowhere, which the model does not run on",
        ),
        (
            {"demo": {"fields": "title"}},
            "invalid_parameters",
            "prompts of Demo: fields is not a prompt of dense",
        ),
        (
            {"demo": {"query_prompt": "auto:web"}},
            "invalid_parameters",
            "its prompts are sts_query, web_search_query",
        ),
        ({"demo": {"query_prompt": 3}}, "invalid_prompts", "query_prompt of demo is not text"),
        ({"demo": {"query_prompt": "a" * 1001}}, "invalid_prompts", "at most 1,000 characters"),
        ({"demo": {"query_prompt": "a\u202eb"}}, "invalid_prompts", "query_prompt of demo"),
        ({"demo": "query: "}, "invalid_prompts", "not an object of objects"),
        (["demo"], "invalid_prompts", "not an object of objects"),
    ],
)
def test_what_is_wrong_with_prompts_is_said(api: Api, prompts: Any, code: str, said: str) -> None:
    answer = with_prompts(api, prompts)
    assert answer.status == 400
    assert said in answer.problem(code)["message"]
    assert not Submission.objects.exists()


def test_a_name_that_the_model_does_not_have_is_refused(api: Api) -> None:
    answer = with_prompts(api, {}, parameters="document_prompt=auto:passage")
    assert "the checkpoint has no prompt of this name" in answer.problem("invalid_parameters")["message"]
    assert answer.problem("invalid_parameters")["hint"]


def test_other_prompts_are_another_way_to_run_a_system(api: Api) -> None:
    """The same again is refused; with another prompt on one of the datasets a label is needed."""
    assert with_prompts(api, {"other": {"query_prompt": "word1 "}}).status == 201
    again = with_prompts(api, {"other": {"query_prompt": "word1 "}}, system="my-model")
    assert again.problem("already_submitted")
    otherwise = with_prompts(api, {"other": {"query_prompt": "word2 "}}, system="my-model", dataset="other")
    assert "query_prompt word2" in otherwise.problem("label_needed")["hint"]


def test_a_check_says_what_is_to_be_known_before_sending(api: Api) -> None:
    told = api.post("check/", kind="model", checkpoint=upload(archive(PROMPTS), "bge-base-en-v1.5.zip")).body
    assert told["valid"]
    assert told["checkpoint"]["prompts"] == PROMPTS
    found = {problem["code"]: problem for problem in told["problems"]}
    assert "query_prompt=auto:web_search_query" in found["prompt_names"]["hint"]
    assert "prompt_template" not in found  # it is no BERT
    like = {"query": "search_query: ", "document": "search_document: "}
    told = api.post("check/", kind="model", checkpoint=upload(archive(like), "mine.zip")).body
    assert told["checkpoint"]["prompt_template"] == "Nomic Embed"
    assert not [problem for problem in told["problems"] if problem["code"].startswith("prompt")]


def test_the_page_takes_prompts_of_datasets_and_keeps_them(signed_in: Client, api: Api) -> None:
    sent = {
        **NEW,
        "dataset": ["demo", "other"],
        "parameter-query_prompt": "auto",
        "prompt-demo-query_prompt": "Instruct: one\r\nQuery: ",
        "prompt-demo-document_prompt": "",
        "prompt-other-query_prompt": "a" * 1001,
    }
    page = one_line(signed_in.post("/submit/model/", sent).content.decode())
    assert "Nothing was submitted" in page
    assert page.count('<tr class="own-prompts"><td colspan="2"><details open>') == 2
    assert "Instruct: one" in page
    checkpoint = upload(archive(PROMPTS), "m.zip")
    response = signed_in.post("/submit/model/", {**sent, "prompt-other-query_prompt": "", "checkpoint": checkpoint})
    assert response.status_code == 302, response.content.decode()
    own = {job.dataset.slug: job.payload.get("parameters") for job in Job.objects.all()}
    assert own == {"demo": {"query_prompt": "Instruct: one\nQuery: "}, "other": None}
    followed = one_line(signed_in.get(response["Location"]).content.decode())
    assert "<dt>Query prompt on this dataset</dt><dd>&quot;Instruct: one\\nQuery: &quot;</dd>" in followed
    assert "none of them query: queries get no prompt" in followed
    again = signed_in.get("/submit/model/").content.decode()
    assert "Prompts of models that you uploaded before" in again
    assert "<code>auto:web_search_query</code>" in again


def test_prompts_are_stored_and_shown_with_the_result(
    with_toy_engine: None, unmeasured: None, client: Client, tmp_path: Path
) -> None:
    """The model is run with its dataset's own prompt, and the result names what was put before queries."""
    submission = make_submission()
    job = queue_model(import_small(tmp_path), submission, parameters={"query_prompt": "berlin berlin "})
    run_waiting()
    job.refresh_from_db()
    assert job.state == State.DONE
    assert job.entry is not None
    assert job.entry.facts["query_prompt"] == "berlin berlin "
    run = Run.objects.get(system=submission.system)
    assert run.metadata["made_by"]["parameters"]["query_prompt"] == "berlin berlin "
    made = {
        prompt: by_one_process(job.dataset, submission, tmp_path / "run.txt", 50_000)
        for prompt in ("auto", "berlin berlin ")
        if submission.parameters.update(query_prompt=prompt) is None
    }
    assert read_text(run.sha256).decode() == made["berlin berlin "] != made["auto"]
    page = client.get(submission.get_absolute_url()).content.decode()
    assert "<dt>Before each query</dt><dd>“berlin berlin ”</dd>" in page
    assert fact_texts({"query_prompt": ""}) == [("Before each query", "nothing")]
