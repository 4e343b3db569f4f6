"""The services of compose.yaml where there is no Docker: a run and a model reach a board.

`make try-compose`, as root. The Dockerfile's steps make the roots of `web` and `cpu-worker` in a plain Debian. Docker
Compose resolves compose.yaml, and `setup`, `scorer`, `retriever`, `beat` and `web` start from those roots as it says
(tests/docker/containers.py). PostgreSQL, Valkey and nginx are this machine's, under the names and ports, with the
roles, users and template that Compose gives them. Then somebody on the other side of nginx and TLS takes the demo
collection with the client, submits a run and a model, and finds both on the board. Prints a line for each step, and
ends with status 1 at the first that fails.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from runboard import Client, Refused, SiteUnavailable
from tests.docker import check_compose, compose_v2, proxy, try_roles
from tests.docker.clean_root import own
from tests.docker.compose_broker import PASSWORDS, start_compose_broker
from tests.docker.containers import Container, leave_the_network
from tests.docker.try_dockerfile import build, parser, row, wait_for, working_folder
from tests.servers import processes
from tests.servers.postgresql import FAST, start_postgresql

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {"runboard-web": "web", "runboard-cpu": "cpu-worker"}
#: In their order; the first one ends.
SERVICES = ("setup", "scorer", "retriever", "beat", "web")
PORTS = proxy.Ports(http=80, https=443, web=8000, curation=8000)
DATASET = "stdlibsearch"
PERSON = "researcher@example.org"
#: Somebody who has signed up, and followed the link of the mail.
MAKE_ACCOUNT = f"""from allauth.account.models import EmailAddress; from leaderboard.models import User
person = User.objects.create_user("{PERSON}", name="A researcher")
EmailAddress.objects.create(user=person, email="{PERSON}", verified=True, primary=True)"""


def resolved() -> dict[str, Any]:
    """The services, as Docker Compose prints them with the passwords of this trial."""
    program = compose_v2.fetched() or sys.exit(check_compose.MISSING)
    values = {**dict.fromkeys(check_compose.SECRETS, "letters"), **PASSWORDS}
    values |= {"SITE_HOST": proxy.HOST, "SECRET_KEY": secrets.token_urlsafe(50)}
    values |= {"EMAIL_URL": "smtp://127.0.0.1"}
    return check_compose.services(check_compose.read([str(program)], values))


def start_servers(folder: Path, stack: ExitStack) -> None:
    """PostgreSQL with the roles of roles.sql, and Valkey with Compose's users, on their own ports."""
    with row("PostgreSQL on 5432 with the roles of roles.sql, Valkey on 6379 with Compose's command"):
        server = start_postgresql(stack.callback, [*FAST, "listen_addresses=127.0.0.1", "port=5432"])
        try_roles.create(server.folder, "runboard")
        try_roles.roles(server.folder, "runboard")
        start_compose_broker(folder, stack.callback, 6379)


def start_site(containers: dict[str, Container], folder: Path, stack: ExitStack) -> str:
    """All services, and nginx before them. Returns a token of somebody new."""
    with row("setup: " + " ".join(containers["setup"].service["command"][-1].split())):
        containers["setup"].run()
    for name in SERVICES[1:]:
        process = containers[name].start()
        stack.callback(partial(processes.stop, process, patience=60.0))
    for name in SERVICES[1:]:
        with row(f"{name}: its own check is content"):
            containers[name].wait_until_healthy()
    nginx = proxy.find_nginx() or sys.exit("There is no nginx: apt-get install nginx-light")
    os.environ["REQUESTS_CA_BUNDLE"] = str(proxy.make_certificate(folder))
    configuration = proxy.write_configuration(folder, folder / "volumes/data", PORTS)
    stack.enter_context(proxy.running(nginx, configuration))
    containers["web"].execute(["python", "manage.py", "shell", "-c", MAKE_ACCOUNT])
    return containers["web"].execute(["python", "manage.py", "api_token", PERSON]).split()[-1]


def on_the_board(site: Client, slug: str) -> bool:
    """Whether the system has a row; while the dataset has no baseline it has no board."""
    try:
        board = site.board(DATASET)
    except (Refused, SiteUnavailable):
        return False
    return len(board) > 0 and slug in set(board["slug"])


def submitted(site: Client, name: str, runs: list[Path], model: Path | None = None, **fields: str) -> None:
    """Submit, wait for the end, and find the row. Raises RuntimeError."""
    begun = site.submit([DATASET], runs, model, system=name, training_datasets="none", **fields)
    *_, found = site.watch(begun["id"], timeout=900)
    if found["state"] != "done":
        raise RuntimeError(f"{name}: {found}")
    board = site.board(DATASET)
    print("             ", found["results"][0]["sentence"])
    if name not in set(board["System"]):
        raise RuntimeError(f"{name} is not on the board:\n{board}")


def use_site(site: Client, folder: Path) -> None:
    """What a researcher does: the collection, a run of their own, a model; each reaches the board."""
    with row("the demo's baseline and its model, retrieved by the retriever and scored by the scorer"):
        for slug in ("bm25", "static-embeddings-svd"):
            wait_for(partial(on_the_board, site, slug), 900, lambda slug=slug: f"{slug} is on no board")
    with row("the client downloads corpus, queries and an example model through nginx"):
        site.download(DATASET, folder, ["corpus", "queries", "example_model"])
        (model,) = (each["name"] for each in site.files(DATASET) if each["kind"] == "example_model")
    with row("a run: retrieved here, submitted, scored, on the board"):
        command = [sys.executable, "-m", "evaluation", "retrieve", "--engine", "bm25", "--k1", "0.6"]
        for option in ("corpus", "queries"):
            command += [f"--{option}", str(folder / f"{option}.jsonl.gz")]
        subprocess.run([*command, "--out", str(folder / "run.txt")], check=True, capture_output=True, cwd=ROOT)
        submitted(site, "A run of mine", [folder / "run.txt"], architecture="lexical")
    with row("a model: its archive submitted, retrieved with in the sandbox, measured, scored, on the board"):
        submitted(site, "A model of mine", [], folder / model, engine="dense")


def main() -> None:
    options = parser(__doc__).parse_args()
    began = time.perf_counter()
    with (
        working_folder(options, ("ip", "nsenter", "openssl", "psql", "nginx")) as folder,
        ExitStack() as stack,
    ):
        services = resolved()
        images = build(list(TARGETS.values()), folder, options.plain)
        print(f"{time.perf_counter() - began:8.1f} s  both roots")
        user, group = images["web"][0].identity()
        for place in (folder, folder / "volumes"):
            own(place, user, group)
        leave_the_network(folder, ["postgres", "redis", "web", proxy.HOST])
        containers = {
            name: Container(name, services[name], *images[TARGETS[services[name]["image"]]], folder)
            for name in SERVICES
        }
        start_servers(folder, stack)
        token = start_site(containers, folder, stack)
        visitor = folder / "visitor"
        visitor.mkdir()
        use_site(Client(f"https://{proxy.HOST}/", token), visitor)
        with row("no right was missing, and nothing has ended"):
            assert not try_roles.denied(folder), try_roles.denied(folder)
            ended = [name for name in SERVICES[1:] if containers[name].process.poll() is not None]
            assert not ended, ended
    print(f"{time.perf_counter() - began:8.1f} s  in all")


if __name__ == "__main__":
    main()
