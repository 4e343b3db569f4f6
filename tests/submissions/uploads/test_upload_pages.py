"""One's own uploads on pages: what is here in part is said where one would go on, and anything may be thrown away."""

from __future__ import annotations

import pytest
from django.test import Client

from leaderboard.models import Dataset, User
from submissions.models import Upload
from submissions.uploads import service
from tests.factories import make_user
from tests.pages import one_line

pytestmark = pytest.mark.django_db


@pytest.fixture
def half(alice: User) -> Upload:
    """A run of which four bytes of ten came."""
    upload = service.begin_upload(alice, length=10, kind="run", file_name="night.txt")
    return service.receive_bytes(upload, 0, [b"0123"])


def test_a_file_that_is_here_in_part_is_said_on_the_submit_page(demo: Dataset, half: Upload, signed_in: Client) -> None:
    page = one_line(signed_in.get("/submit/").content.decode())
    assert "<b>night.txt</b>: 4 B of 10 B uploaded." in page
    assert "night.txt" not in signed_in.get("/submit/model/?engine=dense").content.decode()


def test_the_list_says_how_far_each_is_and_deletes_it(half: Upload, signed_in: Client) -> None:
    page = signed_in.get("/account/uploads/").content.decode()
    assert "1 of 20" in page
    assert "4 B of 10 B: choose the same file again to resume" in page
    answer = signed_in.post("/account/uploads/delete/", {"upload": half.pk}, follow=True).content.decode()
    assert "night.txt was deleted." in answer
    assert "You have no uploads." in answer
    assert not Upload.objects.exists()


@pytest.mark.parametrize("identifier", ["", "../etc", "0" * 32])
def test_what_is_not_there_is_said(signed_in: Client, identifier: str) -> None:
    answer = signed_in.post("/account/uploads/delete/", {"upload": identifier}, follow=True)
    assert "The file does not exist" in answer.content.decode()


def test_nobody_deletes_anothers(half: Upload, client: Client) -> None:
    client.force_login(make_user("Mallory"))
    client.post("/account/uploads/delete/", {"upload": half.pk})
    assert "night.txt" not in client.get("/account/uploads/").content.decode()
    assert Upload.objects.filter(pk=half.pk).exists()
