"""tokenizer.json and tokenizer_config.json: checked in depth, and written again without what is not needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints.configuration import refuse_code
from evaluation.checkpoints.files import CHAT_TEMPLATE, ModelFiles
from evaluation.checkpoints.findings import Findings, listed, quoted
from evaluation.checkpoints.json_reading import NotJson, read_file, read_object
from evaluation.checkpoints.limits import MOST_POSITIONS, MOST_TOKENIZER, MOST_VOCABULARY
from evaluation.checkpoints.tokenizer_parts import MOST_TOKEN, check_parts
from evaluation.checkpoints.values import (
    TRUTH,
    read_values,
    refuse_forbidden_keys,
    remark_on_unknown,
    text,
    whole,
)

NAME, SETTINGS, SPECIAL = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
_MOST_ADDED, _MOST_TEMPLATE = 20_000, 64 * 1024
_ADDED_RULES = {
    "id": whole(0, MOST_VOCABULARY),
    "content": text(MOST_TOKEN),
    **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), TRUTH),
}
_KEYS_TEXT = """
version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model
"""
_KEYS = frozenset(_KEYS_TEXT.split())
_SPECIAL_TOKENS = tuple(f"{role}_token" for role in ("unk", "sep", "pad", "cls", "mask", "bos", "eos"))
_INPUTS = ("input_ids", "token_type_ids", "attention_mask")
_UNREMARKED_TEXT = """
tokenizer_class do_lower_case tokenize_chinese_chars strip_accents do_basic_tokenize never_split
name_or_path backend is_local local_files_only clean_up_tokenization_spaces added_tokens_decoder
special_tokens_map_file sp_model_kwargs model_input_names padding_side truncation_side extra_special_tokens
additional_special_tokens extra_ids legacy add_prefix_space trim_offsets errors max_length stride
truncation_strategy pad_to_multiple_of pad_token_type_id processor_class use_fast do_lower vocab_type
split_by_punct keep_accents remove_space clean_text handle_chinese_chars lowercase model_max_length
chat_template add_bos_token add_eos_token auto_map split_special_tokens spaces_between_special_tokens
use_default_system_prompt
"""
_UNREMARKED = frozenset(_UNREMARKED_TEXT.split())


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer as it was understood: what is written, and what others need to know of it.

    `chat_template` is the text that came with it, empty where there is none. `generic` is whether its class is that of
    no family: such a one gives no token types unless its settings name them.
    """

    content: dict[str, Any]
    special: dict[str, str]
    sides: dict[str, str]
    inputs: tuple[str, ...]
    maximum_length: int | None
    chat_template: str
    generic: bool

    def id_of(self, token: str) -> int | None:
        """The id of a token in the vocabulary, where this is one of tokens and ids."""
        vocabulary = self.content["model"]["vocab"]
        return vocabulary.get(token) if isinstance(vocabulary, dict) else None

    def settings(self, maximum_length: int, token_types: bool) -> dict[str, Any]:
        """tokenizer_config.json of the rebuilt model: the class that takes tokenizer.json as it stands."""
        plain = [name for name in _INPUTS if (token_types and not self.generic) or name != "token_type_ids"]
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": maximum_length,
            "model_input_names": list(self.inputs) or plain,
            "clean_up_tokenization_spaces": False,
            **self.special,
            **self.sides,
        }


def read_tokenizer(
    source: ModelFiles, rows: int | None, findings: Findings, keep_truncation: bool = False
) -> Tokenizer | None:
    """The tokenizer in a folder for a model with `rows` embeddings, or None where it is refused.

    Truncation and padding are left out, because who encodes sets both; `keep_truncation` keeps the first for
    models that are not asked.
    """
    shown = source.shown(NAME)
    if not source.has(NAME):
        findings.refuse("missing_tokenizer", shown, "the file is missing")
        return None
    found = read_object(source, NAME, findings, MOST_TOKENIZER)
    if found is None:
        return None
    unknown = sorted(key for key in found if key not in _KEYS)
    if unknown:
        findings.refuse("tokenizer_value", shown, f"the keys {listed(unknown)} are not known here")
    ids = check_parts(found, shown, findings)
    added = _read_added(found.get("added_tokens"), shown, findings)
    if ids is None or added is None:
        return None
    ids |= {token["content"]: token["id"] for token in added}
    _check_ids(set(ids.values()), rows, shown, findings)
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
    content = {
        "version": "1.0",
        "truncation": found.get("truncation") if keep_truncation else None,
        "padding": None,
        "added_tokens": added,
        **{key: found.get(key) for key in parts},
    }
    settings = _read_settings(source, SETTINGS, findings)
    template = _chat_template(source, settings)
    if template:
        findings.remark("left_out", source.shown(SETTINGS), "a chat template is a program, and never run")
    longest = settings.get("model_max_length")
    stated = type(longest) in (int, float) and longest is not None and longest >= 1
    return Tokenizer(
        content,
        _read_special(source, settings, ids, findings),
        {key: "left" for key in ("padding_side", "truncation_side") if settings.get(key) == "left"},
        _read_inputs(settings.get("model_input_names")),
        min(int(longest), MOST_POSITIONS) if stated and longest is not None else None,
        template,
        settings.get("tokenizer_class") == "TokenizersBackend",
    )


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
        if not isinstance(entry, dict) or set(entry) - set(_ADDED_RULES):
            findings.refuse("tokenizer_value", shown, "it is no added token as the library writes it", path)
            return None
        taken = read_values(entry, _ADDED_RULES, findings, shown, path)
        if not {"id", "content"} <= set(taken) or not taken["content"]:
            findings.refuse("tokenizer_value", shown, "it has no id or no content", path)
            return None
        switches = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        added.append({**switches, **taken})
    return added


def _check_ids(ids: set[int], rows: int | None, shown: str, findings: Findings) -> None:
    """Every id has to have an embedding, or looking it up would read elsewhere."""
    highest = max(ids, default=-1)
    if highest < 0:
        findings.refuse("tokenizer_vocabulary", shown, "it has no tokens")
    elif rows is not None and highest >= rows:
        what = f"a token has the id {highest:,}, and the model has {rows:,} embeddings"
        findings.refuse("tokenizer_vocabulary", shown, what)


def _read_settings(source: ModelFiles, name: str, findings: Findings) -> dict[str, Any]:
    if not source.has(name):
        return {}
    found = read_object(source, name, findings) or {}
    refuse_code(found.get("auto_map"), findings, source.shown(name))
    told = {key: value for key, value in found.items() if key not in ("auto_map", "added_tokens_decoder")}
    refuse_forbidden_keys(told, findings, source.shown(name))
    remark_on_unknown(found, {*_SPECIAL_TOKENS, *_UNREMARKED}, findings, source.shown(name))
    return found


def _read_special(
    source: ModelFiles, settings: dict[str, Any], ids: dict[str, int], findings: Findings
) -> dict[str, str]:
    """The tokens with a role, by role: those of tokenizer_config.json, else of special_tokens_map.json.

    Where none is named for padding, it is done with the end of a text, as people do who train decoders.
    """
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
    if "pad_token" not in special and "eos_token" in special:
        special["pad_token"] = special["eos_token"]
        what = f"none is named; texts are made equally long with {quoted(special['eos_token'])}"
        findings.remark("keys_left_out", source.shown(SETTINGS), what, "pad_token")
    return special


def _read_inputs(names: object) -> tuple[str, ...]:
    """What a text becomes for the model, where the files say; only those that every text model knows."""
    if not isinstance(names, list) or not all(name in _INPUTS for name in names if isinstance(name, str)):
        return ()
    return tuple(name for name in _INPUTS if name in names)


def _chat_template(source: ModelFiles, settings: dict[str, Any]) -> str:
    """The chat template, a program, as text; empty where there is none, or a long one."""
    template = settings.get("chat_template")
    if source.has(CHAT_TEMPLATE):
        try:
            data = read_file(source.path(CHAT_TEMPLATE), _MOST_TEMPLATE)
            source.allowance.take_json(len(data))
            template = data.decode("utf-8")
        except (NotJson, ValueError):
            return ""
    return template if isinstance(template, str) and len(template) <= _MOST_TEMPLATE else ""
