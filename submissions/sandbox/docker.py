"""docker: a container without network, for machines that have no bwrap."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess

from django.conf import settings

from submissions.sandbox.backends import (
    Backend,
    Program,
    SandboxedProcess,
    interpreter,
    launch_command,
    open_process,
)

#: What a shell reports of a program that was killed, which docker does when memory is used up.
_KILLED = 137
_ENOUGH = 20


class _Container(SandboxedProcess):
    """A container by its name; the process is docker's client."""

    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        super().__init__(process)
        self._name = name
        self._ended_by_us = False
        self._paused = False

    def ran_out_of_memory(self) -> bool:
        return self.process.returncode == _KILLED and not self._ended_by_us

    def stop(self) -> bool:
        self._paused = self._paused or self._do("pause")
        return self._paused

    def is_stopped(self) -> bool:
        return self._paused  # by the kernel: nothing inside can end that

    def resume(self) -> None:
        self._paused = self._paused and not self._do("unpause")

    def kill(self) -> None:
        if self.process.poll() is None:
            self._ended_by_us = True
            self.resume()  # some versions kill nothing that is paused
            self._do("kill")
        super().kill()

    def _do(self, verb: str) -> bool:
        """Have docker do this to the container; whether it did."""
        try:
            ended = subprocess.run(
                ["docker", verb, self._name], capture_output=True, timeout=_ENOUGH, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return ended.returncode == 0


class Docker(Backend):
    """`docker run` with an image that has the project's requirements (SANDBOX_IMAGE).

    Memory and processes are docker's to limit; the parent watches time and what is written.
    """

    name = "docker"
    remedy = (
        "start Docker, and build the image: docker build --file docker/Dockerfile --tag "
        f"{settings.SANDBOX_IMAGE} ."
    )

    def probe(self) -> str:
        if shutil.which("docker") is None:
            return "docker is not installed"
        inspect = ["docker", "image", "inspect", "--format", "{{.Id}}", settings.SANDBOX_IMAGE]
        try:
            answer = subprocess.run(inspect, capture_output=True, text=True, timeout=_ENOUGH, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"docker does not answer ({type(error).__name__})"
        if answer.returncode:
            return answer.stderr.strip()[-300:] or "docker does not answer"
        return self.try_out()

    def start(self, program: Program) -> SandboxedProcess:
        name = f"runboard-{secrets.token_hex(6)}"
        return _Container(open_process(arguments(program, name)), name).greet()


def arguments(program: Program, name: str) -> list[str]:
    """The whole command that runs the program in a container of this name."""
    limits = program.limits
    user = f"{os.geteuid()}:{os.getegid()}" if os.geteuid() else "65534:65534"
    made = ["docker", "run", "--rm", "--interactive", "--init", "--name", name]
    made += ["--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    made += ["--pids-limit", str(limits.most_processes), "--memory", str(limits.memory_bytes)]
    made += ["--memory-swap", str(limits.memory_bytes), "--ulimit", "core=0"]
    made += ["--ulimit", f"fsize={limits.output_bytes}", "--ulimit", f"nofile={limits.open_files}"]
    made += ["--tmpfs", f"/tmp:rw,nosuid,nodev,mode=1777,size={limits.scratch_bytes}"]  # noqa: S108
    made += ["--user", user, "--workdir", "/tmp", "--hostname", "sandbox", "--entrypoint", ""]  # noqa: S108
    if program.cuda:
        made += ["--gpus", "all"]
    for mount in program.mounts:
        ending = "" if mount.writable else ",readonly"
        made += ["--mount", f"type=bind,source={mount.source},target={mount.target}{ending}"]
    for variable, value in program.environment.items():
        made += ["--env", f"{variable}={value}"]
    command = launch_command(program, user=None, address_space=False, processes=None)
    # The image has a Python of its own, with what requirements.txt names.
    return [
        *made,
        settings.SANDBOX_IMAGE,
        *["python" if part == interpreter()[0] else part for part in command],
    ]
