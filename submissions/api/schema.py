"""The schema of a call, with the scope that a token needs for it, and how a token is sent."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiResponse, extend_schema

from leaderboard.core.http.api_errors import ErrorSerializer


def call(
    tag: str,
    summary: str,
    answers: Mapping[int, Any],
    *codes: int,
    remarks: Mapping[int, str] | None = None,
    **options: Any,
) -> Any:
    """Return the schema of a call.

    Args:
        tag: the group of calls.
        summary: the title.
        answers: the successful answers by status.
        codes: the statuses of errors.
        remarks: descriptions of further errors by status.
        options: other arguments of `extend_schema`.
    """
    described = {code: OpenApiResponse(ErrorSerializer, text) for code, text in (remarks or {}).items()}
    responses = {**answers, **dict.fromkeys(codes, ErrorSerializer), **described}
    return extend_schema(tags=[tag], summary=summary, responses=dict(sorted(responses.items())), **options)


class TokenScheme(OpenApiAuthenticationExtension):
    """`Authorization: Bearer <token>`, with a token from the account page."""

    target_class = "submissions.accounts.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the scheme as OpenAPI describes it."""
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A token from the account page, or from `manage.py api_token EMAIL`.",
        }


class ScopedSchema(AutoSchema):
    """drf-spectacular's description of a call, and what a token needs."""

    def map_parsers(self) -> list[str]:
        """JSON alone, of all that is taken: programs made from the schema then have one way to send a call.

        Calls that take files name their own type.
        """
        return ["application/json"]

    def get_description(self) -> str:  # type: ignore[override]  # drf-spectacular's own signature
        """Return the description of the call, with the scope that it needs."""
        said = super().get_description() or ""
        scope = self._scope()
        return f"{said}\n\nA token needs the scope `{scope}`.".strip() if scope else said

    def get_extensions(self) -> dict[str, Any]:
        """Return the scope for programs, as `x-required-scope`."""
        found: dict[str, Any] = dict(super().get_extensions())
        return {**found, "x-required-scope": scope} if (scope := self._scope()) else found

    def _scope(self) -> str:
        declared = getattr(self.view, "required_scope", None)
        if isinstance(declared, Mapping):
            declared = declared.get(self.method.upper())
        return str(declared) if declared else ""
