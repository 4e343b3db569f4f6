"""Clicks of a user in a browser, counted."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator


class Clicks:
    """Clicks elements of a page and counts the clicks. Choosing a file counts as one; typing counts as none."""

    def __init__(self) -> None:
        self.count = 0

    def on(self, element: Locator) -> None:
        """Click an element."""
        self.count += 1
        element.click()

    def choose_file(self, field: Locator, path: Path) -> None:
        """Click a file field and choose a file in the browser's dialog."""
        with field.page.expect_file_chooser() as chooser:
            self.on(field)
        chooser.value.set_files(path)
