"""The API's schema, and pages that explain it, from files of our own."""

from __future__ import annotations

from typing import Any

from csp.decorators import csp_update
from django.utils.decorators import method_decorator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.request import Request
from rest_framework.response import Response


class SchemaView(SpectacularAPIView):
    """The OpenAPI schema."""


@method_decorator(csp_update({"style-src": ["'self'", "'unsafe-inline'"]}), name="dispatch")
class DocumentsView(SpectacularSwaggerSplitView):
    """The schema in a browser. Swagger UI styles its elements inline, so this one address allows inline styles.

    Scripts stay our own files: the page and the script that starts it come from two requests.
    """

    url_name = "api-schema"
    template_name = "leaderboard/api_docs.html"

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The page, or with `?script` the script that starts it."""
        return super().get(request, *args, **kwargs)
