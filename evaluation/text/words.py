"""Word segmentation by Unicode word boundaries (UAX #29), identical to that of Lucene 9's StandardTokenizer.

Letters and digits form words, including `don't`, `u.s`, `foo:bar`, `3.14`, `1,000`, and `snake_case`. Each ideograph
and each hiragana is a word. A sequence of Thai, Lao, Khmer, or Burmese, which would need a dictionary, is one word.
Pictographs are words as well: © ® ™, arrows, and emoji with their modifiers, selectors, joined sequences, keycaps,
and flags.

One regular expression divides most texts, which are ASCII or have few other letters. In the general case, the class of
each character is written as one letter, and a regular expression divides the resulting string.
"""

import re
from bisect import bisect_right
from itertools import accumulate

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
_RUNS = r"""
34-"#3-'2-#-,-.-10n:,5-26a4-_-26a46-pa2-xp6-a-:2-a5-23a-31a-480a6-7a7-20a112x5a-2a2-4a,a6-a:3a-a-20a-83a-139a-7x
166a-38a2-a-2a-a-41a,7-45x-x-2x-2x-x8-27h4-4ha:11-6x6-2,2-11x-x3-43a21x10n-n,-2ax99a-a8x-6x2a2x-4x2a10n3a2-a15-x
ax30a27x2-89a11xa14-10n33a9x2a2-,-a2-x2-22a4xa9xa3xa5x18-25a3x4-11a53-21a-8a21-49x54a3xa18xa7x10a2x2-10n-16a3x-
8a2-2a2-22a-7a-a3-4a2-xa7x2-2x2-3xa8-x4-2a-3a2x2-10n2a10-a-x2-3x-6a4-2a2-22a-7a-2a-2a-2a2-x-5x4-2x2-3x3-x7-4a-a
7-10n2x3ax11-3x-9a-3a-22a-7a-2a-5a2-xa8x-3x-3x2-a15-2a2x2-10n9-a6x-3x-8a2-2a2-22a-7a-2a-5a2-xa7x2-2x2-3x8-2x4-2a
-3a2x2-10n-a16-xa-6a3-3a-4a3-2a-a-2a3-2a3-3a3-12a4-5x3-3x-4x2-a6-x14-10n16-5x8a-3a-23a-16a3-a7x-3x-4x7-2x-3a5-2a
2x2-10n16-a3x-8a-3a-23a-10a-5a2-xa7x-3x-4x7-2x7-a-2a2x2-10n-2a13-4x-8a-3a-41a2xa7x-3x-4xa5-3ax7-3a2x2-10n10-6a2-
2x-18a3-24a-9a-a2-7a3-x4-6x-x-8x6-10n2-2x13-48sS2s7S5-7s8S-10n39-2s-s-5s-24s-s-10sS2s9Ss2-5s-s-6S2-10n2-4s32-a
23-2x6-10n11-x-x-x4-2x8a-36a4-20x-2x5a11x-36x9-x57-43s20Ss10n6-6s4S4s3Ss3S2s7S3s4S13s12SsS10n4S2s38a-a5-a2-43a-
333a-4a2-7a-a-4a2-41a-4a2-33a-4a2-7a-a-4a2-15a-57a-4a2-67a2-3x32-16a16-86a2-6a3-620a2-17a-26a5-75a3-11a7-13a-4a
3x11-18a3x11-18a2x12-13a-3a-2x12-52s32S3-s4-sS2-10n33-4x-10n6-89a7-5a2x34axa5-70a10-31a-12x4-12x10-10n30s2-5s11-
44s4-26s6-10ns3-2s32-23a5x4-53s10S-29S2-x10n6-10n6-14s2-15x65-5x47a17x7a4-10n17-9x12-3x30a13x2a10n44a14x12-36a
20x8-10n3-3a10n36a2-9a7-43a2-3a16-3x-21x4ax6ax2a3xa5-192a58x-5x278a2-6a2-38a2-6a2-8a-a-a-a-31a2-53a-7a-a3-3a-7a
3-4a2-6a4-13a5-3a-7a15-xz2x8-2.10-.2-:2-5x_12-p2-2_3-,4-p10-_11-5x-10x-a13-a16-13a51-19xc13x17-a4-a2-10a-a3-5a4-
p-a-a-a-4a-10aA2-4a5-5a4-a17-41a11-6p15-2p367-2p12-p95-p70-p25-11p4-3p187-12aA39a192-2p10-p9-p58-4p-6p-12p-114p
10-118p2-11p-p-p6-p3-p6-p10-2p15-p2-p4-p-p4-3p-p11-5p45-3p9-p14-p14-p372-2p463-3p19-2p51-p4-p170-47a-47a-133a6-
4a3x2a12-38a-a5-a2-56a7-a15-x23a9-7a-7a-7a-7a-7a-7a-7a-7a-32x47-a80-26i-89i12-214i47-a-i25-9i6xp5k2-3i2ap3-86i2-
2x2k3i91k-4k5-43a-94a17-27a53-16k151-p-p54-47k-88k168-6582i74-20976i16-1165a67-46a2-269a3-16a10n2a20-47a4x-10x-
31a2x80a2x37-169a2-5a48-11ax3ax4ax23a5x24-52a12-2x50a18x10-10n6-18x6a3-a-2ax10n28a8x2-23a13x12-29a3-4x47a14x14-a
10n6-5sS10s10n5s-41a14x9-3ax8a2x2-10n6-27s3S50sSs3S2s2S5s2SsSs24-5s11a5x2-3a2x10-6a2-6a2-6a9-7a-7a-56a8-115a8x-
2x2-10n6-11172a12-23a4-49a8452-366i2-106i38-7a12-5a5-hx10h-13h-5h-h-2h-2h-10h98a33-363a18-64a2-54a40-12a4-14xvV,
2-:,11-16x3-2_24-3_,-.-,:26-5a-135a2-x7-.4-,-.-10n:,5-26a4-_-26a11-56k2x31a3-6a2-6a2-6a2-3a28-3x4-12a-26a-19a-2a
-15a2-14a34-123a69-53a136-x130-29a3-49a15-x31-32a13-30a5-38a5x5-30a2-36a4-8a-5a42-158a2-10n6-36a4-36a4-40a8-52a
156-311a9-22a10-8a152-6a2-a-44a-2a3-a2-23a10-23a9-31a65-19a-2a10-22a10-26a70-56a6-2a64-a3x-2x5-4x4a-3a-29a2-3x4-
x32-29a3-29a35-8a-28a2x25-54a10-22a10-19a13-18a110-73a55-51a13-51a13-36a4x8-10n454-29a10-a8-22a11x143-23a9-3x53a
15x31-10n15-4x45a11x2-x15-x2-25a7-10n6-3x36a14x-10n4-a2x9-35ax2-a9-3x48a14x4a4-4x3-10na-a35-18a-25a12x6-x65-7a-a
-4a-15a-10a7-47a12x5-10n6-4x-8a2-2a2-22a-7a-2a-5a-2xa7x2-2x2-3x2-a6-x5-5a2x2-7x3-5x139-53a18x4a5-10n4-xa32-48a
20x2a-a8-10n166-47a7x2-9x23-4a2x34-48a17x3-a11-10n38-43a13xa7-10n54-27s2-15S4-10n2s3-s192-44a15x101-64a10n21-a
160-8a2-39a7x2-7xa-ax27-a10x40a7xa4x8-x8-a11x46a16x3-a34-57a263-9a-37a8x-8xa15-10n24-30a2-22x-14x73-7a-2a-38a6x
3-x-2x-7xax8-10n6-6a-2a-32a5x-2x-5xa7-10n310-19a4x265-922a102-111a17-196a2748-1071a-9x4039-583a8633-569a7-31a-
10n102-30a2-5x11-48a7x9-4a12-10n9-21a5-19a688-64a128-75a4-xa55x7-4x13a64-2a-a16412-k286i49-3i17-4k2712-107a5-13a
3-9a7-10a3-2x-4x5313-5x3-22x2-7x30-4x148-3x443-85a-71a-2a2-a2-2a2-4a-12a-a-7a-65a-4a2-8a-7a-28a-4a-5a-a3-7a-340a
2-25a-25a-31a-25a-31a-25a-31a-25a-31a-25a-8a2-50n512-55x4-50x8-x14-x22-5x-15x1360-7x-17x2-7x-2x-5x213-45a3-7x7a
2-10n4-a369-44a4x10n1286-197a11-7x41-68a7xa4-10n1190-4a-27a-2a-a2-a-10a-4a-a-a6-a4-a-a-a-3a-2a-a2-a-a-a-a-a-2a-a
2-4a-7a-4a-4a-a-10a-17a5-3a-5a-17a324-256p13-3p31-p26a6-26a2-4p2A12a2A10a4-p2-10p18-57p26ri15p10-p20-p2-9p-4p9-
434p5M318p8-266p48-128p116-12p85-43p12-4p56-8p10-6p40-8p30-82p12-47p-10p-1719p2-42711i41-4149i11-222i2-5762i14-
7473i3103-542i722403-x30-95tT128-240x
"""

_RUN = re.compile(r"(\d*)(\D)")
_LENGTHS, _KINDS = zip(*_RUN.findall(_RUNS.replace("\n", "")), strict=True)
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
