"""Slugs for URLs."""

import re
from collections.abc import Container
from itertools import chain, count

from django.utils.text import slugify


def name_slug(name: str) -> str:
    """Return the slug of a name, separating versions and paths by hyphens: `base.v3` becomes `base-v3`."""
    return slugify(re.sub(r"[./]", "-", name))


def first_unused(base: str, used: Container[str]) -> str:
    """Return `base`, or the first of `base-2`, `base-3`, … that is not in `used`."""
    candidates = chain([base], (f"{base}-{number}" for number in count(2)))
    return next(candidate for candidate in candidates if candidate not in used)
