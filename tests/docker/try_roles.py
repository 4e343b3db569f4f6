"""The site on PostgreSQL with the roles of docker/roles.sql: who works with less than a superuser, works.

psql runs the script as the image would, twice; the commands of compose.yaml's `setup` migrate as the owner; a
retriever with its own role retrieves the demo's baseline and makes the demo's model, and runs and measures it; a scorer
as the site scores both. Then a backup as the site, restored by the owner into another database. Prints a line for each,
and ends with status 1 where one fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import yaml

from tests.servers import processes
from tests.servers.broker import start_broker
from tests.servers.postgresql import start_postgresql

ROOT = Path(__file__).resolve().parents[2]
CELERY = [str(Path(sys.executable).with_name("celery")), "--app", "leaderboard.celery", "--quiet", "worker"]
CELERY += ["--pool", "prefork", "--concurrency", "1", "--without-gossip", "--without-mingle"]
PASSWORDS = dict.fromkeys(
    ("DATABASE_OWNER_PASSWORD", "DATABASE_PASSWORD", "DATABASE_RETRIEVER_PASSWORD"), "letters"
)
STATES = "SELECT kind, state FROM submissions_job WHERE kind IN ('baseline', 'sample_model') ORDER BY id"


def run(arguments: list[str], environment: dict[str, str], what: str) -> str:
    """Run it, print how long it took, and return what it said. Ends the program where it fails."""
    began = time.perf_counter()
    done = subprocess.run(
        arguments, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    print(f"{time.perf_counter() - began:6.1f} s  {what}", flush=True)
    if done.returncode:
        sys.exit((done.stdout + done.stderr)[-3000:])
    return done.stdout + done.stderr


def roles(socket: Path, database: str) -> None:
    """What PostgreSQL's image does with the script."""
    psql = shutil.which("psql") or sys.exit("There is no psql: apt-get install postgresql-client")
    command = [psql, "--host", str(socket), "--username", "runboard", "--no-password", "--dbname", database]
    run([*command, "--file", str(ROOT / "docker/roles.sql")], PASSWORDS, f"roles.sql in {database}")


def create(socket: Path, database: str) -> None:
    """A database, made by the superuser as the image makes it."""
    with psycopg.connect(host=str(socket), user="runboard", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")  # type: ignore[call-overload]


def wait_for_the_demo(socket: Path, logs: Path, seconds: float = 200) -> None:
    """Until what the demo asks for is done. Ends the program with the logs' last lines where something fails."""
    began = time.perf_counter()
    with psycopg.connect(host=str(socket), user="runboard", dbname="runboard", autocommit=True) as connection:
        while True:
            states: list[Any] = connection.execute(STATES).fetchall()
            if len(states) > 1 and all(state == "done" for _, state in states):
                break
            failed = [state for _, state in states if state in ("failed", "rejected")]
            if failed or time.perf_counter() - began > seconds:
                sys.exit(f"{states}\n" + "\n".join(processes.last_lines(log) for log in logs.glob("*.log")))
            time.sleep(0.5)
    print(f"{time.perf_counter() - began:6.1f} s  retrieved and scored: {states}", flush=True)


def denied(logs: Path) -> list[str]:
    """Lines that say that a right was missing."""
    return [
        line
        for log in logs.glob("*.log")
        for line in log.read_text().splitlines()
        if "permission denied" in line
    ]


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runboard-roles-")))
        server = start_postgresql(stack.callback)
        socket = server.folder
        broker = start_broker(stack.callback)
        urls = {
            role: f"postgresql://runboard_{role}:letters@/runboard?host={socket}"
            for role in ("owner", "site", "retriever")
        }
        create(socket, "runboard")
        roles(socket, "runboard")
        site = {
            "RUNBOARD_VAR": str(folder / "state"), "DATABASE_URL": urls["site"], "REDIS_URL": broker.url,
            "SECRET_KEY": "thrown away with everything else here, and long enough for the check",
            "ALLOWED_HOSTS": "localhost", "EMAIL_URL": "smtp://127.0.0.1", "OWNER_URL": urls["owner"],
        }  # fmt: skip
        services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
        command = services["setup"]["command"][-1].replace("$$", "$").replace("python ", f"{sys.executable} ")
        said = run(["sh", "-c", command], site, "compose's setup")
        assert "W003" not in said, said
        roles(socket, "runboard")
        worker = {**site, "SECRET_KEY": "none"}
        for queues, more in (
            ("score,dispatch", {}),
            ("cpu", {"DATABASE_URL": urls["retriever"], "PRIVATE_STORAGE": "off"}),
        ):
            log = folder / f"{queues}.log"
            process = processes.start([*CELERY, "--queues", queues], log, {**worker, **more}, cwd=ROOT)
            stack.callback(processes.stop, process)
        wait_for_the_demo(socket, folder)
        assert not denied(folder), denied(folder)
        back_up_and_restore(folder, socket, site)


def back_up_and_restore(folder: Path, socket: Path, site: dict[str, str]) -> None:
    """As docker/README.md says: a backup as the site, restored by the owner."""
    manage = [sys.executable, "manage.py"]
    run([*manage, "backup", str(folder / "backups"), "--in-the-clear"], site, "a backup as the site")
    create(socket, "restored")
    roles(socket, "restored")
    owner = {**site, "RUNBOARD_VAR": str(folder / "restored")}
    owner["DATABASE_URL"] = site["OWNER_URL"].replace("/runboard?", "/restored?")
    (made,) = (folder / "backups").iterdir()
    run([*manage, "restore_backup", str(made)], owner, "restored by the owner")
    print(
        "        ", run([*manage, "database_rights"], owner, "rights in what was restored").replace("\n", " ")
    )
    read = [
        *manage,
        "shell",
        "-c",
        "from leaderboard.models import Entry; print(Entry.objects.count(), 'entries')",
    ]
    again = {**owner, "DATABASE_URL": site["DATABASE_URL"].replace("/runboard?", "/restored?")}
    print("        ", run(read, again, "read by the site").strip().splitlines()[-1])


if __name__ == "__main__":
    main()
