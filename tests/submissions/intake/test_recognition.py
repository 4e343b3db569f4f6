"""The dataset of a file is recognised from its ids; what is valid is kept, and needs a dataset alone."""

from __future__ import annotations

import json
import re
from math import log2
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from leaderboard.core.storage.store import Area, put
from leaderboard.models import Dataset, DatasetVersion, Evaluation
from submissions.models import Submission, Upload
from tests.pages import one_line
from tests.submissions.clients import Api, upload
from tests.submissions.collections import QUERIES, make_collection, run_text
from tests.submissions.workers import work


@pytest.fixture
def twin(demo: Dataset, tmp_path: Path) -> Dataset:
    """Another dataset with the same topics and documents."""
    return make_collection(tmp_path, "twin")


def test_a_file_without_a_name_or_a_dataset_goes_where_its_ids_are(demo: Dataset, api: Api) -> None:
    sent = api.submit(dataset=None, file=upload(run_text(), "whatever.txt"))
    assert sent.status == 201, sent.body
    assert sent.body["jobs"][0]["dataset"] == "demo"
    ranking = {query: {f"d{place}": 50.0 - place for place in range(1, 9)} for query in QUERIES}
    predictions = json.dumps({"default": {"test": ranking}})
    sent = api.submit(dataset=None, system="Another", file=upload(predictions, "predictions.json"))
    assert sent.status == 201, sent.body


@pytest.mark.parametrize("form", ["tsv", "json", "jsonl", "csv"])
def test_other_forms_are_recognized_and_scored_as_the_same_ranking(demo: Dataset, api: Api, form: str) -> None:
    ranking = {query: {f"d{place}": 50.0 - place for place in range(2, 9)} for query in QUERIES}
    hits = [(query, name, rank) for query, each in ranking.items() for rank, name in enumerate(each, 1)]
    content = {
        "tsv": "".join(f"{query}\t{name}\t{rank}\n" for query, name, rank in hits),
        "csv": "qid,docno,score\n" + "".join(f"{query},{name},{-rank}\n" for query, name, rank in hits),
        "json": json.dumps(ranking),
        "jsonl": "".join(json.dumps({"query_id": query, "hits": each}) + "\n" for query, each in ranking.items()),
    }[form]
    sent = api.submit(dataset=None, file=upload(content, f"whatever.{form}"))
    assert sent.status == 201, sent.body
    work()
    assert api.get(f"submissions/{sent.body['id']}/").body["state"] == "done"
    # d1 and d3 are relevant, with grades 1 and 2; d3 stands at rank 2.
    evaluation = Evaluation.objects.get()
    assert evaluation.means["RR@10"] == 0.5
    assert evaluation.means["nDCG@10"] == pytest.approx((2 / log2(3)) / (2 + 1 / log2(3)))


@pytest.mark.parametrize("citations", [[], ["d1"]])
def test_answers_go_where_their_ids_are(demo: Dataset, api: Api, citations: list[str]) -> None:
    """Answers without citations have only query ids, so most of them must be the dataset's."""
    lines = [json.dumps({"query_id": query, "answer": "x", "citations": citations}) + "\n" for query in QUERIES]
    sent = api.submit(dataset=None, file=upload("".join(lines), "whatever.jsonl"))
    assert sent.status == 201, sent.body
    assert sent.body["jobs"][0]["dataset"] == "demo"
    other = "".join(lines).replace('"query_id": "', '"query_id": "other-')
    refused = api.submit(dataset=None, system="Another", file=upload(other, "whatever.jsonl"))
    assert refused.body["code"] == "unknown_dataset"


def test_ids_of_several_datasets_and_of_none_are_refused_with_what_to_say(
    demo: Dataset, twin: Dataset, api: Api
) -> None:
    several = api.submit(dataset=None, file=upload(run_text(), "whatever.txt"))
    assert "Demo (demo) and Twin (twin)" in several.problem("several_datasets")["message"]
    none = api.submit(dataset=None, file=upload("x1 Q0 y1 1 1.0 t\n", "whatever.txt"))
    assert "the ids do not identify one" in none.problem("unknown_dataset")["message"]
    named = api.submit(dataset=None, file=upload(run_text(), "twin.txt"))
    assert named.body["jobs"][0]["dataset"] == "twin"


def test_errors_of_lines_are_reported_without_a_dataset_and_the_closest_is_named(
    demo: Dataset, twin: Dataset, api: Api
) -> None:
    lines = run_text(QUERIES[:4], depth=4).replace(" d1 ", " x1 ").replace(" d2 ", " x2 ").splitlines()
    lines[2], lines[5] = "no run", f"{QUERIES[1]} Q0 d9 2 high mine"
    unclear = api.post("check/", file=upload("\n".join(lines), "whatever.txt"))
    assert unclear.status == 400
    hint = unclear.problem("unknown_dataset")["hint"]
    assert "The closest is Demo (demo), with 100% of the run's queries and " in hint
    assert "Datasets that accept runs: demo, twin." in hint
    assert unclear.problem("fields")["lines"] == [3]
    assert unclear.problem("score")["lines"] == [6]
    few = api.post("check/", file=upload(run_text(QUERIES[:1]), "whatever.txt")).problem("unknown_dataset")["hint"]
    assert f"The run answers 1 of {len(QUERIES)} queries of Demo (demo), too few to be certain." in few
    several = api.post("check/", file=upload(run_text() + "no run\n", "whatever.txt"))
    assert several.problem("several_datasets")
    assert several.problem("fields")["lines"] == [241]


def test_a_wrong_dataset_is_reported_with_the_right_one(demo: Dataset, tmp_path: Path, api: Api) -> None:
    topics = tmp_path / "topics"
    topics.write_text(json.dumps({"_id": "x1", "text": "a question"}) + "\n")
    other = make_collection(tmp_path, "other")
    DatasetVersion.objects.filter(dataset=other).update(topics_sha256=put(Area.FILES, topics))
    wrong = api.post("check/", file=upload(run_text(), "whatever.txt"), dataset="other")
    assert wrong.problem("no_known_query")["hint"].startswith("The ids match Demo (demo). ")


def test_the_dataset_of_lines_without_a_tag_is_recognized(demo: Dataset, api: Api) -> None:
    lines = [line.rpartition(" ")[0] for line in run_text().splitlines()]
    lines[0] += " test"
    checked = api.post("check/", file=upload("\n".join(lines), "whatever.txt"))
    assert checked.problem("fields")["count"] == 239


def test_a_checked_file_is_kept_with_its_dataset_and_submitted_without_being_chosen_again(
    demo: Dataset, signed_in: Client
) -> None:
    files = [upload(run_text(), "good.txt"), upload("q1 Q0 d1 1 high mine\n", "demo.bad.txt")]
    page = one_line(signed_in.post("/submit/", {"action": "check", "several": files}).content.decode())
    assert "The run cannot be scored." in page
    (kept,) = Upload.objects.all()
    assert kept.file_name == "good.txt"
    assert re.search(rf'value="{kept.pk}"[^>]* checked', page)
    assert '<option value="demo" selected>' in page
    fields = {"new-name": "Mine", "new-architecture": "dense", "action": "submit"}
    sent = signed_in.post("/submit/", {**fields, "upload:several": kept.pk, f"dataset:{kept.pk}": "demo"})
    assert sent.status_code == 302
    assert Submission.objects.get().jobs.get().dataset == demo
    assert not Upload.objects.exists()


@pytest.mark.parametrize(
    ("content", "code", "told"),
    [
        (b"", "empty", "The file has no lines. Send a line for each document retrieved"),
        (b" \n\n", "empty", "The file has no lines."),
        (
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0",
            "not_text",
            "The file is not text. Send a TREC run as text",
        ),
        (
            b"\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94",
            "compression",
            "This is a Python pickle, which is not supported. Write its content as JSON or CSV",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n",
            "compression",
            "This is a Git LFS pointer, which is not supported. It only names a file. Run `git lfs pull`",
        ),
    ],
)
@pytest.mark.parametrize("dataset", ["demo", None])
def test_what_is_no_run_is_refused_by_what_it_is(
    demo: Dataset, api: Api, signed_in: Client, content: bytes, code: str, told: str, dataset: str | None
) -> None:
    answer = api.submit(dataset=dataset, file=SimpleUploadedFile("thing.txt", content))
    assert [problem["code"] for problem in answer.body["problems"]] == [code]
    problem = answer.body["problems"][0]
    assert f"{problem['message']}. {problem['hint']}".lower().startswith(told.lower())
    sent = {"action": "check", "several": SimpleUploadedFile("thing.txt", content), "dataset": dataset or ""}
    page = one_line(signed_in.post("/submit/", sent).content.decode())
    assert "The run cannot be scored." in page
    assert f"#{code}" in page
    assert "Uploaded files" not in page


def test_a_file_that_fits_several_is_kept_until_its_dataset_is_chosen(
    demo: Dataset, twin: Dataset, signed_in: Client
) -> None:
    fields = {"new-name": "Mine", "new-architecture": "dense", "action": "submit"}
    refused = signed_in.post("/submit/", {**fields, "several": upload(run_text(), "whatever.txt")})
    assert refused.status_code == 400
    assert "equally well" in refused.content.decode()
    kept = Upload.objects.get()
    chosen = {**fields, "upload:several": kept.pk, f"dataset:{kept.pk}": "twin"}
    assert signed_in.post("/submit/", chosen).status_code == 302
    assert Submission.objects.get().jobs.get().dataset == twin
