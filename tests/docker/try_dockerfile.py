"""Run the steps of docker/Dockerfile where there is no Docker: in a plain Debian of its own, then serve from it.

`make try-dockerfile TARGET=web` (or `cpu-worker`), as root, with debootstrap and bubblewrap. What it prints is a table
of steps and seconds; it ends with status 1 at the first that fails. The base image itself is not used: its place is
taken by Debian's own Python of the same line. The command of `setup` is the one in compose.yaml.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tests.docker.clean_root import PYTHON, CleanRoot, debootstrap, own
from tests.docker.dockerfile import Context, Step, copied, healthcheck, read_stages, steps_of, words_of
from tests.servers import processes

ROOT = Path(__file__).resolve().parents[2]
HOST = "leaderboard.example.org"
BROKER = "/run/broker"
#: The variables of compose.yaml, with SQLite and a Valkey on a socket in place of servers in containers of their own.
SITE = {
    "SECRET_KEY": "a key of a trial that is thrown away with everything else here",
    "ALLOWED_HOSTS": HOST,
    "SITE_ADDRESS": f"https://{HOST}",
    "HTTPS": "1",
    "BEHIND_PROXY": "1",
    "PRIVATE_STORAGE": "off",
    "HEARTBEAT_FILE": "/tmp/runboard-heartbeat",
    "REDIS_URL": f"redis+socket://{BROKER}/valkey.sock",
    "EMAIL_URL": "smtp://127.0.0.1",
    "OWNER_URL": "sqlite:////data/db.sqlite3",
}
WITHOUT_RIGHTS = """import os, pathlib
assert os.getuid() == os.geteuid() == 10001, os.getuid()
for place in ("/site", "/etc", "/usr/local/bin"):
    try: pathlib.Path(place, "written").touch()
    except OSError: continue
    raise SystemExit(f"{place} can be written to")
assert "CapBnd:\\t0000000000000000" in pathlib.Path("/proc/self/status").read_text()
pathlib.Path("/data/written").unlink(missing_ok=True)"""
NO_MODELS = "import importlib.util as u; assert not [n for n in ('torch', 'transformers') if u.find_spec(n)]"
VALKEY = f"""import os, pathlib; from leaderboard.management.supervisor import valkey
arguments = valkey.command(pathlib.Path("{BROKER}"), pathlib.Path("/tmp/valkey")).arguments
os.execv(arguments[0], arguments)"""
#: The server, its own check until it is well, then what a visitor asks for.
SERVED = f"""import json, subprocess, sys, time, urllib.request as r
server, check = json.loads(sys.argv[1]), json.loads(sys.argv[2])
process = subprocess.Popen(server)
for second in range(120):
    if subprocess.run(check).returncode == 0: break
    assert process.poll() is None, "the server has ended"
    time.sleep(1)
else: raise SystemExit("never healthy")
def ask(path):
    told = {{"Host": "{HOST}", "X-Forwarded-Proto": "https"}}
    return r.urlopen(r.Request("http://127.0.0.1:8000" + path, headers=told), timeout=30).read().decode()
assert '"ok"' in ask("/healthz")
assert "<h1" in ask("/")
process.terminate()
print("healthy after", second, "s; ended with", process.wait(30))"""


@contextmanager
def row(name: str) -> Iterator[None]:
    """Time a step and print its line. What it raises ends the run."""
    began = time.perf_counter()
    outcome = "FAILED"
    try:
        yield
        outcome = "ok"
    finally:
        print(f"{time.perf_counter() - began:8.1f} s  {outcome:6}  {name[:140]}", flush=True)


def apply(root: CleanRoot, step: Step, context: Context, stages: dict[str, Path]) -> None:
    """Do to the root what a step of the Dockerfile says. Raises CalledProcessError or FileNotFoundError."""
    match step.instruction:
        case "RUN":
            root.build(step.text)
        case "WORKDIR":
            root.workdir = step.text
            _inside(root.folder, step.text).mkdir(parents=True, exist_ok=True)
        case "ENV":
            root.environment |= dict(pair.split("=", 1) for pair in step.text.split())
        case "ARG":
            name, _, default = step.text.partition("=")
            if value := os.environ.get(name, default.strip('"')):
                root.environment[name] = value
        case "USER":
            root.user = step.text
        case "COPY":
            _copy(root, step, context, stages)


def _copy(root: CleanRoot, step: Step, context: Context, stages: dict[str, Path]) -> None:
    stage, sources, destination = copied(step)
    target = _inside(root.folder, str(Path(root.workdir) / destination))
    if stage:
        source = _inside(stages[stage], sources[0])
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "--archive", f"{source}/.", str(target)], check=True)  # over links that are there
        return
    for source in sources:
        is_file = (context.folder / source).is_file()
        as_folder = destination.endswith("/") or len(sources) > 1
        context.copy(source, target / Path(source).name if is_file and as_folder else target)


def _inside(folder: Path, path: str) -> Path:
    return folder / path.lstrip("/")


def build(targets: Sequence[str], folder: Path, plain: Path | None) -> dict[str, tuple[CleanRoot, list[Step]]]:
    """The root of each target, made by the Dockerfile's steps, and these."""
    stages = read_stages(ROOT / "docker/Dockerfile")
    context = Context(ROOT)
    made: dict[str, CleanRoot] = {}

    def make(name: str) -> CleanRoot:
        """A stage, once, from a copy of the one that it stands on; before it those that it copies from."""
        if name in made:
            return made[name]
        stage = stages[name]
        if stage.base in stages:
            root = _copy_of(make(stage.base), folder / name)
        else:
            root = _begin(stage.base, folder / name, plain)
        for step in stage.steps:
            others = {}
            if step.instruction == "COPY" and (other := copied(step)[0]):
                others[other] = make(other).folder
            with row(f"{name}: {step.instruction} {step.text}"):
                apply(root, step, context, others)
        made[name] = root
        return root

    return {target: (make(target), steps_of(stages, target)[1]) for target in targets}


def _begin(image: str, folder: Path, plain: Path | None) -> CleanRoot:
    """What stands for an image from outside: nothing for `scratch`, else Debian with its own Python."""
    root = CleanRoot(folder)
    if image == "scratch":
        return root
    with row(f"FROM {image}: Debian's own in its place"):
        if plain is None:
            debootstrap(root.folder, image.partition("@")[0].rpartition("-")[2])
        else:
            subprocess.run(["cp", "--archive", str(plain), str(root.folder)], check=True)  # it has devices
        root.folder.chmod(0o755)
        root.build(PYTHON)
    return root


def _copy_of(root: CleanRoot, folder: Path) -> CleanRoot:
    """Its files, and what was said of it so far."""
    subprocess.run(["cp", "--archive", str(root.folder), str(folder)], check=True)
    return replace(root, folder=folder, environment=dict(root.environment))


def try_web(root: CleanRoot, steps: list[Step], folders: dict[Path, str], log: Path) -> None:
    """Serve as the image does, until its own check says that it is well."""
    with row("no library of models is there"):
        root.run(["python", "-c", NO_MODELS], folders)
    command = words_of([step.text for step in steps if step.instruction == "CMD"][-1])
    with row(f"CMD {command[0]}, HEALTHCHECK {' '.join(healthcheck(steps))}"):
        said = root.run(["python", "-c", SERVED, json.dumps(command), json.dumps(healthcheck(steps))], folders, SITE)
        log.write_text(said)
        print("           ", said.splitlines()[-1])


def try_worker(root: CleanRoot, steps: list[Step], folders: dict[Path, str], log: Path) -> None:
    """The image's worker retrieves the demo's baseline, without judgements; a scorer with them scores it."""
    data = next(folder for folder, inside in folders.items() if inside == "/data")
    private = {folder: inside for folder, inside in folders.items() if inside != "/data/private"}
    command = words_of([step.text for step in steps if step.instruction == "CMD"][-1])
    scorer = _compose()["scorer"]["command"].replace("--concurrency 2", "--concurrency 1").split()
    with ExitStack() as stack, log.open("w") as output:
        worker = root.start(command, private, SITE, output=output)
        stack.callback(processes.stop, worker)
        second = root.start(scorer, folders, {**SITE, "PRIVATE_STORAGE": "on"}, output=output)
        stack.callback(processes.stop, second)
        with row("CMD celery: the baseline is retrieved there, and scored by a scorer"):
            wait_for(
                lambda: _baseline(data) == "done",
                600,
                lambda: f"the baseline is {_baseline(data)}; see {log}",
            )
        with row("models run in its sandbox: bubblewrap, without rights, over a read-only root"):
            look = "from submissions.sandbox import backend as b; assert b().available, b().reason; print(b().name)"
            print(
                "           ",
                root.run(["python", "manage.py", "shell", "-c", look], private, SITE).splitlines()[-1],
            )


def _baseline(data: Path) -> str:
    with closing(sqlite3.connect(f"file:{data / 'db.sqlite3'}?mode=ro", uri=True)) as database:
        row = database.execute("SELECT state FROM submissions_job WHERE kind = 'baseline' ORDER BY id").fetchone()
    return str(row[0]) if row else "not there"


def wait_for(there: Callable[[], bool], seconds: float, otherwise: Callable[[], str]) -> None:
    """Look twice a second. Raises RuntimeError with what `otherwise` says after so long."""
    deadline = time.monotonic() + seconds
    while not there():
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise())
        time.sleep(0.5)


def _compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
    return services


def try_target(target: str, folder: Path, plain: Path | None) -> None:
    """Build and serve one target. Raises what fails."""
    root, steps = build([target], folder, plain)[target]
    user, group = root.identity()
    state = {folder / name: inside for name, inside in (("data", "/data"), ("private", "/data/private"))}
    for each in (folder, *state, folder / "broker"):
        own(each, user, group)
    folders = {**state, folder / "broker": BROKER}
    _inside(root.folder, BROKER).mkdir(parents=True, exist_ok=True)
    with row("no rights, read-only root"):
        root.run(["python", "-c", WITHOUT_RIGHTS], folders)
    with ExitStack() as stack, (folder / "valkey.log").open("w") as output:
        broker = root.start(["python", "-c", VALKEY], folders, SITE, output=output)
        stack.callback(processes.stop, broker)
        wait_for((folder / "broker/valkey.sock").exists, 60, lambda: "Valkey does not start")
        command = [word.replace("$$", "$") for word in _compose()["setup"]["command"]]
        with row("compose's setup: " + " ".join(command[-1].split())):
            root.run(command, folders, {**SITE, "PRIVATE_STORAGE": "on"})
        trial = try_web if target == "web" else try_worker
        trial(root, steps, folders, folder / f"{target}.log")


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options of whatever builds roots."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--plain", type=Path, help="a Debian that debootstrap made, to copy instead of making one")
    found.add_argument("--keep", type=Path, help="an empty folder to work in, which is left; else a temporary one")
    return found


@contextmanager
def working_folder(options: argparse.Namespace, programs: Sequence[str]) -> Iterator[Path]:
    """Where to work. Ends the program where it is not root's, or where a program is missing."""
    missing = [name for name in ("debootstrap", "bwrap", "setpriv", *programs) if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        needs = f"This needs root and {', '.join(missing) or 'nothing else'}: apt-get install debootstrap bubblewrap"
        sys.exit(" ".join([needs, *programs]))
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runboard-image-")))
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("target", choices=["web", "cpu-worker"])
    options = arguments.parse_args()
    with working_folder(options, ()) as folder:
        try_target(options.target, folder, options.plain)


if __name__ == "__main__":
    main()
