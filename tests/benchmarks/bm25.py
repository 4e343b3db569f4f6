"""Our BM25, and RM3 over it, beside bm25s with numba: search, indexing, memory, with compiling shown apart.

    python tests/benchmarks/bm25.py [--documents 200000] [--queries 1000] [--rounds 5]

Text is synthetic: 59 words a document in the mean, drawn by Zipf's law from 100,000 words; a query is two to eight
distinct words of one document. Each contender runs in a process of its own. Search is CPU seconds for all queries,
top 1,000, median over rounds, and contains for us the analysis of the queries and the lookup of document ids, for
bm25s neither. The bound is a ratio of at most 0.95. Our loading includes the compiled functions, which bm25s compiles
in its first search. The bound of 1.0 is therefore on the sum of both. bm25s has no RM3: ours searches twice, the second
time with about ten more terms, and is compared with the single search.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import Figures, add_option  # noqa: E402

DEPTH = 1000
SIDES = ("ours", "rm3", "peer")
K1, B = 0.9, 0.4
#: Maximum CPU time relative to bm25s: of a search, and of loading with the first search.
MAX_SEARCH_RATIO, MAX_START_RATIO = 0.95, 1.0


def write_collection(folder: Path, documents: int, queries: int) -> None:
    """A synthetic collection in BEIR layout."""
    random = np.random.default_rng(7)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = np.array(
        sorted({"".join(random.choice(letters, size=random.integers(4, 10))) for _ in range(100_000)})
    )
    random.shuffle(vocabulary)
    weights = 1 / (np.arange(len(vocabulary)) + 2.7) ** 1.07
    cumulated = np.cumsum(weights / weights.sum())
    lengths = np.maximum(random.lognormal(np.log(50), 0.58, documents).astype(int), 3)
    texts: list[list[str]] = []
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as corpus:
        for number, length in enumerate(lengths):
            places = np.minimum(np.searchsorted(cumulated, random.random(length)), len(vocabulary) - 1)
            words = vocabulary[places].tolist()
            corpus.write(json.dumps({"_id": f"d{number:07d}", "title": "", "text": " ".join(words)}) + "\n")
            if number < queries:
                texts.append(words)
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as file:
        for number, words in enumerate(texts):
            distinct = sorted(set(words))
            chosen = random.permutation(distinct)[: random.integers(2, 9)].tolist()
            file.write(json.dumps({"_id": f"q{number}", "text": " ".join(chosen)}) + "\n")


class Stopwatch:
    """CPU seconds and peak memory of this process, by stage."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}

    def time(self, stage: str, work: Callable[[], Any]) -> Any:
        """Run `work`, and note its CPU seconds."""
        started = time.process_time()
        result = work()
        self.figures.setdefault(stage, []).append(time.process_time() - started)
        return result

    def note_memory(self, stage: str) -> None:
        """Note the peak memory so far, in MiB."""
        self.figures[stage] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def our_engine(name: str) -> Any:
    """One of our engines, for the words as they are."""
    from evaluation.engines import ENGINES, Resources

    description = ENGINES[name]
    return description.create(description.complete({"stemming": False}), Resources())


def index_ours(folder: Path, watch: Stopwatch, name: str = "bm25") -> None:
    """Index with our engine, reading included."""
    engine = watch.time("loading", lambda: our_engine(name))
    from evaluation.collections.beir import read_corpus

    watch.note_memory("memory before")
    (folder / name).mkdir()
    watch.time("indexing", lambda: engine.build(read_corpus(folder / "corpus.jsonl"), folder / name))
    watch.figures["index bytes"] = engine.size()


def search_ours(folder: Path, watch: Stopwatch, rounds: int, name: str = "bm25") -> None:
    """Search with our engine."""

    def loading() -> Any:
        from evaluation.collections.beir import read_queries

        engine = our_engine(name)
        engine.open(folder / name)
        return engine, list(read_queries(folder / "queries.jsonl"))

    engine, queries = watch.time("loading", loading)
    watch.time("first search", lambda: list(engine.search(queries[:1], DEPTH)))
    for _ in range(rounds):
        rankings = watch.time("search", lambda: list(engine.search(queries, DEPTH)))
    watch.figures["results"] = sum(len(ranking.scores) for ranking in rankings)
    watch.figures["sum"] = float(sum(float(ranking.scores[:10].sum()) for ranking in rankings))


def index_peer(folder: Path, watch: Stopwatch) -> None:
    """Index with bm25s, reading included."""
    import bm25s

    def indexing() -> Any:
        texts = [json.loads(line)["text"] for line in (folder / "corpus.jsonl").open(encoding="utf-8")]
        tokens = bm25s.tokenize(texts, stopwords=[], show_progress=False)
        peer = bm25s.BM25(k1=K1, b=B, method="lucene", backend="numba")
        peer.index(tokens, show_progress=False)
        return peer

    watch.note_memory("memory before")
    peer = watch.time("indexing", indexing)
    peer.save(folder / "peer")
    watch.figures["index bytes"] = sum(path.stat().st_size for path in (folder / "peer").iterdir())


def search_peer(folder: Path, watch: Stopwatch, rounds: int) -> None:
    """Search with bm25s."""

    def loading() -> Any:
        import bm25s

        return bm25s, bm25s.BM25.load(folder / "peer", backend="numba", load_vocab=True)

    bm25s, peer = watch.time("loading", loading)
    peer.backend = "numba"
    texts = [json.loads(line)["text"] for line in (folder / "queries.jsonl").open(encoding="utf-8")]
    tokens = bm25s.tokenize(texts, stopwords=[], return_ids=False, show_progress=False)

    def search(some: list[list[str]]) -> Any:
        return peer.retrieve(some, k=DEPTH, show_progress=False, backend_selection="numba")

    watch.time("first search", lambda: search(tokens[:1]))
    for _ in range(rounds):
        found = watch.time("search", lambda: search(tokens))
    watch.figures["results"] = int((found.scores > 0).sum())
    watch.figures["sum"] = float(found.scores[:, :10].sum())


CONTENDERS: dict[str, Callable[..., None]] = {
    "index_ours": index_ours,
    "index_rm3": partial(index_ours, name="bm25-rm3"),
    "index_peer": index_peer,
    "search_ours": search_ours,
    "search_rm3": partial(search_ours, name="bm25-rm3"),
    "search_peer": search_peer,
}


def run_apart(name: str, folder: Path, rounds: int, **environment: str) -> dict[str, Any]:
    """Run a contender in a process of its own, and return its figures."""
    command = [
        sys.executable,
        __file__,
        "--contender",
        name,
        "--folder",
        str(folder),
        "--rounds",
        str(rounds),
    ]
    output = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, **environment}
    ).stdout
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    return figures


def compare(folder: Path, rounds: int, figures: Figures) -> None:
    """Run all contenders, and say what they needed."""
    found = {name: run_apart(name, folder, rounds) for name in CONTENDERS}
    # searching once more in turn, so that a busy minute does not hit one side only
    for name in ("search_ours", "search_rm3", "search_peer"):
        found[name]["search"] += run_apart(name, folder, rounds)["search"]
    cold = run_apart("search_ours", folder, 1, NUMBA_CACHE_DIR=str(folder / "empty"))["loading"][0]
    medians = {name: statistics.median(found[f"search_{name}"]["search"]) for name in SIDES}
    bound = figures.bound("search, CPU, BM25 : bm25s", medians["ours"] / medians["peer"], MAX_SEARCH_RATIO)

    def start(side: str) -> float:
        return sum(found[f"search_{side}"][stage][0] for stage in ("loading", "first search"))

    start_bound = figures.bound("start, CPU, BM25 : bm25s", start("ours") / start("peer"), MAX_START_RATIO)
    rows: list[tuple[str, Callable[[str], float], str]] = [
        (f"search, CPU s, median of {2 * rounds}", medians.__getitem__, bound),
        ("search, least", lambda side: min(found[f"search_{side}"]["search"]), ""),
        ("search, most", lambda side: max(found[f"search_{side}"]["search"]), ""),
        ("loading, not in the search", lambda side: found[f"search_{side}"]["loading"][0], ""),
        ("first search, not in the search", lambda side: found[f"search_{side}"]["first search"][0], ""),
        ("loading and first search", start, start_bound),
        ("peak memory of search, MiB", lambda side: found[f"search_{side}"]["peak memory"], ""),
        ("reading, analysing, indexing, CPU s", lambda side: found[f"index_{side}"]["indexing"][0], ""),
        ("peak memory of indexing, MiB", lambda side: found[f"index_{side}"]["peak memory"], ""),
        ("index on disk, MiB", lambda side: found[f"index_{side}"]["index bytes"] / 2**20, ""),
    ]
    cells = []
    for label, figure, most in rows:
        ours, rm3, peer = map(figure, SIDES)
        cells.append([label, *(f"{one:.2f}" for one in (ours, rm3, peer, ours / peer, rm3 / peer)), most])
    figures.table(["", "BM25", "RM3", "bm25s", "BM25 : bm25s", "RM3 : bm25s", "bound"], cells)
    ours, peer = found["search_ours"], found["search_peer"]
    figures.say(
        "Loading with nothing compiled before (once on a machine; bm25s: in every first search): "
        f"{cold:.2f} s. Results above zero: {ours['results']:,} and bm25s' {peer['results']:,}; sum of the top tens' "
        f"scores: {ours['sum']:.1f} and {peer['sum']:.1f}."
    )


def main() -> None:
    """Run the benchmark, or one contender of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="keep the collection and the indexes here, and use them again")
    add_option(parser)
    arguments = parser.parse_args()
    if arguments.contender:
        watch = Stopwatch()
        sides = (arguments.folder, watch, arguments.rounds)
        CONTENDERS[arguments.contender](*(sides if arguments.contender.startswith("search") else sides[:2]))
        watch.note_memory("peak memory")
        print(json.dumps(watch.figures))
        return
    figures = Figures(__file__)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_collection(folder, arguments.documents, arguments.queries)
        figures.say(f"{arguments.documents:,} documents, {arguments.queries:,} queries, top {DEPTH:,}.")
        compare(folder, arguments.rounds, figures)
    sys.exit(figures.finish(arguments.write))


if __name__ == "__main__":
    main()
