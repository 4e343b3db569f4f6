"""Startup order of the site's processes, and readiness."""

import hashlib
import os
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import Permission
from django.contrib.staticfiles.finders import get_finders
from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from django.db import connection

from leaderboard.core.schema_version import (
    describe_earlier_history,
    describe_missing_columns,
    known_migrations,
    recorded_migrations,
)
from leaderboard.importing import bootstrap
from leaderboard.management.supervisor import services, valkey
from leaderboard.management.supervisor.logs import echo
from leaderboard.management.supervisor.processes import ProcessGroup, SupervisorError, run

#: Seconds that the broker may take to load its file.
BROKER_SECONDS = 30.0
#: Seconds between two messages during a long startup.
REMINDER_SECONDS = 30.0


class Site:
    """A site and its state folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._run_folder = folder / "run"
        self._port = port

    def run(self) -> int:
        """Run until a stop is requested; return exit status 0, or 1 after printing the reason of a failure."""
        return run(self._folder, self.address, settings.BASE_DIR, self._run_processes)

    def _run_processes(self, group: ProcessGroup) -> None:
        """Start all processes of the site in order, and watch them until a stop is requested.

        Raises SupervisorError if the port is in use or a step fails, and StopRequested on a signal.
        """
        started_at = time.monotonic()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self._port))
            except OSError as error:
                raise SupervisorError(
                    f"Port {self._port} cannot be used ({error.strerror}). "
                    f"Choose another: PORT={self._port + 1} make run"
                ) from error
        self._run_folder.mkdir(parents=True, exist_ok=True)
        environment = {
            "RUNBOARD_VAR": str(self._folder),
            "REDIS_URL": self._start_broker(group),
            "PYTHONUNBUFFERED": "1",
        }
        prepare = services.manage("prepare", "runboard", "--prepare", environment=environment, console="everything")
        if needs_migration := migrations_are_pending():
            echo("Preparing the database …")
            # `prepare` begins with work that does not need the database.
            group.start(prepare, services.compile_kernels(environment))
        self._bring_up_to_date(group, environment, migrate=needs_migration)
        group.start(services.web(self._port, environment))
        if not needs_migration:  # Starting all processes at once delays the first page.
            self._wait_until(group, self._answers)
            group.start(prepare)
        group.start(
            services.queue_worker("score", "scorer", environment),
            *services.retrievers(environment),
            services.queue_worker("notices", "notifier", environment),
            services.beat(self._run_folder, environment),
        )
        self._wait_until(group, lambda: bootstrap.is_ready() and self._answers())
        connection.close()
        file = bootstrap.password_file()
        sign_in = f" (sign in as {bootstrap.CURATOR}; the password is in {file})" if file.exists() else ""
        echo(f"Ready in {time.monotonic() - started_at:.0f} s: {self.address}{sign_in}")
        group.keeps_trying = True
        group.run_until(lambda: False, interval=1.0)

    def _start_broker(self, group: ProcessGroup) -> str:
        """Start a broker unless `REDIS_URL` is set, write its address to a file for other commands, and return it."""
        address_file = self._run_folder / "redis-url"
        group.watchdog.add_path(address_file)
        if not (address := os.environ.get("REDIS_URL", "")):
            folder = valkey.make_socket_folder()
            group.watchdog.add_path(folder)
            group.start(valkey.command(folder, self._folder / "valkey"))
            deadline = time.monotonic() + BROKER_SECONDS
            group.run_until(lambda: valkey.answers(folder) or time.monotonic() > deadline, interval=0.02)
            if not valkey.answers(folder):
                raise SupervisorError(
                    f"Valkey does not accept commands. See its log: {self._folder / 'logs' / 'valkey.log'}"
                )
            address = valkey.url(folder)
        address_file.unlink(missing_ok=True)
        address_file.touch(0o600)  # The address may contain a password.
        address_file.write_text(address + "\n")
        return address

    def _bring_up_to_date(self, group: ProcessGroup, environment: dict[str, str], *, migrate: bool) -> None:
        """Migrate the database if `migrate`, and collect changed static files, in parallel.

        Raises SupervisorError if a step fails, or if the database lacks columns.
        """
        fingerprint_file, fingerprint = self._run_folder / "collected-static", _static_fingerprint()
        is_collected = (Path(settings.STATIC_ROOT) / "staticfiles.json").exists() and fingerprint_file.exists()
        steps = []
        if migrate:
            steps.append(services.manage("migrate", "migrate", "--no-input", environment=environment))
        if not is_collected or fingerprint_file.read_text() != fingerprint:
            steps.append(services.manage("static", "collectstatic", "--no-input", "-c", "-v0", environment=environment))
        group.finish(*steps)
        _refuse_missing_columns()
        fingerprint_file.write_text(fingerprint)

    def _wait_until(self, group: ProcessGroup, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, and print a reminder now and then. The condition may use the database.

        There is no time limit.
        """
        reminded_at = time.monotonic()

        def ready() -> bool:
            """Return whether the condition holds, and print a reminder if the last one was some time ago."""
            nonlocal reminded_at
            if time.monotonic() - reminded_at > REMINDER_SECONDS:
                reminded_at = time.monotonic()
                echo(f"Still starting; the logs are in {self._folder / 'logs'}")
            try:
                return condition()
            except DatabaseError:  # The database is briefly unavailable.
                connection.close()
                return False

        group.run_until(ready, interval=0.1)

    def _answers(self) -> bool:
        """Return whether the web server responds with 200 within two seconds."""
        host = next((host for host in settings.ALLOWED_HOSTS if not host.startswith(("*", "."))), "localhost")
        request = urllib.request.Request(f"{self.address}/healthz", headers={"Host": host})  # noqa: S310  our own
        try:
            with urllib.request.urlopen(request, timeout=2) as response:  # noqa: S310
                return bool(response.status == 200)
        except OSError:
            return False


def _static_fingerprint() -> str:
    """Return a hash of the static files (path, size and modification time) and of their storage."""
    digest = hashlib.sha256(repr(settings.STORAGES["staticfiles"]).encode())
    for finder in get_finders():
        for path, storage in sorted(finder.list([]), key=lambda item: str(item[0])):
            status = Path(storage.path(path)).stat()
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def migrations_are_pending() -> bool:
    """Return whether `migrate` has work. Raises SupervisorError if it cannot migrate the database, or reach it."""
    with _supervised_database():
        if problem := describe_earlier_history():
            raise SupervisorError(problem)
        return not known_migrations().keys() <= recorded_migrations()


def database_is_outdated() -> bool:
    """Return whether the database lacks migrations, columns, or permissions.

    After its last migration, `migrate` adds the permissions app by app. On SQLite, it would fail if another process
    wrote for long meanwhile. Raises SupervisorError as `migrations_are_pending` does.
    """
    if migrations_are_pending() or describe_missing_columns():
        return True
    last_app = [*apps.get_models()][-1]._meta.app_label
    return not Permission.objects.filter(content_type__app_label=last_app).exists()


def _refuse_missing_columns() -> None:
    with _supervised_database():
        if problem := describe_missing_columns():
            raise SupervisorError(problem)


@contextmanager
def _supervised_database() -> Iterator[None]:
    """Convert database errors for the supervisor, and close the connection afterwards."""
    try:
        yield
    except DatabaseError as error:
        raise SupervisorError(f"The database cannot be used: {error}") from error
    finally:
        connection.close()


def port_from_environment() -> int:
    """Return `PORT`, or 8000 by default. Raises CommandError if it is not a port number."""
    text = os.environ.get("PORT", "") or "8000"
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise CommandError(f"PORT must be a number from 1 to 65535, not {text!r}.")
    return int(text)
