"""Which machine it was: timings are comparable only on the same processor, cores, GPU and libraries."""

import functools
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, Self

CPU_INFO = Path("/proc/cpuinfo")
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


class Gpu(NamedTuple):
    """An NVIDIA GPU: its number as CUDA and NVML count, and its address on the bus, which all processes see.

    The driver knows the UUID of a GPU only once it has started it.
    """

    number: str
    address: str
    uuid: str
    name: str


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


def cpu_model() -> str:
    """Return the processor's name without decoration, or its architecture if the system has no name."""
    try:
        text = CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^(?:model name|cpu model|Model)\s*:\s*(.+)$", text, re.MULTILINE)
    name = _short(_NOISE.sub(" ", found[1])) if found else ""
    return name or platform.processor() or platform.machine()


def gpu_model() -> str:
    """The name of this process's GPU, from PyTorch if it is loaded, else from the driver."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return _short(torch.cuda.get_device_name(0))
    return own_gpu().name


def own_gpu() -> Gpu:
    """The GPU of this process, among those that it may open; what the driver does not tell of has its name alone."""
    named = next(iter(visible_gpus()), "0")
    given = (gpu for gpu in gpus_given() if gpu.number == named or gpu.uuid.startswith(named))
    return next(given, Gpu(named, named, named, "unknown GPU"))


def visible_gpus() -> list[str]:
    """The GPUs that this process may use: as CUDA_VISIBLE_DEVICES names them, or the numbers of all that it may open.

    The variable has numbers, in the order that CUDA_DEVICE_ORDER=PCI_BUS_ID gives, or beginnings of UUIDs.
    """
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return [name for name in named if name] or [gpu.number for gpu in gpus_given()]


def gpus_of_machine() -> list[Path]:
    """What the driver tells of each NVIDIA GPU, in the order of the bus: a file in a folder named by its address."""
    return sorted(_GPUS.glob("*/information"))


def gpus_given() -> list[Gpu]:
    """The GPUs that this process may open. Slurm's cgroups and containers keep others from it; the driver tells of all.

    Before a GPU is first used no device may exist yet; then the process is taken to be given all of them.
    """
    given: list[Gpu] = []
    any_exists = any(_DEVICES.glob("nvidia[0-9]*"))
    for file in gpus_of_machine():
        told = dict(re.findall(r"^([^:\n]+):\s*(.+)$", file.read_text(encoding="utf-8"), re.MULTILINE))
        minor, uuid = told.get("Device Minor"), told.get("GPU UUID", "unknown")
        device = _DEVICES / f"nvidia{minor}"
        if minor is None or not any_exists or (device.exists() and _may_open(device)):
            name = _short(told.get("Model")) or "unknown GPU"
            given.append(Gpu(str(len(given)), file.parent.name, uuid, name))
    return given


@functools.cache
def _may_open(device: Path) -> bool:
    """Whether it can be opened: of what a cgroup says no permission tells. Asked once, since a GPU may have to wake."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:  # any other: it is there, and does not work
        return not isinstance(error, PermissionError)
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
