"""Browser security headers, proxies, and accounts (`docs/limits.md` lists the rate limits)."""

import re
from collections.abc import Sequence
from email.utils import formataddr
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from leaderboard.settings.environment import ALLOWED_HOSTS, EMBEDDED, SITE_NAME, env, validate_choice

# --- browsers and proxies

#: Browsers use HTTPS for this host name for a year after each response.
_HSTS_YEAR = "max-age=31536000"


def parse_hsts(header: str) -> tuple[int, bool, bool]:
    """Return seconds, `includeSubDomains`, and `preload` of an HSTS header. Raises ImproperlyConfigured."""
    words = [word.strip().lower() for word in header.split(";")]
    name, _, seconds = words[0].partition("=")
    if name != "max-age" or not seconds.isdecimal() or not set(words[1:]) <= {"includesubdomains", "preload"}:
        raise ImproperlyConfigured(
            f'HSTS is {header!r}. Use a value of the header: {_HSTS_YEAR}, with "; includeSubDomains" if all '
            'subdomains have TLS, and "; preload" if browsers should include the site in their lists.'
        )
    return int(seconds), "includesubdomains" in words, "preload" in words


def contact_uris(addresses: Sequence[str]) -> list[str]:
    """Return security contacts as URIs, as RFC 9116 requires; email addresses may be given without `mailto:`.

    Raises ImproperlyConfigured for anything but email addresses, https URLs, and telephone numbers.
    """
    words = [word for text in addresses if (word := text.strip())]
    uris = [f"mailto:{word}" if "@" in word and ":" not in word else word for word in words]
    for uri in uris:
        if not re.fullmatch(r"(mailto:[^\s@]+@[^\s@]+|https://[^\s/]+\S*|tel:\+[0-9-]+)", uri):
            raise ImproperlyConfigured(
                f"SECURITY_CONTACT has {uri!r}. Use email addresses, https:// URLs or tel:+ numbers."
            )
    return uris


def policy(url: str) -> str:
    """Return the https URL of the page that describes how reports are handled, or an empty string.

    Raises ImproperlyConfigured for another URL.
    """
    if url and not re.fullmatch(r"https://[^\s/]+\S*", url):
        raise ImproperlyConfigured(f"SECURITY_POLICY is {url!r}. Use a URL that begins with https://.")
    return url


#: Contents of /.well-known/security.txt, which exists only with a contact.
SECURITY_CONTACT = contact_uris(env.list("SECURITY_CONTACT", default=[]))
SECURITY_POLICY = policy(env.str("SECURITY_POLICY", default=""))


def sign_in_services() -> tuple[dict[str, Any], list[str]]:
    """Return allauth's provider settings for services with keys, and the origins that sign-in forms lead to.

    A service needs a pair of variables, such as `GITHUB_CLIENT_ID` and `GITHUB_CLIENT_SECRET`. Raises
    ImproperlyConfigured if only one is set.
    """
    providers: dict[str, Any] = {}
    origins = []
    services = {
        "GITHUB": ("GitHub", "https://github.com"),
        "ORCID": ("ORCID", "https://orcid.org"),
        "HUGGINGFACE": ("Hugging Face", "https://huggingface.co"),
        "OIDC": (env.str("OIDC_NAME", default="single sign-on"), env.str("OIDC_SERVER", default="")),
    }
    for key, (name, server) in services.items():
        client, secret = (env.str(f"{key}_CLIENT_{part}", default="") for part in ("ID", "SECRET"))
        if not client and not secret:
            continue
        if not (client and secret and urlsplit(server).netloc):
            variables = f"{key}_CLIENT_ID and {key}_CLIENT_SECRET" + (", and OIDC_SERVER, a URL" * (key == "OIDC"))
            raise ImproperlyConfigured(f"Signing in with {name} requires {variables}.")
        options: dict[str, Any] = {"oauth_pkce_enabled": True}
        app = {"client_id": client, "secret": secret, "name": name, "settings": options}
        if key != "GITHUB":
            app["provider_id"], options["server_url"] = key.lower(), server
        if key == "ORCID":
            options["scope"] = ["openid"]  # ORCID provides no email addresses.
        provider = "github" if key == "GITHUB" else "openid_connect"
        providers.setdefault(provider, {"APPS": []})["APPS"].append(app)
        origins.append("{0.scheme}://{0.netloc}".format(urlsplit(server)))
    return providers, origins


#: The name that allauth reads.
SOCIALACCOUNT_PROVIDERS, _SIGN_IN_ORIGINS = sign_in_services()


#: Policy of all pages: resources of this site only, none inline. `data:` is for images only: plotly.js saves
#: figures that way, and the admin's style sheet embeds its arrows.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "manifest-src": ["'self'"],
        "frame-src": ["'none'"],
        "worker-src": ["'none'"],
        "media-src": ["'none'"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "form-action": ["'self'", *_SIGN_IN_ORIGINS],
    }
}
# Django's defaults add: no frames, no guessed content types, same-origin referrers and openers, Lax cookies,
# and session cookies that scripts cannot read.
HTTPS = env.bool("HTTPS", default=not EMBEDDED)
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]  # Requested from the internal network, without TLS.
SECURE_HSTS_SECONDS, SECURE_HSTS_INCLUDE_SUBDOMAINS, SECURE_HSTS_PRELOAD = parse_hsts(
    env.str("HSTS", default=_HSTS_YEAR) if HTTPS else "max-age=0"
)
# Both concern host names other than this one; their owner decides (`HSTS`).
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
BEHIND_PROXY = env.bool("BEHIND_PROXY", default=False)
# Behind a proxy all requests come from its address, so limits per address use the visitor's address from its
# header.
ALLAUTH_TRUSTED_PROXY_COUNT = 1 if BEHIND_PROXY else 0
if BEHIND_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")


# --- accounts
AUTH_USER_MODEL = "leaderboard.User"
#: Sign-up policy: `open`, `approval` (a curator must approve each account), or `closed`.
SIGNUP = validate_choice("SIGNUP", env.str("SIGNUP", default="open"), "open", "approval", "closed")
#: Sign-in methods: a password or a service (`all`), or only configured services (`services`).
SIGN_IN = validate_choice("SIGN_IN", env.str("SIGN_IN", default="") or "all", "all", "services")
if SIGN_IN == "services" and not SOCIALACCOUNT_PROVIDERS:
    raise ImproperlyConfigured(
        "SIGN_IN=services requires a service: set OIDC_SERVER, OIDC_CLIENT_ID and OIDC_CLIENT_SECRET, or the keys of "
        "another one."
    )
# With SIGN_IN=services, the operator's own provider is trusted with email addresses, because existing
# accounts have no other way to sign in. All other services must be connected by the account's owner after
# signing in.
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
for _app in SOCIALACCOUNT_PROVIDERS.get("openid_connect", {}).get("APPS", []):
    _app["settings"]["email_authentication"] = SIGN_IN == "services" and _app["provider_id"] == "oidc"
#: Readers of the site: all visitors (`public`), or signed-in users (`members`).
ACCESS = validate_choice("ACCESS", env.str("ACCESS", default="public"), "public", "members")
#: Email domains, including subdomains, that accounts may use; empty for all.
SIGNUP_DOMAINS = [domain.strip().lower() for domain in env.list("SIGNUP_DOMAINS", default=[]) if domain]
if bad_names := [domain for domain in SIGNUP_DOMAINS if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*\.[a-z0-9-]+", domain)]:
    raise ImproperlyConfigured(
        f"SIGNUP_DOMAINS has {', '.join(map(repr, bad_names))}: use domains such as example.org, separated by commas."
    )
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
LOGIN_REDIRECT_URL = "/submissions/"
LOGIN_URL = "account_login"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_ADAPTER = "submissions.accounts.adapter.AccountAdapter"
_FORMS = "submissions.accounts.forms"
ACCOUNT_FORMS = {
    "login": f"{_FORMS}.LoginForm",
    "signup": f"{_FORMS}.SignupForm",
    "add_email": f"{_FORMS}.AddEmailForm",
    "change_password": f"{_FORMS}.ChangePasswordForm",
    "set_password": f"{_FORMS}.SetPasswordForm",
    "reset_password": f"{_FORMS}.ResetPasswordForm",
    "reset_password_from_key": f"{_FORMS}.ResetPasswordKeyForm",
    "reauthenticate": f"{_FORMS}.ReauthenticateForm",
}
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if HTTPS else "http"
#: Changing email addresses, password and second factor requires reauthentication within the last five
#: minutes.
ACCOUNT_REAUTHENTICATION_REQUIRED = True
#: Users are notified by email when their password, address or second factor changes.
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_MAX_EMAIL_ADDRESSES = 5

# --- external sign-in, only through services with configured keys
SOCIALACCOUNT_ADAPTER = "submissions.accounts.adapter.ElsewhereAdapter"
SOCIALACCOUNT_FORMS = {"signup": "submissions.accounts.adapter.ElsewhereSignupForm"}

# --- passwords: length rather than complexity (NIST SP 800-63B-4, OWASP ASVS 5.0, 6.2)
#: Source of breached passwords: `off`, `on` (haveibeenpwned.com, queried by five of forty SHA-1 digits), or
#: the path of a sorted file of SHA-1 hashes, one per line (`HASH` or `HASH:COUNT`).
BREACHED_PASSWORDS = env.str("BREACHED_PASSWORDS", default="off")
if BREACHED_PASSWORDS.lower() in ("on", "true", "yes", "1"):
    BREACHED_PASSWORDS = "on"
elif BREACHED_PASSWORDS.lower() in ("", "off", "false", "no", "0"):
    BREACHED_PASSWORDS = "off"
_VALIDATORS = "submissions.accounts.passwords"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"{_VALIDATORS}.SimilarityValidator", "OPTIONS": {"user_attributes": ("email", "name")}},
    {"NAME": f"{_VALIDATORS}.LengthValidator"},
    {"NAME": f"{_VALIDATORS}.KnownPasswordValidator"},
]

# --- second factors and passkeys
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_ADAPTER = "submissions.accounts.access.SecondFactorAdapter"
MFA_FORMS = {
    "authenticate": f"{_FORMS}.AuthenticateCodeForm",
    "reauthenticate": f"{_FORMS}.ReauthenticateCodeForm",
    "activate_totp": f"{_FORMS}.ActivateCodeForm",
    "add_webauthn": f"{_FORMS}.AddPasskeyForm",
    "edit_webauthn": f"{_FORMS}.RenamePasskeyForm",
    "login_webauthn": f"{_FORMS}.LoginPasskeyForm",
    "authenticate_webauthn": f"{_FORMS}.AuthenticatePasskeyForm",
    "reauthenticate_webauthn": f"{_FORMS}.ReauthenticatePasskeyForm",
}
#: The previous and the next code are accepted too, because clocks differ.
MFA_TOTP_TOLERANCE = 1


def needs_second_factor(*, embedded: bool, behind_proxy: bool, hosts: Sequence[str]) -> bool:
    """Return whether staff need a second factor: unless the one-command default serves only this machine."""
    loopback = {"127.0.0.1", "localhost", "[::1]", "::1"}
    return not (embedded and not behind_proxy and set(hosts) <= loopback)


#: Whether staff permissions require a second factor.
STAFF_MFA_REQUIRED = needs_second_factor(embedded=EMBEDDED, behind_proxy=BEHIND_PROXY, hosts=ALLOWED_HOSTS)

# --- teams and hidden judgments (docs/decisions/0018)
#: Whether a curator must approve a team before its first submission to a dataset with hidden judgments.
TEAM_APPROVAL = env.bool("TEAM_APPROVAL", default=not EMBEDDED)
#: Days during which a team counts as new: after its approval or, without TEAM_APPROVAL, after its creation
#: if it was not approved; 0 for none. With TEAM_APPROVAL, unapproved teams are always new.
YOUNG_TEAM_DAYS = env.int("YOUNG_TEAM_DAYS", default=0 if EMBEDDED else 90)
#: Results of new teams that are revealed per hidden dataset and day; others are queued.
YOUNG_TEAM_READINGS = env.int("YOUNG_TEAM_READINGS", default=6)
if YOUNG_TEAM_DAYS < 0 or YOUNG_TEAM_READINGS < 1:
    raise ImproperlyConfigured("YOUNG_TEAM_DAYS must be at least 0, and YOUNG_TEAM_READINGS at least 1.")

# --- rate limits per address (ip), per user (user), or per targeted account (key)
ACCOUNT_RATE_LIMITS = {
    "login": "30/m/ip",
    "login_failed": "10/m/ip,5/300s/key",
    #: An additional limit for codes only: attackers who guess them know the password.
    "second_factor": "20/h/key,50/d/key",
    "signup": "20/h/ip",
    #: Hours rather than a day: attackers can exhaust it, and the owner should not wait longer.
    "reset_password": "20/h/ip,3/2h/key",
    "reset_password_from_key": "20/h/ip",
    #: Opening a password reset link and its form, each of which creates a session.
    "open_reset_link": "60/h/ip",
    #: Starting and completing a sign-in with a passkey, the first of which creates a session.
    "passkey": "120/h/ip",
    "change_password": "5/m/user",
    "manage_email": "10/h/user",
    "reauthenticate": "10/m/user",
    "confirm_email": "1/180s/key",
}

# --- mail, printed to the console unless a server is set
EMAIL_URL = env.str("EMAIL_URL", default="consolemail://")
vars().update(env.email_url("EMAIL_URL", default="consolemail://"))
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", default=formataddr((SITE_NAME, "runboard@localhost")))
#: Timeout of the mail server in seconds; other mail waits meanwhile.
EMAIL_TIMEOUT = 10
#: Whether teams may register webhooks; workers then need access to the internet.
WEBHOOKS_ENABLED = env.bool("WEBHOOKS_ENABLED", default=True)
#: Whether webhooks may also target this machine by HTTP. For testing only: any user could then reach its
#: ports.
WEBHOOKS_LOOPBACK = env.bool("WEBHOOKS_LOOPBACK", default=False)
# Addresses cannot be verified without a mail server, so verification is mandatory only with one.
ACCOUNT_EMAIL_VERIFICATION = "optional" if EMAIL_URL.startswith("consolemail") else "mandatory"
# Workers then print mail unchanged; Celery would log each printed line as a warning.
CELERY_WORKER_REDIRECT_STDOUTS = not EMAIL_URL.startswith("consolemail")
