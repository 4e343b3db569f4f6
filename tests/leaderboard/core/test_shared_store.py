"""The store of several hosts: what one sends, another has; what is damaged, hidden or old."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from leaderboard.core.storage import shared
from leaderboard.core.storage.runs import read_text, run_path, store_run
from leaderboard.core.storage.store import Area, local_path, path_of, put
from leaderboard.management.backup import make_backup
from submissions.jobs.cleanup import remove_unreferenced

Be = Callable[[str], None]


@pytest.fixture
def be(tmp_path: Path, settings: Any) -> Be:
    """Be another host: one with a store of its own, and a storage that all have."""
    settings.STORAGES = {
        **settings.STORAGES,
        "store": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path / "shared"), "allow_overwrite": True},
        },
    }

    def become(host: str) -> None:
        settings.VAR = tmp_path / host
        settings.VAR.mkdir(exist_ok=True)

    become("site")
    return become


def objects(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "shared").rglob("*") if path.is_file())


def written(tmp_path: Path, content: bytes = b"a corpus") -> Path:
    path = tmp_path / "written"
    path.write_bytes(content)
    return path


def make_old(paths: list[Path]) -> None:
    then = time.time() - 2 * 86400
    for path in paths:
        os.utime(path, (then, then))


def test_what_one_host_stores_another_reads(be: Be, tmp_path: Path) -> None:
    corpus = put(Area.FILES, written(tmp_path))
    be("worker")
    assert not path_of(Area.FILES, corpus).exists()
    assert local_path(Area.FILES, corpus).read_bytes() == b"a corpus"
    run = store_run(b"q1 Q0 d1 1 2.0 tag\n")
    be("site")
    assert read_text(run.sha256) == b"q1 Q0 d1 1 2.0 tag\n"
    assert not run_path("f" * 64).exists()
    assert not [path for path in tmp_path.rglob(".partial-*") if path.name != ".partial-fetching"]


def test_folders_travel_whole(be: Be, tmp_path: Path) -> None:
    checkpoint = tmp_path / "site" / "store" / "checkpoints" / "house" / ("c" * 64)
    (checkpoint / "1_Pooling").mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(b"weights")
    (checkpoint / "1_Pooling" / "config.json").write_bytes(b"{}")
    shared.send(checkpoint)
    be("worker")
    here = shared.ensure_local(tmp_path / "worker" / "store" / "checkpoints" / "house" / ("c" * 64))
    assert sorted(path.relative_to(here).as_posix() for path in here.rglob("*")) == [
        "1_Pooling", "1_Pooling/config.json", "model.safetensors",
    ]  # fmt: skip
    assert (here / "model.safetensors").read_bytes() == b"weights"


def test_judgements_and_uploads_stay_on_their_host(be: Be, tmp_path: Path) -> None:
    for area in (Area.QRELS, Area.CURATION, Area.UPLOADS, Area.PROFILES):
        sha256 = put(area, written(tmp_path, area.value.encode()))
        assert local_path(area, sha256).exists()
    assert objects(tmp_path) == []


@pytest.mark.parametrize("damage", [b"", b"a corpsu", b"a corpus and more"])
def test_what_comes_back_damaged_is_not_taken_and_is_sent_again(
    be: Be, tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = put(Area.FILES, written(tmp_path))
    [content] = [path for path in objects(tmp_path) if path.name == corpus]
    content.write_bytes(damage)
    be("worker")
    assert not local_path(Area.FILES, corpus).exists()
    assert "is damaged on shared storage" in caplog.text
    be("site")
    put(Area.FILES, written(tmp_path))
    be("worker")
    assert local_path(Area.FILES, corpus).read_bytes() == b"a corpus"


def test_what_was_sent_by_half_is_not_there(be: Be, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> None:
        raise ConnectionError("the storage is away")

    with monkeypatch.context() as patch:
        patch.setattr("leaderboard.core.storage.bundles.Bundle.publish", lost)
        with pytest.raises(ConnectionError):
            put(Area.FILES, written(tmp_path))
    [content] = objects(tmp_path)
    be("worker")
    assert not local_path(Area.FILES, content.name).exists()
    be("site")
    corpus = put(Area.FILES, written(tmp_path))
    be("worker")
    assert local_path(Area.FILES, corpus).exists()


@pytest.mark.django_db
def test_the_sweep_takes_what_no_row_names_here_and_there(be: Be, tmp_path: Path) -> None:
    old = store_run(b"q1 Q0 d1 1 2.0 old\n").sha256
    be("worker")
    store_run(b"q1 Q0 d1 1 2.0 lost\n")  # by a worker that died before its row
    be("site")
    make_old([run_path(old), *objects(tmp_path)])
    new = store_run(b"q1 Q0 d1 1 2.0 new\n").sha256
    remove_unreferenced()
    assert {path.parent.name for path in objects(tmp_path)} == {new}
    assert not path_of(Area.RUNS, old).exists()
    assert path_of(Area.RUNS, new).exists()


def test_copies_go_when_they_take_too_much_and_come_back(be: Be, tmp_path: Path) -> None:
    first, second = (put(Area.FILES, written(tmp_path, text)) for text in (b"first", b"second"))
    be("worker")
    paths = [local_path(Area.FILES, sha256) for sha256 in (first, second)]
    alone = paths[0].with_name("e" * 64)
    alone.write_bytes(b"nobody else has this")
    assert shared.trim_copies(0) == 0  # they were used a moment ago
    make_old([*paths, alone])
    assert shared.trim_copies(len(b"second") + len(b"nobody else has this")) == 1
    assert shared.trim_copies(0) == 1
    assert [path.exists() for path in (*paths, alone)] == [False, False, True]
    assert local_path(Area.FILES, first).read_bytes() == b"first"


def test_a_copy_that_is_used_meanwhile_stays_and_none_is_left_by_half(
    be: Be, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker of the host begins with it; this one is killed while it removes it."""
    folder = path_of(Area.CHECKPOINTS, "a" * 64)
    folder.mkdir(parents=True)
    for name in ("checkpoint.json", "model.safetensors"):
        (folder / name).write_bytes(name.encode())
    shared.send(folder)
    make_old([folder])
    is_intact = shared.Bundle.is_intact

    def begins(bundle: shared.Bundle) -> bool:
        shared.ensure_local(folder)
        return is_intact(bundle)

    with monkeypatch.context() as patch:
        patch.setattr(shared.Bundle, "is_intact", begins)
        assert shared.trim_copies(0) == 0
    assert len(list(folder.iterdir())) == 2

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    make_old([folder])
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            shared.trim_copies(0)
    assert not folder.exists()
    assert len(list(shared.ensure_local(folder).iterdir())) == 2


@pytest.mark.django_db(transaction=True)
def test_a_backup_has_what_other_hosts_stored(be: Be, tmp_path: Path) -> None:
    be("worker")
    run = store_run(b"q1 Q0 d1 1 2.0 tag\n").sha256
    be("site")
    make_backup(tmp_path / "backups", [], [])
    assert path_of(Area.RUNS, run).exists()


def test_a_store_of_before_is_sent_by_a_command(be: Be, tmp_path: Path, settings: Any) -> None:
    storages = settings.STORAGES
    settings.STORAGES = {name: entry for name, entry in storages.items() if name != "store"}
    corpus = put(Area.FILES, written(tmp_path))
    with pytest.raises(CommandError, match="STORE_STORAGE"):
        call_command("send_store")
    settings.STORAGES = storages
    call_command("send_store")
    be("worker")
    assert local_path(Area.FILES, corpus).read_bytes() == b"a corpus"
