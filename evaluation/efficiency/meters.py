"""Meters for search time, other work, energy, and peak memory of this process and its machine.

Energy is read from RAPL for the processor's packages and from NVML for NVIDIA GPUs, where available. Both include
the whole package or board and other work on the machine, so measurements run alone. On a machine with several GPUs,
other jobs share the processor, so only the GPU is measured.
"""

import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evaluation.archives.compression import MIB
from evaluation.efficiency.hardware import list_gpu_files, own_gpu

#: Threads of a timed search. With one thread, other work can be excluded from its time, and BM25 is comparable.
THREADS = 1
#: Minimum size of the array that evicts the caches.
EVICTED_BYTES = 64 * MIB
_MAX_EVICTED_BYTES = 512 * MIB
#: Folder of the first processor's caches. Its `size` files contain values such as 32768K.
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
#: System-wide counters of processor time.
STATISTICS = Path("/proc/stat")
#: Fields of a processor's line in /proc/stat: idle, and waiting for a disk.
_IDLE_FIELDS = (3, 4)
#: First of the guest fields. Their time is already included in other fields.
_COUNTED_TWICE = 8


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, OpenMP (of torch and faiss), torch, and tokenizers to THREADS within the block."""
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
    """Readings of the thread's clocks: elapsed seconds, processor seconds, and context switches.

    `pauses` counts voluntary switches, when the thread waited for a disk, a GPU, or another thread. `interruptions`
    counts the involuntary ones of all threads of the process.
    """

    elapsed: float
    processor: float
    pauses: int
    interruptions: int


def read_moment() -> Moment:
    thread = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
    process = resource.getrusage(resource.RUSAGE_SELF)
    return Moment(time.perf_counter(), time.thread_time(), thread.ru_nvcsw, process.ru_nivcsw)


def evict_caches() -> None:
    """Read more memory than the size of the caches, so that the next search reads its index and model from memory.

    Otherwise search time depends on the use of a shared cache by other work. This includes work in other virtual
    machines on the same host, which counters of this system do not show.
    """
    _filler().sum()


@cache
def _filler() -> npt.NDArray[np.float64]:
    """Return an array that is larger than the processor's caches, which is created only once."""
    texts = (path.read_text(encoding="ascii").strip() for path in _CACHES.glob("index*/size"))
    sizes = [int(text[:-1]) * 1024 for text in texts if text.endswith("K") and text[:-1].isdigit()]
    size = max(EVICTED_BYTES, 2 * max(sizes, default=0))
    return np.ones(min(size, _MAX_EVICTED_BYTES) // 8)


class SearchTime(NamedTuple):
    """Duration of a search: elapsed seconds, counted seconds, and whether other work is excluded."""

    elapsed: float
    seconds: float
    undisturbed: bool


def search_time(start: Moment, end: Moment, *, device: str) -> SearchTime:
    """Return the duration of a search, excluding the time in which other work used its processor.

    A thread that never waited could always run, so any time without processor is due to other work. If the thread
    waited or uses a GPU, all elapsed time is included, because it may be due to the search.
    """
    elapsed = end.elapsed - start.elapsed
    if device == "cpu" and end.pauses == start.pauses:
        return SearchTime(elapsed, min(elapsed, end.processor - start.processor), True)
    return SearchTime(elapsed, elapsed, end.interruptions == start.interruptions)


class OtherWork:
    """Meter of the share of the machine's processors that other processes use between two readings."""

    def __init__(self) -> None:
        self._start = self._read_seconds()

    def share(self) -> float | None:
        """Return the share since the start, 0 to 1, or None if the system does not report it."""
        end = self._read_seconds()
        if self._start is None or end is None:
            return None
        total, busy_time, process_time = (end_value - start for start, end_value in zip(self._start, end, strict=True))
        return min(max((busy_time - process_time) / total, 0.0), 1.0) if total > 0 else None

    def _read_seconds(self) -> tuple[float, float, float] | None:
        """Return the seconds of all processors, of the busy ones, and of this process; None if unavailable."""
        try:
            line = STATISTICS.read_text(encoding="ascii").partition("\n")[0]
            ticks = [int(field) for field in line.split()[1 : 1 + _COUNTED_TWICE]]
        except (OSError, ValueError):
            return None
        if len(ticks) <= max(_IDLE_FIELDS):
            return None
        idle, tick = sum(ticks[field] for field in _IDLE_FIELDS), os.sysconf("SC_CLK_TCK")
        return sum(ticks) / tick, (sum(ticks) - idle) / tick, time.process_time()


POWERCAP = Path("/sys/class/powercap")

#: Function that returns joules since an arbitrary moment.
Counter = Callable[[], float]


class EnergyMeter(NamedTuple):
    """The sum of several energy counters, and the names of the measured components."""

    source: str
    counters: Sequence[Counter]

    def joules(self) -> float | None:
        """Return joules since an arbitrary moment, or None without counters."""
        return sum(counter() for counter in self.counters) if self.counters else None


def open_meter(device: str) -> EnergyMeter:
    """Return a meter for the processor's packages, and for this process's GPU if `device` is "cuda".

    With "cuda", the packages are omitted if the machine has several GPUs, because other jobs share the processor.
    """
    counters_by_name: dict[str, list[Counter]] = {"CPU": [], "GPU": _gpu_counters() if device == "cuda" else []}
    if device != "cuda" or len(list_gpu_files()) < 2:
        with suppress(OSError, ValueError):  # readable only by root
            # Domains of a package (intel-rapl:0:0) are included in it.
            packages = sorted(folder for folder in POWERCAP.glob("intel-rapl:*") if folder.name.count(":") == 1)
            counters_by_name["CPU"] = [_package_counter(folder) for folder in packages]
    return EnergyMeter(
        " and ".join(name for name, counters in counters_by_name.items() if counters),
        [counter for counters in counters_by_name.values() for counter in counters],
    )


def _package_counter(folder: Path) -> Counter:
    """Return a function that reads a package's joules, correcting for overflows of the hardware counter."""
    energy = folder / "energy_uj"
    capacity = int((folder / "max_energy_range_uj").read_text(encoding="ascii"))
    previous_value, overflows = int(energy.read_text(encoding="ascii")), 0

    def count() -> float:
        """Return the package's joules since an arbitrary moment."""
        nonlocal previous_value, overflows
        current_value = int(energy.read_text(encoding="ascii"))
        overflows += current_value < previous_value
        previous_value = current_value
        return (current_value + overflows * capacity) / 1e6

    return count


def _gpu_counters() -> list[Counter]:
    """Return an energy counter for this process's GPU, or an empty list if NVML or the GPU has none."""
    try:
        pynvml = import_module("pynvml")  # from nvidia-ml-py, which is optional
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        # NVML numbers GPUs in bus order, too.
        board = pynvml.nvmlDeviceGetHandleByIndex(int(own_gpu().number))
        pynvml.nvmlDeviceGetTotalEnergyConsumption(board)
    except (pynvml.NVMLError, ValueError):
        return []  # no driver, an old board without a counter, or a MIG instance
    return [lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(board) / 1000]


STATUS = Path("/proc/self/status")
_HIGH_WATER_MARK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def peak_memory() -> int:
    """Return the peak resident memory of the process in bytes, including imports and mapped files."""
    match = None
    with suppress(OSError):
        match = _HIGH_WATER_MARK.search(STATUS.read_text(encoding="ascii", errors="replace"))
    if match:
        return int(match[1]) * 1024
    # Linux reports kibibytes, macOS bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def peak_gpu_memory() -> int | None:
    """Return the peak of GPU memory allocated by PyTorch in bytes; None without PyTorch or a GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.max_memory_allocated())
