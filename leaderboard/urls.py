"""Where every page and API call lives. The submissions' own addresses are included by name."""

from __future__ import annotations

from django.urls import include, path

from leaderboard.views.health import healthz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("", include("submissions.urls")),
]
