"""The most memory that this process ever held."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_HIGH_WATER_MARK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def peak_memory(status: Path = _STATUS) -> int:
    """Bytes of resident memory at the process's peak, imports, build and mapped files included."""
    try:
        found = _HIGH_WATER_MARK.search(status.read_text(encoding="ascii", errors="replace"))
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
