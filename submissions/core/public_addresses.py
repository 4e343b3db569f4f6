"""Checks of public addresses, and connections to them, for requests to hosts that users specify.

Such requests must not reach the network of this site. A name is resolved once, all its addresses are checked, and the
connection uses a checked address, so that a name that resolves differently a moment later has no effect.
"""

import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future

#: Timeout for name resolution in seconds. The system's timeout is 30 seconds and cannot be changed.
RESOLVE_SECONDS = 5.0
#: Message for all refusals after name resolution, so that it does not reveal which internal names exist.
_UNREACHABLE = "The host is unknown, or not on the internet."

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

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefused(ValueError):
    """Refusal of an address. The message states the reason."""


def is_public(address: Address) -> bool:
    """Return whether the address is a public unicast address.

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


def resolve(host: str, port: int, accepts: Callable[[Address], bool]) -> list[str]:
    """Resolve the host and return its addresses.

    Raises AddressRefused if there is none, or if any is not accepted, because the owner of a name could publish a
    public address only for the check.
    """
    addresses = _resolve_host(host, port)
    if not all(accepts(ipaddress.ip_address(text)) for text in addresses):
        raise AddressRefused(_UNREACHABLE)
    return addresses


def _resolve_host(host: str, port: int) -> list[str]:
    """Return the host's IP addresses from the system's resolver.

    Raises AddressRefused if the host is unknown or the resolver needs more than `RESOLVE_SECONDS`. A resolver cannot be
    interrupted, so it runs in a thread that is abandoned if it hangs.
    """
    answer: Future[list[str]] = Future()

    def ask() -> None:
        """Store the host's addresses, or the resolver's error, in `answer`."""
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
            answer.set_result(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True, name="resolving").start()
    try:
        return answer.result(timeout=RESOLVE_SECONDS)
    except (OSError, UnicodeError):  # TimeoutError is an OSError
        raise AddressRefused(_UNREACHABLE) from None


class PinnedConnection(http.client.HTTPConnection):
    """Connection to a fixed address, with TLS verified against the host name."""

    def __init__(self, host: str, port: int, address: str, *, secure: bool, timeout: float) -> None:
        super().__init__(host, port, timeout=timeout)
        self._secure, self._address = secure, address

    def connect(self) -> None:
        """Connect to the checked IP address and, for https, verify the certificate of the host name."""
        self.sock = socket.create_connection((self._address, self.port), timeout=self.timeout)
        if self._secure:
            context = ssl.create_default_context()
            tls = context.wrap_socket(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
            self.sock = tls  # set before the handshake, so that `cut_off` can end it too
            tls.do_handshake()

    def cut_off(self) -> None:
        """Shut down the socket to unblock the thread that uses the connection."""
        sock = self.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # already closed
