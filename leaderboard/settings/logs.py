"""What is written down of what happens, and where faults are told."""

from __future__ import annotations

from leaderboard.sentry import tell_sentry
from leaderboard.settings.site import env

#: `line` for people, `json` for what collects logs: an object a line, with the ids of request and job.
LOG_FORMAT = env.str("LOG_FORMAT", default="line")
if LOG_FORMAT not in ("line", "json"):
    from django.core.exceptions import ImproperlyConfigured

    raise ImproperlyConfigured(f"LOG_FORMAT is line or json, not {LOG_FORMAT!r}.")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "{asctime} {levelname} {name}:{context} {message}", "style": "{"},
        "json": {
            "()": "leaderboard.log_context.JsonLines",
            "fmt": "{asctime} {levelname} {name} {message} {request_id} {job_id} {process}",
            "style": "{",
            "rename_fields": {"asctime": "time", "levelname": "level", "name": "logger"},
        },
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": LOG_FORMAT,
            "filters": ["context", "addresses"],
        }
    },
    "filters": {
        "refusals": {"()": "leaderboard.quiet.RefusalsAreCalm"},
        "addresses": {"()": "leaderboard.quiet.ViewsNotAddresses"},
        "context": {"()": "leaderboard.log_context.ContextFilter"},
    },
    "loggers": {
        "django.request": {"filters": ["refusals", "addresses"]},
        "django.security.csrf": {"filters": ["refusals", "addresses"]},
        "django.security.DisallowedHost": {"filters": ["refusals", "addresses"]},
        # gunicorn sets up its own before it loads the site: its lines then come here like all others.
        "gunicorn.error": {"level": "INFO", "propagate": True},
        # At DEBUG they would write down what requests are signed with.
        "boto3": {"level": "WARNING"},
        "botocore": {"level": "WARNING"},
        "s3transfer": {"level": "WARNING"},
    },
    "root": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="INFO")},
}

#: Where faults are told as well as logged; empty: nowhere. A connection to the internet that the operator switches on.
SENTRY_DSN = env.str("SENTRY_DSN", default="")
if SENTRY_DSN:
    tell_sentry(SENTRY_DSN, environment=env.str("SENTRY_ENVIRONMENT", default="production"))
#: Who may read /metrics besides staff: `Authorization: Bearer` with this. Empty: nobody else.
METRICS_TOKEN = env.str("METRICS_TOKEN", default="")
