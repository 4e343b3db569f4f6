"""What tokenizer.json may hold, whatever its parts are: the library's own parser says what these have to be.

Here is what it does not ask: that nothing is nested deep, that no expression can be tried in many ways, that every
token has an id of its own, and that a word is cut the same way each time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from evaluation.checkpoints.findings import Findings, quoted
from evaluation.checkpoints.limits import MOST_TOKEN, MOST_VOCABULARY

_MOST_MERGES = 1_000_000
_MOST_WORD = 1000
#: Of settings: how deep they are nested, how many stand side by side, and how long a map of characters is.
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
#: Others: characters and classes, without groups, with one repetition at most. Nothing there can be tried in many ways.
_ATOM = (
    r"(?:[A-Za-z0-9 _,;:!@#%&=<>~\"'/▁-]|\\[sSdDwWrnt.+*?()\[\]{}|^$\\/-]|\\p\{[A-Za-z]{1,20}\}"
    r"|\[\^?(?:[^\[\]\\]|\\.){1,80}\]|\.)"
)
_SIMPLE = re.compile(
    rf"\^?{_ATOM}{{0,20}}?(?:{_ATOM}(?:[+*?]|\{{\d{{1,3}}(?:,\d{{0,3}})?\}})){{0,1}}{_ATOM}{{0,20}}?\$?"
)


def check_parts(found: Mapping[str, Any], shown: str, findings: Findings) -> dict[str, int] | None:
    """Check all parts of a tokenizer; the ids of its vocabulary, or None where there is none to be had."""
    model = found.get("model")
    for role in ("truncation", "normalizer", "pre_tokenizer", "post_processor", "decoder"):
        _check_setting(found.get(role), role, shown, findings)
    if not isinstance(model, dict):
        findings.refuse("tokenizer_value", shown, "it is no object { … }", "model")
        return None
    own = {key: value for key, value in model.items() if key not in ("vocab", "merges")}
    _check_setting(own, "model", shown, findings)
    merges, longest = model.get("merges"), model.get("max_input_chars_per_word")
    if isinstance(merges, list) and len(merges) > _MOST_MERGES:
        findings.refuse("tokenizer_value", shown, f"it has over {_MOST_MERGES:,} pairs", "model.merges")
    if model.get("dropout") or (longest is not None and longest not in range(_MOST_WORD + 1)):
        what = f"it has dropout, with which a word is cut by chance, or takes words of over {_MOST_WORD:,} characters"
        findings.refuse("tokenizer_value", shown, what, "model")
    return _read_vocabulary(model.get("vocab"), shown, findings)


def _check_setting(value: Any, path: str, shown: str, findings: Findings, depth: int = 0) -> None:
    """Refuse what is nested deep or has much in it, and expressions that are not known to be quick."""
    if isinstance(value, dict | list):
        if depth > _MOST_DEPTH or len(value) > _MOST_SETTINGS:
            findings.refuse("tokenizer_value", shown, "it is nested deep, or has many parts", path)
            return
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if key == "Regex":
                if not (isinstance(inner, str) and is_harmless(inner)):
                    findings.refuse("tokenizer_regex", shown, f"{quoted(inner)} is not taken", path)
            else:
                here = f"{path}.{key}" if isinstance(value, dict) else f"{path}[{key}]"
                _check_setting(inner, here, shown, findings, depth + 1)
    elif isinstance(value, str) and len(value) > (
        _MOST_TEXT if path.endswith(".precompiled_charsmap") else 64
    ):
        findings.refuse("tokenizer_value", shown, "it is a long text", path)


def is_harmless(expression: str) -> bool:
    """Whether a regular expression is known, or so simple that matching it takes no time to speak of."""
    return expression in _KNOWN_EXPRESSIONS or (
        len(expression) <= 200 and _SIMPLE.fullmatch(expression) is not None
    )


def _read_vocabulary(vocab: Any, shown: str, findings: Findings) -> dict[str, int] | None:
    """Token to id, each id once: an object of tokens and ids, or a list of tokens with scores."""
    ids = None
    if isinstance(vocab, dict):
        fits = all(type(number) is int and 0 <= number < MOST_VOCABULARY for number in vocab.values())
        ids = dict(vocab) if fits and len(set(vocab.values())) == len(vocab) else None
    elif isinstance(vocab, list) and all(
        isinstance(entry, list) and entry and isinstance(entry[0], str) for entry in vocab
    ):
        found = {entry[0]: place for place, entry in enumerate(vocab)}
        ids = found if len(found) == len(vocab) <= MOST_VOCABULARY else None
    if ids is None or any(len(token) > MOST_TOKEN for token in ids):
        what = (
            f"it is no object of at most {MOST_VOCABULARY:,} tokens and ids, or list of tokens with scores, each "
            f"once and of at most {MOST_TOKEN:,} characters"
        )
        findings.refuse("tokenizer_vocabulary", shown, what, "model.vocab")
        return None
    return ids
