"""The API's schema, and the page that explains it."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import spectacular_settings
from drf_spectacular.views import SpectacularAPIView

from leaderboard.api.reference import objects, sections
from leaderboard.core.cache.pages import kept_page, with_address
from leaderboard.core.http.site_url import absolute

#: Where every call is.
PREFIX = "/api/v1/"


_making = Lock()


class LockedSchemaGenerator(SchemaGenerator):
    """Makes the schema in one thread at a time.

    drf-spectacular looks up the classes that its extensions are for when the first schema is made, and a second thread
    that comes upon one half looked up fails.
    """

    def get_schema(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As the generator does."""
        with _making:
            found: dict[str, Any] = super().get_schema(*args, **kwargs)
        return found


class SchemaView(SpectacularAPIView):
    """The OpenAPI schema."""

    required_scope = "read"
    generator_class = LockedSchemaGenerator


@cache
def _schema() -> dict[str, Any]:
    """The schema as everybody may read it; it is made from the code alone."""
    return LockedSchemaGenerator().get_schema(request=None, public=True)


def _fixed() -> str:
    return spectacular_settings.VERSION


@require_safe
@kept_page(_fixed, with_address())
def reference(request: HttpRequest) -> HttpResponse:
    """Every operation of the API: what it takes and what it answers."""
    schema, address = _schema(), absolute(request, PREFIX)
    return render(
        request,
        "leaderboard/api.html",
        {
            "section": "api",
            "address": address,
            "sections": sections(schema, PREFIX, address),
            "objects": objects(schema),
            "token": schema["components"]["securitySchemes"]["token"]["description"],
        },
    )
