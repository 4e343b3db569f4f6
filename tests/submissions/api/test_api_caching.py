"""What caches between are told of the API's answers: nobody keeps what somebody was answered."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from leaderboard.models import Dataset, User
from tests.submissions.clients import Api

pytestmark = pytest.mark.django_db

ADDRESSES = [
    ("datasets/", 200), ("datasets/demo/board/", 200), ("datasets/demo/files/", 200), ("submissions/", 200),
    ("uploads/", 200), ("quotas/", 200), ("notices/", 200), ("submissions/nothing/", 404), ("nothing/", 404),
]  # fmt: skip


def varies_by(answer: Any) -> set[str]:
    """The headers of requests that an answer says it depends on."""
    return {name.strip() for name in answer.headers.get("Vary", "").split(",")}


@pytest.mark.parametrize(("address", "status"), ADDRESSES)
def test_nobody_keeps_what_somebody_was_answered(
    address: str, status: int, demo: Dataset, alice: User, signed_in: Client
) -> None:
    for client, headers in ((Client(), Api(alice).headers), (signed_in, {})):
        for _ in range(2):  # a kept board may be at hand the second time
            answer = client.get(f"/api/v1/{address}", headers=headers)
            assert answer.status_code == status
            assert answer.headers["Cache-Control"] in ("private, no-store", "no-store")
            assert {"Authorization", "Cookie"} <= varies_by(answer)
    refused = Client().get(f"/api/v1/{address}", headers={"Authorization": "Bearer rb_nothing"})
    assert refused.headers["Cache-Control"] in ("private, no-store", "no-store")


def test_a_public_board_is_kept_for_nobody_in_particular(demo: Dataset) -> None:
    answer = Client().get("/api/v1/datasets/demo/board/")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-cache")
    assert answer.headers["ETag"]
    assert {"Authorization", "Cookie"} <= varies_by(answer)
