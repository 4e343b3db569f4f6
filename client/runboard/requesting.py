"""Concurrent API requests with stored results and a cost estimate before the first request."""

from __future__ import annotations

import math
import sqlite3
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from itertools import islice
from typing import Any, NamedTuple

from tqdm import tqdm

from runboard.endpoint import Endpoint
from runboard.errors import Refused, SiteUnavailable
from runboard.providers import PROVIDERS, Fields, Format
from runboard.terminal import say
from runboard.vectors import EncodedTexts, Group, Vectors, VectorStore

#: Average number of UTF-8 bytes per token, used only for estimates.
_BYTES_PER_TOKEN = 4
#: Maximum seconds that requests in flight may take after an interrupt.
INTERRUPT_SECONDS = 5.0


class Plan(NamedTuple):
    """Number of requests and texts that are not stored yet, with an estimated number of tokens."""

    texts: int
    requests: int
    tokens: int


class Requester:
    """Sender of API requests with at most `size` texts each, `jobs` of them concurrently.

    `dimensions` is the requested number of dimensions, or None for the API's default. `advance` is called with the
    number of texts finished since the last call.
    """

    def __init__(self, endpoint: Endpoint, store: VectorStore, arguments: Namespace, advance: Callable[[int], Any]):
        self.endpoint, self._store, self._advance = endpoint, store, advance
        self._size, self._jobs = arguments.batch or min(endpoint.form.limit, arguments.default_batch), arguments.jobs
        self._dimensions: int | None = arguments.dimensions
        self.cost = store.cost

    def plan(self, groups: Iterable[Group]) -> Plan:
        """Count the texts and requests that are not stored yet. A text counts once for each group that contains it."""
        texts = requests = size = 0
        for group in groups:
            uncached_texts = self._store.find_uncached(group)
            texts += len(uncached_texts)
            requests += -(-len(uncached_texts) // self._size)
            query = len(str(group.fields.get("query", "")).encode())
            size += sum(len(text.encode(errors="replace")) + query for text in uncached_texts)
        return Plan(texts, requests, -(-size // _BYTES_PER_TOKEN))

    def fetch(self, groups: Iterable[Group]) -> None:
        """Request and store the results that are not stored yet.

        After an error, requests in flight are completed and stored before it is raised, because they incur a cost.
        After an interrupt, they may take INTERRUPT_SECONDS, and a second interrupt abandons them. Raises Refused, also
        if the dimension differs from that of stored vectors, and SiteUnavailable.
        """
        running: dict[Future[EncodedTexts], Group] = {}
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                for batch in self._batches(groups):
                    running[pool.submit(self.endpoint.ask, batch.texts, batch.fields)] = batch
                    if len(running) == self._jobs:
                        self._store_results(running, FIRST_COMPLETED)
                while running:
                    self._store_results(running, FIRST_COMPLETED)
            except BaseException as error:
                self.endpoint.pacing.stop(INTERRUPT_SECONDS if isinstance(error, KeyboardInterrupt) else math.inf)
                try:
                    with suppress(Refused, SiteUnavailable):
                        self._store_results(running, ALL_COMPLETED)
                except KeyboardInterrupt:
                    self.endpoint.pacing.stop(0.0)
                    raise
                raise

    def vectors(self, group: Group, uses: Counter[int]) -> Vectors:
        """Return stored vectors or scores, of shape (texts, dimensions), and count the uses of each request."""
        return self._store.vectors(group, uses)

    def _batches(self, groups: Iterable[Group]) -> Iterator[Group]:
        for group in groups:
            uncached_texts = self._store.find_uncached(group)
            self._advance(len(group.texts) - len(uncached_texts))
            for texts in batched(uncached_texts, self._size):
                yield Group(texts, group.fields)

    def _store_results(self, running: dict[Future[EncodedTexts], Group], until: str) -> None:
        """Wait for requests and store their results. Raises the first error after all other results are stored."""
        errors = []
        for future in wait(running, return_when=until).done:
            group = running.pop(future)
            try:
                self._store_result(group, future.result())
            except (Refused, SiteUnavailable) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _store_result(self, group: Group, result: EncodedTexts) -> None:
        """Store a request's result. Raises Refused if its dimension differs from the requested or the stored one."""
        dimension, stored_dimension = result.vectors.shape[1], self._store.dimension
        if self._dimensions not in (None, dimension):
            problem = f"answered vectors of {dimension} dimensions instead of {self._dimensions}"
            raise self.endpoint.refusal(f"{problem}; choose --dimensions that the model supports")
        if stored_dimension not in (None, dimension):
            problem = f"answered vectors of {dimension} dimensions after {stored_dimension}"
            raise self.endpoint.refusal(f"{problem}; if its model has changed, delete {self._store.path}")
        self._store.store(group, result)
        self._advance(len(group.texts))


@contextmanager
def open_requester(arguments: Namespace, form: Format, total: int) -> Iterator[Requester]:
    """Open the endpoint and the cache, and display a progress bar for `total` texts.

    Raises ValueError for an invalid address or key, or an unusable cache.
    """
    endpoint = Endpoint(arguments.endpoint, arguments.model, form, PROVIDERS[arguments.format].variable)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    cache = arguments.cache or arguments.out.with_name(f"{arguments.out.name}.vectors")
    configuration = [endpoint.url, endpoint.model, *([arguments.dimensions] if arguments.dimensions else [])]
    try:
        with (
            closing(VectorStore(cache, configuration)) as store,
            tqdm(total=total, desc="finished", unit="text", disable=None, delay=0.5) as bar,
        ):
            yield Requester(endpoint, store, arguments, bar.update)
    except sqlite3.Error as error:
        raise ValueError(f"The vector cache {cache} cannot be used: {error}.") from error


def request_fields(form: Format, defaults: Fields, extra: Fields, dimensions: int | None) -> Fields:
    """Return the request fields for texts. Values in `extra` override defaults, and null removes them.

    Raises ValueError for extra fields that Runboard sets.
    """
    reserved_names = {"model", "query", "content", form.texts, form.dimensions}
    if names := ", ".join(sorted(reserved_names & extra.keys())):
        raise ValueError(f"The additional fields must not contain {names}: use the other arguments.")
    chosen_dimensions = {form.dimensions: dimensions} if dimensions else {}
    return {**defaults, **chosen_dimensions, **extra}


def confirm(requester: Requester, groups: Iterable[Group], arguments: Namespace) -> None:
    """Print the number of requests and their estimated cost, and ask for confirmation in a terminal.

    Scripts and users of a local API are not asked. Raises Refused if the user declines.
    """
    plan = requester.plan(groups)
    if not plan.texts:
        return
    price = "set --price for an estimate of the cost"
    if arguments.price is not None:
        price = f"about {plan.tokens * arguments.price / 1e6:,.2f} US dollars at {arguments.price:g} per million"
    count = f"{plan.texts:,} texts in {plan.requests:,} request{'s' * (plan.requests != 1)}"
    say(f"To send: {count}, about {plan.tokens:,} tokens ({price}).", file=sys.stderr)
    if arguments.yes or requester.endpoint.is_local or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    print("Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise Refused(0, "endpoint", "Nothing was sent.", [])


def batched(items: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    """Yield batches, as itertools.batched does in Python 3.12."""
    iterator = iter(items)
    while group := tuple(islice(iterator, size)):
        yield group
