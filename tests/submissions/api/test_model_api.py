"""Models through the API: from the request to queued jobs, or a refusal that stores nothing."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from leaderboard.models import Benchmark, BenchmarkMember, Dataset, System, User
from submissions.checkpoints import service as checkpoints
from submissions.intake.forms import ParametersField
from submissions.jobs.changes import set_reusable
from submissions.models import Checkpoint, Job, Submission
from tests.submissions.clients import Api, upload
from tests.submissions.collections import QUERIES, make_collection, run_text
from tests.submissions.models import collection, static_archive, submit_model, with_corpus, zipped
from tests.submissions.workers import announce, work

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


@pytest.fixture
def corpus(demo: Dataset, tmp_path: Path) -> Dataset:
    """The open dataset, its documents kept here."""
    return with_corpus(demo, tmp_path)


pytestmark.append(pytest.mark.usefixtures("models_run_here", "corpus"))


def folders(settings: Any) -> list[Path]:
    """The rebuilt checkpoints in the store."""
    return sorted(Path(settings.VAR, "store", "checkpoints").glob("*/*/checkpoint.json"))


def test_a_model_goes_in_and_a_job_waits_for_every_dataset(api: Api, tmp_path: Path, settings: Any) -> None:
    collection(tmp_path, "other")
    accepted = submit_model(api, dataset=["demo", "other"], configuration="seed 1", reusable="true")
    assert accepted.status == 201, accepted.body
    body = accepted.body
    assert (body["kind"], body["engine"], body["reusable"]) == ("model", "dense", True)
    assert {job["dataset"]: (job["state"], job["queue"]) for job in body["jobs"]} == {
        "demo": ("queued", "cpu"),
        "other": ("queued", "cpu"),
    }
    assert body["checkpoint"]["kind"] == "static-embeddings"
    system = System.objects.get(slug=body["system"])
    assert (system.architecture, system.dimension) == ("dense", 8)
    kept = Checkpoint.objects.get()
    assert body["checkpoint"]["sha256"] == kept.model_sha256
    assert (checkpoints.checkpoint_folder(kept) / "checkpoint.json").exists()
    assert {job.kind for job in Job.objects.all()} == {"model"}


def test_parameters_are_completed_with_defaults(api: Api) -> None:
    body = submit_model(api, engine="bm25", checkpoint=None, parameters="k1=1.2, b=0.75").body
    assert body["parameters"] == {
        "k1": 1.2,
        "b": 0.75,
        "fields": "title+text",
        "stemming": True,
        "language": "auto",
    }
    assert body["checkpoint"] is None


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"engine": "none-such"}, "unknown_engine", "Available: bm25"),
        ({"engine": None}, "no_engine", "No engine was named"),
        ({"parameters": "k9=1"}, "invalid_parameters", "has no parameter k9"),
        (
            {"engine": "cross-encoder", "parameters": '{"reranking_depths": "1,2,3,4,5"}'},
            "invalid_parameters",
            "at most 4 beside",
        ),
        ({"checkpoint": None}, "no_checkpoint", "needs a model, but none was sent"),
        ({"engine": "bm25"}, "checkpoint_not_wanted", "does not use a model"),
        ({"dataset": "nowhere"}, "unknown_dataset", "nowhere"),
        ({"dataset": None}, "no_dataset", "No dataset was chosen"),
        ({"dataset": None, "benchmark": "empty"}, "empty_benchmark", "no benchmark “empty”"),
        ({"run": "bm25"}, "number_of_runs", "needs no runs"),
        ({"architecture": "lexical"}, "architecture_mismatch", "lexical"),
        ({"checkpoint": None, "checkpoint_id": "77"}, "unknown_checkpoint", "no checkpoint 77"),
        (
            {"checkpoint": None, "hub_model": "a/b", "hub_commit": "main"},
            "hub_downloads_off",
            "does not download models",
        ),
        (
            {"engine": "bm25-rm3", "checkpoint": None, "device": "gpu"},
            "gpu_not_wanted",
            "does not use a model",
        ),
        ({"device": "tpu"}, "invalid_device", "tpu"),
        ({"kind": "song"}, "invalid_kind", "song"),
    ],
)
def test_what_is_wrong_with_a_request_is_said_and_nothing_is_stored(
    fields: dict[str, Any], code: str, said: str, api: Api, settings: Any
) -> None:
    before = folders(settings)
    answer = submit_model(api, **fields)
    assert answer.status == 400
    assert said in answer.problem(code)["message"]
    assert not Submission.objects.exists()
    assert not Checkpoint.objects.exists()
    assert not System.objects.filter(name="My model").exists()
    assert folders(settings) == before


def test_a_checkpoint_that_is_none_is_refused_with_its_findings(api: Api) -> None:
    answer = submit_model(api, checkpoint=upload(b"not an archive", "model.zip"))
    assert answer.status == 400
    assert answer.body["code"] == "invalid_checkpoint"
    assert answer.body["files"][0]["file"] == "model.zip"
    assert all(problem["hint"] for problem in answer.body["problems"])
    assert not Submission.objects.exists()
    assert not Checkpoint.objects.exists()


def test_pickles_are_refused_with_the_command_that_converts_them(api: Api) -> None:
    answer = submit_model(
        api, checkpoint=upload(zipped({"config.json": b"{}", "pytorch_model.bin": b"\x80\x02"}), "m.zip")
    )
    assert "python -m evaluation pack" in answer.problem("pickle_weights")["hint"]


def test_check_reports_and_stores_nothing(api: Api, settings: Any) -> None:
    before = folders(settings)
    good = api.post("check/", kind="model", checkpoint=upload(static_archive(), "static.zip"))
    assert (good.status, good.body["valid"]) == (200, True)
    told = {name: good.body["checkpoint"][name] for name in ("kind", "parameters", "dimension", "pooling")}
    assert told == {"kind": "static-embeddings", "parameters": 41 * 8, "dimension": 8, "pooling": "mean"}
    bad = api.post("check/", kind="model", checkpoint=upload(b"junk", "junk.zip"))
    assert (bad.status, bad.body["valid"], bad.body["checkpoint"]) == (200, False, None)
    assert api.post("check/", kind="model").problem("no_checkpoint")
    assert folders(settings) == before
    assert not Checkpoint.objects.exists()


def test_a_visual_model_is_refused_with_the_other_ways_in(api: Api) -> None:
    content = {"config.json": b'{"model_type": "qwen3_vl", "vision_config": {}}', "modeling.py": b"raise SystemExit"}
    answer = api.post("check/", kind="model", checkpoint=upload(zipped(content), "Qwen3-VL-Reranker-2B.zip"))
    problem = answer.problem("visual_model")
    assert "qwen3_vl" in problem["message"]
    assert "container image" in problem["hint"]
    assert str(answer.body).count("'severity': 'error'") == 1


def test_check_takes_headers_of_weights_alone_and_a_submission_does_not(api: Api) -> None:
    with ZipFile(BytesIO(static_archive())) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    weights = content["model.safetensors"]
    content["model.safetensors"] = weights[: 8 + int.from_bytes(weights[:8], "little")]

    answer = api.post("check/", kind="model", checkpoint=upload(zipped(content), "static.zip"))

    assert answer.body["valid"]
    assert [problem["code"] for problem in answer.body["problems"]] == ["weights_not_sent"]
    (pending,) = answer.body["pending"]
    assert "whether weights, tokenizer, and settings" in pending
    assert submit_model(api, checkpoint=upload(zipped(content), "static.zip")).problem("weights_header")


def test_a_checkpoint_is_kept_once_and_used_again(api: Api, tmp_path: Path, settings: Any) -> None:
    collection(tmp_path, "other")
    first = submit_model(api).body
    second = submit_model(api, dataset="other", checkpoint=None, checkpoint_id=str(first["checkpoint"]["id"]))
    third = submit_model(api, configuration="again")
    assert second.body["checkpoint"] == first["checkpoint"] == third.body["checkpoint"]
    assert Checkpoint.objects.count() == 1


def test_somebody_elses_checkpoint_does_not_exist(api: Api, stranger: Api) -> None:
    number = str(submit_model(api).body["checkpoint"]["id"])
    answer = submit_model(stranger, checkpoint=None, checkpoint_id=number)
    assert answer.problem("unknown_checkpoint")
    theirs = submit_model(stranger).body["checkpoint"]
    assert str(theirs["id"]) != number
    rows = Checkpoint.objects.all()
    assert len({checkpoints.checkpoint_folder(row) for row in rows}) == 2


def test_the_same_model_on_the_same_dataset_is_refused_unless_it_differs(api: Api) -> None:
    submit_model(api)
    answer = submit_model(api, system="Another name")
    assert "already has a result of this model on Demo" in answer.problem("already_submitted")["message"]
    assert submit_model(api, configuration="seed 2").status == 201
    assert submit_model(api, checkpoint=upload(static_archive(seed=1), "other.zip")).status == 201
    Job.objects.update(state="cancelled")
    assert submit_model(api).status == 201


def test_other_parameters_need_a_label(api: Api) -> None:
    lexical = {"system": "Words", "engine": "bm25", "checkpoint": None}
    first = submit_model(api, **lexical).body["id"]
    refused = submit_model(api, **lexical, parameters="k1=1.2,b=0.75").problem("label_needed")
    assert "Words already has a result on Demo with no label, with a different k1, b" in refused["message"]
    assert "for example “k1 1.2, b 0.75”" in refused["hint"]
    assert submit_model(api, **{**lexical, "engine": "bm25-multifield"}).problem("label_needed")
    assert submit_model(api, **lexical, parameters="k1=1.2,b=0.75", configuration="k1 1.2").status == 201
    api.post(f"submissions/{first}/withdraw/", reason="another one follows")
    assert submit_model(api, **lexical, parameters="k1=2").status == 201


def test_a_dataset_without_documents_takes_run_files_only(api: Api, tmp_path: Path) -> None:
    make_collection(tmp_path, "bare", runs_only=True)
    answer = submit_model(api, dataset="bare")
    assert "submit the run file" in answer.problem("no_corpus")["hint"]


def test_a_benchmark_names_its_datasets(api: Api, tmp_path: Path) -> None:
    benchmark = Benchmark.objects.create(slug="small", name="Small")
    members = [collection(tmp_path, "other"), Dataset.objects.get(slug="demo")]
    members.append(make_collection(tmp_path, "bare", runs_only=True))
    for position, dataset in enumerate(members):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=position)
    body = submit_model(api, dataset=None, benchmark="small").body
    assert [job["dataset"] for job in body["jobs"]] == ["other", "demo"]
    both = submit_model(api, benchmark="small")
    assert both.problem("dataset_or_benchmark")


def test_the_quota_counts_datasets_a_day_and_not_what_failed_through_us(api: Api, stranger: Api, settings: Any) -> None:
    settings.MODEL_JOBS_PER_DAY = 1
    assert submit_model(api).status == 201
    refused = submit_model(api, configuration="two")
    assert re.search(r"resets at \d+ \w+ \d{4}, 00:00 UTC", refused.problem("quota")["hint"])
    assert submit_model(stranger).status == 201
    Job.objects.update(state="failed")
    assert submit_model(api, configuration="three").status == 201


def test_a_gpu_takes_models_where_a_worker_has_one(api: Api) -> None:
    announce()
    assert submit_model(api).body["jobs"][0]["queue"] == "cpu"
    announce("g", "gpu", works=False)
    assert submit_model(api, configuration="1").body["jobs"][0]["queue"] == "cpu"
    announce("g", "gpu")
    assert submit_model(api, configuration="2").body["jobs"][0]["queue"] == "gpu"
    assert submit_model(api, configuration="3", device="cpu").body["jobs"][0]["queue"] == "cpu"
    lexical = submit_model(api, system="Words", engine="bm25", checkpoint=None)
    assert lexical.body["jobs"][0]["queue"] == "cpu"


def test_a_gpu_that_was_not_there_within_a_day_is_not_waited_for(api: Api, settings: Any) -> None:
    announce()
    before = folders(settings)
    refused = submit_model(api, device="gpu")
    assert refused.status == 400
    assert "No GPU worker" in refused.problem("no_gpu")["message"]
    announce("g", "gpu", works=False)
    assert submit_model(api, device="gpu").problem("no_gpu")
    assert folders(settings) == before
    announce("g", "gpu", ago=timedelta(hours=20))
    assert submit_model(api, device="gpu").body["jobs"][0]["queue"] == "gpu"


def test_a_hub_model_needs_a_commit(api: Api, settings: Any) -> None:
    settings.HUB_DOWNLOADS = True
    wanted = {"checkpoint": None, "hub_model": "owner/model"}
    assert submit_model(api, **wanted, hub_commit="main").problem("hub_commit")
    assert submit_model(api, checkpoint=None, hub_model="model", hub_commit="a" * 40).problem("hub_name")
    accepted = submit_model(api, **wanted, hub_commit="a" * 40)
    assert accepted.status == 201
    assert Job.objects.get().payload["hub_commit"] == "a" * 40
    assert submit_model(api, **wanted, hub_commit="a" * 40).problem("already_submitted")


def test_runs_of_ones_own_and_lent_ones_are_fused(api: Api, stranger: Api, alice: User, secret: Dataset) -> None:
    mine = api.submit().body["id"]
    lent = stranger.submit(run_text(depth=9), reusable="true").body["id"]
    kept = stranger.submit(run_text(depth=8), configuration="kept back").body["id"]
    work()

    def fuse(*runs: str, **fields: Any) -> Any:
        return submit_model(api, system="Both", engine="fusion", checkpoint=None, run=list(runs), **fields)

    assert "needs 2 to" in fuse(mine).problem("number_of_runs")["message"]
    assert kept in fuse(mine, kept).problem("no_usable_run")["message"]
    assert fuse(mine, mine).problem("run_twice")
    accepted = fuse(mine, lent)
    assert accepted.status == 201, accepted.body
    assert len(Job.objects.get(kind="model").payload["run_ids"]) == 2
    theirs = Submission.objects.get(pk=lent)
    set_reusable(theirs, reusable=False, person=theirs.submitter)
    assert fuse(mine, lent, configuration="2").problem("no_usable_run")


def test_runs_over_hidden_queries_are_not_shared(api: Api, stranger: Api, tmp_path: Path) -> None:
    collection(tmp_path, "private", queries_visibility="curators")
    mine = api.submit(dataset="private").body["id"]
    lent = stranger.submit(run_text(depth=9), dataset="private", reusable="true").body["id"]
    work()
    answer = submit_model(api, system="Both", engine="fusion", checkpoint=None, run=[mine, lent], dataset="private")
    assert lent in answer.problem("no_usable_run")["message"]


def test_over_hidden_judgements_runs_that_are_built_on_name_the_queries(
    api: Api, stranger: Api, tmp_path: Path
) -> None:
    collection(tmp_path, "guarded", hidden=True)
    padded = run_text(QUERIES[:1], depth=120) + run_text([f"no{number}" for number in range(20)])
    probe = api.submit(padded, dataset="guarded").body["id"]
    lent = stranger.submit(run_text(QUERIES[:10]), dataset="guarded", reusable="true").body["id"]
    fields = {"dataset": "guarded", "reusable": "true", "configuration": "whole"}
    whole = stranger.submit(run_text(QUERIES[:11]), **fields).body["id"]
    work()

    def build_on(*runs: str, **fields: Any) -> Any:
        wanted = {"engine": "fusion", "checkpoint": None, **fields}
        return submit_model(api, system="Mine", run=list(runs), dataset="guarded", **wanted)

    found = build_on(probe, whole).problem("few_queries")
    assert "covers 1 of the 12 queries" in found["message"]
    assert "must cover at least 90% of the queries" in found["hint"]
    Job.objects.filter(submission=lent).update(report={})  # from before this was counted
    assert "covers 10 of the 12" in build_on(whole, lent).problem("few_queries")["message"]
    re_ranked = build_on(probe, engine="cross-encoder", checkpoint=upload(static_archive(), "model.zip"))
    assert re_ranked.problem("few_queries")
    Dataset.objects.update(hidden=False)
    assert build_on(probe, whole).status == 201


def test_reusable_is_set_later_by_its_team_alone(api: Api, stranger: Api) -> None:
    identifier = api.submit().body["id"]
    work()
    assert stranger.post(f"submissions/{identifier}/reusable/", reusable="true").status == 403
    assert api.post(f"submissions/{identifier}/reusable/", reusable="true").body["reusable"] is True
    assert api.post(f"submissions/{identifier}/reusable/").status == 400


def test_a_checkpoint_over_its_limit_is_answered_413(api: Api, settings: Any) -> None:
    settings.UPLOAD_LIMIT_BYTES = 500
    assert submit_model(api).status == 201
    settings.CHECKPOINT_LIMIT_BYTES = 1000
    answer = submit_model(api, configuration="2")
    assert answer.status == 413
    assert "python -m evaluation pack" in answer.problem("request_too_large")["hint"]
    assert api.submit().status == 413


PROMPTS = {"query_prompt": "query: ", "document_prompt": "1e3, passage: "}


@pytest.mark.parametrize(
    "written",
    [
        json.dumps(PROMPTS),
        "query_prompt=query: ,document_prompt=1e3, passage: ",
        "query_prompt=query: \r\ndocument_prompt=1e3, passage: ",
        'similarity = dot , query_prompt="query: "; document_prompt="1e3, passage: "',
    ],
)
def test_prompts_are_taken_to_the_last_blank(api: Api, written: str) -> None:
    body = submit_model(api, parameters=written).body
    assert {name: body["parameters"][name] for name in PROMPTS} == PROMPTS


def test_a_prompt_may_be_empty(api: Api) -> None:
    assert submit_model(api, parameters="query_prompt=").body["parameters"]["query_prompt"] == ""


def test_values_may_have_commas(api: Api) -> None:
    form = ParametersField()
    assert form.clean("weights=1,0.5") == {"weights": "1,0.5"}
    assert form.clean("reranking_depths=10,50,100,200, reranking_depth = 50,") == {
        "reranking_depths": "10,50,100,200",
        "reranking_depth": 50,
    }
    assert form.clean(" stemming = true\nlayers=[1,2]; k1=1.2;") == {
        "stemming": True,
        "layers": [1, 2],
        "k1": 1.2,
    }
    wrong = submit_model(api, parameters="similarity=dot\ncosine").problem("invalid_parameters")
    assert "“cosine” is not key=value" in wrong["message"]
    wrong = submit_model(api, parameters='{"query_prompt": null}').problem("invalid_parameters")
    assert "query_prompt = null is not a string or number" in wrong["message"]
