"""The site's processes and servers, in groups whose use of the machine is counted apart."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from leaderboard.management.supervisor import services
from leaderboard.management.supervisor.processes import Command
from tests.load import proxy
from tests.load.report import POSTGRESQL
from tests.servers import processes
from tests.servers.broker import start_broker
from tests.servers.postgresql import start_postgresql

ROOT = Path(__file__).resolve().parents[2]
SERVED = "tests.load.served_site:application"


class Site:
    """PostgreSQL and Valkey as they come, gunicorn, the workers, nginx in front; all end with `after`."""

    def __init__(self, folder: Path, after: ExitStack) -> None:
        self.folder, self._after = folder, after
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.state = folder / "var"
        self.groups: dict[str, list[int]] = {}
        self.database = start_postgresql(after.callback, settings=())
        self.broker = start_broker(after.callback)
        self.groups[POSTGRESQL] = [_pid(self.database)]
        self.groups["Valkey"] = [_pid(self.broker)]
        os.environ.update(
            RUNBOARD_VAR=str(self.state),
            DJANGO_SETTINGS_MODULE="leaderboard.settings",
            DATABASE_URL=self.database.url,
            REDIS_URL=self.broker.url,
            TIMING_LOCK=str(folder / "timing.lock"),
            BEHIND_PROXY="1",
            ACCEL_REDIRECT="1",
        )
        self.port = processes.free_port()

    @property
    def address(self) -> str:
        """Of the proxy."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Everything that is not running yet; returns when the site answers through the proxy."""
        nginx = proxy.find_nginx()
        web, intake = processes.free_port(), processes.free_port()
        self._start(web_command(web), "web")
        self._start(Command("intake", intake_command(intake)), "intake")
        for command in (
            services.queue_worker("score", "scorer", {}),
            *services.retrievers({}),
            services.queue_worker("notices", "notifier", {}),
        ):
            self._start(command, "workers")
        self._start(services.beat(self.folder, {}), "workers")
        configuration = proxy.write_configuration(
            self.folder / "nginx", self.port, {"web": web, "intake": intake, "curation": web}, self.state
        )
        self._start(Command("nginx", proxy.command(nginx, configuration)), "nginx")
        deadline = time.monotonic() + 60
        while not all(map(processes.takes_connections, (web, intake, self.port))):
            if time.monotonic() > deadline:
                raise SystemExit(self.last_words())
            time.sleep(0.1)

    def generator(self, module: str, *arguments: Path) -> Any:
        """A process that makes load: it is no part of the site."""
        command = [sys.executable, "-m", module, *map(str, arguments)]
        process = processes.start(command, self.logs / f"{module}.log", {"PYTHONPATH": str(ROOT)}, cwd=ROOT)
        self._after.callback(_stop, process)
        return process

    def last_words(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"== {log.name}\n{processes.last_lines(log)}" for log in self.logs.iterdir())

    def _start(self, command: Command, group: str) -> None:
        log = self.logs / f"{command.name}.log"
        process = processes.start(command.arguments, log, command.environment, cwd=ROOT)
        self._after.callback(_stop, process)
        self.groups.setdefault(group, []).append(process.pid)


def web_command(port: int) -> Command:
    """gunicorn for pages, as the site starts it, with its kept pages full."""
    command = services.web(port, {})
    words = [SERVED if word == "leaderboard.wsgi:application" else word for word in command.arguments]
    return Command(command.name, words, {**command.environment, "PYTHONPATH": str(ROOT)})


def intake_command(port: int) -> list[str]:
    """gunicorn for what brings files, as compose runs it, but for the address."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    words = shlex.split(compose["services"]["intake"]["command"])
    words[words.index("--bind") + 1] = f"127.0.0.1:{port}"
    place = words.index("gunicorn")
    return [*words[:place], sys.executable, "-m", *words[place:]]


def make_folder() -> str:
    """A temporary folder that other users may enter, for nginx's processes."""
    return tempfile.mkdtemp(prefix="runboard-load-")


def _stop(process: Any) -> None:
    if process.poll() is None:
        processes.stop(process)


def _pid(server: Any) -> int:
    return int(server._process.pid)
