"""Settings of tokenizers: a rebuilt checkpoint encodes as the library does, which often rebuilds tokenizer.json."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.checkpoints import tokenizer
from evaluation.checkpoints.rebuilding import rebuild, validate_folder
from tests.evaluation import tiny_models
from tests.evaluation.neural import created

SETTINGS, TOKENIZER, OLDER = "tokenizer_config.json", "tokenizer.json", "special_tokens_map.json"
TEXTS = [
    "Heart Disease of the PATIENT",
    "the caf\u00e9 and na\u00efve flow",
    "\u5fc3\u81d3heart disease",
    "heart diseasecancer",
]
LONG = "first heart disease then " * 20 + "blood pressure"
BERT = {"tokenizer_class": "BertTokenizer"}
ROLES = {f"{role}_token": f"[{role.upper()}]" for role in ("unk", "sep", "pad", "cls", "mask")}
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
Changes = dict[str, dict[str, Any]]


def added(token: str, number: int, **flags: bool) -> dict[str, Any]:
    return {str(number): {"content": token, **FLAGS, **flags}}


def id_of(word: str) -> int:
    return tiny_models.vocabulary()[word]


#: Arguments for boxes of layouts, entities, HTML, pairs of texts, and the vocabulary; files, which are never read.
OTHER_ARGUMENTS = """
cls_token_box sep_token_box pad_token_box pad_token_label only_label_first_subword entity_vocab max_entity_length
max_mention_length max_depth max_width pad_width tags_dict token_type_ids_pattern return_token_type_ids vocab merges
_spm_precompiled_charsmap vocab_file merges_file normalizer_file self args kwargs
"""


CASES: dict[str, Changes] = {
    "a class with another name": {SETTINGS: {"tokenizer_class": "ElectraTokenizer", "do_lower_case": False}},
    "flags that end as tokens do": {SETTINGS: {**BERT, "add_bos_token": False, "add_eos_token": True}},
    "settings of the older file": {
        SETTINGS: {**BERT, "added_tokens_decoder": ...}, OLDER: {**ROLES, "do_lower_case": False}
    },
    "added tokens of the older file": {
        SETTINGS: {**BERT, "added_tokens_decoder": ...}, "added_tokens.json": {"cancer": id_of("cancer")}
    },
    "a key named like the older file": {
        SETTINGS: {**BERT, "added_tokens_decoder": ..., "added_tokens.json": 5},
        OLDER: {**ROLES, "added_tokens.json": 1},
    },
    "a special word that is new": {SETTINGS: {**BERT, "extra_special_tokens": ["naive"]}},
    "lower case": {SETTINGS: {**BERT, "do_lower_case": False}},
    "lower case, by a fast class": {SETTINGS: {"tokenizer_class": "BertTokenizerFast", "do_lower_case": False}},
    "lower case, by the class of config.json": {
        SETTINGS: {"tokenizer_class": ..., "do_lower_case": False}, "config.json": {"tokenizer_class": "BertTokenizer"}
    },
    "lower case, by the class of the type": {SETTINGS: {"tokenizer_class": ..., "do_lower_case": False}},
    "a class that the library does not have": {SETTINGS: {"tokenizer_class": "OwnTokenizer", "do_lower_case": False}},
    "a generic class": {SETTINGS: {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}},
    "accents stay": {SETTINGS: {**BERT, "strip_accents": False}},
    "accents by default": {SETTINGS: {**BERT, "strip_accents": None}},
    "accents go from cased text": {SETTINGS: {**BERT, "strip_accents": True, "do_lower_case": False}},
    "Chinese characters": {SETTINGS: {**BERT, "tokenize_chinese_chars": False}},
    "another normalizer": {SETTINGS: BERT, TOKENIZER: {"normalizer": None}},
    "another normalizer of a generic class": {
        SETTINGS: {"tokenizer_class": "TokenizersBackend"}, TOKENIZER: {"normalizer": None}
    },
    "another first token": {SETTINGS: {**BERT, "cls_token": "[MASK]", "sep_token": "[CLS]"}},
    "special tokens of the older file": {
        SETTINGS: {**BERT, "added_tokens_decoder": ...}, OLDER: {**ROLES, "cls_token": "[SEP]"}
    },
    "special tokens beside the older file": {
        SETTINGS: {**BERT, "added_tokens_decoder": added("[CLS]", id_of("[CLS]"))}, OLDER: {"cls_token": "[SEP]"}
    },
    "an added word": {SETTINGS: {**BERT, "added_tokens_decoder": added("cancer", id_of("cancer"), special=False)}},
    "a special word": {SETTINGS: {**BERT, "extra_special_tokens": ["cancer"]}},
    "a special word by its older key": {SETTINGS: {**BERT, "additional_special_tokens": ["cancer"]}},
    "a special word with a name": {SETTINGS: {**BERT, "illness_token": "cancer"}},
    "truncation on the left": {SETTINGS: {**BERT, "truncation_side": "left"}},
    "truncation on the left in the other file": {
        SETTINGS: BERT,
        TOKENIZER: {"truncation": {"direction": "Left", "max_length": 8, "strategy": "LongestFirst", "stride": 0}},
    },
    "padding on the left in the other file": {
        SETTINGS: BERT,
        TOKENIZER: {"padding": {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": None,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}},
    },
}  # fmt: skip


def changed(folder: Path, changes: Changes) -> Path:
    for name, values in {"sentence_bert_config.json": {"max_seq_length": 12}, **changes}.items():
        path = folder / name
        own = json.loads(path.read_text()) if path.exists() else {}
        stated = {key: value for key, value in {**own, **values}.items() if value is not ...}
        path.write_text(json.dumps(stated))
    return folder


def byte_pairs(folder: Path) -> Path:
    """Return a tiny encoder whose tokenizer has pairs of bytes, as RoBERTa's."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    tiny_models.tiny_dense(folder)
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(vocab_size=240, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([*TEXTS, LONG, tiny_models._TEXT], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer.save(str(folder / TOKENIZER))
    roles = {
        "bos": "<s>",
        "cls": "<s>",
        "eos": "</s>",
        "sep": "</s>",
        "unk": "<unk>",
        "pad": "<pad>",
        "mask": "<mask>",
    }
    content = {"tokenizer_class": "RobertaTokenizer", "model_max_length": 64}
    settings = {**content, **{f"{role}_token": token for role, token in roles.items()}}
    (folder / SETTINGS).write_text(json.dumps(settings))
    return folder


BYTE_PAIRS: dict[str, Changes] = {
    "as it is": {},
    "a space before": {SETTINGS: {"add_prefix_space": True}},
    "no class": {SETTINGS: {"tokenizer_class": "TokenizersBackend", "add_prefix_space": True}},
    "a mask with a space before": {
        SETTINGS: {"mask_token": {"__type": "AddedToken", "content": "<mask>", **FLAGS, "lstrip": True}}
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("make", "changes"),
    [(tiny_models.tiny_dense, case) for case in CASES.values()] + [(byte_pairs, case) for case in BYTE_PAIRS.values()],
    ids=[*CASES, *(f"byte pairs, {name}" for name in BYTE_PAIRS)],
)
def test_texts_are_encoded_as_by_the_library(make: Callable[..., Path], changes: Changes, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    from evaluation.engines.index.word_pieces import WordPieces
    from evaluation.engines.neural.checking import check_checkpoint
    from evaluation.engines.neural.loading import prepare

    prepare(threads=1)
    folder = changed(make(tmp_path / "raw"), changes)
    library = SentenceTransformer(str(folder), device="cpu")
    validation = validate_folder(folder)
    assert validation.report.errors == ()
    rebuild(validation, tmp_path / "rebuilt")
    assert check_checkpoint(tmp_path / "rebuilt").errors == ()

    engine = created("dense", tmp_path / "rebuilt")
    texts = [*TEXTS, LONG]
    vectors = np.zeros((len(texts), engine._documents.dimension), np.float32)
    engine._documents.encode(texts, "", vectors)

    np.testing.assert_allclose(vectors, library.encode(texts, normalize_embeddings=True), atol=1e-5)
    special = set(library.tokenizer.all_special_ids)
    expected = [[number for number in library.tokenizer(text, add_special_tokens=False)["input_ids"]
                 if number not in special] for text in TEXTS]  # fmt: skip
    assert WordPieces(tmp_path / "rebuilt").pieces(TEXTS) == expected


def test_the_cases_change_what_is_encoded(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    def vectors(name: str) -> Any:
        folder = changed(tiny_models.tiny_dense(tmp_path / name), CASES[name])
        return SentenceTransformer(str(folder), device="cpu").encode([*TEXTS, LONG])

    plain = vectors("a generic class")
    for name in ("lower case", "lower case, by the class of the type", "accents stay", "Chinese characters",
                 "another first token", "special tokens of the older file", "truncation on the left",
                 "truncation on the left in the other file", "another normalizer of a generic class"):  # fmt: skip
        assert np.abs(vectors(name) - plain).max() > 1e-3, name


REFUSED: dict[str, tuple[Changes, str]] = {
    "an added token that is not there": (
        {SETTINGS: {"added_tokens_decoder": added("[NEW]", 7)}}, f"{SETTINGS}: added_tokens_decoder.7: "
    ),
    "an added token with another id": (
        {SETTINGS: {"added_tokens_decoder": added("cancer", 1)}}, f"{SETTINGS}: added_tokens_decoder.1: "
    ),
    "a setting of another type": ({SETTINGS: {"do_lower_case": "no"}}, f"{SETTINGS}: do_lower_case: "),
    "a side that does not exist": ({SETTINGS: {"truncation_side": "middle"}}, f"{SETTINGS}: truncation_side: "),
    "arguments without a name": ({SETTINGS: {"init_inputs": ["vocab.txt"]}}, f"{SETTINGS}: init_inputs: "),
    "a similarity that the library ignores": (
        {"config_sentence_transformers.json": {"similarity_fn_name": "dot_product"}},
        "config_sentence_transformers.json: similarity_fn_name: “dot_product” is not one of cosine, dot, ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_settings_are_refused_by_name(name: str, tmp_path: Path) -> None:
    changes, start = REFUSED[name]
    report = validate_folder(changed(tiny_models.tiny_dense(tmp_path / "raw"), changes)).report
    messages = [problem.message for problem in report.errors]
    assert [message for message in messages if message.startswith(start)], messages


def test_a_class_of_python_code_is_refused_by_the_library_stage(tmp_path: Path) -> None:
    from evaluation.engines.neural.checking import check_checkpoint

    changes = {SETTINGS: {"tokenizer_class": "BertJapaneseTokenizer"}}
    rebuild(validate_folder(changed(tiny_models.tiny_dense(tmp_path / "raw"), changes)), tmp_path / "rebuilt")
    (error,) = check_checkpoint(tmp_path / "rebuilt").errors
    assert error.code == "tokenizer_value"


def test_every_argument_of_a_tokenizer_class_is_honored_or_has_no_effect_on_texts() -> None:
    import transformers
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES, tokenizer_class_from_name

    others = set(OTHER_ARGUMENTS.split())
    known = {
        *tokenizer.HONORED,
        *tokenizer.SPECIAL_TOKENS,
        *tokenizer.WITHOUT_EFFECT,
        *others,
    }
    known |= {"extra_special_tokens", "additional_special_tokens"}
    names = {
        *TOKENIZER_MAPPING_NAMES.values(),
        "ElectraTokenizer",
        "LongformerTokenizer",
        "DPRReaderTokenizer",
    }
    classes = {tokenizer_class_from_name(name) for name in names if name}
    assert len(classes) > 50
    for tokenizer_class in classes:
        if issubclass(tokenizer_class, transformers.PreTrainedTokenizerFast):
            unknown = set(inspect.signature(tokenizer_class.__init__).parameters) - known
            assert {name for name in unknown if not name.endswith("_token")} == set(), tokenizer_class
