"""StdlibSearch as a dataset of the site."""

from __future__ import annotations

from pathlib import Path

from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.options import ImportOptions
from leaderboard.importing.demo.stdlib_search import build_stdlib_search
from leaderboard.models import Dataset

DEMO_SLUG = "stdlibsearch"


def make_demo_collection(folder: Path) -> Dataset:
    """Make the collection in `folder` and import it, open; its baseline is requested by the import."""
    built = build_stdlib_search(folder)
    options = ImportOptions(
        slug=DEMO_SLUG,
        name=built.name,
        task="Code search",
        domain="Software",
        licence="PSF-2.0",
        homepage="https://docs.python.org/3/library/",
        description=built.description,
        hidden=False,
        version_label=built.version,
    )
    return import_dataset(folder, options).dataset
