"""Words of a text, cut by the word boundaries of Unicode (UAX #29) exactly as Lucene 9's StandardTokenizer cuts.

Letters and digits stay together, and so do the parts of `don't`, `u.s`, `foo:bar`, `3.14`, `1,000` and
`snake_case`. Ideographs and hiragana are words of their own; a run of Thai, Lao, Khmer or Burmese, which would
need a dictionary, is one word. Pictographs are words as well: © ® ™, arrows, and emoji with all that belongs to them
(modifiers, selectors, joined sequences, keycaps, flags).

Most text is ASCII, or has a few letters beyond it, and is cut by one regular expression. The general case
first writes down the class of each character, one letter each, and cuts that string.
"""

from __future__ import annotations

import re

from evaluation.text.word_classes import WordClasses

#: Longer words are cut into pieces of at most this many UTF-16 code units, the buffer of Lucene's scanner.
MAX_WORD_LENGTH = 255

#: Runs of letters, digits and underscores, joined by a mark between two letters or two digits.
_JOINED = (
    r"""\w+(?:[{marks}](?:(?<={letter}[{in_words}])(?={letter})|(?<={digit}[{in_numbers}])(?={digit}))\w+)*"""
)

_MID_LETTER = ":\u00b7\u0387\u05f4\u2027\ufe13\ufe55\uff1a"
_MID_NUMBER = ",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b"
_MID_BOTH = ".\u2018\u2019\u2024\ufe52\uff07\uff0e"
_MARKS = _MID_LETTER + _MID_NUMBER + _MID_BOTH + "'"

_ASCII_WORD = re.compile(
    _JOINED.format(marks=".:',;", in_words=".:'", in_numbers=".,;'", letter="[a-z]", digit="[0-9]"), re.ASCII
)
#: For text without characters of other classes (see `words`): what else is not ASCII is a pictograph.
_LETTERS_WORD = re.compile(
    _JOINED.format(
        marks=_MARKS,
        in_words=_MID_LETTER + _MID_BOTH + "'",
        in_numbers=_MID_NUMBER + _MID_BOTH + "'",
        letter=r"[^\W\d_]",
        digit=r"\d",
    )
    + rf"|[^\x00-\x7f{_MARKS}]"
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")

#: Classes that extend a character, and those that do within an emoji before its presentation selector.
_EXTENDED, _IN_EMOJI = "[xSMzvVctT]*+", "[xSMzctT]*+"
#: Pictographs joined by ZWJ, from one on.
_SEQUENCE = f"[pA]{_IN_EMOJI}(?:(?<=z)[pA]{_IN_EMOJI})*+"
_AFTER_MODIFIER = f"M{_IN_EMOJI}(?<=z)(?=[pA])"
#: Lucene's grammar over classes (see `word_classes`). The longest match wins there, so that longer forms come first.
#: Long runs in which no word starts are matched as `none`, so that a scan does not start again inside them; for the
#: same reason a word starts with a limited number of underscores, which are all that fit into a piece.
_CLASSES_WORD = re.compile(
    r"""(?P<none> _+(?=_{255}) | z++(?![pA]) )
      | (?:z++[pA]|p){Y}Vt++T
      | (?: (?:A{Y}(?:V(?:z{after_modifier}|z++)|(?<=z)))++(?=p) | z++(?=[pA]) | (?=p) | {after_modifier} ) {sequence}
        (?: V (?:z{after_modifier}|z++) {sequence} )*+ (?: V (?:zM{Y})? )?+
      | M{Y}
      | [#] (?: {Y}Vc | [xSMztT]*+c ) {Y}
      | r{X}r{X}
      | (?:_{X}){0,255}+ (?:{group}) (?: (?:_{X})++ (?:{group}) )*+ (?:_{X})*+
      | (?:[sS]{X})++
      | i{X}
    """.replace(
        "{group}",
        r"""(?:k{X})++
          | (?: h{X} (?: ["]{X}h{X} | [']{X} | [:.]{X}[ahA]{X}(?:[:.']{X}[ahA]{X})*+ )?+
              | [aA]{X} (?:[:.']{X}[ahA]{X})*+
              | n{X} (?:[,.']{X}n{X})*+ )++""",
    )
    .replace("{sequence}", _SEQUENCE)
    .replace("{after_modifier}", _AFTER_MODIFIER)
    .replace("{X}", _EXTENDED)
    .replace("{Y}", _IN_EMOJI),
    re.VERBOSE,
)

_RUN = re.compile("_+|z+")

_CLASSES = WordClasses()


def words(text: str) -> list[str]:
    """Return the words of the text in order, in lower case if the text is ASCII and in its own case otherwise.

    Runs of underscores alone are included: callers drop them, once for each distinct word. Words longer than
    `MAX_WORD_LENGTH` are included too, unless the text needs the general case: `words_by_classes` cuts them.
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    plain = True
    for character in set(_NOT_ASCII.findall(text)):
        kind = _CLASSES[ord(character)]
        if kind == "-":
            text = text.replace(character, " ")
        elif kind in "anp":
            # The fast path uses Python's \w and \d, which follow another version of Unicode.
            plain &= character < "\U00010000" and character.isalnum() == (kind != "p")
            plain &= character.isdecimal() == (kind == "n")
        elif kind not in ":.,":
            plain = False
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _LETTERS_WORD.findall(text) if plain else words_by_classes(text)


def words_by_classes(text: str) -> list[str]:
    """Return the words of any text in its own case, with long ones cut: the general case of `words`."""
    classes = text.translate(_CLASSES)
    found: list[str] = []
    position: int | None = 0
    while position is not None:
        matches, position = _CLASSES_WORD.finditer(classes, position), None
        for match in matches:
            if match.lastgroup is not None:
                continue
            start, end = match.span()
            if 2 * (end - start) > MAX_WORD_LENGTH:  # with two code units per character it may not fit
                position = _cut(text, classes, match, found)
                break
            found.append(text[start:end])
    return found


def _cut(text: str, classes: str, long_match: re.Match[str], found: list[str]) -> int:
    """Append the pieces of a match, one buffer at a time like Lucene's scanner, and return the end of the last one."""
    start = long_match.start()
    while start < long_match.end():
        end = start + MAX_WORD_LENGTH
        while (excess := _code_units(text[start:end]) - MAX_WORD_LENGTH) > 0:
            end = min(end, len(text)) - (excess + 1) // 2
        match = _CLASSES_WORD.match(classes, start, end)
        if match is not None and match.lastgroup is None:
            found.append(text[start : match.end()])
            start = match.end()
        else:
            # No word starts before the end of such a run is in the buffer.
            run = _RUN.match(classes, start)
            start = max(start, run.end() - MAX_WORD_LENGTH if run is not None else 0) + 1
    return start


def _code_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def lower_case(word: str) -> str:
    """Return the word in lower case, character by character and regardless of context, like Lucene."""
    return word.lower() if word.isascii() else word.replace("İ", "i").replace("Σ", "σ").lower()
