"""An engine is offered, submitted to and run once it is registered, whatever its architecture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import Client

from evaluation.engines import ENGINES
from leaderboard.models import Dataset, System
from submissions.models import Job, State
from tests.pages import one_line
from tests.submissions import toy_engine
from tests.submissions.clients import Api, upload
from tests.submissions.model_jobs import run_waiting
from tests.submissions.models import static_archive, submit_model, with_corpus
from tests.submissions.views.test_model_page import NEW

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("models_run_here")]
ENGINE = replace(toy_engine.DESCRIPTION, architecture="byte-sums")


@pytest.fixture
def dataset(
    with_toy_engine: None,
    unmeasured: None,
    demo: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Dataset:
    """The open dataset with its documents, and the toy engine with an architecture that no other has."""
    monkeypatch.setitem(ENGINES, ENGINE.name, ENGINE)
    return with_corpus(demo, tmp_path)


def finished_system(name: str) -> System:
    """Do what waits, and return the system, which has a result then."""
    job = Job.objects.get(submission__system__name=name)
    job.payload["unprotected"] = True  # as the toy engine may run
    job.save()
    run_waiting()
    job.refresh_from_db()
    assert job.state == State.DONE, job.log
    assert job.entry is not None
    return job.entry.system


def test_the_page_takes_a_model_for_it(dataset: Dataset, signed_in: Client) -> None:
    page = one_line(signed_in.get("/submit/model/", {"engine": ENGINE.name}).content.decode())
    assert "Toy" in page.partition("Encoders")[2].partition("Re-rankers")[0]
    sent = {
        **NEW,
        "engine": ENGINE.name,
        "dataset": [dataset.slug],
        "parameter-pause": "0",
        "parameter-wrong": "",
        "parameter-query_prompt": "auto",
        "checkpoint": upload(static_archive(), "static.zip"),
    }
    response = signed_in.post("/submit/model/", sent)
    assert response.status_code == 302, response.content.decode()
    system = finished_system("My model")
    assert system.get_architecture_display() == "byte-sums"
    assert "byte-sums" in signed_in.get(f"/datasets/{dataset.slug}/").content.decode()


def test_the_api_takes_a_model_for_it(dataset: Dataset, api: Api) -> None:
    assert ENGINE.name in {each["name"] for each in api.get("models/").body["engines"]}
    accepted = submit_model(api, engine=ENGINE.name)
    assert accepted.status == 201, accepted.body
    system = finished_system("My model")
    assert api.get(f"systems/{system.slug}/").body["architecture"] == "byte-sums"
    refused = submit_model(api, system=system.slug)
    assert "“byte-sums”" in refused.problem("architecture_mismatch")["message"]


@pytest.mark.parametrize(
    ("changes", "fault", "hint"),
    [
        ({}, "docs/engines.md does not describe it", "`toy` in its heading"),
        ({"architecture": "a" * 25}, "its architecture has more than 24 characters", "System.architecture"),
        (
            {"architecture": "Two words"},
            "its architecture 'Two words' must consist of lower-case words",
            "tests.submissions.toy_engine",
        ),
        ({"encoding_parameters": ("pace",)}, "encoding_parameters contains 'pace'", "EngineDescription"),
        ({"checkpoints": ("sums",)}, "its checkpoints contain 'sums'", "EngineDescription"),
    ],
)
def test_a_check_names_what_it_lacks(
    changes: dict[str, Any], fault: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not [each for each in run_checks() if each.id == "submissions.E001"]
    monkeypatch.setitem(ENGINES, ENGINE.name, replace(ENGINE, **changes))
    errors = [each for each in run_checks() if each.id == "submissions.E001"]
    assert any(fault in each.msg and hint in str(each.hint) for each in errors)
    assert all("The engine 'toy' of tests.submissions.toy_engine" in each.msg for each in errors)
