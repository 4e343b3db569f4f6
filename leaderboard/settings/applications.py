"""What the site is put together from."""

from __future__ import annotations

from leaderboard.settings.site import BASE_DIR

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
    "django_htmx",
    "csp",
    "rest_framework",
    "drf_spectacular",
    "knox",
    "simple_history",
    "import_export",
]

MIDDLEWARE = [
    "leaderboard.request_ids.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    # Before whatever answers by itself: headers are on static files and on early refusals too.
    "csp.middleware.CSPMiddleware",
    "leaderboard.middleware.PolicyMiddleware",
    "leaderboard.middleware.ApiCachingMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "leaderboard.middleware.NullCharacterMiddleware",
    "leaderboard.methods.MethodsMiddleware",
    "submissions.request_size.RequestSizeMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    # Around what follows: who is asked to show again who they are is no fault.
    "leaderboard.middleware.FaultMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "submissions.people.middleware.StaffMiddleware",
    "submissions.people.middleware.SessionListMiddleware",
    "submissions.people.middleware.RetryAfterMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "simple_history.middleware.HistoryRequestMiddleware",
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

# --- curation: reasons are sentences, not labels of 100 characters
SIMPLE_HISTORY_HISTORY_CHANGE_REASON_USE_TEXT_FIELD = True
