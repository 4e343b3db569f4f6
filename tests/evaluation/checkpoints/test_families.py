"""Small models of every family, as their library saves them, are taken, checked, and encode as the senders' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.rebuilding import rebuild, validate_folder
from evaluation.engines.neural.checking import check_checkpoint
from tests.evaluation import tiny_models

TEXTS = ["The cat sat on the mat.", "stock market prices fell, Ünïcode 日本 text!", "word " * 700, ""]
_WIDTH = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
_DECODER = {**_WIDTH, "num_key_value_heads": 1, "head_dim": 16}
_T5 = {"d_model": 32, "d_ff": 64, "d_kv": 16, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2}
#: Sizes by model type, as their configurations call them.
ENCODERS: dict[str, dict[str, Any]] = {
    "albert": {**_WIDTH, "embedding_size": 16}, "bert": _WIDTH, "camembert": _WIDTH, "deberta": _WIDTH,
    "deberta-v2": {**_WIDTH, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16},
    "distilbert": {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2},
    "electra": {**_WIDTH, "embedding_size": 16},
    "eurobert": {**_WIDTH, "num_key_value_heads": 2, "head_dim": 16}, "gte": _WIDTH,
    "jina_embeddings_v3": _WIDTH, "longformer": {**_WIDTH, "attention_window": [16, 16]},
    "modernbert": {**_WIDTH, "global_attn_every_n_layers": 2, "local_attention": 16}, "mpnet": _WIDTH,
    "nomic_bert": {**_WIDTH, "head_dim": 16}, "roberta": _WIDTH, "xlm-roberta": _WIDTH,
    "t5": _T5, "mt5": _T5, "umt5": _T5,
}  # fmt: skip
DECODERS: dict[str, dict[str, Any]] = {
    "gemma": _DECODER, "gemma2": _DECODER,
    "gemma3_text": {**_DECODER, "use_bidirectional_attention": True, "sliding_window": 16},
    "lfm2": {**_DECODER, "layer_types": ["conv", "full_attention"]}, "llama": _DECODER,
    "mistral": {**_DECODER, "sliding_window": 64}, "olmo2": _DECODER, "phi3": _DECODER,
    "qwen2": {**_DECODER, "is_causal": False}, "qwen3": _DECODER,
}  # fmt: skip


def save(model_type: str, sizes: dict[str, Any], folder: Path, auto: str = "AutoModel", **more: Any) -> Path:
    """A small model of this type with a tokenizer of words, as transformers saves both."""
    import torch
    import transformers

    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    size = {
        "vocab_size": len(tiny_models.vocabulary()),
        "max_position_embeddings": 130,
        "initializer_range": 0.3,
    }
    size |= {"initializer_factor": 3.0} if "t5" in model_type else {}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **{**size, **special, **sizes, **more})
    getattr(transformers, auto).from_config(config).save_pretrained(folder)
    side = "left" if model_type in DECODERS else "right"
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tiny_models.tokenizer()._tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", model_max_length=128, padding_side=side,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)  # fmt: skip
    return folder


@pytest.mark.parametrize("model_type", [*ENCODERS, *DECODERS])
def test_a_family_encodes_as_its_sender_does(model_type: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    from evaluation.engines.neural import loading

    loading.prepare(threads=1)
    folder = save(model_type, {**ENCODERS, **DECODERS}[model_type], tmp_path / "raw")
    mode = "lasttoken" if model_type in DECODERS else "mean"
    modules = [Transformer(str(folder), model_kwargs=loading.safe_model_options(folder)), Pooling(32, mode)]
    theirs = SentenceTransformer(modules=modules, device="cpu")

    validation = validate_folder(folder, CheckpointKind.SENTENCE_ENCODER, mode)
    assert validation.report.problems == ()
    described = rebuild(validation, tmp_path / "rebuilt")
    assert check_checkpoint(tmp_path / "rebuilt").errors == ()

    assert (described.dimension, described.pooling) == (32, mode)
    ours = loading.load_encoder(SentenceTransformer, tmp_path / "rebuilt" / "model", "cpu")
    np.testing.assert_array_equal(theirs.encode(TEXTS), ours.encode(TEXTS))


@pytest.mark.parametrize(
    ("model_type", "labels"),
    [
        ("deberta-v2", 1),
        ("gte", 1),
        ("llama", 1),
        ("mistral", 2),
        ("modernbert", 1),
        ("qwen3", 2),
        ("xlm-roberta", 2),
    ],
)
def test_a_cross_encoder_scores_as_its_sender_does(model_type: str, labels: int, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    from evaluation.engines.neural import loading

    loading.prepare(threads=1)
    sizes = {**ENCODERS, **DECODERS}[model_type]
    auto = "AutoModelForSequenceClassification"
    folder = save(model_type, sizes, tmp_path / "raw", auto, num_labels=labels)

    validation = validate_folder(folder)
    assert validation.report.problems == ()
    described = rebuild(validation, tmp_path / "rebuilt")
    assert check_checkpoint(tmp_path / "rebuilt").problems == ()

    assert described.kind is CheckpointKind.CROSS_ENCODER
    pairs = [(TEXTS[0], other) for other in TEXTS]
    found = [
        CrossEncoder(str(each), device="cpu", model_kwargs=loading.safe_model_options(each)).predict(pairs)
        for each in (folder, tmp_path / "rebuilt" / "model")
    ]
    np.testing.assert_array_equal(*found)


_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64}  # fmt: skip
#: Keys in config.json of these families, as saved before transformers 5.
OLDER = {
    "gemma3_text": {"rope_scaling": None, "rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0},
    "llama": {"rope_scaling": _LLAMA3, "rope_theta": 500_000.0},
    "mistral": {"rope_theta": 10_000.0, "sliding_window": 64},
    "phi3": {"rope_scaling": None, "rope_theta": 10_000.0, "sliding_window": 64},
    "qwen2": {"rope_scaling": None, "rope_theta": 1_000_000.0, "use_sliding_window": False},
    "qwen3": {"rope_scaling": None, "rope_theta": 1_000_000, "sliding_window": None},
}


@pytest.mark.parametrize("model_type", OLDER)
def test_a_decoder_saved_before_transformers_5_encodes_as_its_sender_does(model_type: str, tmp_path: Path) -> None:
    import torch
    import transformers

    folder = save(model_type, DECODERS[model_type], tmp_path / "raw")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    newer = ("rope_parameters", "layer_types", "dtype", "transformers_version")
    older = {key: value for key, value in config.items() if key not in newer} | OLDER[model_type]
    (folder / "config.json").write_text(json.dumps({**older, "torch_dtype": "float32"}), encoding="utf-8")

    validation = validate_folder(folder, CheckpointKind.SENTENCE_ENCODER, "lasttoken")
    assert validation.report.errors == ()
    rebuild(validation, tmp_path / "rebuilt")
    assert check_checkpoint(tmp_path / "rebuilt").errors == ()

    tokens = torch.arange(4, 40)[None]
    theirs, ours = (
        transformers.AutoModel.from_pretrained(each).eval()(tokens).last_hidden_state.detach()
        for each in (folder, tmp_path / "rebuilt" / "model")
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("classes", [("DPRQuestionEncoder", "DPRContextEncoder"), ("BertModel", "BertModel")])
def test_two_plain_folders_are_a_dense_model(classes: tuple[str, str], tmp_path: Path) -> None:
    import transformers

    config = transformers.DPRConfig if "DPR" in classes[0] else transformers.BertConfig
    for name, kind in zip(("question_encoder", "ctx_encoder"), classes, strict=True):
        folder = save("bert", ENCODERS["bert"], tmp_path / "raw" / name)
        (folder / "model.safetensors").unlink()
        sizes = {**_WIDTH, "vocab_size": len(tiny_models.vocabulary()), "max_position_embeddings": 130}
        getattr(transformers, kind)(config(**sizes)).save_pretrained(folder)

    for kinds in ((), (CheckpointKind.SENTENCE_ENCODER,)):
        validation = validate_folder(tmp_path / "raw", kinds, "cls")
        assert validation.report.errors == ()
    described = rebuild(validation, tmp_path / "rebuilt")

    assert (described.kind, described.pooling) == (CheckpointKind.SENTENCE_ENCODER, "cls")
    assert set(described.parts) == {"query", "document"}
    assert check_checkpoint(tmp_path / "rebuilt").errors == ()


def test_a_tokenizer_of_no_family_gives_a_cross_encoder_no_token_types(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    from evaluation.engines.neural import loading

    loading.prepare(threads=1)
    folder = save("bert", ENCODERS["bert"], tmp_path / "raw", "AutoModelForSequenceClassification", num_labels=1)
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert settings["tokenizer_class"] == "TokenizersBackend"
    del settings["model_input_names"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")

    rebuild(validate_folder(folder), tmp_path / "rebuilt")

    pairs = [(TEXTS[0], other) for other in TEXTS]
    theirs, ours = (
        CrossEncoder(str(each), device="cpu", model_kwargs=loading.safe_model_options(each)).predict(pairs)
        for each in (folder, tmp_path / "rebuilt" / "model")
    )
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("model_type", ["bart", "mbart", "pegasus", "t5", "umt5"])
def test_a_writer_is_taken(model_type: str, tmp_path: Path) -> None:
    ends = {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
    }
    sizes = ENCODERS.get(model_type, {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, **ends})
    folder = save(model_type, sizes, tmp_path / "raw", "AutoModelForSeq2SeqLM", decoder_start_token_id=3)

    validation = validate_folder(folder)
    assert validation.report.problems == ()

    assert rebuild(validation, tmp_path / "rebuilt").kind is CheckpointKind.SEQ2SEQ
    assert check_checkpoint(tmp_path / "rebuilt").problems == ()


@pytest.mark.parametrize(
    "model_type", ["bert", "distilbert", "modernbert", "gte", "xlm-roberta", "deberta-v2", "electra"]
)
def test_a_masked_language_model_is_taken_for_splade(model_type: str, tmp_path: Path) -> None:
    folder = save(model_type, ENCODERS[model_type], tmp_path / "raw", "AutoModelForMaskedLM")

    validation = validate_folder(folder, CheckpointKind.SPARSE_ENCODER, "max")

    assert validation.report.problems == ()
    described = rebuild(validation, tmp_path / "rebuilt")
    assert described.dimension == len(tiny_models.vocabulary())
    assert check_checkpoint(tmp_path / "rebuilt").problems == ()


@pytest.mark.parametrize(
    "change", ["hidden_size", "num_hidden_layers", "num_key_value_heads", "vocab_size", "intermediate_size"]
)
def test_a_decoder_whose_configuration_does_not_fit_is_refused(change: str, tmp_path: Path) -> None:
    folder = save("qwen3", DECODERS["qwen3"], tmp_path / "raw")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    values = {
        **config,
        change: config[change] * 2 if change != "vocab_size" else config[change] - 1,
        "layer_types": None,
    }
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")

    validation = validate_folder(folder, CheckpointKind.SENTENCE_ENCODER, "lasttoken")
    report = validation.report
    if validation.valid:
        rebuild(validation, tmp_path / "rebuilt")
        report = check_checkpoint(tmp_path / "rebuilt")

    assert {problem.code for problem in report.errors} & {
        "weights_shape",
        "missing_weights",
        "tokenizer_vocabulary",
    }


def test_a_type_that_was_code_is_read_as_the_library_has_it(tmp_path: Path) -> None:
    """https://huggingface.co/Alibaba-NLP/gte-multilingual-base states NTK scaling of a base of 20,000 by 8."""
    import torch
    import transformers

    folder = save("gte", ENCODERS["gte"], tmp_path / "raw")
    _change(
        folder,
        model_type="new",
        rope_parameters=None,
        rope_theta=20_000,
        rope_scaling={"type": "ntk", "factor": 8.0},
        auto_map={"AutoModel": "modeling.NewModel"},
        logn_attention_scale=False,
    )

    described = rebuild(validate_folder(folder, CheckpointKind.SENTENCE_ENCODER, "cls"), tmp_path / "rebuilt")

    assert described.model_type == "gte"
    assert check_checkpoint(tmp_path / "rebuilt").problems == ()
    model = transformers.AutoModel.from_pretrained(tmp_path / "rebuilt" / "model")
    (found,) = {tuple(each.tolist()) for name, each in model.named_buffers() if name.endswith("inv_freq")}
    wanted = 160_000 ** (-torch.arange(0, 16, 2) / 16) / 8 ** (2 / 16)
    torch.testing.assert_close(torch.tensor(found), wanted)
    _change(folder, logn_attention_scale=True)
    assert not validate_folder(folder, CheckpointKind.SENTENCE_ENCODER, "cls").valid
    _change(folder, logn_attention_scale=False, rope_scaling="linear")
    problems = validate_folder(folder, CheckpointKind.SENTENCE_ENCODER, "cls").report.errors
    assert any("rope_scaling" in problem.message for problem in problems), problems


def test_keys_that_code_called_otherwise_are_renamed(tmp_path: Path) -> None:
    """https://huggingface.co/nomic-ai/nomic-embed-text-v1.5 has these keys."""
    folder = save("nomic_bert", ENCODERS["nomic_bert"], tmp_path / "raw")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    other = {"n_embd": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers",
             "n_inner": "intermediate_size", "layer_norm_epsilon": "layer_norm_eps"}  # fmt: skip
    renamed = {key: config[name] for key, name in other.items()}
    _change(
        folder,
        **dict.fromkeys(other.values()),
        **renamed,
        rope_parameters=None,
        rotary_emb_base=500,
        prenorm=False,
    )

    rebuild(validate_folder(folder, CheckpointKind.SENTENCE_ENCODER, "mean"), tmp_path / "rebuilt")

    assert check_checkpoint(tmp_path / "rebuilt").problems == ()
    written = json.loads((tmp_path / "rebuilt" / "model" / "config.json").read_text(encoding="utf-8"))
    assert (written["hidden_size"], written["num_hidden_layers"], written["rope_theta"]) == (32, 2, 500)


def _change(folder: Path, **values: Any) -> None:
    """Other values in config.json, or none."""
    path = folder / "config.json"
    found = {**json.loads(path.read_text(encoding="utf-8")), **values}
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not None}), encoding="utf-8")
