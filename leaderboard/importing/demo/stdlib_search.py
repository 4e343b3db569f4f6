"""StdlibSearch: a test collection generated from the standard library of the running Python.

The collection consists of real text and needs no download. It is the same for every installation of a Python version,
which is therefore part of the collection's version.
"""

import platform
import sysconfig
from pathlib import Path

from leaderboard.importing.topics.code_search import build_collection, read_distinct_functions

DEMO_SLUG, NAME, VERSION = "stdlibsearch", "StdlibSearch", f"python-{platform.python_version()}"
DESCRIPTION = (
    f"Functions of the standard library of Python {platform.python_version()}, searched with the first "
    "sentences of their docstrings. Generated locally."
)
QUERIES = 300


def build_stdlib_search(folder: Path, library: Path | None = None, queries: int = QUERIES) -> Path:
    """Write the collection into `folder`, as `build_collection` does, and return `folder`.

    `library` is the folder of the standard library, by default that of the running Python.
    """
    return build_collection(folder, read_distinct_functions(library or Path(sysconfig.get_path("stdlib"))), queries)
