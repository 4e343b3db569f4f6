"""How often one person may send files or change what boards say: one count for the page and the API."""

from collections.abc import Callable
from typing import Any, TypeVar

from django.forms import Form
from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView

from submissions.core.errors import ChangeRefused

Saved = TypeVar("Saved")


class _PersonThrottle(SimpleRateThrottle):
    """Counts by person, or by address for those not signed in, from the first request on for the rate's period.

    The cache counts, in one step: of requests that come at once each is a number of its own.
    """

    #: Of the rate: how many, in how many seconds. The base class reads them of it.
    num_requests: int
    duration: int

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Return whether this one is within the rate; it counts in any case."""
        name = self.get_cache_key(request, view) if self.rate is not None else None
        if name is None:
            return True
        self.now = self.timer()
        self.cache.add(f"{name}_since", self.now, self.duration)
        self.since = float(self.cache.get(f"{name}_since", self.now))
        # A count belongs to its period, so none that is over is added to.
        name = f"{name}_{self.since:.3f}"
        self.cache.add(name, 0, 2 * self.duration)
        try:
            return bool(self.cache.incr(name) <= self.num_requests)
        except ValueError:  # begun by this process alone, while the cache was away: it begins there now
            return True

    def wait(self) -> float:
        """Seconds until the period ends."""
        return max(0.0, self.since + self.duration - self.now)

    def get_cache_key(self, request: Request, view: APIView) -> str | None:
        """Return the name the count is kept under."""
        who = f"user-{request.user.pk}" if request.user.is_authenticated else self.get_ident(request)
        return f"throttle_{self.scope}_{who}"


class CheckThrottle(_PersonThrottle):
    """For reports without a submission."""

    scope = "check"


class SubmitThrottle(_PersonThrottle):
    """For submissions."""

    scope = "submit"


class ChangeThrottle(_PersonThrottle):
    """For showing results or keeping them back, and for what systems and teams say of themselves.

    Each such change is a revision of every board concerned, for good.
    """

    scope = "change"


class InviteThrottle(_PersonThrottle):
    """For mail that the site sends to addresses which somebody names."""

    scope = "invite"


class ChallengeThrottle(_PersonThrottle):
    """For challenges of systems, each of which somebody has to look into."""

    scope = "challenge"


class TokenThrottle(_PersonThrottle):
    """For tokens that are made on the account page."""

    scope = "token"


def throttle_message(seconds: int) -> str:
    """What somebody reads who changed too much in a short time."""
    wait = f"{seconds} second{'s' * (seconds != 1)}" if seconds < 120 else f"{-(-seconds // 60)} minutes"
    return f"That was many changes in a short time. Please wait {wait}, then send this again."


def seconds_to_wait(throttle: _PersonThrottle, request: HttpRequest) -> int:
    """Count a page's request; 0 when it may go on, else after how many seconds the next one may."""
    if throttle.allow_request(request, None):  # type: ignore[arg-type]
        return 0
    wait = max(1, int(throttle.wait() or 1))
    request.retry_after = wait  # type: ignore[attr-defined]  # what the answer's header says
    return wait


class TooManyChanges(ChangeRefused):
    """Somebody changed too much in a short time."""

    status = 429


def enforce_limit(throttle: _PersonThrottle, request: HttpRequest) -> None:
    """Count a page's request. Raises TooManyChanges."""
    if wait := seconds_to_wait(throttle, request):
        raise TooManyChanges(throttle_message(wait))


def save_within_limit(
    form: Form,
    throttle: _PersonThrottle,
    request: HttpRequest,
    save: Callable[[dict[str, Any]], Saved],
    *refusals: type[Exception],
) -> tuple[Saved | None, int]:
    """Save a valid form, unless the person has saved too many. What stands against it is put into the form.

    `refusals` are exceptions of `save` beside ChangeRefused. Returns what `save` returned, and the status of the page.
    """
    shown: tuple[type[Exception], ...] = (ChangeRefused, *refusals)
    if not form.is_valid():
        return None, 400
    try:
        enforce_limit(throttle, request)
        return save(form.cleaned_data), 200
    except shown as error:
        form.add_error(None, str(error))
        return None, getattr(error, "status", 400)
