"""What is written down: whose request it was, in a form that programs read, and nothing that is a secret."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from django.conf import settings
from django.db import OperationalError
from django.test import Client

from leaderboard.core.logging import ContextFilter, job_context
from leaderboard.models import Membership
from submissions.accounts.teams import invite, personal_team
from tests.factories import make_user

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.django_db


def test_every_answer_has_an_id_and_the_log_has_it_too(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(ContextFilter())
    with caplog.at_level(logging.INFO, logger="runboard.requests"):
        first, second = client.get("/datasets/"), client.get("/nowhere/")
    assert first["X-Request-ID"] != second["X-Request-ID"]
    lines = [record for record in caplog.records if record.name == "runboard.requests"]
    assert [getattr(line, "request_id", "") for line in lines] == [
        first["X-Request-ID"],
        second["X-Request-ID"],
    ]
    assert lines[0].getMessage().startswith("GET datasets 200 ")


def test_an_address_with_a_secret_is_not_in_the_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        client.get("/invitations/sesame-open-yourself/")
    mine = [record.getMessage() for record in caplog.records if record.name == "runboard.requests"]
    assert mine
    assert "sesame" not in " ".join(mine)


def invitation_for_somebody() -> str:
    """The secret of an open invitation."""
    owner = make_user()
    team = personal_team(owner)
    Membership.objects.filter(team=team, user=owner).update(owner=True)
    return invite(team, "carol@example.org", owner=True, actor=owner)[1]


def test_an_open_invitation_is_in_no_line(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Who opens what is for somebody else is refused, which Django writes down by itself."""
    secret = invitation_for_somebody()
    client.force_login(make_user())
    with caplog.at_level(logging.DEBUG):
        assert client.get(f"/invitations/{secret}/").status_code == 403
    said = [record.getMessage() for record in caplog.records if record.name == "django.request"]
    assert said == ["Forbidden: invitation"]
    assert secret not in caplog.text
    assert not [record for record in caplog.records if secret in str(record.__dict__.get("request"))]


@pytest.mark.parametrize("error", [OperationalError("the server is away"), RuntimeError("x")], ids=repr)
@pytest.mark.parametrize("address", ["/invitations/sesame-open/", "/account/password/reset/key/1-sesame-open/"])
def test_a_fault_of_ours_writes_down_no_address(
    client: Client,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    address: str,
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr("django.contrib.sessions.backends.db.SessionStore.load", fail)
    client.raise_request_exception = False
    client.cookies["sessionid"] = "x" * 32
    with caplog.at_level(logging.INFO):
        assert client.get(address).status_code in (500, 503)
    assert "fault " in caplog.text
    assert "sesame" not in caplog.text


def test_a_refusal_is_one_calm_line(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.force_login(make_user())
    with caplog.at_level(logging.INFO):
        assert client.get("/admin/", follow=True).status_code == 403
        assert client.get("/datasets/", headers={"Host": "elsewhere.example"}).status_code == 400
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    assert "Traceback" not in caplog.text
    assert "elsewhere.example" in caplog.text


@pytest.mark.parametrize(
    ("behind_proxy", "sent", "taken"),
    [
        (True, "abcdef-0123456789", True),
        (True, 'x" level=ERROR forged', False),
        (True, "short", False),
        (False, "abcdef-0123456789", False),
    ],
)
def test_an_id_is_taken_from_a_proxy_alone(
    client: Client, settings: Any, behind_proxy: bool, sent: str, taken: bool
) -> None:
    settings.BEHIND_PROXY = behind_proxy
    answer = client.get("/datasets/", headers={"X-Request-ID": sent})
    assert (answer["X-Request-ID"] == sent) is taken


def test_lines_of_a_job_name_it() -> None:
    record = logging.LogRecord("any", logging.INFO, "", 0, "said", None, None)
    with job_context(17):
        ContextFilter().filter(record)
    assert record.__dict__["job_id"] == "17"
    assert record.__dict__["context"] == " [job 17]"


def run_python(code: str, **environment: str) -> str:
    """What a process of the site says on its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", f"import django; django.setup()\n{code}"],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "leaderboard.settings",
            "RUNBOARD_VAR": str(settings.VAR),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr


def test_json_lines_are_objects_with_times_levels_and_ids() -> None:
    said = run_python(
        "import logging\nfrom leaderboard.core.logging import request_context\n"
        "with request_context('abcdefgh'):\n"
        "    try:\n        1 / 0\n    except ZeroDivisionError:\n"
        "        logging.getLogger('site').exception('two\\nlines', extra={'view': 'home'})",
        LOG_FORMAT="json",
    )
    line = json.loads(said)  # one line, whatever was in it
    assert line["level"] == "ERROR"
    assert line["message"] == "two\nlines"
    assert line["request_id"] == "abcdefgh"
    assert line["view"] == "home"
    assert "ZeroDivisionError" in line["exc_info"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert "context" not in line  # made for the other format


def test_gunicorn_writes_objects_too() -> None:
    said = run_python(
        "import logging\nlogger = logging.getLogger('gunicorn.error')\n"
        "logger.propagate = False\nlogger.addHandler(logging.StreamHandler())\n"
        "import django\ndjango.setup()\nlogger.info('Listening')",
        LOG_FORMAT="json",
    )
    assert json.loads(said)["message"] == "Listening"


class _Sentry(BaseHTTPRequestHandler):
    """A server that takes what would be sent to Sentry."""

    taken: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        if self.headers.get("Content-Encoding") == "br":
            import brotli

            body = brotli.decompress(body)
        self.taken.append(body)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_sentry_is_told_of_a_fault_without_what_it_was_about() -> None:
    server = HTTPServer(("127.0.0.1", 0), _Sentry)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        run_python(
            "import logging, sentry_sdk\nfrom leaderboard.core.logging import job_context\n"
            "judgement = 'q7-d9-grade-3'\n"
            "with job_context(5):\n"
            "    try:\n        raise ValueError(judgement)\n    except ValueError as error:\n"
            "        logging.getLogger('site').error('fault %s: %s', 'f00', judgement, exc_info=error)\n"
            "sentry_sdk.flush(10)",
            SENTRY_DSN=f"http://key@127.0.0.1:{server.server_port}/1",
        )
    finally:
        server.shutdown()
        server.server_close()
    sent = b"\n".join(_Sentry.taken)
    assert b"ValueError" in sent
    assert b'"job_id":"5"' in sent.replace(b": ", b":")
    assert b"q7-d9" not in sent
