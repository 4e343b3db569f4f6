"""The models that people use: each row of `models_people_use.csv` decided by a tiny instance, and by the limits.

The rows are MTEB's open retrieval models, by mean nDCG@10 over four of the ten retrieval tasks of MTEB(eng, v2), and
the re-rankers of its registry; `docs/measurements/models.md` says where they come from and has tables of the shares
and the refusals, which are compared with what is found here. A row whose `needs` names something (code of its own,
images, an own reading of texts, a prompt that the site does not know) is refused; any other is what its type and
`made_as` are. `way` is the way in: a checkpoint, a container image, an endpoint whose run is uploaded, or none.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from evaluation.checkpoints.findings import MAX_WEIGHTS
from evaluation.checkpoints.rebuilding import rebuild, validate_folder
from evaluation.engines import describe
from evaluation.engines.neural.checking import check_checkpoint
from evaluation.images.findings import DEFAULT_LIMITS
from tests.evaluation.checkpoints.test_families import DECODERS, ENCODERS, save
from tests.evaluation.tiny_models import HIDDEN, PROJECTED
from tests.figures import table

ROWS = list(csv.DictReader((Path(__file__).parent / "models_people_use.csv").open(encoding="utf-8")))
RETRIEVAL = [row for row in ROWS if row["list"] == "retrieval"]
RERANKERS = [row for row in ROWS if row["list"] == "reranker"]
DOCS = Path(__file__).parents[3] / "docs" / "measurements" / "models.md"
#: Sizes of types that no other test saves, and what of the others' a plain decoder has not.
_SIZES: dict[str, dict[str, Any]] = {
    "bloom": {"hidden_size": HIDDEN, "n_layer": 2, "n_head": 2},
    "mixtral": {**DECODERS["mistral"], "num_local_experts": 2},
    "qwen2": {**DECODERS["qwen2"], "is_causal": True},
    "qwen3_5_text": {**DECODERS["qwen3"], "layer_types": ["linear_attention", "full_attention"]},
}
#: Types whose published files name code that the library's classes are known to equal: the type there, and the code.
_WITH_CODE = {
    "gte": ("new", "Alibaba-NLP/new-impl--modeling.NewModel"),
    "nomic_bert": ("nomic_bert", "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"),
}
#: Minimum numbers of accepted models and of models with an accepted type, keyed by the number of first models.
BOUNDS = {20: (13, 15), 50: (32, 38), 100: (79, 82)}
WAYS = ("checkpoint", "container", "endpoint", "none")
#: Minimum number of retrieval models with a way in.
WITH_A_WAY = 97
#: Embeddings, more than there are tokens, as in what people publish.
_VOCABULARY = 320


def sizes_of(model_type: str) -> dict[str, Any]:
    return {**ENCODERS, **DECODERS, **_SIZES}[model_type]


def save_encoder(model_type: str, made_as: str, folder: Path) -> Path:
    """Transformer, Pooling, perhaps Dense, and Normalize."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    bidirectional = {"is_causal": False} if "bidirectional" in made_as and model_type == "qwen2" else {}
    save(model_type, {**sizes_of(model_type), **bidirectional}, folder, vocab_size=_VOCABULARY)
    pooling = Pooling(HIDDEN, "lasttoken" if "decoder" in made_as else "mean")
    dense = [Dense(HIDDEN, HIDDEN)] if "Dense" in made_as else []
    SentenceTransformer(modules=[Transformer(str(folder)), pooling, *dense, Normalize()]).save(str(folder))
    if model_type in _WITH_CODE:
        path = folder / "config.json"
        published_type, code = _WITH_CODE[model_type]
        named = {"model_type": published_type, "auto_map": {"AutoModel": code}}
        path.write_text(json.dumps({**json.loads(path.read_text()), **named}))
    return folder


def save_multi_vector(model_type: str, made_as: str, folder: Path) -> Path:
    """Transformer and a projection: as PyLate saves them on sentence-transformers 5, or as it did before."""
    from safetensors.torch import save_file
    from torch import eye

    save(model_type, sizes_of(model_type), folder)
    (folder / "1_Dense").mkdir()
    save_file({"linear.weight": eye(PROJECTED, HIDDEN)}, folder / "1_Dense" / "model.safetensors")
    dense = {"in_features": HIDDEN, "out_features": PROJECTED, "bias": False}
    types = ("sentence_transformers.models.Transformer", "pylate.models.Dense.Dense")
    texts = {
        "1_Dense/config.json": {**dense, "activation_function": "torch.nn.modules.linear.Identity"},
        "modules.json": [
            {"idx": place, "name": str(place), "path": ("", "1_Dense")[place], "type": name}
            for place, name in enumerate(types)
        ],
        "sentence_bert_config.json": {"max_seq_length": 63, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 16, "document_length": 64,
            "attend_to_expansion_tokens": False, "skiplist_words": ["!"], "similarity_fn_name": "MaxSim",
            "prompts": {}, **({} if "without" in made_as else {"model_type": "ColBERT"}),
        },
    }  # fmt: skip
    for name, content in texts.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def save_scorer(model_type: str, made_as: str, folder: Path) -> Path:
    """A re-ranker: with a head for one label, or the language model that is asked for a word."""
    heads = {"one label": "SequenceClassification", "yes or no": "CausalLM", "true or false": "Seq2SeqLM"}
    more = {"num_labels": 1} if made_as == "one label" else {}
    more |= {"decoder_start_token_id": 0} if made_as == "true or false" else {}
    auto = f"AutoModelFor{heads[made_as]}"
    save(model_type, sizes_of(model_type), folder, auto, vocab_size=_VOCABULARY, **more)
    tokenizer = folder / "tokenizer.json"  # its words have a no, and no yes
    tokenizer.write_text(tokenizer.read_text("utf-8").replace('"vitamin"', '"yes"'), "utf-8")
    return folder


MAKERS: dict[str, Callable[[str, str, Path], Path]] = {
    "encoder": save_encoder, "decoder": save_encoder, "bidirectional": save_encoder, "multi-vector": save_multi_vector,
    "one": save_scorer, "yes": save_scorer, "true": save_scorer,
}  # fmt: skip


@cache
def refusal_of(model_type: str, made_as: str) -> str:
    """Why a tiny instance is refused; empty where it is accepted."""
    word = made_as.partition(" ")[0].strip(",")
    engines = {save_encoder: "dense", save_multi_vector: "late-interaction", save_scorer: "cross-encoder"}
    with TemporaryDirectory() as scratch:
        folder = MAKERS[word](model_type, made_as, Path(scratch) / "raw")
        validation = validate_folder(folder, describe(engines[MAKERS[word]]).checkpoints)
        errors = validation.report.errors
        if validation.valid:
            rebuild(validation, Path(scratch) / "rebuilt")
            errors = check_checkpoint(Path(scratch) / "rebuilt").errors
    return "; ".join(f"{problem.code}: {problem.message}" for problem in errors)


def reason_against(row: dict[str, str]) -> str:
    """Why the model of a row is refused; empty where it is accepted."""
    if row["needs"]:
        return f"needs {row['needs']}"
    weights = float(row["weights_gib"] or 0)
    if weights * 2**30 > MAX_WEIGHTS:
        return f"{weights:.0f} GiB of weights, over {MAX_WEIGHTS / 2**30:.0f}"
    return refusal_of(row["type"], row["made_as"])


def of_a_known_family(row: dict[str, str]) -> bool:
    """Whether a plain instance of the type is accepted, whatever else the model needs."""
    if row["needs"] == "images" or row["type"] == "unknown":
        return False
    plain = "encoder" if row["type"] in ENCODERS else "decoder"
    return not refusal_of(row["type"], row["made_as"] or plain)


def shares_table() -> str:
    """Return the table in `docs/measurements/models.md` that counts accepted retrieval models and re-rankers."""
    parts = [(f"retrieval models, the first {count}", RETRIEVAL[:count]) for count in BOUNDS]
    rows = [
        (
            what,
            f"{sum(not reason_against(row) for row in some)} of {len(some)}",
            f"{sum(map(of_a_known_family, some))}" if some is not RERANKERS else "",
        )
        for what, some in [*parts, ("re-rankers", RERANKERS)]
    ]
    return table(("", "accepted", "of a known type"), rows)


def ways_table() -> str:
    """Return the table in `docs/measurements/models.md` that counts models by way."""
    parts = [(f"retrieval models, the first {count}", RETRIEVAL[:count]) for count in BOUNDS]
    rows = [
        (what, *(str(sum(row["way"] == way for row in some)) for way in WAYS))
        for what, some in [*parts, ("re-rankers", RERANKERS)]
    ]
    return table(("", *WAYS), rows)


def refusals_table() -> str:
    """Return the table in `docs/measurements/models.md` that lists refused models by reason and way."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in ROWS:
        if reason := reason_against(row):
            found.setdefault((reason, row["way"]), []).append(row["model"].partition("/")[2])
    rows = [(reason, way, ", ".join(names)) for (reason, way), names in found.items()]
    return table(("refused", "way in", "models"), rows)


def test_the_list_is_in_order_and_says_where_it_is_from() -> None:
    assert [int(row["rank"]) for row in RETRIEVAL] == list(range(1, 101))
    scores = [float(row["score"]) for row in RETRIEVAL]
    assert scores == sorted(scores, reverse=True)
    assert len({row["model"] for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row["evidence"]
        assert bool(row["scores_from"]) == (row["list"] == "retrieval")
        assert bool(row["needs"]) != bool(row["made_as"]), row["model"]


def test_nearly_all_models_have_a_way_in() -> None:
    assert sum(row["way"] != "none" for row in RETRIEVAL) >= WITH_A_WAY
    for row in ROWS:
        assert row["way"] in WAYS
        too_large = float(row["weights_gib"] or 0) * 2**30 > MAX_WEIGHTS
        assert bool(row["needs"] or too_large) == (row["way"] != "checkpoint"), row["model"]
        if row["way"] == "container":  # with weights of two bytes
            assert 2 * int(row["parameters"] or 0) < DEFAULT_LIMITS.archive_bytes, row["model"]
        if row["way"] == "endpoint":
            assert any(f"{server} lists" in row["evidence"] for server in ("vLLM", "TEI", "Infinity", "llama.cpp"))


def test_the_first_twenty_are_accepted_unless_they_need_code_of_their_own() -> None:
    reasons = {row["model"]: reason_against(row) for row in RETRIEVAL[:20]}
    assert {reason for reason in reasons.values() if reason} == {"needs own code"}
    assert sum(not reason for reason in reasons.values()) >= BOUNDS[20][0]


@pytest.mark.long
def test_the_models_that_people_use_are_accepted() -> None:
    for count, (accepted, known) in BOUNDS.items():
        assert sum(not reason_against(row) for row in RETRIEVAL[:count]) >= accepted
        assert sum(of_a_known_family(row) for row in RETRIEVAL[:count]) >= known
    assert sum(not reason_against(row) for row in RERANKERS) >= 38
    for row in RETRIEVAL:  # nothing is refused for what the library could run
        assert not reason_against(row) or row["needs"] or "GiB of weights" in reason_against(row), row["model"]
    for row in ROWS:
        assert bool(reason_against(row)) == (row["way"] != "checkpoint"), row["model"]
    documented = DOCS.read_text("utf-8")
    assert shares_table() in documented
    assert ways_table() in documented
    assert refusals_table() in documented
