"""Files that are too large, too dense, or archives that are not what they seem."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from django.test import Client
from django.utils.html import escape

from leaderboard.models import Dataset
from submissions.models import Job, Submission
from tests.submissions.clients import Api, upload
from tests.submissions.collections import QUERIES, make_collection, run_text
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db


def zipped(files: dict[str, str]) -> bytes:
    """A zip of these files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


@pytest.fixture
def small_limit(settings: Any) -> None:
    """Files over 2 KiB are left to a worker."""
    settings.VALIDATE_AT_ONCE_BYTES = 2048


@pytest.mark.parametrize(
    ("compress", "name"),
    [
        (gzip.compress, "demo.txt.gz"),
        (bz2.compress, "demo.txt.bz2"),
        (zstandard.compress, "demo.txt.zst"),
        (gzip.compress, "misnamed.txt"),
    ],
)
def test_compressed_runs_are_read(compress: Callable[[bytes], bytes], name: str, demo: Dataset, api: Api) -> None:
    answer = api.check(compress(run_text().encode()), name=name)
    assert answer.body["valid"] is True
    assert answer.body["statistics"]["lines"] == 240


def test_damaged_compression_is_said(demo: Dataset, api: Api) -> None:
    answer = api.check(gzip.compress(run_text().encode())[:-20], name="demo.txt.gz")
    assert answer.body["valid"] is False
    assert "damaged" in answer.problem("compression")["message"]


def test_check_of_a_large_file_names_the_offline_command(demo: Dataset, api: Api, small_limit: None) -> None:
    answer = api.check(run_text())
    assert answer.status == 413
    assert "python -m evaluation check" in answer.body["detail"]
    assert answer.body["problems"][0]["severity"] == "error"


def test_a_large_run_is_validated_and_scored_by_the_worker(
    demo: Dataset, api: Api, small_limit: None, stored_files: Callable[[], set[str]]
) -> None:
    accepted = api.submit()
    assert accepted.status == 201
    assert accepted.body["state"] == "validating"
    sent = f"uploads/{Job.objects.get().upload_sha256}"
    assert sent in stored_files()
    work()
    done = api.get(f"submissions/{accepted.body['id']}/").body
    assert done["state"] == "done"
    assert done["jobs"][0]["scores"]["RR@10"] == 1.0
    assert sent not in stored_files()


def test_large_runs_of_one_zip_are_stored_apart(demo: Dataset, tmp_path: Path, api: Api, small_limit: None) -> None:
    make_collection(tmp_path, "other")
    runs = {"demo": run_text(tag="a"), "other": run_text(tag="b")}
    archive = zipped({f"{slug}.txt": text for slug, text in runs.items()})
    assert api.submit(dataset=None, file=upload(archive, "runs.zip")).status == 201
    stored = {job.dataset.slug: job.upload_sha256 for job in Job.objects.select_related("dataset")}
    assert stored == {slug: hashlib.sha256(text.encode()).hexdigest() for slug, text in runs.items()}


def test_a_large_bad_run_is_rejected_by_the_worker_and_not_kept(
    demo: Dataset, api: Api, small_limit: None, stored_files: Callable[[], set[str]]
) -> None:
    before = stored_files()
    accepted = api.submit(run_text() + "three fields only\n")
    assert accepted.status == 201
    assert stored_files() > before
    work()
    ended = api.get(f"submissions/{accepted.body['id']}/").body
    assert ended["state"] == "rejected"
    assert ended["jobs"][0]["problems"][0]["lines"] == [241]
    assert ended["jobs"][0]["scores"] == {}
    assert stored_files() == before


def test_the_same_large_run_twice_is_refused(demo: Dataset, api: Api, small_limit: None) -> None:
    api.submit()
    assert api.submit().problem("already_submitted")
    assert Submission.objects.count() == 1


def test_the_same_large_run_compressed_otherwise_is_rejected_as_known(
    demo: Dataset, api: Api, small_limit: None
) -> None:
    first = api.submit().body["id"]
    Submission.objects.filter(pk=first).update(configuration="looked at while the other one came")
    packed = api.submit(gzip.compress(run_text().encode()))
    assert packed.status == 201
    Submission.objects.filter(pk=first).update(configuration="")
    work()
    ended = api.get(f"submissions/{packed.body['id']}/").body
    assert ended["state"] == "rejected"
    assert [problem["code"] for problem in ended["jobs"][0]["problems"]] == ["already_submitted"]


def test_a_bomb_is_refused(demo: Dataset, api: Api, small_limit: None) -> None:
    bomb = gzip.compress(b"q1 Q0 d1 1 1.0 t\n" * 8_000_000, compresslevel=1)
    accepted = api.submit(bomb, file=upload(bomb, "demo.txt.gz"))
    work()
    ended = api.get(f"submissions/{accepted.body['id']}/").body
    assert ended["state"] == "rejected"
    assert [problem["code"] for problem in ended["jobs"][0]["problems"]] == ["expansion"]


def test_json_that_expands_more_than_json_may_is_refused_at_once(demo: Dataset, api: Api) -> None:
    bomb = gzip.compress(b'{"q1": {"d1": 1.0' + b" " * 4_000_000 + b"}}")
    answer = api.submit(bomb, file=upload(bomb, "demo.json.gz"))
    assert answer.status == 400
    assert "expansion" in str(answer.body)


def test_a_request_over_the_limit_is_answered_413(demo: Dataset, api: Api, settings: Any) -> None:
    settings.UPLOAD_LIMIT_BYTES = 3000
    answer = api.submit()
    assert answer.status == 413
    assert "the limit is" in answer.problem("request_too_large")["message"]
    assert not Submission.objects.exists()


def test_a_page_over_the_limit_says_so(demo: Dataset, signed_in: Client, settings: Any) -> None:
    settings.UPLOAD_LIMIT_BYTES = 3000
    fields = {
        "action": "submit",
        "run:demo": upload(run_text()),
        "new-name": "Large",
        "new-architecture": "dense",
    }
    page = signed_in.post("/submit/", fields).content.decode()
    assert "the limit is 2.93 KiB" in page


def test_a_zip_names_its_datasets(demo: Dataset, secret: Dataset, api: Api) -> None:
    content = zipped({"demo.txt": run_text(), "runs/secret.run.txt": run_text(depth=5)})
    answer = api.submit(dataset=None, file=upload(content, "runs.zip"))
    assert answer.status == 201, answer.body
    assert {job["dataset"] for job in answer.body["jobs"]} == {"demo", "secret"}


def test_a_zip_of_one_run_takes_the_dataset_that_was_given(demo: Dataset, api: Api) -> None:
    content = zipped({"whatever.txt": run_text()})
    assert api.submit(file=upload(content, "run.zip")).status == 201


def test_a_zip_member_without_a_dataset_is_named(demo: Dataset, api: Api) -> None:
    content = zipped({"demo.txt": run_text(), "other.txt": "x1 Q0 y1 1 1.0 t\n"})
    answer = api.submit(dataset=None, file=upload(content, "runs.zip"))
    assert answer.status == 400
    assert "other" in answer.problem("unknown_dataset")["message"]


@pytest.mark.parametrize("name", ["../demo.txt", "/etc/demo.txt", "..\\demo.txt"])
def test_a_zip_that_climbs_out_is_refused(name: str, demo: Dataset, api: Api) -> None:
    answer = api.submit(dataset=None, file=upload(zipped({name: run_text()}), "runs.zip"))
    assert answer.status == 400
    assert answer.problem("member_name")
    assert not Submission.objects.exists()


def test_a_zip_bomb_is_refused(demo: Dataset, api: Api) -> None:
    content = zipped({"demo.txt": "q1 Q0 d1 1 1.0 t\n" * 8_000_000})
    answer = api.submit(dataset=None, file=upload(content, "runs.zip"))
    assert answer.status == 400
    assert "expands to more than 64 MiB" in answer.problem("expansion")["message"]
    assert not Submission.objects.exists()


def test_links_in_a_zip_are_refused(demo: Dataset, api: Api) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        link = zipfile.ZipInfo("demo.txt")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    answer = api.submit(dataset=None, file=upload(out.getvalue(), "runs.zip"))
    assert answer.problem("member_kind")


def test_a_damaged_zip_is_said(demo: Dataset, api: Api) -> None:
    answer = api.check(zipped({"demo.txt": run_text()})[:-40], name="runs.zip")
    assert answer.body["valid"] is False
    assert "damaged" in answer.problem("compression")["message"]


def test_what_file_managers_add_to_zips_is_left_out(demo: Dataset, api: Api) -> None:
    content = zipped({"demo.txt": run_text(), "__MACOSX/._demo.txt": "x", "runs/.DS_Store": "x"})
    assert api.submit(dataset=None, file=upload(content, "runs.zip")).status == 201


def test_descriptions_beside_the_runs_of_a_zip_are_left_out(demo: Dataset, api: Api) -> None:
    content = zipped({"demo.txt": run_text(), "README.md": "# Runs", "runs/LICENSE": "MIT", "desktop.ini": "x"})
    answer = api.submit(dataset=None, file=upload(content, "runs.zip"))
    assert [job["dataset"] for job in answer.body["jobs"]] == ["demo"]
    alone = api.submit(dataset=None, file=upload(zipped({"README.md": "# Runs"}), "runs.zip"))
    assert "README.md" in alone.problem("unknown_dataset")["message"]


COMPANIONS = {
    "README.md": "# Runs", "run.sh": "#!/bin/sh\n", "paper.pdf": "%PDF-1.7\n", "logs/demo.log": "indexing\n",
    "params.yaml": "k1: 0.9\n", "metadata.json": '{"model": "BM25", "date": "2026-01-01"}',
    "src/config.json": '{"k1": 0.9, "b": 0.4}', "params.json": '{"datasets": ["demo"], "seed": 1}',
}  # fmt: skip


@pytest.mark.parametrize("dataset", ["demo", None])
def test_companions_of_the_runs_in_a_zip_are_left_out_with_a_remark(
    demo: Dataset, api: Api, signed_in: Client, dataset: str | None
) -> None:
    content = zipped({**COMPANIONS, "demo.txt": run_text()})
    message = f"runs.zip has files that are not runs and were skipped: {', '.join(COMPANIONS)}"
    fields = {} if dataset is None else {"dataset": dataset}
    checked = api.post("check/", file=upload(content, "runs.zip"), **fields)
    assert checked.body["valid"] is True
    assert checked.body["statistics"]["lines"] == 240
    assert checked.problem("left_out") == {
        "severity": "warning", "code": "left_out", "count": 1, "message": message, "lines": [],
        "hint": "No action needed. If one is a run, name it <dataset>.txt.",
    }  # fmt: skip
    page = signed_in.post("/submit/", {"action": "check", "several": upload(content, "runs.zip"), **fields})
    assert escape(message) in page.content.decode()
    sent = api.submit(dataset=dataset, file=upload(content, "runs.zip"))
    assert [job["dataset"] for job in sent.body["jobs"]] == ["demo"]
    work()
    (job,) = Job.objects.all()
    assert job.state == "done"
    assert f"{message}." in job.log


def test_the_remark_on_a_zip_is_made_once(demo: Dataset, secret: Dataset, api: Api) -> None:
    content = zipped({"run.sh": "", "demo.txt": run_text(), "secret.txt": run_text()})
    assert api.submit(dataset=None, file=upload(content, "runs.zip")).status == 201
    assert [job.log.count("run.sh") for job in Job.objects.order_by("pk")] == [1, 0]


@pytest.mark.parametrize("content", [
    '{"q1": {"d1": 0.5', '{"q1": {"d1": NaN}}', '{"q1": {"d1": "0.5"}}', '{"q1": ["d1"]}', '{"bm25": {"k1": 0.9}}',
    "q1 Q0 d1 1 high mine\n", "",
])  # fmt: skip
def test_json_that_may_be_a_run_is_never_left_out(demo: Dataset, api: Api, content: str) -> None:
    answer = api.submit(
        dataset=None, file=upload(zipped({"demo.txt": run_text(), "results.json": content}), "runs.zip")
    )
    assert answer.status == 400
    assert "results.json" in str(answer.body)
    assert not Submission.objects.exists()


def test_a_run_named_as_results_is_scored_and_other_json_is_refused(demo: Dataset, secret: Dataset, api: Api) -> None:
    run = json.dumps({query: {f"d{rank}": 9.5 - rank for rank in range(1, 9)} for query in QUERIES})
    sent = api.submit(file=upload(zipped({"results.json": run, "config.json": '{"k1": 0.9}'}), "runs.zip"))
    assert sent.status == 201
    assert Job.objects.get().file_name == "runs.zip/results.json"
    other = api.submit(
        dataset=None, file=upload(zipped({"demo.txt": run_text(), "model.json": '{"k1": 0.9}'}), "a.zip")
    )
    assert other.problem("json")["message"] == "query 'k1' has no object of document scores"


def test_a_zip_without_runs_is_refused_with_a_list_of_its_files(demo: Dataset, api: Api) -> None:
    content = zipped({"README.md": "# Runs", "config.json": '{"k1": 0.9}'})
    problem = api.post("check/", file=upload(content, "runs.zip")).problem("empty")
    assert problem["message"] == "the zip contains no runs, only README.md, config.json"
    assert problem["hint"] == "Pack one run per dataset: <dataset>.txt."


def test_many_companions_leave_room_for_runs(demo: Dataset, api: Api) -> None:
    plots = {f"plot-{number}.png": "x" for number in range(99)}
    content = zipped({**plots, "demo.txt": run_text()})
    assert api.submit(dataset=None, file=upload(content, "runs.zip")).status == 201


def test_an_excel_file_is_no_zip_of_runs(demo: Dataset, api: Api) -> None:
    content = zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "xl/workbook.xml": "<workbook/>",
            "xl/worksheets/sheet1.xml": "<x/>",
        }
    )
    for dataset in ("demo", None):
        problem = api.submit(dataset=dataset, file=upload(content, "run.xlsx")).problem("compression")
        assert problem["message"] == "this is an Excel file, which is not supported"
        assert problem["hint"] == "Save the sheet as CSV, and send that."


def test_a_zip_of_windows_powershell_is_read(demo: Dataset, api: Api) -> None:
    content = zipped({"runs\\demo.txt": run_text(), "runs\\Thumbs.db": "x"})
    assert api.submit(dataset=None, file=upload(content, "runs.zip")).status == 201


@pytest.mark.parametrize(("kind", "name"), [("w:", "a tar archive"), ("w:gz", "a tar archive in gzip")])
def test_another_archive_is_named(kind: Any, name: str, demo: Dataset, api: Api) -> None:
    out, run = io.BytesIO(), run_text().encode()
    with tarfile.open(fileobj=out, mode=kind) as archive:
        info = tarfile.TarInfo("demo.txt")
        info.size = len(run)
        archive.addfile(info, io.BytesIO(run))
    answer = api.submit(dataset=None, file=upload(out.getvalue(), "runs.tgz"))
    problem = answer.problem("compression")
    assert problem["message"] == f"this is {name}, which is not supported"
    assert "into a zip" in problem["hint"]


def test_compressed_members_of_a_zip_are_read(demo: Dataset, api: Api) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("demo.txt.gz", gzip.compress(run_text().encode()))
    assert api.submit(dataset=None, file=upload(out.getvalue(), "runs.zip")).status == 201


def test_depth_is_cut_not_refused(demo: Dataset, api: Api) -> None:
    answer = api.submit(run_text(QUERIES, depth=1100))
    assert answer.status == 201
    assert [problem["code"] for problem in answer.body["jobs"][0]["problems"]] == ["depth"]


def test_too_many_files_in_a_minute_are_slowed_down(demo: Dataset, api: Api, monkeypatch: Any) -> None:
    from submissions.accounts.throttling import CheckThrottle

    monkeypatch.setattr(CheckThrottle, "THROTTLE_RATES", {"check": "2/min"})
    assert [api.check(run_text()).status for _ in range(3)] == [200, 200, 429]
    limited = api.check(run_text())
    assert limited.body["code"] == "throttled"
    assert int(limited.headers["Retry-After"]) > 0
