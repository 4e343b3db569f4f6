"""Take the screenshots of a board of the demo site in light and dark mode, written to docs/images/.

The README shows `board-*.png`. *Read a board* shows a picture of each part that it explains, `part-NAME-*.png`, and on
phones `part-NAME-*-phone.png`.

.venv/bin/python -m tests.screenshot
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.functional.starting import Supervisor, free_port
from tests.servers import browser

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
#: A published table of the demo site: it is the same on every machine, unlike boards with measured latencies.
BOARD = "/benchmarks/beir/"
SIZE = {"width": 1280, "height": 800}
#: Windows for pictures of parts, by suffix. The first one has the width of the text in the documentation, with margins.
WINDOWS = {"": {"width": 880, "height": 900}, "-phone": {"width": 390, "height": 840}}
#: Elements that a picture shows, by the name of the part. The numbers in the pictures are those of *Read a board*.
PARTS = {
    "name": ".board-head",
    "summary": ".verdict .headline, .verdict .statements",
    "plot": ".forest",
    "bar": ".board-bar",
    "table": "#board-table thead, #board-table tbody tr:nth-child(-n+5)",
}
#: Returns the area of all visible elements of a selector, with margins.
AREA = """selector => {
  const boxes = [...document.querySelectorAll(selector)].map(element => element.getBoundingClientRect())
    .filter(box => box.width && box.height);
  const x = Math.min(...boxes.map(box => box.left)) - 8, y = Math.min(...boxes.map(box => box.top)) + scrollY;
  const right = Math.max(...boxes.map(box => box.right)), bottom = Math.max(...boxes.map(box => box.bottom)) + scrollY;
  return { x, y, width: Math.min(right, innerWidth - 8) + 8 - x, height: bottom - y };
}"""
#: Height in pixels of the line with a part's number above its picture.
NUMBER_HEIGHT = 32
#: Writes a number on a line above an area, and returns the area with this line.
NUMBERED = """([{ x, y, width, height }, number, line]) => {
  const label = document.body.appendChild(document.createElement("b"));
  label.textContent = number;
  Object.assign(label.style, {
    position: "absolute", zIndex: 99, left: `${x}px`, top: `${y - line}px`, width: `${width}px`, height: `${line}px`,
    padding: "0 8px", background: "var(--paper)", color: "var(--link)", font: "600 20px/28px var(--sans)",
  });
  return { x, y: y - line, width, height: height + line };
}"""


def take_pictures(site: str) -> None:
    """Save a picture of the board and of its parts for each color scheme."""
    with sync_playwright() as playwright:
        chromium = browser.launch(playwright)
        for scheme in ("light", "dark"):
            page = chromium.new_page(viewport=SIZE, color_scheme=scheme, device_scale_factor=1)
            page.goto(f"{site}{BOARD}", wait_until="networkidle")
            page.screenshot(path=IMAGES / f"board-{scheme}.png")
            for suffix, window in WINDOWS.items():
                page = chromium.new_page(viewport=window, color_scheme=scheme, device_scale_factor=2)
                page.goto(f"{site}{BOARD}", wait_until="networkidle")
                take_parts(page, f"{scheme}{suffix}")
        chromium.close()


def take_parts(page: Page, suffix: str) -> None:
    """Save a picture of each part of the board."""
    for number, (name, selector) in enumerate(PARTS.items(), 1):
        area = page.evaluate(NUMBERED, [page.evaluate(AREA, selector), number, NUMBER_HEIGHT])
        page.screenshot(path=IMAGES / f"part-{name}-{suffix}.png", full_page=True, clip=area)
        page.locator("body > b").evaluate("label => label.remove()")


def main() -> int:
    """Start a demo site in a temporary folder, take the pictures, and stop the site."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        site = Supervisor(
            ["manage.py", "runboard"],
            Path(folder) / "mark",
            RUNBOARD_VAR=str(Path(folder) / "var"),
            PORT=str(port),
            REDIS_URL=None,
            DATABASE_URL=None,
        )
        try:
            site.wait_for("Ready in", 600)
            take_pictures(f"http://127.0.0.1:{port}")
        finally:
            site.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
