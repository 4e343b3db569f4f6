"""The parts of tokenizer.json: known types with known settings, and expressions that are quick to match.

What a setting may be, the library's own parser says where the model is checked. Here is what it does not ask: that no
expression can be tried in many ways, that every token has an id of its own, and that whatever stands for unknown words
is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from evaluation.checkpoints.findings import Findings, listed, quoted
from evaluation.checkpoints.limits import MOST_VOCABULARY

_MOST_MERGES = 1_000_000
MOST_TOKEN = 2000
_MOST_TEXT = 4 * 1024 * 1024
_MOST_PARTS, _MOST_DEPTH = 32, 4

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

_BYTE_LEVEL = "ByteLevel add_prefix_space trim_offsets use_regex"
_METASPACE = "Metaspace replacement add_prefix_space prepend_scheme split str_rep"
_PARTS_TEXT: Mapping[str, tuple[str, ...]] = {
    "normalizer": (
        "BertNormalizer clean_text handle_chinese_chars strip_accents lowercase", "Lowercase", "NFC", "NFD", "NFKC",
        "NFKD", "StripAccents", "Nmt", "ByteLevel", "Strip strip_left strip_right", "Prepend prepend",
        "Replace pattern content", "Precompiled precompiled_charsmap", "Sequence normalizers",
    ),
    "pre_tokenizer": (
        "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts", _BYTE_LEVEL, _METASPACE,
        "Punctuation behavior", "Digits individual_digits", "CharDelimiterSplit delimiter",
        "Split pattern behavior invert", "Sequence pretokenizers",
    ),
    "post_processor": (
        "TemplateProcessing single pair special_tokens", "BertProcessing sep cls",
        "RobertaProcessing sep cls trim_offsets add_prefix_space", _BYTE_LEVEL, "Sequence processors",
    ),
    "decoder": (
        "WordPiece prefix cleanup", _BYTE_LEVEL, _METASPACE, "BPEDecoder suffix", "ByteFallback", "Fuse",
        "Replace pattern content", "Strip content start stop", "CTC pad_token word_delimiter_token cleanup",
        "Sequence decoders",
    ),
    "model": (
        "WordPiece unk_token continuing_subword_prefix max_input_chars_per_word vocab", "WordLevel unk_token vocab",
        "Unigram unk_id byte_fallback vocab",
        "BPE dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback ignore_merges "
        "vocab merges",
    ),
}  # fmt: skip
#: Settings by type of part, for each of the five roles.
_PARTS = {
    role: {line.split()[0]: frozenset(line.split()[1:]) for line in lines}
    for role, lines in _PARTS_TEXT.items()
}
_LISTS = {"normalizers", "pretokenizers", "processors", "decoders"}


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
    settings = _PARTS[role].get(kind) if isinstance(kind, str) else None
    if settings is None or depth > _MOST_DEPTH:
        known = ", ".join(_PARTS[role])
        findings.refuse("tokenizer_type", shown, f"{quoted(kind)} is not one of {known}", f"{path}.type")
        return False
    unknown = [key for key in part if key != "type" and key not in settings]
    if unknown:
        findings.refuse("tokenizer_value", shown, f"the settings {listed(unknown)} are not known here", path)
    if "pattern" in settings:
        _check_pattern(part.get("pattern"), f"{path}.pattern", shown, findings)
    for key in settings - {"vocab", "merges", "pattern"} - _LISTS:
        if not is_small(part.get(key)):
            findings.refuse("tokenizer_value", shown, "it is long, or nested deep", f"{path}.{key}")
    for inner in [part[key] for key in settings & _LISTS if isinstance(part.get(key), list)]:
        if len(inner) > _MOST_PARTS:
            findings.refuse("tokenizer_value", shown, f"it has more than {_MOST_PARTS} parts", path)
            return False
        for place, each in enumerate(inner):
            _check_part(role, each, f"{path}[{place}]", shown, findings, depth + 1)
    return True


def is_small(value: Any, depth: int = 0) -> bool:
    """Whether a setting is a number, a text, or few of them, nested as a template is at most."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return depth < 5 and len(value) <= 64 and all(is_small(each, depth + 1) for each in inner)
    return len(value) <= (64 if depth else _MOST_TEXT) if isinstance(value, str) else True


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


def inserted_ids(part: Any, depth: int = 0) -> Iterator[int]:
    """The ids that a post-processor puts around texts, as far as they are whole numbers."""
    if not isinstance(part, dict) or depth > _MOST_DEPTH:
        return
    for key in ("sep", "cls"):
        if isinstance(pair := part.get(key), list):
            yield from (value for value in pair if type(value) is int)
    if isinstance(tokens := part.get("special_tokens"), dict):
        for entry in tokens.values():
            found = entry.get("ids") if isinstance(entry, dict) else None
            yield from (value for value in found or () if type(value) is int)
    if isinstance(inner := part.get("processors"), list):
        for each in inner[:_MOST_PARTS]:
            yield from inserted_ids(each, depth + 1)


def _read_vocabulary(vocab: Any, kind: str, shown: str, findings: Findings) -> dict[str, int] | None:
    """Token to id, each id once."""
    problem, ids = "it is no list of tokens with scores, or no object of tokens and ids, each once", None
    if kind == "Unigram" and isinstance(vocab, list) and all(_is_scored(entry) for entry in vocab):
        found = {entry[0]: place for place, entry in enumerate(vocab)}
        ids = found if len(found) == len(vocab) else None
    elif kind != "Unigram" and isinstance(vocab, dict):
        fits = all(type(number) is int and 0 <= number < MOST_VOCABULARY for number in vocab.values())
        ids = dict(vocab) if fits and len(set(vocab.values())) == len(vocab) else None
    if ids is not None and (len(ids) > MOST_VOCABULARY or any(len(token) > MOST_TOKEN for token in ids)):
        problem = f"it has over {MOST_VOCABULARY:,} tokens, or one of over {MOST_TOKEN:,} characters"
        ids = None
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
    longest = model.get("max_input_chars_per_word")
    if model.get("dropout") or (longest is not None and longest not in range(1001)):
        what = (
            "it has dropout, which cuts a word differently each time, or takes words of over 1,000 characters"
        )
        findings.refuse("tokenizer_value", shown, what, "model")
    if model["type"] in ("WordPiece", "WordLevel"):
        unknown, key = model.get("unk_token"), "unk_token"
        known = isinstance(unknown, str) and unknown in ids
    elif model["type"] == "Unigram" and not model.get("byte_fallback"):
        unknown, key = model.get("unk_id"), "unk_id"
        known = type(unknown) is int and 0 <= unknown < len(ids)
    else:
        return
    if not known:
        what = f"{quoted(unknown)} is not in the vocabulary"
        findings.refuse("tokenizer_vocabulary", shown, what, f"model.{key}")


def _check_merges(model: Mapping[str, Any], ids: Mapping[str, int], shown: str, findings: Findings) -> None:
    merges = model.get("merges")
    if not isinstance(merges, list) or len(merges) > _MOST_MERGES:
        findings.refuse(
            "tokenizer_value", shown, f"it is no list of at most {_MOST_MERGES:,} pairs", "model.merges"
        )
        return
    prefix = str(model.get("continuing_subword_prefix") or "")
    for place, merge in enumerate(merges):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        fits = isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
        if not fits or not {pair[0], pair[1], pair[0] + pair[1].removeprefix(prefix)} <= ids.keys():
            findings.refuse(
                "tokenizer_vocabulary", shown, "it is no pair of known tokens", f"model.merges[{place}]"
            )
            return
