"""What browsers are told, and what is believed of proxies."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

from leaderboard.settings.site import EMBEDDED, env

#: Browsers ask this very name by HTTPS alone, for a year from each answer.
HSTS_YEAR = "max-age=31536000"


def strict_transport(header: str) -> tuple[int, bool, bool]:
    """Seconds, whether names under this one are meant too, and whether browsers may build it in; from the header."""
    words = [word.strip().lower() for word in header.split(";")]
    name, _, seconds = words[0].partition("=")
    if name != "max-age" or not seconds.isdecimal() or not set(words[1:]) <= {"includesubdomains", "preload"}:
        raise ImproperlyConfigured(
            f'HSTS is {header!r}. Write the header as it is to be: {HSTS_YEAR}, with "; includeSubDomains" where '
            'every name under this one has TLS, and "; preload" where browsers are to build that in.'
        )
    return int(seconds), "includesubdomains" in words, "preload" in words


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
        "form-action": ["'self'"],
    }
}
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
CSRF_COOKIE_SAMESITE = "Lax"
#: What no page here uses, and so no script that found its way into one.
PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in (
        "accelerometer", "autoplay", "bluetooth", "browsing-topics", "camera", "display-capture",
        "encrypted-media", "fullscreen", "gamepad", "geolocation", "gyroscope", "hid",
        "identity-credentials-get", "idle-detection", "local-fonts", "magnetometer", "microphone", "midi",
        "payment", "picture-in-picture", "screen-wake-lock", "serial", "storage-access", "usb", "web-share",
        "xr-spatial-tracking",
    )
)  # fmt: skip
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
HTTPS = env.bool("HTTPS", default=not EMBEDDED)
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]  # asked from inside, where there is no TLS
SECURE_HSTS_SECONDS, SECURE_HSTS_INCLUDE_SUBDOMAINS, SECURE_HSTS_PRELOAD = strict_transport(
    env.str("HSTS", default=HSTS_YEAR) if HTTPS else "max-age=0"
)
# Both are promises about other names than this one: whoever has these decides (`HSTS`).
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
BEHIND_PROXY = env.bool("BEHIND_PROXY", default=False)
# Behind a proxy every request comes from its address: limits per address then count by what it says of the visitor.
ALLAUTH_TRUSTED_PROXY_COUNT = 1 if BEHIND_PROXY else 0
if BEHIND_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
