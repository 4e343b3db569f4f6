"""Declaration of query parameters: requests with any parameter that the view does not declare are rejected.

Views without a declaration accept none. Parameters of the admin and of allauth are not checked.
"""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, QueryDict
from django.shortcuts import render

from leaderboard.core.http.api_errors import unknown_choice
from leaderboard.core.http.choices import FORM_LABELS, UnknownChoice, UnknownParameter
from leaderboard.core.http.middleware import Middleware

#: Parameters that mail programs and social networks append to links.
TRACKING_PARAMETERS = {
    "utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content", "utm_id", "utm_source_platform",
    "fbclid", "gclid", "gbraid", "wbraid", "gad_source", "msclkid", "yclid", "twclid", "ttclid", "li_fat_id",
    "mc_cid", "mc_eid", "igshid", "_ga", "_gl", "ref", "si",
}  # fmt: skip
#: The packages with views that declare their parameters.
_CHECKED_PACKAGES = ("leaderboard.", "submissions.")

#: Maximum length of `name=value` in the label of the link that removes it. Longer ones are named without the value.
_MAX_LABEL_LENGTH = 40

V = TypeVar("V")
Names = Callable[..., Iterable[str]]


def reads(*names: str | Names) -> Callable[[V], V]:
    """Declare the query parameters that a view reads.

    Args:
        names: Names, patterns such as `min-*`, or functions that return them for the view's keyword arguments.
    """

    def declare(view: V) -> V:
        view.query_parameters = names  # type: ignore[attr-defined]
        return view

    return declare


def declared_parameters(view: Callable[..., Any], options: Mapping[str, Any]) -> list[str]:
    """Return the names and patterns that a view reads, given the keyword arguments of its URL."""
    declared = getattr(view, "query_parameters", None)
    if declared is None:  # An API view: its class has created the function.
        declared = getattr(getattr(view, "cls", None), "query_parameters", ())
    return [name for item in declared or () for name in ((item,) if isinstance(item, str) else item(**options))]


class QueryParametersMiddleware(Middleware):
    """Middleware that returns 400 for unknown query parameters and unknown values."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], arguments: Any, options: Mapping[str, Any]
    ) -> HttpResponseBase | None:
        """Return 400 if the request has a query parameter that the view does not declare, else None.

        Only GET and HEAD requests of the site's own views are checked. Tracking parameters are accepted.
        """
        namespace = request.resolver_match.namespace if request.resolver_match else ""
        is_own = namespace != "admin" and view.__module__.startswith(_CHECKED_PACKAGES)
        if not request.GET or request.method not in ("GET", "HEAD") or not is_own:
            return None
        declared_names = declared_parameters(view, options)
        for name in request.GET:
            if name not in TRACKING_PARAMETERS and not any(fnmatchcase(name, pattern) for pattern in declared_names):
                return _refusal(request, UnknownParameter(name, declared_names))
        return None

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Reject values that the view does not know."""
        return _refusal(request, error) if isinstance(error, UnknownChoice) else None


def _refusal(request: HttpRequest, error: UnknownChoice) -> HttpResponse:
    """Return 400 with the valid choices, in the format of the URL."""
    response: HttpResponse
    if request.path.startswith("/api/") or request.path.endswith(".json"):
        response = JsonResponse(unknown_choice(error).body, status=400)
    elif not request.path.endswith("/"):
        response = HttpResponse(f"{error}\n", content_type="text/plain; charset=utf-8", status=400)
    else:
        labels = FORM_LABELS if isinstance(error, UnknownParameter) else {}
        links = [(name, labels.get(name, name), _corrected_url(request, error, name)) for name in error.choices]
        unknown_name = error.value if isinstance(error, UnknownParameter) else error.parameter
        rest = request.GET.copy()
        label = "=".join((unknown_name, *rest.pop(unknown_name, [])))  # longer if the parameter is repeated
        context = {
            "error": error,
            "near": [link[1:] for link in links if link[0] in error.near],
            "links": [link[1:] for link in links if link[0] not in error.near],
            "unknown": label if len(label) <= _MAX_LABEL_LENGTH and label.count("=") == 1 else unknown_name,
            "rest": _address(request, rest),
        }
        response = render(request, "leaderboard/unknown_choice.html", context, status=400)
    response.headers["Cache-Control"] = "private, no-cache"
    return response


def _corrected_url(request: HttpRequest, error: UnknownChoice, choice: str) -> str:
    """Return the URL with a choice in place of the unknown one; empty if it cannot be built."""
    query = request.GET.copy()
    if isinstance(error, UnknownParameter):
        if "*" in choice:
            return ""
        query.setlist(choice, [*query.getlist(choice), *query.pop(error.value)])
    elif error.parameter not in query:
        return ""
    else:
        values = query.getlist(error.parameter)
        query.setlist(error.parameter, [choice if value == error.value else value for value in values])
    return _address(request, query)


def _address(request: HttpRequest, query: QueryDict) -> str:
    return request.path + (f"?{query.urlencode(safe='@(),:')}" if query else "")
