"""OpenAPI schema of calls, with required token scopes and the token scheme."""

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
    """Return the schema decorator of a call.

    Args:
        tag: Group of calls.
        summary: Title of the call.
        answers: Successful responses by status.
        codes: Statuses of errors.
        remarks: Descriptions of further errors by status.
        options: Other arguments of `extend_schema`.
    """
    error_responses = {code: OpenApiResponse(ErrorSerializer, text) for code, text in (remarks or {}).items()}
    responses = {**answers, **dict.fromkeys(codes, ErrorSerializer), **error_responses}
    return extend_schema(tags=[tag], summary=summary, responses=dict(sorted(responses.items())), **options)


class TokenScheme(OpenApiAuthenticationExtension):
    """Scheme `Authorization: Bearer <token>`, with a token from the account page."""

    target_class = "submissions.accounts.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the scheme's definition in OpenAPI."""
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "Create a token on the account page.",
        }


class ScopedSchema(AutoSchema):
    """drf-spectacular's schema of a call, extended by the scope that a token needs."""

    def map_parsers(self) -> list[str]:
        """Return only JSON, so that generated clients have a single way to send a call.

        Calls that accept files declare their own content type.
        """
        return ["application/json"]

    def get_description(self) -> str:  # type: ignore[override]  # drf-spectacular's own signature
        description = super().get_description() or ""
        scope = self._scope()
        return f"{description}\n\nA token needs the scope `{scope}`.".strip() if scope else description

    def get_extensions(self) -> dict[str, Any]:
        extensions: dict[str, Any] = dict(super().get_extensions())
        return {**extensions, "x-required-scope": scope} if (scope := self._scope()) else extensions

    def _scope(self) -> str:
        """Return the scope that a token needs for this method of the view; empty if it needs none."""
        scope = getattr(self.view, "required_scope", None)
        if isinstance(scope, Mapping):
            scope = scope.get(self.method.upper())
        return str(scope) if scope else ""
