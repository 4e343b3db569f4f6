"""Settings of tokenizers, for the library's own tokenizer class to honor.

The library builds the tokenizer of most classes from the vocabulary and from settings such as `do_lower_case`, whatever
the other parts of `tokenizer.json` contain. A rebuilt checkpoint therefore names the class, and has all settings that
change tokens.
"""

import re
from collections.abc import Mapping
from typing import Any

from evaluation.checkpoints.configuration import refuse_code, stated_configuration
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import FileFindings, quoted
from evaluation.checkpoints.limits import MOST_TOKEN, MOST_VOCABULARY
from evaluation.checkpoints.values import (
    TRUTH,
    Rule,
    choice,
    read_values,
    refuse_forbidden_keys,
    remark_on_unknown,
    text,
    whole,
)

NAME, SPECIAL_NAME, ADDED_NAME = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
SPECIAL_TOKENS = tuple(f"{role}_token" for role in ("unk", "sep", "pad", "cls", "mask", "bos", "eos"))
MOST_ADDED = 20_000
ADDED_RULES = {
    "id": whole(0, MOST_VOCABULARY),
    "content": text(MOST_TOKEN),
    **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), TRUTH),
}
#: Names of a model's tokenizer class. The library takes the generic class for one that it does not have.
_CLASS = re.compile(r"(?!Auto)[A-Za-z]\w{0,63}Tokenizer(Fast)?", re.ASCII)
#: The class that uses tokenizer.json as it is.
GENERIC = "PreTrainedTokenizerFast"
_INPUTS = ("input_ids", "token_type_ids", "attention_mask")
_FLAGS_TEXT = """
do_lower_case tokenize_chinese_chars strip_accents clean_text keep_accents remove_space split_by_punct
add_prefix_space split_special_tokens add_bos_token add_eos_token legacy legacy_behaviour predict_timestamps
"""
_FLAGS = _FLAGS_TEXT.split()
_SIDE = choice("left", "right")
#: Settings that change tokens in some class.
HONORED: Mapping[str, Rule] = {
    **dict.fromkeys(_FLAGS, TRUTH),
    **dict.fromkeys(("extra_ids", "offset", "unk_id"), whole(0, MOST_ADDED)),
    **dict.fromkeys(
        ("src_lang", "tgt_lang", "language", "task", "wordpieces_prefix", "mask_token_sent"), text(64)
    ),
    "padding_side": _SIDE,
    "truncation_side": _SIDE,
}
#: Tokens that belong to a model without one of the usual roles.
_OTHER_TOKEN = re.compile(r"[A-Za-z]\w{0,63}_token", re.ASCII)
_LISTS = ("extra_special_tokens", "additional_special_tokens")
_WITHOUT_EFFECT_TEXT = """
tokenizer_class do_basic_tokenize never_split name_or_path backend is_local local_files_only
clean_up_tokenization_spaces added_tokens_decoder special_tokens_map_file sp_model_kwargs model_input_names trim_offsets
errors max_length stride truncation_strategy pad_to_multiple_of pad_token_type_id processor_class use_fast do_lower
vocab_type handle_chinese_chars lowercase model_max_length chat_template auto_map spaces_between_special_tokens
use_default_system_prompt
"""
#: Settings that the library needs elsewhere or ignores.
WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT_TEXT.split())


def read_settings(source: ModelFiles) -> dict[str, Any]:
    """Return the settings of a folder with the class that they or config.json name.

    If tokenizer_config.json has no `added_tokens_decoder`, the library prefers the settings of the older
    special_tokens_map.json, and reads added_tokens.json, which is returned under its name.
    """
    settings, older = (_read_file(source, name) for name in (NAME, SPECIAL_NAME))
    if settings.get("added_tokens_decoder") is None:
        lists = {key: settings.get(key) for key in _LISTS}
        settings |= older
        for key, own in lists.items():
            if isinstance(own, list) and isinstance(older.get(key), list):
                settings[key] = [*own, *(token for token in older[key] if token not in own)]
        settings[ADDED_NAME] = source.read_settings(ADDED_NAME)
    name = settings.get("tokenizer_class") or stated_configuration(source).get("tokenizer_class")
    return {**settings, "tokenizer_class": name} if name else settings


def _read_file(source: ModelFiles, name: str) -> dict[str, Any]:
    """Return the settings in a file, empty without one. Refuse code, and keys that reach outside of the folder."""
    settings, file = source.read_settings(name), source.at(name)
    settings.pop(ADDED_NAME, None)  # the name of a file, which is read elsewhere
    refuse_code(settings.get("auto_map"), file)
    checked = {key: settings[key] for key in settings if key not in ("auto_map", "added_tokens_decoder")}
    refuse_forbidden_keys(checked, file)
    remark_on_unknown(
        settings, {*SPECIAL_TOKENS, *HONORED, *_LISTS, *WITHOUT_EFFECT, *_other_tokens(settings)}, file
    )
    if settings.get("init_inputs"):
        file.refuse("ignored_key", "arguments without a name are not accepted", "init_inputs")
    return settings


def honored_settings(
    settings: Mapping[str, Any], content: Mapping[str, Any], ids: Mapping[str, int], file: FileFindings
) -> dict[str, Any]:
    """Return the settings that change tokens, as tokenizer_config.json of the rebuilt model has them.

    Args:
        settings: Return value of `read_settings`.
        content: tokenizer.json. Its sides of truncation and padding, and its padding token, count where the settings
            name none.
        ids: Token to id of the vocabulary and of added tokens.
        file: Receives the problems of the settings.
    """
    # null is another value than absent for some classes
    honored: dict[str, Any] = {key: None for key in (*_FLAGS, *SPECIAL_TOKENS) if key in settings}
    honored |= read_values(settings, HONORED, file)
    parts = {name: content.get(name) for name in ("truncation", "padding")}
    truncation, padding = (part if isinstance(part, dict) else {} for part in parts.values())
    for part, key in ((truncation, "truncation_side"), (padding, "padding_side")):
        side = str(part.get("direction")).lower()
        if honored.get(key) is None and side in ("left", "right"):
            honored[key] = side
    padding_token = settings.get("pad_token") or padding.get("pad_token")
    honored |= _special_tokens({**settings, "pad_token": padding_token}, ids, file)
    if honored.get("pad_token") is None and honored.get("eos_token"):  # usual for decoders
        honored["pad_token"] = honored["eos_token"]
        message = f"none is named; texts are padded with {quoted(_content(honored['eos_token']))}"
        file.remark("keys_left_out", message, "pad_token")
    decoder = settings.get("added_tokens_decoder")
    if decoder is None and settings.get(ADDED_NAME):
        older = settings[ADDED_NAME]
        named = [honored[key] for key in (*SPECIAL_TOKENS, *_LISTS) if honored.get(key) is not None]
        tokens = [each for value in named for each in (value if isinstance(value, list) else [value])]
        special = {_content(token) for token in tokens}
        decoder = {
            str(number): {"content": token, "normalized": token not in special, "special": token in special}
            for token, number in older.items()
        }
        decoder |= {str(token["id"]): token for token in content.get("added_tokens") or []}
    if decoder is not None:
        honored["added_tokens_decoder"] = _added_tokens(decoder, ids, file)
    names = settings.get("model_input_names")
    if inputs := [name for name in _INPUTS if isinstance(names, list) and name in names]:
        honored["model_input_names"] = inputs
    if name := settings.get("tokenizer_class"):
        honored["tokenizer_class"] = name if _CLASS.fullmatch(str(name)) else GENERIC
    return honored


def _other_tokens(settings: Mapping[str, Any]) -> list[str]:
    """Return the keys of tokens without one of the usual roles: texts, and objects that the library wrote."""
    return [
        key
        for key, value in settings.items()
        if key not in SPECIAL_TOKENS
        and _OTHER_TOKEN.fullmatch(key)
        and (isinstance(value, str) or (isinstance(value, dict) and "__type" in value))
    ]


def _special_tokens(
    settings: Mapping[str, Any], ids: Mapping[str, int], file: FileFindings
) -> dict[str, Any]:
    """Return the named tokens by role or name, and the lists of further special tokens.

    Refuse a role's token that is not in `ids`. The library adds others to the vocabulary.
    """
    tokens: dict[str, Any] = {}
    for key in (*SPECIAL_TOKENS, *_other_tokens(settings)):
        token = _token(settings.get(key), file, key)
        if token is not None and key in SPECIAL_TOKENS and _content(token) not in ids:
            message = f"{quoted(_content(token))} is no token of tokenizer.json"
            file.refuse("tokenizer_vocabulary", message, key)
        elif token is not None:
            tokens[key] = token
    for key in _LISTS:
        value = settings.get(key) or []
        values = list(value.values()) if isinstance(value, dict) else value
        if not isinstance(values, list) or len(values) > MOST_ADDED:
            file.refuse("tokenizer_value", f"it is no list of at most {MOST_ADDED:,} tokens", key)
        elif read := [token for each in values if (token := _token(each, file, key)) is not None]:
            tokens[key] = read
    return tokens


def _content(token: str | dict[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _token(value: object, file: FileFindings, key: str) -> str | dict[str, Any] | None:
    """Return a token as the library writes it, None for null or for a value that is refused."""
    if isinstance(value, dict):
        token = read_values(value, ADDED_RULES, file, key)
        token.pop("id", None)
        if token.get("content"):
            return {"__type": "AddedToken", **token}
    elif value is None or (isinstance(value, str) and 0 < len(value) <= MOST_TOKEN):
        return value
    file.refuse("tokenizer_value", f"{quoted(value)} is no token", key)
    return None


def _added_tokens(decoder: object, ids: Mapping[str, int], file: FileFindings) -> dict[str, dict[str, Any]]:
    """Return `added_tokens_decoder`, tokens by id. Refuse tokens that tokenizer.json lacks or has with another id."""
    key = "added_tokens_decoder"
    if not isinstance(decoder, dict) or len(decoder) > MOST_ADDED:
        file.refuse("tokenizer_value", f"it is no object of at most {MOST_ADDED:,} tokens", key)
        return {}
    tokens = {}
    for number, entry in decoder.items():
        token = read_values(entry, ADDED_RULES, file, key) if isinstance(entry, dict) else {}
        content = token.get("content")
        if content is None or str(ids.get(content)) != number:
            message = f"{quoted(content)} has another id in tokenizer.json, or is not there"
            file.refuse("tokenizer_vocabulary", message, f"{key}.{number}")
        else:
            tokens[number] = {name: value for name, value in token.items() if name != "id"}
    return tokens
