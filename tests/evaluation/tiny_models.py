"""Tiny checkpoints with random weights, one of each kind, as folders like those that people upload.

Every function fills a folder that need not exist and returns it. The same seed gives the same bytes. torch and its
friends are imported inside the functions only, so that importing this module costs nothing. Texts in English become
word pieces: whole words for the commonest, letters for all others.
"""

from __future__ import annotations

import json
import os
import string
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedTokenizerFast

HIDDEN, LAYERS, HEADS, MIDDLE, LENGTH = 32, 2, 2, 64, 512
#: Output dimension of `tiny_colbert`'s projection.
PROJECTED = 16
_TEXT = """
the of and a to in is for that with on as by are be this from an or it at which not have can was but if their how
what when where who why into than then these those one two three more most some any all no new old high low over
about between during under after before system query document model search retrieval information index library
cat dog bird sat mat quick brown fox jump lazy red green blue stock market price fell rose bank money trade
heart disease cancer drug trial patient vitamin blood cell protein gene virus health diet food water energy
wing flow pressure layer boundary heat velocity surface shock mach number theory method result test data computer
program language python function class file string list set thread process network memory time year day world
"""
_WORDS = _TEXT.split()
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def vocabulary() -> dict[str, int]:
    """Word pieces by id: special tokens, unused ones, characters at the start of and inside words, words."""
    letters = string.ascii_lowercase + string.digits
    pieces = [*_SPECIAL, "[unused0]", "[unused1]", *string.punctuation, *letters]
    pieces += [f"##{letter}" for letter in letters] + [word for word in _WORDS if len(word) > 1]
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}


def tiny_dense(
    folder: Path,
    seed: int = 0,
    pooling: str = "mean",
    normalize: bool = True,
    prompts: dict[str, str] | None = None,
    similarity: str = "cosine",
) -> Path:
    """Transformer, Pooling ("mean", "cls", "max" …) and, unless told otherwise, Normalize."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    with _seeded(seed):
        transformer = Transformer(str(_encoder(folder)), max_seq_length=LENGTH)
        modules = [transformer, Pooling(HIDDEN, pooling_mode=pooling), *([Normalize()] if normalize else [])]
        model = SentenceTransformer(modules=modules, device="cpu", prompts=prompts, similarity_fn_name=similarity)
        model.save(str(folder))
    return folder


def tiny_modernbert(folder: Path, seed: int = 0) -> Path:
    """A ModernBERT that has 8,192 positions, with mean pooling."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import ModernBertConfig, ModernBertModel

    with _seeded(seed):
        special = {
            "pad_token_id": 0,
            "cls_token_id": 2,
            "sep_token_id": 3,
            "bos_token_id": 2,
            "eos_token_id": 3,
        }
        size = {"hidden_size": HIDDEN, "num_hidden_layers": 4, "num_attention_heads": HEADS}
        config = ModernBertConfig(vocab_size=len(vocabulary()), intermediate_size=MIDDLE, **size, **special)
        ModernBertModel(config).save_pretrained(folder)
        words = tokenizer()
        words.model_max_length = config.max_position_embeddings
        words.save_pretrained(folder)
        modules = [Transformer(str(folder)), Pooling(HIDDEN, pooling_mode="mean")]
        SentenceTransformer(modules=modules, device="cpu", similarity_fn_name="cosine").save(str(folder))
    return _described(folder)


def tiny_dpr(folder: Path, seed: int = 0) -> Path:
    """Two encoders, one for queries and one for documents, as a Router saves them; dot product over CLS."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Router, Transformer

    with _seeded(seed):
        roles = {
            role: [Transformer(str(_encoder(folder / f"{role}_source"))), Pooling(HIDDEN, pooling_mode="cls")]
            for role in ("query", "document")
        }
        router = Router.for_query_document(query_modules=roles["query"], document_modules=roles["document"])
        SentenceTransformer(modules=[router], device="cpu", similarity_fn_name="dot").save(str(folder))
        for role in roles:
            _remove(folder / f"{role}_source")
    return folder


def tiny_static(folder: Path, seed: int = 0) -> Path:
    """Static embeddings: one vector per token, averaged."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding

    with _seeded(seed):
        weights = torch.randn(len(vocabulary()), HIDDEN)
        module = StaticEmbedding(tokenizer()._tokenizer, embedding_weights=weights)
        SentenceTransformer(modules=[module], device="cpu", similarity_fn_name="cosine").save(str(folder))
    return folder


def tiny_splade(folder: Path, seed: int = 0, pooling: str = "max") -> Path:
    """SPLADE: a masked language model and SpladePooling ("max" or "sum")."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.models import SpladePooling

    with _seeded(seed):
        transformer = _masked_transformer(folder)
        modules = [transformer, SpladePooling(pooling_strategy=pooling)]
        SparseEncoder(modules=modules, device="cpu", similarity_fn_name="dot").save(str(folder))
    return folder


def tiny_inference_free(folder: Path, seed: int = 0) -> Path:
    """Learned sparse without a model for queries: a weight per token there, SPLADE for documents."""
    import torch
    from sentence_transformers import SparseEncoder
    from sentence_transformers.models import Router
    from sentence_transformers.sparse_encoder.models import SparseStaticEmbedding, SpladePooling

    with _seeded(seed):
        weights = torch.rand(len(vocabulary()))
        queries = SparseStaticEmbedding(tokenizer=tokenizer(), weight=weights, frozen=False)
        documents = [_masked_transformer(folder / "source"), SpladePooling(pooling_strategy="max")]
        router = Router.for_query_document(query_modules=[queries], document_modules=documents)
        SparseEncoder(modules=[router], device="cpu", similarity_fn_name="dot").save(str(folder))
        _remove(folder / "source")
    return folder


def tiny_colbert(folder: Path, seed: int = 0) -> Path:
    """ColBERT as sentence-transformers saves it: Transformer, projection, mask, Normalize."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from torch.nn import Identity

    with _seeded(seed):
        expansion = {"strategy": "fixed", "attend": False, "length": 16}
        backbone = Transformer(str(_encoder(folder)), document_length=64, query_expansion=expansion)
        projection = Dense(
            HIDDEN,
            PROJECTED,
            bias=False,
            activation_function=Identity(),
            module_input_name="token_embeddings",
        )
        mask = MultiVectorMask(skiplist_words=list(string.punctuation))
        modules = [backbone, projection, mask, Normalize(module_input_name="token_embeddings")]
        prompts = {"query": "[unused0] ", "document": "[unused1] "}
        MultiVectorEncoder(modules=modules, device="cpu", prompts=prompts).save(str(folder))
    return folder


def tiny_pylate(folder: Path, seed: int = 0) -> Path:
    """ColBERT as PyLate 1.x saves it: Transformer and its own Dense, the rest in the top configuration."""
    with _seeded(seed):
        _encoder(folder)
        _save_tensors({"linear.weight": _random(PROJECTED, HIDDEN)}, folder / "1_Dense" / "model.safetensors")
    dense = {"in_features": HIDDEN, "out_features": PROJECTED, "bias": False}
    _write(
        folder / "1_Dense" / "config.json",
        {**dense, "activation_function": "torch.nn.modules.linear.Identity"},
    )
    types = [("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")]
    modules = [{"idx": i, "name": str(i), "path": path, "type": name} for i, (path, name) in enumerate(types)]
    _write(folder / "modules.json", modules)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": 63, "do_lower_case": False})
    settings = {"query_prefix": "[unused0]", "document_prefix": "[unused1]", "query_length": 16}
    settings |= {"document_length": 64, "attend_to_expansion_tokens": False, "model_type": "ColBERT"}
    settings |= {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "MaxSim"}
    _write(folder / "config_sentence_transformers.json", {**settings, "skiplist_words": list(string.punctuation)})
    return folder


def tiny_stanford(folder: Path, seed: int = 0) -> Path:
    """ColBERT as the Stanford code saves it: `linear.weight` beside the encoder's, and `artifact.metadata`."""
    from safetensors.torch import load_file

    with _seeded(seed):
        _encoder(folder)
        weights = load_file(folder / "model.safetensors")
        tensors = {f"bert.{name}": tensor for name, tensor in weights.items()}
        _save_tensors({**tensors, "linear.weight": _random(PROJECTED, HIDDEN)}, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _write(folder / "config.json", {**config, "architectures": ["HF_ColBERT"]})
    metadata = {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_maxlen": 16,
        "doc_maxlen": 64,
    }
    _write(folder / "artifact.metadata", {**metadata, "mask_punctuation": True, "attend_to_mask_tokens": False})
    return folder


def tiny_cross_encoder(folder: Path, seed: int = 0) -> Path:
    """BertForSequenceClassification with one label, as CrossEncoder saves it."""
    from sentence_transformers import CrossEncoder
    from transformers import BertForSequenceClassification

    with _seeded(seed):
        _save(BertForSequenceClassification(_config(num_labels=1)), folder)
        CrossEncoder(str(folder), device="cpu", max_length=LENGTH).save_pretrained(str(folder))
    return folder


def tiny_deepct(folder: Path, seed: int = 0) -> Path:
    """DeepCT: BertForTokenClassification with one label, one weight per token."""
    from transformers import BertForTokenClassification

    with _seeded(seed):
        return _save(BertForTokenClassification(_config(num_labels=1)), folder)


def tiny_t5(folder: Path, seed: int = 0) -> Path:
    """T5ForConditionalGeneration, tied, over a small unigram vocabulary."""
    from transformers import T5Config, T5ForConditionalGeneration

    with _seeded(seed):
        words = unigram_tokenizer()
        size = {"d_model": HIDDEN, "d_ff": MIDDLE, "d_kv": HIDDEN // HEADS}
        layers = {"num_layers": LAYERS, "num_decoder_layers": LAYERS, "num_heads": HEADS}
        ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
        model = T5ForConditionalGeneration(T5Config(vocab_size=len(words), **size, **layers, **ids))
        model.shared.weight.data[[0, 2]] = 0.0  # or padding would be all that it writes
        model.generation_config.max_length = 20
        model.save_pretrained(folder)
        words.save_pretrained(folder)
    return _described(folder)


def tiny_augmentation(folder: Path, seed: int = 0) -> Path:
    """Learned query augmentation: a plain encoder, W (vocabulary × hidden) and u (hidden)."""
    with _seeded(seed):
        _encoder(folder)
        tensors = {"W": _random(len(vocabulary()), HIDDEN), "u": _random(HIDDEN)}
        _save_tensors(tensors, folder / "augmentation.safetensors")
    return folder


def tiny_masked_language_model(folder: Path, seed: int = 0) -> Path:
    """BertForMaskedLM as transformers saves it, without any file of sentence-transformers."""
    from transformers import BertForMaskedLM

    with _seeded(seed):
        return _save(BertForMaskedLM(_config()), folder)


def tokenizer() -> PreTrainedTokenizerFast:
    """A BERT tokenizer over `vocabulary`, in lower case."""
    from transformers import BertTokenizerFast

    return BertTokenizerFast(vocab=vocabulary(), do_lower_case=True, model_max_length=LENGTH)


def unigram_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of T5's kind: unigrams under metaspace, with three sentinels."""
    from transformers import T5TokenizerFast

    letters = string.ascii_letters + string.digits + string.punctuation
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    pieces += [(f"▁{word}", -5.0) for word in dict.fromkeys(_WORDS)] + [(letter, -8.0) for letter in letters]
    return T5TokenizerFast(vocab=pieces, extra_ids=3, model_max_length=LENGTH)


def _config(**more: Any) -> Any:
    """A small BERT. Its weights vary more than usual, so that different texts come out clearly different."""
    from transformers import BertConfig

    size = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    rest = {"intermediate_size": MIDDLE, "max_position_embeddings": LENGTH, "initializer_range": 0.3}
    return BertConfig(vocab_size=len(vocabulary()), **size, **rest, **more)


def _encoder(folder: Path) -> Path:
    from transformers import BertModel

    return _save(BertModel(_config()), folder)


def _masked_transformer(folder: Path) -> Any:
    from sentence_transformers.base.modules import Transformer

    return Transformer(str(tiny_masked_language_model(folder, seed=1)), transformer_task="fill-mask")


def _save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return _described(folder)


def _described(folder: Path) -> Path:
    """With the extras that people leave in: a README and what a training wrote."""
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# A tiny model\n", encoding="utf-8")
    _write(folder / "trainer_state.json", {"epoch": 1.0})
    return folder


def _random(*shape: int) -> Any:
    import torch

    return torch.randn(*shape) * 0.3


def _save_tensors(tensors: dict[str, Any], path: Path) -> None:
    from safetensors.torch import save_file

    path.parent.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Random numbers of their own, so that neither what ran before nor what runs after matters; no network."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
