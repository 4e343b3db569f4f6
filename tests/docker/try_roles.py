"""The site on PostgreSQL with the roles of docker/roles.sql: who works with less than a superuser, works.

psql runs the script as the image would, twice; the commands of compose.yaml's `setup` migrate as the owner; a
retriever with its own role retrieves the demo's baseline and makes the demo's model, and runs and measures it; a scorer
as the site scores both. With the retriever's password of the broker nobody asks a worker for its settings, ends it or
writes a page; and a page by somebody who has the site's own password is not believed. Then a backup as the site,
restored by the owner into another database, a database of the earlier migrations adopted by the owner, and migrations
back and forward. Prints a line for each, and ends with
status 1 where one fails.
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

from tests.docker.compose_broker import ComposeBroker, start_compose_broker
from tests.servers import processes
from tests.servers.postgresql import start_postgresql

ROOT = Path(__file__).resolve().parents[2]
CELERY = [str(Path(sys.executable).with_name("celery")), "--app", "leaderboard.celery", "--quiet", "worker"]
CELERY += ["--pool", "prefork", "--concurrency", "1", "--without-gossip", "--without-mingle"]
CELERY += ["--without-heartbeat"]
MANAGE = [sys.executable, "manage.py"]
PASSWORDS = dict.fromkeys(("DATABASE_OWNER_PASSWORD", "DATABASE_PASSWORD", "DATABASE_RETRIEVER_PASSWORD"), "letters")
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


def services() -> dict[str, Any]:
    """Those of compose.yaml."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
    return found


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
    """Lines that say that a right was missing, in the database or the broker."""
    return [
        line
        for log in logs.glob("*.log")
        for line in log.read_text().splitlines()
        if "permission denied" in line or "NoPermission" in line
    ]


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runboard-roles-")))
        server = start_postgresql(stack.callback)
        socket = server.folder
        broker = start_compose_broker(folder, stack.callback)
        urls = {
            role: f"postgresql://runboard_{role}:letters@/runboard?host={socket}"
            for role in ("owner", "site", "retriever")
        }
        create(socket, "runboard")
        roles(socket, "runboard")
        site = {
            "RUNBOARD_VAR": str(folder / "state"), "DATABASE_URL": urls["site"], "REDIS_URL": broker.site_url,
            "SECRET_KEY": "thrown away with everything else here, and long enough for the check",
            "ALLOWED_HOSTS": "localhost", "EMAIL_URL": "smtp://127.0.0.1", "OWNER_URL": urls["owner"],
        }  # fmt: skip
        command = services()["setup"]["command"][-1].replace("$$", "$").replace("python ", f"{sys.executable} ")
        said = run(["sh", "-c", command], site, "compose's setup")
        assert "W003" not in said, said
        roles(socket, "runboard")
        worker = {**site, "SECRET_KEY": "none"}
        a_retriever = {"REDIS_URL": broker.retriever_url, "PRIVATE_STORAGE": "off"}
        workers = []
        for queues, more in (
            ("score,dispatch", {}),
            ("cpu", {**a_retriever, "DATABASE_URL": urls["retriever"]}),
        ):
            log = folder / f"{queues}.log"
            process = processes.start([*CELERY, "--queues", queues], log, {**worker, **more}, cwd=ROOT)
            stack.callback(processes.stop, process)
            workers.append(process)
        wait_for_the_demo(socket, folder)
        assert not denied(folder), denied(folder)
        assert not broker.refusals(), "the broker refused what work needs"
        the_broker_is_closed_to_a_retriever({**worker, **a_retriever})
        nobody_believes_the_broker(site, broker)
        assert all(process.poll() is None for process in workers), "a worker was ended"
        back_up_and_restore(folder, socket, site)
        back_and_forward(site)


#: A program that has nothing but an address of the broker: one line for each question, and what came of it.
ASK = """
import sys, celery, redis
asker = celery.Celery(broker=sys.argv[1])
client = redis.Redis.from_url(sys.argv[1])
questions = {
    "settings": lambda: asker.control.inspect(timeout=3).conf(),
    "ping": lambda: asker.control.ping(timeout=3),
    "shutdown": lambda: asker.control.shutdown(),
    "no more work": lambda: asker.control.cancel_consumer("score", reply=True, timeout=3),
    "a page": lambda: client.set("runboard:1:page:1", b"forged"),
    "all keys": lambda: client.keys("*"),
    "messages to the scorer": lambda: client.lrange("score", 0, -1),
    "configuration": lambda: client.config_get("requirepass"),
    "another type for a queue": lambda: client.set("score", b"clobber"),
    "no queue": lambda: client.delete("score"),
    "a script": lambda: client.eval("return redis.call('GET', 'runboard:1:page:1')", 0),
}
for name, ask in questions.items():
    try:
        print(name, "ANSWERED", ask())
    except Exception as error:
        print(name, "refused", type(error.__cause__ or error).__name__, str(error)[:90])
print(len(questions), "asked")
"""


def the_broker_is_closed_to_a_retriever(environment: dict[str, str]) -> None:
    """Directly, by the cache as its own code asks, and through the workers: each question is refused."""
    kept = "from django.core.cache import cache; print(cache.set('a', 1), cache.get('a'))"
    said = run([*MANAGE, "shell", "-c", kept], environment, "kept pages are out of a retriever's reach")
    assert "NoPermissionError" in said, said
    asked = [sys.executable, "-c", ASK, environment["REDIS_URL"]]
    said = run(asked, {}, "and so are workers, other queues and the server itself")
    assert "ANSWERED" not in said, said
    assert "11 asked" in said, said


def nobody_believes_the_broker(site: dict[str, str], broker: ComposeBroker) -> None:
    """Whoever has the site's own password of the broker gets no answer from a worker, and writes no page."""
    asked = [sys.executable, "-c", ASK, broker.site_url]
    said = run(asked, {}, "no worker answers, not even to the site's own password")
    for name, nothing in {"settings": "None", "ping": "[]", "shutdown": "None", "no more work": "[]"}.items():
        assert f"{name} ANSWERED {nothing}\n" in said, said
    forge = """
import pickle, redis; from pathlib import Path; from django.core.cache import cache; from django.conf import settings
cache.set("forged", "real"); server = redis.Redis.from_url(settings.REDIS_URL)
class Planted:
    def __reduce__(self): return print, ("UNPICKLED",)
for forged in (pickle.dumps(Planted()), pickle.dumps("forged"), b'"forged"'):
    server.set(cache.make_key("forged"), forged); print("read:", cache.get("forged", "nothing"))
"""
    said = run([*MANAGE, "shell", "-c", forge], site, "what others wrote into the cache is not believed")
    assert said.count("read: nothing") == 3, said
    assert "UNPICKLED" not in said, said


def back_and_forward(site: dict[str, str]) -> None:
    """As docker/README.md says, as the owner: the earlier migrations' database adopted, the last migration taken back
    and made again; no entry is lost."""
    owner = {**site, "DATABASE_URL": site["OWNER_URL"]}
    count = [
        *MANAGE,
        "shell",
        "-c",
        "from leaderboard.models import Entry; print(Entry.objects.count(), 'entries')",
    ]
    before = run(count, site, "counted").strip().splitlines()[-1]
    earlier = "from tests.earlier_history import record_earlier_migrations as record; record()"
    run([*MANAGE, "shell", "--no-imports", "-c", earlier], owner, "recorded as of the earlier migrations")
    said = run(["sh", "-c", f"{sys.executable} manage.py migrate --no-input || true"], owner, "migrate")
    assert "manage.py adopt_history" in said, said
    run([*MANAGE, "adopt_history"], owner, "adopted")
    run([*MANAGE, "migrate", "leaderboard", "0001", "--verbosity=0"], owner, "back: leaderboard 0001")
    run([*MANAGE, "migrate", "--verbosity=0"], owner, "forward")
    run([*MANAGE, "database_rights"], owner, "rights again")
    after = run(count, site, "counted").strip().splitlines()[-1]
    if before != after:
        sys.exit(f"{before} before, {after} after")
    print("        ", after)


def back_up_and_restore(folder: Path, socket: Path, site: dict[str, str]) -> None:
    """As docker/README.md says: a backup as the site, restored by the owner."""
    run([*MANAGE, "backup", str(folder / "backups"), "--in-the-clear"], site, "a backup as the site")
    create(socket, "restored")
    roles(socket, "restored")
    owner = {**site, "RUNBOARD_VAR": str(folder / "restored")}
    owner["DATABASE_URL"] = site["OWNER_URL"].replace("/runboard?", "/restored?")
    (made,) = (folder / "backups").iterdir()
    run([*MANAGE, "restore_backup", str(made)], owner, "restored by the owner")
    print("        ", run([*MANAGE, "database_rights"], owner, "rights in what was restored").replace("\n", " "))
    read = [
        *MANAGE,
        "shell",
        "-c",
        "from leaderboard.models import Entry; print(Entry.objects.count(), 'entries')",
    ]
    again = {**owner, "DATABASE_URL": site["DATABASE_URL"].replace("/runboard?", "/restored?")}
    print("        ", run(read, again, "read by the site").strip().splitlines()[-1])


if __name__ == "__main__":
    main()
