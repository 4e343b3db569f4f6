"""Where a webhook may lead: to the internet, never into the network that this site stands in.

A name is resolved when something is sent, every address it has is judged, and the connection is made to the very
address that passed: a name that resolves to something else a moment later gains nothing.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

#: The ports of the internet's https. Others are of services that a signed message should not reach.
PORTS = (443, 8443)
#: How long a name may take to resolve, in seconds: the system's own patience is half a minute, and not ours to set.
RESOLVING = 5.0
#: One text for every answer of the resolver: which names it knows, of the site's own network too, is not told.
_UNREACHABLE = "The host is unknown, or not on the internet."
#: A port of this machine's own, where that is allowed: none that only the system may open.
LOOPBACK_PORTS = range(1024, 65536)

#: What `is_global` passes, all of it or a part, though no host of the internet is there: protocol assignments
#: (RFC 6890; a cloud has its metadata in them), relays of old (RFC 7526), another cloud's own address for every virtual
#: machine, and documentation (RFC 9637).
_NOT_HOSTS = tuple(
    ipaddress.ip_network(each) for each in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "3fff::/20")
)

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

#: IPv6 addresses that carry an IPv4 address within, to which somebody on the way may translate them.
_CARRIERS = tuple(
    ipaddress.ip_network(each)
    for each in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0:0/96")
)


class AddressRefused(ValueError):
    """Nothing is sent there; the text says why."""


@dataclass(frozen=True, slots=True)
class Target:
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


def target_of(url: str) -> Target:
    """The address taken apart. Raises AddressRefused for one that no webhook may have."""
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
    return Target(secure, host, port, path)


def resolve(target: Target) -> list[str]:
    """The addresses of the target's host. Raises AddressRefused where one is not on the internet, or none is known.

    One that is not is enough: who controls a name could put the other one there for the check alone.
    """
    addresses = _look_up(target)
    own = settings.WEBHOOKS_LOOPBACK and _is_own_machine(target.host)
    for text in addresses:
        address = ipaddress.ip_address(text)
        if not (address.is_loopback if own else is_public(address)):
            raise AddressRefused(_UNREACHABLE)
    return addresses


def _look_up(target: Target) -> list[str]:
    """The addresses as the system knows them, within `RESOLVING` seconds. Raises AddressRefused.

    A resolver cannot be called off: one that hangs is left to itself, in a thread that ends when it does.
    """
    answer: Future[list[str]] = Future()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(
                target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
            answer.set_result(list(dict.fromkeys(str(each[4][0]) for each in found)))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True, name="resolving").start()
    try:
        return answer.result(timeout=RESOLVING)
    except TimeoutError:
        raise AddressRefused(_UNREACHABLE) from None
    except (OSError, UnicodeError):
        raise AddressRefused(_UNREACHABLE) from None


def is_public(address: IPAddress) -> bool:
    """Whether the address is one host's on the internet: not private, loopback, link-local, reserved, or many hosts'.

    Of an IPv6 address that carries an IPv4 address, none passes: not those in `::ffff:0:0/96` either, which the
    system would connect to as IPv4.
    """
    if isinstance(address, ipaddress.IPv6Address) and (
        address.ipv4_mapped is not None
        or address.scope_id is not None
        or address.is_site_local
        or any(address in network for network in _CARRIERS)
    ):
        return False
    if any(address in network for network in _NOT_HOSTS):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _is_own_machine(host: str) -> bool:
    return host in ("localhost", "127.0.0.1", "::1")
