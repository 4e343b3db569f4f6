"""What browsers are told, what is believed of proxies, and accounts (`docs/limits.md` lists how often they may try)."""

import re
from collections.abc import Sequence
from email.utils import formataddr
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from leaderboard.settings.environment import ALLOWED_HOSTS, EMBEDDED, SITE_NAME, env, one_of

# --- browsers and proxies

#: Browsers ask this very name by HTTPS alone, for a year from each answer.
_HSTS_YEAR = "max-age=31536000"


def strict_transport(header: str) -> tuple[int, bool, bool]:
    """Seconds, whether names under this one are meant too, and whether browsers may build it in; from the header."""
    words = [word.strip().lower() for word in header.split(";")]
    name, _, seconds = words[0].partition("=")
    if name != "max-age" or not seconds.isdecimal() or not set(words[1:]) <= {"includesubdomains", "preload"}:
        raise ImproperlyConfigured(
            f'HSTS is {header!r}. Write the header as it is to be: {_HSTS_YEAR}, with "; includeSubDomains" where '
            'every name under this one has TLS, and "; preload" where browsers are to build that in.'
        )
    return int(seconds), "includesubdomains" in words, "preload" in words


def contacts(addresses: Sequence[str]) -> list[str]:
    """Where faults of security are reported, as RFC 9116 wants it: a URI each; of a mail address its own will do."""
    words = [word for each in addresses if (word := each.strip())]
    found = [f"mailto:{word}" if "@" in word and ":" not in word else word for word in words]
    for each in found:
        if not re.fullmatch(r"(mailto:[^\s@]+@[^\s@]+|https://[^\s/]+\S*|tel:\+[0-9-]+)", each):
            raise ImproperlyConfigured(
                f"SECURITY_CONTACT has {each!r}. Write mail addresses, https:// addresses or tel:+ numbers."
            )
    return found


def policy(url: str) -> str:
    """The address of a page that says how reports are dealt with; empty where there is none."""
    if url and not re.fullmatch(r"https://[^\s/]+\S*", url):
        raise ImproperlyConfigured(f"SECURITY_POLICY is {url!r}. Write an address that begins with https://.")
    return url


#: What /.well-known/security.txt says; without a contact there is none.
SECURITY_CONTACT = contacts(env.list("SECURITY_CONTACT", default=[]))
SECURITY_POLICY = policy(env.str("SECURITY_POLICY", default=""))


def sign_in_services() -> tuple[dict[str, Any], list[str]]:
    """What allauth is told of the services that have keys (`GITHUB_CLIENT_ID`, `GITHUB_CLIENT_SECRET` …), and their
    origins, to which forms that sign in lead. Raises ImproperlyConfigured for half of a pair.
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
            needed = f"{key}_CLIENT_ID and {key}_CLIENT_SECRET" + (
                ", and OIDC_SERVER, an address" * (key == "OIDC")
            )
            raise ImproperlyConfigured(f"Signing in with {name} takes {needed}.")
        options: dict[str, Any] = {"oauth_pkce_enabled": True}
        app = {"client_id": client, "secret": secret, "name": name, "settings": options}
        if key != "GITHUB":
            app["provider_id"], options["server_url"] = key.lower(), server
        if key == "ORCID":
            options["scope"] = ["openid"]  # it hands out no address
        provider = "github" if key == "GITHUB" else "openid_connect"
        providers.setdefault(provider, {"APPS": []})["APPS"].append(app)
        origins.append("{0.scheme}://{0.netloc}".format(urlsplit(server)))
    return providers, origins


#: allauth's own name for them.
SOCIALACCOUNT_PROVIDERS, _SIGN_IN_ORIGINS = sign_in_services()


#: Everything from this site, nothing inline, on every page alike. `data:` is for images alone: plotly.js draws its
#: figures as such when they are saved, the admin's style sheet has its arrows so.
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
# Django's defaults do the rest: no frames, no guessed types, same-origin referrers and openers, cookies that are Lax,
# and sessions that no script reads.
HTTPS = env.bool("HTTPS", default=not EMBEDDED)
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]  # asked from inside, where there is no TLS
SECURE_HSTS_SECONDS, SECURE_HSTS_INCLUDE_SUBDOMAINS, SECURE_HSTS_PRELOAD = strict_transport(
    env.str("HSTS", default=_HSTS_YEAR) if HTTPS else "max-age=0"
)
# Both are promises about other names than this one: whoever has these decides (`HSTS`).
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
BEHIND_PROXY = env.bool("BEHIND_PROXY", default=False)
# Behind a proxy every request comes from its address: limits per address then count by what it says of the visitor.
ALLAUTH_TRUSTED_PROXY_COUNT = 1 if BEHIND_PROXY else 0
if BEHIND_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")


# --- accounts
AUTH_USER_MODEL = "leaderboard.User"
#: Who may sign up: everybody (`open`), everybody, but a curator approves each account before it signs in (`approval`),
#: or nobody (`closed`).
SIGNUP = one_of("SIGNUP", env.str("SIGNUP", default="open"), "open", "approval", "closed")
#: How people sign in: with a password or a service (`all`), or with the services that have keys alone (`services`).
SIGN_IN = one_of("SIGN_IN", env.str("SIGN_IN", default="") or "all", "all", "services")
if SIGN_IN == "services" and not SOCIALACCOUNT_PROVIDERS:
    raise ImproperlyConfigured(
        "SIGN_IN=services needs a service to sign in with: set OIDC_SERVER, OIDC_CLIENT_ID and OIDC_CLIENT_SECRET, or "
        "the keys of another one."
    )
# The operator's own provider is trusted with addresses where it is the way in: accounts that are here already have no
# other. Otherwise nobody comes into one by an address that a service names: its owner connects the two, signed in.
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
for _app in SOCIALACCOUNT_PROVIDERS.get("openid_connect", {}).get("APPS", []):
    _app["settings"]["email_authentication"] = SIGN_IN == "services" and _app["provider_id"] == "oidc"
#: Who may read the site: everybody (`public`), or whoever is signed in (`members`).
ACCESS = one_of("ACCESS", env.str("ACCESS", default="public"), "public", "members")
#: Mail domains, with their subdomains, whose addresses accounts may have; empty: all.
SIGNUP_DOMAINS = [domain.strip().lower() for domain in env.list("SIGNUP_DOMAINS", default=[]) if domain]
if wrong := [
    domain for domain in SIGNUP_DOMAINS if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*\.[a-z0-9-]+", domain)
]:
    raise ImproperlyConfigured(
        f"SIGNUP_DOMAINS has {', '.join(map(repr, wrong))}: write names such as example.org, with commas between."
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
ACCOUNT_EMAIL_SUBJECT_PREFIX = ""
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
#: Addresses, password and second factor change only for who has shown within five minutes who they are.
ACCOUNT_REAUTHENTICATION_REQUIRED = True
#: People are told by mail that their password, address or second factor has changed.
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_MAX_EMAIL_ADDRESSES = 5

# --- signing in elsewhere: by those services alone whose keys the environment has
SOCIALACCOUNT_ADAPTER = "submissions.accounts.adapter.ElsewhereAdapter"
SOCIALACCOUNT_FORMS = {"signup": "submissions.accounts.adapter.ElsewhereSignupForm"}

# --- passwords: long rather than intricate (NIST SP 800-63B-4, OWASP ASVS 5.0, 6.2)
#: How new passwords are looked up: `off`, `on` (at haveibeenpwned.com, by five of forty digits of their SHA-1), or the
#: path of a sorted file of SHA-1 hashes, one a line (`HASH` or `HASH:COUNT`).
BREACHED_PASSWORDS = env.str("BREACHED_PASSWORDS", default="off")
if BREACHED_PASSWORDS.lower() in ("on", "true", "yes", "1"):
    BREACHED_PASSWORDS = "on"
elif BREACHED_PASSWORDS.lower() in ("", "off", "false", "no", "0"):
    BREACHED_PASSWORDS = "off"
_OURS = "submissions.accounts.passwords"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"{_OURS}.SimilarityValidator", "OPTIONS": {"user_attributes": ("email", "name")}},
    {"NAME": f"{_OURS}.LengthValidator"},
    {"NAME": f"{_OURS}.KnownPasswordValidator"},
]

# --- the second factor
MFA_ADAPTER = "submissions.accounts.access.SecondFactorAdapter"
MFA_FORMS = {
    "authenticate": f"{_FORMS}.AuthenticateCodeForm",
    "reauthenticate": f"{_FORMS}.ReauthenticateCodeForm",
    "activate_totp": f"{_FORMS}.ActivateCodeForm",
}
MFA_TOTP_ISSUER = SITE_NAME
#: The code before and the one after are taken too: telephones' clocks differ.
MFA_TOTP_TOLERANCE = 1


def needs_second_factor(*, embedded: bool, behind_proxy: bool, hosts: Sequence[str]) -> bool:
    """Whether staff need one: but where the one-command default answers to this machine alone."""
    loopback = {"127.0.0.1", "localhost", "[::1]", "::1"}
    return not (embedded and not behind_proxy and set(hosts) <= loopback)


#: Whether staff have their rights only after they showed a second factor.
STAFF_MFA_REQUIRED = needs_second_factor(embedded=EMBEDDED, behind_proxy=BEHIND_PROXY, hosts=ALLOWED_HOSTS)

# --- teams and hidden judgements (docs/decisions/0018)
#: Whether a curator approves a team before it first submits to a dataset with hidden judgements.
TEAM_APPROVAL = env.bool("TEAM_APPROVAL", default=not EMBEDDED)
#: For so many days after its approval (without TEAM_APPROVAL, where nobody approved it, after it
#: was made) a team is young; 0: none is. With it, one that is not approved always is.
YOUNG_TEAM_DAYS = env.int("YOUNG_TEAM_DAYS", default=0 if EMBEDDED else 90)
#: Results of young teams shown per hidden dataset and day; the others wait for their turn.
YOUNG_TEAM_READINGS = env.int("YOUNG_TEAM_READINGS", default=6)
if YOUNG_TEAM_DAYS < 0 or YOUNG_TEAM_READINGS < 1:
    raise ImproperlyConfigured("YOUNG_TEAM_DAYS is a number from 0, YOUNG_TEAM_READINGS one from 1.")

# --- how often somebody may try: per address (ip), per person (user), or per account that is tried (key)
ACCOUNT_RATE_LIMITS = {
    "login": "30/m/ip",
    "login_failed": "10/m/ip,5/300s/key",
    #: Beside that, for codes alone: who tries them has the password.
    "second_factor": "20/h/key,50/d/key",
    "signup": "20/h/ip",
    #: By hours, not by the day: strangers can use it up, and its owner is to wait no longer.
    "reset_password": "20/h/ip,3/2h/key",
    "reset_password_from_key": "20/h/ip",
    #: Opening a link that sets a password, and its form: each makes a session.
    "open_reset_link": "60/h/ip",
    "change_password": "5/m/user",
    "manage_email": "10/h/user",
    "reauthenticate": "10/m/user",
    "confirm_email": "1/180s/key",
}

# --- mail: to the console until a server is named
EMAIL_URL = env.str("EMAIL_URL", default="consolemail://")
vars().update(env.email_url("EMAIL_URL", default="consolemail://"))
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", default=formataddr((SITE_NAME, "runboard@localhost")))
#: How long a mail server may take to answer, in seconds: others wait for their mail meanwhile.
EMAIL_TIMEOUT = 10
#: Whether teams may have results sent to addresses of their own; workers then need a way to the internet.
WEBHOOKS_ENABLED = env.bool("WEBHOOKS_ENABLED", default=True)
#: Whether these may also be programs on this machine, by http: for trials, since any sign-up may then reach its ports.
WEBHOOKS_LOOPBACK = env.bool("WEBHOOKS_LOOPBACK", default=False)
# Without a mail server nobody could verify an address: verification is asked for once there is one.
ACCOUNT_EMAIL_VERIFICATION = "optional" if EMAIL_URL.startswith("consolemail") else "mandatory"
# A worker then prints mail as it is. Celery would make each line that is printed a warning of its log.
CELERY_WORKER_REDIRECT_STDOUTS = not EMAIL_URL.startswith("consolemail")
