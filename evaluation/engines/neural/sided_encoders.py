"""Encoders of sentence-transformers with a model for queries and one for documents: learned sparse, and multi-vector.

Beside them are heads that no library saves as modules: SPARTA's, and the sparse and multi-vector ones beside bge-m3's
encoder; and MaxSim over vectors of tokens.
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
    longest_text,
    model_failures,
    prepare,
    readable_part,
    run_in_batches,
    use_dtype,
)
from evaluation.engines.prompts import prompt_of

Output = TypeVar("Output")
#: A token has about so many characters, or bytes of UTF-8 where a character is a word.
_BYTES_PER_TOKEN = 4


class SidedEncoder(ABC, Generic[Output]):
    """The models of both sides, their prompts, and texts run through them in batches."""

    def __init__(self, models: Mapping[Role, Any], parameters: Mapping[str, Any], device: str) -> None:
        self._models, self._device = models, device
        for model in set(models.values()):
            use_dtype(model, parameters["compute_dtype"], device)
        self._prompts = {
            role: prompt_of(model.prompts, role, parameters[f"{role}_prompt"])
            for role, model in models.items()
        }
        self._batch_tokens = parameters["batch_tokens"]

    @abstractmethod
    def _outputs(self, texts: Sequence[str], indices: Indices, role: Role, check: OutputCheck) -> Output:
        """Return what the model of a side makes of some of the texts, seen by `check`."""

    def _run(
        self,
        texts: Sequence[str],
        role: Role,
        keep: Callable[[Indices, Output], None],
        progress: Progress = ignore,
    ) -> None:
        """Give `keep` the outputs for all texts, the longest first. Raises ModelFailure."""
        check = OutputCheck()
        # About how many tokens of each text are read, special ones among them: batches need texts of like length.
        most = self._models[role].max_seq_length or USUAL_LENGTH
        sizes = (len(text[: 8 * most].encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 2 for text in texts)
        run_in_batches(
            np.fromiter((min(size, most) for size in sizes), np.int64, len(texts)),
            lambda indices: self._outputs(texts, indices, role, check),
            keep,
            tokens=self._batch_tokens,
            device=self._device,
            progress=progress,
        )
        if role == "document":
            check.finish()

    def _features(self, texts: Sequence[str], indices: Indices, role: Role) -> dict[str, Any]:
        """Return some of the texts as the library itself prepares them for the model, on its device."""
        model = self._models[role]
        some = [readable_part(texts[index], model.max_seq_length) for index in indices.tolist()]
        features = model.preprocess(some, prompt=self._prompts[role] or None, task=role)
        return {
            name: value.to(self._device) if isinstance(value, torch.Tensor) else value
            for name, value in features.items()
        }


Features = dict[str, Any]


class SpartaPooling(torch.nn.Module):  # type: ignore[misc]
    """log(1 + ReLU(max_t E · h_t)) over the input embeddings E, those of special tokens left out.

    T. Zhao and others, "SPARTA", 2021, equations 5 and 6; as beir/retrieval/models/sparta.py of
    https://github.com/beir-cellar/beir computes it for a text by itself (it lets padding take part).
    """

    def __init__(self, transformer: Transformer) -> None:
        super().__init__()
        weights = (
            transformer.model.get_input_embeddings().weight[: len(transformer.tokenizer)].detach().clone()
        )
        weights[transformer.tokenizer.all_special_ids] = 0.0
        self.embeddings = torch.nn.Parameter(weights)

    def forward(self, features: Features) -> Features:
        products = features["token_embeddings"] @ self.embeddings.T
        products = products.masked_fill(features["attention_mask"][..., None] == 0, -torch.inf)
        return {**features, "sentence_embedding": products.amax(1).relu().log1p()}


class TermCounts(SparseStaticEmbedding):  # type: ignore[misc]
    """How often a text has each term, without any model: SPARTA's queries."""

    def forward(self, features: Features) -> Features:
        ids, mask = features["input_ids"], features["attention_mask"]
        counts = torch.zeros(len(ids), self.num_dimensions, device=ids.device)
        return {**features, "sentence_embedding": counts.scatter_add(1, ids, mask.float()) * self.weight}


class LexicalWeights(torch.nn.Module):  # type: ignore[misc]
    """For each term the greatest ReLU(w · h_t + b) of its tokens, without special ones.

    J. Chen and others, "BGE M3-Embedding", 2024; FlagEmbedding/inference/embedder/encoder_only/m3.py of
    https://github.com/FlagOpen/FlagEmbedding.
    """

    def __init__(self, transformer: Transformer, head: Path) -> None:
        super().__init__()
        words = transformer.tokenizer
        self.linear = _linear(head)
        self.terms: int = transformer.config.vocab_size
        unused = (words.cls_token_id, words.eos_token_id, words.pad_token_id, words.unk_token_id)
        self.unused = torch.tensor([number for number in unused if number is not None])

    def forward(self, features: Features) -> Features:
        ids = features["input_ids"]
        weights = self.linear(features["token_embeddings"])[..., 0].relu()
        weights = weights.masked_fill(torch.isin(ids, self.unused.to(ids.device)), 0.0)
        found = torch.zeros(len(ids), self.terms, dtype=weights.dtype, device=ids.device)
        return {**features, "sentence_embedding": found.scatter_reduce(1, ids, weights, "amax")}


def load_sparse_models(resources: Resources) -> dict[Role, SparseEncoder]:
    """Return the sparse model of each side, with the head that its checkpoint has. Raises ModelFailure."""
    if CheckpointDescription.read(resources.model).pooling == SPARTA:
        folder = resources.first_part
        prepare(resources.threads)
        with model_failures():  # a plain encoder for documents, and the words of queries
            transformer = Transformer(str(folder), **library_options(folder))
            words = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
            weight = torch.ones(len(words))
            weight[words.all_special_ids] = 0.0
            modules = [transformer, SpartaPooling(transformer)]
            documents = SparseEncoder(modules=modules, device=resources.device).eval()
            counts = TermCounts(tokenizer=words, weight=weight)
            return {"query": SparseEncoder(modules=[counts], device=resources.device), "document": documents}
    return load_roles(resources, lambda folder: _load_sparse(folder, resources.device))


def load_token_model(folder: Path, device: str) -> MultiVectorEncoder:
    """Return a late-interaction model. Raises ModelFailure.

    bge-m3's head leaves the first token out, and the mean of MaxSim counts.
    """
    head = folder / HEADS[CheckpointKind.MULTI_VECTOR]
    if not head.is_file():
        if not _has_projection(folder):
            raise ModelFailure(
                "missing_projection",
                "the checkpoint has no projection; the library would make up a random one",
            )
        return load_encoder(MultiVectorEncoder, folder, device)
    transformer = load_encoder(SentenceTransformer, folder, device)[0]
    with model_failures():
        linear = _linear(head)
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
    head = folder / HEADS[CheckpointKind.SPARSE_ENCODER]
    if not head.is_file():
        return load_encoder(SparseEncoder, folder, device)
    transformer = load_encoder(SentenceTransformer, folder, device)[0]
    with model_failures():
        return SparseEncoder(modules=[transformer, LexicalWeights(transformer, head)], device=device).eval()


def _linear(head: Path) -> torch.nn.Linear:
    weights = load_file(head)
    rows, columns = weights["weight"].shape
    linear = torch.nn.Linear(columns, rows)
    linear.load_state_dict(weights)
    return linear


#: What a language model may hold at once of a value for each term at each token.
_CPU_BYTES, _CUDA_BYTES = 2**30, 2**33
#: Terms of a document if neither the submission nor the checkpoint limits them.
_USUAL_TERMS = 2000
#: Terms and weights of one text.
_Row = tuple[NDArray[np.int32], Floats]


class SparseTextEncoder(SidedEncoder[torch.Tensor]):
    """A learned sparse model: SPLADE, SPARTA-like, or with a table of weights instead of a model for queries."""

    def __init__(self, resources: Resources, parameters: Mapping[str, Any]) -> None:
        super().__init__(load_sparse_models(resources), parameters, resources.device)
        for model in set(self._models.values()):
            own = model.max_seq_length
            model.max_seq_length = longest_text(model, own, parameters["maximum_length"])
        self._most_terms = parameters["most_terms"]
        self.maximum_length: int = self._models["document"].max_seq_length
        #: "cosine" where the model asks for it: vectors of length one, whose dot product it is; else "dot".
        self.similarity = "cosine" if self._models["query"].similarity_fn_name == "cosine" else "dot"
        #: Terms of the vocabulary, which only an output shows for sure.
        self.dimension = 0
        self.dimension = int(
            self._outputs([" ".join(PROBE)], np.zeros(1, np.intp), "document", OutputCheck()).shape[1]
        )
        if not self.dimension:
            raise ModelFailure("does_not_run", "the model's tokenizer finds no token in any text")
        self._batch_tokens = self._batch_tokens or self._tokens_at_once()

    def encode(self, texts: Sequence[str], role: Role, progress: Progress = ignore) -> SparseRows:
        """Return one row for each text, of its `most_terms` greatest weights. Raises ModelFailure."""
        found: dict[int, _Row] = {}

        def keep(indices: Indices, batch: torch.Tensor) -> None:
            matrix = batch.cpu().float().numpy()
            for index, row in zip(indices.tolist(), matrix, strict=True):
                terms = np.flatnonzero(row).astype(np.int32)
                found[index] = terms, row[terms]

        self._run(texts, role, keep, progress)
        rows = [found[index] for index in range(len(texts))]
        return SparseRows(
            np.cumsum([0, *(len(terms) for terms, _ in rows)], dtype=np.int64),
            np.concatenate([np.empty(0, np.int32), *(terms for terms, _ in rows)]),
            np.concatenate([np.empty(0, np.float32), *(weights for _, weights in rows)]),
        )

    def _tokens_at_once(self) -> int:
        """Return how many tokens fit, each with a float32 and a copy of it for each term."""
        room, most = (_CPU_BYTES, CPU_TOKENS) if self._device == "cpu" else (_CUDA_BYTES, CUDA_TOKENS)
        return min(room // (8 * self.dimension), most)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _outputs(
        self, texts: Sequence[str], indices: Indices, role: Role, check: OutputCheck
    ) -> torch.Tensor:
        """Vectors of some of the texts: texts × terms."""
        features = self._features(texts, indices, role)
        if not features["input_ids"].shape[1]:  # no words, and no special tokens beside them
            return torch.zeros(len(indices), self.dimension)
        keys = input_keys(features)
        model = self._models[role]
        own = {"max_active_dims": model.max_active_dims} if model.max_active_dims else {}
        outputs: torch.Tensor = model(features, task=role, **own)["sentence_embedding"].float()
        most = model.max_active_dims
        if role == "document":
            most = (most or _USUAL_TERMS) if self._most_terms == AUTO else self._most_terms
        if most:
            outputs = select_max_active_dims(outputs, most)
        if self.similarity == "cosine":
            outputs = torch.nn.functional.normalize(outputs, dim=1)
        check.see(keys, outputs)
        return outputs


#: Takes some texts' indices, how many vectors each has, and these vectors, one text's behind the other's.
Keep = Callable[[Indices, Numbers, Floats], None]
_Batch = tuple[torch.Tensor, torch.Tensor]


class TokenEncoder(SidedEncoder[_Batch]):
    """A late-interaction model of sentence-transformers, PyLate or the Stanford code."""

    def __init__(self, resources: Resources, parameters: Mapping[str, Any]) -> None:
        models = load_roles(resources, lambda folder: load_token_model(folder, resources.device))
        super().__init__(models, parameters, resources.device)
        wanted = {"query": 0, "document": parameters["maximum_length"]}  # 0 for the checkpoint's own
        lengths = {}
        for role, model in self._models.items():
            first = model[0]
            own = getattr(first, f"{role}_length", None) or model.max_seq_length
            lengths[role] = longest_text(model, own, wanted[role])
            if getattr(first, "query_expansion", None) is None or role == "document":
                setattr(first, f"{role}_length", lengths[role])
        self.maximum_length = lengths["document"]
        self.mean = self._models["query"].similarity_fn_name == "meanmaxsim"
        self.dimension = 0
        text = " ".join(PROBE)
        self.dimension = int(
            self._outputs([text], np.zeros(1, np.intp), "document", OutputCheck())[0].shape[1]
        )

    def encode(self, texts: Sequence[str], role: Role, keep: Keep, progress: Progress = ignore) -> None:
        """Give `keep` the vectors of all texts, batch by batch, the longest texts first. Raises ModelFailure."""

        def keep_batch(indices: Indices, batch: _Batch) -> None:
            keep(indices, batch[1].cpu().numpy(), batch[0].cpu().float().numpy())

        self._run(texts, role, keep_batch, progress)

    def encode_queries(self, texts: Sequence[str]) -> list[torch.Tensor]:
        """Return the vectors of each query (tokens × dimension, float32), on the device."""
        found: dict[int, torch.Tensor] = {}

        def keep(indices: NDArray[np.intp], counts: Numbers, vectors: Floats) -> None:
            parts = torch.split(torch.from_numpy(vectors).to(self._device), counts.tolist())
            found.update(zip(indices.tolist(), parts, strict=True))

        self.encode(texts, "query", keep)
        return [found[index] for index in range(len(texts))]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _outputs(self, texts: Sequence[str], indices: Indices, role: Role, check: OutputCheck) -> _Batch:
        """Return (vectors of some of the texts, one behind the other; how many each has)."""
        features = self._features(texts, indices, role)
        if not features["input_ids"].shape[1]:  # no words, and no special tokens beside them
            return torch.zeros(0, self.dimension), torch.zeros(len(indices), dtype=torch.int64)
        keys = input_keys(features)
        features = self._models[role](features, task=role)
        vectors, mask = features["token_embeddings"].float(), features["attention_mask"].bool()
        check.see(keys, vectors.masked_fill(~mask.unsqueeze(-1), -1e9).amax(1))
        return vectors[mask], mask.sum(1)


def _has_projection(folder: Path) -> bool:
    """Return whether the files bring what turns the encoder's states into the vectors that are compared.

    That is a Dense module with its weights, or, as the Stanford code saves it, `linear.weight` beside the encoder's.
    """
    modules, weights = folder / "modules.json", folder / "model.safetensors"
    if modules.is_file():
        dense = [one["path"] for one in json.loads(modules.read_bytes()) if one["type"].endswith("Dense")]
        return any((folder / path / "model.safetensors").is_file() for path in dense)
    config = json.loads((folder / "config.json").read_bytes())
    if "HF_ColBERT" not in (config.get("architectures") or ()) or not weights.is_file():
        return False
    with safe_open(weights, "pt") as tensors:
        return "linear.weight" in tensors.keys()  # noqa: SIM118


@torch.inference_mode()  # type: ignore[untyped-decorator]
def late_interaction(queries: Sequence[torch.Tensor], block: Block, mean: bool) -> Floats:
    """MaxSim (queries × documents): the sum, over a query's vectors, of each one's greatest inner product.

    O. Khattab and M. Zaharia, "ColBERT", 2020. With `mean`, the mean in place of the sum. A document without vectors
    gets -inf.
    """
    device = queries[0].device
    vectors = torch.from_numpy(block.vectors).to(device).float()
    return _add_greatest(vectors @ torch.cat(list(queries)).T, queries, block, mean)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def late_interaction_of_each(query: torch.Tensor, block: Block, mean: bool) -> Floats:
    """MaxSim of each document, multiplied alone: what else is in the block does not touch its last bits."""
    vectors = torch.from_numpy(block.vectors).to(query.device).float()
    parts = (part.clone() @ query.T for part in torch.split(vectors, block.counts.tolist()))
    products = torch.cat([query.new_empty(0, len(query)), *parts])
    similarities: Floats = _add_greatest(products, [query], block, mean)[0]
    return similarities


def _add_greatest(
    products: torch.Tensor, queries: Sequence[torch.Tensor], block: Block, mean: bool
) -> Floats:
    device = products.device
    counts = torch.from_numpy(block.counts).to(device)
    greatest = torch.segment_reduce(products, "max", lengths=counts, axis=0, initial=-torch.inf)
    # Some dozen float32 add up in float64 without rounding, so in any order to the same.
    parts = torch.split(greatest.double(), [len(query) for query in queries], dim=1)
    scores = [part.mean(1) if mean else part.sum(1) for part in parts]
    similarities: Floats = torch.stack(scores).float().cpu().numpy()
    return similarities
