"""What settings are made of that takes more than one line: the machine, and storage that a variable names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def three_quarters_of_memory() -> int:
    """Three quarters of the machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4


def site_address(url: str) -> str:
    """The site's address without a slash at its end, empty where there is none. Raises ImproperlyConfigured."""
    parts = urlsplit(url)
    if url and (
        parts.scheme not in ("http", "https") or url.rstrip("/") != f"{parts.scheme}://{parts.netloc}"
    ):
        raise ImproperlyConfigured("SITE_ADDRESS is to be https://HOST or http://HOST:PORT, without a path.")
    return url.rstrip("/")


def embeddings_storage(url: str, folder: Path) -> dict[str, Any]:
    """The entry of `STORAGES` for encoded corpora: the folder, or the bucket that the URL names.

    Keys stay in the environment, where boto3 looks for them, so that no setting holds a secret. Raises
    ImproperlyConfigured, without repeating what may hold one.
    """
    if not url:
        return {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(folder)},
        }
    parts = urlsplit(url)
    if (
        parts.scheme != "s3"
        or not parts.netloc
        or parts.netloc != parts.hostname
        or parts.query
        or parts.fragment
    ):
        raise ImproperlyConfigured(
            "EMBEDDINGS_STORAGE is to be s3://BUCKET or s3://BUCKET/PREFIX. Keys and address of the server belong into "
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
