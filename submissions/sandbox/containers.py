"""Run container images in the sandbox, as a single command or as a server that an engine calls through a relay."""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evaluation.checkpoints.findings import quote, quoted
from evaluation.efficiency.hardware import own_gpu
from evaluation.engines.serving import is_ready
from evaluation.images.archive import ImageConfig
from submissions.sandbox.backends import (
    NOBODY_UID,
    Backend,
    ImageRoot,
    Mount,
    Program,
    Relay,
    SandboxedProcess,
    SandboxLimits,
    SandboxUnavailable,
)
from submissions.sandbox.machine_lock import MachineLock
from submissions.sandbox.nesting import SOCKET_NAME
from submissions.sandbox.processes import exceeds_limits, remove_unexpected_files
from submissions.sandbox.running import FAILURE_CODES, THREAD_VARIABLES, SandboxOutcome, build_failure
from submissions.sandbox.supervision import OnProgress, Supervision, require_free_disk

_MAX_LINES, _MAX_OUTPUT, _CHUNK = 12, 1200, 1 << 16
#: Maximum number of files that an image may write, and that each of its processes may open. Buffers of open sockets are
#: memory that only a control group counts.
_MAX_FILES, _MAX_OPEN_FILES = 200_000, 1024
#: Maximum number of processes and threads of an image on workers without control groups, where they compete with the
#: worker. A server with torch needs about 200.
_MAX_UNGROUPED_PROCESSES = 256
#: Maximum startup time of a server, and the pause between readiness checks, in seconds.
START_SECONDS, _PAUSE = 900.0, 0.2
#: Exit statuses of bwrap after SIGKILL to itself or to the image's command.
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTask:
    """A run of an image: its unpacked root, its configuration, and its inputs and outputs.

    `folder` receives everything that the image writes: its output in `out`, and its /tmp. `inputs` maps paths in the
    image to read-only files. `command` and `environment` override the configuration. `serves` starts the relay.
    The outcome of a failure contains the image's last messages and exit status only if `shows_output` is set.
    """

    root: Path
    config: ImageConfig
    folder: Path
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Path] = field(default_factory=dict)
    output_target: str = "/tira-data/output"
    device: str = "cpu"
    threads: int = 1
    serves: bool = False
    shows_output: bool = False

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def scratch(self) -> Path:
        return self.folder / "tmp"

    @property
    def relay_folder(self) -> Path:
        return self.folder / "relay"


class ImageSupervision(Supervision):
    """Supervision of an image, whose output is not interpreted but stored with its errors."""

    blames_child_for_full_disk = True

    def __init__(self, task: ImageTask, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._task = task

    def end(self) -> None:
        """End the image, and read the rest of its messages, those on standard error last."""
        output = self._child.process.stdout
        assert output is not None
        self._child.kill()
        while content := output.read(_CHUNK):
            self._read_lines(content)
        super().end()

    def _read_lines(self, content: bytes) -> None:
        self.tail = (self.tail + content)[-8192:]

    @property
    def outcome(self) -> SandboxOutcome | None:
        """Failure of the ended image, or None if its command succeeded. Raises SandboxUnavailable."""
        text = self.tail.decode(errors="replace").strip()
        output = quote(" ⏎ ".join(text.splitlines()[-_MAX_LINES:]), _MAX_OUTPUT) if self._task.shows_output else ""
        if self.breach is not None:
            return replace(build_failure(self.breach, FAILURE_CODES[self.breach], self), output=output)
        if self.status == 0:
            return None
        if exceeds_limits(self._folders, int(0.99 * self._limits.output_bytes), self._limits.files):
            return build_failure("disk", "too_much_output", self)  # the kernel refused to write more
        if not self._child.ran_command:  # so the messages are those of bwrap
            if not re.search("execvp|Can't chdir", text):
                raise SandboxUnavailable(quote(text.rpartition("\n")[2], 300))
            program, folder = (self._task.command or self._task.config.command)[0], self._task.config.folder
            message = f"the command {quoted(program)} was not found, or cannot be executed in {quoted(folder)}"
            return build_failure("model_failed", "image_failed", self, message)
        if self.status in _KILLED:  # perhaps by the machine, so that the job is retried once
            return replace(build_failure("crashed", "image_killed", self), output=output)
        message = f"exit status {self.status}" if self._task.shows_output else ""
        return replace(build_failure("model_failed", "image_failed", self, message), output=output)


def run_image(backend: Backend, task: ImageTask, limits: SandboxLimits, on_progress: OnProgress) -> SandboxOutcome:
    """Run the image's command and return the outcome. Its output in `task.out` is reduced to regular files.

    `on_progress` is called as in `run_job`. Raises SandboxUnavailable if the sandbox fails.
    """
    with ExitStack() as resources:
        lock = resources.enter_context(closing(MachineLock(device=task.device)))
        lock.acquire_shared(on_progress)
        _, supervision = resources.enter_context(_started(backend, task, limits, lock, on_progress))
        supervision.run()
    remove_unexpected_files(task.out)
    return supervision.outcome or SandboxOutcome("done", supervision.seconds, supervision.peak_memory)


class ImageServer:
    """A running image server, supervised by a thread."""

    def __init__(self, child: SandboxedProcess, supervision: ImageSupervision, socket_path: Path) -> None:
        self.supervision, self.socket_path = supervision, socket_path
        self._child = child
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True, name="image server")
        self._thread.start()

    def _watch(self) -> None:
        try:
            self.supervision.run()
        except BaseException as error:
            self._error = error

    def check(self) -> None:
        """Raise ServerEnded, or the supervision's error, if the server has ended."""
        if self._thread.is_alive():
            return
        if self._error is not None:
            raise self._error
        failure = build_failure("model_failed", "image_failed", self.supervision)
        raise ServerEnded(self.supervision.outcome or failure)

    def wait(self, on_progress: OnProgress) -> None:
        """Wait until the server is ready. Raises ServerEnded if it ends, or is not ready within START_SECONDS."""
        deadline = time.monotonic() + START_SECONDS
        while not is_ready(self.socket_path):
            self.check()
            on_progress("loading", 0.0, "")
            if time.monotonic() > deadline:
                raise ServerEnded(build_failure("model_failed", "server_silent", self.supervision))
            time.sleep(_PAUSE)

    def stop(self) -> None:
        self._child.kill()
        self._thread.join()


class ServerEnded(Exception):
    """The image's server ended or never became ready. `outcome` describes the failure."""

    def __init__(self, outcome: SandboxOutcome) -> None:
        self.outcome = outcome
        super().__init__(outcome.failure_code)


@contextmanager
def serve_image(
    backend: Backend, task: ImageTask, limits: SandboxLimits, on_progress: OnProgress
) -> Iterator[ImageServer]:
    """Start the image's server, yield it once it is ready, and stop it after the block.

    The caller must hold the machine's lock. Raises ServerEnded, and SandboxUnavailable, through no fault of the image.
    """
    with ExitStack() as resources:
        lock = resources.enter_context(closing(MachineLock(device=task.device)))
        child, supervision = resources.enter_context(_started(backend, task, limits, lock, lambda *_: None))
        server = ImageServer(child, supervision, task.relay_folder / SOCKET_NAME)
        resources.callback(server.stop)
        server.wait(on_progress)
        yield server


@contextmanager
def _started(
    backend: Backend, task: ImageTask, limits: SandboxLimits, lock: MachineLock, on_progress: OnProgress
) -> Iterator[tuple[SandboxedProcess, ImageSupervision]]:
    """Start the image, yield its process and supervision, and stop it after the block."""
    if not (backend.available and backend.isolates):
        raise SandboxUnavailable(f"{backend.name}: {backend.reason or 'container images need a sandbox'}")
    for folder in (task.out, task.scratch, *([task.relay_folder] if task.serves else [])):
        folder.mkdir()
        folder.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY_UID, NOBODY_UID)
    require_free_disk(task.folder, limits)
    processes = min(limits.processes, _MAX_UNGROUPED_PROCESSES) if backend.lacks_memory_groups else limits.processes
    limits = replace(limits, files=_MAX_FILES, open_files=_MAX_OPEN_FILES, processors=task.threads, processes=processes)
    child = backend.start(_program(task, limits))
    try:
        yield child, ImageSupervision(task, child, limits, [task.out, task.scratch], lock, on_progress, measures=False)
    finally:
        child.kill()
        child.close()


def _program(task: ImageTask, limits: SandboxLimits) -> Program:
    """Return the program that runs the image's command."""
    config = task.config
    environment = {
        "PATH": _PATH,
        "HOME": config.home,
        "LANG": "C.UTF-8",
        **dict.fromkeys(THREAD_VARIABLES, str(task.threads)),
        **config.environment,
        "HOSTNAME": "sandbox",
        **task.environment,
    }
    if task.device == "cuda":
        libraries = [environment.get("LD_LIBRARY_PATH", ""), "/usr/local/nvidia/lib64"]
        environment |= {
            "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": own_gpu().number,
        }
    relay = Relay(task.relay_folder, config.port) if task.serves else None
    return Program(
        command=task.command or config.command,
        limits=limits,
        mounts=(
            Mount(task.scratch, "/tmp", writable=True),  # noqa: S108
            Mount(task.out, task.output_target, writable=True),
            *(Mount(source, target) for target, source in task.inputs.items()),
        ),
        environment=environment,
        cuda=task.device == "cuda",
        image=ImageRoot(task.root, config.user, config.group, config.folder, relay),
    )
