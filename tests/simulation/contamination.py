"""Does the contamination gap find a model that was trained on the public half, and leave others alone?

    PYTHONPATH=. python tests/simulation/contamination.py --write docs/measurements/contamination.md

Static embeddings are trained on topics of NFCorpus' train split. For each seed halves of 300 topics are drawn as
`import_dataset --twin 0.5` draws them, and 300 other topics beside them; one model is trained on the open half, one on
the other topics, and one on none. Each is scored as the site scores it: the hidden half's means have three decimals,
and nothing else of it is used but BM25's least significant difference. Then topics are drawn anew from what these
models have, with a gap added, to see how often it is shown with so many topics. The model of each row differs in
nothing but the topics. Skipped where the collection is not there; RUNBOARD_SHARED names its folder.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from evaluation.collections.beir import read_corpus, read_queries
from evaluation.engines import RetrievalTask, retrieve
from evaluation.judgements.qrels import Qrels, read_qrels
from evaluation.judgements.splits import draw_halves, relevant_counts
from evaluation.runs.score import ScoringTarget, score_run
from evaluation.statistics.comparison import intervals
from evaluation.statistics.gap import Interval, compute_gap, least_difference, published_interval
from leaderboard.results.significance.types import ALPHA
from tests.evaluation.real_collections import SHARED
from tests.figures import SKIPPED, Figures, add_option

Values = NDArray[np.float64]
MEASURE, DECIMALS, DEPTH = "nDCG@10", 3, 10
#: How many seeds, and topics a half.
SEEDS, TOPICS = 20, 300
#: Of 20 seeds at the least and at the most.
FOUND, FALSE = 16, 1
DIMENSION, EPOCHS, RATE, SCALE = 32, 15, 0.1, 20.0
#: A word is known that so many documents have.
MIN_DOCUMENTS = 3
#: What is added on the open half, and how many topics a half, for the power.
GAPS, SIZES, DRAWN = (0.0, 0.02, 0.05, 0.1, 0.2), (100, 300, 1000), 300
#: Of each interval: the ends need to be right on average alone.
RESAMPLES = 500
_WORD = re.compile(r"[^\W_]+")


class World(NamedTuple):
    """A collection: weights of words of documents and topics, its judgements, and BM25's values by topic."""

    documents: torch.Tensor
    topics: torch.Tensor
    ids: list[str]
    qrels: Qrels
    relevant: torch.Tensor
    bm25: Values


def world(folder: Path) -> World:
    """NFCorpus with the topics of its train split."""
    qrels = read_qrels(folder / "qrels" / "train.tsv")
    documents = {each.id: f"{each.title} {each.text}" for each in read_corpus(folder / "corpus.jsonl")}
    topics = {each.id: each.text for each in read_queries(folder / "queries.jsonl")}
    texts = [_WORD.findall(text.lower()) for text in documents.values()]
    counts = Counter(word for text in texts for word in set(text))
    known = sorted(word for word, count in counts.items() if count >= MIN_DOCUMENTS)
    places = {word: place for place, word in enumerate(known)}
    rarity = np.log(len(texts) / np.array([counts[word] for word in known])).astype(np.float32)
    row = {document: number for number, document in enumerate(documents)}
    relevant = torch.zeros(len(qrels.query_ids), len(documents))
    for query, document, grade in qrels.judgements():
        relevant[qrels.query_ids.index(query), row[document]] = float(grade > 0)
    with tempfile.TemporaryDirectory() as work:
        queries, run = Path(work) / "queries.jsonl", Path(work) / "run.txt"
        asked = ({"_id": query, "text": topics[query]} for query in qrels.query_ids)
        queries.write_text("".join(json.dumps(each) + "\n" for each in asked))
        retrieve(RetrievalTask("bm25", folder / "corpus.jsonl", queries, run))
        bm25 = score_run(run, ScoringTarget(qrels), [MEASURE]).per_query[:, 0]
    words = [_WORD.findall(topics[query].lower()) for query in qrels.query_ids]
    return World(
        _weights(texts, places, rarity),
        _weights(words, places, rarity),
        list(documents),
        qrels,
        relevant,
        bm25,
    )


def _weights(texts: Sequence[Sequence[str]], places: dict[str, int], rarity: NDArray[np.float32]) -> torch.Tensor:
    cells = [(row, places[word]) for row, text in enumerate(texts) for word in text if word in places]
    rows, columns = np.array(cells).T
    found = sparse.csr_array((rarity[columns], (rows, columns)), shape=(len(texts), len(places)))
    coo = found.tocoo()
    return torch.sparse_coo_tensor(
        torch.from_numpy(np.vstack(coo.coords).astype(np.int64)),
        torch.from_numpy(coo.data),
        coo.shape,
        check_invariants=True,
    ).coalesce()


def values_of(given: World, seed: int, trained_on: NDArray[np.intp]) -> Values:
    """The nDCG@10 of each topic by a model that was trained on these topics, none or some."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randn(given.documents.shape[1], DIMENSION, generator=generator) / DIMENSION**0.5
    words.requires_grad_()
    optimiser = torch.optim.Adam([words], RATE)
    chosen = torch.from_numpy(trained_on)
    asked = given.topics.to_dense()[chosen] if len(chosen) else torch.empty(0)
    wanted = given.relevant[chosen]
    for _ in range(EPOCHS if len(chosen) else 0):
        scores = SCALE * _cosines(asked @ words, given.documents @ words)
        loss = -(scores.log_softmax(1) * wanted / wanted.sum(1, keepdim=True).clamp(min=1)).sum(1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        best = _cosines(given.topics @ words, given.documents @ words).topk(DEPTH, dim=1)
    lines = (
        f"{query} Q0 {given.ids[document]} {rank} {score:.6f} static\n"
        for query, documents, scores in zip(
            given.qrels.query_ids, best.indices.tolist(), best.values.tolist(), strict=True
        )
        for rank, (document, score) in enumerate(zip(documents, scores, strict=True), 1)
    )
    return score_run("".join(lines).encode(), ScoringTarget(given.qrels), [MEASURE]).per_query[:, 0]


def _cosines(topics: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(topics, dim=1) @ torch.nn.functional.normalize(documents, dim=1).T


def draw(given: World, seed: int) -> list[NDArray[np.intp]]:
    """The topics of an open and of a hidden half, and as many others."""
    random = np.random.default_rng(seed)
    rows = random.permutation(len(given.qrels.query_ids))
    pool, third = rows[: 2 * TOPICS], rows[2 * TOPICS : 3 * TOPICS]
    counts = relevant_counts(given.qrels)
    names = {given.qrels.query_ids[row]: row for row in pool.tolist()}
    drawn = draw_halves(
        {name: counts[name] for name in names},
        {name: float(given.bm25[row]) for name, row in names.items()},
        0.5,
        seed.to_bytes(4, "big"),
    )
    halves = [[row for name, row in names.items() if (name in drawn) == wanted] for wanted in (True, False)]
    return [np.array(half, np.intp) for half in halves] + [third]


def site_gap(public: Values, hidden: Values, bm25: Values) -> Interval:
    """The gap as the site finds it: differences by topic of the open half; values of the hidden one, and BM25's."""
    low, high = intervals(public[:, None], seed=1, resamples=RESAMPLES)
    means = round(float(hidden.mean()), DECIMALS), round(float(bm25.mean()), DECIMALS)
    least = least_difference(bm25, alpha=ALPHA)
    told = published_interval(means[0] - means[1], least, 10.0**-DECIMALS)
    return compute_gap(Interval(float(public.mean()), float(low[0]), float(high[0])), told)


def bootstrap_gap(public: Values, hidden: Values) -> Interval:
    """The gap with intervals from the values by topic of both halves, which the site does not tell."""
    halves = []
    for half in (public, hidden):
        low, high = intervals(half[:, None], seed=1, resamples=RESAMPLES)
        halves.append(Interval(float(half.mean()), float(low[0]), float(high[0])))
    return compute_gap(*halves)


def _of_models(figures: Figures, given: World) -> dict[str, list[Values]]:
    """The table of models that were trained on either half or none, and the values of each by topic."""
    rows, values = [], dict[str, list[Values]]()
    drawn = [draw(given, seed) for seed in range(SEEDS)]
    for name, place in (("the open half", 0), ("other topics", 2), ("nothing", None)):
        values[name] = []
        found, gaps, byways = 0, [], 0
        for seed, parts in enumerate(drawn):
            trained_on = np.empty(0, np.intp) if place is None else parts[place]
            one = values_of(given, seed, trained_on)
            values[name].append(one)
            public, hidden = (one[half] - given.bm25[half] for half in parts[:2])
            gap = site_gap(public, one[parts[1]], given.bm25[parts[1]])
            found += gap.low > 0
            byways += bootstrap_gap(public, hidden).low > 0
            gaps.append((gap.value, float(public.mean()), float(hidden.mean())))
            print(f"{name}, seed {seed}: {gap.value:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})", file=sys.stderr)
        mean = np.mean(gaps, axis=0)
        if place == 0:
            bound = figures.bound(f"trained on {name}, not shown", SEEDS - found, SEEDS - FOUND)
        else:
            bound = figures.bound(f"trained on {name}, shown", found, FALSE)
        rows.append(
            [f"on {name}", *(f"{each:+.3f}" for each in (mean[1], mean[2], mean[0])),
             f"{found} of {SEEDS}", f"{bound} {'not ' if place == 0 else ''}significant", f"{byways} of {SEEDS}"]
        )  # fmt: skip
    figures.say(f"{SEEDS} seeds of static embeddings that were trained on {TOPICS} topics; {TOPICS} topics a half:")
    figures.table(
        [
            "trained",
            "Δ BM25, open",
            "Δ BM25, hidden",
            "gap",
            "significant",
            "bound",
            "by hidden values by topic",
        ],
        rows,
    )
    return values


def _power(figures: Figures, given: World, values: Sequence[Values]) -> None:
    """How often a gap is shown: topics are drawn anew from those that no model was trained on."""
    random = np.random.default_rng(0)
    rows = []
    for added in GAPS:
        cells = []
        for size in SIZES:
            shown = np.zeros(2)
            for _ in range(DRAWN):
                one = values[int(random.integers(len(values)))]
                first, second = random.integers(0, len(one), (2, size))
                public, hidden = one[first] - given.bm25[first] + added, one[second] - given.bm25[second]
                shown += (
                    site_gap(public, one[second], given.bm25[second]).low > 0,
                    bootstrap_gap(public, hidden).low > 0,
                )
            cells.append(f"{shown[0] / DRAWN:.1%} ({shown[1] / DRAWN:.1%})")
            if not added:
                figures.bound(f"shown without a gap, {size} topics", shown[0] / DRAWN, ALPHA)
        rows.append([f"{added:+.2f}", *cells])
    figures.say(
        f"Share of significant gaps over {DRAWN:,} draws of topics; in brackets, the share by the hidden half's values "
        "by "
        "topic, which are not read:"
    )
    figures.table(["true gap", *(f"{size:,} topics a half" for size in SIZES)], rows)


def main() -> int:
    """Print the tables, or write them; 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_option(parser)
    arguments = parser.parse_args()
    folder = SHARED / "data" / "nfcorpus"
    if not folder.exists():
        print(f"{SKIPPED}nfcorpus is not at {folder} (RUNBOARD_SHARED names its folder)")
        return 0
    figures = Figures(__file__, "PYTHONPATH=. python tests/simulation/contamination.py")
    given = world(folder)
    values = _of_models(figures, given)
    _power(figures, given, values["other topics"])
    return figures.finish(arguments.write)


if __name__ == "__main__":
    sys.exit(main())
