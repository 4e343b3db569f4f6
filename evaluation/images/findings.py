"""Limits of container images, and problems, which are collected and reported at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from evaluation.archives.compression import describe_bytes
from evaluation.checkpoints.findings import quoted
from evaluation.core.problems import Problem, ProblemCode, Report


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits of an image. Sizes are in bytes.

    `name_bytes` limits the sum of the names of all files and the targets of links. `ratio` limits the compression ratio
    of layers that expand to more than `ratio_floor_bytes`.
    """

    archive_bytes: int = 20 * 10**9
    expanded_bytes: int = 60 * 10**9
    members: int = 500_000
    name_bytes: int = 64 << 20
    layers: int = 128
    depth: int = 64
    json_bytes: int = 4 << 20
    ratio: float = 100
    ratio_floor_bytes: int = 1 << 30


DEFAULT_LIMITS = ImageLimits()
_code = partial(ProblemCode, about="model")

IMAGE_FORMAT = _code(
    "image_format", "The file is not a container image, or its archive is damaged.",
    "Write it with `docker save NAME -o image.tar`, `podman save`, or `skopeo copy docker://NAME "
    "oci-archive:image.tar`, and send the file without compressing it.",
)  # fmt: skip
IMAGE_DIGEST = _code(
    "image_digest", "A part of the image does not match its digest.",
    "Save or push the image again, and check that the upload is complete.",
)  # fmt: skip
IMAGE_PLATFORM = _code(
    "image_platform", "The image is built for another operating system or processor.",
    "Build it for this site's platform, for example with `docker build --platform linux/amd64`.",
)  # fmt: skip
IMAGE_COMMAND = _code(
    "image_command", "The command, environment, working folder, or user of the image cannot be used.",
    "Correct ENTRYPOINT, CMD, ENV, WORKDIR, or USER in the Dockerfile, and build the image again.",
)  # fmt: skip
IMAGE_PATH = _code(
    "image_path", "A name in a layer leaves the root file system, or is below a file.",
    "Build the image again with docker, podman, or buildah, which write only names inside of it.",
)  # fmt: skip
IMAGE_LINK = _code(
    "image_link", "A hard link in a layer leads outside of the root file system, or to no file of it.",
    "Copy the file into the image instead of linking it.",
)  # fmt: skip
IMAGE_DEVICE = _code(
    "image_device", "A layer contains a device, a pipe, or a socket outside of /dev.",
    "Remove it from the image. The sandbox provides /dev.",
)  # fmt: skip
IMAGE_SIZE = _code(
    "image_size", "The image exceeds a limit on its bytes, files, layers, or depth of folders.",
    "Start from a smaller base image, and remove caches and unused packages.",
)  # fmt: skip
IMAGE_SETUID = _code(
    "image_setuid", "Files of the image run with the rights of their owner (set-user-ID or set-group-ID).",
    "No action is needed: these bits have no effect in the sandbox and are removed.", severity="warning",
)  # fmt: skip
IMAGE_MISSING = _code(
    "image_missing", "The registry has no public image of this name with this digest.",
    "Copy name and digest from the output of `docker push`, and make the image public, or upload it as an archive.",
)  # fmt: skip
IMAGE_UNREACHABLE = _code(
    "image_unreachable", "The registry did not send the image.",
    "Try again later, which continues the download, or upload the image as an archive.",
)  # fmt: skip


class ImageRefused(Exception):
    """Reading of an image stopped early. The findings contain the reason."""


class ImageFindings:
    """Problems of one image: the first messages and the number of problems for each code."""

    def __init__(self) -> None:
        self._messages: dict[ProblemCode, list[str]] = {}
        self._counts: dict[ProblemCode, int] = {}

    def add(self, code: ProblemCode, message: str, *names: str) -> None:
        """Count a problem. The untrusted `names` fill the braces in the message."""
        self._counts[code] = self._counts.get(code, 0) + 1
        if self._counts[code] <= 3:
            self._messages.setdefault(code, []).append(message.format(*map(quoted, names)))

    def stop(self, code: ProblemCode, message: str, *names: str) -> ImageRefused:
        """Count a problem, and return the exception that stops reading."""
        self.add(code, message, *names)
        return ImageRefused(code)

    def require_size(self, what: str, size: int, limit: int, *, is_bytes: bool = True) -> None:
        """Raise ImageRefused if a size exceeds its limit."""
        if size > limit:
            limit_text = describe_bytes(limit) if is_bytes else f"{limit:,}"
            raise self.stop(IMAGE_SIZE, f"the {what} exceed the limit of {limit_text}")

    def report(self) -> Report:
        """Return one problem for each code, errors first."""
        problems = [self._problem(code, messages) for code, messages in self._messages.items()]
        return Report(tuple(sorted(problems, key=lambda problem: problem.severity != "error")))

    def _problem(self, code: ProblemCode, messages: Sequence[str]) -> Problem:
        count = self._counts[code]
        more = f"; and {count - len(messages):,} more" if count > len(messages) else ""
        return code.problem("; ".join(messages) + more, code.remedy, count)
