"""StdlibSearch as a dataset of the site, and as two: an open half of the topics, and a hidden one."""

from dataclasses import replace
from pathlib import Path

from leaderboard.importing.collections.halves import import_twin
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.options import ImportOptions
from leaderboard.importing.demo.stdlib_search import DESCRIPTION, NAME, QUERIES, VERSION, build_stdlib_search
from leaderboard.models import Dataset

DEMO_SLUG = "stdlibsearch"
_OPTIONS = ImportOptions(
    slug=DEMO_SLUG,
    name=NAME,
    task="Code search",
    domain="Software",
    licence="PSF-2.0",
    homepage="https://docs.python.org/3/library/",
    description=DESCRIPTION,
    version_label=VERSION,
)


def make_demo_collection(folder: Path) -> Dataset:
    """Make the collection in `folder` and import it, open; its baseline is requested by the import."""
    return import_dataset(build_stdlib_search(folder), replace(_OPTIONS, hidden=False)).dataset


def make_demo_twin(folder: Path) -> tuple[Dataset, Dataset]:
    """The same with as many other topics as its hidden half, which is imported, too."""
    build_stdlib_search(folder, queries=2 * QUERIES)
    words = (
        f"{DESCRIPTION} Half of the questions have hidden judgements: the two boards together show how much "
        "more a system gains on public ones. Anyone with this Python has the answers: this is an example, not a secret."
    )
    public, hidden = import_twin(folder, replace(_OPTIONS, description=words), 0.5, seed=0)
    return public.dataset, hidden.dataset
