"""Addresses made of names."""

import re

from django.utils.text import slugify


def name_slug(name: str) -> str:
    """The name as an address has it: versions and paths keep their parts, as `base.v3` is `base-v3`."""
    return slugify(re.sub(r"[./]", "-", name))
