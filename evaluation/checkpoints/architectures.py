"""The model types that are taken: the sizes in their configuration, and every weight that follows from these.

The names and shapes are those of transformers 5.23; `tests/evaluation/checkpoints/test_architectures.py` compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Shape = tuple[int, ...]
Weights = Iterator[tuple[str, Shape]]
#: What stands on top of the encoder: nothing, a masked language model, one label per text or token, a writer.
Head = Literal["base", "masked", "sequence", "token", "writer"]


@dataclass(frozen=True, slots=True)
class Size:
    """A number in config.json that shapes weights or memory: its key, the library's default, and the most taken."""

    key: str
    default: int
    most: int


VOCABULARY = Size("vocab_size", 30522, 512_000)
HIDDEN = Size("hidden_size", 768, 4096)
LAYERS = Size("num_hidden_layers", 12, 64)
HEADS = Size("num_attention_heads", 12, 64)
MIDDLE = Size("intermediate_size", 3072, 16384)
POSITIONS = Size("max_position_embeddings", 512, 32_768)
TYPES = Size("type_vocab_size", 2, 16)
_BERT_SIZES = (VOCABULARY, HIDDEN, LAYERS, HEADS, MIDDLE, POSITIONS, TYPES)

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model type.

    `weights` gives the names and shapes of a head's weights; the base model's stand under `prefix` where there is a
    head. `tied` is what may be missing because it is the embedding; `optional` may be missing as a base model.
    `positions_before` is how many positions are never used by tokens.
    """

    sizes: tuple[Size, ...]
    prefix: str
    weights: Callable[[Sizes, Head], Weights]
    embedding: str
    heads: frozenset[str]
    tied: frozenset[str] = frozenset()
    positions_before: int = 0
    hidden: str = "hidden_size"
    token_types: bool = False


def _linear(name: str, rows: int, columns: int) -> Weights:
    yield f"{name}.weight", (rows, columns)
    yield f"{name}.bias", (rows,)


def _norm(name: str, size: int) -> Weights:
    yield f"{name}.weight", (size,)
    yield f"{name}.bias", (size,)


def _embeddings(sizes: Sizes, width: int, types: bool = True) -> Weights:
    yield "embeddings.word_embeddings.weight", (sizes["vocab_size"], width)
    yield "embeddings.position_embeddings.weight", (sizes["max_position_embeddings"], width)
    if types:
        yield "embeddings.token_type_embeddings.weight", (sizes["type_vocab_size"], width)
    yield from _norm("embeddings.LayerNorm", width)


def _bert_layers(sizes: Sizes, names: tuple[str, str, str, str, str]) -> Weights:
    """The layers of BERT and those like it, which call the parts of attention by other `names`."""
    hidden, middle = sizes["hidden_size"], sizes["intermediate_size"]
    *projections, norm = names
    for number in range(sizes["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        for projection in projections:
            yield from _linear(f"{layer}.attention.{projection}", hidden, hidden)
        yield from _norm(f"{layer}.attention.{norm}", hidden)
        yield from _linear(f"{layer}.intermediate.dense", middle, hidden)
        yield from _linear(f"{layer}.output.dense", hidden, middle)
        yield from _norm(f"{layer}.output.LayerNorm", hidden)


_BERT_NAMES = ("self.query", "self.key", "self.value", "output.dense", "output.LayerNorm")


def _classifier(sizes: Sizes, head: Head, hidden: int, dense: str = "") -> Weights:
    """One label; with `dense`, a layer before it that keeps the size."""
    if head in ("sequence", "token"):
        nested = dense == "classifier.dense" and head == "sequence"
        if dense and head == "sequence":
            yield from _linear(dense, hidden, hidden)
        yield from _linear("classifier.out_proj" if nested else "classifier", 1, hidden)


def _bert_masked(vocabulary: int, hidden: int) -> Weights:
    yield "cls.predictions.bias", (vocabulary,)
    yield from _linear("cls.predictions.transform.dense", hidden, hidden)
    yield from _norm("cls.predictions.transform.LayerNorm", hidden)
    yield "cls.predictions.decoder.weight", (vocabulary, hidden)


def _bert(sizes: Sizes, head: Head) -> Weights:
    hidden = sizes["hidden_size"]
    yield from _embeddings(sizes, hidden)
    yield from _bert_layers(sizes, _BERT_NAMES)
    if head == "sequence":
        yield from _linear("pooler.dense", hidden, hidden)
    if head == "masked":
        yield from _bert_masked(sizes["vocab_size"], hidden)
    yield from _classifier(sizes, head, hidden)


def _roberta(sizes: Sizes, head: Head) -> Weights:
    hidden = sizes["hidden_size"]
    yield from _embeddings(sizes, hidden)
    yield from _bert_layers(sizes, _BERT_NAMES)
    yield from _roberta_head(sizes, head, hidden)


def _roberta_head(sizes: Sizes, head: Head, hidden: int) -> Weights:
    if head == "masked":
        yield "lm_head.bias", (sizes["vocab_size"],)
        yield from _linear("lm_head.dense", hidden, hidden)
        yield from _norm("lm_head.layer_norm", hidden)
        yield "lm_head.decoder.weight", (sizes["vocab_size"], hidden)
    yield from _classifier(sizes, head, hidden, "classifier.dense")


def _mpnet(sizes: Sizes, head: Head) -> Weights:
    hidden = sizes["hidden_size"]
    yield from _embeddings(sizes, hidden, types=False)
    yield from _bert_layers(sizes, ("attn.q", "attn.k", "attn.v", "attn.o", "LayerNorm"))
    yield (
        "encoder.relative_attention_bias.weight",
        (
            sizes["relative_attention_num_buckets"],
            sizes["num_attention_heads"],
        ),
    )
    yield from _roberta_head(sizes, head, hidden)


def _distilbert(sizes: Sizes, head: Head) -> Weights:
    hidden, middle, vocabulary = sizes["dim"], sizes["hidden_dim"], sizes["vocab_size"]
    yield from _embeddings(sizes, hidden, types=False)
    for number in range(sizes["n_layers"]):
        layer = f"transformer.layer.{number}"
        for name in ("q_lin", "k_lin", "v_lin", "out_lin"):
            yield from _linear(f"{layer}.attention.{name}", hidden, hidden)
        yield from _norm(f"{layer}.sa_layer_norm", hidden)
        yield from _linear(f"{layer}.ffn.lin1", middle, hidden)
        yield from _linear(f"{layer}.ffn.lin2", hidden, middle)
        yield from _norm(f"{layer}.output_layer_norm", hidden)
    if head == "masked":
        yield from _linear("vocab_transform", hidden, hidden)
        yield from _norm("vocab_layer_norm", hidden)
        yield from _linear("vocab_projector", vocabulary, hidden)
    yield from _classifier(sizes, head, hidden, "pre_classifier")


def _electra(sizes: Sizes, head: Head) -> Weights:
    hidden, width = sizes["hidden_size"], sizes["embedding_size"]
    yield from _embeddings(sizes, width)
    if width != hidden:
        yield from _linear("embeddings_project", hidden, width)
    yield from _bert_layers(sizes, _BERT_NAMES)
    if head == "masked":
        yield from _norm("generator_predictions.LayerNorm", width)
        yield from _linear("generator_predictions.dense", width, hidden)
        yield from _linear("generator_lm_head", sizes["vocab_size"], width)
    yield from _classifier(sizes, head, hidden, "classifier.dense")


def _albert(sizes: Sizes, head: Head) -> Weights:
    hidden, width, vocabulary = sizes["hidden_size"], sizes["embedding_size"], sizes["vocab_size"]
    yield from _embeddings(sizes, width)
    yield from _linear("encoder.embedding_hidden_mapping_in", hidden, width)
    for group in range(sizes["num_hidden_groups"]):
        for inner in range(sizes["inner_group_num"]):
            layer = f"encoder.albert_layer_groups.{group}.albert_layers.{inner}"
            yield from _norm(f"{layer}.full_layer_layer_norm", hidden)
            for name in ("query", "key", "value", "dense"):
                yield from _linear(f"{layer}.attention.{name}", hidden, hidden)
            yield from _norm(f"{layer}.attention.LayerNorm", hidden)
            yield from _linear(f"{layer}.ffn", sizes["intermediate_size"], hidden)
            yield from _linear(f"{layer}.ffn_output", hidden, sizes["intermediate_size"])
    if head == "sequence":
        yield from _linear("pooler", hidden, hidden)
    if head == "masked":
        yield "predictions.bias", (vocabulary,)
        yield from _norm("predictions.LayerNorm", width)
        yield from _linear("predictions.dense", width, hidden)
        yield "predictions.decoder.weight", (vocabulary, width)
    yield from _classifier(sizes, head, hidden)


def _modernbert(sizes: Sizes, head: Head) -> Weights:
    """Without any bias in the encoder, and without a norm before the first layer's attention: it has just been."""
    hidden, middle, vocabulary = sizes["hidden_size"], sizes["intermediate_size"], sizes["vocab_size"]
    yield "embeddings.tok_embeddings.weight", (vocabulary, hidden)
    yield "embeddings.norm.weight", (hidden,)
    for number in range(sizes["num_hidden_layers"]):
        layer = f"layers.{number}"
        if number:
            yield f"{layer}.attn_norm.weight", (hidden,)
        yield f"{layer}.attn.Wqkv.weight", (3 * hidden, hidden)
        yield f"{layer}.attn.Wo.weight", (hidden, hidden)
        yield f"{layer}.mlp_norm.weight", (hidden,)
        yield f"{layer}.mlp.Wi.weight", (2 * middle, hidden)
        yield f"{layer}.mlp.Wo.weight", (hidden, middle)
    yield "final_norm.weight", (hidden,)
    if head != "base":
        yield "head.dense.weight", (hidden, hidden)
        yield "head.norm.weight", (hidden,)
    if head == "masked":
        yield from _linear("decoder", vocabulary, hidden)
    yield from _classifier(sizes, head, hidden)


def _t5_stack(sizes: Sizes, stack: str, layers: int, gated: bool) -> Weights:
    hidden, middle = sizes["d_model"], sizes["d_ff"]
    inner = sizes["num_heads"] * sizes["d_kv"]
    attentions = ["SelfAttention", *(["EncDecAttention"] if stack == "decoder" else [])]
    for number in range(layers):
        block = f"{stack}.block.{number}.layer"
        for place, attention in enumerate(attentions):
            for name in "qkv":
                yield f"{block}.{place}.{attention}.{name}.weight", (inner, hidden)
            yield f"{block}.{place}.{attention}.o.weight", (hidden, inner)
            yield f"{block}.{place}.layer_norm.weight", (hidden,)
        if number == 0:
            buckets = sizes["relative_attention_num_buckets"]
            yield f"{block}.0.SelfAttention.relative_attention_bias.weight", (buckets, sizes["num_heads"])
        last = f"{block}.{len(attentions)}"
        for name in ("wi_0", "wi_1") if gated else ("wi",):
            yield f"{last}.DenseReluDense.{name}.weight", (middle, hidden)
        yield f"{last}.DenseReluDense.wo.weight", (hidden, middle)
        yield f"{last}.layer_norm.weight", (hidden,)
    yield f"{stack}.final_layer_norm.weight", (hidden,)


def _t5(sizes: Sizes, head: Head) -> Weights:
    gated = bool(sizes.get("gated"))
    yield "shared.weight", (sizes["vocab_size"], sizes["d_model"])
    yield from _t5_stack(sizes, "encoder", sizes["num_layers"], gated)
    if head == "writer":
        yield from _t5_stack(sizes, "decoder", sizes["num_decoder_layers"], gated)
        yield "lm_head.weight", (sizes["vocab_size"], sizes["d_model"])


_ENCODER_HEADS = frozenset({"base", "masked", "sequence", "token"})
_WORDS = "embeddings.word_embeddings.weight"
_BUCKETS = Size("relative_attention_num_buckets", 32, 512)
_WIDTH = Size("embedding_size", 128, 4096)
_ROBERTA_SIZES = (Size("vocab_size", 50265, 512_000), *_BERT_SIZES[1:])
_ROBERTA = Architecture(
    _ROBERTA_SIZES, "roberta.", _roberta, _WORDS, _ENCODER_HEADS, frozenset({"lm_head.decoder.weight"}), 2
)
_T5 = Architecture(
    (
        Size("vocab_size", 32128, 512_000), Size("d_model", 512, 4096), Size("d_kv", 64, 256),
        Size("d_ff", 2048, 16384), Size("num_layers", 6, 64), Size("num_decoder_layers", 6, 64),
        Size("num_heads", 8, 64), _BUCKETS,
    ),
    "", _t5, "shared.weight", frozenset({"base", "writer"}), frozenset({"lm_head.weight"}), hidden="d_model",
)  # fmt: skip

ARCHITECTURES: Mapping[str, Architecture] = {
    "bert": Architecture(
        _BERT_SIZES, "bert.", _bert, _WORDS, _ENCODER_HEADS,
        frozenset({"cls.predictions.decoder.weight"}), token_types=True,
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "mpnet": Architecture(
        (VOCABULARY, HIDDEN, LAYERS, HEADS, MIDDLE, POSITIONS, _BUCKETS), "mpnet.", _mpnet, _WORDS, _ENCODER_HEADS,
        frozenset({"lm_head.decoder.weight"}), 2,
    ),
    "distilbert": Architecture(
        (
            VOCABULARY, Size("dim", 768, 4096), Size("n_layers", 6, 64), Size("n_heads", 12, 64),
            Size("hidden_dim", 3072, 16384), POSITIONS,
        ),
        "distilbert.", _distilbert, _WORDS, _ENCODER_HEADS, frozenset({"vocab_projector.weight"}), hidden="dim",
    ),
    "electra": Architecture(
        (VOCABULARY, _WIDTH, Size("hidden_size", 256, 4096), LAYERS, Size("num_attention_heads", 4, 64),
         Size("intermediate_size", 1024, 16384), POSITIONS, TYPES),
        "electra.", _electra, _WORDS, _ENCODER_HEADS, frozenset({"generator_lm_head.weight"}), token_types=True,
    ),
    "albert": Architecture(
        (Size("vocab_size", 30000, 512_000), _WIDTH, Size("hidden_size", 4096, 4096), LAYERS,
         Size("num_attention_heads", 64, 64), Size("intermediate_size", 16384, 16384), POSITIONS, TYPES,
         Size("num_hidden_groups", 1, 16), Size("inner_group_num", 1, 16)),
        "albert.", _albert, _WORDS, _ENCODER_HEADS, frozenset({"predictions.decoder.weight"}), token_types=True,
    ),
    "modernbert": Architecture(
        (Size("vocab_size", 50368, 512_000), HIDDEN, Size("num_hidden_layers", 22, 64), HEADS,
         Size("intermediate_size", 1152, 16384), Size("max_position_embeddings", 8192, 32_768)),
        "model.", _modernbert, "embeddings.tok_embeddings.weight", _ENCODER_HEADS,
        frozenset({"decoder.weight"}),
    ),
    "t5": _T5,
    "mt5": _T5,
}  # fmt: skip
