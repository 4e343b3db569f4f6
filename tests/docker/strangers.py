"""What the proxy promises of those who do not mean well: other names, ambiguous requests, and logs without secrets."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from contextlib import closing

from tests.docker import proxy
from tests.docker.visiting import Visitor

#: Headers by which two readers would find different ends of one request.
AMBIGUOUS = (
    [("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
    [("Content-Length", "5"), ("Content-Length", "6")],
    [("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "identity")],
    [("Content-Length", "+5")],
)


def other_names_get_no_answer(visitor: Visitor) -> None:
    """Another name gets no certificate and no answer, and is sent nowhere."""
    for ask in (
        lambda: visitor.ask("/", host="elsewhere.example.org"),
        lambda: _plainly(visitor, "elsewhere.example.org"),
    ):
        try:
            answer = ask()
        except (http.client.RemoteDisconnected, ConnectionResetError):
            continue
        raise AssertionError(f"another name was answered: {answer}")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", visitor.ports.https)) as plain:
        try:
            context.wrap_socket(plain, server_hostname="elsewhere.example.org").close()
        except ssl.SSLError as error:
            said = str(error).upper()
        else:
            said = "the certificate was shown"
    assert "UNRECOGNIZED_NAME" in said, said


def requests_of_two_lengths_are_refused(visitor: Visitor) -> None:
    """A request whose length is ambiguous is refused by the proxy, and by the site's own server too."""
    for headers in AMBIGUOUS:
        inside = http.client.HTTPConnection("127.0.0.1", visitor.ports.web, timeout=30)
        for connection in (visitor.connection(), inside):
            connection.putrequest("POST", "/account/login/", skip_host=True)
            for name, value in [("Host", proxy.HOST), *headers]:
                connection.putheader(name, value)
            connection.endheaders(b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")
            with closing(connection):
                assert connection.getresponse().status in (400, 501), (headers, connection)


def _plainly(visitor: Visitor, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", visitor.ports.http, timeout=10)
    connection.request("GET", "/", headers={"Host": host})
    return connection.getresponse().status


def the_log_has_no_secrets(visitor: Visitor) -> None:
    """What is written of a request: the first word of its address, no key, no question, no page it came from."""
    for path in ("/invitations/SECRET/", "/account/password/reset/key/1-SECRET/", "/datasets/?q=SECRET"):
        visitor.ask(path, Referer=f"https://{proxy.HOST}/invitations/SECRET/")
    lines = [json.loads(line) for line in (visitor.folder / "access.log").read_text().splitlines()]
    assert {"/invitations", "/account", "/datasets"} <= {line["area"] for line in lines}
    assert all(re.fullmatch("[0-9a-f]{32}", line["request_id"]) for line in lines)
    for log in visitor.folder.glob("*.log"):
        assert "SECRET" not in log.read_text(), log.name
