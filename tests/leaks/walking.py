"""Look for markers in everything that the site gives away."""

from __future__ import annotations

import gzip
import io
import logging
import re
import zipfile
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
import zstandard
from django.test import Client

from tests.leaks.routes import Route, addresses, everything_in_the_database, routes

#: The person who has a token, and no session.
SCRIPT = "a script"
#: Those who ask for what belongs to somebody, and not for everything; each for its share of it in a short walk.
FEWER = (SCRIPT, "teammate", "outsider")
#: What the scorer alone keeps: nothing here is shown as it is.
KEPT = {
    ("leaderboard.Evaluation", "means"),
    ("leaderboard.Evaluation", "values"),
    ("leaderboard.EvaluationPart", "means"),
}


@dataclass(frozen=True)
class Hit:
    """Where a marker was found."""

    marker: str
    where: str

    def __str__(self) -> str:
        return f"{self.marker} in {self.where}"


@dataclass
class Search:
    """The markers, by what they stand for, and where they were found."""

    markers: Mapping[str, str]
    hits: list[Hit] = field(default_factory=list)
    looked_at: int = 0

    def look(self, content: bytes, where: str) -> None:
        """Look into a piece of content, unpacked as far as it is packed."""
        self.looked_at += 1
        for layer in _layers(content):
            for name, marker in self.markers.items():
                if _holds(layer, marker):
                    self.hits.append(Hit(name, where))


def _holds(content: bytes, marker: str) -> bool:
    """Whether the marker is in it; a number not as the end of a larger one, as 10.278958 has 0.278958 in it."""
    if marker.encode() not in content:
        return False
    if not marker[0].isdigit():
        return True
    return re.search(rb"(?<![\d.])" + re.escape(marker.encode()), content) is not None


def _layers(content: bytes) -> Iterator[bytes]:
    yield content
    if content[:2] == b"\x1f\x8b":
        yield gzip.decompress(content)
    elif content[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.namelist():
                yield member.encode()
                yield from _layers(archive.read(member))
    elif content[:4] == b"\x28\xb5\x2f\xfd":
        yield zstandard.ZstdDecompressor().decompressobj().decompress(content)
    elif content[:1] == b"\x78":
        try:
            yield zlib.decompress(content)
        except zlib.error:
            return


def walk(search: Search, people: Mapping[str, Client], *, only: Iterable[str] = (), short: bool = False) -> set[str]:
    """Ask for every address as every person; the names of the routes that answered somebody with content.

    Scripts ask the API and downloads alone, and who is like somebody else not for what is the same for all.
    `only` names routes, where not all are meant. In a short walk somebody asks for every address still, but those who
    are like somebody else take turns, a curator takes every other address of curation and who may not enter one of
    each page, and of pages that are the same for all one is seen by everybody; of the others, people who submitted
    nothing take every other one.
    """
    answered = set()
    wanted = set(only)
    for route in routes():
        if wanted and route.name not in wanted:
            continue
        for number, address in enumerate(addresses(route)):
            for who, client in people.items():
                if who in FEWER and not _concerns(route):
                    continue
                if short and not _takes_its_turn(who, route, number):
                    continue
                if who == SCRIPT and not address.startswith(("/api/", "/submissions/")):
                    continue
                response = client.get(address)
                if _take(search, response, f"GET {address} as {who}") and response.status_code == 200:
                    answered.add(route.name)
    return answered


def _takes_its_turn(who: str, route: Route, number: int) -> bool:
    if who in FEWER:
        return number % len(FEWER) == FEWER.index(who)
    if route.text.startswith("admin/"):
        return number % 2 == 0 if who == "curator" else number == 0
    if who == "nobody":
        return True
    return (number % 2 == 0 or who == "submitter") if _concerns(route) else number == 0


def _concerns(route: Route) -> bool:
    """Whether it is about something that belongs to somebody: not curation, which turns them all away alike."""
    return bool(route.parts) and not route.text.startswith(("admin/", "figures/", "benchmarks/", "authors/"))


def post_everywhere(
    search: Search, people: Mapping[str, Client], fields: Mapping[str, Any], *, short: bool = False
) -> None:
    """Send the same to every address as every person, in a short walk as one of them by turns.

    What this cancels or withdraws is not needed again.
    """
    for place, route in enumerate(routes()):
        for number, address in enumerate(addresses(route), place):
            for turn, (who, client) in enumerate(people.items()):
                if route.text.startswith("admin/"):
                    if who != "curator":
                        continue  # its door turns them away before anything is read
                elif short and number % len(people) != turn:
                    continue
                response = client.post(address, dict(fields))
                _take(search, response, f"POST {address} as {who}")


def _take(search: Search, response: Any, where: str) -> bool:
    content = b"".join(response.streaming_content) if response.streaming else response.content
    search.look(content, where)
    search.look(repr(sorted(response.headers.items())).encode(), f"{where}, headers")
    search.look(str(response.cookies).encode(), f"{where}, cookies")
    return bool(content)


def look_into_database(search: Search) -> None:
    """Every column of every row but the evaluations' own: job logs, work requests, notices, board history, audit."""
    for table, row in everything_in_the_database():
        for column in row._meta.concrete_fields:
            if (table, column.name) not in KEPT:
                value = getattr(row, column.attname)
                content = bytes(value) if isinstance(value, (bytes, memoryview)) else str(value).encode()
                search.look(content, f"{table} {row.pk}, {column.name}")


def look_into_cache(search: Search, broker: redis.Redis) -> None:
    """Every key and every value of the cache and broker."""
    for key in broker.scan_iter():
        search.look(key, f"cache key {key!r}")
        search.look(_value(broker, key), f"cache value of {key!r}")


def _value(broker: redis.Redis, key: bytes) -> bytes:
    kind = broker.type(key)
    if kind == b"string":
        return bytes(broker.get(key) or b"")
    return repr(broker.dump(key)).encode()


def look_into_logs(search: Search, records: Iterable[logging.LogRecord]) -> None:
    """Every line that was logged, with its traceback."""
    formatter = logging.Formatter("%(name)s %(message)s")
    for record in records:
        search.look(formatter.format(record).encode(), f"log of {record.name}")


def look_into_files(search: Search, folder: Path, private: Path, but: Container[Path] = frozenset()) -> None:
    """Every file of the site's state that is not in the private folder, and is not the database."""
    for path in folder.rglob("*"):
        if path.is_file() and path not in but and private not in path.parents and "sqlite" not in path.name:
            search.look(path.read_bytes(), f"file {path.relative_to(folder)}")
