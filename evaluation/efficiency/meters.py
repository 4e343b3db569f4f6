"""Meters of this process and its machine: energy, and the most memory that the process ever held.

Energy is read where the machine counts it: the processor's package through RAPL, an NVIDIA GPU through NVML. Else none.

Both are counters of the whole package or board, which other work on the machine adds to: measuring runs alone. On a
machine with several GPUs others work beside it, so that the board alone is counted.
"""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from evaluation.efficiency.hardware import gpus_of_machine, own_gpu

POWERCAP = Path("/sys/class/powercap")

#: Joules since some moment.
Counter = Callable[[], float]


class EnergyMeter(NamedTuple):
    """Counters that are added up, and in a few words what they are of."""

    source: str
    counters: Sequence[Counter]

    def joules(self) -> float | None:
        """Joules since some moment; None where nothing counts them."""
        return sum(counter() for counter in self.counters) if self.counters else None


def open_meter(device: str) -> EnergyMeter:
    """Return a meter of the processor's packages, and of this process's GPU if the work is on it."""
    alone = device != "cuda" or len(gpus_of_machine()) < 2
    found = {
        "CPU": _package_counters() if alone else [],
        "GPU": _gpu_counters() if device == "cuda" else [],
    }
    return EnergyMeter(
        " and ".join(name for name, counters in found.items() if counters),
        [counter for counters in found.values() for counter in counters],
    )


def _package_counters() -> list[Counter]:
    """Return a counter for each package; the parts of a package (intel-rapl:0:0) are in it already."""
    packages = sorted(folder for folder in POWERCAP.glob("intel-rapl:*") if folder.name.count(":") == 1)
    try:
        return [_package_counter(folder) for folder in packages]
    except (OSError, ValueError):
        return []  # there, but for root alone


def _package_counter(folder: Path) -> Counter:
    """Joules of a package. Its counter of microjoules starts again at 0 when it is full."""
    energy = folder / "energy_uj"
    full = int((folder / "max_energy_range_uj").read_text(encoding="ascii"))
    previous, turns = int(energy.read_text(encoding="ascii")), 0

    def count() -> float:
        nonlocal previous, turns
        present = int(energy.read_text(encoding="ascii"))
        turns += present < previous
        previous = present
        return (present + turns * full) / 1e6

    return count


def _gpu_counters() -> list[Counter]:
    try:
        pynvml = import_module("pynvml")  # of nvidia-ml-py, which an operator may install
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        # NVML counts in the order of the bus, too.
        board = pynvml.nvmlDeviceGetHandleByIndex(int(own_gpu().number))
        pynvml.nvmlDeviceGetTotalEnergyConsumption(board)
    except (pynvml.NVMLError, ValueError):
        return []  # no driver, a board too old to count, or a part of one
    return [lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(board) / 1000]


STATUS = Path("/proc/self/status")
_HIGH_WATER_MARK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def peak_memory() -> int:
    """Return bytes of resident memory at the process's peak, imports, build and mapped files included."""
    try:
        found = _HIGH_WATER_MARK.search(STATUS.read_text(encoding="ascii", errors="replace"))
    except OSError:
        found = None
    if found:
        return int(found[1]) * 1024
    # Linux gives kibibytes, macOS bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def peak_gpu_memory() -> int | None:
    """Bytes that PyTorch held at most on the GPU; None where it is not loaded or has none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.max_memory_allocated())
