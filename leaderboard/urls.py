"""Where every page and API call lives. The submissions' own addresses are included by name."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [
    path("", include("submissions.urls")),
]
