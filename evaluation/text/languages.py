"""Codes and names of languages, each normalized to one code."""

import json
import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path

#: A tag of BCP 47, with hyphens or underscores, or a POSIX locale: the first part is the language.
_TAG = re.compile(r"([a-z]{2,3})(?:[-_]([a-z]{3}))?(?:[-_][a-z0-9]{1,8})*(?:[.@][\w.@=-]+)?")
#: Languages with tags that may continue with a member language, such as `zh-yue` and `ar-arz`.
_EXTENDED = ("ar", "ms", "zh")
_SUGGESTIONS = 3


class UnknownLanguage(ValueError):
    """Error for a text that is neither the code nor the name of a language. The message suggests similar ones."""


def language_code(text: str) -> str:
    """Return the ISO 639-1 code of a language, or its ISO 639-3 code if it has no other.

    Args:
        text: An ISO 639-1, 639-2, or 639-3 code; a tag such as `en-US`, `zh-Hans`, `pt_BR`, or `eng-Latn`; or an
            English name, in any case. Scripts and regions are ignored.

    Raises:
        UnknownLanguage: There is no such language.
    """
    codes, names, primary_names = _tables()
    normalized = " ".join(text.lower().split())
    tag = _TAG.fullmatch(normalized)
    if tag is not None and (code := codes.get(tag[1])) is not None:
        return codes.get(tag[2], code) if code in _EXTENDED else code
    if normalized in names:
        return names[normalized]
    subtag = re.split("[-_]", normalized)[0]
    similar_codes = [names[name] for name in get_close_matches(subtag, names, _SUGGESTIONS, 0.75)]
    similar_codes += [code for name, code in names.items() if len(subtag) > 2 and name.startswith(subtag)]
    if len(subtag) == 2:
        codes_alike = [code for code in primary_names if len(code) == 2 and code[0] == subtag[0]]
        similar_codes += get_close_matches(subtag, codes_alike, _SUGGESTIONS, 0.5)
    suggested = list(dict.fromkeys(similar_codes))[:_SUGGESTIONS]
    suggestions = " or ".join(f"{code} ({language_name(code)})" for code in suggested)
    suggestion = f" Did you mean {suggestions}?" if suggestions else ""
    raise UnknownLanguage(
        f"“{text}” is neither the code nor the English name of a language.{suggestion} "
        "Use an ISO 639 code, such as en or deu, a tag, such as pt-BR, or a name, such as Chinese."
    )


def known_language_code(text: str) -> str:
    """Return `language_code`, or the text in lower case if there is no such language."""
    try:
        return language_code(text)
    except UnknownLanguage:
        return text.lower()


def language_name(code: str) -> str:
    """Return the English name of a language, or its code if only that is stored."""
    return _tables()[2].get(code, code)


@cache
def _tables() -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return codes by any code, codes by name in lower case, and the first name of each code.

    The file has rows of (code, other codes, names), of ISO 639-2, and the other codes of ISO 639-3 in one text.
    """
    table = json.loads(Path(__file__).with_name("languages.json").read_text("utf-8"))
    rows = table["languages"]
    codes = {alias: code for code, aliases, _ in rows for alias in (code, *aliases.split())}
    codes |= {code: code for code in re.findall("...", table["others"])}
    by_name = {name.lower(): code for code, _, names in rows for name in reversed(names.split("; "))}
    return codes, by_name, {code: names.partition(";")[0] for code, _, names in rows}
