"""Submissions that name uploads which came in pieces: taken once, kept by a refusal, read by a check."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, RequestFactory

from leaderboard.core.storage.disk import DiskFull
from leaderboard.core.storage.store import Area, path_of
from leaderboard.models import Dataset, User
from submissions.models import Job, Submission, Upload
from submissions.uploads import handler, service, storage
from submissions.uploads.handler import HashedUpload, LimitedUploadHandler
from tests.factories import make_user
from tests.pages import one_line
from tests.submissions.clients import Api, upload
from tests.submissions.collections import run_text
from tests.submissions.models import static_archive, submit_model, with_corpus
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def arrived(owner: User, content: bytes, kind: str = "run", name: str = "run.txt") -> Upload:
    """An upload of which every byte came."""
    row = service.begin_upload(owner, length=len(content), kind=kind, file_name=name)
    return service.receive_bytes(row, 0, iter([content])) if content else row


def on_disk(row: Upload) -> bool:
    return storage.path_of(row.pk).exists()


@pytest.mark.django_db(transaction=True)
def test_a_run_is_submitted_by_the_name_of_its_upload(demo: Dataset, alice: User) -> None:
    row = arrived(alice, run_text().encode())
    assert Api(alice).submit(file=None, upload=row.pk).status == 201
    work()
    assert Job.objects.get(kind="score").state == "done"
    assert not Upload.objects.exists()
    assert not on_disk(row)


def test_a_refusal_keeps_the_upload_and_so_does_a_check(demo: Dataset, alice: User) -> None:
    row = arrived(alice, run_text().encode())
    api = Api(alice)
    assert api.post("check/", dataset="demo", upload=row.pk).body["valid"]
    assert api.submit(file=None, upload=row.pk, architecture="poem").status == 400
    assert api.submit(file=None, upload=row.pk, dataset="nothing").status == 400
    wrong = arrived(alice, b"no run")
    assert api.submit(file=None, upload=wrong.pk).body["code"] == "invalid_run"
    assert on_disk(row)
    assert on_disk(wrong)
    assert Upload.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_an_upload_is_taken_once(demo: Dataset, alice: User) -> None:
    row = arrived(alice, run_text().encode())
    with storage.lock_file(row.pk):
        assert Api(alice).submit(file=None, upload=row.pk).body["code"] == "upload_in_use"
    assert Api(alice).submit(file=None, upload=row.pk).status == 201
    again = Api(alice).submit(file=None, upload=row.pk, configuration="again")
    assert again.body["code"] == "unknown_upload"
    assert Submission.objects.count() == 1


def test_what_is_not_whole_anothers_or_of_another_kind_is_refused(demo: Dataset, alice: User) -> None:
    unfinished = service.begin_upload(alice, length=9, kind="run")
    model = arrived(alice, b"x", "model")
    others = arrived(make_user(), run_text().encode())
    for row, code in (
        (unfinished, "unfinished_upload"),
        (model, "wrong_upload_kind"),
        (others, "unknown_upload"),
    ):
        assert Api(alice).submit(file=None, upload=row.pk).body["code"] == code
        assert on_disk(row)


@pytest.mark.parametrize("name", ["\0", "../../x", "0" * 32, ""])
def test_names_that_nobody_was_given_are_no_fault_of_ours(demo: Dataset, alice: User, name: str) -> None:
    client = Client()
    client.force_login(alice)
    assert client.post("/submit/", {"upload:run:demo": name, "new-name": "Mine"}).status_code == 400
    assert client.post("/submit/model/", {"upload:checkpoint": name, "engine": "dense"}).status_code == 400


def test_files_and_uploads_pair_with_datasets_in_order(demo: Dataset, alice: User) -> None:
    row = arrived(alice, run_text(skip=1).encode(), name="2.txt")
    answer = Api(alice).submit(file=upload(run_text(), "1.txt"), upload=row.pk, seed="1,2")
    assert answer.status == 201
    assert [(job.file_name, job.seed) for job in Job.objects.order_by("pk")] == [
        ("1.txt", "1"),
        ("2.txt", "2"),
    ]


def test_a_large_run_is_linked_into_the_store_and_not_read_for_its_checksum(
    demo: Dataset, alice: User, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.VALIDATE_AT_ONCE_BYTES = 100
    monkeypatch.setattr("leaderboard.core.storage.store.file_sha256", None)
    content = run_text(tag="large").encode()
    row = arrived(alice, content)
    inode = storage.path_of(row.pk).stat().st_ino
    assert Api(alice).submit(file=None, upload=row.pk).status == 201
    stored = path_of(Area.UPLOADS, Job.objects.get().upload_sha256)
    assert stored.name == hashlib.sha256(content).hexdigest()
    assert stored.stat().st_ino == inode
    assert Api(alice).submit(run_text(tag="other"), system="Another").status == 201


def test_a_refused_file_is_neither_kept_nor_shown(demo: Dataset, alice: User) -> None:
    client = Client()
    client.force_login(alice)
    good, bad = (
        arrived(alice, run_text().encode(), name="good.txt"),
        arrived(alice, b"q1 Q0 d1\n", name="bad.txt"),
    )
    page = client.post("/submit/", {"action": "check", "upload:run:demo": [good.pk, bad.pk]}).content.decode()
    assert "The run cannot be scored." in page
    assert good.pk in page
    assert bad.pk not in page
    assert list(Upload.objects.all()) == [good]
    assert not on_disk(bad)


def test_the_page_keeps_what_came(demo: Dataset, alice: User) -> None:
    client = Client()
    client.force_login(alice)
    row = arrived(alice, run_text().encode())
    fields = {"upload:run:demo": row.pk, "new-name": "Mine", "action": "submit"}
    page = client.post("/submit/", fields)
    assert page.status_code == 400  # no architecture
    assert f'name="upload:several" value="{row.pk}"' in page.content.decode()
    assert "uploaded</span>" in page.content.decode()
    assert client.post("/submit/", {**fields, "new-architecture": "dense"}).status_code == 302
    assert not Upload.objects.exists()


def test_a_checkpoint_is_checked_and_offered_by_the_page(alice: User, demo: Dataset) -> None:
    client = Client()
    client.force_login(alice)
    row = arrived(alice, b"no archive", "model", "model.zip")
    page = client.get("/submit/model/").content.decode()
    assert f'name="upload:checkpoint" value="{row.pk}"' in page
    checked = client.post("/submit/model/", {"action": "check", "upload:checkpoint": row.pk, "engine": "dense"})
    assert "The model cannot be run here" in checked.content.decode()
    assert f'value="{row.pk}" id="upload-{row.pk}" checked' in one_line(checked.content.decode())
    answer = Api(alice).post("check/", kind="model", upload=row.pk)
    assert answer.status == 200
    assert not answer.body["valid"]
    assert on_disk(row)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("models_run_here")
def test_a_model_is_submitted_by_the_name_of_its_upload(demo: Dataset, alice: User, tmp_path: Path) -> None:
    with_corpus(demo, tmp_path)
    row = arrived(alice, static_archive(), "model", "model.zip")
    refused = submit_model(Api(alice), checkpoint=None, upload=row.pk, dataset="nothing")
    assert refused.status == 400
    assert on_disk(row)
    answer = submit_model(Api(alice), checkpoint=None, upload=row.pk)
    assert answer.status == 201, answer.body
    assert answer.body["checkpoint"]["file_name"] == "model.zip"
    assert not Upload.objects.exists()
    assert not on_disk(row)


def test_the_handler_finds_the_checksum_as_bytes_come(rf: RequestFactory, alice: User) -> None:
    files = {
        "run:demo": SimpleUploadedFile("a.txt", b"abc" * 50_000),
        "several": SimpleUploadedFile("b.txt", b""),
    }
    request = rf.post("/submit/", files)
    request.user = alice
    request.resolver_match = type("Match", (), {"view_name": "submit"})()
    request.upload_handlers = [LimitedUploadHandler(request)]
    found = request.FILES["run:demo"]
    assert isinstance(found, HashedUpload)
    assert found.sha256 == hashlib.sha256(b"abc" * 50_000).hexdigest()
    assert Path(found.temporary_file_path()).stat().st_size == 150_000


def test_a_form_leaves_the_reserve_to_the_database(
    rf: RequestFactory, alice: User, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several that come at once were each told that there is room."""
    settings.DISK_RESERVE_BYTES = 100
    monkeypatch.setattr(handler, "SPACE_CHECK_BYTES", 100_000)
    free, before = [10_000, 10_000, 1_000_000], set(Path(settings.FILE_UPLOAD_TEMP_DIR).iterdir())
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free.pop()))
    request = rf.post("/submit/", {"run:demo": SimpleUploadedFile("a.txt", b"abc" * 100_000)})
    request.user = alice
    request.resolver_match = type("Match", (), {"view_name": "submit"})()
    request.upload_handlers = [LimitedUploadHandler(request)]
    with pytest.raises(DiskFull):
        request.FILES  # noqa: B018
    assert set(Path(settings.FILE_UPLOAD_TEMP_DIR).iterdir()) <= before


class Unread(io.BytesIO):
    """A request's body that tells how much of it was read."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes."""
        block = super().read(size)
        self.taken += len(block)
        return block


def test_a_length_over_the_limit_is_refused_before_the_file_is_read(alice: User, settings: Any) -> None:
    settings.UPLOAD_LIMIT_BYTES = 1_000_000
    boundary = "a-line-between"
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="run.txt"\r\n\r\n'.encode()
    body = Unread(head + b"x" * 8_000_000)
    answer = Client().generic(
        "POST",
        "/api/v1/check/",
        b"",
        headers=Api(alice).headers,
        CONTENT_TYPE=f"multipart/form-data; boundary={boundary}",
        CONTENT_LENGTH=str(8_000_000 + len(head)),
        **{"wsgi.input": body},
    )
    assert answer.status_code == 413
    assert body.taken < 300_000
