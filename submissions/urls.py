"""Addresses of everything that is written to, and of the account pages."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [
    path("account/", include("allauth.urls")),
]
