"""Settings in files of sentence-transformers: each is honored as the library's own encode does, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.checkpoints.rebuilding import rebuild, validate_folder
from evaluation.engines.base import InvalidParameter
from tests.evaluation import tiny_models
from tests.evaluation.neural import created

QUERIES = ["heart disease", "the price of Stock!", "quick brown fox jumped over the lazy dog"]
DOCUMENTS = [*QUERIES, "blood pressure of patients, and diet. " * 8, "", "wing flow: boundary layer"]
TOP, SETTINGS, POOLING = (
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
)
Changes = dict[str, dict[str, Any]]
LEGACY = dict.fromkeys(("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "lasttoken"), False)


def legacy_pooling(*modes: str) -> dict[str, Any]:
    flags = {f"pooling_mode_{mode}": value for mode, value in {**LEGACY, **dict.fromkeys(modes, True)}.items()}
    return {**flags, "pooling_mode": None, "embedding_dimension": None, "word_embedding_dimension": 32}


def changed(folder: Path, changes: Changes) -> Path:
    """The folder with other values in its JSON files; null removes a key where it stands for nothing."""
    for name, values in changes.items():
        path = folder / name
        own = json.loads(path.read_text()) if path.exists() else {}
        kept = {key: value for key, value in {**own, **values}.items() if value is not ...}
        if name == POOLING:
            kept = {key: value for key, value in kept.items() if value is not None}
        path.write_text(json.dumps(kept))
    return folder


def both(make: Callable[..., Path], folder: Path, changes: Changes, **options: Any) -> tuple[Path, Path]:
    """A checkpoint with these changes as it is sent, and rebuilt."""
    from evaluation.engines.neural import loading

    loading.prepare(threads=1)
    raw = changed(make(folder / "raw", **options), changes)
    validation = validate_folder(raw)
    assert validation.report.errors == ()
    rebuild(validation, folder / "rebuilt")
    return raw, folder / "rebuilt"


def encoded(engine: Any, texts: list[str], side: str) -> Any:
    encoder = {"query": engine._queries, "document": engine._documents}[side]
    vectors = np.zeros((len(texts), encoder.dimension), np.float32)
    encoder.encode(texts, engine._prompts[side], vectors)
    return vectors


DENSE: dict[str, Changes] = {
    "truncate_dim": {TOP: {"truncate_dim": 16}},
    "truncate_dim over the dimension": {TOP: {"truncate_dim": 4000}},
    "truncate_dim of nothing": {TOP: {"truncate_dim": None}},
    "prompts": {TOP: {"prompts": {"query": "query: ", "document": "data: "}}},
    "no prompt for documents": {
        TOP: {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"}
    },
    "prompts left out of the mean": {
        TOP: {"prompts": {"query": "heart disease: ", "document": "data: "}}, POOLING: {"include_prompt": False}
    },
    "max_seq_length": {SETTINGS: {"max_seq_length": 6}},
    "file of an earlier release": {"sentence_roberta_config.json": {"max_seq_length": 6, "do_lower_case": False}},
    "plain modality": {
        SETTINGS: {
            "transformer_task": "feature-extraction", "module_output_name": "token_embeddings",
            "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        }
    },
    **{
        f"pooling {mode}": {POOLING: {"pooling_mode": mode}}
        for mode in ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
    },
    "poolings": {POOLING: {"pooling_mode": ["mean", "cls"]}},
    "older poolings": {POOLING: legacy_pooling("mean_tokens", "max_tokens")},
    "older pooling": {POOLING: legacy_pooling("cls_token")},
    "pooling of no stated width": {POOLING: {"embedding_dimension": None, "include_prompt": False}},
}  # fmt: skip


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("normalize", [True, False])
def test_dense_settings_give_what_the_library_encodes(name: str, normalize: bool, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    options: dict[str, Any] = {"normalize": normalize, "similarity": "dot"}
    make = tiny_models.tiny_dense
    if name == "file of an earlier release":

        def make(folder: Path, **options: Any) -> Path:
            tiny_models.tiny_dense(folder, **options)
            (folder / SETTINGS).unlink()
            return folder

    raw, rebuilt = both(make, tmp_path, DENSE[name], **options)
    if name == "pooling of no stated width":  # the library wants it
        changed(raw, {POOLING: {"embedding_dimension": tiny_models.HIDDEN}})
    theirs = SentenceTransformer(str(raw), device="cpu")
    engine = created("dense", rebuilt)

    for side, texts in (("query", QUERIES), ("document", DOCUMENTS)):
        expected = getattr(theirs, f"encode_{side}")(texts)
        np.testing.assert_allclose(encoded(engine, texts, side), expected, atol=1e-5)


@pytest.mark.parametrize("module", ["Dense", "Dense of tokens", "Dense beside its input", "LayerNorm", "Dropout", "CNN",
    "WeightedLayerPooling", "Normalize first"])  # fmt: skip
def test_modules_give_what_the_library_encodes(module: str, tmp_path: Path) -> None:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer import modules

    def make(folder: Path) -> Path:
        torch.manual_seed(1)
        width = tiny_models.HIDDEN
        options = {"output_hidden_states": True} if module == "WeightedLayerPooling" else {}
        first = Transformer(str(tiny_models.tiny_masked_language_model(folder)), config_kwargs=options)
        pooling = modules.Pooling(48 if module == "CNN" else width, "mean")
        added: list[Any] = {
            "Dense": lambda: [pooling, Dense(width, 16, bias=False, activation_function=torch.nn.GELU())],
            "Dense of tokens": lambda: [Dense(width, width, module_input_name="token_embeddings"), pooling],
            "Dense beside its input": lambda: [pooling, Dense(width, 16, use_residual=True)],
            "LayerNorm": lambda: [pooling, modules.LayerNorm(width)],
            "Dropout": lambda: [pooling, modules.Dropout(0.5)],
            "CNN": lambda: [modules.CNN(width, 16, [1, 3, 5]), pooling],
            "WeightedLayerPooling": lambda: [modules.WeightedLayerPooling(width, 2, layer_start=1), pooling],
            "Normalize first": lambda: [pooling, Normalize(), Dense(width, 16)],
        }[module]()
        SentenceTransformer(modules=[first, *added], device="cpu", similarity_fn_name="dot").save(str(folder))
        return folder

    raw, rebuilt = both(make, tmp_path, {TOP: {"truncate_dim": 12}})

    expected = SentenceTransformer(str(raw), device="cpu").encode(DOCUMENTS)
    np.testing.assert_allclose(encoded(created("dense", rebuilt), DOCUMENTS, "document"), expected, atol=1e-5)


def test_dimensions_are_the_checkpoints_unless_a_submission_says(tmp_path: Path) -> None:
    raw, rebuilt = both(tiny_models.tiny_dense, tmp_path, {TOP: {"truncate_dim": 16}})
    described = validate_folder(raw).plan.description
    assert described.dimension == 16
    for parameters, dimension in (({}, 16), ({"truncate_dimension": "auto"}, 16), ({"truncate_dimension": 0}, 32),
                                  ({"truncate_dimension": "8"}, 8), ({"truncate_dimension": 24}, 24)):  # fmt: skip
        engine = created("dense", rebuilt, **parameters)
        (tmp_path / f"{dimension}{len(parameters)}{parameters}").mkdir()
        assert engine._documents.dimension == engine.main == dimension
    for wrong in ("-1", "many", "1.5", ""):
        with pytest.raises(InvalidParameter, match="auto or a whole number from 0 to 65,536"):
            created("dense", rebuilt, truncate_dimension=wrong)
    with pytest.raises(InvalidParameter, match="the main result has only 16 dimensions"):
        created("dense", rebuilt, dimensions="16")


def test_another_truncation_is_another_checkpoint(tmp_path: Path) -> None:
    identities = set()
    for number, cut in enumerate(({}, {"truncate_dim": 16}, {"truncate_dim": 8})):
        (tmp_path / str(number)).mkdir()
        raw = changed(tiny_models.tiny_dense(tmp_path / str(number) / "raw"), {TOP: cut})
        identities.add(rebuild(validate_folder(raw), tmp_path / str(number) / "rebuilt").sha256)
    assert len(identities) == 3


def test_static_embeddings_are_truncated(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    raw, rebuilt = both(tiny_models.tiny_static, tmp_path, {TOP: {"truncate_dim": 7}})
    theirs = SentenceTransformer(str(raw), device="cpu").encode(QUERIES, normalize_embeddings=True)
    np.testing.assert_allclose(encoded(created("dense", rebuilt), QUERIES, "query"), theirs, atol=1e-5)


SPARSE: dict[str, Changes] = {
    "max_active_dims": {TOP: {"max_active_dims": 5}},
    "max_seq_length": {SETTINGS: {"max_seq_length": 6}},
    "lengths of two sides": {SETTINGS: {"query_length": 4, "document_length": 6}},
    "prompts": {TOP: {"prompts": {"query": "query: ", "document": "data: "}, "max_active_dims": 9}},
    "log1p_relu": {"1_SpladePooling/config.json": {"activation_function": "log1p_relu"}},
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_settings_give_what_the_library_encodes(name: str, tmp_path: Path) -> None:
    from sentence_transformers import SparseEncoder

    raw, rebuilt = both(tiny_models.tiny_splade, tmp_path, SPARSE[name])
    theirs = SparseEncoder(str(raw), device="cpu")
    ours = created("learned-sparse", rebuilt).encoder
    for side, texts in (("query", QUERIES), ("document", DOCUMENTS)):
        expected = getattr(theirs, f"encode_{side}")(texts).to_dense().numpy()
        rows = ours.encode(texts, side)
        for number in range(len(texts)):
            vector = np.zeros(ours.dimension, np.float32)
            terms, weights = rows.row(number)
            vector[terms] = weights
            np.testing.assert_allclose(vector, expected[number], atol=1e-5)
    assert (ours._most_terms, created("learned-sparse", rebuilt, most_terms=3).encoder._most_terms) == (
        "auto",
        3,
    )


LATE_SETTINGS: dict[str, Changes] = {
    "lengths": {TOP: {"query_length": 9, "document_length": 12}},
    "attended": {TOP: {"attend_to_expansion_tokens": True}},
    "attended, as Stanford calls it": {TOP: {"attend_to_expansion_tokens": ..., "attend_to_mask_tokens": True}},
    "not expanded": {TOP: {"do_query_expansion": False}},
    "expansion null": {TOP: {"query_expansion": None}},
    "expansion": {TOP: {"query_expansion": {"strategy": "min", "attend": True, "length": 11}}},
    "words left out": {TOP: {"skiplist_words": ["heart", "!"]}},
    "no words left out": {TOP: {"skiplist_words": []}},
    "punctuation by default": {TOP: {"skiplist_words": None}},
    "no prefix": {TOP: {"query_prefix": None, "document_prefix": ""}},
    "prompts behind prefixes": {TOP: {"prompts": {"query": "query: "}}},
}


@pytest.mark.parametrize("name", LATE_SETTINGS)
def test_late_interaction_gives_what_the_library_encodes(name: str, tmp_path: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    raw, rebuilt = both(tiny_models.tiny_pylate, tmp_path, LATE_SETTINGS[name])
    theirs = MultiVectorEncoder(str(raw), device="cpu")
    ours = created("late-interaction", rebuilt, maximum_length=0).encoder
    expected = theirs.encode_query(QUERIES)
    for vectors, wanted in zip(ours.encode_queries(QUERIES), expected, strict=True):
        np.testing.assert_allclose(vectors.numpy(), np.asarray(wanted), atol=1e-5)
    texts = [text for text in DOCUMENTS if text]
    found: dict[int, Any] = {}

    def keep(indices: Any, counts: Any, vectors: Any) -> None:
        found.update(zip(indices.tolist(), np.split(vectors, np.cumsum(counts)[:-1]), strict=True))

    ours.encode(texts, "document", keep)
    for number, wanted in enumerate(theirs.encode_document(texts)):
        np.testing.assert_allclose(found[number], np.asarray(wanted), atol=1e-5)


CROSS: dict[str, Changes] = {
    "default prompt": {TOP: {"prompts": {"web": "search: ", "query": "q: "}, "default_prompt_name": "web"}},
    "prompts that are no default": {TOP: {"prompts": {"query": "query: "}}},
    "max_seq_length": {SETTINGS: {"max_seq_length": 12}},
}


@pytest.mark.parametrize("name", CROSS)
def test_a_cross_encoder_predicts_as_the_library_does(name: str, tmp_path: Path) -> None:
    import torch
    from sentence_transformers import CrossEncoder

    from evaluation.engines import Resources
    from evaluation.engines.neural.pair_scoring import PairScorer

    raw, rebuilt = both(tiny_models.tiny_cross_encoder, tmp_path, CROSS[name])
    theirs = CrossEncoder(str(raw), device="cpu")
    given = {"batch_tokens": 0, "maximum_length": 0, "compute_dtype": "float32", "template": "auto"}
    ours = PairScorer(Resources(rebuilt), {**given, "query_prompt": "auto", "document_prompt": "auto"})
    queries = [QUERIES[0]] * len(DOCUMENTS)
    pairs = list(zip(queries, DOCUMENTS, strict=True))
    expected = theirs.predict(pairs, activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(ours.score(queries, DOCUMENTS), expected, atol=1e-5)


_MESSAGES = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}, "message": {}}
_POOLED = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
REFUSED: dict[str, tuple[Callable[..., Path], str, dict[str, Any]]] = {
    "no dimension": (tiny_models.tiny_dense, TOP, {"truncate_dim": 0}),
    "dimensions from the end": (tiny_models.tiny_dense, TOP, {"truncate_dim": -1}),
    "another similarity": (tiny_models.tiny_dense, TOP, {"similarity_fn_name": "euclidean"}),
    "another task": (tiny_models.tiny_dense, SETTINGS, {"transformer_task": "fill-mask"}),
    "another output": (tiny_models.tiny_dense, SETTINGS, {"modality_config": _POOLED}),
    "messages": (tiny_models.tiny_dense, SETTINGS, {"modality_config": _MESSAGES}),
    "another name": (tiny_models.tiny_dense, SETTINGS, {"module_output_name": "sentence_embedding"}),
    "processing": (tiny_models.tiny_dense, SETTINGS, {"processing_kwargs": {"text": {"max_length": 4}}}),
    "arguments": (tiny_models.tiny_dense, SETTINGS, {"model_args": {"attn_implementation": "eager"}}),
    "length of queries": (tiny_models.tiny_dense, SETTINGS, {"query_length": 4}),
    "length of documents": (tiny_models.tiny_dense, SETTINGS, {"document_length": 4}),
    "expansion": (tiny_models.tiny_dense, SETTINGS, {"query_expansion": {"strategy": "fixed", "length": 8}}),
    "layers in float32": (tiny_models.tiny_cross_encoder, TOP, {"keep_in_fp32_modules": ["0.model.classifier"]}),
    "order of scores": (tiny_models.tiny_cross_encoder, TOP, {"activation_fn": "torch.nn.modules.activation.ReLU"}),
    "older order of scores": (
        tiny_models.tiny_cross_encoder, "config.json",
        {"sbert_ce_default_activation_function": "torch.nn.modules.activation.GELU"},
    ),
    "queries of a re-ranker": (tiny_models.tiny_cross_encoder, SETTINGS, {"query_length": 4}),
    "no term": (tiny_models.tiny_splade, TOP, {"max_active_dims": 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_settings_are_refused_by_name(name: str, tmp_path: Path) -> None:
    make, file, values = REFUSED[name]
    raw = changed(make(tmp_path / "raw"), {file: values})
    messages = [problem.message for problem in validate_folder(raw).report.errors]
    assert any(message.startswith(f"{file}: {next(iter(values))}: ") for message in messages), messages
