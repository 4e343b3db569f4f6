"""Take the README's screenshots: a board of the demo site in light and dark mode, written to docs/images/.

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


def main() -> int:
    """Start a demo site in a temporary folder, save one picture per color scheme, and stop the site."""
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
            with sync_playwright() as playwright:
                chromium = browser.launch(playwright)
                for scheme in ("light", "dark"):
                    page = chromium.new_page(viewport=SIZE, color_scheme=scheme, device_scale_factor=1)
                    page.goto(f"http://127.0.0.1:{port}{BOARD}", wait_until="networkidle")
                    page.screenshot(path=IMAGES / f"board-{scheme}.png")
                chromium.close()
        finally:
            site.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
