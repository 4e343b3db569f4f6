"""Learned sparse and multi-vector encoders with separate models for queries and documents, and MaxSim.

The module includes heads that are not saved as modules of a library: the head of SPARTA, and the sparse and
multi-vector heads of bge-m3.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file
from sentence_transformers import MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from sentence_transformers.util import select_max_active_dims

from evaluation.checkpoints.description import HEADS, SPARTA, CheckpointDescription, CheckpointKind
from evaluation.core.problems import ModelFailure
from evaluation.engines.base import AUTO, Floats, Numbers, Progress, Resources, ignore
from evaluation.engines.index.inverted_index import SparseRows
from evaluation.engines.index.token_store import Block
from evaluation.engines.neural.encoding import PROBE
from evaluation.engines.neural.loading import (
    CPU_TOKENS,
    CUDA_TOKENS,
    USUAL_LENGTH,
    Indices,
    OutputCheck,
    Role,
    input_keys,
    library_options,
    load_encoder,
    load_roles,
    model_failures,
    prepare,
    readable_part,
    resolve_maximum_length,
    run_in_batches,
    use_dtype,
)
from evaluation.engines.prompts import select_prompt

Output = TypeVar("Output")
#: Approximate number of UTF-8 bytes per token.
_BYTES_PER_TOKEN = 4


class SidedEncoder(ABC, Generic[Output]):
    """The models for queries and documents, with their prompts and batched inference."""

    def __init__(self, models: Mapping[Role, Any], parameters: Mapping[str, Any], device: str) -> None:
        self._models, self._device = models, device
        for model in set(models.values()):
            use_dtype(model, parameters["compute_dtype"], device)
        self._prompts = {
            role: select_prompt(model.prompts, role, parameters[f"{role}_prompt"]) for role, model in models.items()
        }
        self._batch_tokens = parameters["batch_tokens"]

    @abstractmethod
    def _compute(self, texts: Sequence[str], indices: Indices, role: Role, check: OutputCheck) -> Output:
        """Return the model's outputs for some of the texts, after passing them to `check`."""

    def _run(
        self,
        texts: Sequence[str],
        role: Role,
        keep: Callable[[Indices, Output], None],
        progress: Progress = ignore,
    ) -> None:
        """Compute the outputs of all texts, longest first, and pass them to `keep`. Raises ModelFailure."""
        check = OutputCheck()
        # Estimated number of tokens, including special ones, so that batches contain texts of similar length.
        maximum_length = self._models[role].max_seq_length or USUAL_LENGTH
        sizes = (len(text[: 8 * maximum_length].encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 2 for text in texts)
        run_in_batches(
            np.fromiter((min(size, maximum_length) for size in sizes), np.int64, len(texts)),
            lambda indices: self._compute(texts, indices, role, check),
            keep,
            tokens=self._batch_tokens,
            device=self._device,
            progress=progress,
        )
        if role == "document":
            check.finish()

    def _features(self, texts: Sequence[str], indices: Indices, role: Role) -> dict[str, Any]:
        """Return the library's model inputs for some of the texts."""
        model = self._models[role]
        batch = [readable_part(texts[index], model.max_seq_length) for index in indices.tolist()]
        return {
            name: value.to(self._device) if isinstance(value, torch.Tensor) else value
            for name, value in model.preprocess(batch, prompt=self._prompts[role] or None, task=role).items()
        }


Features = dict[str, Any]


class SpartaPooling(torch.nn.Module):  # type: ignore[misc]
    """log(1 + ReLU(max_t E · h_t)) over the input embeddings E, without special tokens.

    T. Zhao et al., "SPARTA", 2021, equations 5 and 6, as computed by beir/retrieval/models/sparta.py of
    https://github.com/beir-cellar/beir for single texts (in batches, it includes padding).
    """

    def __init__(self, transformer: Transformer) -> None:
        super().__init__()
        weights = transformer.model.get_input_embeddings().weight[: len(transformer.tokenizer)].detach().clone()
        weights[transformer.tokenizer.all_special_ids] = 0.0
        self.embeddings = torch.nn.Parameter(weights)

    def forward(self, features: Features) -> Features:
        products = features["token_embeddings"] @ self.embeddings.T
        products = products.masked_fill(features["attention_mask"][..., None] == 0, -torch.inf)
        return {**features, "sentence_embedding": products.amax(1).relu().log1p()}


class TermCounts(SparseStaticEmbedding):  # type: ignore[misc]
    """Term frequencies of a text without a model, for queries of SPARTA."""

    def forward(self, features: Features) -> Features:
        ids, mask = features["input_ids"], features["attention_mask"]
        counts = torch.zeros(len(ids), self.num_dimensions, device=ids.device)
        return {**features, "sentence_embedding": counts.scatter_add(1, ids, mask.float()) * self.weight}


class LexicalWeights(torch.nn.Module):  # type: ignore[misc]
    """Maximum of ReLU(w · h_t + b) over the occurrences of each term, without special tokens.

    J. Chen et al., "BGE M3-Embedding", 2024; FlagEmbedding/inference/embedder/encoder_only/m3.py of
    https://github.com/FlagOpen/FlagEmbedding.
    """

    def __init__(self, transformer: Transformer, head: Path) -> None:
        super().__init__()
        words = transformer.tokenizer
        self.linear = _load_linear(head)
        self.terms: int = transformer.config.vocab_size
        unused_ids = (words.cls_token_id, words.eos_token_id, words.pad_token_id, words.unk_token_id)
        self.unused = torch.tensor([number for number in unused_ids if number is not None])

    def forward(self, features: Features) -> Features:
        """Return the features with the weights of each text's terms as its embedding (texts × terms)."""
        ids = features["input_ids"]
        weights = self.linear(features["token_embeddings"])[..., 0].relu()
        weights = weights.masked_fill(torch.isin(ids, self.unused.to(ids.device)), 0.0)
        output = torch.zeros(len(ids), self.terms, dtype=weights.dtype, device=ids.device)
        return {**features, "sentence_embedding": output.scatter_reduce(1, ids, weights, "amax")}


def load_sparse_models(resources: Resources) -> dict[Role, SparseEncoder]:
    """Return the sparse models for queries and documents, with the head of the checkpoint. Raises ModelFailure."""
    if CheckpointDescription.read(resources.model).pooling == SPARTA:
        folder = resources.first_part
        prepare(resources.threads)
        with model_failures():  # an encoder for documents, and only a tokenizer for queries
            transformer = Transformer(str(folder), **library_options(folder))
            words = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
            weight = torch.ones(len(words))
            weight[words.all_special_ids] = 0.0
            documents = SparseEncoder(modules=[transformer, SpartaPooling(transformer)], device=resources.device).eval()
            counts = TermCounts(tokenizer=words, weight=weight)
            return {"query": SparseEncoder(modules=[counts], device=resources.device), "document": documents}
    return load_roles(resources, lambda folder: _load_sparse(folder, resources.device))


def load_token_model(folder: Path, device: str) -> MultiVectorEncoder:
    """Return a late-interaction model. Raises ModelFailure.

    With bge-m3's head, the first token is excluded and similarity is the mean of MaxSim.
    """
    head = folder / HEADS[CheckpointKind.MULTI_VECTOR]
    if not head.is_file():
        if not _has_projection(folder):
            raise ModelFailure(
                "missing_projection",
                "the checkpoint has no projection; the library would initialize a random one",
            )
        return load_encoder(MultiVectorEncoder, folder, device)
    transformer = load_encoder(SentenceTransformer, folder, device)[0]
    with model_failures():
        linear = _load_linear(head)
        projection = Dense(
            linear.in_features,
            linear.out_features,
            activation_function=torch.nn.Identity(),
            init_weight=linear.weight,
            init_bias=linear.bias,
            module_input_name="token_embeddings",
        )
        mask = MultiVectorMask([transformer.tokenizer.cls_token], skiplist_tasks=["query", "document"])
        modules = [transformer, projection, mask, Normalize(module_input_name="token_embeddings")]
        return MultiVectorEncoder(modules=modules, device=device, similarity_fn_name="meanmaxsim").eval()


def _load_sparse(folder: Path, device: str) -> SparseEncoder:
    """Return the sparse model in a folder, with bge-m3's head of lexical weights if the folder has one."""
    head = folder / HEADS[CheckpointKind.SPARSE_ENCODER]
    if not head.is_file():
        return load_encoder(SparseEncoder, folder, device)
    transformer = load_encoder(SentenceTransformer, folder, device)[0]
    with model_failures():
        return SparseEncoder(modules=[transformer, LexicalWeights(transformer, head)], device=device).eval()


def _load_linear(head: Path) -> torch.nn.Linear:
    """Return a linear layer with the weight and bias in a file."""
    weights = load_file(head)
    rows, columns = weights["weight"].shape
    linear = torch.nn.Linear(columns, rows)
    linear.load_state_dict(weights)
    return linear


#: Maximum memory for a value per token and term.
_CPU_BYTES, _CUDA_BYTES = 2**30, 2**33
#: Default maximum number of terms per document.
_USUAL_TERMS = 2000
#: Terms of a text, and their weights.
_Row = tuple[NDArray[np.int32], Floats]


class SparseTextEncoder(SidedEncoder[torch.Tensor]):
    """A learned sparse model, such as SPLADE and SPARTA, possibly with a table of weights for queries."""

    def __init__(self, resources: Resources, parameters: Mapping[str, Any]) -> None:
        super().__init__(load_sparse_models(resources), parameters, resources.device)
        for model in set(self._models.values()):
            model.max_seq_length = resolve_maximum_length(model, model.max_seq_length, parameters["maximum_length"])
        self._most_terms = parameters["most_terms"]
        self.maximum_length: int = self._models["document"].max_seq_length
        #: "cosine" for models that require it, with normalized vectors; otherwise "dot".
        self.similarity = "cosine" if self._models["query"].similarity_fn_name == "cosine" else "dot"
        #: Size of the vocabulary, which is determined from an output.
        self.dimension = 0
        self.dimension = int(self._compute([" ".join(PROBE)], np.zeros(1, np.intp), "document", OutputCheck()).shape[1])
        if not self.dimension:
            raise ModelFailure("does_not_run", "the model's tokenizer returns no tokens for any text")
        self._batch_tokens = self._batch_tokens or self._get_batch_tokens()

    def encode(self, texts: Sequence[str], role: Role, progress: Progress = ignore) -> SparseRows:
        """Return one row for each text, with its `most_terms` largest weights. Raises ModelFailure."""
        rows_by_index: dict[int, _Row] = {}

        def keep(indices: Indices, batch: torch.Tensor) -> None:
            for index, row in zip(indices.tolist(), batch.cpu().float().numpy(), strict=True):
                terms = np.flatnonzero(row).astype(np.int32)
                rows_by_index[index] = terms, row[terms]

        self._run(texts, role, keep, progress)
        rows = [rows_by_index[index] for index in range(len(texts))]
        return SparseRows(
            np.cumsum([0, *(len(terms) for terms, _ in rows)], dtype=np.int64),
            np.concatenate([np.empty(0, np.int32), *(terms for terms, _ in rows)]),
            np.concatenate([np.empty(0, np.float32), *(weights for _, weights in rows)]),
        )

    def _get_batch_tokens(self) -> int:
        """Return the tokens per batch: as many as fit with two float32 values per token and term, up to a limit."""
        memory, most_tokens = (_CPU_BYTES, CPU_TOKENS) if self._device == "cpu" else (_CUDA_BYTES, CUDA_TOKENS)
        return min(memory // (8 * self.dimension), most_tokens)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _compute(self, texts: Sequence[str], indices: Indices, role: Role, check: OutputCheck) -> torch.Tensor:
        """Return the vectors of some of the texts (texts × terms), with only their largest weights.

        If there is no limit of terms, all weights are returned. For cosine similarity, vectors are normalized.
        """
        features = self._features(texts, indices, role)
        if not features["input_ids"].shape[1]:  # neither words nor special tokens
            return torch.zeros(len(indices), self.dimension)
        keys = input_keys(features)
        model = self._models[role]
        options = {"max_active_dims": model.max_active_dims} if model.max_active_dims else {}
        outputs: torch.Tensor = model(features, task=role, **options)["sentence_embedding"].float()
        most_terms = model.max_active_dims
        if role == "document":
            most_terms = (most_terms or _USUAL_TERMS) if self._most_terms == AUTO else self._most_terms
        if most_terms:
            outputs = select_max_active_dims(outputs, most_terms)
        if self.similarity == "cosine":
            outputs = torch.nn.functional.normalize(outputs, dim=1)
        check.check_batch(keys, outputs)
        return outputs


#: Function that receives indices of texts, the number of vectors of each, and the concatenated vectors.
Keep = Callable[[Indices, Numbers, Floats], None]
_Batch = tuple[torch.Tensor, torch.Tensor]


class TokenEncoder(SidedEncoder[_Batch]):
    """A late-interaction model of sentence-transformers, PyLate, or the Stanford code."""

    def __init__(self, resources: Resources, parameters: Mapping[str, Any]) -> None:
        models = load_roles(resources, lambda folder: load_token_model(folder, resources.device))
        super().__init__(models, parameters, resources.device)
        requested_lengths = {"query": 0, "document": parameters["maximum_length"]}  # 0 is the checkpoint's length
        lengths = {}
        for role, model in self._models.items():
            first_module = model[0]
            own_length = getattr(first_module, f"{role}_length", None) or model.max_seq_length
            lengths[role] = resolve_maximum_length(model, own_length, requested_lengths[role])
            if getattr(first_module, "query_expansion", None) is None or role == "document":
                setattr(first_module, f"{role}_length", lengths[role])
        self.maximum_length = lengths["document"]
        self.mean = self._models["query"].similarity_fn_name == "meanmaxsim"
        self.dimension = 0
        text = " ".join(PROBE)
        self.dimension = int(self._compute([text], np.zeros(1, np.intp), "document", OutputCheck())[0].shape[1])

    def encode(self, texts: Sequence[str], role: Role, keep: Keep, progress: Progress = ignore) -> None:
        """Compute the vectors of all texts in batches, longest first, and pass them to `keep`. Raises ModelFailure."""

        def keep_batch(indices: Indices, batch: _Batch) -> None:
            keep(indices, batch[1].cpu().numpy(), batch[0].cpu().float().numpy())

        self._run(texts, role, keep_batch, progress)

    def encode_queries(self, texts: Sequence[str]) -> list[torch.Tensor]:
        """Return the vectors of each query (tokens × dimension, float32), on the device."""
        vectors_by_index: dict[int, torch.Tensor] = {}

        def keep(indices: NDArray[np.intp], counts: Numbers, vectors: Floats) -> None:
            parts = torch.split(torch.from_numpy(vectors).to(self._device), counts.tolist())
            vectors_by_index.update(zip(indices.tolist(), parts, strict=True))

        self.encode(texts, "query", keep)
        return [vectors_by_index[index] for index in range(len(texts))]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _compute(self, texts: Sequence[str], indices: Indices, role: Role, check: OutputCheck) -> _Batch:
        """Return the concatenated vectors of some of the texts, and the number of vectors of each."""
        features = self._features(texts, indices, role)
        if not features["input_ids"].shape[1]:  # neither words nor special tokens
            return torch.zeros(0, self.dimension), torch.zeros(len(indices), dtype=torch.int64)
        keys = input_keys(features)
        features = self._models[role](features, task=role)
        vectors, mask = features["token_embeddings"].float(), features["attention_mask"].bool()
        check.check_batch(keys, vectors.masked_fill(~mask.unsqueeze(-1), -1e9).amax(1))
        return vectors[mask], mask.sum(1)


def _has_projection(folder: Path) -> bool:
    """Return whether the files contain a projection of the encoder's states to the compared vectors.

    This is a Dense module with weights or, as saved by the Stanford code, `linear.weight` among the encoder's
    weights.
    """
    modules, weights = folder / "modules.json", folder / "model.safetensors"
    if modules.is_file():
        dense = [module["path"] for module in json.loads(modules.read_bytes()) if module["type"].endswith("Dense")]
        return any((folder / path / "model.safetensors").is_file() for path in dense)
    config = json.loads((folder / "config.json").read_bytes())
    if "HF_ColBERT" not in (config.get("architectures") or ()) or not weights.is_file():
        return False
    with safe_open(weights, "pt") as tensors:
        return "linear.weight" in tensors.keys()  # noqa: SIM118


@torch.inference_mode()  # type: ignore[untyped-decorator]
def late_interaction(queries: Sequence[torch.Tensor], block: Block, mean: bool) -> Floats:
    """Return MaxSim (queries × documents): the sum over a query's vectors of their maximum inner products.

    O. Khattab and M. Zaharia, "ColBERT", 2020. With `mean`, the mean replaces the sum. Documents without vectors have
    the score -inf.
    """
    vectors = torch.from_numpy(block.vectors).to(queries[0].device).float()
    return _add_maxima(vectors @ torch.cat(list(queries)).T, queries, block, mean)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def late_interaction_scores(query: torch.Tensor, block: Block, mean: bool) -> Floats:
    """Return MaxSim of each document, multiplied separately, so that other documents do not affect the last bits."""
    vectors = torch.from_numpy(block.vectors).to(query.device).float()
    parts = (part.clone() @ query.T for part in torch.split(vectors, block.counts.tolist()))
    products = torch.cat([query.new_empty(0, len(query)), *parts])
    similarities: Floats = _add_maxima(products, [query], block, mean)[0]
    return similarities


def _add_maxima(products: torch.Tensor, queries: Sequence[torch.Tensor], block: Block, mean: bool) -> Floats:
    """Return MaxSim (queries × documents), given the inner products of the block's vectors with all query vectors."""
    counts = torch.from_numpy(block.counts).to(products.device)
    maxima = torch.segment_reduce(products, "max", lengths=counts, axis=0, initial=-torch.inf)
    # A few dozen float32 values are added in float64 without rounding, so the order does not matter.
    parts = torch.split(maxima.double(), [len(query) for query in queries], dim=1)
    scores = [part.mean(1) if mean else part.sum(1) for part in parts]
    similarities: Floats = torch.stack(scores).float().cpu().numpy()
    return similarities
