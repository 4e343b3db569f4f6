"""What the shared cache keeps: data that we signed, so that whoever writes into the server is not believed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from leaderboard.core.cache import pages
from leaderboard.core.cache.redis import SignedValues
from tests.factories import make_user
from tests.leaderboard.comparison.test_queries import GOOD, POOR
from tests.leaderboard.open_runs import open_dataset, run_for
from tests.pages import clear_page_cache


class Planted:
    """A pickle that makes a file where it is read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


VALUES = [
    None, True, False, 0, -5, 2**62, 1.5, "", "5", "text ü", b"", b"\x80\x04.", [], [1.25, 2.5], "\0bytes",
    [b"name", ["W/x", "text/html", b"\x1f\x8b" * 1000, ""]], [b"a", [b"", b"bc"], "d", b"e"],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_as_they_were(value: Any) -> None:
    values = SignedValues()
    stored = values.dumps(value)
    found = values.loads(str(stored).encode() if isinstance(stored, int) else stored)
    assert (found, type(found)) == (value, type(value))


def test_what_is_no_data_is_not_kept() -> None:
    for value in ({1, 2}, object(), Path("/"), [Planted(Path("/"))]):
        with pytest.raises(TypeError):
            SignedValues().dumps(value)


def test_what_others_wrote_counts_as_missing(broker: redis.Redis) -> None:
    cache.set("good", [b"name", "text"])
    (key,) = (key for key in broker.scan_iter() if key.endswith(b"good"))
    good = broker.get(key)
    assert isinstance(good, bytes)
    for at in range(len(good)):
        broker.set(key, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert cache.get("good", "missing") == "missing"
    for forged in (b"", b"x", b"-", good[:-1], good + b"x", pickle.dumps([1]), b"[1]", b"\xff" * 100):
        broker.set(key, forged)
        assert cache.get("good", "missing") == "missing"
        assert cache.get_many(["good"]) == {}


def test_another_key_of_the_site_signs_other_values(settings: Any) -> None:
    stored = SignedValues().dumps("text")
    settings.SECRET_KEY = "another"
    assert isinstance(stored, bytes)
    assert SignedValues().loads(stored) is None


@pytest.mark.django_db
@pytest.mark.database
def test_nothing_in_the_broker_is_unpickled(client: Client, broker: redis.Redis, tmp_path: Path) -> None:
    """Pages, limits, sessions' times, tests of comparisons: whatever visits leave there is replaced by pickles."""
    canary = tmp_path / "canary"
    clear_page_cache()
    open_one = open_dataset(tmp_path)
    systems = [run_for(open_one, name, run).system for name, run in (("first", POOR), ("second", GOOD))]
    page = f"/datasets/{open_one.slug}/"
    person = make_user("reader@example.org")

    def visit() -> None:
        pages._recent_pages.clear()
        nobody = Client()
        for path in (page, f"/api/v1{page}board/"):
            assert nobody.get(path).status_code == 200
        compared = nobody.get("/compare/", {"system": [system.slug for system in systems]})
        assert compared.status_code == 200
        wrong = {"login": person.email, "password": "wrong"}
        assert nobody.post(reverse("account_login"), wrong).status_code == 200
        client.force_login(person)
        assert client.get(page).status_code == 200

    visit()
    keys = list(broker.scan_iter())
    # Not the number: two pages may share a slot, and counts of pages are added only once in a while.
    assert {key.split(b":")[2] for key in keys} >= {b"page", b"comparison", b"seen", b"allauth"}
    evil = pickle.dumps(Planted(canary))
    for key in keys:
        broker.set(key, evil, ex=600)
    visit()
    assert not canary.exists()
    assert set(settings.CACHES) == {"default"}
    pickle.loads(evil)
    assert canary.exists()
