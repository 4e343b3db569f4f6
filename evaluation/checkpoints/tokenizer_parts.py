"""The parts of tokenizer.json, each of a known type with known settings."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any

from evaluation.checkpoints.findings import Findings, listed, quoted
from evaluation.checkpoints.values import TRUTH, Rule, choice, number, text, whole

_MOST_TOKENS = 512_000
_MOST_MERGES = 1_000_000
_MOST_TOKEN = 2000
_MOST_CHARSMAP = 4 * 1024 * 1024

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
#: Regular expressions of well-known tokenizers.
_KNOWN_EXPRESSIONS = frozenset({
    " {2,}", r"\s+", r"\s", r"[\r\n]", r"\p{N}{1,3}", r"\d",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    _WORDS.format("{1,3}"), _WORDS.format(""),
})  # fmt: skip
#: Others: characters and classes, without groups, with one repetition at most. Nothing there can be tried in many ways.
_ATOM = (
    r"(?:[A-Za-z0-9 _,;:!@#%&=<>~\"'/▁-]|\\[sSdDwWrnt.+*?()\[\]{}|^$\\/-]|\\p\{[A-Za-z]{1,20}\}"
    r"|\[\^?(?:[^\[\]\\]|\\.){1,80}\]|\.)"
)
_SIMPLE = re.compile(
    rf"\^?{_ATOM}{{0,20}}?(?:{_ATOM}(?:[+*?]|\{{\d{{1,3}}(?:,\d{{0,3}})?\}})){{0,1}}{_ATOM}{{0,20}}?\$?"
)

_SCHEME = choice("always", "never", "first")
_BEHAVIOUR = choice("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
_SHORT = text(64)
_PAIR = Rule(
    lambda value: (
        isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and type(value[1]) is int
    ),
    "a token and its id",
)
_OPTIONAL_TRUTH = Rule(lambda value: value is None or isinstance(value, bool), "true, false or null")
_ANYTHING = Rule(lambda value: True, "anything")
_NESTED = Rule(lambda value: isinstance(value, list), "a list")
_PATTERN = Rule(lambda value: isinstance(value, dict), "a pattern")
_CHARSMAP = Rule(lambda value: value is None or _is_base64(value), "base64 of at most 4 MiB")
_BYTE_LEVEL: dict[str, Rule] = dict.fromkeys(("add_prefix_space", "trim_offsets", "use_regex"), TRUTH)
_METASPACE = {
    "replacement": Rule(lambda value: isinstance(value, str) and len(value) == 1, "one character"),
    "add_prefix_space": TRUTH, "prepend_scheme": _SCHEME, "split": TRUTH, "str_rep": text(1),
}  # fmt: skip
_TEMPLATE = Rule(lambda value: _is_template(value), "a list of special tokens and sequences")
_TEMPLATE_TOKENS = Rule(lambda value: _are_template_tokens(value), "special tokens with their ids")

Rules = Mapping[str, Rule]
_PARTS: dict[str, dict[str, Rules]] = {
    "normalizer": {
        "BertNormalizer": {"clean_text": TRUTH, "handle_chinese_chars": TRUTH, "strip_accents": _OPTIONAL_TRUTH,
                           "lowercase": TRUTH},
        **{name: {} for name in ("Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Nmt", "ByteLevel")},
        "Strip": {"strip_left": TRUTH, "strip_right": TRUTH},
        "Prepend": {"prepend": _SHORT},
        "Replace": {"pattern": _PATTERN, "content": _SHORT},
        "Precompiled": {"precompiled_charsmap": _CHARSMAP},
        "Sequence": {"normalizers": _NESTED},
    },
    "pre_tokenizer": {
        **{name: {} for name in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts")},
        "ByteLevel": _BYTE_LEVEL,
        "Metaspace": _METASPACE,
        "Punctuation": {"behavior": _BEHAVIOUR},
        "Digits": {"individual_digits": TRUTH},
        "CharDelimiterSplit": {"delimiter": text(1)},
        "Split": {"pattern": _PATTERN, "behavior": _BEHAVIOUR, "invert": TRUTH},
        "Sequence": {"pretokenizers": _NESTED},
    },
    "post_processor": {
        "TemplateProcessing": {"single": _TEMPLATE, "pair": _TEMPLATE, "special_tokens": _TEMPLATE_TOKENS},
        "BertProcessing": {"sep": _PAIR, "cls": _PAIR},
        "RobertaProcessing": {"sep": _PAIR, "cls": _PAIR, "trim_offsets": TRUTH, "add_prefix_space": TRUTH},
        "ByteLevel": _BYTE_LEVEL,
        "Sequence": {"processors": _NESTED},
    },
    "decoder": {
        "WordPiece": {"prefix": _SHORT, "cleanup": TRUTH},
        "ByteLevel": _BYTE_LEVEL,
        "Metaspace": _METASPACE,
        "BPEDecoder": {"suffix": _SHORT},
        "ByteFallback": {},
        "Fuse": {},
        "Replace": {"pattern": _PATTERN, "content": _SHORT},
        "Strip": {"content": text(1), "start": whole(0, 16), "stop": whole(0, 16)},
        "Sequence": {"decoders": _NESTED},
    },
    "model": {
        "WordPiece": {"unk_token": _SHORT, "continuing_subword_prefix": _SHORT,
                      "max_input_chars_per_word": whole(1, 1000), "vocab": _ANYTHING},
        "WordLevel": {"unk_token": _SHORT, "vocab": _ANYTHING},
        "Unigram": {"unk_id": whole(0, _MOST_TOKENS), "byte_fallback": TRUTH, "vocab": _ANYTHING},
        "BPE": {"dropout": number(0, 0), "unk_token": _SHORT, "continuing_subword_prefix": _SHORT,
                "end_of_word_suffix": _SHORT, "fuse_unk": TRUTH, "byte_fallback": TRUTH, "ignore_merges": TRUTH,
                "vocab": _ANYTHING, "merges": _ANYTHING},
    },
}  # fmt: skip
_LISTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}


def check_parts(found: Mapping[str, Any], shown: str, findings: Findings) -> dict[str, int] | None:
    """Check all parts of a tokenizer; the ids of its vocabulary, or None where there is none to be had."""
    for role in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if found.get(role) is not None:
            _check_part(role, found[role], role, shown, findings)
    model = found.get("model")
    if isinstance(model, dict) and "type" not in model and isinstance(model.get("vocab"), dict):
        model["type"] = (
            "BPE" if "merges" in model else "WordPiece"
        )  # as old files have it, and the library reads them
    if not _check_part("model", model, "model", shown, findings) or not isinstance(model, dict):
        return None
    ids = _read_vocabulary(model.get("vocab"), model["type"], shown, findings)
    if ids is not None:
        _check_unknown(model, ids, shown, findings)
        if model["type"] == "BPE":
            _check_merges(model, ids, shown, findings)
    return ids


def _check_part(role: str, part: Any, path: str, shown: str, findings: Findings, depth: int = 0) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    rules = _PARTS[role].get(kind) if isinstance(kind, str) else None
    if rules is None or depth > 4:
        known = ", ".join(_PARTS[role])
        findings.refuse("tokenizer_type", shown, f"{quoted(kind)} is not one of {known}", f"{path}.type")
        return False
    unknown = [key for key in part if key != "type" and key not in rules]
    if unknown:
        findings.refuse("tokenizer_value", shown, f"the settings {listed(unknown)} are not known here", path)
    for key, rule in rules.items():
        value = part.get(key)
        if key in part and value is not None and not rule.accepts(value):
            findings.refuse("tokenizer_value", shown, f"it is not {rule.words}", f"{path}.{key}")
    if "pattern" in rules:
        _check_pattern(part.get("pattern"), f"{path}.pattern", shown, findings)
    inner = part.get(_LISTS.get(role, "")) if kind == "Sequence" else None
    if isinstance(inner, list):
        if len(inner) > 32:
            findings.refuse("tokenizer_value", shown, "it has more than 32 parts", path)
            return False
        for number_, each in enumerate(inner):
            _check_part(role, each, f"{path}[{number_}]", shown, findings, depth + 1)
    return True


def _check_pattern(pattern: Any, path: str, shown: str, findings: Findings) -> None:
    if isinstance(pattern, dict) and len(pattern) == 1:
        ((kind, value),) = pattern.items()
        if kind == "String" and isinstance(value, str) and 0 < len(value) <= 64:
            return
        if kind == "Regex" and isinstance(value, str) and is_harmless(value):
            return
    findings.refuse("tokenizer_regex", shown, f"{quoted(pattern)} is not taken", path)


def is_harmless(expression: str) -> bool:
    """Whether a regular expression is known, or so simple that matching it takes no time to speak of."""
    return expression in _KNOWN_EXPRESSIONS or (
        len(expression) <= 200 and _SIMPLE.fullmatch(expression) is not None
    )


def _read_vocabulary(vocab: Any, kind: str, shown: str, findings: Findings) -> dict[str, int] | None:
    """Token to id, each id once."""
    problem, ids = "it is missing", None
    if kind == "Unigram":
        entries_fit = isinstance(vocab, list) and all(_is_scored(entry) for entry in vocab)
        problem = "it is no list of tokens with scores"
        ids = {entry[0]: number_ for number_, entry in enumerate(vocab)} if entries_fit else None
        if ids is not None and len(ids) < len(vocab):
            problem, ids = "it has a token twice", None
    elif isinstance(vocab, dict):
        fits = all(type(number_) is int and 0 <= number_ < _MOST_TOKENS for number_ in vocab.values())
        problem = "it is no object of tokens and ids, each id once"
        ids = dict(vocab) if fits and len(set(vocab.values())) == len(vocab) else None
    if ids is not None and (len(ids) > _MOST_TOKENS or any(len(token) > _MOST_TOKEN for token in ids)):
        problem, ids = (
            f"it has more than {_MOST_TOKENS:,} tokens, or one of more than {_MOST_TOKEN:,} characters",
            None,
        )
    if ids is None:
        findings.refuse("tokenizer_vocabulary", shown, problem, "model.vocab")
    return ids


def _is_scored(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and type(entry[1]) in (int, float)
    )


def _check_unknown(model: Mapping[str, Any], ids: Mapping[str, int], shown: str, findings: Findings) -> None:
    """What stands for unknown words has to be there, or the library fails on the first one it meets."""
    unknown = model.get("unk_token")
    known = isinstance(unknown, str) and unknown in ids
    if model["type"] in ("WordPiece", "WordLevel") and not known:
        findings.refuse(
            "tokenizer_vocabulary", shown, f"{quoted(unknown)} is not in the vocabulary", "model.unk_token"
        )
    place = model.get("unk_id")
    if (
        model["type"] == "Unigram"
        and (type(place) is not int or place >= len(ids))
        and not model.get("byte_fallback")
    ):
        findings.refuse(
            "tokenizer_vocabulary", shown, f"{quoted(place)} is not in the vocabulary", "model.unk_id"
        )


def _check_merges(model: Mapping[str, Any], ids: Mapping[str, int], shown: str, findings: Findings) -> None:
    merges = model.get("merges")
    if not isinstance(merges, list) or len(merges) > _MOST_MERGES:
        findings.refuse(
            "tokenizer_value", shown, f"it is no list of at most {_MOST_MERGES:,} pairs", "model.merges"
        )
        return
    prefix = model.get("continuing_subword_prefix") or ""
    for number_, merge in enumerate(merges):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        fits = isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
        if not fits or not {pair[0], pair[1], pair[0] + pair[1].removeprefix(prefix)} <= ids.keys():
            findings.refuse(
                "tokenizer_vocabulary", shown, "it is no pair of known tokens", f"model.merges[{number_}]"
            )
            return


def _is_base64(value: object) -> bool:
    if not isinstance(value, str) or len(value) > _MOST_CHARSMAP:
        return False
    try:
        return bool(base64.b64decode(value, validate=True)) or not value
    except (binascii.Error, ValueError):
        return False


def _is_template(value: object) -> bool:
    return isinstance(value, list) and len(value) <= 16 and all(_is_piece(piece) for piece in value)


def _is_piece(piece: object) -> bool:
    if not isinstance(piece, dict) or len(piece) != 1:
        return False
    ((kind, inner),) = piece.items()
    checks: Mapping[str, Callable[[Any], bool]] = {
        "SpecialToken": lambda name: isinstance(name, str) and len(name) <= 64,
        "Sequence": lambda name: name in ("A", "B") if isinstance(name, str) else False,
    }
    return (
        kind in checks
        and isinstance(inner, dict)
        and set(inner) == {"id", "type_id"}
        and checks[kind](inner["id"])
        and type(inner["type_id"]) is int
        and 0 <= inner["type_id"] < 16
    )


def _are_template_tokens(value: object) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= 64
        and all(_is_template_token(entry) for entry in value.values())
    )


def _is_template_token(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and set(entry) == {"id", "ids", "tokens"}
        and isinstance(entry["id"], str)
        and all(isinstance(entry[key], list) and len(entry[key]) <= 16 for key in ("ids", "tokens"))
        and all(type(number_) is int and number_ >= 0 for number_ in entry["ids"])
        and all(isinstance(token, str) for token in entry["tokens"])
    )
