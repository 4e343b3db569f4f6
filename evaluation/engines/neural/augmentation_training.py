"""Train learned query augmentation on a collection's own judgements: W, u and the encoder, end to end.

The loss of a query is the cross entropy between its relevant documents, weighed by their grades, and the softmax of
its scores over documents: all of a small corpus, else the relevant ones of the batch and as many others, drawn anew in
each step, as fill up `_DOCUMENTS`. The scores are the engine's, (w ⊙ idf ⊙ (bow + a))ᵀ f(d) over the same index. Beside
that stands `sparsity` × the sum of a(q), so that a query gets few terms.

Training begins near BM25, with every token of a query weighing about 1 and every piece added with the same small
weight, so that no ReLU starts where it has no gradient. The seed decides the order of the queries, the documents that
are drawn and the dropout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import transformers
from numpy.typing import NDArray
from scipy.sparse import csr_array

from evaluation.collections.beir import Query
from evaluation.core.errors import InvalidContent, ModelFailure
from evaluation.core.problems import Problem
from evaluation.engines.index.inverted_index import InvertedIndex
from evaluation.engines.index.ordered_ids import OrderedIds
from evaluation.engines.index.term_search import inverse_document_frequency, inverse_norms
from evaluation.engines.index.word_pieces import WordPieces
from evaluation.engines.neural.augmentation import FILE_NAME, AugmentationModel
from evaluation.engines.neural.batching import Tokenised
from evaluation.judgements.qrels import Qrels

#: Documents that a query's relevant ones are told from in a step.
_DOCUMENTS = 8_192
_BATCH = 32
#: What every piece is added with before the first step.
_FIRST_WEIGHT = 0.02


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is trained; the first learning rate is that of W and u."""

    epochs: int
    learning_rate: float
    encoder_learning_rate: float
    sparsity: float
    seed: int


def start_checkpoint(encoder: Path, folder: Path) -> None:
    """Write an encoder and its tokenizer into `folder`, with a W and u of zeros beside them."""
    options = {"local_files_only": True, "trust_remote_code": False}
    model = transformers.AutoModel.from_pretrained(encoder, **options)
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder, **options)
    tokenizer.save_pretrained(folder)
    size = model.config.hidden_size
    _save(model, torch.zeros(len(tokenizer), size), torch.zeros(size), folder)


def save_model(model: AugmentationModel, folder: Path) -> None:
    """Write what a model has learned over a checkpoint of `start_checkpoint`."""
    _save(model.encoder, model.projection, model.weighting, folder)


def _save(encoder: torch.nn.Module, projection: torch.Tensor, weighting: torch.Tensor, folder: Path) -> None:
    encoder.save_pretrained(folder)
    tensors = {"W": projection.contiguous(), "u": weighting.contiguous()}
    safetensors.torch.save_file(tensors, folder / FILE_NAME)


@dataclass(frozen=True, slots=True)
class _Example:
    """A query: its token numbers, which of them are terms, their places in the index; its relevant documents."""

    numbers: list[int]
    tokens: NDArray[np.int64]
    places: NDArray[np.int64]
    relevant: NDArray[np.int64]
    grades: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Searched:
    """What an engine searches with: its opened index, the tokenizer, and BM25's parameters."""

    index: InvertedIndex
    pieces: WordPieces
    k1: float
    b: float


def train(
    model: AugmentationModel, searched: Searched, queries: Sequence[Query], qrels: Qrels, settings: Settings
) -> Iterator[int]:
    """Train an engine's model over its index; gives the number of each epoch when it is over.

    In between, the engine searches with what has been learned so far. Raises ModelFailure and InvalidContent.
    """
    torch.manual_seed(settings.seed)
    generator = np.random.default_rng(settings.seed)
    pieces = np.array([int(term) for term in searched.index.terms()])
    examples = _examples(model, searched, queries, qrels, pieces)
    if not examples:
        what = "no query for training has a relevant document in the corpus"
        raise InvalidContent.of(Problem("error", "no_training_data", 1, what, "Name qrels of these queries."))
    learned, matrix = (
        _Learned(model, examples, pieces),
        _document_matrix(searched),
    )
    optimizer = torch.optim.AdamW(
        [
            {"params": learned.parameters(), "lr": settings.learning_rate},
            {"params": learned.encoder_parameters(), "lr": settings.encoder_learning_rate},
        ],
        weight_decay=0.01,
    )
    steps = -(-len(examples) // _BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(  # rises over the first epoch, and falls to zero over all
        optimizer, lambda step: min(1.0, (step + 1) / steps) * (1 - step / (steps * settings.epochs))
    )
    for epoch in range(1, settings.epochs + 1):
        model.encoder.train()
        for batch in np.array_split(generator.permutation(len(examples)), steps):
            with torch.enable_grad():
                loss = learned.loss(
                    [examples[number] for number in batch], matrix, generator, settings.sparsity
                )
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
    searched: Searched,
    queries: Sequence[Query],
    qrels: Qrels,
    pieces: NDArray[np.int64],
) -> list[_Example]:
    """The queries that have a relevant document in the corpus."""
    ids, judgements = OrderedIds(searched.index.folder), qrels.as_dict()
    place_of = np.full(searched.pieces.behind_last, -1)
    place_of[pieces] = np.arange(len(pieces))
    found = []
    inputs = searched.pieces.inputs([query.text for query in queries], model.maximum_length)
    for query, numbers in zip(queries, inputs, strict=True):
        grades = {
            document: grade
            for name, grade in judgements.get(query.id, {}).items()
            if grade > 0 and (document := ids.find(name)) >= 0
        }
        if grades:
            (tokens,) = np.nonzero(place_of[numbers] >= 0)
            relevant, weights = np.array([*grades]), np.array([*grades.values()], np.float32)
            found.append(
                _Example(numbers, tokens, place_of[numbers][tokens], relevant, weights / weights.sum())
            )
    return found


def _document_matrix(searched: Searched) -> csr_array:
    """idf ⊙ f(d): documents × terms of the index."""
    index = searched.index
    frequencies, documents = np.diff(index.offsets), index.documents[:].astype(np.int32)
    norms = inverse_norms(searched.k1, searched.b, index.tokens[0], index.documents_with_field[0])
    counts = index.frequencies[:] * norms[index.lengths[0][documents]]
    idf = inverse_document_frequency(np.array(index.documents_with_field), frequencies)
    values = (np.repeat(idf, frequencies) * counts / (1 + counts)).astype(np.float32)
    shape = (len(frequencies), index.document_count)
    return csr_array((values, documents, index.offsets[:]), shape).T.tocsr()


class _Learned:
    """What is learned beside the encoder: u, and W as b ⊗ m + E · A.

    m turns the mean of enc(q)[CLS] into 1, so that b, one number for each term, is what any query gets; E has the
    encoder's own embeddings of the pieces, which stay as they are, and A (dimension × dimension) says what of a query
    calls for which of them. A free W would be a hundred times larger, and would learn the queries by heart.
    """

    def __init__(
        self, model: AugmentationModel, examples: Sequence[_Example], pieces: NDArray[np.int64]
    ) -> None:
        self._model, self._pieces = model, torch.from_numpy(pieces)
        embeddings = model.encoder.requires_grad_().get_input_embeddings().weight.requires_grad_(False)
        self._embeddings = embeddings[self._pieces].clone()
        if self._embeddings.shape[1] != model.projection.shape[1]:
            raise ModelFailure(
                "not_loadable", "the encoder's embeddings have not the dimension of its vectors"
            )
        some = [self._vectors(examples[start : start + _BATCH]) for start in range(0, len(examples), _BATCH)]
        first = torch.cat([vectors[:, 0] for vectors, _ in some]).mean(0)
        token = torch.cat([vectors[mask] for vectors, mask in some]).mean(0)
        self._direction = first / first.square().sum()
        self.everywhere = torch.full((len(pieces),), _FIRST_WEIGHT).requires_grad_()
        self.calling = torch.zeros(len(first), len(first)).requires_grad_()
        self.weighting = (token / token.square().sum()).requires_grad_()

    def parameters(self) -> list[torch.Tensor]:
        """What is learned beside the encoder."""
        return [self.everywhere, self.calling, self.weighting]

    def encoder_parameters(self) -> list[torch.Tensor]:
        """What is learned of the encoder: all but its embeddings of pieces, and a pooler."""
        named = self._model.encoder.named_parameters()
        return [one for name, one in named if one.requires_grad and not name.startswith("pooler.")]

    def _vectors(self, examples: Sequence[_Example]) -> tuple[torch.Tensor, torch.Tensor]:
        """enc(q) (queries × longest × dimension), and which tokens are no padding."""
        tokens = Tokenised.of([example.numbers for example in examples], self._model.padding_id)
        features = tokens.padded(np.arange(len(examples)))
        vectors: torch.Tensor = self._model.encoder(**features).last_hidden_state
        return vectors, features["attention_mask"].bool()

    def loss(
        self, examples: Sequence[_Example], matrix: csr_array, generator: np.random.Generator, sparsity: float
    ) -> torch.Tensor:
        """The mean over the queries of a step."""
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

    def _query_vectors(
        self, examples: Sequence[_Example], vectors: torch.Tensor, added: torch.Tensor
    ) -> torch.Tensor:
        """w ⊙ (bow + a): queries × terms. A piece that is there twice takes the greater of its weights."""
        rows = np.repeat(np.arange(len(examples)), [len(example.tokens) for example in examples])
        tokens, places = (
            np.concatenate([getattr(example, name) for example in examples]) for name in ("tokens", "places")
        )
        weights = torch.relu(vectors[rows, tokens] @ self.weighting)
        own, group = np.unique(np.stack([rows, places]), axis=1, return_inverse=True)
        greatest = torch.zeros(own.shape[1]).scatter_reduce(
            0, torch.from_numpy(group.ravel()), weights, "amax"
        )
        where = (torch.from_numpy(own[0]), torch.from_numpy(own[1]))
        return added.index_put(where, greatest * (1 + added[where]))

    def hand_over(self) -> None:
        """Let the model work with what is learned so far."""
        everywhere, calling, weighting = (tensor.detach() for tensor in self.parameters())
        rows = everywhere[:, None] * self._direction + self._embeddings @ calling
        self._model.projection = torch.zeros_like(self._model.projection).index_put((self._pieces,), rows)
        self._model.weighting = weighting.clone()


def _drawn(examples: Sequence[_Example], count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """The documents of a step, sorted: all that are relevant to one of its queries, and others."""
    relevant = np.unique(np.concatenate([example.relevant for example in examples]))
    others = np.setdiff1d(np.arange(count), relevant, assume_unique=True)
    if len(others) > _DOCUMENTS:
        others = generator.choice(others, _DOCUMENTS, replace=False)
    return np.sort(np.concatenate([relevant, others]))


def _sparse(matrix: csr_array) -> torch.Tensor:
    parts = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return torch.sparse_csr_tensor(*parts, matrix.shape, check_invariants=False)
