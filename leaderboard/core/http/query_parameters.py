"""Declaration of query parameters: requests with any parameter that the view does not declare are rejected.

Views without a declaration accept none. Parameters of the admin and of allauth are not checked.
"""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, QueryDict
from django.shortcuts import render

from leaderboard.core.http.api_errors import unknown_choice
from leaderboard.core.http.choices import UnknownChoice, UnknownParameter
from leaderboard.core.http.middleware import Middleware

#: Parameters that mail programs and social networks append to links.
TRACKING_PARAMETERS = {
    "utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content", "utm_id", "utm_source_platform",
    "fbclid", "gclid", "gbraid", "wbraid", "gad_source", "msclkid", "yclid", "twclid", "ttclid", "li_fat_id",
    "mc_cid", "mc_eid", "igshid", "_ga", "_gl", "ref", "si",
}  # fmt: skip
#: Number of unknown parameters that an error names.
MAX_UNKNOWN = 10
#: The packages with views that declare their parameters.
_CHECKED_PACKAGES = ("leaderboard.", "submissions.")

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
    # The function of an API view is created by its class.
    declared = getattr(view, "query_parameters", getattr(getattr(view, "cls", None), "query_parameters", ()))
    return [name for item in declared for name in ((item,) if isinstance(item, str) else item(**options))]


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
        patterns = [*TRACKING_PARAMETERS, *declared_names]
        unknown_names = [name for name in request.GET if not any(fnmatchcase(name, pattern) for pattern in patterns)]
        errors = [UnknownParameter(name, declared_names) for name in unknown_names[:MAX_UNKNOWN]]
        return _refusal(request, *errors) if errors else None

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Reject values that the view does not know."""
        return _refusal(request, error) if isinstance(error, UnknownChoice) else None


def _refusal(request: HttpRequest, *errors: UnknownChoice) -> HttpResponse:
    """Return 400 with all errors and the valid choices, in the format of the URL."""
    if request.path.endswith("/") and not request.path.startswith("/api/"):
        rest, are_parameters = request.GET.copy(), isinstance(errors[0], UnknownParameter)
        names = [error.value if are_parameters else error.parameter for error in errors]
        if not [name for name in names if rest.pop(name, None)]:
            rest.clear()  # A parameter of another name has caused the error.
        other_choices = [choice for choice in errors[0].choices if choice not in errors[0].near]
        context = {
            "errors": [(error, _links(request, error, error.near, rest)) for error in errors],
            "are_parameters": are_parameters,
            "links": _links(request, errors[0], other_choices, rest),
            "rest": _address(request, rest),
            "keeps_choices": not rest.keys() <= TRACKING_PARAMETERS,
        }
        response = render(request, "leaderboard/unknown_choice.html", context, status=400)
    elif request.path.startswith("/api/") or request.path.endswith(".json"):
        response = JsonResponse(unknown_choice(*errors).body, status=400)
    else:
        text = unknown_choice(*errors).detail
        response = HttpResponse(f"{text}\n", content_type="text/plain; charset=utf-8", status=400)
    response.headers["Cache-Control"] = "private, no-cache"
    return response


def _links(
    request: HttpRequest, error: UnknownChoice, choices: Iterable[str], rest: QueryDict
) -> list[tuple[str, str]]:
    """Return each choice with the URL that uses it instead of the unknown one; empty if there is no such URL."""
    links = []
    for choice in choices:
        if isinstance(error, UnknownParameter):
            name, values = choice, [*rest.getlist(choice), *request.GET.getlist(error.value)]
        else:
            name, entered_values = error.parameter, request.GET.getlist(error.parameter)
            values = [choice if value == error.value else value for value in entered_values]
        query = rest.copy()
        query.setlist(name, values)
        links.append((choice, _address(request, query) if values and "*" not in name else ""))
    return links


def _address(request: HttpRequest, query: QueryDict) -> str:
    return request.path + (f"?{query.urlencode(safe='@(),:')}" if query else "")
