"""tokenizer.json and tokenizer_config.json: checked in depth, and written again without what is not needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings, listed, quoted
from evaluation.checkpoints.json_reading import TOKENIZER_BYTES, read_object
from evaluation.checkpoints.tokenizer_parts import check_parts
from evaluation.checkpoints.values import (
    TRUTH,
    read_values,
    refuse_forbidden_keys,
    remark_on_unknown,
    text,
    whole,
)

NAME, SETTINGS, SPECIAL = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
_MOST_ADDED, _MOST_TOKEN = 20_000, 2000
_ADDED_RULES = {
    "id": whole(0, 512_000),
    "content": text(_MOST_TOKEN),
    **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), TRUTH),
}
_KEYS_TEXT = """
version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model
"""
_KEYS = frozenset(_KEYS_TEXT.split())
_SPECIAL_TOKENS = tuple(f"{role}_token" for role in ("unk", "sep", "pad", "cls", "mask", "bos", "eos"))
_UNREMARKED_TEXT = """
tokenizer_class do_lower_case tokenize_chinese_chars strip_accents do_basic_tokenize never_split
name_or_path backend is_local local_files_only clean_up_tokenization_spaces added_tokens_decoder
special_tokens_map_file sp_model_kwargs model_input_names padding_side truncation_side extra_special_tokens
additional_special_tokens extra_ids legacy add_prefix_space trim_offsets errors max_length stride
truncation_strategy pad_to_multiple_of pad_token_type_id processor_class use_fast do_lower vocab_type
split_by_punct keep_accents remove_space clean_text handle_chinese_chars lowercase model_max_length
chat_template add_bos_token add_eos_token
"""
_UNREMARKED = frozenset(_UNREMARKED_TEXT.split())
_LONGEST = 32_768


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer as it was understood: what is written, and what others need to know of it."""

    content: dict[str, Any]
    special: dict[str, str]
    tokens: int
    maximum_length: int | None
    #: Every token's id; empty where the tokenizer was refused.
    ids: dict[str, int]

    def settings(self, maximum_length: int, token_types: bool) -> dict[str, Any]:
        """tokenizer_config.json of the rebuilt model: the class that takes tokenizer.json as it stands."""
        names = ["input_ids", *(["token_type_ids"] if token_types else []), "attention_mask"]
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": maximum_length,
            "model_input_names": names,
            "clean_up_tokenization_spaces": False,
            **self.special,
        }


def read_tokenizer(
    source: ModelFiles, rows: int, findings: Findings, keep_truncation: bool = False
) -> Tokenizer | None:
    """The tokenizer in a folder for a model with `rows` embeddings, or None where it is refused.

    Truncation and padding are left out, because who encodes sets both; `keep_truncation` keeps the first for
    models that are not asked.
    """
    if not source.has(NAME):
        findings.refuse("missing_tokenizer", source.shown(NAME), "the file is missing")
        return None
    found = read_object(source, NAME, findings, TOKENIZER_BYTES)
    if found is None:
        return None
    unknown = sorted(key for key in found if key not in _KEYS)
    if unknown:
        findings.refuse(
            "tokenizer_value", source.shown(NAME), f"the keys {listed(unknown)} are not known here"
        )
    ids = check_parts(found, source.shown(NAME), findings)
    added = _read_added(found.get("added_tokens"), source.shown(NAME), findings)
    if ids is None or added is None:
        return None
    ids |= {token["content"]: token["id"] for token in added}
    _check_ids({*ids.values(), *_inserted(found.get("post_processor"))}, rows, source.shown(NAME), findings)
    content = {
        "version": "1.0",
        "truncation": found.get("truncation") if keep_truncation else None,
        "padding": None,
        "added_tokens": added,
        **{
            key: found.get(key)
            for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
        },
    }
    if keep_truncation and not _is_truncation(content["truncation"]):
        findings.refuse(
            "tokenizer_value", source.shown(NAME), "it is not as the library writes it", "truncation"
        )
    settings = _read_settings(source, SETTINGS, findings)
    special = _read_special(source, settings, ids, findings)
    longest = settings.get("model_max_length")
    stated = isinstance(longest, int | float) and not isinstance(longest, bool) and longest >= 1
    maximum = min(int(longest), _LONGEST) if stated and longest is not None else None
    return Tokenizer(content, special, len(ids), maximum, ids)


def _read_added(found: object, shown: str, findings: Findings) -> list[dict[str, Any]] | None:
    if found is None:
        return []
    if not isinstance(found, list) or len(found) > _MOST_ADDED:
        findings.refuse(
            "tokenizer_value", shown, f"it is no list of at most {_MOST_ADDED:,} tokens", "added_tokens"
        )
        return None
    added = []
    for number, entry in enumerate(found):
        path = f"added_tokens[{number}]"
        if (
            not isinstance(entry, dict)
            or set(entry) - set(_ADDED_RULES)
            or not {"id", "content"} <= set(entry)
        ):
            findings.refuse("tokenizer_value", shown, "it is no added token as the library writes it", path)
            return None
        taken = read_values(entry, _ADDED_RULES, findings, shown, path)
        if not {"id", "content"} <= set(taken) or not taken["content"]:
            findings.refuse("tokenizer_value", shown, "it has no id or no content", path)
            return None
        switches = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        added.append({**switches, **taken})
    return added


def _check_ids(ids: set[int], rows: int, shown: str, findings: Findings) -> None:
    """Every id has to have an embedding, or looking it up would read elsewhere."""
    highest = max(ids, default=-1)
    if highest < 0:
        findings.refuse("tokenizer_vocabulary", shown, "it has no tokens")
    elif highest >= rows:
        what = f"a token has the id {highest:,}, and the model has {rows:,} embeddings"
        findings.refuse("tokenizer_vocabulary", shown, what)


def _inserted(part: Any, depth: int = 0) -> Iterator[int]:
    """The ids that a post-processor puts around texts, as far as they are whole numbers."""
    if not isinstance(part, dict) or depth > 4:
        return
    for key in ("sep", "cls"):
        if isinstance(pair := part.get(key), list):
            yield from (value for value in pair if type(value) is int)
    if isinstance(tokens := part.get("special_tokens"), dict):
        for entry in tokens.values():
            found = entry.get("ids") if isinstance(entry, dict) else None
            yield from (value for value in found or () if type(value) is int)
    if isinstance(inner := part.get("processors"), list):
        for each in inner[:32]:
            yield from _inserted(each, depth + 1)


def _is_truncation(value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or set(value) - {"direction", "max_length", "strategy", "stride"}:
        return False
    return (
        type(value.get("max_length")) is int
        and 0 < value["max_length"] <= 1_000_000
        and value.get("strategy") in ("LongestFirst", "OnlyFirst", "OnlySecond")
        and value.get("direction", "Right") in ("Right", "Left")
        and value.get("stride") == 0
    )


def _read_settings(source: ModelFiles, name: str, findings: Findings) -> dict[str, Any]:
    if not source.has(name):
        return {}
    found = read_object(source, name, findings) or {}
    refuse_forbidden_keys(found, findings, source.shown(name))
    if found.get("chat_template") is not None:
        findings.remark("keys_left_out", source.shown(name), "chat templates are not used", "chat_template")
    remark_on_unknown(found, {*_SPECIAL_TOKENS, *_UNREMARKED}, findings, source.shown(name))
    return found


def _read_special(
    source: ModelFiles, settings: dict[str, Any], ids: dict[str, int], findings: Findings
) -> dict[str, str]:
    """The tokens with a role, by role: those of tokenizer_config.json, else of special_tokens_map.json."""
    others = _read_settings(source, SPECIAL, findings)
    special = {}
    for role in _SPECIAL_TOKENS:
        value = settings.get(role, others.get(role))
        if isinstance(value, dict):
            value = value.get("content")
        if value is None:
            continue
        if not isinstance(value, str) or value not in ids:
            what = f"{quoted(value)} is no token of tokenizer.json"
            findings.refuse("tokenizer_vocabulary", source.shown(SETTINGS), what, role)
        else:
            special[role] = value
    return special
