"""The environment: what variables are read with, where the site keeps its state, its key, its names."""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

from leaderboard.core.branding import read_accent

#: The control groups of this process, and their limits.
_OWN_GROUPS, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")

# --- what readers return


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def three_quarters_of_memory() -> int:
    """Return three quarters of the machine's memory in bytes, or of less if a control group allows less.

    Containers have such a limit, and so have Slurm's jobs, whose limit is that of a group above our own.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _OWN_GROUPS.read_text().splitlines() if _OWN_GROUPS.exists() else ():
        _, controllers, path = line.split(":", 2)
        folder = _GROUPS / controllers / path.lstrip("/")  # version 2 names no controllers
        for place in (folder, *folder.parents):
            for name in ("memory.max", "memory.limit_in_bytes"):
                with contextlib.suppress(OSError, ValueError):  # there is none, or no limit
                    memory = min(memory, int((place / name).read_text()))
    return memory * 3 // 4


def site_address(url: str) -> str:
    """The site's address without a slash at its end, empty where there is none. Raises ImproperlyConfigured."""
    parts = urlsplit(url)
    if url and (
        parts.scheme not in ("http", "https") or url.rstrip("/") != f"{parts.scheme}://{parts.netloc}"
    ):
        raise ImproperlyConfigured("SITE_ADDRESS is to be https://HOST or http://HOST:PORT, without a path.")
    return url.rstrip("/")


def storages_of_several_hosts(store: str, embeddings: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The entries of `STORAGES` for the store, where a bucket has it, and for encoded corpora, in a bucket or a folder.

    Raises ImproperlyConfigured.
    """
    embeddings = embeddings or (store and f"{store.rstrip('/')}/embeddings")
    entries = (
        {"embeddings": bucket(embeddings, "EMBEDDINGS_STORAGE")}
        if embeddings
        else {"embeddings": _folder(folder)}
    )
    return {**entries, "store": bucket(store, "STORE_STORAGE")} if store else entries


def _folder(folder: Path) -> dict[str, Any]:
    return {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": str(folder)}}


def bucket(url: str, variable: str) -> dict[str, Any]:
    """The entry of `STORAGES` for the bucket that a variable names.

    Keys stay in the environment, where boto3 looks for them, so that no setting holds a secret. Raises
    ImproperlyConfigured, without repeating what may hold one.
    """
    parts = urlsplit(url)
    if (
        parts.scheme != "s3"
        or not parts.netloc
        or parts.netloc != parts.hostname
        or parts.query
        or parts.fragment
    ):
        raise ImproperlyConfigured(
            f"{variable} is to be s3://BUCKET or s3://BUCKET/PREFIX. Keys and address of the server belong into "
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL."
        )
    own_server = any(os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"))
    return {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {
            "bucket_name": parts.netloc,
            "location": parts.path.strip("/"),
            "file_overwrite": True,
            # Servers other than Amazon's seldom have a host name for each bucket.
            "addressing_style": "path" if own_server else None,
            # What is brought lies on disk beyond this, not in memory.
            "max_memory_size": 16 * 2**20,
        },
    }


# --- state, key and names

env = environ.Env()


def one_of(name: str, value: str, *choices: str) -> str:
    """Return a variable's value if it is among the choices. Raises ImproperlyConfigured."""
    if value not in choices:
        listed = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise ImproperlyConfigured(f"{name} is {listed}, not {value!r}.")
    return value


BASE_DIR = Path(__file__).resolve().parent.parent.parent
#: The folder of all state.
VAR = Path(env.str("RUNBOARD_VAR", default=str(BASE_DIR / "var"))).resolve()
VAR.mkdir(parents=True, exist_ok=True, mode=0o700)  # it holds judgements and a database of unrounded values
#: Whether this process may have the paths of what is private. Off in the one that sends to strangers' addresses.
PRIVATE_STORAGE = env.bool("PRIVATE_STORAGE", default=True)

# Read in `evaluation` on first use: where the reader of runs (C) and BM25 (numba) keep what was compiled.
os.environ.setdefault("RUNBOARD_KERNEL_CACHE", str(VAR / "cache" / "kernel"))
os.environ.setdefault("NUMBA_CACHE_DIR", str(VAR / "cache" / "numba"))


def secret_key() -> str:
    """The key from `SECRET_KEY`, else one generated once and kept in `var/secret-key`, readable by its owner.

    `none` is a key that is forgotten with the process: workers sign nothing, and then cannot sign a session either.
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
#: Keys that it replaced: what they signed or encrypted can still be read.
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])
#: Whether the site is the one-command default, reachable from this machine only.
EMBEDDED = "ALLOWED_HOSTS" not in os.environ
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
SITE_NAME = env.str("SITE_NAME", default="Runboard")
#: The operator's logo, an SVG or PNG file in place of the mark; None: the mark.
SITE_LOGO = Path(_logo) if (_logo := env.str("SITE_LOGO", default="")) else None
try:
    #: The accent colour in the light and in the dark theme; None: the style sheet's own.
    ACCENT = read_accent(env.str("ACCENT_COLOUR", default=""))
except ValueError as error:
    raise ImproperlyConfigured(str(error)) from error
#: `https://host`: the address that pages, feeds and exports write; empty: the one by which a visitor came.
SITE_ADDRESS = site_address(env.str("SITE_ADDRESS", default=""))
CSRF_TRUSTED_ORIGINS = [SITE_ADDRESS] if SITE_ADDRESS else []
#: The operator's pages by name, as Markdown files. /privacy/ without a file (None) describes what the software stores.
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
#: With one language a page looks nothing up: gettext gives the text back.
USE_I18N = len(LANGUAGES) > 1
FORMAT_MODULE_PATH = "leaderboard.core.formats"
TIME_ZONE = "UTC"
