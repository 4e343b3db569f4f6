"""The template of the proxy, run by the nginx that is here, in front of the site.

TLS, limits and how they are said, what is never handed out, uploads in pieces that outlive a broken connection. The
site is gunicorn as in the image; in curation's place a server tells what it was sent. Prints a line for each promise,
and ends with status 1 where one is broken.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import brotli

from leaderboard.management.supervisor.services import GUNICORN_CONFIG
from tests.docker import proxy
from tests.docker.senders import (
    a_network_of_ipv6_is_one_sender,
    all_addresses_together_send_forty,
    an_address_sends_few_bodies_at_once,
    the_admin_takes_large_bodies_for_its_imports_alone,
    who_reads_sends_no_body,
)
from tests.docker.strangers import (
    other_names_get_no_answer,
    requests_of_two_lengths_are_refused,
    the_log_has_no_secrets,
)
from tests.docker.visiting import Answer, Visitor, read
from tests.servers import processes

ROOT = Path(__file__).resolve().parents[2]
#: A person with a token, and the file of judgements that nobody may get.
PREPARE = """
from django.contrib.auth import get_user_model
from allauth.account.models import EmailAddress
from submissions.accounts.access import make_token
user = get_user_model().objects.create_user(email="ada@example.org", password="a long enough password")
EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
print(make_token(user, "proxy"))
"""
MEGABYTE = 1024 * 1024


def tls_and_names(visitor: Visitor) -> None:
    """TLS with HTTP/2, one name, plain http sent on; the proxy's own check."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", visitor.ports.https)) as plain,
        context.wrap_socket(plain, server_hostname=proxy.HOST) as secured,
    ):
        assert secured.selected_alpn_protocol() == "h2"
        assert secured.version() == "TLSv1.3"
    plain_http = http.client.HTTPConnection("127.0.0.1", visitor.ports.http)
    plain_http.request("GET", "/datasets/?q=1", headers={"Host": proxy.HOST})
    moved = plain_http.getresponse()
    assert (moved.status, moved.headers["Location"]) == (308, f"https://{proxy.HOST}/datasets/?q=1")
    moved.read()
    plain_http.request("GET", "/proxy-is-up")
    assert plain_http.getresponse().status == 204


def pages_and_static_files(visitor: Visitor) -> None:
    """A page with its headers and the id; files from the disk as small as the browser takes them, with headers too."""
    page = visitor.ask("/", X_Request_ID="forged-by-a-visitor")
    assert page.status == 200, page.status
    assert re.fullmatch(r"[0-9a-f]{32}", page.headers["x-request-id"]), page.headers
    assert "max-age" in page.headers["strict-transport-security"]
    assert "'self'" in page.headers["content-security-policy"]
    style = re.search(rb'href="(/static/css/[^"]+)"', page.body)
    assert style, "the page names no stylesheet"
    sheet = visitor.ask(style[1].decode(), Accept_Encoding="gzip")
    assert (sheet.status, sheet.headers["content-encoding"]) == (200, "gzip")
    assert "immutable" in sheet.headers["cache-control"]
    smaller = visitor.ask(style[1].decode(), Accept_Encoding="gzip, deflate, br, zstd")
    assert (smaller.headers["content-encoding"], smaller.headers["content-type"]) == ("br", "text/css")
    assert brotli.decompress(smaller.body) == gzip.decompress(sheet.body)
    assert len(smaller.body) < len(sheet.body)
    for accepted in ("identity", "br;q=0, gzip;q=0", "brotli"):
        plain = visitor.ask(style[1].decode(), Accept_Encoding=accepted)
        assert "content-encoding" not in plain.headers, accepted
        assert plain.body == gzip.decompress(sheet.body)
        assert "accept-encoding" in plain.headers["vary"].lower()
    script = re.search(rb'src="(/static/js/[^"]+)"', page.body)
    assert script, "the page names no script"
    sent = visitor.ask(script[1].decode(), Accept_Encoding="br")
    assert (sent.headers["content-encoding"], sent.headers["content-type"]) == ("br", "text/javascript")
    for answer in (sheet, smaller, visitor.ask("/static/none.css")):
        for name in (
            "strict-transport-security",
            "content-security-policy",
            "x-frame-options",
            "referrer-policy",
        ):
            assert name in answer.headers, (answer.status, name)
        assert answer.headers["x-content-type-options"] == "nosniff"


def curation_is_another_process(visitor: Visitor) -> None:
    """/admin/ goes there, with the visitor's address and the id; connections on both sides are kept."""
    connection = visitor.connection()
    told = []
    for _ in range(2):
        connection.request("GET", "/admin/", headers={"Host": proxy.HOST, "X-Forwarded-For": "6.6.6.6"})
        told.append(json.loads(read(connection).body))
    connection.close()
    headers = {name.lower(): value for name, value in told[0]["headers"].items()}
    assert headers["x-forwarded-for"] == "127.0.0.1", "a visitor could choose an address"
    assert headers["x-forwarded-proto"] == "https"
    assert re.fullmatch(r"[0-9a-f]{32}", headers["x-request-id"])
    assert told[0]["port"] == told[1]["port"], "the connection to the site was not kept"


def limits_are_said(visitor: Visitor) -> None:
    """Too large: a page for people, JSON below /api/; said before the bytes are sent."""
    page = visitor.ask("/account/login/", method="POST", Content_Length=str(9 * MEGABYTE))
    assert (page.status, page.headers["content-type"]) == (413, "text/html"), page
    assert b"<h1>Too large</h1>" in page.body
    call = visitor.ask("/api/v1/check/", method="POST", Content_Length=str(21 * MEGABYTE))
    assert (call.status, json.loads(call.body)["code"]) == (413, "request_too_large")
    assert call.headers["content-type"] == "application/json"
    assert "x-request-id" in call.headers
    form = visitor.ask("/submit/", method="POST", Content_Length=str(21 * MEGABYTE))
    assert form.status == 413


def files_by_the_proxy(visitor: Visitor) -> None:
    """What the site permits is sent from the store; asked for directly, or private, nothing is."""
    sent = visitor.ask("/admin/?accel=/protected/store/runs/ab/run")
    assert (sent.status, sent.body) == (200, b"a run"), sent
    assert sent.headers["content-disposition"] == 'attachment; filename="run.txt"'
    assert "sandbox" in sent.headers["content-security-policy"]
    assert sent.headers["x-content-type-options"] == "nosniff"
    ways = [
        "/protected/store/runs/ab/run",
        "/private/qrels/ab/judgements",
        "/data/private/qrels/ab/judgements",
    ]
    ways += [f"/static/{up}private/qrels/ab/judgements" for up in ("../", "..%2f", "%2e%2e/", "..%252f")]
    ways += [f"/static{up}private/qrels/ab/judgements" for up in ("../", "/..;/")]
    accelerated = [
        "/protected/private/qrels/ab/judgements",
        "/protected/store/../private/qrels/ab/judgements",
    ]
    ways += [f"/admin/?accel={way}" for way in accelerated]
    for way in ways:
        answer = visitor.ask(way)
        assert answer.status in (400, 403, 404, 500), (way, answer)
        assert b"judgement 1" not in answer.body, way
        assert b"a run" not in answer.body, way
    for inner in ("/metrics", "/readyz"):
        assert visitor.ask(inner).status == 404


def pieces_outlive_a_broken_connection(visitor: Visitor) -> None:
    """Half of a piece arrives at the site though the connection breaks: the proxy holds nothing back."""
    more = {"Tus_Resumable": "1.0.0", "Authorization": f"Bearer {visitor.token}"}
    made = visitor.ask("/api/v1/uploads/", method="POST", Upload_Length=str(2 * MEGABYTE), Content_Length="0", **more)
    assert made.status == 201, made
    path = made.headers["location"].partition(proxy.HOST)[2] or made.headers["location"]
    connection = visitor.connection()
    connection.putrequest("PATCH", path, skip_host=True)
    headers = {"Host": proxy.HOST, **more, "Upload_Offset": "0", "Content_Length": str(2 * MEGABYTE)}
    for name, value in {**headers, "Content_Type": "application/offset+octet-stream"}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    connection.send(b"x" * MEGABYTE)
    until(lambda: _offset(visitor, path, more) >= MEGABYTE // 2, connection.close)


def _offset(visitor: Visitor, path: str, more: Mapping[str, str]) -> int:
    return int(visitor.ask(path, method="HEAD", **more).headers.get("upload-offset", "0"))


def until(there: Callable[[], bool], first: Callable[[], object]) -> None:
    """Give the proxy a moment, do the first thing, then look for thirty seconds."""
    time.sleep(1)
    first()
    deadline = time.monotonic() + 30
    while not there():
        assert time.monotonic() < deadline, "what had come was lost"
        time.sleep(0.2)


def too_many_are_told_so(visitor: Visitor) -> None:
    """Who asks without pause gets 429 with Retry-After, as a page and as JSON."""
    connection = visitor.connection()
    answer = Answer(0, {}, b"")
    for _ in range(1000):
        connection.request("GET", "/api/v1/none/", headers={"Host": proxy.HOST})
        answer = read(connection)
        if answer.status == 429:
            break
    assert (answer.status, json.loads(answer.body)["code"]) == (429, "throttled"), answer
    assert answer.headers["retry-after"] == "10"
    assert "max-age" in answer.headers["strict-transport-security"]
    page = visitor.ask("/")
    assert page.status == 200 or b"<h1>Too many requests</h1>" in page.body
    time.sleep(3)  # until readers may ask again
    statuses = [visitor.ask("/account/login/", method="POST", Content_Length="0").status for _ in range(80)]
    assert 403 in statuses, statuses  # the site's own refusal of a forgery
    assert statuses[-1] == 429, "who writes without pause was not stopped"


def away_is_said(visitor: Visitor) -> None:
    """A process that is gone: a page that says so, with Retry-After and an id."""
    page = visitor.ask("/admin/")
    assert (page.status, page.headers["retry-after"]) == (502, "10")
    assert b"<h1>Briefly unavailable</h1>" in page.body
    assert "x-request-id" in page.headers


@contextmanager
def the_site(folder: Path, ports: proxy.Ports) -> Iterator[str]:
    """The site with its files collected; gives a token of somebody."""
    state = folder / "state"
    environment = {
        "RUNBOARD_VAR": str(state),
        "ALLOWED_HOSTS": proxy.HOST,
        "SITE_ADDRESS": f"https://{proxy.HOST}",
        "SECRET_KEY": "thrown away with everything else here",
        "HTTPS": "1",
        "BEHIND_PROXY": "1",
        "ACCEL_REDIRECT": "1",
        "EMAIL_URL": "smtp://127.0.0.1",
    }
    for area, text in (("store/runs/ab/run", "a run"), ("private/qrels/ab/judgements", "judgement 1")):
        (state / area).parent.mkdir(parents=True)
        (state / area).write_text(text)
    (state / "incoming").mkdir()
    said = ""
    for words in (["migrate"], ["collectstatic", "--no-input"], ["shell", "-c", PREPARE]):
        done = subprocess.run(
            [sys.executable, "manage.py", *words, "--verbosity=0"],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        said = done.stdout
    gunicorn = [str(Path(sys.executable).with_name("gunicorn")), "--bind", f"127.0.0.1:{ports.web}"]
    options = ["--workers", "2", "--config", GUNICORN_CONFIG, "--threads", "4", "--no-control-socket"]
    process = processes.start([*gunicorn, *options, "leaderboard.wsgi"], folder / "web.log", environment, cwd=ROOT)
    try:
        yield said.split()[-1]
    finally:
        processes.stop(process)


def main() -> None:
    nginx = proxy.find_nginx()
    if nginx is None:
        sys.exit("There is no nginx on PATH: apt-get install --no-install-recommends nginx-light")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runboard-proxy-")))
        folder.chmod(0o755)
        ports = proxy.free_ports()
        trust = ssl.create_default_context(cafile=str(proxy.make_certificate(folder)))
        visitor = Visitor(ports, trust, folder, stack.enter_context(the_site(folder, ports)))
        echo = processes.start(
            [sys.executable, str(ROOT / "tests/docker/echo.py"), str(ports.curation)], folder / "echo.log"
        )
        stack.callback(lambda: echo.poll() is None and processes.stop(echo))
        stack.enter_context(proxy.running(nginx, proxy.write_configuration(folder, folder / "state", ports)))
        deadline = time.monotonic() + 60
        while visitor.ask("/healthz").status == 502 and time.monotonic() < deadline:
            time.sleep(0.5)
        promises = [tls_and_names, other_names_get_no_answer, requests_of_two_lengths_are_refused]
        promises += [
            pages_and_static_files,
            curation_is_another_process,
            limits_are_said,
            the_log_has_no_secrets,
        ]
        promises += [
            the_admin_takes_large_bodies_for_its_imports_alone,
            an_address_sends_few_bodies_at_once,
            all_addresses_together_send_forty,
            a_network_of_ipv6_is_one_sender,
            who_reads_sends_no_body,
        ]
        promises += [files_by_the_proxy, pieces_outlive_a_broken_connection, too_many_are_told_so]
        for promise in promises:
            told(promise, visitor)
        processes.stop(echo)
        told(away_is_said, visitor)


def told(promise: Callable[[Visitor], None], visitor: Visitor) -> None:
    """Keep the promise, and say so."""
    began = time.perf_counter()
    promise(visitor)
    print(f"{time.perf_counter() - began:6.1f} s  {(promise.__doc__ or '').strip()}", flush=True)


if __name__ == "__main__":
    main()
