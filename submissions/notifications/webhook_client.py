"""Sends one signed message to one address: bounded in time, with no redirect followed, and to the internet alone.

A webhook never leads into the network that this site stands in. A name is resolved when something is sent, every
address it has is judged, and the connection is made to the very address that passed: a name that resolves to something
else a moment later gains nothing.
"""

import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

#: Seconds for connecting and for each wait for an answer, and for everything together once the name is resolved.
PATIENCE, ALTOGETHER = 5.0, 10.0
#: The ports of the internet's https. Others are of services that a signed message should not reach.
PORTS = (443, 8443)
#: How long a name may take to resolve, in seconds: the system's own patience is half a minute, and not ours to set.
RESOLVING = 5.0
#: One text for every answer of the resolver: which names it knows, of the site's own network too, is not told.
_UNREACHABLE = "The host is unknown, or not on the internet."
#: A port of this machine's own, where that is allowed: none that only the system may open.
LOOPBACK_PORTS = range(1024, 65536)

#: Networks with no host of the internet in them, though `is_global` passes all of them or a part: protocol assignments
#: (RFC 6890; a cloud has its metadata in them), relays of old (RFC 7526), another cloud's own address for every virtual
#: machine, documentation (RFC 9637), site-local addresses, and IPv6 addresses that carry an IPv4 address within, to
#: which the system or somebody on the way may translate them.
_NOT_HOSTS = tuple(
    ipaddress.ip_network(each)
    for each in (
        "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "3fff::/20", "fec0::/10", "64:ff9b::/96",
        "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0/96", "::ffff:0:0:0/96",
    )
)  # fmt: skip


class AddressRefused(ValueError):
    """Nothing is sent there; the text says why."""


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """A webhook's address, taken apart. `path` is with its query."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        """The host as HTTP names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def parse_target(url: str) -> WebhookTarget:
    """Return the address taken apart. Raises AddressRefused for one that no webhook may have."""
    if not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
        raise AddressRefused("The address has characters in it that are to be percent-encoded.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressRefused("This is no address. Write https://HOST/PATH.") from None
    host = (parts.hostname or "").rstrip(".")
    if not host or parts.scheme not in ("https", "http"):
        raise AddressRefused("Write https://HOST/PATH.")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise AddressRefused(
            "Leave user, password and fragment out of the address; the signature says who sends."
        )
    secure = parts.scheme == "https"
    if not secure and not (settings.WEBHOOKS_LOOPBACK and _is_own_machine(host)):
        raise AddressRefused("Only https is sent to. Write https://HOST/PATH.")
    port = port or (443 if secure else 80)
    if port not in (LOOPBACK_PORTS if settings.WEBHOOKS_LOOPBACK and _is_own_machine(host) else PORTS):
        raise AddressRefused(f"Port {port} is not sent to: use {' or '.join(str(each) for each in PORTS)}.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookTarget(secure, host, port, path)


def resolve(target: WebhookTarget) -> list[str]:
    """The addresses of the target's host. Raises AddressRefused where one is not on the internet, or none is known.

    One that is not is enough: who controls a name could put the other one there for the check alone.
    """
    addresses = _resolve_host(target)
    own = settings.WEBHOOKS_LOOPBACK and _is_own_machine(target.host)
    for text in addresses:
        address = ipaddress.ip_address(text)
        if not (address.is_loopback if own else is_public(address)):
            raise AddressRefused(_UNREACHABLE)
    return addresses


def _resolve_host(target: WebhookTarget) -> list[str]:
    """Return the addresses as the system knows them, within `RESOLVING` seconds. Raises AddressRefused.

    A resolver cannot be called off: one that hangs is left to itself, in a thread that ends when it does.
    """
    answer: Future[list[str]] = Future()

    def ask() -> None:
        try:
            entries = socket.getaddrinfo(
                target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
            answer.set_result(list(dict.fromkeys(str(each[4][0]) for each in entries)))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True, name="resolving").start()
    try:
        return answer.result(timeout=RESOLVING)
    except (OSError, UnicodeError):  # TimeoutError is an OSError
        raise AddressRefused(_UNREACHABLE) from None


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether the address is one host's on the internet: not private, loopback, link-local, reserved, or many hosts',
    nor an IPv6 address that carries an IPv4 address.
    """
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and getattr(address, "scope_id", None) is None
        and not any(address in network for network in _NOT_HOSTS)
    )


def _is_own_machine(host: str) -> bool:
    return host in ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """What came of an attempt. `text` is ours: nothing that the other side says is repeated but its status number."""

    arrived: bool
    text: str


def post(url: str, body: bytes, headers: Mapping[str, str]) -> DeliveryOutcome:
    """POST the body. An answer of 200 to 299 is an arrival; its content is not read."""
    try:
        target = parse_target(url)
        addresses = resolve(target)
    except AddressRefused as refusal:
        return DeliveryOutcome(False, f"not sent: {refusal}")
    try:
        status = _exchange(target, addresses[0], body, headers)
    except ssl.SSLCertVerificationError:
        return DeliveryOutcome(False, "its certificate is not valid")
    except TimeoutError:
        return DeliveryOutcome(False, f"no answer within {PATIENCE:.0f} s")
    except (OSError, http.client.HTTPException) as error:
        return DeliveryOutcome(False, f"no connection ({type(error).__name__})")
    if 300 <= status < 400:
        return DeliveryOutcome(False, f"answered {status}: redirects are not followed")
    return DeliveryOutcome(200 <= status < 300, f"answered {status}")


def _exchange(target: WebhookTarget, address: str, body: bytes, headers: Mapping[str, str]) -> int:
    """Send the body and read the status. Raises OSError, HTTPException, TimeoutError."""
    connection = _Connection(target, address)
    late = threading.Event()

    def cut_off() -> None:
        late.set()
        connection.cut_off()

    watch = threading.Timer(ALTOGETHER, cut_off)
    watch.daemon = True
    watch.start()
    try:
        connection.putrequest("POST", target.path, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", target.host_header)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.putheader("Connection", "close")
        connection.endheaders(body)
        status = connection.getresponse().status
        if late.is_set():  # what was cut off among its headers reads as if they were complete
            raise TimeoutError
        return status
    except (OSError, http.client.HTTPException) as error:
        if late.is_set():
            raise TimeoutError from error
        raise
    finally:
        watch.cancel()
        connection.close()


class _Connection(http.client.HTTPConnection):
    """A connection to one address, whatever its name resolves to by now; TLS is checked against the name."""

    def __init__(self, target: WebhookTarget, address: str) -> None:
        super().__init__(target.host, target.port, timeout=PATIENCE)
        self._target, self._address = target, address

    def connect(self) -> None:
        """Connect to the address."""
        self.sock = socket.create_connection((self._address, self._target.port), timeout=PATIENCE)
        if self._target.secure:
            context = ssl.create_default_context()
            wrapped = context.wrap_socket(
                self.sock, server_hostname=self._target.host, do_handshake_on_connect=False
            )
            self.sock = wrapped  # before the handshake, which may have to be cut off as well
            wrapped.do_handshake()

    def cut_off(self) -> None:
        """End every wait of the thread that uses it."""
        sock = self.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has ended by itself
