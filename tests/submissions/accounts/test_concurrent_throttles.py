"""Requests that come at once are each counted."""

from __future__ import annotations

import threading

import pytest
from django.contrib.auth.models import AnonymousUser
from django.test import RequestFactory

from submissions.accounts.throttling import CheckThrottle, seconds_to_wait


def test_of_requests_at_once_no_more_pass_than_may(
    broker: object, empty_broker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckThrottle, "THROTTLE_RATES", {"check": "5/min"})
    passed: list[int] = []
    begin = threading.Barrier(8)

    def ask() -> None:
        request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.77")
        request.user = AnonymousUser()
        begin.wait()
        passed.append(seconds_to_wait(CheckThrottle(), request))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed.count(0) == 5
    assert all(0 < wait <= 60 for wait in passed if wait)
