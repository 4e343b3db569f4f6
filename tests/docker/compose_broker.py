"""The broker of compose.yaml on a port of this machine: its very command, with another folder and made-up passwords."""

from __future__ import annotations

import socket
import time
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

    def refusals(self) -> list[str]:
        """What the server refused since this was asked last: the user, and the command, key or channel."""
        with redis.Redis.from_url(self.site_url, decode_responses=True) as client:
            found = [f"{each['username']} {each['object']}" for each in client.acl_log(100)]
            client.acl_log_reset()
        return found


def start_compose_broker(folder: Path, cleanup: processes.Cleanup) -> ComposeBroker:
    """Start it with its data in `folder`; returns once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    data = folder / "redis"
    data.mkdir()
    command = compose_rules.read(COMPOSE.read_text())["services"]["redis"]["command"][-1].replace("$$", "$")
    command = command.replace("valkey-server", f"{find_server()} --bind 127.0.0.1 --port {port}", 1)
    command = command.replace("--dir /data", f"--dir {data}")
    process = processes.start(["sh", "-c", command], folder / "redis.log", PASSWORDS)
    cleanup(lambda: processes.stop(process))
    broker = ComposeBroker(port)
    deadline = time.monotonic() + 60
    with redis.Redis.from_url(broker.site_url) as client:
        while True:
            try:
                client.ping()
                return broker
            except redis.ConnectionError:
                ended = process.poll() is not None or time.monotonic() > deadline
                assert not ended, processes.last_lines(folder / "redis.log")
                time.sleep(0.02)
