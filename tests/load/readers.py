"""Simulated readers, in a process of their own: `python -m tests.load.readers PLAN RESULT`.

Each has an address (127.0.1.x) and connections of their own, which are kept alive, and reads as a browser does: a page,
then what it needs that is not in its cache, then some seconds of thought. A page that was read before is asked for by
its entity tag. After about ten pages somebody else comes, with an empty cache.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.load.walk import Seen, Sitemap, Step, read_page

#: Pages that a visitor reads, on average.
PAGES_OF_A_VISIT = 10
#: Connections that a browser opens to one host.
CONNECTIONS = 6
#: Longer than anybody waits.
PATIENCE = aiohttp.ClientTimeout(total=60)


@dataclass(frozen=True)
class Plan:
    """Who reads what, where, for how long."""

    address: str
    readers: int
    seconds: float
    think: float
    seed: int
    sitemap: Sitemap

    @classmethod
    def read(cls, path: Path) -> Plan:
        """The plan in a file of JSON."""
        found = json.loads(path.read_text())
        sitemap = Sitemap(found.pop("addresses"), found.pop("systems"))
        return cls(**found, sitemap=sitemap)


class Record:
    """Every request: seconds since the start, its kind, status, milliseconds and bytes."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.rows: list[tuple[float, str, int, float, int, str]] = []

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def add(self, at: float, kind: str, status: int, size: int, address: str) -> None:
        """A request that ended now; status 0: there was no answer."""
        row = (round(at, 3), kind, status, round((self.now - at) * 1000, 2), size, address)
        self.rows.append(row)


class Reader:
    """One place that visitors come from, one after the other."""

    def __init__(self, number: int, plan: Plan, record: Record, known: dict[str, Seen]) -> None:
        self._plan, self._record, self._known = plan, record, known
        self._choose = random.Random(plan.seed * 10_007 + number)
        self._host = f"127.0.{1 + number // 250}.{1 + number % 250}"
        self._tags: dict[str, str] = {}
        self._kept: set[str] = set()

    async def read(self) -> None:
        """Read until the plan's time is over; the first page comes within the first pause."""
        await self._think(self._choose.uniform(0, self._plan.think))
        while self._record.now < self._plan.seconds:
            await self._visit()

    async def _visit(self) -> None:
        self._tags.clear()
        self._kept.clear()
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=60, local_addr=(self._host, 0))
        async with aiohttp.ClientSession(
            self._plan.address, connector=connector, timeout=PATIENCE, auto_decompress=False
        ) as session:
            step = self._plan.sitemap.entrance(self._choose)
            for _ in range(self._choose.randint(1, 2 * PAGES_OF_A_VISIT - 1)):
                if self._record.now >= self._plan.seconds:
                    return
                seen = await self._open(session, step)
                await self._think(self._plan.think * self._choose.uniform(0.5, 1.5))
                step = self._plan.sitemap.next(self._choose, step, seen)

    async def _think(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, min(seconds, self._plan.seconds - self._record.now)))

    async def _open(self, session: aiohttp.ClientSession, step: Step) -> Seen:
        """The page, and what it needs that is not here yet."""
        at = self._record.now
        body = await self._fetch(session, step.kind, step.address, step.headers)
        if step.address not in self._known and body:
            self._known[step.address] = read_page(step.address, gzip.decompress(body))
        seen = self._known.get(step.address, Seen({}, ()))
        missing = [asset for asset in seen.assets if asset not in self._kept]
        if missing and not step.headers:
            await asyncio.gather(*(self._fetch(session, "static file", asset, {}) for asset in missing))
            self._record.add(at, "(page with its files)", 200, 0, step.address)
        if step.kind == "figure":
            await self._fetch(session, "figure's data", step.address.rstrip("/") + ".json", {})
        return seen

    async def _fetch(
        self, session: aiohttp.ClientSession, kind: str, address: str, headers: Mapping[str, str]
    ) -> bytes:
        """The body as it came, compressed; empty where it is as before, or there was none."""
        sent = {"Accept-Encoding": "gzip", "Accept": "text/html,*/*", **headers}
        key = f"{address} {bool(headers)}"
        if tag := self._tags.get(key):
            sent["If-None-Match"] = tag
        at, status, body = self._record.now, 0, b""
        answered: Mapping[str, str] = {}
        try:
            async with session.get(address, headers=sent) as answer:
                body = await answer.read()
                status, answered = answer.status, answer.headers
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            print(f"{at:.1f} s {address}: {error!r}", file=sys.stderr)
        self._record.add(at, kind, status, len(body), address)
        if "immutable" in answered.get("Cache-Control", ""):
            self._kept.add(address)
        if tag := answered.get("ETag"):
            self._tags[key] = tag
        return body if status == 200 and answered.get("Content-Encoding") == "gzip" else b""


async def read_all(plan: Plan) -> Record:
    """All readers, until the time is over."""
    record, known = Record(), dict[str, Seen]()
    async with asyncio.TaskGroup() as group:
        for number in range(plan.readers):
            group.create_task(Reader(number, plan, record, known).read())
    return record


def main(plan: str, result: str) -> None:
    """Read as planned, and write what each request took."""
    rows: list[Any] = asyncio.run(read_all(Plan.read(Path(plan)))).rows
    Path(result).write_text(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:3])
