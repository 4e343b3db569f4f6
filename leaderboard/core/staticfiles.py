"""Static files finder for plotly.js, which is part of plotly's Python package."""

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
    """Finder that finds only `plotly/plotly.min.js`.

    The package is located without importing it, because only code that draws figures should import it.
    """

    def __init__(self, app_names: Iterable[str] | None = None, *args: Any, **kwargs: Any) -> None:
        package = find_spec("plotly")
        if package is None or not package.submodule_search_locations:
            raise ImproperlyConfigured(
                "plotly is not installed. Run `pip install -r requirements.txt`, which also provides plotly.js."
            )
        folder = Path(package.submodule_search_locations[0]) / "package_data"
        self._storage = FileSystemStorage(location=folder)
        self._storage.prefix = PREFIX  # type: ignore[attr-defined]  # The target folder of collectstatic.
        super().__init__(*args, **kwargs)

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """Return the bundle's path, for the development server."""
        if path != f"{PREFIX}/{BUNDLE}":
            return []
        bundle = self._storage.path(BUNDLE)
        return [bundle] if find_all else bundle

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, FileSystemStorage]]:
        """Yield the bundle and its storage, for collectstatic."""
        yield BUNDLE, self._storage
