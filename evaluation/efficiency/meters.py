"""Meters of this process and its machine: the time of searches, other work, energy, and the peak of memory.

Energy is read where the machine counts it: the processor's package through RAPL, an NVIDIA GPU through NVML. Else none.

Both are counters of the whole package or board, which other work on the machine adds to: measuring runs alone. On a
machine with several GPUs others work beside it, so that the board alone is counted.
"""

import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evaluation.archives.compression import MIB
from evaluation.efficiency.hardware import gpus_of_machine, own_gpu

#: Threads of a timed search. With one thread, other work can be excluded from its time, and BM25 is comparable.
THREADS = 1
#: Size of an array that fills shared caches twice, if the system does not report their size or they are smaller.
EVICTED_BYTES = 64 * MIB
_MOST_EVICTED_BYTES = 512 * MIB
#: The caches of the first processor, with files of their sizes, such as 32768K.
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
#: The system's counters of the time of its processors.
STATISTICS = Path("/proc/stat")
#: Fields of a processor's line in /proc/stat: idle, and waiting for a disk.
_IDLE = (3, 4)
#: Fields whose time other fields include already: guests.
_COUNTED_TWICE = 8


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, OpenMP (torch's and faiss's), torch, and tokenizers to THREADS within the block."""
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 0
    tokenizers = os.environ.get("TOKENIZERS_PARALLELISM")
    with threadpool_limits(THREADS):  # type: ignore[no-untyped-call]
        if torch:
            torch.set_num_threads(THREADS)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # read at every call
        try:
            yield
        finally:
            if torch:
                torch.set_num_threads(threads)
            if tokenizers is None:
                del os.environ["TOKENIZERS_PARALLELISM"]
            else:
                os.environ["TOKENIZERS_PARALLELISM"] = tokenizers


class Moment(NamedTuple):
    """Readings of this thread's clocks: seconds elapsed, seconds of a processor, and switches to other threads.

    `pauses` counts the times that the thread waited by itself, for a disk, a GPU, or another thread; `interruptions`
    the times that the kernel took the processor from a thread of this process that could have gone on.
    """

    elapsed: float
    processor: float
    pauses: int
    interruptions: int


def read_moment() -> Moment:
    """Read the clocks of this thread."""
    thread = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
    process = resource.getrusage(resource.RUSAGE_SELF)
    return Moment(time.perf_counter(), time.thread_time(), thread.ru_nvcsw, process.ru_nivcsw)


def evict_caches() -> None:
    """Read more memory than the caches hold, so that the next search reads its index and model from memory.

    Otherwise its time depends on how much of a shared cache other work leaves to it, also in other virtual machines on
    the same host, which no counter of this system shows.
    """
    _filler().sum()


@cache
def _filler() -> npt.NDArray[np.float64]:
    texts = (path.read_text(encoding="ascii").strip() for path in _CACHES.glob("index*/size"))
    sizes = [int(text[:-1]) * 1024 for text in texts if text.endswith("K") and text[:-1].isdigit()]
    size = max(EVICTED_BYTES, 2 * max(sizes, default=0))
    return np.ones(min(size, _MOST_EVICTED_BYTES) // 8)


class SearchTime(NamedTuple):
    """The time of a search: seconds elapsed, seconds that count, and whether no other work is included."""

    elapsed: float
    seconds: float
    undisturbed: bool


def time_between(start: Moment, end: Moment, *, device: str) -> SearchTime:
    """Return the time of a search without the time for which other work used its processor.

    A thread that never paused could always run, so the processor did other work in the time that it did not give to
    the thread. If a thread paused or uses a GPU, all elapsed time counts, since it may belong to the search.
    """
    elapsed = end.elapsed - start.elapsed
    if device == "cpu" and end.pauses == start.pauses:
        return SearchTime(elapsed, min(elapsed, end.processor - start.processor), True)
    return SearchTime(elapsed, elapsed, end.interruptions == start.interruptions)


class OtherWork:
    """Measures the share of the machine's processors that other processes use between two readings."""

    def __init__(self) -> None:
        self._start = self._read()

    def share(self) -> float | None:
        """Return the share since the start, 0 to 1, or None if the system does not report it."""
        end = self._read()
        if self._start is None or end is None:
            return None
        total, busy, own = (after - before for before, after in zip(self._start, end, strict=True))
        return min(max((busy - own) / total, 0.0), 1.0) if total > 0 else None

    def _read(self) -> tuple[float, float, float] | None:
        """Return the seconds of all processors, the busy ones among them, and those of this process."""
        try:
            line = STATISTICS.read_text(encoding="ascii").partition("\n")[0]
            ticks = [int(field) for field in line.split()[1 : 1 + _COUNTED_TWICE]]
        except (OSError, ValueError):
            return None
        if len(ticks) <= max(_IDLE):
            return None
        idle, tick = sum(ticks[field] for field in _IDLE), os.sysconf("SC_CLK_TCK")
        return sum(ticks) / tick, (sum(ticks) - idle) / tick, time.process_time()


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
