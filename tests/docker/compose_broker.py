"""The broker of compose.yaml on a port of this machine: its very command, with another folder and made-up passwords."""

from __future__ import annotations

from pathlib import Path

import redis

from leaderboard.management.supervisor.valkey import find_server
from tests.docker import compose_rules
from tests.servers import processes

COMPOSE = Path(__file__).resolve().parents[2] / "docker/compose.yaml"
PASSWORDS = {"REDIS_PASSWORD": "everything", "REDIS_RETRIEVER_PASSWORD": "little"}


class ComposeBroker:
    """Its addresses: for the site's own processes, and for retrievers."""

    def __init__(self, port: int) -> None:
        self.site_url = f"redis://:{PASSWORDS['REDIS_PASSWORD']}@127.0.0.1:{port}/0"
        self.retriever_url = f"redis://retriever:{PASSWORDS['REDIS_RETRIEVER_PASSWORD']}@127.0.0.1:{port}/0"

    def answers(self) -> bool:
        """Whether it takes connections."""
        with redis.Redis.from_url(self.site_url) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

    def refusals(self) -> list[str]:
        """What the server refused since this was asked last: the user, and the command, key or channel."""
        with redis.Redis.from_url(self.site_url, decode_responses=True) as client:
            found = [f"{each['username']} {each['object']}" for each in client.acl_log(100)]
            client.acl_log_reset()
        return found


def start_compose_broker(folder: Path, cleanup: processes.Cleanup, port: int = 0) -> ComposeBroker:
    """Start it with its data in `folder`, on any free port where none is named; returns once it answers."""
    port, log = port or processes.free_port(), folder / "redis.log"
    data = folder / "redis"
    data.mkdir()
    command = compose_rules.read(COMPOSE.read_text())["services"]["redis"]["command"][-1].replace("$$", "$")
    command = command.replace("valkey-server", f"{find_server()} --bind 127.0.0.1 --port {port}", 1)
    command = command.replace("--dir /data", f"--dir {data}")
    process = processes.start(["sh", "-c", command], log, PASSWORDS)
    cleanup(lambda: processes.stop(process))
    broker = ComposeBroker(port)
    processes.wait_until(broker.answers, process, log)
    return broker
