"""Word segmentation by Unicode word boundaries (UAX #29), identical to that of Lucene 9's StandardTokenizer.

Letters and digits form words, including `don't`, `u.s`, `foo:bar`, `3.14`, `1,000`, and `snake_case`. Each ideograph
and each hiragana is a word. A sequence of Thai, Lao, Khmer, or Burmese, which would need a dictionary, is one word.
Pictographs are words as well: © ® ™, arrows, and emoji with their modifiers, selectors, joined sequences, keycaps,
and flags.

One regular expression divides most texts, which are ASCII or have few other letters. In the general case, the class of
each character is written as one letter, and a regular expression divides the resulting string.
"""

import json
import re
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

#: Classes of characters for cutting text into words: the properties of Unicode 12.1 that Lucene 9 reads.
#:
#: The table merges Word_Break, Script (Han, Hiragana), Line_Break (Complex_Context), and the emoji properties into one
#: letter for each code point, because the grammar of StandardTokenizer distinguishes no more. It is stored here
#: because Python, `regex`, and ICU follow later versions of Unicode, and an upgrade of a package must not change a
#: baseline.
#:
#: Run lengths in the order of code points: a number (none for 1) and a class; code points after the last have none.
#:
#:     a letter, h Hebrew letter, n digit, k katakana, i ideograph or hiragana, s South-East Asian, _ joins everything,
#:     : . , ' " stand between letters or digits, p pictograph, A letter that is a pictograph, r regional indicator,
#:     # base of a keycap, - never part of a word;
#:     extending the character before them: x marks and formats, S South-East Asian marks, M emoji modifiers, z ZWJ,
#:     v text and V emoji presentation selector, c enclosing keycap, t tags of emoji, T their end.
_RUNS: list[str] = json.loads(Path(__file__).with_name("word_classes.json").read_text("utf-8"))

_RUN = re.compile(r"(\d*)(\D)")
_LENGTHS, _KINDS = zip(*_RUN.findall("".join(_RUNS)), strict=True)
_ENDS = list(accumulate(int(length or 1) for length in _LENGTHS))


class WordClasses(dict[int, str]):
    """Mapping from code points to classes for `str.translate`, which caches each distinct character."""

    def __missing__(self, code_point: int) -> str:
        run = bisect_right(_ENDS, code_point)
        self[code_point] = kind = _KINDS[run] if run < len(_KINDS) else "-"
        return kind


#: Maximum length of words in UTF-16 code units, the buffer of Lucene's scanner. Longer ones are divided.
MAX_WORD_LENGTH = 255

#: Sequences of letters, digits, and underscores, joined by punctuation between two letters or two digits.
_WORD_FORM = r"""\w+(?:[{marks}](?:(?<={letter}[{in_words}])(?={letter})|(?<={digit}[{in_numbers}])(?={digit}))\w+)*"""

_MID_LETTER = ":\u00b7\u0387\u05f4\u2027\ufe13\ufe55\uff1a"
_MID_NUMBER = ",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b"
_MID_BOTH = ".\u2018\u2019\u2024\ufe52\uff07\uff0e"
_MARKS = _MID_LETTER + _MID_NUMBER + _MID_BOTH + "'"

_ASCII_WORD = re.compile(
    _WORD_FORM.format(marks=".:',;", in_words=".:'", in_numbers=".,;'", letter="[a-z]", digit="[0-9]"), re.ASCII
)
#: Pattern for text without characters of other classes (see `words`). Its other non-ASCII characters are pictographs.
_LETTERS_WORD = re.compile(
    _WORD_FORM.format(
        marks=_MARKS,
        in_words=_MID_LETTER + _MID_BOTH + "'",
        in_numbers=_MID_NUMBER + _MID_BOTH + "'",
        letter=r"[^\W\d_]",
        digit=r"\d",
    )
    + rf"|[^\x00-\x7f{_MARKS}]"
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")

#: Classes that extend a character, and classes that do so within an emoji before its presentation selector.
_EXTENDED, _IN_EMOJI = "[xSMzvVctT]*+", "[xSMzctT]*+"
#: One or more pictographs joined by ZWJ.
_SEQUENCE = f"[pA]{_IN_EMOJI}(?:(?<=z)[pA]{_IN_EMOJI})*+"
_AFTER_MODIFIER = f"M{_IN_EMOJI}(?<=z)(?=[pA])"
#: Lucene's grammar over classes (see `_RUNS`). Longer forms come first, since Lucene uses the longest match. Long
#: runs in which no word starts are matched as `none`, so that they are not scanned repeatedly. For the same reason
#: the number of leading underscores of a word is limited to the length of a piece.
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
    is_simple = True
    for character in set(_NOT_ASCII.findall(text)):
        kind = _CLASSES[ord(character)]
        if kind == "-":
            text = text.replace(character, " ")
        elif kind in "anp":
            # The fast path uses Python's \w and \d, which follow another version of Unicode.
            is_simple &= character < "\U00010000" and character.isalnum() == (kind != "p")
            is_simple &= character.isdecimal() == (kind == "n")
        elif kind not in ":.,":
            is_simple = False
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _LETTERS_WORD.findall(text) if is_simple else words_by_classes(text)


def words_by_classes(text: str) -> list[str]:
    """Return the words of any text in its own case, with long ones cut: the general case of `words`."""
    classes = text.translate(_CLASSES)
    pieces: list[str] = []
    position: int | None = 0
    while position is not None:
        matches, position = _CLASSES_WORD.finditer(classes, position), None
        for match in matches:
            if match.lastgroup is not None:
                continue
            start, end = match.span()
            if 2 * (end - start) > MAX_WORD_LENGTH:  # It may be too long if characters have two code units.
                position = _append_pieces(text, classes, match, pieces)
                break
            pieces.append(text[start:end])
    return pieces


def _append_pieces(text: str, classes: str, long_match: re.Match[str], pieces: list[str]) -> int:
    """Append the pieces of an overlong match to `pieces`, and return the end of the last one.

    The match is divided one buffer at a time, like in Lucene's scanner.
    """
    start = long_match.start()
    while start < long_match.end():
        end = start + MAX_WORD_LENGTH
        # Lucene counts code units of UTF-16.
        while (excess := len(text[start:end].encode("utf-16-le", "surrogatepass")) // 2 - MAX_WORD_LENGTH) > 0:
            end = min(end, len(text)) - (excess + 1) // 2
        match = _CLASSES_WORD.match(classes, start, end)
        if match is not None and match.lastgroup is None:
            pieces.append(text[start : match.end()])
            start = match.end()
        else:
            # No word starts before the end of such a run is in the buffer.
            run = _RUN.match(classes, start)
            start = max(start, run.end() - MAX_WORD_LENGTH if run is not None else 0) + 1
    return start


def lower_case(word: str) -> str:
    """Return the word in lower case, character by character and regardless of context, like Lucene."""
    return word.lower() if word.isascii() else word.replace("İ", "i").replace("Σ", "σ").lower()
