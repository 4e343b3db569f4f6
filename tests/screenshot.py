"""Take the screenshots of a board of the demo site in light and dark mode, written to docs/images/.

The README shows `board-*.png`. *Read a board* shows `parts-*.png`, which have numbers at the parts that it explains,
and on phones `parts-*-phone.png`.

.venv/bin/python -m tests.screenshot
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.functional.starting import Supervisor, free_port
from tests.servers import browser

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
#: A published table of the demo site: it is the same on every machine, unlike boards with measured latencies.
BOARD = "/benchmarks/beir/"
SIZE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 840}
#: Parts of a board in the order in which *Read a board* lists them.
PARTS = (".board-head", ".verdict .headline", ".forest", ".board-bar", "#board-table")
#: Adds a numbered disc at the upper left corner of each part, or at its right if the page has no margin.
ADD_NUMBERS = """selectors => selectors.forEach((selector, index) => {
  const part = [...document.querySelectorAll(selector)].find((element) => element.offsetWidth);
  const { left, top } = part.getBoundingClientRect(), disc = document.createElement("b");
  const x = left < 28 ? innerWidth - 26 : left - 28;
  disc.textContent = index + 1;
  Object.assign(disc.style, {
    position: "absolute", left: `${x}px`, top: `${top}px`, width: "22px", height: "22px", zIndex: 9,
    borderRadius: "11px", background: "#c2410c", color: "#fff", font: "600 13px/22px sans-serif", textAlign: "center",
  });
  document.body.append(disc);
})"""


def take_pictures(site: str) -> None:
    """Save three pictures for each color scheme, two of them with numbered parts."""
    with sync_playwright() as playwright:
        chromium = browser.launch(playwright)
        for scheme in ("light", "dark"):
            page = chromium.new_page(viewport=SIZE, color_scheme=scheme, device_scale_factor=1)
            page.goto(f"{site}{BOARD}", wait_until="networkidle")
            page.screenshot(path=IMAGES / f"board-{scheme}.png")
            page.evaluate(ADD_NUMBERS, PARTS)
            page.screenshot(path=IMAGES / f"parts-{scheme}.png")
            phone = chromium.new_page(viewport=PHONE, color_scheme=scheme, device_scale_factor=2, is_mobile=True)
            phone.goto(f"{site}{BOARD}", wait_until="networkidle")
            phone.evaluate(ADD_NUMBERS, PARTS)
            phone.screenshot(path=IMAGES / f"parts-{scheme}-phone.png")
        chromium.close()


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
