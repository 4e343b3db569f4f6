"""Train learned query augmentation on a collection's own judgments: W, u, and the encoder, end to end.

    python -m examples.train_augmentation --collection nfcorpus --encoder all-MiniLM-L6-v2 --out augmented

Run it in the root of the repository. With the wheel `runboard-eval`, import from `runboard_eval`.

The loss of a query is the cross entropy between its relevant documents, weighted by their grades, and the softmax of
its scores over documents: all of a small corpus, otherwise the relevant ones of the batch and `_DOCUMENTS` others,
sampled in each step. The scores are the engine's, (w ⊙ idf ⊙ (bow + a))ᵀ f(d) over the same index. The loss also
contains `sparsity` × the sum of a(q), so that a query gets few terms.

Training begins near BM25: every token of a query has a weight of about 1, and every added piece has the same small
weight, so that every ReLU has a gradient. The seed determines the order of the queries, the sampled documents, and the
dropout.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import transformers
from numpy.typing import NDArray
from scipy.sparse import csr_array

from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.rebuilding import open_checkpoint
from evaluation.collections.beir import Query, read_corpus, read_queries
from evaluation.core.problems import InvalidContent, ModelFailure, Problem
from evaluation.engines import Resources, describe
from evaluation.engines.base import Engine
from evaluation.engines.index.inverted_index import InvertedIndex
from evaluation.engines.index.ordered_ids import OrderedIds
from evaluation.engines.index.term_search import inverse_document_frequency, inverse_norms
from evaluation.engines.index.word_pieces import WordPieces
from evaluation.engines.model_terms import QueryAugmentation
from evaluation.engines.neural.loading import Tokenised
from evaluation.engines.neural.text_models import FILE_NAME, AugmentationModel
from evaluation.engines.run_writing import run_lines
from evaluation.judgements.qrels import Qrels, read_qrels
from evaluation.runs.score import ScoringTarget, score_run

_MEASURE = "nDCG@10"
#: Without judgments for the choice of an epoch, every tenth training query is held out.
_TENTH = 10
#: Number of sampled documents that each step scores in addition to the relevant ones.
_DOCUMENTS = 8_192
_BATCH = 32
#: Initial weight of every added word piece.
_FIRST_WEIGHT = 0.02


@dataclass(frozen=True, slots=True)
class Settings:
    """Training parameters. `learning_rate` applies to W and u."""

    epochs: int
    learning_rate: float
    encoder_learning_rate: float
    sparsity: float
    seed: int


def start_checkpoint(encoder: Path, folder: Path) -> None:
    """Write an encoder and its tokenizer into `folder`, with a W and u of zeros."""
    options = {"local_files_only": True, "trust_remote_code": False}
    model = transformers.AutoModel.from_pretrained(encoder, **options)
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder, **options)
    tokenizer.save_pretrained(folder)
    size = model.config.hidden_size
    _save(model, torch.zeros(len(tokenizer), size), torch.zeros(size), folder)


def save_model(model: AugmentationModel, folder: Path) -> None:
    """Write the trained weights over a checkpoint of `start_checkpoint`."""
    _save(model.encoder, model.projection, model.weighting, folder)


def _save(encoder: torch.nn.Module, projection: torch.Tensor, weighting: torch.Tensor, folder: Path) -> None:
    encoder.save_pretrained(folder)
    tensors = {"W": projection.contiguous(), "u": weighting.contiguous()}
    safetensors.torch.save_file(tensors, folder / FILE_NAME)


@dataclass(frozen=True, slots=True)
class _Example:
    """A training query: token ids, positions of its terms, their places in the index, and its relevant documents."""

    numbers: list[int]
    tokens: NDArray[np.int64]
    places: NDArray[np.int64]
    relevant: NDArray[np.int64]
    grades: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SearchIndex:
    """An engine's opened index, its tokenizer, and BM25's parameters."""

    index: InvertedIndex
    pieces: WordPieces
    k1: float
    b: float


def train(
    model: AugmentationModel, search: SearchIndex, queries: Sequence[Query], qrels: Qrels, settings: Settings
) -> Iterator[int]:
    """Train an engine's model over its index and yield the number of each finished epoch.

    After each epoch the engine searches with the present weights. Raises ModelFailure and InvalidContent.
    """
    torch.manual_seed(settings.seed)
    generator = np.random.default_rng(settings.seed)
    pieces = np.array([int(term) for term in search.index.terms()])
    examples = _examples(model, search, queries, qrels, pieces)
    if not examples:
        what = "no training query has a relevant document in the corpus"
        raise InvalidContent.build(Problem("error", "no_training_data", 1, what, "Name qrels of these queries."))
    learned, matrix = (_Learned(model, examples, pieces), _document_matrix(search))
    optimizer = torch.optim.AdamW(
        [
            {"params": learned.parameters(), "lr": settings.learning_rate},
            {"params": learned.encoder_parameters(), "lr": settings.encoder_learning_rate},
        ],
        weight_decay=0.01,
    )
    steps = -(-len(examples) // _BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(  # warm-up over the first epoch, then linear decay to zero
        optimizer, lambda step: min(1.0, (step + 1) / steps) * (1 - step / (steps * settings.epochs))
    )
    for epoch in range(1, settings.epochs + 1):
        model.encoder.train()
        for batch in np.array_split(generator.permutation(len(examples)), steps):
            with torch.enable_grad():
                loss = learned.loss([examples[number] for number in batch], matrix, generator, settings.sparsity)
                optimizer.zero_grad()
                loss.backward()
            torch.nn.utils.clip_grad_norm_(learned.encoder_parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.encoder.eval()
        learned.hand_over()
        yield epoch


def _examples(
    model: AugmentationModel,
    search: SearchIndex,
    queries: Sequence[Query],
    qrels: Qrels,
    pieces: NDArray[np.int64],
) -> list[_Example]:
    """Return the queries that have a relevant document in the corpus."""
    ids, judgements = OrderedIds(search.index.folder), qrels.as_dict()
    place_of = np.full(search.pieces.id_bound, -1)
    place_of[pieces] = np.arange(len(pieces))
    found = []
    inputs = search.pieces.inputs([query.text for query in queries], model.maximum_length)
    for query, numbers in zip(queries, inputs, strict=True):
        grades = {
            document: grade
            for name, grade in judgements.get(query.id, {}).items()
            if grade > 0 and (document := ids.find(name)) >= 0
        }
        if grades:
            (tokens,) = np.nonzero(place_of[numbers] >= 0)
            relevant, weights = np.array([*grades]), np.array([*grades.values()], np.float32)
            found.append(_Example(numbers, tokens, place_of[numbers][tokens], relevant, weights / weights.sum()))
    return found


def _document_matrix(search: SearchIndex) -> csr_array:
    """Return idf ⊙ f(d), of shape (documents, terms of the index)."""
    index = search.index
    frequencies, documents = np.diff(index.offsets), index.documents[:].astype(np.int32)
    norms = inverse_norms(search.k1, search.b, index.tokens[0], index.documents_with_field[0])
    counts = index.frequencies[:] * norms[index.lengths[0][documents]]
    idf = inverse_document_frequency(np.array(index.documents_with_field), frequencies)
    values = (np.repeat(idf, frequencies) * counts / (1 + counts)).astype(np.float32)
    shape = (len(frequencies), index.document_count)
    return csr_array((values, documents, index.offsets[:]), shape).T.tocsr()


class _Learned:
    """The trained parameters besides the encoder: u, and W as b ⊗ m + E · A.

    m maps the mean of enc(q)[CLS] to 1, so that b, one number per term, is the weight that every query adds. E contains
    the encoder's frozen embeddings of the pieces, and A (dimension × dimension) maps a query to the pieces it adds. An
    unconstrained W would be a hundred times larger and would memorize the queries.
    """

    def __init__(self, model: AugmentationModel, examples: Sequence[_Example], pieces: NDArray[np.int64]) -> None:
        self._model, self._pieces = model, torch.from_numpy(pieces)
        embeddings = model.encoder.requires_grad_().get_input_embeddings().weight.requires_grad_(False)
        self._embeddings = embeddings[self._pieces].clone()
        if self._embeddings.shape[1] != model.projection.shape[1]:
            raise ModelFailure("not_loadable", "the encoder's embeddings and its vectors have different dimensions")
        some = [self._vectors(examples[start : start + _BATCH]) for start in range(0, len(examples), _BATCH)]
        first = torch.cat([vectors[:, 0] for vectors, _ in some]).mean(0)
        token = torch.cat([vectors[mask] for vectors, mask in some]).mean(0)
        self._direction = first / first.square().sum()
        self.everywhere = torch.full((len(pieces),), _FIRST_WEIGHT).requires_grad_()
        self.calling = torch.zeros(len(first), len(first)).requires_grad_()
        self.weighting = (token / token.square().sum()).requires_grad_()

    def parameters(self) -> list[torch.Tensor]:
        """Return the parameters besides the encoder's."""
        return [self.everywhere, self.calling, self.weighting]

    def encoder_parameters(self) -> list[torch.Tensor]:
        """Return the trained parameters of the encoder: all except its embeddings and its pooler."""
        named = self._model.encoder.named_parameters()
        return [one for name, one in named if one.requires_grad and not name.startswith("pooler.")]

    def _vectors(self, examples: Sequence[_Example]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return enc(q), of shape (queries, longest query, dimension), and the mask of tokens."""
        tokens = Tokenised.from_rows([example.numbers for example in examples], self._model.padding_id)
        features = tokens.padded(np.arange(len(examples)))
        vectors: torch.Tensor = self._model.encoder(**features).last_hidden_state
        return vectors, features["attention_mask"].bool()

    def loss(
        self, examples: Sequence[_Example], matrix: csr_array, generator: np.random.Generator, sparsity: float
    ) -> torch.Tensor:
        """Return the mean loss of a batch of queries."""
        vectors, _ = self._vectors(examples)
        called = (vectors[:, 0] @ self.calling.T) @ self._embeddings.T
        added = torch.relu((vectors[:, 0] @ self._direction)[:, None] * self.everywhere + called)
        documents = _drawn(examples, matrix.shape[0], generator)
        scores = _sparse(matrix[documents]) @ self._query_vectors(examples, vectors, added).T
        likelihoods = torch.log_softmax(scores.T, dim=1)
        target = torch.zeros(likelihoods.shape)
        for row, example in zip(target, examples, strict=True):
            row[np.searchsorted(documents, example.relevant)] = torch.from_numpy(example.grades)
        return (sparsity * added.sum() - (target * likelihoods).sum()) / len(examples)

    def _query_vectors(self, examples: Sequence[_Example], vectors: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        """Return w ⊙ (bow + a), of shape (queries, terms). A repeated piece has its greatest weight."""
        rows = np.repeat(np.arange(len(examples)), [len(example.tokens) for example in examples])
        tokens, places = (
            np.concatenate([getattr(example, name) for example in examples]) for name in ("tokens", "places")
        )
        weights = torch.relu(vectors[rows, tokens] @ self.weighting)
        own, group = np.unique(np.stack([rows, places]), axis=1, return_inverse=True)
        greatest = torch.zeros(own.shape[1]).scatter_reduce(0, torch.from_numpy(group.ravel()), weights, "amax")
        where = (torch.from_numpy(own[0]), torch.from_numpy(own[1]))
        return added.index_put(where, greatest * (1 + added[where]))

    def hand_over(self) -> None:
        """Copy the present weights into the model."""
        everywhere, calling, weighting = (tensor.detach() for tensor in self.parameters())
        rows = everywhere[:, None] * self._direction + self._embeddings @ calling
        self._model.projection = torch.zeros_like(self._model.projection).index_put((self._pieces,), rows)
        self._model.weighting = weighting.clone()


def _drawn(examples: Sequence[_Example], count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the sorted documents of a step: all relevant ones of its queries, and a sample of the others."""
    relevant = np.unique(np.concatenate([example.relevant for example in examples]))
    others = np.setdiff1d(np.arange(count), relevant, assume_unique=True)
    if len(others) > _DOCUMENTS:
        others = generator.choice(others, _DOCUMENTS, replace=False)
    return np.sort(np.concatenate([relevant, others]))


def _sparse(matrix: csr_array) -> torch.Tensor:
    parts = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return torch.sparse_csr_tensor(*parts, matrix.shape, check_invariants=False)


def main(words: Sequence[str] | None = None) -> int:
    """Train and write the checkpoint; return 1 if the files or the encoder are unsuitable, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        description="Learn the terms to add to a collection's queries, and the weights of the queries' own terms. "
        "Trained on qrels/train.tsv; the epoch is chosen on qrels/dev.tsv, or on a tenth of the queries for training; "
        "qrels/test.tsv, if it exists, is scored once at the end.",
    )
    parser.add_argument("--collection", required=True, type=Path, help="folder in BEIR layout")
    parser.add_argument("--encoder", required=True, type=Path, help="folder of an encoder, as saved by its library")
    parser.add_argument("--out", required=True, type=Path, help="output folder of the checkpoint")
    for name, kind, default, what in (
        ("epochs", int, 3, "number of passes over the queries"),
        ("learning-rate", float, 5e-4, "learning rate of W and u"),
        ("encoder-learning-rate", float, 1e-4, "learning rate of the encoder"),
        ("sparsity", float, 1e-2, "loss per unit of added weight"),
        ("seed", int, 0, "seed of the order of queries, the sampled documents, and dropout"),
    ):
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{what} (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="number of cores (default: all available ones)")
    arguments = parser.parse_args(words)
    if arguments.out.exists():
        print(f"error: {arguments.out} already exists. Choose another folder.", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="training-") as scratch:
            _train(arguments, Path(scratch))
    except InvalidContent as error:
        for problem in error.report.errors:
            print(f"error: {problem.code}: {problem.message}", file=sys.stderr)
        return 1
    except ModelFailure as failure:
        print(f"error: {failure.code}: {failure.message}", file=sys.stderr)
        return 1
    return 0


def _train(arguments: argparse.Namespace, scratch: Path) -> None:
    folder = arguments.collection
    queries = {query.id: query for query in read_queries(folder / "queries.jsonl")}
    splits = _splits(folder / "qrels")
    staged, threads = scratch / "staged", arguments.threads or len(os.sched_getaffinity(0))
    start_checkpoint(arguments.encoder, staged)
    engine = _engine(staged, scratch, threads)
    (scratch / "index").mkdir()
    engine.build(read_corpus(folder / "corpus.jsonl"), scratch / "index")
    asked = {name: [queries[one] for one in qrels.query_ids if one in queries] for name, qrels in splits.items()}
    settings = Settings(
        arguments.epochs,
        arguments.learning_rate,
        arguments.encoder_learning_rate,
        arguments.sparsity,
        arguments.seed,
    )
    search = SearchIndex(engine.searcher.index, engine.pieces, engine.k1, engine.b)
    best = -1.0
    for epoch in train(engine.model, search, asked["train"], splits["train"], settings):
        score = _score(engine, asked["dev"], splits["dev"])
        print(f"epoch {epoch}: {_MEASURE} {score:.4f} (dev)", file=sys.stderr)
        if score > best:
            best = score
            save_model(engine.model, staged)
    shutil.copytree(staged, arguments.out)
    trained = _engine(arguments.out, scratch, threads)
    trained.open(scratch / "index")
    plain = trained.variant("bm25-wordpiece")
    for name in ("dev", "test"):
        if name in splits:
            before, after = (_score(one, asked[name], splits[name]) for one in (plain, trained))
            print(f"{name}: {_MEASURE} {after:.4f}; BM25 over the same pieces: {before:.4f}")
    added = trained.facts()["mean_augmentation_length"]
    print(f"{arguments.out}: mean number of terms added to a query: {added:,.0f}")


def _splits(folder: Path) -> dict[str, Qrels]:
    """Return qrels by purpose; without qrels/dev.tsv, hold out a tenth of the training queries."""
    paths = {name: folder / f"{name}.tsv" for name in ("train", "dev", "test")}
    found = {name: read_qrels(path) for name, path in paths.items() if name == "train" or path.exists()}
    if "dev" not in found:
        judged = found["train"].as_dict()
        kept = set(list(judged)[::_TENTH])
        found["dev"], found["train"] = (
            Qrels.from_dict({query: grades for query, grades in judged.items() if (query in kept) == wanted})
            for wanted in (True, False)
        )
    return found


def _engine(folder: Path, scratch: Path, threads: int) -> QueryAugmentation:
    """Return an engine for a checkpoint, validated as on the site."""
    description = describe("query-augmentation")
    checkpoint = open_checkpoint(folder, [CheckpointKind.QUERY_AUGMENTATION], scratch)
    engine = description.create(description.complete({}), Resources(checkpoint, threads=threads))
    assert isinstance(engine, QueryAugmentation)
    return engine


def _score(engine: Engine, queries: list[Query], qrels: Qrels) -> float:
    lines = "".join(run_lines(ranking, "training") for ranking in engine.search(queries, 10))
    return score_run(lines.encode(), ScoringTarget(qrels, hidden=False), [_MEASURE]).means[_MEASURE]


if __name__ == "__main__":
    sys.exit(main())
