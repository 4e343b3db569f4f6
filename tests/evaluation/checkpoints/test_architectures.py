"""What is known here of architectures is what the library has, and rebuilt models of each compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evaluation.checkpoints import CheckpointKind, rebuild, validate_folder
from evaluation.checkpoints.architectures import ARCHITECTURES
from tests.evaluation import tiny_models

TEXTS = ["The cat sat on the mat.", "stock market prices fell, Ünïcode 日本 text!", "word " * 700, ""]


@pytest.mark.parametrize("model_type", sorted(set(ARCHITECTURES) - {"t5", "mt5"}))
@pytest.mark.parametrize("head", ["base", "masked", "sequence", "token"])
def test_weights_are_those_of_the_library(model_type: str, head: str) -> None:
    import transformers

    sizes = {size.key: size.default for size in ARCHITECTURES[model_type].sizes}
    small = {
        **dict.fromkeys(("vocab_size",), 40), **dict.fromkeys(("hidden_size", "dim"), 16),
        **dict.fromkeys(("intermediate_size", "hidden_dim"), 24), **dict.fromkeys(("num_hidden_layers", "n_layers"), 2),
        **dict.fromkeys(("num_attention_heads", "n_heads"), 2), "max_position_embeddings": 20, "embedding_size": 8,
    }  # fmt: skip
    sizes |= {key: value for key, value in small.items() if key in sizes}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    config = transformers.AutoConfig.for_model(model_type, **sizes, **ids, num_labels=1)
    auto = {
        "base": transformers.AutoModel, "masked": transformers.AutoModelForMaskedLM,
        "sequence": transformers.AutoModelForSequenceClassification,
        "token": transformers.AutoModelForTokenClassification,
    }[head]  # fmt: skip
    import torch

    with torch.device("meta"):
        model = auto.from_config(config)
    prefix = f"{model.base_model_prefix}." if head != "base" else ""
    theirs = {name.removeprefix(prefix): tuple(value.shape) for name, value in model.state_dict().items()}
    ours = dict(ARCHITECTURES[model_type].weights(sizes, head))  # type: ignore[arg-type]

    assert prefix in ("", ARCHITECTURES[model_type].prefix)
    copies = {name for name in theirs if name.endswith("decoder.bias") and name not in ours}
    poolers = {name for name in theirs if name.startswith("pooler") and head == "base"}
    assert {name: shape for name, shape in theirs.items() if name not in copies | poolers} == ours


@pytest.mark.parametrize("projection", ["relu", "gated-gelu"])
def test_weights_of_t5_are_those_of_the_library(projection: str) -> None:
    import torch
    import transformers

    sizes = {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 2,
             "num_heads": 2, "relative_attention_num_buckets": 32}  # fmt: skip
    with torch.device("meta"):
        config = transformers.T5Config(**sizes, feed_forward_proj=projection)
        model = transformers.T5ForConditionalGeneration(config)
    theirs = {
        name: tuple(value.shape) for name, value in model.state_dict().items() if "embed_tokens" not in name
    }

    ours = ARCHITECTURES["t5"].weights({**sizes, "gated": int(projection.startswith("gated"))}, "writer")
    assert dict(ours) == theirs


@pytest.mark.parametrize("model_type", sorted(set(ARCHITECTURES) - {"bert", "camembert", "t5", "mt5"}))
def test_other_architectures_encode_as_the_senders_do(model_type: str, tmp_path: Path) -> None:
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    from evaluation.engines.neural import loading

    loading.prepare(threads=1)
    size = {
        "vocab_size": len(tiny_models.vocabulary()),
        "max_position_embeddings": 130,
        "initializer_range": 0.3,
    }
    size |= {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    width = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2}
    if model_type != "distilbert":
        width = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **size, **width)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path / "raw")
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tiny_models.tokenizer()._tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", model_max_length=128, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
    words.save_pretrained(tmp_path / "raw")
    modules = [Transformer(str(tmp_path / "raw")), Pooling(32, "mean")]
    theirs = SentenceTransformer(modules=modules, device="cpu")

    rebuild(validate_folder(tmp_path / "raw", CheckpointKind.SENTENCE_ENCODER, "mean"), tmp_path / "rebuilt")

    ours = loading.load_sentence_encoder(tmp_path / "rebuilt" / "model", "cpu")
    np.testing.assert_array_equal(theirs.encode(TEXTS), ours.encode(TEXTS))
