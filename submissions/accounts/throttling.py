"""Rate limits per user for uploads and changes, shared by pages and the API."""

from collections.abc import Callable
from typing import Any, TypeVar

from allauth.core.internal.ratelimit import truncate_ip
from django.forms import Form
from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView

from submissions.core.errors import ChangeRefused

Saved = TypeVar("Saved")
#: Maximum number of checks per IP address without an account, per period of the rate for checks.
VISITOR_CHECKS = 10


class _PersonThrottle(SimpleRateThrottle):
    """Throttle per user, or per address for anonymous users, over a period that starts with the first request.

    The cache increments the count atomically, so that concurrent requests get distinct numbers.
    """

    #: Number of requests and period in seconds, parsed from the rate by the base class.
    num_requests: int
    duration: int

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Count the request and return whether it is within the rate.

        Requests are allowed if the cache has lost the count.
        """
        name = self.get_cache_key(request, view) if self.rate is not None else None
        if name is None:
            return True
        self.now = self.timer()
        self.cache.add(f"{name}_since", self.now, self.duration)
        self.since = float(self.cache.get(f"{name}_since", self.now))
        # Each period has its own count, so that requests never add to an old one.
        name = f"{name}_{self.since:.3f}"
        self.cache.add(name, 0, 2 * self.duration)
        try:
            return bool(self.cache.incr(name) <= self.num_requests)
        except ValueError:  # the count was lost while the cache was unavailable; it restarts now
            return True

    def wait(self) -> float:
        return max(0.0, self.since + self.duration - self.now)

    def get_cache_key(self, request: Request, view: APIView) -> str | None:
        is_user = request.user.is_authenticated
        identifier = f"user-{request.user.pk}" if is_user else truncate_ip(self.get_ident(request))
        return f"throttle_{self.scope}_{identifier}"


class CheckThrottle(_PersonThrottle):
    """Rate limit for validations without a submission, which is lower for visitors without an account."""

    scope = "check"

    def allow_request(self, request: Request, view: APIView) -> bool:
        if not request.user.is_authenticated:
            self.num_requests = min(self.num_requests, VISITOR_CHECKS)
        return super().allow_request(request, view)


class SubmitThrottle(_PersonThrottle):
    """Rate limit for submissions."""

    scope = "submit"


class ChangeThrottle(_PersonThrottle):
    """Rate limit for changes to the visibility of results and to the descriptions of systems and teams.

    Each such change adds a permanent revision of every affected board.
    """

    scope = "change"


class InviteThrottle(_PersonThrottle):
    """Rate limit for emails to addresses that users enter."""

    scope = "invite"


class ChallengeThrottle(_PersonThrottle):
    """Rate limit for challenges, each of which a curator has to check."""

    scope = "challenge"


class TokenThrottle(_PersonThrottle):
    """Rate limit for creating tokens on the account page."""

    scope = "token"


def throttle_message(seconds: int) -> str:
    wait = f"{seconds} second{'s' * (seconds != 1)}" if seconds < 120 else f"{-(-seconds // 60)} minutes"
    return f"Too many changes in a short time. Wait {wait}, then try again."


def seconds_to_wait(throttle: _PersonThrottle, request: HttpRequest) -> int:
    """Count a page request and return 0 if it is allowed, otherwise the seconds to wait.

    The response then gets this time as its Retry-After header.
    """
    if throttle.allow_request(request, None):  # type: ignore[arg-type]
        return 0
    wait = max(1, int(throttle.wait() or 1))
    request.retry_after = wait  # type: ignore[attr-defined]  # read by PersonMiddleware
    return wait


class TooManyChanges(ChangeRefused):
    """Refusal because of too many changes in a short time."""

    status = 429


def enforce_limit(throttle: _PersonThrottle, request: HttpRequest) -> None:
    if wait := seconds_to_wait(throttle, request):
        raise TooManyChanges(throttle_message(wait))


def save_within_limit(
    form: Form,
    throttle: _PersonThrottle,
    request: HttpRequest,
    save: Callable[[dict[str, Any]], Saved],
    *refusals: type[Exception],
) -> tuple[Saved | None, int]:
    """Call `save` with the data of a valid form, within the rate limit; add errors to the form.

    `refusals` are exceptions of `save` to show in the form, in addition to ChangeRefused. Returns the result of `save`,
    or None if there are errors, and the status of the page.
    """
    refusal_types: tuple[type[Exception], ...] = (ChangeRefused, *refusals)
    if not form.is_valid():
        return None, 400
    try:
        enforce_limit(throttle, request)
        return save(form.cleaned_data), 200
    except refusal_types as error:
        form.add_error(None, str(error))
        return None, getattr(error, "status", 400)
