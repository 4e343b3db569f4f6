"""All settings, read from the environment; a reader that fails says what would be right.

Nothing set gives the embedded default: SQLite and an own Valkey under `RUNBOARD_VAR`. `docs/operations.md` lists
the variables.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

import environ

from leaderboard.environment import embeddings_storage, site_address, three_quarters_of_memory, usable_cores

env = environ.Env()

BASE_DIR = Path(__file__).resolve().parent.parent
#: The folder of all state.
VAR = Path(env.str("RUNBOARD_VAR", default=str(BASE_DIR / "var"))).resolve()
VAR.mkdir(parents=True, exist_ok=True, mode=0o700)  # it holds judgements and a database of unrounded values
#: Whether this process may have the paths of what is private. Off in the one that sends to strangers' addresses.
PRIVATE_STORAGE = env.bool("PRIVATE_STORAGE", default=True)

# Read in `evaluation` on first use: where the reader of runs (C) and BM25 (numba) keep what was compiled.
os.environ.setdefault("RUNBOARD_KERNEL_CACHE", str(VAR / "cache" / "kernel"))
os.environ.setdefault("NUMBA_CACHE_DIR", str(VAR / "cache" / "numba"))


def secret_key() -> str:
    """The key from `SECRET_KEY`, else one generated once and kept in `var/secret-key`, readable by its owner."""
    if key := env.str("SECRET_KEY", default=""):
        return key
    path = VAR / "secret-key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text()
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(50))
    return path.read_text()


def broker_url() -> str:
    """`REDIS_URL`, else the server that a running `manage.py runboard` wrote down, else one that fails fast."""
    if url := env.str("REDIS_URL", default=""):
        return url
    written = VAR / "run" / "redis-url"
    return written.read_text().strip() if written.exists() else "redis://127.0.0.1:1/0"


def cache_location(url: str) -> str:
    """The same server as a Django cache names it: kombu says `redis+socket:///path`, redis-py `unix:///path`."""
    return url.replace("redis+socket://", "unix://", 1)


DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = secret_key()
#: Whether the site is the one-command default, reachable from this machine only.
EMBEDDED = env.bool("RUNBOARD_EMBEDDED", default="ALLOWED_HOSTS" not in os.environ)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
SITE_NAME = env.str("SITE_NAME", default="Runboard")
#: `https://host`: the address that pages, feeds and exports write; empty: the one by which a visitor came.
SITE_ADDRESS = site_address(env.str("SITE_ADDRESS", default=""))

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
    "django_htmx",
    "csp",
    "rest_framework",
    "drf_spectacular",
    "knox",
    "simple_history",
    "import_export",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "leaderboard.middleware.PermissionsPolicyMiddleware",
    "leaderboard.middleware.NullCharacterMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "simple_history.middleware.HistoryRequestMiddleware",
    "leaderboard.middleware.FaultMiddleware",
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
                "leaderboard.context.site",
                "submissions.notices.context.unread",
            ],
        },
    },
]


def databases() -> dict[str, dict[str, Any]]:
    """SQLite tuned so that web and workers write side by side, or the server that `DATABASE_URL` names."""
    if "DATABASE_URL" in os.environ:
        database = env.db_url("DATABASE_URL")
        database.setdefault("CONN_MAX_AGE", 60)
        database["CONN_HEALTH_CHECKS"] = True
        return {"default": database}
    return {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": VAR / "db.sqlite3",
            "CONN_MAX_AGE": 60,
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=20000;",
            },
        }
    }


DATABASES = databases()
# knox would make a table for its own token model, which ours replaces: unused, but in the way of every TRUNCATE.
MIGRATION_MODULES = {"knox": None}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- the broker and the cache
REDIS_URL = broker_url()
CACHES = {
    "default": {
        "BACKEND": "leaderboard.cache.ForgivingRedisCache",
        "LOCATION": cache_location(REDIS_URL),
        "KEY_PREFIX": "runboard",
        "TIMEOUT": 3600,
    }
}
CELERY_BROKER_URL = REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 24 * 3600,
    "unacked_restore_interval": 5,
    "socket_connect_timeout": 2,
    "socket_timeout": 10,
    # A bell that cannot be rung is not waited for: without this, six seconds whenever the broker is away.
    "max_retries": 0,
}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "dispatch"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# A new pool process compiles the kernels before it says that it is there; the default of 4 s would kill it.
CELERY_WORKER_PROC_ALIVE_TIMEOUT = 120.0
CELERY_TIMEZONE = "UTC"

# --- people
AUTH_USER_MODEL = "leaderboard.User"
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_REDIRECT_URL = "/submissions/"
LOGIN_URL = "account_login"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_SUBJECT_PREFIX = ""
ACCOUNT_ADAPTER = "submissions.people.adapter.AccountAdapter"
ACCOUNT_LOGOUT_REDIRECT_URL = "/"

# --- mail: to the console until a server is named
EMAIL_URL = env.str("EMAIL_URL", default="consolemail://")
vars().update(env.email_url("EMAIL_URL", default="consolemail://"))
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", default="Runboard <runboard@localhost>")
#: How long a mail server may take to answer, in seconds: others wait for their mail meanwhile.
EMAIL_TIMEOUT = 10
#: Whether teams may have results sent to addresses of their own; workers then need a way to the internet.
WEBHOOKS_ENABLED = env.bool("WEBHOOKS_ENABLED", default=True)
#: Whether these may also be programs on this machine, by http: for trials, since any sign-up may then reach its ports.
WEBHOOKS_LOOPBACK = env.bool("WEBHOOKS_LOOPBACK", default=False)
# Without a mail server nobody could verify an address: verification is asked for once there is one.
ACCOUNT_EMAIL_VERIFICATION = "optional" if EMAIL_URL.startswith("consolemail") else "mandatory"

# --- language and time
LANGUAGE_CODE = "en-gb"
FORMAT_MODULE_PATH = "leaderboard.formats"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

# --- static files: out of this project and installed packages, collected and hashed at start
STATIC_URL = "/static/"
STATIC_ROOT = VAR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "leaderboard.bundles.PlotlyBundleFinder",
]
#: Where this machine has its embeddings; empty: `store/embeddings` in `VAR`.
EMBEDDINGS_FOLDER = env.str("EMBEDDINGS_FOLDER", default="")
STORAGES = {
    "embeddings": embeddings_storage(
        env.str("EMBEDDINGS_STORAGE", default=""), Path(EMBEDDINGS_FOLDER or VAR / "store" / "embeddings")
    ),
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(VAR / "media")},
    },
    "staticfiles": {
        "BACKEND": env.str(
            "RUNBOARD_STATIC_BACKEND", default="whitenoise.storage.CompressedManifestStaticFilesStorage"
        )
    },
}

# --- curation: reasons are sentences, not labels of 100 characters
SIMPLE_HISTORY_HISTORY_CHANGE_REASON_USE_TEXT_FIELD = True

# --- security
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "form-action": ["'self'"],
    }
}
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
HTTPS = env.bool("HTTPS", default=not EMBEDDED)
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^healthz$"]  # asked from inside, where there is no TLS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
BEHIND_PROXY = env.bool("BEHIND_PROXY", default=False)
# Behind a proxy every request comes from its address: limits per address then count by what it says of the visitor.
ALLAUTH_TRUSTED_PROXY_COUNT = 1 if BEHIND_PROXY else 0
if BEHIND_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# --- uploads
FILE_UPLOAD_HANDLERS = ["submissions.uploads.LimitedUploadHandler"]
FILE_UPLOAD_TEMP_DIR = VAR / "uploads"
FILE_UPLOAD_TEMP_DIR.mkdir(parents=True, exist_ok=True)
#: The largest request body with files that is read, in bytes.
UPLOAD_LIMIT_BYTES = env.int("UPLOAD_LIMIT_BYTES", default=512 * 1024 * 1024)
#: The same where a model's checkpoint comes with it.
CHECKPOINT_LIMIT_BYTES = env.int("CHECKPOINT_LIMIT_BYTES", default=2 * 1024 * 1024 * 1024)
#: How many datasets a team's models may be run on from midnight to midnight, UTC.
MODEL_JOBS_PER_DAY = env.int("MODEL_JOBS_PER_DAY", default=60)
#: How many files for hidden datasets may be refused to a person in such a day; more are not read.
REFUSALS_PER_DAY = env.int("REFUSALS_PER_DAY", default=20)
#: Whether workers fetch models from the hub for whoever names one with its commit. It needs a way to the internet.
HUB_DOWNLOADS = env.bool("HUB_DOWNLOADS", default=False)
#: Up to this many bytes, expanded, a run is validated while its sender waits.
VALIDATE_AT_ONCE_BYTES = 16 * 1024 * 1024

# --- the API
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "submissions.people.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.AllowAny"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "leaderboard.api.errors.exception_handler",
    "NUM_PROXIES": ALLAUTH_TRUSTED_PROXY_COUNT,
    "DEFAULT_THROTTLE_RATES": {
        "check": "60/min",
        "submit": "60/min",
        "change": "60/hour",
        "invite": "20/day",
        "challenge": "10/day",
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

#: The longest a job may run, in seconds.
JOB_WALL_CLOCK_SECONDS = env.int("JOB_WALL_CLOCK_SECONDS", default=6 * 3600)
#: How long, in seconds, a worker may be silent before its job is given to another.
LEASE_SECONDS = env.int("LEASE_SECONDS", default=60)
#: Documents that are encoded as one piece of work; larger corpora are shared out between workers.
SHARD_SIZE = env.int("SHARD_SIZE", default=50_000)
#: What kept embeddings may take on disk, in bytes; those that were used longest ago go first.
EMBEDDINGS_CACHE_BYTES = env.int("EMBEDDINGS_CACHE_BYTES", default=50 * 2**30)

# --- models: run in a sandbox (docs/decisions/0008)
#: auto (the first of bwrap and docker that works), bwrap, docker, or none (staff on this machine only).
SANDBOX = env.str("SANDBOX", default="auto")
#: The image that the docker sandbox runs.
SANDBOX_IMAGE = env.str("SANDBOX_IMAGE", default="runboard")
#: A control group, version 2, whose children have memory.max and pids.max; empty: the worker's own.
SANDBOX_CGROUP = env.str("SANDBOX_CGROUP", default="")
#: What one model may use: memory, wall clock, bytes written (index and run), and cores.
MODEL_MEMORY_BYTES = env.int("MODEL_MEMORY_BYTES", default=three_quarters_of_memory())
MODEL_WALL_CLOCK_SECONDS = env.int("MODEL_WALL_CLOCK_SECONDS", default=JOB_WALL_CLOCK_SECONDS * 9 // 10)
MODEL_OUTPUT_BYTES = env.int("MODEL_OUTPUT_BYTES", default=64 * 1024**3)
MODEL_THREADS = env.int("MODEL_THREADS", default=usable_cores())
#: How long, in seconds, a model may wait for the machine to itself; then it goes on without being measured.
MEASURING_WAIT_SECONDS = env.int("MEASURING_WAIT_SECONDS", default=30 * 60)
#: The lock of everybody who works or measures on this machine; containers on one machine must share it.
TIMING_LOCK = env.str("TIMING_LOCK", default=f"{tempfile.gettempdir()}/runboard-timing-{os.geteuid()}.lock")

CELERY_BEAT_SCHEDULE = {
    "dispatch": {"task": "runboard.dispatch", "schedule": 5.0, "options": {"expires": 5.0}},
    "sweep": {"task": "runboard.sweep", "schedule": 3600.0, "options": {"expires": 3600.0}},
}
