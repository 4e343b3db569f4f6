"""Uploads in pieces, by the tus protocol: every answer, who may, and how much there is room for."""

from __future__ import annotations

import base64
import hashlib
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.core.storage import deletion_lock
from leaderboard.models import User
from submissions.api import uploads as protocol
from submissions.jobs.cleanup import remove_unreferenced
from submissions.models import Upload
from submissions.uploads import service, storage
from tests.factories import make_user
from tests.submissions.tus import PIECE, UPLOADS, Tus, content_of, encoded
from tests.submissions.tus import no_pieces as no_pieces
from tests.submissions.tus import tus as tus

pytestmark = pytest.mark.django_db


def test_anybody_may_ask_what_is_spoken() -> None:
    answer = Client().options(UPLOADS)
    assert answer.status_code == 204
    assert answer["Tus-Resumable"] == answer["Tus-Version"] == "1.0.0"
    assert answer["Tus-Extension"] == "creation,creation-with-upload,termination,expiration,checksum"
    assert answer["Tus-Checksum-Algorithm"] == "sha1,sha256"
    assert int(answer["Tus-Max-Size"]) == 33 * 1024**3


def test_a_file_comes_in_two_pieces(tus: Tus) -> None:
    address = tus.begin(10, filename="../../etc/run.txt", kind="model")
    assert tus.ask("HEAD", address)["Upload-Length"] == "10"
    first = tus.patch(address, b"01234", 0)
    assert (first.status_code, first["Upload-Offset"], first["Tus-Resumable"]) == (204, "5", "1.0.0")
    assert "GMT" in first["Upload-Expires"]
    assert tus.patch(address, b"56789", 5)["Upload-Offset"] == "10"
    assert content_of(address) == b"0123456789"
    told = tus.client.get(address, headers=tus.headers).json()
    assert told["complete"]
    assert (told["file_name"], told["kind"]) == ("run.txt", "model")
    assert told["sha256"] == hashlib.sha256(b"0123456789").hexdigest()
    head = tus.ask("HEAD", address)
    assert head["Upload-Metadata"] == encoded(filename="../../etc/run.txt", kind="model")
    assert head["Cache-Control"] == "no-store"
    assert tus.patch(address, b"", 10).status_code == 204


def test_bytes_may_come_with_the_beginning(tus: Tus) -> None:
    answer = tus.ask("POST", UPLOADS, b"abc", Upload_Length="5")
    assert (answer.status_code, answer["Upload-Offset"]) == (201, "3")
    assert tus.ask("POST", UPLOADS, Upload_Length="0").json()["complete"]
    wrong = tus.ask("POST", UPLOADS, b"abc", content_type="text/plain", Upload_Length="5")
    assert wrong.status_code == 415


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Upload_Length": ""}, 400),
        ({"Upload_Length": "-1"}, 400),
        ({"Upload_Length": "٣"}, 400),
        ({"Upload_Length": "", "Upload_Defer_Length": "1"}, 400),
        ({"Upload_Length": "9", "Upload_Metadata": "filename %%%"}, 400),
        ({"Upload_Length": "9", "Upload_Metadata": encoded(kind="poem")}, 400),
        ({"Upload_Length": "9", "Upload_Metadata": encoded(filename="a" * 900)}, 400),
        ({"Upload_Length": str(512 * 1024**2 + 1)}, 413),
        ({"Upload_Length": str(33 * 1024**3 + 1), "Upload_Metadata": encoded(kind="model")}, 413),
        ({"Upload_Length": "9", "Tus_Resumable": "0.2.2"}, 412),
        ({"Upload_Length": "9", "Tus_Resumable": ""}, 412),
        ({"Upload_Length": "9", "Authorization": ""}, 401),
        ({"Upload_Length": "9", "Authorization": "Bearer rb_no"}, 401),
    ],
)
def test_what_cannot_be_begun(tus: Tus, headers: dict[str, str], status: int) -> None:
    answer = tus.ask("POST", UPLOADS, **headers)
    assert answer.status_code == status, answer.content
    assert answer["Tus-Resumable"] == "1.0.0"
    assert answer.json()["detail"]
    assert ("Tus-Version" in answer) == (status == 412)
    assert not Upload.objects.exists()
    assert not list(storage.folder().glob("*"))


def test_what_is_no_next_piece(tus: Tus) -> None:
    address = tus.begin(5)
    assert tus.patch(address, b"ab", 0).status_code == 204
    assert tus.patch(address, b"cd", 0).status_code == 409
    assert tus.patch(address, b"cd", 4).status_code == 409
    assert tus.patch(address, b"cdef", 2).status_code == 413
    assert tus.patch(address, b"cd", 2, Tus_Resumable="").status_code == 412
    assert tus.ask("PATCH", address, b"cd").status_code == 400
    assert tus.ask("PATCH", address, b"cd", content_type="text/plain", Upload_Offset="2").status_code == 415
    assert tus.offset(address) == 2
    assert content_of(address) == b"ab"


def test_a_checksum_is_tested_before_bytes_count(tus: Tus) -> None:
    address = tus.begin(6)
    good = base64.b64encode(hashlib.sha1(b"abc").digest()).decode()
    assert tus.patch(address, b"abX", 0, Upload_Checksum=f"sha1 {good}").status_code == 460
    assert tus.offset(address) == 0
    assert content_of(address) == b""
    assert tus.patch(address, b"abc", 0, Upload_Checksum=f"sha1 {good}")["Upload-Offset"] == "3"
    for wrong in ("md5 YWJj", "sha256 YWJj", "sha1 %%", "sha1"):
        assert tus.patch(address, b"def", 3, Upload_Checksum=wrong).status_code == 400
    strong = base64.b64encode(hashlib.sha256(b"def").digest()).decode()
    assert tus.patch(address, b"def", 3, Upload_Checksum=f"sha256 {strong}")["Upload-Offset"] == "6"
    assert Upload.objects.get().sha256 == hashlib.sha256(b"abcdef").hexdigest()


def test_only_its_sender_knows_of_an_upload(tus: Tus) -> None:
    address = tus.begin(5)
    other, staff = Tus(make_user()), Tus(make_user(is_staff=True))
    for stranger in (other, staff):
        assert stranger.ask("HEAD", address).status_code == 404
        assert stranger.patch(address, b"ab", 0).status_code == 404
        assert stranger.ask("DELETE", address).status_code == 404
        assert stranger.client.get(UPLOADS, headers=stranger.headers).json() == []
    assert len(tus.client.get(UPLOADS, headers=tus.headers).json()) == 1
    assert tus.ask("HEAD", f"{UPLOADS}{'0' * 32}/").status_code == 404


def test_a_session_needs_its_token_against_forged_requests(alice: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": "3"}
    assert client.generic("POST", UPLOADS, headers=headers).status_code == 403
    client.get("/submit/")
    token = client.cookies["csrftoken"].value
    answer = client.generic("POST", UPLOADS, headers={**headers, "X-CSRFToken": token})
    assert answer.status_code == 201
    patched = {"Tus-Resumable": "1.0.0", "Upload-Offset": "0"}
    address = answer["Location"]
    assert client.patch(address, b"abc", PIECE, headers=patched).status_code == 403
    assert client.patch(address, b"abc", PIECE, headers={**patched, "X-CSRFToken": token}).status_code == 204


def test_one_writes_at_a_time(tus: Tus) -> None:
    address = tus.begin(5)
    with storage.lock_file(Upload.objects.get().pk):
        assert tus.patch(address, b"ab", 0).status_code == 423
        assert tus.ask("DELETE", address).status_code == 423
        assert tus.offset(address) == 0
    assert tus.patch(address, b"ab", 0).status_code == 204


def test_what_is_deleted_is_gone(tus: Tus) -> None:
    address = tus.begin(5)
    answer = tus.ask("POST", address, X_HTTP_Method_Override="DELETE")
    assert (answer.status_code, answer.content) == (204, b"")
    assert tus.ask("HEAD", address).status_code == 404
    assert not list(storage.folder().glob("*"))


def test_what_a_backup_keeps_counts_still(tus: Tus, alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "UPLOADS_PER_PERSON", 1)
    address = tus.begin(5)
    with deletion_lock.pause_deletions():
        answer = tus.ask("DELETE", address)
        assert (answer.status_code, answer.json()["code"]) == (423, "upload_in_use")
        client = Client()
        client.force_login(alice)
        page = client.post("/account/uploads/delete/", {"upload": Upload.objects.get().pk}, follow=True)
        assert "in use by a submission or a backup" in page.content.decode()
        assert tus.ask("POST", UPLOADS, Upload_Length="5").status_code == 429
        assert [path.name for path in storage.folder().glob("*")] == [Upload.objects.get().pk]
    assert tus.ask("DELETE", address).status_code == 204
    assert not list(storage.folder().glob("*"))


def test_what_expired_is_gone_and_swept(tus: Tus) -> None:
    address = tus.begin(5)
    tus.begin(6)
    Upload.objects.filter(length=5).update(touched_at=timezone.now() - timedelta(hours=25))
    for answer in (tus.ask("HEAD", address), tus.patch(address, b"ab", 0), tus.ask("DELETE", address)):
        assert answer.status_code == 410
    assert service.discard_expired_uploads() == 1
    assert tus.ask("HEAD", address).status_code == 404
    assert len(list(storage.folder().glob("*"))) == Upload.objects.count() == 1


def test_bytes_without_a_row_are_swept_and_new_ones_left() -> None:
    storage.create_file("a" * 32)
    remove_unreferenced(60)
    assert len(list(storage.folder().glob("*"))) == 1
    remove_unreferenced(-1)
    assert not list(storage.folder().glob("*"))


def test_a_person_has_room_for_so_many(tus: Tus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "UPLOADS_PER_PERSON", 2)
    tus.begin(5)
    address = tus.begin(5)
    refused = tus.ask("POST", UPLOADS, Upload_Length="5")
    assert refused.status_code == 429
    assert "delete those" in refused.json()["problems"][0]["hint"]
    tus.ask("DELETE", address)
    monkeypatch.setattr(service, "UPLOAD_BYTES_PER_PERSON", 9)
    assert tus.ask("POST", UPLOADS, Upload_Length="5").status_code == 429
    tus.begin(4)
    assert len(list(storage.folder().glob("*"))) == 2


class Usage(NamedTuple):
    """What a disk has, as shutil.disk_usage says it."""

    total: int
    used: int
    free: int


def test_what_is_announced_has_its_room_before_it_comes(
    tus: Tus, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DISK_RESERVE_BYTES = 100
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(10_000, 0, 1_000))
    first = tus.begin(500)
    other = Tus(make_user())
    refused = other.ask("POST", UPLOADS, Upload_Length="500")
    assert (refused.status_code, refused.json()["code"]) == (503, "disk_full")
    other.begin(400)
    # What came is no longer free, and no longer to come.
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(10_000, 500, 500))
    Upload.objects.filter(pk=first.split("/")[-2]).update(offset=500)
    assert other.ask("POST", UPLOADS, Upload_Length="1").status_code == 503
    other.ask("DELETE", other.client.get(UPLOADS, headers=other.headers).json()[0]["url"])
    other.begin(400)


def test_who_only_announces_takes_nobodys_room(tus: Tus, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an upload as much is kept free as came of it, and what the next sync may bring."""
    settings.DISK_RESERVE_BYTES = 100
    monkeypatch.setattr(storage, "SYNC_EVERY", 10)
    monkeypatch.setattr(protocol, "BLOCK", 10)
    free = [1_000]
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(10_000, 0, free[-1]))
    announced = [tus.begin(800) for _ in range(3)]
    other = Tus(make_user())
    assert other.ask("POST", UPLOADS, Upload_Length="871").status_code == 503
    sent = other.begin(870)
    assert other.patch(sent, b"x" * 400, 0).status_code == 204
    free.append(600)
    # 410 are kept for who has sent 400; the others are told when their bytes come, and keep what is there.
    assert tus.ask("POST", UPLOADS, Upload_Length="61").status_code == 503
    free.append(105)
    refused = tus.patch(announced[0], b"x" * 20, 0)
    assert (refused.status_code, refused.json()["code"]) == (503, "disk_full")
    assert tus.offset(announced[0]) == 0


def test_pieces_leave_the_reserve_alone(tus: Tus, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have filled the disk since the upload began, or fill it while a piece comes."""
    settings.DISK_RESERVE_BYTES = 100
    monkeypatch.setattr(storage, "SYNC_EVERY", 10)
    monkeypatch.setattr(protocol, "BLOCK", 10)
    free = [1_000]
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(10_000, 0, free[-1]))
    address = tus.begin(40)
    free[-1] = 99
    refused = tus.patch(address, b"x" * 20, 0)
    assert (refused.status_code, refused.json()["code"]) == (503, "disk_full")
    assert (tus.offset(address), content_of(address)) == (0, b"")
    free.extend([99, 1_000, 1_000])
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(10_000, 0, free.pop()))
    assert tus.patch(address, b"x" * 40, 0).status_code == 503
    assert (tus.offset(address), content_of(address)) == (20, b"x" * 20)
    free.extend([1_000, 1_000])
    assert tus.patch(address, b"x" * 20, 20).status_code == 204


def test_a_person_sends_two_pieces_at_once_and_others_have_places_too(alice: User, tus: Tus, settings: Any) -> None:
    settings.PIECES_AT_ONCE = 3
    address, bob = tus.begin(10), Tus(make_user("Bob"))
    with service.piece_slot(alice.pk), service.piece_slot(alice.pk):
        refused = tus.patch(address, b"01234", 0)
        assert (refused.status_code, refused["Retry-After"]) == (503, "5")
        theirs = bob.begin(10)
        assert bob.patch(theirs, b"01234", 0).status_code == 204
        with service.piece_slot(0):
            assert bob.patch(theirs, b"56789", 5).status_code == 503
    assert tus.patch(address, b"01234", 0).status_code == 204
