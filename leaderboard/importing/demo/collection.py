"""StdlibSearch as two datasets of the site: an open one, and its hidden half."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.options import ImportOptions
from leaderboard.importing.demo.stdlib_search import StdlibSearch, build_stdlib_search
from leaderboard.models import Dataset

DEMO_SLUG, HIDDEN_SLUG = "stdlibsearch", "stdlibsearch-hidden"


def make_demo_collection(folder: Path) -> Dataset:
    """Make the collection in `folder` and import it, open; its baseline is requested by the import."""
    return import_dataset(folder, _options(build_stdlib_search(folder))).dataset


def make_demo_twin(folder: Path) -> tuple[Dataset, Dataset]:
    """The same, and its hidden half."""
    built = build_stdlib_search(folder)
    options = _options(built)
    public = import_dataset(folder, options).dataset
    words = (
        f"{built.description} Its questions are of the same kind as those of StdlibSearch, so that the two boards show "
        "a contamination gap. The library tells the answers: this half shows how it works, and keeps no secret."
    )
    hidden = replace(
        options,
        slug=HIDDEN_SLUG,
        name=f"{built.name} (hidden half)",
        description=words,
        hidden=True,
        twin_of=DEMO_SLUG,
    )
    return public, import_dataset(built.hidden_half, hidden).dataset


def _options(built: StdlibSearch) -> ImportOptions:
    return ImportOptions(
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
