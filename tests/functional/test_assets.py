"""What comes from npm: checked by its sha512, all of it or nothing, and the site goes on without it."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import re
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leaderboard.core.staticfiles import BUNDLE, PlotlyBundleFinder

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "assets/fetch.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("fetch", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, without a line for each request."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A registry of npm's with the files of a folder."""
    folder = tmp_path / "registry"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *given: Quiet(*given, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://127.0.0.1:{server.server_port}/")
    yield folder
    server.shutdown()
    server.server_close()


def publish(registry: Path, name: str, content: bytes) -> str:
    """Version 1.0 of a package with a single file; its sha512."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as files:
        member = tarfile.TarInfo("package/dist/it.js")
        member.size = len(content)
        files.addfile(member, io.BytesIO(content))
    path = registry / name / "-" / f"{name.rpartition('/')[2]}-1.0.tgz"
    path.parent.mkdir(parents=True)
    path.write_bytes(archive.getvalue())
    return base64.b64encode(hashlib.sha512(archive.getvalue()).digest()).decode()


def test_files_are_fetched_and_a_changed_archive_leaves_what_there_was(
    script: ModuleType, registry: Path, tmp_path: Path
) -> None:
    files = {"dist/it.js": "js/it.js"}
    good = script.Package("@by/good", "1.0", publish(registry, "@by/good", b"good"), files)
    other = script.Package("other", "1.0", good.sha512, {"dist/it.js": "js/other.js"})
    publish(registry, "other", b"other")
    folder = tmp_path / "made"
    script.fetch(folder, (good,))
    assert (folder / "js/it.js").read_bytes() == b"good"
    for missing in re.findall(r'url\("\.\./fonts/([\w.-]+)"', (folder / "css/fonts.css").read_text()):
        assert f"fonts/{missing}" in {place for each in script.PACKAGES for place in each.files.values()}
    with pytest.raises(script.NotFetchedError, match=r"other 1\.0 is not the file whose sha512"):
        script.fetch(folder, (good, other))
    assert (folder / "js/it.js").read_bytes() == b"good"
    assert not (folder / "js/other.js").exists()


def test_without_a_registry_one_line_says_what_is_served(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "made"],
        env={"NPM_CONFIG_REGISTRY": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert re.fullmatch(r"Without npm's files, the site serves plotly's whole bundle .+\n", done.stdout)
    assert not (tmp_path / "made").exists()


def test_the_small_bundle_is_of_the_wheels_version(script: ModuleType) -> None:
    whole = Path(PlotlyBundleFinder().find(f"plotly/{BUNDLE}"))
    with whole.open() as file:
        head = file.read(200)
    version = next(each.version for each in script.PACKAGES if each.name.startswith("plotly.js"))
    assert f"plotly.js v{version}\n" in head
