"""How often one person may send files: one count for the page and the API."""

from __future__ import annotations

from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView


class _PersonThrottle(SimpleRateThrottle):
    """Counts by person, or by address for those not signed in."""

    def get_cache_key(self, request: Request, view: APIView) -> str | None:
        """The name the count is kept under."""
        who = f"user-{request.user.pk}" if request.user.is_authenticated else self.get_ident(request)
        return f"throttle_{self.scope}_{who}"


class CheckThrottle(_PersonThrottle):
    """For reports without a submission."""

    scope = "check"


class SubmitThrottle(_PersonThrottle):
    """For submissions."""

    scope = "submit"


def seconds_to_wait(throttle: _PersonThrottle, request: HttpRequest) -> int:
    """Count a page's request; 0 when it may go on, else after how many seconds the next one may."""
    if throttle.allow_request(request, None):  # type: ignore[arg-type]
        return 0
    return max(1, int(throttle.wait() or 1))
