"""An engine that encodes in shards as a dense one does, with numpy alone: its child starts in a second, not in ten.

A text's vector counts its words by the sum of their bytes; scores are small whole numbers, exact in any order.
What it does wrong, and how long it takes, it is told by its parameters.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.collections.beir import Document, Query
from evaluation.core.problems import ModelFailure
from evaluation.engines.base import EngineDescription, Parameter, Resources, SearchResult, ShardedEngine

NAME = "toy"
WIDTH = 31
VARIANTS = ("top 2", "top 5")
#: Runs the child with this engine among its own; in place of submissions.sandbox.running._BOOTSTRAP.
BOOTSTRAP = """import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
from tests.submissions import toy_engine
toy_engine.register()
runpy.run_module("evaluation.execution", run_name="__main__", alter_sys=True)"""


def vector(text: str) -> NDArray[np.float32]:
    """The text as counts."""
    found = np.zeros(WIDTH, np.float32)
    for word in text.lower().split():
        found[sum(word.encode()) % WIDTH] += 1
    return found


class ToyEngine(ShardedEngine):
    """See the module."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters, Resources())
        self._pause, self._wrong, self._variants = (parameters[name] for name in ("pause", "wrong", "variants"))
        self._prompt = parameters["query_prompt"].removeprefix("auto")
        self._memory = json.loads(parameters["memory"] or "{}")
        self._ids: list[str] = []
        self._vectors = np.zeros((0, WIDTH), np.float32)

    def encode_shard(
        self, documents: Sequence[Document], folder: Path, progress: Callable[[float], None] | None = None
    ) -> None:
        """Vectors and ids as two files."""
        misbehave(self._wrong)
        for number in range(len(documents)):
            time.sleep(self._pause)
            if progress:
                progress(number / len(documents))
        vectors = [vector(f"{document.title} {document.text}") for document in documents]
        np.save(folder / "vectors.npy", np.array(vectors, np.float32).reshape(-1, WIDTH))
        (folder / "texts").mkdir()  # engines keep folders in shards
        (folder / "texts" / "ids.json").write_text(json.dumps([document.id for document in documents]))

    def build_from_shards(
        self, shards: Sequence[Path], folder: Path, progress: Callable[[float], None] | None = None
    ) -> None:
        """One matrix of all."""
        if progress:
            progress(0.0)
        vectors = [np.load(shard / "vectors.npy", allow_pickle=False) for shard in shards]
        self._vectors = np.concatenate(vectors)
        self._ids = [name for shard in shards for name in json.loads((shard / "texts" / "ids.json").read_text())]

    def open(self, folder: Path) -> None:
        """It has no index on disk."""

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """By inner product, equal scores by descending id."""
        if len(queries) == 1:
            misbehave(self._wrong.removesuffix(" when timed"))
        for query in queries:
            scores = self._vectors @ vector(self._prompt + query.text)
            order = sorted(range(len(scores)), key=lambda place: self._ids[place].encode(), reverse=True)
            order.sort(key=lambda place: -scores[place])
            if document := self._memory.get(query.text):
                order.sort(key=lambda place: self._ids[place] != document)
                scores[order[0]] = scores.max() + 1
            best = order[:depth]
            yield SearchResult(query.id, [self._ids[place] for place in best], scores[best])

    @property
    def variants(self) -> tuple[str, ...]:
        """Two depths, if asked for."""
        return DESCRIPTION.variants({"variants": self._variants})

    def search_variants(self, queries: Sequence[Query], depth: int) -> Iterator[Mapping[str, SearchResult]]:
        """The best two, and the best five."""
        for ranking in self.search(queries, 5):
            shorter = SearchResult(ranking.query_id, ranking.document_ids[:2], ranking.scores[:2])
            yield dict(zip(VARIANTS, (shorter, ranking), strict=True))

    def variant(self, label: str) -> ToyEngine:
        """It takes as long for two as for five."""
        return self

    def size(self) -> int:
        """Bytes of the vectors."""
        return int(self._vectors.nbytes)

    @property
    def documents(self) -> int:
        """How many are indexed."""
        return len(self._ids)

    @property
    def analyser_name(self) -> str:
        """What it does to text."""
        return "sums of bytes"

    def facts(self) -> Mapping[str, Any]:
        """What papers would report."""
        return {"dimension": WIDTH, "depth": 5} if self._variants else {"dimension": WIDTH}

    def variant_facts(self, label: str) -> Mapping[str, Any]:
        """Each variant's own depth."""
        return {"dimension": WIDTH, "depth": int(label.removeprefix("top "))}


def misbehave(how: str) -> None:
    """Do what a bad model does."""
    if how == "not_finite":
        raise ModelFailure("not_finite_output", "document d1 has a NaN")
    if how == "crash":
        os._exit(9)
    if how == "memory":
        raise MemoryError
    if how == "hang":
        time.sleep(600)


DESCRIPTION = EngineDescription(
    name=NAME,
    label="Toy",
    architecture="dense",
    description="For tests.",
    parameters=(
        Parameter("pause", 0.0, "Seconds for a document.", minimum=0, maximum=10),
        Parameter("wrong", "", "What goes wrong."),
        Parameter("variants", False, "Whether there are two."),
        Parameter("query_prompt", "auto", "Put before each query."),
        Parameter("memory", "", "Relevant document of each query in the training data, as JSON."),
    ),
    create=lambda parameters, resources: ToyEngine(parameters),
    checkpoints=("static-embeddings",),
    encoding_parameters=("pause", "wrong"),
    main_alone={"variants": False},
    variants=lambda parameters: VARIANTS if parameters["variants"] else (),
)


def register() -> None:
    """Put it among the engines of this process."""
    from evaluation.engines import ENGINES

    ENGINES[NAME] = DESCRIPTION
