"""How readers go through the site: from kind of page to kind of page, mostly by the links of the page they are on."""

from __future__ import annotations

import html
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode, urljoin, urlsplit

#: From a kind of page, where next: weights.
STEPS: Mapping[str, Mapping[str, int]] = {
    "home": {"benchmark board": 5, "dataset board": 4, "list": 2, "document": 1},
    "list": {"dataset board": 5, "benchmark board": 3, "home": 1, "document": 1},
    "benchmark board": {"board view": 5, "system": 3, "dataset board": 3, "figure": 1, "compare": 1},
    "dataset board": {"board view": 6, "system": 3, "compare": 1, "figure": 1, "list": 1},
    "board view": {"board view": 4, "rare view": 1, "system": 3, "compare": 1, "dataset board": 1},
    "rare view": {"board view": 3, "system": 2, "benchmark board": 1},
    "system": {"dataset board": 3, "system": 2, "compare": 2, "benchmark board": 1, "home": 1},
    "compare": {"system": 3, "benchmark board": 2, "compare": 1, "figure": 1},
    "figure": {"figure": 3, "benchmark board": 2, "home": 1, "document": 1},
    "document": {"home": 2, "document": 2, "benchmark board": 2, "list": 1},
}
#: Where a visitor comes in: many by a link to a board or a system from elsewhere.
ENTRANCES: Mapping[str, int] = {
    "home": 5,
    "benchmark board": 3,
    "dataset board": 3,
    "system": 2,
    "document": 1,
}
#: What htmx sends when a board is changed in place.
HTMX = {"HX-Request": "true", "HX-Target": "board-part", "HX-Boosted": "true"}

_LINK = re.compile(rb"""<a\b[^>]*?\bhref="([^"#]*)["#]""")
_ASSET = re.compile(rb"""<(?:link|script|img)\b[^>]*?\b(?:href|src)="(/static/[^"]+)\"""")
_BUNDLE = re.compile(rb'data-bundle="(/static/[^"]+)"')
_BOUND = re.compile(rb"""<input\b[^>]*?\bname="(min-[^"]+)\"""")
_FACET = re.compile(rb"""<input type="checkbox"[^>]*?\bname="([\w-]+)"[^>]*?\bvalue="([^"]*)\"""")


@dataclass(frozen=True)
class Step:
    """The next page: its kind, its address, and what is sent beside it."""

    kind: str
    address: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """What a page leads to: addresses by kind, the bounds that it has fields for, and the files that belong to it."""

    links: Mapping[str, Sequence[str]]
    assets: Sequence[str]


@dataclass(frozen=True)
class Sitemap:
    """Addresses by kind, for where a page has no link of the kind that is wanted."""

    addresses: Mapping[str, Sequence[str]]
    systems: Sequence[str]

    def entrance(self, choose: random.Random) -> Step:
        """Where a new visitor comes in."""
        kind = _weighted(choose, ENTRANCES)
        return Step(kind, choose.choice(self.addresses[kind]))

    def next(self, choose: random.Random, present: Step, seen: Seen) -> Step:
        """Where a visitor goes from a page."""
        kind = _weighted(choose, STEPS[present.kind])
        board = present.address.split("?")[0]
        if kind == "rare view":
            return Step(kind, rare_view(board, seen.links.get("bound", ()), choose), HTMX)
        if kind == "board view" and not seen.links.get(kind):
            return Step(kind, f"{board}?rows=all", HTMX)
        if kind == "compare":
            systems = choose.sample(list(self.systems), 2)
            return Step(kind, "/compare/?" + urlencode([("system", slug) for slug in systems]))
        links = seen.links.get(kind) or self.addresses.get(kind, ())
        return Step(kind, choose.choice(list(links)), HTMX if kind == "board view" else {})


def rare_view(board: str, bounds: Sequence[str], choose: random.Random) -> str:
    """A view that nobody asked for before, which has to be computed: a bound, or the size of the reader's corpus.

    `bounds` are those that the board has fields for: not every benchmark has a mean.
    """
    number = choose.randrange(1, 10**9)
    if not board.startswith("/benchmarks/"):
        return f"{board}?corpus={number}"
    return f"{board}?{choose.choice(list(bounds))}=-{number}" if bounds else f"{board}?rows=all"


def read_page(address: str, page: bytes) -> Seen:
    """The links and files of a page, by what they are."""
    links: dict[str, list[str]] = {}
    path = urlsplit(address).path
    for found in _LINK.findall(page):
        target = urljoin(address, html.unescape(found.decode()))
        if kind := _kind(target, path):
            links.setdefault(kind, []).append(target)
    for name in _BOUND.findall(page):
        links.setdefault("bound", []).append(quote(html.unescape(name.decode())))
    for name, value in _FACET.findall(page):
        if value:
            view = urlencode({name.decode(): html.unescape(value.decode())})
            links.setdefault("board view", []).append(f"{path}?{view}")
    assets = dict.fromkeys(found.decode() for found in [*_ASSET.findall(page), *_BUNDLE.findall(page)])
    return Seen({kind: list(dict.fromkeys(found)) for kind, found in links.items()}, list(assets))


def _kind(target: str, here: str) -> str:
    parts = urlsplit(target)
    if parts.netloc:
        return ""
    if parts.query:
        is_board = here.startswith(("/benchmarks/", "/datasets/")) and here.count("/") == 3
        return "board view" if parts.path == here and is_board else ""
    for kind, pattern in (
        ("benchmark board", r"/benchmarks/[\w-]+/"),
        ("dataset board", r"/datasets/[\w-]+/"),
        ("system", r"/systems/[\w-]+/"),
        ("figure", r"/figures/[\w-]+/"),
    ):
        if re.fullmatch(pattern, parts.path):
            return kind
    return ""


def _weighted(choose: random.Random, weights: Mapping[str, int]) -> str:
    return choose.choices(list(weights), list(weights.values()))[0]
