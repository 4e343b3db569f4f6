"""Asking the site through the proxy."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docker import proxy


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks, through the proxy."""

    ports: proxy.Ports
    trust: ssl.SSLContext
    folder: Path
    token: str = ""

    def connection(self, address: str = "127.0.0.1") -> http.client.HTTPSConnection:
        """A connection of their own, from the address; the certificate is checked for the site's name."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.ports.https, timeout=60)
        plain = socket.create_connection(("127.0.0.1", self.ports.https), 60, source_address=(address, 0))
        connection.sock = self.trust.wrap_socket(plain, server_hostname=proxy.HOST)
        return connection

    def ask(
        self,
        path: str,
        host: str = proxy.HOST,
        method: str = "GET",
        address: str = "127.0.0.1",
        **more: str,
    ) -> Answer:
        """One request without a body; `more` are headers, an announced length among them."""
        connection = self.connection(address)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": host, **more}.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            return read(connection)
        finally:
            connection.close()


def read(connection: http.client.HTTPSConnection) -> Answer:
    """The answer on a connection."""
    response = connection.getresponse()
    return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
