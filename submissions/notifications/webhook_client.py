"""Client that sends one signed message to a webhook, with time limits, without redirects, and only to the internet.

Webhooks must not reach the network of this site. Names are resolved for each message, all their addresses are checked,
and the connection uses a checked address, so that a name that resolves differently a moment later has no effect.
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

#: Timeout in seconds for connecting and each read, and for the whole exchange after name resolution.
STEP_SECONDS, EXCHANGE_SECONDS = 5.0, 10.0
#: Permitted ports. Signed messages should not reach other services.
PORTS = (443, 8443)
#: Timeout for name resolution in seconds; that of the system is half a minute and cannot be set.
RESOLVE_SECONDS = 5.0
#: Same text for all results of name resolution, so that it does not reveal which internal names exist.
_UNREACHABLE = "The host is unknown, or not on the internet."
#: Permitted ports on this machine if WEBHOOKS_LOOPBACK is set: unprivileged ones.
LOOPBACK_PORTS = range(1024, 65536)

#: Networks without internet hosts that `is_global` accepts at least partly: protocol assignments (RFC 6890,
#: including cloud metadata), deprecated relays (RFC 7526), a cloud's host address for virtual machines, documentation
#: (RFC 9637), site-local addresses, and IPv6 addresses with an embedded IPv4 address, which the system or a router
#: may translate.
_NOT_HOSTS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "3fff::/20", "fec0::/10", "64:ff9b::/96",
        "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0/96", "::ffff:0:0:0/96",
    )
)  # fmt: skip


class AddressRefused(ValueError):
    """Refusal of a webhook's address. The message states the reason."""


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """Parsed address of a webhook. `path` includes the query string."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def parse_target(url: str) -> WebhookTarget:
    """Parse a webhook's URL. Raises AddressRefused if it is malformed or not allowed.

    Webhooks need https, one of `PORTS`, and no user, password, or fragment. With WEBHOOKS_LOOPBACK, http and
    unprivileged ports on this machine are allowed as well.
    """
    if not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
        raise AddressRefused("The address contains characters that must be percent-encoded.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressRefused("This is not a valid address. Write https://HOST/PATH.") from None
    host = (parts.hostname or "").rstrip(".")
    if not host or parts.scheme not in ("https", "http"):
        raise AddressRefused("Write https://HOST/PATH.")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise AddressRefused(
            "Remove user, password, and fragment from the address. Receivers verify the signature instead."
        )
    secure = parts.scheme == "https"
    if not secure and not (settings.WEBHOOKS_LOOPBACK and _is_own_machine(host)):
        raise AddressRefused("Webhooks require https. Write https://HOST/PATH.")
    port = port or (443 if secure else 80)
    if port not in (LOOPBACK_PORTS if settings.WEBHOOKS_LOOPBACK and _is_own_machine(host) else PORTS):
        raise AddressRefused(f"Port {port} is not allowed. Use {' or '.join(str(number) for number in PORTS)}.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookTarget(secure, host, port, path)


def resolve(target: WebhookTarget) -> list[str]:
    """Resolve the target's host and return its addresses.

    Raises AddressRefused if there is none, or if any is not on the internet, because the owner of a name could publish
    a public address only for the check.
    """
    addresses = _resolve_host(target)
    is_loopback_target = settings.WEBHOOKS_LOOPBACK and _is_own_machine(target.host)
    for text in addresses:
        address = ipaddress.ip_address(text)
        if not (address.is_loopback if is_loopback_target else is_public(address)):
            raise AddressRefused(_UNREACHABLE)
    return addresses


def _resolve_host(target: WebhookTarget) -> list[str]:
    """Return the host's IP addresses from the system's resolver.

    Raises AddressRefused if the host is unknown or the resolver needs more than `RESOLVE_SECONDS`. A resolver cannot be
    interrupted, so it runs in a thread that is abandoned if it hangs.
    """
    answer: Future[list[str]] = Future()

    def ask() -> None:
        """Store the host's addresses, or the resolver's error, in `answer`."""
        try:
            entries = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
            answer.set_result(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True, name="resolving").start()
    try:
        return answer.result(timeout=RESOLVE_SECONDS)
    except (OSError, UnicodeError):  # TimeoutError is an OSError
        raise AddressRefused(_UNREACHABLE) from None


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether the address belongs to a single host on the internet.

    Private, loopback, link-local, reserved, and multicast addresses are not public, nor are IPv6 addresses with an
    embedded IPv4 address.
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
    """Outcome of a delivery attempt.

    `text` describes it. The only part of the response that it contains is the status code.
    """

    arrived: bool
    text: str


def post(url: str, body: bytes, headers: Mapping[str, str]) -> DeliveryOutcome:
    """Send the body by POST to a webhook and return the outcome, which describes errors instead of raising them.

    Status 200 to 299 means success. Redirects are not followed, and the response body is not read.
    """
    try:
        target = parse_target(url)
        addresses = resolve(target)
    except AddressRefused as refusal:
        return DeliveryOutcome(False, f"not sent: {refusal}")
    try:
        status = _exchange(target, addresses[0], body, headers)
    except ssl.SSLCertVerificationError:
        return DeliveryOutcome(False, "the TLS certificate is not valid")
    except TimeoutError:
        return DeliveryOutcome(False, f"no response within {STEP_SECONDS:.0f} s")
    except (OSError, http.client.HTTPException) as error:
        return DeliveryOutcome(False, f"no connection ({type(error).__name__})")
    if 300 <= status < 400:
        return DeliveryOutcome(False, f"answered {status}: redirects are not followed")
    return DeliveryOutcome(200 <= status < 300, f"answered {status}")


def _exchange(target: WebhookTarget, address: str, body: bytes, headers: Mapping[str, str]) -> int:
    """Send the body to the IP address and return the response's status.

    Raises TimeoutError after `EXCHANGE_SECONDS`, and OSError or HTTPException for other errors.
    """
    connection = _Connection(target, address)
    has_timed_out = threading.Event()

    def cut_off() -> None:
        has_timed_out.set()
        connection.cut_off()

    timer = threading.Timer(EXCHANGE_SECONDS, cut_off)
    timer.daemon = True
    timer.start()
    try:
        connection.putrequest("POST", target.path, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", target.host_header)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.putheader("Connection", "close")
        connection.endheaders(body)
        status = connection.getresponse().status
        if has_timed_out.is_set():  # headers that were cut off look complete
            raise TimeoutError
        return status
    except (OSError, http.client.HTTPException) as error:
        if has_timed_out.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
        connection.close()


class _Connection(http.client.HTTPConnection):
    """Connection to a fixed address, with TLS verified against the host name."""

    def __init__(self, target: WebhookTarget, address: str) -> None:
        super().__init__(target.host, target.port, timeout=STEP_SECONDS)
        self._target, self._address = target, address

    def connect(self) -> None:
        """Connect to the checked IP address and, for https, verify the certificate of the host name."""
        self.sock = socket.create_connection((self._address, self._target.port), timeout=STEP_SECONDS)
        if self._target.secure:
            context = ssl.create_default_context()
            tls = context.wrap_socket(self.sock, server_hostname=self._target.host, do_handshake_on_connect=False)
            self.sock = tls  # set before the handshake, so that `cut_off` can end it too
            tls.do_handshake()

    def cut_off(self) -> None:
        """Shut down the socket, which interrupts all waits of the thread that uses the connection."""
        sock = self.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # already closed
