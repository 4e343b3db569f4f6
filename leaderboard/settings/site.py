"""Where the site keeps its state, its key, its names."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import environ

from leaderboard.environment import site_address

env = environ.Env()

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
EMBEDDED = env.bool("RUNBOARD_EMBEDDED", default="ALLOWED_HOSTS" not in os.environ)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
SITE_NAME = env.str("SITE_NAME", default="Runboard")
#: `https://host`: the address that pages, feeds and exports write; empty: the one by which a visitor came.
SITE_ADDRESS = site_address(env.str("SITE_ADDRESS", default=""))

# --- language and time
LANGUAGE_CODE = "en-gb"
FORMAT_MODULE_PATH = "leaderboard.formats"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True
