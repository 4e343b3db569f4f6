"""Slugs for URLs."""

import re

from django.utils.text import slugify


def name_slug(name: str) -> str:
    """Return the slug of a name, separating versions and paths by hyphens: `base.v3` becomes `base-v3`."""
    return slugify(re.sub(r"[./]", "-", name))
