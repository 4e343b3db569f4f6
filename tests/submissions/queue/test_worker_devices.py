"""A GPU for each worker, and a lock for each GPU."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from evaluation.efficiency import hardware
from leaderboard.management.commands.worker import _device_environment
from leaderboard.management.supervisor import services
from submissions.queue.workers import own_device
from submissions.sandbox.machine_lock import MachineLock

#: Two GPUs as the driver of NVIDIA tells them.
CARDS = {"0000:1b:00.0": ("NVIDIA H200", "GPU-aaaa"), "0000:43:00.0": ("NVIDIA H100", "GPU-bbbb")}


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with these GPUs."""
    folder = tmp_path / "gpus"
    for bus, (model, uuid) in CARDS.items():
        (folder / bus).mkdir(parents=True)
        text = f"Model: \t\t {model}\nIRQ:   \t\t 18\nGPU UUID: \t {uuid}\nBus Location: \t {bus}\n"
        (folder / bus / "information").write_text(text)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(hardware, "_GPUS", folder)
    return folder


def own_gpu() -> tuple[str, str]:
    """Its number and name."""
    return hardware.own_gpu().number, hardware.gpu_model()


def test_a_worker_has_the_gpu_that_it_is_given(gpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (*own_gpu(), own_device(["gpu"])) == ("0", "NVIDIA H200", "cuda:0")
    for name, value in _device_environment("cuda:1", "gpu").items():
        monkeypatch.setenv(name, value)
    assert (*own_gpu(), own_device(["gpu"])) == ("1", "NVIDIA H100", "cuda:1")
    assert own_device(["cpu"]) == "cpu"
    # Of those that a batch system has given to the job, and by their names.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbb, GPU-aaaa")
    assert _device_environment("cuda:1", "gpu")["CUDA_VISIBLE_DEVICES"] == "GPU-aaaa"
    assert own_gpu() == ("1", "NVIDIA H100")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-cccc")
    assert own_gpu() == ("MIG-cccc", "unknown GPU")


def test_a_gpu_that_is_not_there_is_refused(gpus: Path) -> None:
    with pytest.raises(CommandError, match=r"cuda:2 does not exist. Choose from cuda:0, cuda:1;"):
        _device_environment("cuda:2", "gpu")


def test_every_gpu_of_a_machine_has_a_worker(gpus: Path, settings: Any) -> None:
    settings.MODEL_MEMORY_BYTES, settings.MODEL_THREADS = 90 << 30, 32
    on_processor, *on_gpus = services.retrievers({"RUNBOARD_VAR": "/srv"})
    assert "CUDA_VISIBLE_DEVICES" not in on_processor.environment
    assert [each.environment["CUDA_VISIBLE_DEVICES"] for each in on_gpus] == ["0", "1"]
    for command, queue in ((on_processor, "cpu"), *((each, "gpu") for each in on_gpus)):
        assert command.arguments[list(command.arguments).index("--queues") + 1] == queue
        assert command.environment["MODEL_MEMORY_BYTES"] == str(30 << 30)
        assert command.environment["MODEL_THREADS"] == "10"


@pytest.mark.parametrize("asleep", [False, True])
def test_measuring_on_one_gpu_stops_nobody_else(
    gpus: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path, asleep: bool
) -> None:
    """Nor before the driver has started the GPUs, which then have no UUID."""
    for file in gpus.glob("*/information") if asleep else ():
        file.write_text(re.sub("GPU-....", "GPU-????????-????-????-????-????????????", file.read_text()))
    settings.TIMING_LOCK = str(tmp_path / "timing.lock")
    with closing(MachineLock(device="cuda")) as first, closing(MachineLock()) as processor:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        with closing(MachineLock(device="cuda")) as second, closing(MachineLock(device="cuda")) as same:
            assert first.try_acquire("exclusive")
            assert second.try_acquire("exclusive")
            assert processor.try_acquire("exclusive")
            assert not same.try_acquire("shared")


def test_jobs_of_a_batch_system_lock_the_gpu_that_each_was_given(
    gpus: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    """Slurm with ConstrainDevices gives each job one device, and the number 0."""
    settings.TIMING_LOCK = str(tmp_path / "timing.lock")
    for minor, bus in enumerate(CARDS):
        with (gpus / bus / "information").open("a") as file:
            file.write(f"Device Minor: \t {minor}\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def given(minor: int) -> MachineLock:
        folder = tmp_path / f"job {minor}"
        folder.mkdir(exist_ok=True)
        (folder / f"nvidia{minor}").touch()
        monkeypatch.setattr(hardware, "_DEVICES", folder)
        return MachineLock(device="cuda")

    monkeypatch.setattr(hardware, "_DEVICES", tmp_path)  # no device exists before the first use
    assert [gpu.name for gpu in hardware.accessible_gpus()] == ["NVIDIA H200", "NVIDIA H100"]

    with closing(given(0)) as first, closing(given(1)) as second, closing(given(1)) as same:
        assert own_gpu() == ("0", "NVIDIA H100")
        assert first.try_acquire("exclusive")
        assert second.try_acquire("exclusive")
        assert not same.try_acquire("shared")
