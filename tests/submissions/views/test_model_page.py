"""The page for models, and the status page of what came through it, as people see them without JavaScript."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import escape
from playwright.sync_api import Browser, expect

from evaluation.engines import ENGINES
from leaderboard.models import Dataset, Entry, System, User
from submissions.accounts.permissions import get_teams
from submissions.accounts.teams import create_team
from submissions.intake.checkpoints import readiness
from submissions.models import Job, State, Submission, Upload
from tests.leaderboard.entries import cost, make_system, record_boards, score
from tests.pages import one_line
from tests.submissions.clients import Api, upload
from tests.submissions.collections import make_collection
from tests.submissions.models import collection, static_archive, submit_model, with_corpus, zipped
from tests.submissions.views.test_browser import sign_in
from tests.submissions.workers import announce

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("models_run_here", "corpus")]
NEW = {"action": "submit", "new-name": "My model", "engine": "dense", "public": "yes"}


@pytest.fixture
def corpus(demo: Dataset, tmp_path: Path) -> Dataset:
    """The open dataset, its documents kept here."""
    return with_corpus(demo, tmp_path)


def archive() -> Any:
    """The checkpoint as a form sends it."""
    return upload(static_archive(), "static.zip")


def page_of(client: Client, engine: str) -> str:
    """The form of an engine."""
    return one_line(client.get("/submit/model/", {"engine": engine}).content.decode())


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_has_a_form_with_its_parameters(engine: str, signed_in: Client) -> None:
    page = page_of(signed_in, engine)
    for parameter in ENGINES[engine].parameters:
        assert f'name="parameter-{parameter.name}"' in page
    assert ('type="file"' in page) == ENGINES[engine].needs_checkpoint
    assert ('id="runs"' in page) == (ENGINES[engine].runs[1] > 0)
    assert " style=" not in page
    assert "<script>" not in page


def test_the_two_pages_lead_to_each_other(signed_in: Client) -> None:
    assert 'href="/submit/model/"' in signed_in.get("/submit/").content.decode()
    assert 'href="/submit/"' in page_of(signed_in, "dense")


def test_the_summary_is_beside_the_submit_button(signed_in: Client) -> None:
    summary = page_of(signed_in, "dense").partition('aria-labelledby="summary"')[2].partition('value="submit"')[0]
    for text in ("Engine:", "<b>Dense</b>", "Datasets chosen:", 'name="public"', "model runs today"):
        assert text in summary


def test_the_page_names_the_datasets_and_counts_the_workers_of_its_queues(signed_in: Client) -> None:
    announce("host:10", "score")
    announce("host:11", "cpu")
    page = page_of(signed_in, "dense")
    assert '<a href="#datasets">Available datasets</a>: Demo</p>' in page
    assert "Workers online for models: 1 on CPUs, 0 on GPUs." in page
    with CaptureQueriesContext(connection) as queries:
        signed_in.get("/submit/")
    assert sum('FROM "submissions_worker"' in query["sql"] for query in queries) == 1


def test_results_on_hidden_datasets_and_the_largest_archive_are_explained_once(
    signed_in: Client, tmp_path: Path
) -> None:
    note = "only the main result is computed"
    page = page_of(signed_in, "dense")
    assert note not in page
    assert re.search(r"up to \d+ GiB, uploaded in parts\.\s*<noscript>Without JavaScript, up to \d+ GiB\.", page)
    for slug in ("secret", "sealed"):
        collection(tmp_path, slug, hidden=True)
    page = page_of(signed_in, "dense")
    assert page.count("hidden judgments</span>") == 2
    assert page.count(note) == 1
    assert note not in page_of(signed_in, "bm25"), "it has no additional results"


def test_the_submit_button_is_there_once_with_what_it_needs(signed_in: Client) -> None:
    page = page_of(signed_in, "dense")
    assert page.count('value="submit"') == 1
    missing = page.partition('value="submit"')[2]
    targets = re.findall('<li class="is-[a-z]+">.*?href="#([^"]+)"', missing)
    assert targets[:2] == ["checkpoint", "datasets"]
    for target in targets:
        assert f'id="{target}"' in page
    assert "Choose at least one dataset" in missing


def test_a_model_is_submitted_and_followed(signed_in: Client, tmp_path: Path) -> None:
    collection(tmp_path, "other")
    sent = {**NEW, "dataset": ["demo", "other"], "checkpoint": archive(), "parameter-fields": "title"}
    response = signed_in.post("/submit/model/", sent)
    assert response.status_code == 302, response.content.decode()
    submission = Submission.objects.get()
    assert submission.parameters["fields"] == "title"
    page = signed_in.get(response["Location"]).content.decode()
    assert "static.zip" in page
    assert page.count("No worker for CPU jobs is online") == 1
    assert 'class="notice is-warning"' in page
    again = page_of(signed_in, "dense")
    assert f'<option value="{submission.checkpoint_id}">static.zip' in again
    assert "<b>2</b> of 60 model runs today" in again


def test_the_status_page_names_settings_that_differ_from_the_defaults(signed_in: Client, api: Api) -> None:
    identifier = submit_model(api, parameters="search=hnsw").body["id"]
    page = one_line(signed_in.get(f"/submissions/{identifier}/").content.decode())
    shown = re.sub(r"<details[^>]*(?<! open)>.*?</details>", "", page)
    assert "<dt>Search</dt><dd>hnsw</dd>" in shown
    assert "Query prompt" not in shown
    assert "<dt>Query prompt</dt>" in page
    assert re.search(r"1 of \d+ differ from the defaults", page)
    assert page.index('id="progress"') < page.index("Model and settings")


def test_quotas_are_those_of_the_chosen_team(signed_in: Client, alice: User, tmp_path: Path) -> None:
    with_corpus(make_collection(tmp_path, "secret", hidden=True, daily_quota=7), tmp_path)
    first, second = get_teams(alice).get(), create_team("Second", alice)
    system = System.objects.create(slug="seconds", name="Seconds", team=second, architecture="dense")
    page = page_of(signed_in, "dense")
    assert page.count("of 7 submissions today") == 1
    assert f"Quotas are those of <b>{first.name}</b>" in page
    assert re.search(rf"{first.name}: <b>0</b> of \d+ model runs today", one_line(page))
    named = signed_in.get("/submit/", {"system": system.name}).content.decode()
    assert "Quotas are those of <b>Second</b>" in one_line(named)
    chosen = {"action": "check", "engine": "dense", "team": second.slug}
    assert "Quotas are those of <b>Second</b>" in one_line(signed_in.post("/submit/model/", chosen).content.decode())


def test_a_gpu_that_is_not_there_is_said_and_the_choice_kept(signed_in: Client) -> None:
    sent = {**NEW, "dataset": "demo", "device": "gpu"}
    page = signed_in.post("/submit/model/", {**sent, "checkpoint": archive()}).content.decode()
    assert "No GPU worker that runs models was online within the last day." in page
    assert '<option value="gpu" selected' in page
    assert not Submission.objects.exists()
    announce("g", "gpu")
    assert signed_in.post("/submit/model/", {**sent, "checkpoint": archive()}).status_code == 302


def test_sample_archives_are_offered_where_they_fit(signed_in: Client, corpus: Dataset) -> None:
    assert corpus.current_version is not None
    for kind, name in (("example_model", "sample.zip"), ("refused_model", "refused.zip")):
        corpus.current_version.files.create(kind=kind, name=name, sha256="0" * 64, size=4096)
    page = page_of(signed_in, "dense")
    assert 'href="/datasets/demo/files/sample.zip"' in page
    assert 'href="/datasets/demo/files/refused.zip"' in page
    assert "sample.zip" not in page_of(signed_in, "cross-encoder")


def test_findings_are_listed_with_what_would_be_accepted(signed_in: Client) -> None:
    bad = upload(zipped({"config.json": b"{}", "pytorch_model.bin": b"x"}), "bad.zip")
    response = signed_in.post("/submit/model/", {**NEW, "dataset": "demo", "checkpoint": bad})
    page = one_line(response.content.decode())
    assert response.status_code == 400
    assert "pytorch_model.bin" in page
    assert 'href="/formats/#pickle_weights"' in page
    assert "python -m evaluation pack FOLDER" in page
    assert 'value="My model"' in page
    assert re.search(r'value="demo" id="dataset-demo" checked', page)
    assert not Submission.objects.exists()


def test_an_archive_is_checked_and_nothing_is_stored(signed_in: Client) -> None:
    response = signed_in.post("/submit/model/", {**NEW, "action": "check", "checkpoint": archive()})
    page = one_line(response.content.decode())
    assert "The model can be run." in page
    assert "<dt>Kind</dt><dd>static embeddings" in page
    assert "<dt>Weights</dt><dd>328</dd>" in page
    assert "<dt>Dimension</dt><dd>8</dd>" in page
    assert "A single time is based on at least 3 finished jobs of this kind" in page, "what it is was found out"
    without = signed_in.post("/submit/model/", {**NEW, "action": "check"})
    assert "No checkpoint was sent" in without.content.decode()
    assert not Submission.objects.exists()


def test_a_parameter_that_is_not_possible_is_marked_at_its_field(signed_in: Client) -> None:
    sent = {"action": "submit", "new-name": "Words", "engine": "bm25", "dataset": "demo", "parameter-b": "7"}
    page = signed_in.post("/submit/model/", sent).content.decode()
    assert "expected a number from 0 to 1" in page
    assert not Submission.objects.exists()


LACKING = {"works": False, "reason": "bwrap is not installed", "remedy": "apt install bubblewrap"}


def test_without_a_sandbox_the_page_says_why_and_what_helps(signed_in: Client, api: Api) -> None:
    announce(**LACKING)
    page = page_of(signed_in, "dense")
    assert "no live worker has a working one: bwrap is not installed." in page
    assert "apt install bubblewrap" in page
    assert submit_model(api).problem("sandbox_unavailable")["hint"] == "apt install bubblewrap"
    announce("another")
    assert "No model can be submitted now" not in page_of(signed_in, "dense")
    assert submit_model(api).status == 201


def test_where_nobody_is_alive_models_wait_for_those_that_were(signed_in: Client, api: Api) -> None:
    """A sandbox that worked within a day will work again; one that did not, and none at all, are refused."""
    assert "your model waits until a worker is online" in page_of(signed_in, "dense")
    assert submit_model(api).status == 201
    announce("resting", ago=timedelta(minutes=5), **LACKING)
    refusal = submit_model(api, configuration="2").problem("sandbox_unavailable")
    assert "the last live worker had no working one: bwrap is not installed." in refusal["message"]
    announce("resting", ago=timedelta(days=2))
    refusal = submit_model(api, configuration="3").problem("sandbox_unavailable")
    assert "No worker that runs models was online within the last day" in refusal["message"]
    assert "start a worker of the queue cpu or gpu" in page_of(signed_in, "dense")


def test_a_job_that_no_worker_can_run_says_why_it_waits(signed_in: Client, api: Api) -> None:
    identifier = submit_model(api).body["id"]
    announce(**LACKING)
    page = one_line(signed_in.get(f"/submissions/{identifier}/").content.decode())
    assert "The job is waiting.</b> No worker with a working sandbox is online: bwrap is not installed." in page
    assert "To fix it: <code>apt install bubblewrap</code>." in page
    assert "Your job is next" not in page
    assert "bwrap is not installed" in api.get(f"submissions/{identifier}/").body["jobs"][0]["meaning"]
    announce(isolates=False)
    assert "waits for a worker with a sandbox" in signed_in.get(f"/submissions/{identifier}/").content.decode()
    announce("another")
    assert "Your job is next" in signed_in.get(f"/submissions/{identifier}/").content.decode()


def test_unprotected_models_are_for_staff_on_the_machine_itself(
    signed_in: Client, alice: User, api: Api, settings: Any
) -> None:
    announce(backend="none", isolates=False)
    assert "which only staff" in submit_model(api).problem("sandbox_unavailable")["message"]
    alice.is_staff = True
    alice.save()
    assert "Models run here without a sandbox" in page_of(signed_in, "dense")
    settings.BEHIND_PROXY = True
    assert submit_model(api).problem("sandbox_unavailable")
    settings.BEHIND_PROXY = False
    assert submit_model(api).status == 201
    assert Job.objects.get().payload["unprotected"] is True
    assert not readiness.readiness(alice, local=False).ready
    announce("another")
    assert submit_model(api, configuration="2").status == 201
    assert "unprotected" not in Job.objects.latest("pk").payload


def test_a_running_job_shows_its_stage_and_the_time_left(signed_in: Client, api: Api) -> None:
    identifier = submit_model(api).body["id"]
    now = timezone.now()
    Job.objects.update(
        state=State.RETRIEVING,
        stage="encoding",
        progress=0.25,
        progress_note="325 of 1,300 documents",
        started_at=now - timedelta(minutes=1),
        lease_expires_at=now + timedelta(minutes=1),
    )
    page = signed_in.get(f"/submissions/{identifier}/").content.decode()
    assert "Encoding the documents" in page
    assert "325 of 1,300 documents, about 3 min" in page
    job = api.get(f"submissions/{identifier}/").body["jobs"][0]
    assert (job["stage"], job["progress_note"]) == ("encoding", "325 of 1,300 documents")


def test_how_a_model_failed_is_explained(signed_in: Client, api: Api) -> None:
    identifier = submit_model(api).body["id"]
    Job.objects.update(state=State.REJECTED, error_code="constant_output")
    page = signed_in.get(f"/submissions/{identifier}/").content.decode()
    assert "the same output for different texts" in page
    assert 'href="/formats/#constant_output"' in page
    job = api.get(f"submissions/{identifier}/").body["jobs"][0]
    assert (job["error_code"], bool(job["remedy"])) == ("constant_output", True)


def test_what_a_model_did_not_find_is_said_in_words_that_fit(signed_in: Client, api: Api) -> None:
    identifier = submit_model(api).body["id"]
    found = {
        **{"code": "judged_queries_missing", "severity": "warning", "count": 2, "lines": []},
        **{"message": "2 of the 5 judged queries are missing; they score 0", "hint": "Retrieve documents."},
    }
    Job.objects.update(state=State.DONE, report={"problems": [found]})
    page = signed_in.get(f"/submissions/{identifier}/").content.decode()
    assert "The model retrieved no document for these queries." in page
    assert "Retrieve documents." not in page


def test_advice_about_files_is_not_given_on_runs_of_models(signed_in: Client, api: Api) -> None:
    identifier = submit_model(api).body["id"]
    problems = [
        {
            "code": code,
            "severity": "warning",
            "count": 2,
            "lines": [],
            "message": f"about {code}",
            "hint": "Write more.",
        }
        for code in ("ties", "rank_order", "several_tags", "shallow")
    ]
    Job.objects.update(state=State.DONE, report={"problems": problems})
    page = signed_in.get(f"/submissions/{identifier}/").content.decode()
    assert re.findall(r"about (\w+)", page) == ["shallow"]
    assert "Compare by measures with smaller cutoffs." in page
    assert "Write more." not in page
    told = api.get(f"submissions/{identifier}/").body["jobs"][0]["problems"]
    assert [problem["code"] for problem in told] == ["shallow"]


def test_several_datasets_are_summarized_and_their_details_folded(
    signed_in: Client, api: Api, demo: Dataset, tmp_path: Path
) -> None:
    other = collection(tmp_path, "other")
    identifier = submit_model(api, dataset=["demo", "other"]).body["id"]
    entry = score(demo, System.objects.get(), ndcg=0.5, recall=0.7)
    Job.objects.filter(dataset=demo).update(state=State.DONE, entry=entry, evaluation=entry.evaluation)
    page = one_line(signed_in.get(f"/submissions/{identifier}/").content.decode())
    summary = page.partition('aria-label="Summary"')[2].partition("</table>")[0]
    rows = re.findall(r'<th scope="row"><a href="([^"]*)"', summary)
    assert rows == [demo.get_absolute_url(), other.get_absolute_url()]
    for cell in ("<b>0.500</b>", f'<a href="/datasets/demo/?pin={entry.system.slug}">1st of 1</a>', "done", "queued"):
        assert cell in summary
    waiting, ended = re.findall(r'<details class="fold"([^>]*)>', page)
    assert "hx-preserve" in ended, "polling does not fold what was unfolded"
    assert " open" not in ended, "the job that has not ended is first"
    assert 'data-copy-label="Copy the link to the board"' in page
    assert "See it on the board" in page
    assert waiting.strip() == "open"
    assert 'aria-current="step">queued</li>' in page
    assert "waiting, 1 of 2 done" in one_line(signed_in.get("/submissions/").content.decode())
    assert "R@100" not in page.partition('<div class="folds">')[0]
    assert "R@100" in page
    Job.objects.filter(dataset=other).update(state=State.REJECTED, error_code="constant_output")
    page = one_line(signed_in.get(f"/submissions/{identifier}/").content.decode())
    first, failed = re.findall(r'<details class="fold"([^>]*)>', page)
    assert " open" in first, "the first part shows its result as a card"
    assert " open" in failed


def test_reusable_is_set_on_the_status_page(signed_in: Client, api: Api, alice: User) -> None:
    identifier = submit_model(api).body["id"]
    signed_in.post(f"/submissions/{identifier}/reusable/", {"reusable": "yes"})
    assert Submission.objects.get().reusable
    assert get_teams(alice).count() == 1


def test_prompts_keep_their_blanks_and_may_be_empty(signed_in: Client) -> None:
    sent = {
        **NEW,
        "dataset": "demo",
        "checkpoint": archive(),
        "parameter-query_prompt": "Instruct: find\r\nQuery: ",
        "parameter-document_prompt": "",
        "parameter-batch_tokens": "",
    }
    assert signed_in.post("/submit/model/", sent).status_code == 302
    kept = Submission.objects.get().parameters
    assert kept["query_prompt"] == "Instruct: find\nQuery: "
    assert kept["document_prompt"] == ""
    assert kept["batch_tokens"] == 0
    assert kept["pooling"] == "auto"
    page = signed_in.get(Submission.objects.get().get_absolute_url()).content.decode()
    assert "<dd>&quot;Instruct: find\\nQuery: &quot;</dd>" in page


def sections_of(page: str) -> list[str]:
    """The headings of the form, which the style sheet numbers."""
    return re.findall(
        r'<(?:h2 id="(?:model|engine|runs|datasets)"|legend)> ?([^<]+?) ?</(?:h2|legend)>', one_line(page)
    )


def test_the_archive_is_before_the_engine(signed_in: Client) -> None:
    for engine, middle in {
        "bm25-rm3": ["Engine", "The datasets"],
        "dense": ["The model", "Engine", "The datasets"],
        "fusion": ["Engine", "The runs to fuse", "The datasets"],
        "cross-encoder": ["The model", "Engine", "The first stage", "The datasets"],
    }.items():
        assert sections_of(page_of(signed_in, engine))[: len(middle) + 1] == [*middle, "System"]


def test_the_kind_of_an_archive_chooses_the_engine_and_the_archive_is_kept(signed_in: Client, corpus: Dataset) -> None:
    before = page_of(signed_in, "cross-encoder")
    assert "To see the estimated time, upload and check a model" in before
    sent = {
        "action": "check",
        "engine": "cross-encoder",
        "checkpoint": upload(static_archive(), "static.zip"),
    }
    page = one_line(signed_in.post("/submit/model/?engine=cross-encoder", sent).content.decode())
    assert "so Dense was selected" in page
    assert 'href="?engine=dense#model" aria-current="true"' in page
    assert '<th scope="col" class="n">Estimated time</th>' in page
    kept = Upload.objects.get()
    assert f'value="{kept.pk}" id="upload-{kept.pk}" checked' in page
    names = ["Encoders", "Re-rankers", "Expansion and weighting over BM25", "No model needed"]
    assert [name for name in re.findall(r"<h3>([^<]+)</h3>", page) if name in names] == names


def test_every_engine_says_what_it_is_for_and_a_gpu_is_offered_to_models_alone(
    signed_in: Client, settings: Any
) -> None:
    settings.CONTAINERS = True
    page = page_of(signed_in, "bm25-rm3")
    for engine in ENGINES.values():
        assert escape(engine.description) in page
    assert 'name="device"' not in page
    assert 'name="device"' in page_of(signed_in, "dense")


def test_the_site_leads_to_the_page_where_documents_are_kept(client: Client, tmp_path: Path) -> None:
    make_collection(tmp_path, "bare", runs_only=True)
    assert 'href="/submit/model/"' in client.get("/").content.decode()
    assert "/submit/model/?dataset=demo" in client.get("/datasets/demo/").content.decode()
    page = client.get("/datasets/bare/").content.decode()
    assert "/submit/?dataset=bare" in page
    assert "/submit/model/" not in page


def test_help_texts_are_sentences(signed_in: Client) -> None:
    page = page_of(signed_in, "bm25")
    assert "Saturation of term frequencies; 0 ignores repetitions. Default: 0.9." in page


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_model_is_submitted_without_javascript(
    corpus: Dataset, alice: User, browser: Browser, live_server: Any, tmp_path: Path
) -> None:
    context = browser.new_context(base_url=live_server.url, java_script_enabled=False)
    sign_in(context, alice, live_server.url)
    page = context.new_page()
    page.goto("/submit/")
    page.get_by_role("link", name="A model").click()
    page.get_by_role("link", name="Learned sparse A model weights terms").click()
    expect(page.get_by_text("Required: a sparse encoder")).to_be_visible()
    expect(page.get_by_role("link", name="Cross-encoder")).to_be_hidden()
    page.get_by_role("link", name="Dense dense").click()
    path = tmp_path / "static.zip"
    path.write_bytes(static_archive())
    page.get_by_label("Upload an archive").set_input_files(path)
    page.get_by_label("Demo", exact=True).check()
    page.get_by_label("System name").fill("From a browser")
    page.get_by_role("button", name="Submit", exact=True).last.click()
    page.wait_for_url(re.compile(r"/submissions/\w{12}/$"))
    expect(page.get_by_text("No worker for CPU jobs is online")).to_be_visible()
    context.close()


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_the_pages_of_a_model_on_three_datasets_are_short(
    corpus: Dataset, api: Api, browser: Browser, live_server: Any, tmp_path: Path
) -> None:
    """They have at most 1,700 and 1,400 pixels on a usual screen."""
    datasets = [corpus, collection(tmp_path, "second"), collection(tmp_path, "third")]
    for dataset in datasets:
        score(dataset, make_system(f"BM25 of {dataset}", architecture="lexical"), ndcg=0.1, recall=0.2, baseline=True)
    identifier = submit_model(api, dataset=[dataset.slug for dataset in datasets]).body["id"]
    for dataset in datasets:
        entry = score(dataset, System.objects.get(name="My model"), ndcg=0.5, recall=0.7)
        entry.provenance = Entry.Provenance.MEASURED
        entry.save()
        cost(entry, 5.0)
        Job.objects.filter(dataset=dataset).update(
            state=State.DONE,
            entry=entry,
            evaluation=entry.evaluation,
            started_at=timezone.now(),
            finished_at=timezone.now(),
        )
    record_boards()
    context = browser.new_context(base_url=live_server.url, viewport={"width": 1440, "height": 900})
    assert api.user is not None
    sign_in(context, api.user, live_server.url)
    page = context.new_page()
    page.goto(System.objects.get(name="My model").get_absolute_url())
    expect(page.get_by_role("region", name="Results of My model").get_by_role("row")).to_have_count(4)
    assert page.evaluate("document.documentElement.scrollHeight") <= 1700
    page.goto(f"/submissions/{identifier}/")
    expect(page.get_by_role("region", name="Summary").get_by_role("row")).to_have_count(4)
    assert page.evaluate("document.documentElement.scrollHeight") <= 1400
    context.close()
