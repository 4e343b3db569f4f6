"""Client that sends one signed message to a webhook, with time limits, without redirects, and only to the internet.

Webhooks must not reach the network of this site. Names are resolved and checked for each message
(`submissions.core.public_addresses`).
"""

import http.client
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

from submissions.core import public_addresses
from submissions.core.public_addresses import AddressRefused, PinnedConnection

#: Timeout in seconds for connecting and each read, and for the whole exchange after name resolution.
STEP_SECONDS, EXCHANGE_SECONDS = 5.0, 10.0
#: Permitted ports. Signed messages should not reach other services.
PORTS = (443, 8443)
#: Permitted ports on this machine if WEBHOOKS_LOOPBACK is set: unprivileged ones.
LOOPBACK_PORTS = range(1024, 65536)


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
    """Resolve the target's host and return its addresses. Raises AddressRefused if any is not public."""
    is_loopback_target = settings.WEBHOOKS_LOOPBACK and _is_own_machine(target.host)
    accepts = (lambda address: address.is_loopback) if is_loopback_target else public_addresses.is_public
    return public_addresses.resolve(target.host, target.port, accepts)


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
    connection = PinnedConnection(target.host, target.port, address, secure=target.secure, timeout=STEP_SECONDS)
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
