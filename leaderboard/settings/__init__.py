"""Settings, read from environment variables; invalid values raise an error that names the valid ones.

Without any variables, the site uses the embedded default: SQLite and its own Valkey below `RUNBOARD_VAR`.
`docs/operations.md` lists the variables. Separate files define the environment, services and security.
"""

from pathlib import Path

from leaderboard.core.logging import init_sentry
from leaderboard.settings.environment import *
from leaderboard.settings.environment import (
    BASE_DIR,
    SITE_NAME,
    VAR,
    env,
    storages_of_several_hosts,
    validate_choice,
)
from leaderboard.settings.security import *
from leaderboard.settings.security import ALLAUTH_TRUSTED_PROXY_COUNT
from leaderboard.settings.services import *

# --- applications

INSTALLED_APPS = [
    "leaderboard.apps.LeaderboardConfig",
    "submissions.apps.SubmissionsConfig",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.humanize",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.github",
    "allauth.socialaccount.providers.openid_connect",
    "django_htmx",
    "csp",
    "rest_framework",
    "drf_spectacular",
    "knox",
    "simple_history",
    "import_export",
]

#: Middleware in the order in which requests pass it. The first middleware that objects rejects a submission.
MIDDLEWARE = [
    "leaderboard.core.http.middleware.RequestIdMiddleware",  # Request id and log line.
    "django.middleware.security.SecurityMiddleware",
    # Before all middleware that responds itself, so that static files and early errors have the headers too.
    "csp.middleware.CSPMiddleware",
    "leaderboard.core.http.middleware.HeadersMiddleware",  # Headers of every response, and caching of API responses.
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "leaderboard.core.http.middleware.NullCharacterMiddleware",  # 400 for %00 in the URL.
    "leaderboard.core.http.middleware.MethodsMiddleware",  # 405 for pages.
    "submissions.uploads.handler.RequestSizeMiddleware",  # 413 before the body is read.
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    # Around the following middleware, because a request to reauthenticate is not a fault.
    "leaderboard.core.http.middleware.FaultMiddleware",  # 500 and 503 with an id.
    "allauth.account.middleware.AccountMiddleware",
    "submissions.accounts.middleware.MembersMiddleware",  # 302 or 401 for anonymous users if ACCESS=members.
    # Suspends staff permissions without a second factor, tracks sessions, and sets Retry-After on 429.
    "submissions.accounts.middleware.PersonMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "simple_history.middleware.HistoryRequestMiddleware",
    "leaderboard.core.http.query_parameters.QueryParametersMiddleware",  # 400 for unknown query parameters.
]

ROOT_URLCONF = "leaderboard.urls"
WSGI_APPLICATION = "leaderboard.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "leaderboard.core.context_processors.site",
                "submissions.notifications.inbox.unread_notices",
            ],
        },
    },
]

# --- curation: reasons are sentences, longer than the default of 100 characters
SIMPLE_HISTORY_HISTORY_CHANGE_REASON_USE_TEXT_FIELD = True


# --- static files of this project and of installed packages, collected and hashed at startup
STATIC_URL = "/static/"
STATIC_ROOT = VAR / "static"
# Files of `make assets` override files of the same name: the full plotly.js, a style sheet without fonts.
STATICFILES_DIRS = [BASE_DIR / path for path in ("build/assets", "static", "docs/images") if (BASE_DIR / path).is_dir()]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "leaderboard.core.staticfiles.PlotlyBundleFinder",
]
#: Folder of embeddings on this machine. Default: `store/embeddings` in `VAR`.
EMBEDDINGS_FOLDER = env.str("EMBEDDINGS_FOLDER", default="")
STORAGES = {
    **storages_of_several_hosts(
        env.str("STORE_STORAGE", default=""),
        env.str("EMBEDDINGS_STORAGE", default=""),
        Path(EMBEDDINGS_FOLDER or VAR / "store" / "embeddings"),
    ),
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(VAR / "media")},
    },
    "staticfiles": {"BACKEND": "leaderboard.core.staticfiles.StaticFilesStorage"},
}

#: Whether a proxy sends the files of the store (`leaderboard.core.http.downloads`) instead of this process.
ACCEL_REDIRECT = env.bool("ACCEL_REDIRECT", default=False)

# --- uploads
FILE_UPLOAD_HANDLERS = ["submissions.uploads.handler.LimitedUploadHandler"]
FILE_UPLOAD_TEMP_DIR = VAR / "uploads"
FILE_UPLOAD_TEMP_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)
#: Maximum request size with files, in bytes.
UPLOAD_LIMIT_BYTES = env.int("UPLOAD_LIMIT_BYTES", default=512 * 1024 * 1024)
#: Maximum request size for checkpoint uploads, in bytes.
CHECKPOINT_LIMIT_BYTES = env.int("CHECKPOINT_LIMIT_BYTES", default=2 * 1024 * 1024 * 1024)
#: Maximum size of the weights of a checkpoint, in bytes; `evaluation.checkpoints.findings` reads the same
#: variable.
CHECKPOINT_WEIGHTS_BYTES = env.int("CHECKPOINT_WEIGHTS_BYTES", default=32 * 1024**3)
#: Maximum size of a container image's archive, in bytes.
IMAGE_BYTES = env.int("IMAGE_BYTES", default=20 * 1000**3)
#: Maximum size of a checkpoint or image that is uploaded in pieces, and of a checkpoint from the hub: that of the
#: weights plus one GiB, or that of images.
CHECKPOINT_PIECES_LIMIT_BYTES = max(CHECKPOINT_WEIGHTS_BYTES + 1024**3, IMAGE_BYTES)
#: Bytes that uploads leave free on their disk, which often also holds the database.
DISK_RESERVE_BYTES = env.int("DISK_RESERVE_BYTES", default=256 * 1024 * 1024)
#: Number of pieces that a web process receives at once. gunicorn's configuration sets it to two fewer than
#: the threads.
PIECES_AT_ONCE = 2
#: Number of datasets on which a team may run its models per day (UTC).
MODEL_JOBS_PER_DAY = env.int("MODEL_JOBS_PER_DAY", default=60)
#: Whether workers fetch models from the hub by commit, and images from registries by digest, regardless of the
#: switch in the admin (`submissions.checkpoints.hub.fetches`). It requires access to the internet.
HUB_DOWNLOADS = env.bool("HUB_DOWNLOADS", default=False)
#: Whether approved teams may submit container images (`Team.runs_containers`).
CONTAINERS = env.bool("CONTAINERS", default=False)
#: Maximum size of a run, in uncompressed bytes, that is validated while its sender waits.
VALIDATE_AT_ONCE_BYTES = 16 * 1024 * 1024


# --- logging

#: `line` for people, `json` for log collectors: one object per line, with the ids of request and job.
LOG_FORMAT = validate_choice("LOG_FORMAT", env.str("LOG_FORMAT", default="line"), "line", "json")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "{asctime} {levelname} {name}:{context} {message}", "style": "{"},
        "json": {
            "()": "leaderboard.core.logging.JsonLines",
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
        "refusals": {"()": "leaderboard.core.logging.ClientErrorsAsInfo"},
        "addresses": {"()": "leaderboard.core.logging.PathsAsViewNames"},
        "context": {"()": "leaderboard.core.logging.ContextFilter"},
    },
    "loggers": {
        "django.request": {"filters": ["refusals", "addresses"]},
        "django.security.csrf": {"filters": ["refusals", "addresses"]},
        "django.security.DisallowedHost": {"filters": ["refusals", "addresses"]},
        # gunicorn configures its logger before it loads the site; its records then arrive here like all
        # others.
        "gunicorn.error": {"level": "INFO", "propagate": True},
        # At INFO, fido2 logs the ids of users' passkeys.
        "fido2": {"level": "WARNING"},
        # At DEBUG, they log the signatures of requests.
        "boto3": {"level": "WARNING"},
        "botocore": {"level": "WARNING"},
        "s3transfer": {"level": "WARNING"},
    },
    "root": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="INFO")},
}

#: DSN of the server to which errors are also reported; empty for none. Setting it opens connections to the
#: internet.
SENTRY_DSN = env.str("SENTRY_DSN", default="")
if SENTRY_DSN:
    init_sentry(SENTRY_DSN)
#: Bearer token for /metrics in addition to staff; empty for none.
METRICS_TOKEN = env.str("METRICS_TOKEN", default="")


# --- API

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "submissions.accounts.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PARSER_CLASSES": [
        "submissions.core.json.StrictJSONParser",
        "rest_framework.parsers.FormParser",
        "rest_framework.parsers.MultiPartParser",
    ],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "submissions.api.schema.ScopedSchema",
    "EXCEPTION_HANDLER": "leaderboard.core.http.api_errors.exception_handler",
    "NUM_PROXIES": ALLAUTH_TRUSTED_PROXY_COUNT,
    "DEFAULT_THROTTLE_RATES": {
        "check": "60/min",
        "submit": "60/min",
        "change": "60/hour",
        "invite": "20/day",
        "challenge": "10/day",
        "token": "20/hour",
    },
}
SPECTACULAR_SETTINGS = {
    "TITLE": f"{SITE_NAME} API",
    "DESCRIPTION": "Submit runs, track their progress, and read all boards.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    # Several fields are called "kind"; each needs its own name in the schema.
    "ENUM_NAME_OVERRIDES": {
        "NoticeKindEnum": "submissions.models.NoticeKind.choices",
        "SubmissionKindEnum": ["run", "model"],
    },
}
KNOX_TOKEN_MODEL = "submissions.ApiToken"  # noqa: S105  A model, not a secret.
REST_KNOX = {
    "TOKEN_MODEL": "submissions.ApiToken",
    "AUTH_HEADER_PREFIX": "Bearer",
    "TOKEN_PREFIX": "rb_",
    "TOKEN_TTL": None,
}
