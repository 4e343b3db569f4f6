"""What the proxy promises of bodies, which it stores before the site learns who sends them: how large, how many."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO

from tests.docker import proxy
from tests.docker.visiting import Visitor

MEGABYTE = 1024 * 1024
#: Pages of the admin that take files; all of the others are as any page.
IMPORTS = ("/admin/leaderboard/dataset/import/", "/admin/leaderboard/judgementimport/bring/")
#: Announced, and never sent whole.
BODY = 5 * MEGABYTE


def the_admin_takes_large_bodies_for_its_imports_alone(visitor: Visitor) -> None:
    """Below /admin/ a body of 9 MB is refused by its length, but on the two pages that take files."""
    for path in ("/admin/login/", "/admin/leaderboard/dataset/", "/admin/leaderboard/dataset/table/"):
        assert visitor.ask(path, method="POST", Content_Length=str(9 * MEGABYTE)).status == 413, path
    for path in IMPORTS:
        assert visitor.ask(path, method="POST", Content_Length=str(21 * MEGABYTE)).status == 413, path
        with _sending(visitor, [(f"127.0.2.{1 + IMPORTS.index(path)}", "")], path, 9 * MEGABYTE) as answers:
            # One that comes after them and is refused: by then they would have been.
            late = visitor.ask("/admin/login/", method="POST", Content_Length=str(9 * MEGABYTE))
            assert late.status == 413
            assert answers() == [], f"{path} refuses what it should take"


def an_address_sends_few_bodies_at_once(visitor: Visitor) -> None:
    """Of 45 bodies that one address sends at once to a page that takes files, four are read; it still opens forms."""
    for number, path in enumerate((*IMPORTS, "/submit/", "/api/v1/check/"), 1):
        with _sending(visitor, [(f"127.0.3.{number}", "")] * 45, path) as answers:
            _until(lambda answers=answers: len(answers()) == 41, path)  # type: ignore[misc]
            assert set(answers()) == {429}, path
            _pages_are_read(visitor, f"127.0.3.{number}")


def all_addresses_together_send_forty(visitor: Visitor) -> None:
    """Of 60 bodies of 15 addresses, 40 are read, and pages go on meanwhile."""
    senders = [(f"127.0.4.{number // 4 + 1}", "") for number in range(60)]
    with _sending(visitor, senders, "/submit/") as answers:
        _until(lambda: len(answers()) == 20, "bodies of many addresses")
        assert set(answers()) == {429}
        _pages_are_read(visitor, "127.0.4.100")


def _pages_are_read(visitor: Visitor, address: str) -> None:
    """Those too to which files are sent: the site, not the proxy, says what this visitor may see of them."""
    for path in ("/", "/submit/", "/submit/model/", "/api/v1/submissions/", "/admin/", *IMPORTS):
        status = visitor.ask(path, address=address).status
        assert status in (200, 302, 401, 403, 405), (path, status)


def who_reads_sends_no_body(visitor: Visitor) -> None:
    """By HTTP/2 a body may come with no length announced: with a request to read, none is taken."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    for path in ("/", "/submit/", "/admin/", *IMPORTS):
        with (
            socket.create_connection(("127.0.0.1", visitor.ports.https), 60) as plain,
            context.wrap_socket(plain, server_hostname=proxy.HOST) as connection,
        ):
            # GET, https, the path and the name, by their numbers in HPACK's table; not the end of the stream.
            named = b"".join(
                bytes([number, len(text)]) + text.encode() for number, text in ((4, path), (1, proxy.HOST))
            )
            connection.sendall(
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                + _frame(_SETTINGS, 0, 0, b"")
                + _frame(_HEADERS, _END_HEADERS, 1, b"\x82\x87" + named)
                + _frame(_DATA, 0, 1, b"x" * 1000)
            )
            with connection.makefile("rb") as answer:
                kind, block = _next_frame(answer)
                while kind != _HEADERS:
                    kind, block = _next_frame(answer)
        assert b"413" in block[:8], (path, block)


_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_HEADERS = 4


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """One of HTTP/2."""
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def _next_frame(answer: BinaryIO) -> tuple[int, bytes]:
    """Its kind and content; the answer is over where there is none."""
    head = answer.read(9)
    assert len(head) == 9, "the connection was closed without an answer"
    return head[3], answer.read(int.from_bytes(head[:3], "big"))


def a_network_of_ipv6_is_one_sender(visitor: Visitor) -> None:
    """Eight addresses of one /64 send four bodies at once together; a neighbouring network sends its own."""
    one = [("127.0.5.1", f"2001:db8:1:2:{number}::{number}") for number in range(1, 9)]
    other = [("127.0.5.1", f"2001:db8:1:3::{number}") for number in range(1, 5)]
    with _sending(visitor, one + other, "/submit/") as answers:
        _until(lambda: len(answers()) == 4, "bodies of one network")
        assert answers() == [429] * 4


@contextmanager
def _sending(
    visitor: Visitor, senders: list[tuple[str, str]], path: str, length: int = BODY
) -> Iterator[Callable[[], list[int]]]:
    """Each sender, an address and what it stands for, begins a body; gives the statuses that came so far."""
    found: dict[socket.socket, int] = {}
    with ExitStack() as stack:
        connections: list[ssl.SSLSocket] = []
        for address, stands_for in senders:
            plain = socket.create_connection(("127.0.0.1", visitor.ports.https), 60, source_address=(address, 0))
            connection = stack.enter_context(visitor.trust.wrap_socket(plain, server_hostname=proxy.HOST))
            said = f"{proxy.STANDS_FOR}: {stands_for}\r\n" if stands_for else ""
            head = f"POST {path} HTTP/1.1\r\nHost: {proxy.HOST}\r\n{said}Content-Length: {length}\r\n\r\n"
            connection.sendall(head.encode() + b"x" * 1000)
            connections.append(connection)

        def answers() -> list[int]:
            waiting = [each for each in connections if each not in found]
            for each in select.select(waiting, [], [], 0.1)[0]:
                each.settimeout(0.2)
                try:
                    line = each.recv(64)
                except TimeoutError:  # a session's ticket, not an answer
                    continue
                found[each] = int(line.split()[1])
            return list(found.values())

        yield answers
        _end(connections)


def _end(connections: list[ssl.SSLSocket]) -> None:
    """Send no more, and wait until the proxy has let go of each: none counts among those of the next promise."""
    for each in connections:
        each.shutdown(socket.SHUT_WR)
    for each in connections:
        each.settimeout(30)
        with suppress(ConnectionResetError):
            while each.recv(65536):
                pass


def _until(there: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not there():
        assert time.monotonic() < deadline, f"{what}: not as many were refused as should be"
    time.sleep(1)
    assert there(), f"{what}: more were refused than should be"
