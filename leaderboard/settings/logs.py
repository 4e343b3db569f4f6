"""What is written down of what happens."""

from __future__ import annotations

from leaderboard.settings.site import env

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "filters": {"refusals": {"()": "leaderboard.quiet.RefusalsAreCalm"}},
    "loggers": {
        "django.request": {"filters": ["refusals"]},
        # At DEBUG they would write down what requests are signed with.
        "boto3": {"level": "WARNING"},
        "botocore": {"level": "WARNING"},
        "s3transfer": {"level": "WARNING"},
    },
    "root": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="INFO")},
}
