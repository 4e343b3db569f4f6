"""No test talks to another machine."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit


class OutsideConnection(RuntimeError):
    """A test tried to reach another machine. Not an OSError, so that no retry or fallback hides it."""


def allow_loopback_only(servers: Iterable[str]) -> None:
    """Refuse every connection of this process but those to this machine and to the hosts of `servers` (URLs)."""
    named = {urlsplit(url).hostname for url in servers if url} - {None}
    resolve, connect, connect_ex = socket.getaddrinfo, socket.socket.connect, socket.socket.connect_ex
    allowed = {"localhost", *named}

    def check(host: Any) -> None:
        text = host.decode() if isinstance(host, bytes) else host
        if not text or text in allowed or _is_loopback(text):
            return
        raise OutsideConnection(f"tests may connect to this machine only, not to {text}")

    def guarded_resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        check(host)
        found = resolve(host, *args, **kwargs)
        if host in named:
            allowed.update(str(entry[4][0]) for entry in found)
        return found

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            check(address[0])
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            check(address[0])
        return connect_ex(self, address)

    socket.getaddrinfo = guarded_resolve
    socket.socket.connect = guarded_connect  # type: ignore[assignment, method-assign]
    socket.socket.connect_ex = guarded_connect_ex  # type: ignore[assignment, method-assign]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
