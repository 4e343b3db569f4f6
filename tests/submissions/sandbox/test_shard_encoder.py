"""A child that stays from shard to shard: it loads once, and what it does later changes nothing that was kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from submissions.sandbox import running
from submissions.sandbox.backends import Backend
from submissions.sandbox.machine_lock import MachineLock
from submissions.sandbox.running import ShardEncoder
from tests.submissions.sandboxes import _PRELUDE, SMALL, Stranger

#: Each shard's folder has a file with the number of the process that wrote it.
HONEST = """
import time
def shard(number, **more):
    os.makedirs(out + "/shard", exist_ok=True)
    with open(out + "/shard/ids", "w") as file:
        file.write(str(os.getpid()))
    result = {"number": number, "documents": 5, "seconds": 0.0, **more}
    with open(out + "/result.json", "w") as file:
        json.dump({"shard": result}, file)
    print('{"done": "shard"}', flush=True)
for line in sys.stdin:
    shard(int(line))
"""
KEEPS_ITS_FILES = """
import threading, time
kept = []
def spoil():
    while True:
        for file in kept:
            file.seek(0); file.write("spoilt"); file.flush()
        time.sleep(0.001)
threading.Thread(target=spoil, daemon=True).start()
for line in sys.stdin:
    os.makedirs(out + "/shard", exist_ok=True)
    file = open(out + "/shard/ids", "w")
    file.write("honest"); file.flush()
    with open(out + "/result.json", "w") as result:
        json.dump({"shard": {"number": int(line), "documents": 5, "seconds": 0.0}}, result)
    print('{"done": "shard"}', flush=True)
    time.sleep(0.3)
    kept.append(file)
"""


def ignore(stage: str, share: float, note: str) -> None:
    """Take no notice."""


@pytest.fixture
def stranger(bubblewrap: Backend, own_lock: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stranger:
    """Somebody with a program instead of a model."""
    return Stranger(bubblewrap, tmp_path, monkeypatch)


@pytest.fixture
def started() -> Iterator[list[ShardEncoder]]:
    """Those that a test starts; they end with it."""
    encoders: list[ShardEncoder] = []
    yield encoders
    for encoder in encoders:
        encoder.close()


def encoder_of(stranger: Stranger, started: list[ShardEncoder], payload: str, seconds: float = 20) -> ShardEncoder:
    """A child that runs the payload."""
    stranger.patch.setattr(running, "_BOOTSTRAP", _PRELUDE + payload)
    limits = replace(SMALL, wall_clock_seconds=seconds)
    encoder = ShardEncoder(stranger.backend, stranger.job(task="encode_shards", engine="dense"), limits)
    started.append(encoder)
    return encoder


def test_one_child_encodes_all_shards(stranger: Stranger, started: list[ShardEncoder], tmp_path: Path) -> None:
    encoder = encoder_of(stranger, started, HONEST)
    writers = []
    for number in (3, 0, 7):
        target = tmp_path / f"shard-{number}"
        outcome = encoder.encode(number, target, ignore)
        assert (outcome.kind, outcome.result["shard"]["number"]) == ("done", number)
        writers.append((target / "ids").read_text())
        assert list(encoder.job.out.iterdir()) == []
    assert len(set(writers)) == 1


def test_the_machine_is_free_between_two_shards(
    stranger: Stranger, started: list[ShardEncoder], tmp_path: Path
) -> None:
    encoder = encoder_of(stranger, started, HONEST)
    encoder.encode(0, tmp_path / "first", ignore)
    other = MachineLock()
    assert other.try_acquire("exclusive")
    other.release()
    other.close()
    assert encoder.encode(1, tmp_path / "second", ignore).kind == "done"


def test_a_shard_that_was_kept_cannot_be_changed(
    stranger: Stranger, started: list[ShardEncoder], tmp_path: Path
) -> None:
    """A file that the child holds open, and writes to while it encodes the next shard, is another file by then."""
    encoder = encoder_of(stranger, started, KEEPS_ITS_FILES)
    encoder.encode(0, tmp_path / "first", ignore)
    encoder.encode(1, tmp_path / "second", ignore)
    time.sleep(0.1)
    assert (tmp_path / "first" / "ids").read_text() == "honest"


@pytest.mark.parametrize(
    ("payload", "kind", "code"),
    [
        (HONEST.replace("shard(int(line))", "time.sleep(60)"), "timed_out", "timed_out"),
        (HONEST.replace("shard(int(line))", "os._exit(9)"), "crashed", "crashed"),
        (HONEST.replace("shard(int(line))", "shard(int(line) + 1)"), "crashed", "no_usable_result"),
        (HONEST.replace("shard(int(line))", "shard(int(line), seconds=1e6)"), "crashed", "no_usable_result"),
    ],
)
def test_a_child_that_does_wrong_is_gone(
    stranger: Stranger, started: list[ShardEncoder], tmp_path: Path, payload: str, kind: str, code: str
) -> None:
    """Its outcome is that of the shard, nothing is kept, and a new child would start afresh."""
    encoder = encoder_of(stranger, started, payload, seconds=2)
    outcome = encoder.encode(0, tmp_path / "shard", ignore)
    assert (outcome.kind, outcome.failure_code) == (kind, code)
    assert not (tmp_path / "shard").exists()
    lock = MachineLock()
    assert lock.try_acquire("exclusive")
    lock.close()


def test_a_caller_that_gives_up_ends_the_child(stranger: Stranger, started: list[ShardEncoder], tmp_path: Path) -> None:
    encoder = encoder_of(stranger, started, HONEST.replace("shard(int(line))", "time.sleep(60)"))

    def give_up(stage: str, share: float, note: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encoder.encode(0, tmp_path / "shard", give_up)
    assert not (tmp_path / "shard").exists()
