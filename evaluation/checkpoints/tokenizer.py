"""Tokenizer files: tokenizer.json and its settings are read, checked, and written again without unused parts.

The library's parser checks the parts of a tokenizer when the model is built. This module performs the other
checks: nesting, regular expressions that may backtrack, token ids, and random splitting of words.

For most classes, the library builds the tokenizer from the vocabulary and settings such as `do_lower_case`, regardless
of the other parts of `tokenizer.json`. A rebuilt checkpoint therefore names the class and contains all settings that
change tokens.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints.configuration import refuse_code, stated_configuration
from evaluation.checkpoints.files import CHAT_TEMPLATE, ModelFiles, read_file
from evaluation.checkpoints.findings import (
    MAX_POSITIONS,
    MAX_TOKEN,
    MAX_TOKENIZER,
    MAX_VOCABULARY,
    FileFindings,
    Refused,
    attempt,
    quoted,
    summarize_names,
)
from evaluation.checkpoints.values import (
    TRUTH,
    Rule,
    choice,
    integer,
    read_values,
    refuse_forbidden_keys,
    remark_on_unknown,
    text,
)

NAME = "tokenizer.json"
_MAX_TEMPLATE = 64 * 1024
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
_KEYS = frozenset({"version", "truncation", "padding", "added_tokens", *_PARTS})
_MAX_MERGES = 1_000_000
_MAX_WORD = 1000
#: Maximum depth of nested settings, number of settings in one object, and characters of a character map.
_MAX_DEPTH, _MAX_SETTINGS, _MAX_TEXT = 10, 64, 4 * 1024 * 1024

_LETTERS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SHORT_FORMS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#: Regular expressions of well-known tokenizers.
_KNOWN_EXPRESSIONS = frozenset({
    " {2,}", r"\s+", r"\s", r"[\r\n]", r"\p{N}{1,3}", r"\d",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    _LETTERS.format("{1,3}"), _LETTERS.format(""),
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SHORT_FORMS}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SHORT_FORMS}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
})  # fmt: skip
#: Simple expressions: characters and classes, no groups, and at most one repetition, so that they match
#: quickly.
_ATOM = (
    r"(?:[A-Za-z0-9 _,;:!@#%&=<>~\"'/▁-]|\\[sSdDwWrnt.+*?()\[\]{}|^$\\/-]|\\p\{[A-Za-z]{1,20}\}"
    r"|\[\^?(?:[^\[\]\\]|\\.){1,80}\]|\.)"
)
_SIMPLE = re.compile(
    rf"\^?{_ATOM}{{0,20}}?(?:{_ATOM}(?:[+*?]|\{{\d{{1,3}}(?:,\d{{0,3}})?\}})){{0,1}}{_ATOM}{{0,20}}?\$?"
)


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A checked tokenizer.

    Attributes:
        content: tokenizer.json of the rebuilt model.
        settings: Settings that change tokens, including the special tokens and the class.
        maximum_length: Maximum number of tokens in a text, None if the settings do not limit it.
        chat_template: The chat template of the model, empty if there is none.
    """

    content: dict[str, Any]
    settings: dict[str, Any]
    maximum_length: int | None
    chat_template: str

    def find_id(self, token: str) -> int | None:
        """Return the id of a token, or None if it is unknown or the vocabulary has scores."""
        vocabulary = self.content["model"]["vocab"]
        return vocabulary.get(token) if isinstance(vocabulary, dict) else None

    def written_settings(self, maximum_length: int, token_types: bool) -> dict[str, Any]:
        """Return tokenizer_config.json of the rebuilt model, with or without token types."""
        inputs = {} if token_types else {"model_input_names": ["input_ids", "attention_mask"]}
        return {
            **inputs,
            **self.settings,
            "model_max_length": maximum_length,
            "clean_up_tokenization_spaces": False,
        }


def read_tokenizer(source: ModelFiles, rows: int | None, keep_truncation: bool = False) -> Tokenizer:
    """Read the tokenizer of a folder for a model with `rows` embeddings, or with an unknown number of them.

    Truncation and padding are omitted, because engines set both. `keep_truncation` retains truncation, for models for
    which engines do not set it. Unsupported parts, and ids without an embedding, are added to the findings. Raises
    Refused if the file is missing or damaged, or its vocabulary or its added tokens are unusable.
    """
    findings = source.at(NAME)
    if not source.has(NAME):
        findings.stop("missing_tokenizer", "the file is missing")
    content = source.read_object(NAME, MAX_TOKENIZER)
    if unknown_keys := sorted(key for key in content if key not in _KEYS):
        findings.refuse("tokenizer_value", f"the keys {summarize_names(unknown_keys)} are not supported")
    ids = attempt(lambda: _check_parts(content, findings))
    added_tokens = _read_added_tokens(content.get("added_tokens"), findings)
    if ids is None:
        raise Refused
    ids |= {token["content"]: token["id"] for token in added_tokens}
    highest_id = max(ids.values(), default=-1)
    if highest_id < 0:
        findings.refuse("tokenizer_vocabulary", "it has no tokens")
    elif rows is not None and highest_id >= rows:
        message = f"a token has the id {highest_id:,}, but the model has {rows:,} embeddings"
        findings.refuse("tokenizer_vocabulary", message)
    settings = read_tokenizer_settings(source)
    template = settings.get("chat_template")
    if source.has(CHAT_TEMPLATE):
        try:
            data = read_file(source.path(CHAT_TEMPLATE), _MAX_TEMPLATE)
            source.allowance.take(len(data))
            template = data.decode("utf-8")
        except ValueError:
            template = None
    if not isinstance(template, str) or len(template) > _MAX_TEMPLATE:
        template = ""
    if template:
        source.at(SETTINGS_NAME).remark("left_out", "a chat template is a program and is never run")
    max_length: Any = settings.get("model_max_length")
    return Tokenizer(
        {
            "version": "1.0",
            "truncation": content.get("truncation") if keep_truncation else None,
            "padding": None,
            "added_tokens": added_tokens,
            **{key: content.get(key) for key in _PARTS},
        },
        honored_settings(settings, content, ids, source.at(SETTINGS_NAME)),
        min(int(max_length), MAX_POSITIONS) if type(max_length) in (int, float) and max_length >= 1 else None,
        template,
    )


def _check_parts(content: Mapping[str, Any], findings: FileFindings) -> dict[str, int]:
    """Return the ids of the vocabulary by token, and add errors for unsupported parts of tokenizer.json.

    The vocabulary is an object of tokens and ids, or a list of tokens with scores. Raises Refused if it is neither, or
    if tokens or ids are repeated or too large.
    """
    for role in ("truncation", *_PARTS[:-1]):
        _check_setting(content.get(role), role, findings)
    model = content.get("model")
    if not isinstance(model, dict):
        findings.stop("tokenizer_value", "it is not an object { … }", "model")
    _check_setting({key: model[key] for key in model if key not in ("vocab", "merges")}, "model", findings)
    merges, max_word_length = model.get("merges"), model.get("max_input_chars_per_word")
    if isinstance(merges, list) and len(merges) > _MAX_MERGES:
        findings.refuse("tokenizer_value", f"it has over {_MAX_MERGES:,} pairs", "model.merges")
    if model.get("dropout") or (max_word_length is not None and max_word_length not in range(_MAX_WORD + 1)):
        word_limit = f"accepts words of over {_MAX_WORD:,} characters"
        message = f"it has dropout, which splits words at random, or {word_limit}"
        findings.refuse("tokenizer_value", message, "model")
    vocab = model.get("vocab")
    ids: dict[str, int] = {}
    if isinstance(vocab, dict):
        if all(type(number) is int and 0 <= number < MAX_VOCABULARY for number in vocab.values()):
            ids = dict(vocab)
    elif (
        isinstance(vocab, list)
        and len(vocab) <= MAX_VOCABULARY
        and all(isinstance(entry, list) and entry and isinstance(entry[0], str) for entry in vocab)
    ):
        ids = {entry[0]: index for index, entry in enumerate(vocab)}
    has_unique_ids = isinstance(vocab, dict | list) and len(set(ids.values())) == len(vocab)
    if not has_unique_ids or any(len(token) > MAX_TOKEN for token in ids):
        message = (
            f"it is not an object of at most {MAX_VOCABULARY:,} tokens and ids, or a list of tokens with scores, "
            f"without repetitions and with at most {MAX_TOKEN:,} characters per token"
        )
        findings.stop("tokenizer_vocabulary", message, "model.vocab")
    return ids


def _check_setting(value: Any, path: str, findings: FileFindings, depth: int = 0) -> None:
    """Refuse deep nesting, large objects, long texts, and regular expressions that may be slow.

    Nested values are checked too. `path` names the value in messages.
    """
    if isinstance(value, dict | list):
        if depth > _MAX_DEPTH or len(value) > _MAX_SETTINGS:
            findings.refuse("tokenizer_value", "it is nested too deeply or has too many parts", path)
            return
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if key == "Regex":
                if not (isinstance(item, str) and is_harmless(item)):
                    findings.refuse("tokenizer_regex", f"{quoted(item)} is not accepted", path)
            else:
                inner_path = f"{path}.{key}" if isinstance(value, dict) else f"{path}[{key}]"
                _check_setting(item, inner_path, findings, depth + 1)
    elif isinstance(value, str):
        limit = _MAX_TEXT if path.endswith(".precompiled_charsmap") else 64
        if len(value) > limit:
            findings.refuse("tokenizer_value", "the text is too long", path)


def is_harmless(expression: str) -> bool:
    """Return whether a regular expression is well known, or simple enough to match quickly."""
    return expression in _KNOWN_EXPRESSIONS or (len(expression) <= 200 and _SIMPLE.fullmatch(expression) is not None)


def _read_added_tokens(content: object, findings: FileFindings) -> list[dict[str, Any]]:
    """Return the checked added tokens of tokenizer.json, with false for missing switches.

    Raises Refused if one is malformed.
    """
    if content is None:
        return []
    if not isinstance(content, list) or len(content) > MAX_ADDED:
        findings.stop("tokenizer_value", f"it is not a list of at most {MAX_ADDED:,} tokens", "added_tokens")
    added_tokens = []
    for number, entry in enumerate(content):
        path = f"added_tokens[{number}]"
        if not isinstance(entry, dict) or set(entry) - set(ADDED_RULES):
            findings.stop("tokenizer_value", "it is not an added token in the library's format", path)
        token = read_values(entry, ADDED_RULES, findings, path)
        if "id" not in token or not token.get("content"):
            findings.stop("tokenizer_value", "it has no id or no content", path)
        switches = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        added_tokens.append({**switches, **token})
    return added_tokens


SETTINGS_NAME = "tokenizer_config.json"
SPECIAL_NAME, ADDED_NAME = "special_tokens_map.json", "added_tokens.json"
SPECIAL_TOKENS = tuple(f"{role}_token" for role in ("unk", "sep", "pad", "cls", "mask", "bos", "eos"))
MAX_ADDED = 20_000
ADDED_RULES = {
    "id": integer(0, MAX_VOCABULARY),
    "content": text(MAX_TOKEN),
    **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), TRUTH),
}
#: Pattern of tokenizer class names. The library replaces unknown ones by the generic class.
_CLASS = re.compile(r"(?!Auto)[A-Za-z]\w{0,63}Tokenizer(Fast)?", re.ASCII)
#: Class that uses tokenizer.json without changes.
GENERIC = "PreTrainedTokenizerFast"
_INPUTS = ("input_ids", "token_type_ids", "attention_mask")
_FLAGS_TEXT = """
do_lower_case tokenize_chinese_chars strip_accents clean_text keep_accents remove_space split_by_punct
add_prefix_space split_special_tokens add_bos_token add_eos_token legacy legacy_behaviour predict_timestamps
"""
_FLAGS = _FLAGS_TEXT.split()
_SIDE = choice("left", "right")
#: Settings that change tokens in at least one class.
HONORED: Mapping[str, Rule] = {
    **dict.fromkeys(_FLAGS, TRUTH),
    **dict.fromkeys(("extra_ids", "offset", "unk_id"), integer(0, MAX_ADDED)),
    **dict.fromkeys(("src_lang", "tgt_lang", "language", "task", "wordpieces_prefix", "mask_token_sent"), text(64)),
    "padding_side": _SIDE,
    "truncation_side": _SIDE,
}
#: Pattern of keys of tokens without a usual role.
_OTHER_TOKEN = re.compile(r"[A-Za-z]\w{0,63}_token", re.ASCII)
_LISTS = ("extra_special_tokens", "additional_special_tokens")
_WITHOUT_EFFECT_TEXT = """
tokenizer_class do_basic_tokenize never_split name_or_path backend is_local local_files_only
clean_up_tokenization_spaces added_tokens_decoder special_tokens_map_file sp_model_kwargs model_input_names trim_offsets
errors max_length stride truncation_strategy pad_to_multiple_of pad_token_type_id processor_class use_fast do_lower
vocab_type handle_chinese_chars lowercase model_max_length chat_template auto_map spaces_between_special_tokens
use_default_system_prompt
"""
#: Settings that the library ignores or uses for other purposes.
WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT_TEXT.split())


def read_tokenizer_settings(source: ModelFiles) -> dict[str, Any]:
    """Return a tokenizer's settings, with the class in config.json if they do not name one.

    If tokenizer_config.json has no `added_tokens_decoder`, the library prefers the settings of the older
    special_tokens_map.json, and reads added_tokens.json, which is returned under its name. Code and forbidden keys are
    added to the findings as errors, and unknown keys as a remark.
    """
    read_names = []
    for name in (SETTINGS_NAME, SPECIAL_NAME):
        content, findings = source.read_settings(name), source.at(name)
        content.pop(ADDED_NAME, None)  # This is the name of a file, which is read separately.
        refuse_code(content.get("auto_map"), findings)
        checked_settings = {key: content[key] for key in content if key not in ("auto_map", "added_tokens_decoder")}
        refuse_forbidden_keys(checked_settings, findings)
        known_keys = {*SPECIAL_TOKENS, *HONORED, *_LISTS, *WITHOUT_EFFECT, *_other_token_keys(content)}
        remark_on_unknown(content, known_keys, findings)
        if content.get("init_inputs"):
            findings.refuse("ignored_key", "positional arguments are not accepted", "init_inputs")
        read_names.append(content)
    settings, older_settings = read_names
    if settings.get("added_tokens_decoder") is None:
        lists = {key: settings.get(key) for key in _LISTS}
        settings |= older_settings
        for key, own_tokens in lists.items():
            if isinstance(own_tokens, list) and isinstance(older_settings.get(key), list):
                settings[key] = own_tokens + [token for token in older_settings[key] if token not in own_tokens]
        settings[ADDED_NAME] = source.read_settings(ADDED_NAME)
    tokenizer_class = settings.get("tokenizer_class") or stated_configuration(source).get("tokenizer_class")
    return {**settings, "tokenizer_class": tokenizer_class} if tokenizer_class else settings


def honored_settings(
    settings: Mapping[str, Any], content: Mapping[str, Any], ids: Mapping[str, int], findings: FileFindings
) -> dict[str, Any]:
    """Return the settings that change tokens, as in tokenizer_config.json of the rebuilt model.

    Args:
        settings: Return value of `read_tokenizer_settings`.
        content: tokenizer.json. Its sides of truncation and padding, and its padding token, are used if the settings
            have none.
        ids: Token to id of the vocabulary and of added tokens.
        findings: Receives the problems of the settings.
    """
    # For some classes, null differs from an absent key.
    honored: dict[str, Any] = {key: None for key in (*_FLAGS, *SPECIAL_TOKENS) if key in settings}
    honored |= read_values(settings, HONORED, findings)
    parts = {name: content.get(name) for name in ("truncation", "padding")}
    truncation, padding = (part if isinstance(part, dict) else {} for part in parts.values())
    for part, key in ((truncation, "truncation_side"), (padding, "padding_side")):
        side = str(part.get("direction")).lower()
        if honored.get(key) is None and side in ("left", "right"):
            honored[key] = side
    padding_token = settings.get("pad_token") or padding.get("pad_token")
    honored |= _special_tokens({**settings, "pad_token": padding_token}, ids, findings)
    if honored.get("pad_token") is None and honored.get("eos_token"):  # Usual for decoders.
        honored["pad_token"] = honored["eos_token"]
        message = f"there is none; texts are padded with {quoted(_get_content(honored['eos_token']))}"
        findings.remark("keys_left_out", message, "pad_token")
    decoder = settings.get("added_tokens_decoder")
    if decoder is None and settings.get(ADDED_NAME):
        older_tokens = settings[ADDED_NAME]
        named_tokens = [honored[key] for key in (*SPECIAL_TOKENS, *_LISTS) if honored.get(key) is not None]
        tokens = [token for value in named_tokens for token in (value if isinstance(value, list) else [value])]
        special = {_get_content(token) for token in tokens}
        decoder = {
            str(number): {"content": token, "normalized": token not in special, "special": token in special}
            for token, number in older_tokens.items()
        }
        decoder |= {str(token["id"]): token for token in content.get("added_tokens") or []}
    if decoder is not None:
        honored["added_tokens_decoder"] = _check_added_tokens(decoder, ids, findings)
    names = settings.get("model_input_names")
    if inputs := [name for name in _INPUTS if isinstance(names, list) and name in names]:
        honored["model_input_names"] = inputs
    if name := settings.get("tokenizer_class"):
        honored["tokenizer_class"] = name if _CLASS.fullmatch(str(name)) else GENERIC
    return honored


def _other_token_keys(settings: Mapping[str, Any]) -> list[str]:
    """Return the keys of tokens without a usual role: strings, and objects that the library wrote."""
    return [
        key
        for key, value in settings.items()
        if key not in SPECIAL_TOKENS
        and _OTHER_TOKEN.fullmatch(key)
        and (isinstance(value, str) or (isinstance(value, dict) and "__type" in value))
    ]


def _special_tokens(settings: Mapping[str, Any], ids: Mapping[str, int], findings: FileFindings) -> dict[str, Any]:
    """Return the named tokens by role or name, and the lists of further special tokens.

    Refuse a role's token that is not in `ids`. The library adds other unknown tokens to the vocabulary.
    """
    tokens: dict[str, Any] = {}
    for key in (*SPECIAL_TOKENS, *_other_token_keys(settings)):
        token = _parse_token(settings.get(key), findings, key)
        if token is not None and key in SPECIAL_TOKENS and _get_content(token) not in ids:
            message = f"{quoted(_get_content(token))} is not a token of tokenizer.json"
            findings.refuse("tokenizer_vocabulary", message, key)
        elif token is not None:
            tokens[key] = token
    for key in _LISTS:
        value = settings.get(key) or []
        values = list(value.values()) if isinstance(value, dict) else value
        if not isinstance(values, list) or len(values) > MAX_ADDED:
            findings.refuse("tokenizer_value", f"it is not a list of at most {MAX_ADDED:,} tokens", key)
        elif parsed_tokens := [token for value in values if (token := _parse_token(value, findings, key)) is not None]:
            tokens[key] = parsed_tokens
    return tokens


def _get_content(token: str | dict[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _parse_token(value: object, findings: FileFindings, key: str) -> str | dict[str, Any] | None:
    """Return a token in the library's format, or None for null and for refused values."""
    if isinstance(value, dict):
        token = read_values(value, ADDED_RULES, findings, key)
        token.pop("id", None)
        if token.get("content"):
            return {"__type": "AddedToken", **token}
    elif value is None or (isinstance(value, str) and 0 < len(value) <= MAX_TOKEN):
        return value
    findings.refuse("tokenizer_value", f"{quoted(value)} is not a token", key)
    return None


def _check_added_tokens(decoder: object, ids: Mapping[str, int], findings: FileFindings) -> dict[str, dict[str, Any]]:
    """Return the tokens of `added_tokens_decoder` by id, without tokens that contradict tokenizer.json.

    Adds an error for each token that is omitted.
    """
    key = "added_tokens_decoder"
    if not isinstance(decoder, dict) or len(decoder) > MAX_ADDED:
        findings.refuse("tokenizer_value", f"it is not an object of at most {MAX_ADDED:,} tokens", key)
        return {}
    tokens = {}
    for number, entry in decoder.items():
        token = read_values(entry, ADDED_RULES, findings, key) if isinstance(entry, dict) else {}
        content = token.get("content")
        if content is None or str(ids.get(content)) != number:
            message = f"{quoted(content)} is missing in tokenizer.json or has another id there"
            findings.refuse("tokenizer_vocabulary", message, f"{key}.{number}")
        else:
            tokens[number] = {name: value for name, value in token.items() if name != "id"}
    return tokens
