"""A whole site beside the test, in process trees of their own, each of which can be killed, stopped and started again.

The test itself is on the same database, broker and folder of state: it submits through the product's own door and looks
at rows. Times of the queue are scaled, so that what takes a minute in production takes seconds.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import close_old_connections, connections

from leaderboard.management.supervisor import services
from leaderboard.management.supervisor.processes import Command
from tests.faults.orders import Orders
from tests.faults.service import Program, Service
from tests.servers import plugin, processes

#: Times of the queue in tests of faults, in parts of production's: a lease of three seconds.
SCALE = 0.05
#: What a machine that is busy with other things may take.
PATIENCE = float(os.environ.get("FAULT_PATIENCE", "120"))


class Site:
    """The processes, by name; the servers, which a session that started its own can kill."""

    def __init__(self, folder: Path, *, scale: float = SCALE, environment: Mapping[str, str] | None = None) -> None:
        self.folder, self.scale = folder, scale
        self.orders = Orders(folder / "orders")
        self.services: dict[str, Service] = {}
        self.port = 0
        self._environment = {
            "PYTHONUNBUFFERED": "1",
            "TEST_TIME_SCALE": str(scale),
            "TEST_IDLE_TRANSACTION_SECONDS": str(60 * scale),
            "WEBHOOKS_LOOPBACK": "on",
            "TIMING_LOCK": str(folder / "timing.lock"),
            "FAULT_ORDERS": str(self.orders.folder),
            **database_environment(),
            **(environment or {}),
        }

    @property
    def database(self) -> Any:
        """The PostgreSQL of this session (`kill`, `stop`, `start`); None where DATABASE_URL named one."""
        return plugin.servers.database

    @property
    def broker(self) -> Any:
        """The Valkey of this session (`kill`, `stop`, `start`); None where REDIS_URL named one."""
        return plugin.servers.broker

    def start_worker(self, name: str, queues: str, processes_: int = 1, **environment: str) -> Service:
        """A real Celery worker that obeys `orders`: it dies, or does without a protection, where these say so."""
        command = services.worker(name, queues, processes_, {**self._environment, "FAULT_NAME": name, **environment})
        arguments = ["tests.faults.faulty" if each == "leaderboard.celery" else each for each in command.arguments]
        return self._start(Command(name, arguments, command.environment))

    def start_beat(self) -> Service:
        """The clock that wakes the dispatcher."""
        folder = self.folder / "beat"
        folder.mkdir(exist_ok=True)
        return self._start(services.beat(folder, self._environment))

    def start_notifier(self) -> Service:
        """The process that tells people."""
        return self._start(services.queue_worker("notices", "notifier", self._environment))

    def start_web(self, **environment: str) -> Service:
        """gunicorn, on `self.address`; returns once it answers."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        service = self._start(services.web(self.port, {**self._environment, **environment}))
        self.wait_for(self.answers, "the web server to answer")
        return service

    @property
    def address(self) -> str:
        """Of the web server, without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        """Whether the web server takes connections."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def wait_until_ready(self) -> None:
        """Return when every worker takes messages."""
        self.wait_for(
            lambda: all(each.ready for each in self.services.values() if each.name not in ("beat", "web")),
            "the workers to be ready",
        )

    def keep_up(self) -> int:
        """Bury what has died, and start it again, as the supervisor does; how many these were."""
        dead = [service for service in self.services.values() if not service.alive]
        for service in dead:
            service.bury()
            service.start()
        return len(dead)

    def wait_for(
        self, condition: Callable[[], Any], what: str, patience: float = PATIENCE, *, mend: bool = True
    ) -> Any:
        """What the condition gives once it holds. Meanwhile we are the supervisor, unless told not to `mend`."""
        deadline = time.monotonic() + patience
        while not (found := condition()):
            assert time.monotonic() < deadline, f"waited {patience:.0f} s for {what}\n{self.last_words()}"
            if mend:
                self.keep_up()
            time.sleep(0.05)
        return found

    def last_words(self) -> str:
        """The ends of all logs, the jobs under way, and who waits for whom, for the message of a failure."""
        from submissions.models import TERMINAL, Job

        close_old_connections()
        logs = [f"== {name}\n{processes.last_lines(each.log, 12)}" for name, each in self.services.items()]
        with contextlib.suppress(Exception):
            jobs = Job.objects.exclude(state__in=TERMINAL).values_list(
                "pk", "kind", "state", "stage", "attempts", "worker", "lease_expires_at", "not_before"
            )
            logs.append(f"== jobs under way\n{list(jobs[:10])}")
        if connections["default"].vendor == "postgresql":
            with contextlib.suppress(Exception):
                logs.append(f"== sessions of PostgreSQL\n{_sessions()}")
        return "\n".join(logs)

    def stop_service(self, name: str) -> None:
        """Stop one process, and keep it stopped."""
        self.services.pop(name).stop()

    def stop(self) -> None:
        """Stop all, at once."""
        for service in self.services.values():
            if service.alive:
                with contextlib.suppress(ProcessLookupError):
                    service.thaw()
            service.kill()
        self.services.clear()

    def add(self, service: Service) -> Service:
        """Start a service, and keep it up."""
        self.services[service.name] = service
        service.start()
        return service

    def _start(self, command: Command) -> Service:
        return self.add(Program(command, self.folder / f"{command.name}.log"))


def _sessions() -> str:
    """What the server does for each of its sessions but ours: by whom it is held up, and by which words."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT pid, state, wait_event_type, wait_event, pg_blocking_pids(pid), now() - state_change, "
            "left(query, 200) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid != pg_backend_pid() ORDER BY state, pid"
        )
        return "\n".join(" ".join(map(str, row)) for row in cursor.fetchall())


def database_environment() -> dict[str, str]:
    """Where other processes find the database of the tests."""
    url = os.environ.get("DATABASE_URL", "")
    name = str(connections["default"].settings_dict["NAME"])
    environment = {"RUNBOARD_VAR": str(settings.VAR)}
    if url:
        environment["DATABASE_URL"] = re.sub(r"/[^/?]*(\?|$)", rf"/{name}\1", url, count=1)
    return environment
