"""What a crash leaves behind is removed; what a row names, or what is fresh, is kept."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from leaderboard.store import Area, path_of, put
from submissions.models import State
from submissions.sweeping import GRACE, sweep
from tests.factories import make_dataset, make_job

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def stored(area: Area, tmp_path: Path, text: str, *, old: bool) -> Path:
    source = tmp_path / "file"
    source.write_text(text)
    path = path_of(area, put(area, source))
    if old:
        long_ago = time.time() - GRACE - 60
        os.utime(path, (long_ago, long_ago))
    return path


def test_old_files_without_a_row_are_swept(tmp_path: Path) -> None:
    orphan = stored(Area.RUNS, tmp_path, "an orphan", old=True)
    fresh = stored(Area.RUNS, tmp_path, "just written", old=False)
    waiting = stored(Area.RUNS, tmp_path, "named by a job", old=True)
    upload = stored(Area.UPLOADS, tmp_path, "to be validated", old=True)
    make_job(make_dataset(), payload={"run_sha256": waiting.name})
    make_job(make_dataset(), state=State.VALIDATING, upload_sha256=upload.name)
    assert sweep() == 1
    assert [path.exists() for path in (orphan, fresh, waiting, upload)] == [False, True, True, True]
