"""Hardware classes: timings are comparable only with the same processor, cores, GPU, and libraries."""

import functools
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, Self

CPU_INFO = Path("/proc/cpuinfo")
_GPUS = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")
#: Libraries with versions that affect search times.
LIBRARIES = (
    "numpy",
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "faiss-cpu",
    "faiss-gpu",
)
#: Pattern of decoration in processor names.
_NOISE = re.compile(r"\((?:R|TM|C)\)|\b(?:CPU|Processor|with Radeon Graphics)\b|@.*|\b\d+-Core\b", re.IGNORECASE)
_SLUG_LENGTH = 140
_NAME_LENGTH = 200
_DIGEST_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Hardware:
    """A hardware class. Equal `details` yield the same class and slug on every machine."""

    slug: str
    name: str
    details: Mapping[str, Any]

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_details(cls, details: Mapping[str, Any]) -> Self:
        """Return the hardware class with these details: `cpu`, `cores`, `gpu` (or None), `python`, and `libraries`."""
        cores = f"{details['cores']} core{'s' if details['cores'] != 1 else ''}"
        name = f"{details['cpu']}, {cores}"
        if details["gpu"]:
            name = f"{details['gpu']}, {name}"
        digest = hashlib.sha256(json.dumps(details, sort_keys=True).encode()).hexdigest()[:_DIGEST_LENGTH]
        words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_SLUG_LENGTH]
        return cls(f"{words}-{digest}", name[:_NAME_LENGTH], dict(details))

    @classmethod
    def from_data(cls, data: object) -> Self:
        """Parse the output of `as_data`, deriving slug and name again. Raises ValueError for invalid data."""
        details = data.get("details") if isinstance(data, Mapping) else None
        if not isinstance(details, Mapping):
            raise ValueError("a hardware class must have details")
        cores, libraries = details.get("cores"), details.get("libraries")
        if not isinstance(cores, int) or isinstance(cores, bool) or cores < 1:
            raise ValueError("the cores of a hardware class must be a positive integer")
        if not isinstance(libraries, Mapping):
            raise ValueError("the libraries of a hardware class must map names to versions")
        return cls.from_details(
            {
                "cpu": _clean_text(details.get("cpu")) or "unknown processor",
                "cores": cores,
                "gpu": _clean_text(details.get("gpu")) or None,
                "python": _clean_text(details.get("python")),
                "libraries": {name: _clean_text(libraries[name]) for name in LIBRARIES if name in libraries},
            }
        )


class Gpu(NamedTuple):
    """An NVIDIA GPU: its index as used by CUDA and NVML, its bus address, UUID, and name.

    The driver reports the UUID "unknown" until the GPU has been initialized.
    """

    number: str
    address: str
    uuid: str
    name: str


def describe(threads: int, device: str = "cpu") -> Hardware:
    """Return the hardware class of this machine.

    Args:
        threads: Number of cores that the work uses.
        device: "cuda" if the work runs on the GPU, otherwise "cpu".
    """
    return Hardware.from_details(
        {
            "cpu": cpu_model(),
            "cores": threads,
            "gpu": gpu_model() if device == "cuda" else None,
            "python": platform.python_version(),
            "libraries": library_versions(),
        }
    )


def cpu_model() -> str:
    """Return the processor's name without decoration, or its architecture if the system reports no name."""
    text = ""
    with suppress(OSError):
        text = CPU_INFO.read_text(encoding="utf-8", errors="replace")
    match = re.search(r"^(?:model name|cpu model|Model)\s*:\s*(.+)$", text, re.MULTILINE)
    name = _clean_text(_NOISE.sub(" ", match[1])) if match else ""
    return name or platform.processor() or platform.machine()


def gpu_model() -> str:
    """Return the name of this process's GPU, from PyTorch if it is loaded, otherwise from the driver."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return _clean_text(torch.cuda.get_device_name(0))
    return own_gpu().name


def own_gpu() -> Gpu:
    """Return the first visible GPU.

    If the driver does not list it, as with MIG instances, all identifiers are taken from CUDA_VISIBLE_DEVICES.
    """
    identifier = next(iter(visible_gpus()), "0")
    matching_gpus = (gpu for gpu in accessible_gpus() if gpu.number == identifier or gpu.uuid.startswith(identifier))
    return next(matching_gpus, Gpu(identifier, identifier, identifier, "unknown GPU"))


def visible_gpus() -> list[str]:
    """Return the identifiers of the GPUs that this process may use.

    These are the entries of CUDA_VISIBLE_DEVICES, which are indices in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID or
    prefixes of UUIDs. If the variable is empty, the indices of all accessible GPUs are returned.
    """
    identifiers = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return [name for name in identifiers if name] or [gpu.number for gpu in accessible_gpus()]


def list_gpu_files() -> list[Path]:
    """Return the driver's information file of each NVIDIA GPU, in bus order.

    The name of the parent folder is the bus address.
    """
    return sorted(_GPUS.glob("*/information"))


def accessible_gpus() -> list[Gpu]:
    """Return the GPUs with devices that this process can open.

    The driver lists all GPUs of the machine, including ones that Slurm's cgroups or the container deny. Before the
    first use of a GPU no device may exist yet; then the process is assumed to have access to all of them.
    """
    gpus: list[Gpu] = []
    any_exists = any(_DEVICES.glob("nvidia[0-9]*"))
    for file in list_gpu_files():
        properties = dict(re.findall(r"^([^:\n]+):\s*(.+)$", file.read_text(encoding="utf-8"), re.MULTILINE))
        minor, uuid = properties.get("Device Minor"), properties.get("GPU UUID", "unknown")
        device = _DEVICES / f"nvidia{minor}"
        if minor is None or not any_exists or (device.exists() and _may_open(device)):
            name = _clean_text(properties.get("Model")) or "unknown GPU"
            gpus.append(Gpu(str(len(gpus)), file.parent.name, uuid, name))
    return gpus


@functools.cache
def _may_open(device: Path) -> bool:
    """Return whether a device can be opened, which permissions do not show under cgroups.

    Cached, because opening a device may wake the GPU.
    """
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:  # other errors mean that the device is accessible but broken
        return not isinstance(error, PermissionError)
    return True


def library_versions() -> dict[str, str]:
    """Return the versions of the installed LIBRARIES without importing them."""
    versions = {}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _clean_text(text: object) -> str:
    """Return printable text on one line, at most 100 characters long; "" if the value is not a string."""
    if not isinstance(text, str):
        return ""
    return " ".join("".join(filter(str.isprintable, text)).split())[:100]
