"""Scripts that come in installed packages and are served as files of this site: plotly.js, out of plotly's wheel."""

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import FileSystemStorage

PREFIX = "plotly"
BUNDLE = "plotly.min.js"


class PlotlyBundleFinder(BaseFinder):
    """Finds `plotly/plotly.min.js`, and nothing else of what the wheel carries.

    The package is looked up, never imported: only what draws a figure loads it.
    """

    def __init__(self, app_names: Iterable[str] | None = None, *args: Any, **kwargs: Any) -> None:
        self._storage = FileSystemStorage(location=_folder())
        self._storage.prefix = PREFIX  # type: ignore[attr-defined]  # where collectstatic puts it
        super().__init__(*args, **kwargs)

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """The bundle's path on disk, for the development server."""
        if path != f"{PREFIX}/{BUNDLE}":
            return []
        found = self._storage.path(BUNDLE)
        return [found] if find_all else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, FileSystemStorage]]:
        """The bundle and the storage that has it, for collectstatic."""
        yield BUNDLE, self._storage


def _folder() -> Path:
    package = find_spec("plotly")
    if package is None or not package.submodule_search_locations:
        raise ImproperlyConfigured(
            "plotly is not installed: `pip install -r requirements.txt` brings it, and plotly.js with it"
        )
    return Path(package.submodule_search_locations[0]) / "package_data"
