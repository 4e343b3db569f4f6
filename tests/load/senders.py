"""People who submit runs of 100 MB at 5 MB/s, in a process of its own: `python -m tests.load.senders PLAN RESULT`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.load.runs import Blocks

_MARK = "load-test-boundary"
PATIENCE = aiohttp.ClientTimeout(total=300)


@dataclass(frozen=True)
class Sent:
    """What came of one upload: when it began and when its last byte was sent, in seconds; what was answered after."""

    number: int
    began: float
    sent: float
    answered: float
    status: int
    identifier: str
    detail: str


async def send(number: int, plan: dict[str, Any], start: float) -> Sent:
    """Submit one run, from an address of its own."""
    blocks = Blocks([Path(path) for path in plan["paths"]], plan["block_bytes"])
    await asyncio.sleep(plan["first_at"] + number * plan["apart"])
    body = _Body(blocks, number, plan)
    headers = {
        "Authorization": f"Bearer {plan['tokens'][number]}",
        "Content-Type": f"multipart/form-data; boundary={_MARK}",
        "Content-Length": str(body.length),
    }
    connector = aiohttp.TCPConnector(local_addr=(f"127.0.9.{1 + number}", 0))
    began = time.monotonic() - start
    status, answer = 0, dict[str, Any]()
    async with aiohttp.ClientSession(plan["address"], connector=connector, timeout=PATIENCE) as session:
        try:
            async with session.post("/api/v1/submissions/", data=body.stream(), headers=headers) as found:
                status, text = found.status, await found.text()
            answer = json.loads(text) if text.startswith("{") else {"detail": text[:200]}
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            answer = {"detail": repr(error)}
    ended = time.monotonic() - start
    identifier, detail = str(answer.get("id", "")), str(answer.get("detail", ""))
    return Sent(number, began, body.sent_at - start, ended, status, identifier, detail)


class _Body:
    """A multipart request with one run, sent no faster than the plan says."""

    def __init__(self, blocks: Blocks, number: int, plan: dict[str, Any]) -> None:
        self._blocks, self._number = blocks, number
        self._rate: float = plan["bytes_per_second"]
        fields = {
            "kind": "run",
            "system": f"{plan['name']} {number + 1}",
            "architecture": "dense",
            "dataset": plan["dataset"],
        }
        text = "".join(
            f'--{_MARK}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in fields.items()
        )
        text += f'--{_MARK}\r\nContent-Disposition: form-data; name="file"; filename="run.txt"\r\n\r\n'
        self._before, self._after = text.encode(), f"\r\n--{_MARK}--\r\n".encode()
        self.length = len(self._before) + blocks.run_bytes + len(self._after)
        self.sent_at = 0.0

    async def stream(self) -> AsyncIterator[bytes]:
        """The bytes, block by block."""
        began, sent = time.monotonic(), 0
        yield self._before
        for block in self._blocks.run(self._number):
            yield block
            sent += len(block)
            ahead = began + sent / self._rate - time.monotonic()
            if ahead > 0:
                await asyncio.sleep(ahead)
        yield self._after
        self.sent_at = time.monotonic()


async def send_all(plan: dict[str, Any]) -> list[Sent]:
    """All of them, at once or one after the other, as the plan says."""
    start = time.monotonic()
    return list(await asyncio.gather(*(send(number, plan, start) for number in range(len(plan["tokens"])))))


def main(plan: str, result: str) -> None:
    """Send as planned, and write what came of it."""
    found = asyncio.run(send_all(json.loads(Path(plan).read_text())))
    Path(result).write_text(json.dumps([asdict(each) for each in found]))


if __name__ == "__main__":
    main(*sys.argv[1:3])
