"""tokenizer.json and its settings: read, checked, and written again without unused parts.

The library's parser checks the parts of a tokenizer when the model is made. This module checks what the parser does
not: depth of nesting, expressions that can be tried in many ways, ids of tokens, and words that are split at random.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints import tokenizer_settings
from evaluation.checkpoints.files import CHAT_TEMPLATE, ModelFiles
from evaluation.checkpoints.findings import FileFindings, Refused, attempt, listed, quoted
from evaluation.checkpoints.json_reading import NotJson, read_file
from evaluation.checkpoints.limits import MOST_POSITIONS, MOST_TOKEN, MOST_TOKENIZER, MOST_VOCABULARY
from evaluation.checkpoints.tokenizer_settings import ADDED_RULES, MOST_ADDED
from evaluation.checkpoints.values import read_values

NAME = "tokenizer.json"
_MOST_TEMPLATE = 64 * 1024
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
_KEYS = frozenset({"version", "truncation", "padding", "added_tokens", *_PARTS})
_MOST_MERGES = 1_000_000
_MOST_WORD = 1000
#: Depth of nested settings, settings side by side, and characters of a map of characters.
_MOST_DEPTH, _MOST_SETTINGS, _MOST_TEXT = 10, 64, 4 * 1024 * 1024

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
#: Others: characters and classes, without groups, and with at most one repetition, so that they match quickly.
_ATOM = (
    r"(?:[A-Za-z0-9 _,;:!@#%&=<>~\"'/▁-]|\\[sSdDwWrnt.+*?()\[\]{}|^$\\/-]|\\p\{[A-Za-z]{1,20}\}"
    r"|\[\^?(?:[^\[\]\\]|\\.){1,80}\]|\.)"
)
_SIMPLE = re.compile(
    rf"\^?{_ATOM}{{0,20}}?(?:{_ATOM}(?:[+*?]|\{{\d{{1,3}}(?:,\d{{0,3}})?\}})){{0,1}}{_ATOM}{{0,20}}?\$?"
)


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer that was read.

    Attributes:
        content: tokenizer.json of the rebuilt model.
        settings: Settings that change tokens, among them the special tokens and the class.
        maximum_length: Tokens in a text, None if the settings have no limit.
        chat_template: The template that was beside it, empty if there was none.
    """

    content: dict[str, Any]
    settings: dict[str, Any]
    maximum_length: int | None
    chat_template: str

    def id_of(self, token: str) -> int | None:
        """Return the id of a token in the vocabulary, None for an unknown one and for a vocabulary with scores."""
        vocabulary = self.content["model"]["vocab"]
        return vocabulary.get(token) if isinstance(vocabulary, dict) else None

    def written_settings(self, maximum_length: int, token_types: bool) -> dict[str, Any]:
        """Return tokenizer_config.json of the rebuilt model, which has token types or not."""
        inputs = {} if token_types else {"model_input_names": ["input_ids", "attention_mask"]}
        return {
            **inputs,
            **self.settings,
            "model_max_length": maximum_length,
            "clean_up_tokenization_spaces": False,
        }


def read_tokenizer(source: ModelFiles, rows: int | None, keep_truncation: bool = False) -> Tokenizer:
    """Return the tokenizer of a folder for a model with `rows` embeddings. Raises Refused.

    Truncation and padding are left out, because engines set both. `keep_truncation` keeps the first, for models of
    which engines do not set it.
    """
    file = source.at(NAME)
    if not source.has(NAME):
        file.stop("missing_tokenizer", "the file is missing")
    stated = source.read_object(NAME, MOST_TOKENIZER)
    if unknown := sorted(key for key in stated if key not in _KEYS):
        file.refuse("tokenizer_value", f"the keys {listed(unknown)} are not known here")
    ids = attempt(lambda: _check_parts(stated, file))
    added = _read_added(stated.get("added_tokens"), file)
    if ids is None:
        raise Refused
    ids |= {token["content"]: token["id"] for token in added}
    highest = max(ids.values(), default=-1)
    if highest < 0:
        file.refuse("tokenizer_vocabulary", "it has no tokens")
    elif rows is not None and highest >= rows:
        message = f"a token has the id {highest:,}, and the model has {rows:,} embeddings"
        file.refuse("tokenizer_vocabulary", message)
    settings = tokenizer_settings.read_settings(source)
    template = _chat_template(source, settings)
    if template:
        remark = "a chat template is a program, and never run"
        source.at(tokenizer_settings.NAME).remark("left_out", remark)
    longest: Any = settings.get("model_max_length")
    return Tokenizer(
        {
            "version": "1.0",
            "truncation": stated.get("truncation") if keep_truncation else None,
            "padding": None,
            "added_tokens": added,
            **{key: stated.get(key) for key in _PARTS},
        },
        tokenizer_settings.honored_settings(settings, stated, ids, source.at(tokenizer_settings.NAME)),
        min(int(longest), MOST_POSITIONS) if type(longest) in (int, float) and longest >= 1 else None,
        template,
    )


def _check_parts(stated: Mapping[str, Any], file: FileFindings) -> dict[str, int]:
    """Check all parts, and return the ids of the vocabulary. Raises Refused without a usable one."""
    for role in ("truncation", *_PARTS[:-1]):
        _check_setting(stated.get(role), role, file)
    model = stated.get("model")
    if not isinstance(model, dict):
        file.stop("tokenizer_value", "it is no object { … }", "model")
    _check_setting({key: model[key] for key in model if key not in ("vocab", "merges")}, "model", file)
    merges, longest = model.get("merges"), model.get("max_input_chars_per_word")
    if isinstance(merges, list) and len(merges) > _MOST_MERGES:
        file.refuse("tokenizer_value", f"it has over {_MOST_MERGES:,} pairs", "model.merges")
    if model.get("dropout") or (longest is not None and longest not in range(_MOST_WORD + 1)):
        longer = f"takes words of over {_MOST_WORD:,} characters"
        message = f"it has dropout, with which a word is cut by chance, or {longer}"
        file.refuse("tokenizer_value", message, "model")
    return _read_vocabulary(model.get("vocab"), file)


def _check_setting(value: Any, path: str, file: FileFindings, depth: int = 0) -> None:
    """Refuse deep nesting, many settings side by side, and expressions that may take long."""
    if isinstance(value, dict | list):
        if depth > _MOST_DEPTH or len(value) > _MOST_SETTINGS:
            file.refuse("tokenizer_value", "it is nested deep, or has many parts", path)
            return
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if key == "Regex":
                if not (isinstance(inner, str) and is_harmless(inner)):
                    file.refuse("tokenizer_regex", f"{quoted(inner)} is not taken", path)
            else:
                here = f"{path}.{key}" if isinstance(value, dict) else f"{path}[{key}]"
                _check_setting(inner, here, file, depth + 1)
    elif isinstance(value, str):
        most = _MOST_TEXT if path.endswith(".precompiled_charsmap") else 64
        if len(value) > most:
            file.refuse("tokenizer_value", "it is a long text", path)


def is_harmless(expression: str) -> bool:
    """Return whether a regular expression is well known, or so simple that it matches quickly."""
    return expression in _KNOWN_EXPRESSIONS or (
        len(expression) <= 200 and _SIMPLE.fullmatch(expression) is not None
    )


def _read_vocabulary(vocab: Any, file: FileFindings) -> dict[str, int]:
    """Return ids by token, each id once, from an object of tokens and ids or a list of tokens with scores."""
    ids: dict[str, int] = {}
    if isinstance(vocab, dict):
        if all(type(number) is int and 0 <= number < MOST_VOCABULARY for number in vocab.values()):
            ids = dict(vocab)
    elif isinstance(vocab, list) and len(vocab) <= MOST_VOCABULARY and all(map(_is_scored, vocab)):
        ids = {entry[0]: place for place, entry in enumerate(vocab)}
    unique = isinstance(vocab, dict | list) and len(set(ids.values())) == len(vocab)
    if not unique or any(len(token) > MOST_TOKEN for token in ids):
        message = (
            f"it is no object of at most {MOST_VOCABULARY:,} tokens and ids, or list of tokens with scores, each "
            f"once and of at most {MOST_TOKEN:,} characters"
        )
        file.stop("tokenizer_vocabulary", message, "model.vocab")
    return ids


def _is_scored(entry: Any) -> bool:
    return isinstance(entry, list) and bool(entry) and isinstance(entry[0], str)


def _read_added(stated: object, file: FileFindings) -> list[dict[str, Any]]:
    if stated is None:
        return []
    if not isinstance(stated, list) or len(stated) > MOST_ADDED:
        file.stop("tokenizer_value", f"it is no list of at most {MOST_ADDED:,} tokens", "added_tokens")
    added = []
    for number, entry in enumerate(stated):
        path = f"added_tokens[{number}]"
        if not isinstance(entry, dict) or set(entry) - set(ADDED_RULES):
            file.stop("tokenizer_value", "it is no added token as the library writes it", path)
        token = read_values(entry, ADDED_RULES, file, path)
        if "id" not in token or not token.get("content"):
            file.stop("tokenizer_value", "it has no id or no content", path)
        switches = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        added.append({**switches, **token})
    return added


def _chat_template(source: ModelFiles, settings: dict[str, Any]) -> str:
    """Return the chat template, which is a program, as text; empty if there is none, or a long one."""
    template = settings.get("chat_template")
    if source.has(CHAT_TEMPLATE):
        try:
            data = read_file(source.path(CHAT_TEMPLATE), _MOST_TEMPLATE)
            source.allowance.take_json(len(data))
            template = data.decode("utf-8")
        except (NotJson, ValueError):
            return ""
    return template if isinstance(template, str) and len(template) <= _MOST_TEMPLATE else ""
