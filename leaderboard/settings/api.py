"""The API: who asks, how often, and how it is described."""

from __future__ import annotations

from leaderboard.settings.security import ALLAUTH_TRUSTED_PROXY_COUNT

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "submissions.people.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.AllowAny"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "submissions.api.scoped_schema.ScopedSchema",
    "EXCEPTION_HANDLER": "leaderboard.api.errors.exception_handler",
    "NUM_PROXIES": ALLAUTH_TRUSTED_PROXY_COUNT,
    "DEFAULT_THROTTLE_RATES": {
        "check": "60/min",
        "submit": "60/min",
        "change": "60/hour",
        "invite": "20/day",
        "challenge": "10/day",
        "token": "20/hour",
    },
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Runboard API",
    "DESCRIPTION": "Submit runs, follow them, and read every board.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    # Several things have a kind; each has a name of its own in the schema.
    "ENUM_NAME_OVERRIDES": {
        "NoticeKindEnum": "submissions.models.NoticeKind.choices",
        "SubmissionKindEnum": ["run", "model"],
    },
}
KNOX_TOKEN_MODEL = "submissions.ApiToken"  # noqa: S105  (a model, not a secret)
REST_KNOX = {
    "TOKEN_MODEL": "submissions.ApiToken",
    "AUTH_HEADER_PREFIX": "Bearer",
    "TOKEN_PREFIX": "rb_",
    "TOKEN_TTL": None,
}
