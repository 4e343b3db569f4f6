"""Environment variables, the state folder, the secret key, and names of the site."""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

from leaderboard.core.branding import read_accent

#: Control groups of this process, and their limits.
_OWN_GROUPS, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")

# --- functions that read the environment


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def three_quarters_of_memory() -> int:
    """Return three quarters of the memory in bytes, of the machine or of the lowest limit of a control group.

    Containers have such a limit, as do Slurm jobs, which have it in a group above their own.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _OWN_GROUPS.read_text().splitlines() if _OWN_GROUPS.exists() else ():
        _, controllers, path = line.split(":", 2)
        folder = _GROUPS / controllers / path.lstrip("/")  # Version 2 has no controllers here.
        for place in (folder, *folder.parents):
            for name in ("memory.max", "memory.limit_in_bytes"):
                with contextlib.suppress(OSError, ValueError):  # There is no file, or no limit.
                    memory = min(memory, int((place / name).read_text()))
    return memory * 3 // 4


def site_address(url: str) -> str:
    """Return the URL without a trailing slash; empty if it is not set.

    Raises ImproperlyConfigured if it is not http or https, or has a path.
    """
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or url.rstrip("/") != f"{parts.scheme}://{parts.netloc}"):
        raise ImproperlyConfigured("SITE_ADDRESS must be https://HOST or http://HOST:PORT, without a path.")
    return url.rstrip("/")


def storages_of_several_hosts(store: str, embeddings: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the `STORAGES` entries of embeddings and, if `store` is set, of the store.

    `store` and `embeddings` are URLs of buckets, or empty. Embeddings without a URL are in the bucket of the store or,
    if there is none, in `folder`. Raises ImproperlyConfigured for an invalid URL.
    """
    embeddings = embeddings or (store and f"{store.rstrip('/')}/embeddings")
    if embeddings:
        entries = {"embeddings": bucket(embeddings, "EMBEDDINGS_STORAGE")}
    else:
        backend = "django.core.files.storage.FileSystemStorage"
        entries = {"embeddings": {"BACKEND": backend, "OPTIONS": {"location": str(folder)}}}
    return {**entries, "store": bucket(store, "STORE_STORAGE")} if store else entries


def bucket(url: str, variable: str) -> dict[str, Any]:
    """Return the `STORAGES` entry for the bucket `url`, the value of the environment variable `variable`.

    boto3 reads the keys from the environment, so that no setting holds a secret. Raises ImproperlyConfigured for an
    invalid URL, without quoting it, because it may contain a secret.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.netloc != parts.hostname or parts.query or parts.fragment:
        raise ImproperlyConfigured(
            f"{variable} must be s3://BUCKET or s3://BUCKET/PREFIX. Set the keys and the server's address in "
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL."
        )
    own_server = any(os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"))
    return {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {
            "bucket_name": parts.netloc,
            "location": parts.path.strip("/"),
            "file_overwrite": True,
            # Servers other than Amazon's rarely have a host name per bucket.
            "addressing_style": "path" if own_server else None,
            # Larger downloads are buffered on disk instead of in memory.
            "max_memory_size": 16 * 2**20,
        },
    }


# --- state, key, and names

env = environ.Env()


def validate_choice(name: str, value: str, *choices: str) -> str:
    """Return a variable's value. Raises ImproperlyConfigured if it is not one of the choices."""
    if value not in choices:
        choice_list = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise ImproperlyConfigured(f"{name} must be {choice_list}, not {value!r}.")
    return value


BASE_DIR = Path(__file__).resolve().parent.parent.parent
#: State folder of the site.
VAR = Path(env.str("RUNBOARD_VAR", default=str(BASE_DIR / "var"))).resolve()
VAR.mkdir(parents=True, exist_ok=True, mode=0o700)  # It contains judgments and a database of unrounded values.
#: Whether this process may access private files. Off in the process that sends webhooks to user-provided
#: addresses.
PRIVATE_STORAGE = env.bool("PRIVATE_STORAGE", default=True)

# Folders of compiled code for the run reader (C) and BM25 (numba), which `evaluation` reads on first use.
os.environ.setdefault("RUNBOARD_KERNEL_CACHE", str(VAR / "cache" / "kernel"))
os.environ.setdefault("NUMBA_CACHE_DIR", str(VAR / "cache" / "numba"))


def secret_key() -> str:
    """Return `SECRET_KEY` or, if it is not set, a key that is generated once and stored in `var/secret-key`.

    If it is `none`, return a key that is lost when the process ends: workers sign nothing, and so cannot sign a session
    either.
    """
    if key := env.str("SECRET_KEY", default=""):
        return key if key != "none" else secrets.token_urlsafe(50)
    path = VAR / "secret-key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text()
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(50))
    return path.read_text()


DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = secret_key()
#: Earlier keys, with which old signatures and encrypted values can still be read.
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])
#: Whether the site is the one-command default, reachable only from this machine.
EMBEDDED = "ALLOWED_HOSTS" not in os.environ
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
SITE_NAME = env.str("SITE_NAME", default="Runboard")
#: The operator's logo, an SVG or PNG file; None for Runboard's.
SITE_LOGO = Path(_logo) if (_logo := env.str("SITE_LOGO", default="")) else None
try:
    #: Accent color of the light and the dark theme; None for that of the style sheet.
    ACCENT = read_accent(env.str("ACCENT_COLOUR", default=""))
except ValueError as error:
    raise ImproperlyConfigured(str(error)) from error
#: `https://host`, used in pages, feeds and exports; empty for the address of each request.
SITE_ADDRESS = site_address(env.str("SITE_ADDRESS", default=""))
CSRF_TRUSTED_ORIGINS = [SITE_ADDRESS] if SITE_ADDRESS else []
#: The operator's pages: Markdown files by name. /privacy/ without a file (None) describes what the software
#: stores.
SITE_PAGES: dict[str, Path | None] = {"privacy": None}
if _pages := env.str("SITE_PAGES_FOLDER", default=""):
    if not Path(_pages).is_dir():
        raise ImproperlyConfigured(f"SITE_PAGES_FOLDER is {_pages}, which is not a folder.")
    _files = {name: Path(_pages, f"{name}.md") for name in ("terms", "privacy", "contact")}
    SITE_PAGES |= {name: file for name, file in _files.items() if file.is_file()}

# --- language and time
LANGUAGE_CODE = "en-gb"
LANGUAGES = [("en-gb", "English")]
LOCALE_PATHS = [BASE_DIR / "locale"]
#: With a single language, gettext returns texts unchanged, so no page has to look them up.
USE_I18N = len(LANGUAGES) > 1
FORMAT_MODULE_PATH = "leaderboard.core.formats"
TIME_ZONE = "UTC"
