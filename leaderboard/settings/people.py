"""Accounts, and mail to them."""

from __future__ import annotations

from leaderboard.settings.site import env

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
