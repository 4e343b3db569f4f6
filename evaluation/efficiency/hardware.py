"""Which machine it was: timings are comparable only on the same processor, cores, GPU and libraries."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self

_CPU_INFO = Path("/proc/cpuinfo")
_GPUS = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")
#: What decides how fast a search is, if it is installed.
LIBRARIES = (
    "numpy",
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "faiss-cpu",
    "faiss-gpu",
)
#: What processors' names say beside who they are.
_NOISE = re.compile(
    r"\((?:R|TM|C)\)|\b(?:CPU|Processor|with Radeon Graphics)\b|@.*|\b\d+-Core\b", re.IGNORECASE
)
_SLUG_LENGTH = 140
_NAME_LENGTH = 200
_DIGEST_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Hardware:
    """A hardware class. Equal `details` make one class, and give the same slug on every machine."""

    slug: str
    name: str
    details: Mapping[str, Any]

    def as_data(self) -> dict[str, Any]:
        """The class as plain values, which JSON keeps."""
        return asdict(self)

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Self:
        """The class that has these details: `cpu`, `cores`, `gpu` (or None), `python` and `libraries`."""
        cores = f"{details['cores']} core{'s' if details['cores'] != 1 else ''}"
        name = f"{details['cpu']}, {cores}"
        if details["gpu"]:
            name = f"{details['gpu']}, {name}"
        digest = hashlib.sha256(json.dumps(details, sort_keys=True).encode()).hexdigest()[:_DIGEST_LENGTH]
        words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_SLUG_LENGTH]
        return cls(f"{words}-{digest}", name[:_NAME_LENGTH], dict(details))

    @classmethod
    def from_data(cls, data: object) -> Self:
        """The class that `as_data` gave; slug and name are made again. Raises ValueError for anything else."""
        details = data.get("details") if isinstance(data, Mapping) else None
        if not isinstance(details, Mapping):
            raise ValueError("a hardware class has details")
        cores, libraries = details.get("cores"), details.get("libraries")
        if not isinstance(cores, int) or isinstance(cores, bool) or cores < 1:
            raise ValueError("a hardware class says how many cores are used")
        if not isinstance(libraries, Mapping):
            raise ValueError("a hardware class says which libraries are used")
        return cls.of(
            {
                "cpu": _short(details.get("cpu")) or "unknown processor",
                "cores": cores,
                "gpu": _short(details.get("gpu")) or None,
                "python": _short(details.get("python")),
                "libraries": {name: _short(libraries[name]) for name in LIBRARIES if name in libraries},
            }
        )


def describe(threads: int, device: str = "cpu") -> Hardware:
    """The class of this machine, with `threads` of its cores and its GPU where the work is on that ("cuda")."""
    return Hardware.of(
        {
            "cpu": cpu_model(),
            "cores": threads,
            "gpu": gpu_model() if device == "cuda" else None,
            "python": platform.python_version(),
            "libraries": library_versions(),
        }
    )


def cpu_model(info: Path = _CPU_INFO) -> str:
    """The processor's name without decoration; its architecture where the system does not tell."""
    try:
        text = info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^(?:model name|cpu model|Model)\s*:\s*(.+)$", text, re.MULTILINE)
    name = _short(_NOISE.sub(" ", found[1])) if found else ""
    return name or platform.processor() or platform.machine()


def gpu_model(gpus: Path = _GPUS) -> str:
    """The name of this process's GPU, from PyTorch if it is loaded, else from the driver."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return _short(torch.cuda.get_device_name(0))
    known = {number: name for number, _, name in gpus_given(gpus)}
    return known.get(own_gpu(gpus), "unknown GPU")


def own_gpu(gpus: Path = _GPUS) -> str:
    """The GPU of this process: its number among those that it may open, else as CUDA_VISIBLE_DEVICES names it."""
    named = next(iter(visible_gpus(gpus)), "0")
    return next((number for number, uuid, _ in gpus_given(gpus) if uuid.startswith(named)), named)


def own_gpu_uuid(gpus: Path = _GPUS) -> str:
    """What names the GPU of this process on the whole machine, where each job of a batch system has a number 0."""
    number = own_gpu(gpus)
    return next((uuid for known, uuid, _ in gpus_given(gpus) if known == number), number)


def visible_gpus(gpus: Path = _GPUS) -> list[str]:
    """The GPUs that this process may use: as CUDA_VISIBLE_DEVICES names them, or the numbers of all that it may open.

    The variable has numbers, in the order that CUDA_DEVICE_ORDER=PCI_BUS_ID gives, or beginnings of UUIDs.
    """
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return [name for name in named if name] or [number for number, *_ in gpus_given(gpus)]


def gpus_of_machine(gpus: Path = _GPUS) -> list[tuple[str, str, str]]:
    """Number, UUID and name of each NVIDIA GPU, in the order of the bus, as the driver tells them."""
    return _numbered(_told_by_driver(gpus))


def gpus_given(gpus: Path = _GPUS) -> list[tuple[str, str, str]]:
    """As `gpus_of_machine`, of those alone that this process may open, numbered as CUDA and NVML number them.

    Slurm's cgroups and containers keep the others from it. The driver tells of them all the same.
    """
    return _numbered(
        told
        for told in _told_by_driver(gpus)
        if "Device Minor" not in told or _may_open(_DEVICES / f"nvidia{told['Device Minor']}")
    )


def _told_by_driver(gpus: Path) -> Iterator[dict[str, str]]:
    for information in sorted(gpus.glob("*/information")):
        yield dict(re.findall(r"^([^:\n]+):\s*(.+)$", information.read_text(encoding="utf-8"), re.MULTILINE))


def _numbered(told: Iterable[Mapping[str, str]]) -> list[tuple[str, str, str]]:
    return [
        (str(number), gpu.get("GPU UUID", "unknown"), _short(gpu.get("Model")) or "unknown GPU")
        for number, gpu in enumerate(told)
    ]


@functools.cache
def _may_open(device: Path) -> bool:
    """Whether it can be opened: of what a cgroup says no permission tells. Asked once, since a GPU may have to wake."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:  # any other: it is there, and does not work
        return not isinstance(error, (FileNotFoundError, PermissionError))
    return True


def library_versions() -> dict[str, str]:
    """The versions of the installed ones of LIBRARIES, without importing any."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _short(text: object) -> str:
    """Printable text of one line and sensible length; nothing for what is no text."""
    if not isinstance(text, str):
        return ""
    return " ".join("".join(filter(str.isprintable, text)).split())[:100]
