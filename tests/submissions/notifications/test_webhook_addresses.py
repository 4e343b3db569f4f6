"""Addresses of webhooks, which must be on the internet and never in the network of the site."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from submissions.core import public_addresses
from submissions.models import Delivery, Webhook
from submissions.notifications.webhook_client import AddressRefused, parse_target, post, resolve
from submissions.notifications.webhooks import send_deliveries, send_test
from tests.servers.certificates import certificate_for_localhost
from tests.submissions.receiver import Receiver

pytestmark = pytest.mark.django_db

FOREVER = float("inf")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "ftp://example.org/",
        "https://user:pass@example.org/",
        "https://example.org:22/",
        "https://example.org:6379/",
        "https://example.org/#fragment",
        "https://example.org/a b",
        "https://example.org/\r\nHost: x",
        "https://exämple.org/",
        "https:///path",
        "https://[::1/",
        "http://127.0.0.1:8000/",
        "http://localhost:8000/",
        "javascript:alert(1)",
        "",
    ],
)
def test_such_an_address_is_refused_at_once(url: str) -> None:
    """Also by http on this machine, unless an operator has switched that on."""
    with pytest.raises(AddressRefused):
        parse_target(url)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.3.4",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "192.0.0.170",
        "192.0.0.192",
        "192.88.99.1",
        "168.63.129.16",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:93.184.216.34",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "2001:db8::1",
        "2001:20::1",
        "3fff::1",
        "5f00::1",
    ],
)
def test_a_name_of_such_an_address_is_refused(address: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WEBHOOKS_LOOPBACK = True
    names = {"hook.example.org": ["93.184.216.34", address]}  # one good one does not help
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: resolved(names[host], port))
    with pytest.raises(AddressRefused, match="not on the internet"):
        resolve(parse_target("https://hook.example.org/"))


def resolved(addresses: list[str], port: int) -> list[Any]:
    """Return addresses as `getaddrinfo` does."""
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:7f00:1]"])
def test_ways_to_write_this_machine_lead_nowhere(host: str, settings: Any) -> None:
    settings.WEBHOOKS_LOOPBACK = False
    try:
        target = parse_target(f"https://{host}/")
        found = socket.getaddrinfo(target.host, 443)
    except (AddressRefused, OSError, RuntimeError):
        return
    assert found
    with pytest.raises(AddressRefused):
        resolve(target)


def test_a_name_that_changes_its_address_gains_nothing(
    webhook: Webhook, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is resolved once, and the connection goes to what was judged."""
    asked: list[str] = []
    connected: list[Any] = []

    def rebinding(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return resolved(["93.184.216.34" if len(asked) == 1 else "127.0.0.1"], port)

    def connect(address: Any, **_: Any) -> socket.socket:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(socket, "create_connection", connect)
    Webhook.objects.update(url="https://rebind.example.org/")
    send_test(webhook)
    send_deliveries(FOREVER)
    assert connected == [("93.184.216.34", 443)]
    assert asked == ["rebind.example.org"]
    assert Delivery.objects.get().answer == "no connection (ConnectionRefusedError)"


def test_an_address_that_turned_private_later_is_not_sent_to(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: resolved(["10.0.0.7"], port))
    Webhook.objects.update(url="https://inner.example.org/")
    send_test(webhook)
    send_deliveries(FOREVER)
    assert Delivery.objects.get().answer == "not sent: The host is unknown, or not on the internet."


def test_the_log_does_not_tell_which_inner_names_there_are(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        if host == "postgres.example.org":
            return resolved(["10.0.0.7"], port)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for name in ("postgres", "nobody"):
        Webhook.objects.update(url=f"https://{name}.example.org/")
        send_test(webhook)
        send_deliveries(FOREVER)
    answers = set(Delivery.objects.values_list("answer", flat=True))
    assert answers == {"not sent: The host is unknown, or not on the internet."}


def test_a_name_that_is_not_resolved_in_time_keeps_nobody_waiting(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    waited_in_vain: list[bool] = []

    def hanging(host: str, port: int, **_: Any) -> list[Any]:
        waited_in_vain.append(release.wait(60))
        return resolved(["93.184.216.34"], port)

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    monkeypatch.setattr(public_addresses, "RESOLVE_SECONDS", 0.2)
    Webhook.objects.update(url="https://slow.example.org/")
    send_test(webhook)
    send_deliveries(FOREVER)
    assert waited_in_vain == []
    release.set()
    assert Delivery.objects.get().answer == "not sent: The host is unknown, or not on the internet."


def test_certificates_are_checked_against_the_name(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = certificate_for_localhost(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    receiver.server.socket = context.wrap_socket(receiver.server.socket, server_side=True)
    port = receiver.server.server_address[1]
    assert post(f"https://localhost:{port}/", b"{}", {}).text == "the TLS certificate is not valid"
    trusting = ssl.create_default_context

    def with_ours() -> ssl.SSLContext:
        made = trusting()
        made.load_verify_locations(certificate)
        return made

    monkeypatch.setattr(ssl, "create_default_context", with_ours)
    assert post(f"https://localhost:{port}/", b"{}", {}).text == "answered 204"
    assert post(f"https://127.0.0.1:{port}/", b"{}", {}).text == "the TLS certificate is not valid"  # another name
    assert len(receiver.received) == 1
