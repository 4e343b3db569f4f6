"""StdlibSearch as a dataset of the site, and as two: an open half of the topics, and a hidden one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from leaderboard.importing.collections.halves import import_twin
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.options import ImportOptions
from leaderboard.importing.demo.stdlib_search import QUERIES, StdlibSearch, build_stdlib_search
from leaderboard.models import Dataset

DEMO_SLUG = "stdlibsearch"


def make_demo_collection(folder: Path) -> Dataset:
    """Make the collection in `folder` and import it, open; its baseline is requested by the import."""
    built = build_stdlib_search(folder)
    return import_dataset(folder, replace(_options(built), hidden=False)).dataset


def make_demo_twin(folder: Path) -> tuple[Dataset, Dataset]:
    """The same with as many other topics as its hidden half, which is imported, too."""
    built = build_stdlib_search(folder, queries=2 * QUERIES)
    words = (
        f"{built.description} Half of the questions have hidden judgements: the two boards together show how much "
        "more a system gains on public ones. Anyone with this Python has the answers: this is an example, not a secret."
    )
    public, hidden = import_twin(folder, replace(_options(built), description=words), 0.5, seed=0)
    return public.dataset, hidden.dataset


def _options(built: StdlibSearch) -> ImportOptions:
    return ImportOptions(
        slug=DEMO_SLUG,
        name=built.name,
        task="Code search",
        domain="Software",
        licence="PSF-2.0",
        homepage="https://docs.python.org/3/library/",
        description=built.description,
        version_label=built.version,
    )
