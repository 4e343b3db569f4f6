"""A site that is not to be trusted, or that is none: where its files go, who gets the token, what is printed."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runboard.cli import main
from runboard.login import config_path, write_login
from runboard.terminal import printable
from tests.client.loopback import Answer, Loopback, Request, playing

CONTENT = b"what the site has\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ESCAPES = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202e"


class Site:
    """Responses of a site, which tests can change."""

    def __init__(self) -> None:
        self.file: dict[str, Any] = {
            "name": "qrels.test.tsv.gz", "description": "", "size": len(CONTENT), "sha256": SHA256, "kind": "qrels",
            "url": "http://elsewhere.invalid//file",
        }  # fmt: skip
        self.recipe: dict[str, Any] = {
            "dataset": "small", "configuration": "", "reason": "", "engine": "bm25", "parameters": {}, "checkpoint": {},
            "language": "en", "drop_self_matches": False, "depth": 10, "tag": "x", "run_sha256": "x",
            "files": {"qrels": SHA256, "corpus": SHA256, "queries": SHA256}, "scores": {}, "software": "0.1.0",
        }  # fmt: skip
        self.all: Answer | None = None

    def answer(self, asked: Request) -> Answer:
        if self.all is not None:
            return self.all
        if asked.path.endswith("/recipes/"):
            return Answer([self.recipe])
        return Answer([self.file]) if asked.path.endswith("/files/") else Answer(CONTENT)


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def server(site: Site) -> Iterator[Loopback]:
    with playing(site.answer) as found:
        yield found


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands run in an empty folder, in which nobody has logged in."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("RUNBOARD_URL", "RUNBOARD_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return home


def tokens(server: Loopback) -> set[str]:
    return {asked.headers.get("Authorization", "") for asked in server.asked}


# --- where files go


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", ["/tmp/absolute", "../beside", "a/b", ".bashrc", "", "..", "a\\b", "a\x00", "C:x"])
@pytest.mark.parametrize("place", ["file", "dataset"])
def test_only_plain_names_are_written(
    place: str, name: str, site: Site, server: Loopback, at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if place == "file":
        site.file["name"] = name
        assert main(["--url", server.address, "download", "small"]) == 3
        assert "not a plain name" in capsys.readouterr().err
    else:
        site.recipe["dataset"] = name
    assert main(["reproduce", f"{server.address}systems/x/"]) == 3
    assert "not a plain name" in capsys.readouterr().err
    assert list(at_home.parent.rglob("*")) == [at_home]


@pytest.mark.usefixtures("package")
def test_a_collection_that_is_none_is_no_traceback(server: Loopback, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", f"{server.address}systems/x/"]) == 0
    assert "small: cannot be reproduced. Its inputs cannot be read:" in capsys.readouterr().out


def test_a_file_of_ones_own_is_not_replaced(
    server: Loopback, at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (at_home / "small").mkdir()
    mine, words = at_home / "small" / "qrels.test.tsv.gz", ["--url", server.address, "download", "small"]
    mine.write_text("mine")
    assert main(words) == 2
    assert "--force" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert main([*words, "--force"]) == 0
    assert mine.read_bytes() == CONTENT
    times = len(server.asked)
    assert main(words) == 0
    assert len(server.asked) == times + 1, "what is there is not brought again"


def test_no_more_is_written_than_was_said(
    site: Site, server: Loopback, at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.file["size"] = 3
    assert main(["--url", server.address, "download", "small"]) == 3
    assert "longer than the 3 bytes" in capsys.readouterr().err
    assert not list((at_home / "small").iterdir())


def test_a_sites_files_lie_in_a_folder_of_their_own(site: Site, server: Loopback, at_home: Path) -> None:
    site.file["name"] = "json.py"
    assert main(["--url", server.address, "download", "small"]) == 0
    assert [path.name for path in at_home.iterdir()] == ["small"]
    site.all = Answer({"detail": "Not found."}, 404)
    assert main(["--url", server.address, "download", "mistyped"]) == 1
    assert [path.name for path in at_home.iterdir()] == ["small"]


@pytest.mark.usefixtures("package")
def test_a_depth_that_no_machine_holds_is_not_believed(
    site: Site, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    site.recipe["depth"] = 10**12
    assert main(["reproduce", f"{server.address}systems/x/"]) == 0
    assert "cannot be reproduced. The site states a depth of 1,000,000,000,000" in capsys.readouterr().out


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    "members", [{"../../beside": b""}, {"zeros": bytes(2 << 20)}, {str(number): b"" for number in range(65)}]
)
def test_a_models_zip_is_opened_as_the_site_opens_it(members: dict[str, bytes], tmp_path: Path) -> None:
    from runboard_eval.checkpoints.rebuilding import open_checkpoint
    from runboard_eval.core.problems import InvalidContent

    with zipfile.ZipFile(tmp_path / "model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    (tmp_path / "scratch").mkdir()
    with pytest.raises(InvalidContent):
        open_checkpoint(tmp_path / "model.zip", [], tmp_path / "scratch")
    assert not (tmp_path / "beside").exists()


# --- what is answered


@pytest.mark.parametrize(
    ("words", "content"),
    [
        ("datasets", b"<html>maintenance</html>"),
        ("datasets", {"hello": 1}),
        ("datasets", {"datasets": [{"slug": 1}]}),
        ("status", [1, 2]),
        ("status x", None),
        ("board x", {"rows": {}}),
        ("download x", [{"name": None}]),
        ("export x", None),
    ],
)
def test_what_no_site_answers_is_said_in_a_line(
    words: str, content: Any, site: Site, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    site.all = Answer(content, 302 if words.startswith("export") else 200, {"Location": "/again"})
    assert main(["--url", server.address, *words.split()]) == 3
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert server.address.rstrip("/") in said.err
    assert not said.out


def test_an_answer_without_end_is_not_kept(
    site: Site, server: Loopback, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("runboard.untrusted.MAX_BYTES", 1000)
    site.all = Answer(b" " * 5000)
    assert main(["--url", server.address, "datasets"]) == 3
    assert "more than 1,000 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("code", [200, 400])
def test_a_site_cannot_write_to_the_terminal_but_text(
    code: int, site: Site, server: Loopback, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    problem = {
        "severity": "error",
        "code": "x",
        "count": 1,
        "lines": [1],
        "message": ESCAPES,
        "hint": ESCAPES,
    }
    read = {
        "lines": 1,
        "queries": 1,
        "known_queries": 1,
        "depth": 1,
        "expanded_bytes": 1,
        "tags": [],
        "metadata": {},
    }
    report = {"valid": False, "problems": [problem], "statistics": read, "checkpoint": None, "pending": []}
    site.all = Answer(report if code == 200 else {"detail": ESCAPES, "problems": [problem]}, code)
    (tmp_path / "run").write_text("x")
    for more in ([], ["--json"]):
        assert main(["--url", server.address, "check", "small", str(tmp_path / "run"), *more]) == 1
        said = capsys.readouterr()
        assert "]52;c;" in said.out + said.err
        assert not set(ESCAPES) & set(said.out + said.err) & set("\x1b\x07\x9b\u202e")
    if code == 200:
        assert json.loads(said.out)["problems"][0]["message"] == ESCAPES


def test_words_of_any_language_are_printed_as_they_are() -> None:
    assert printable("naïve 検索 עברית\tx\n") == "naïve 検索 עברית\tx\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("board beir", "no dataset or benchmark “beir”"),
        ("export small --format zzz", "no format “zzz”"),
        ("status x", "api/v1/submissions/x/"),
        ("board small --view nonsense=1", "has no nonsense"),
    ],
)
def test_what_is_not_there_is_named(
    words: str, said: str, site: Site, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    site.all = Answer({"detail": "Not found."}, 404)
    assert main(["--url", server.address, *words.split()]) in (1, 2)
    assert said in capsys.readouterr().err


# --- who gets the token


@pytest.mark.parametrize("words", ["reproduce {}systems/x/", "--url {} datasets"])
def test_a_pasted_address_gets_no_token(
    words: str,
    site: Site,
    server: Loopback,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site.all = Answer({"detail": "Who are you?"}, 401)
    monkeypatch.setenv("RUNBOARD_TOKEN", "SECRET")
    monkeypatch.setenv("RUNBOARD_URL", "http://127.0.0.1:1")
    write_login("http://127.0.0.1:2/", "KEPT")
    assert main(words.format(server.address).split()) == 1
    monkeypatch.delenv("RUNBOARD_URL")
    assert main(words.format(server.address).split()) == 1
    assert tokens(server) == {""}
    assert "RUNBOARD_TOKEN is only for the site of RUNBOARD_URL" in capsys.readouterr().err


def test_the_site_that_is_meant_gets_it(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNBOARD_URL", server.address.rstrip("/"))
    monkeypatch.setenv("RUNBOARD_TOKEN", " SECRET\n")
    main(["download", "small"])
    assert tokens(server) == {"Bearer SECRET"}
    monkeypatch.delenv("RUNBOARD_URL")
    write_login(server.address, "KEPT")
    server.asked.clear()
    main(["download", "small"])
    assert tokens(server) == {"Bearer SECRET"}
    monkeypatch.delenv("RUNBOARD_TOKEN")
    server.asked.clear()
    main(["--url", server.address, "download", "small"])
    assert tokens(server) == {"Bearer KEPT"}


def test_a_token_with_a_line_break_is_not_quoted(
    server: Loopback, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNBOARD_URL", server.address)
    monkeypatch.setenv("RUNBOARD_TOKEN", "first\nsecond")
    assert main(["datasets"]) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("fi rst\n"))
    assert main(["login", server.address]) == 2
    said = capsys.readouterr().err
    assert said.count("line break") == 2
    assert not any(part in said for part in ("first", "second", "fi rst"))
    assert not server.asked


@pytest.mark.parametrize("code", [200, 307])
@pytest.mark.parametrize("token", ["", "SECRET"])
def test_no_site_gets_a_netrc_password(
    token: str, code: int, site: Site, server: Loopback, at_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = at_home / "netrc"
    netrc.write_text("default login alice password s3cret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("RUNBOARD_URL", server.address)
    monkeypatch.setenv("RUNBOARD_TOKEN", token)
    with playing(site.answer) as other:
        if code == 307:
            site.all = Answer(b"", 307, {"Location": other.address.replace("127.0.0.1", "localhost")})
        main(["download", "small"])
    assert tokens(server) == {f"Bearer {token}" if token else ""}
    assert tokens(other) <= {""}


@pytest.mark.parametrize("address", ["http://bob:pw9@{}", "http://bob@{}", "http://{}?key=pw9", "http://{}#pw9"])
def test_an_address_with_a_password_is_refused(
    address: str, server: Loopback, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = address.format(server.address.removeprefix("http://"))
    monkeypatch.setattr("sys.stdin", io.StringIO("tok123\n"))
    assert main(["login", address]) == 2
    assert main(["--url", address, "datasets"]) == 2
    said = capsys.readouterr().err
    assert said.count("without a user, a password") == said.count("\n") == 2
    assert "pw9" not in said
    assert not config_path().exists()
    assert not server.asked


@pytest.mark.parametrize("kept", ["[1]", "{", '{"url": 1, "token": null}'])
def test_a_login_that_is_broken_is_named(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    config_path().parent.mkdir(parents=True)
    config_path().write_text(kept)
    assert main(["datasets"]) == 2
    assert f"{config_path()} is not a file of" in capsys.readouterr().err
