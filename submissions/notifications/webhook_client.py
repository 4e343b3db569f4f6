"""One signed message to one address: bounded in time, to the address that was checked, with no redirect followed."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from submissions.notifications.addresses import AddressRefused, Target, resolve, target_of

#: Seconds for connecting and for each wait for an answer, and for everything together once the name is resolved.
PATIENCE, ALTOGETHER = 5.0, 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an attempt. `text` is ours: nothing that the other side says is repeated but its status number."""

    arrived: bool
    text: str


def post(url: str, body: bytes, headers: Mapping[str, str]) -> Outcome:
    """POST the body. An answer of 200 to 299 is an arrival; its content is not read."""
    try:
        target = target_of(url)
        addresses = resolve(target)
    except AddressRefused as refusal:
        return Outcome(False, f"not sent: {refusal}")
    try:
        status = _exchange(target, addresses[0], body, headers)
    except ssl.SSLCertVerificationError:
        return Outcome(False, "its certificate is not valid")
    except TimeoutError:
        return Outcome(False, f"no answer within {PATIENCE:.0f} s")
    except (OSError, http.client.HTTPException) as error:
        return Outcome(False, f"no connection ({type(error).__name__})")
    if 300 <= status < 400:
        return Outcome(False, f"answered {status}: redirects are not followed")
    return Outcome(200 <= status < 300, f"answered {status}")


def _exchange(target: Target, address: str, body: bytes, headers: Mapping[str, str]) -> int:
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

    def __init__(self, target: Target, address: str) -> None:
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
