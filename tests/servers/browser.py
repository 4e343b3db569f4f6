"""The system's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
import subprocess

from playwright.sync_api import Browser, Playwright

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
#: It resolves no name but this machine's, and asks nobody for updates. Playwright itself turns the sandbox off.
ARGUMENTS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
]


class NoBrowser(Exception):
    """There is no Chromium here, and none can be installed."""


def launch(playwright: Playwright) -> Browser:
    """A headless Chromium. Raises NoBrowser."""
    return playwright.chromium.launch(executable_path=find_or_install(), args=ARGUMENTS)


def find_or_install() -> str:
    """The path of a Chromium: RUNBOARD_CHROMIUM, on PATH, or installed now where apt-get may. Raises NoBrowser."""
    if named := os.environ.get("RUNBOARD_CHROMIUM", ""):
        return named
    if found := _on_path():
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
        if found := _on_path():
            return found
        raise NoBrowser("there is no Chromium, and apt-get could not install one")
    raise NoBrowser("there is no Chromium on PATH (RUNBOARD_CHROMIUM may name one elsewhere)")


def _on_path() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def _install() -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        subprocess.run(["apt-get", "-qq", *command], env=environment, timeout=300, check=False)
