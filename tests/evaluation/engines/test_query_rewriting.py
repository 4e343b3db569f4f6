"""Generative query rewriting: BM25 for the query and what the model itself writes for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Query
from evaluation.engines import Resources, describe
from tests.evaluation.neural import (
    AWKWARD,
    AWKWARD_QUERIES,
    DOCUMENTS,
    QUERIES,
    created,
    rebuilt,
    searched,
)
from tests.evaluation.tiny_families import byte_tokenizer, save_transformer
from tests.evaluation.tiny_models import tiny_t5

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rebuilt(tmp_path_factory.mktemp("model"), tiny_t5, CheckpointKind.SEQ2SEQ)


def written_by_the_library(checkpoint: Path, text: str, beams: int, tokens: int, dtype: str = "float32") -> str:
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    tokenizer = AutoTokenizer.from_pretrained(checkpoint / "model")
    model = T5ForConditionalGeneration.from_pretrained(checkpoint / "model", dtype=dtype).eval()
    encoded = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
    output = model.generate(**encoded, max_new_tokens=tokens, do_sample=False, num_beams=beams)
    return " ".join(tokenizer.decode(output[0], skip_special_tokens=True).split())


@pytest.mark.parametrize(("beams", "prompt"), [(1, ""), (3, ""), (1, "question: ")])
def test_what_is_searched_is_the_query_and_its_expansion(
    checkpoint: Path, tmp_path: Path, beams: int, prompt: str
) -> None:
    engine = created("query-rewriting", checkpoint, beams=beams, prompt=prompt, generated_tokens=10)
    engine.build(DOCUMENTS, tmp_path)
    found = searched(engine, QUERIES)
    description = describe("bm25")
    plain: Any = description.create(description.complete({}), Resources())
    plain.open(tmp_path)
    words = []
    for query in QUERIES:
        expansion = written_by_the_library(checkpoint, prompt + query.text, beams, 10)
        words.append(len(expansion.split()))
        assert found[query.id] == searched(plain, [Query("q", f"{query.text} {expansion}")])["q"]
    assert engine.facts() == {
        "generated_length": pytest.approx(sum(words) / len(words)),
        "maximum_length": 512,
    }
    assert set(engine.clock.seconds) == {"query_encoding", "search"}
    given = {"beams": beams, "prompt": prompt, "generated_tokens": 10}
    kept = created("query-rewriting", checkpoint, index=tmp_path, **given)
    kept.build([], tmp_path)
    assert searched(kept, QUERIES) == found


@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.long)])
def test_fewer_bits_write_what_the_library_writes_in_them(checkpoint: Path, dtype: str) -> None:
    """In float16 T5's last layers are float32, as the library loads them."""
    texts = [f"{query.text} {document.text}" for query in QUERIES for document in DOCUMENTS]
    engine = created("query-rewriting", checkpoint, generated_tokens=20, compute_dtype=dtype)
    written = [engine.expansions([text])[0] for text in texts]
    assert written == [written_by_the_library(checkpoint, text, 1, 20, dtype) for text in texts]


@pytest.mark.parametrize("beams", [1, 3])
def test_bart_writes_what_the_library_has_it_write(tmp_path: Path, beams: int) -> None:
    """GAR, as its authors trained it: https://github.com/morningmoni/GAR."""
    import transformers

    checkpoint = rebuilt(
        tmp_path,
        lambda folder: save_transformer(folder, "bart", "AutoModelForSeq2SeqLM", byte_tokenizer(begin=True)),
        CheckpointKind.SEQ2SEQ,
    )
    words = transformers.AutoTokenizer.from_pretrained(checkpoint / "model")
    model = transformers.BartForConditionalGeneration.from_pretrained(checkpoint / "model").eval()
    texts = ["who measured the speed of sound", "a", "stock market price fell " * 30]
    engine = created("query-rewriting", checkpoint, beams=beams, generated_tokens=12, maximum_length=4096)
    expected, endless = [], []
    for text in texts:
        batch = words(text, return_tensors="pt")
        settings = {"max_new_tokens": 12, "do_sample": False, "num_beams": beams}
        rows = [
            model.generate(**batch, **settings),
            model.generate(**batch, **settings, forced_eos_token_id=None),
        ]
        own, mutant = (" ".join(words.decode(row[0], skip_special_tokens=True).split()) for row in rows)
        expected.append(own)
        endless.append(mutant)
    assert engine.expansions(texts) == expected != endless


def test_any_query_is_answered(checkpoint: Path, tmp_path: Path) -> None:
    engine = created("query-rewriting", checkpoint, generated_tokens=4)
    engine.build(AWKWARD, tmp_path)
    found = searched(engine, AWKWARD_QUERIES)
    assert set(found) == {query.id for query in AWKWARD_QUERIES}
    assert found["empty"] == found["blank"] == {}
    assert "endless" in found["endless"]
