"""What the tests of doors share: a site that has one of everything."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.content import Site, build


@pytest.fixture
def site(db: None, settings: Any, tmp_path: Path) -> Iterator[Site]:
    """One of everything; refusals by the thousand are not logged, and limits are counted in this process."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.STAFF_MFA_REQUIRED = True
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    logging.disable(logging.CRITICAL)
    yield build(tmp_path)
    logging.disable(logging.NOTSET)
