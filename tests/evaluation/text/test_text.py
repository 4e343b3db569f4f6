"""From text to terms: word boundaries, possessives, stop words, long words, languages."""

from __future__ import annotations

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from evaluation.text import ENGLISH_STOP_WORDS, analyser_for
from evaluation.text.words import MAX_WORD_LENGTH, WordClasses, words, words_by_classes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't U.S. o'neil", ["don't", "u.s", "o'neil"]),
        ("3.14 1,000 v1.2 10% 5-6", ["3.14", "1,000", "v1.2", "10", "5", "6"]),
        ("a.1 x,y a:b a;b 'quoted'", ["a", "1", "x", "y", "a:b", "a", "b", "quoted"]),
        ("snake_case __init__ self.name", ["snake_case", "__init__", "self.name"]),
        ("e-mail@example.org http://x.y/z", ["e", "mail", "example.org", "http", "x.y", "z"]),
        ("naïve café", ["naïve", "café"]),
        ("don’t – “stop”", ["don’t", "stop"]),
        ("cafe\u0301 x\u00adray", ["cafe\u0301", "x\u00adray"]),
        ("日本語 ひら カタカナ", ["日", "本", "語", "ひ", "ら", "カタカナ"]),
        ("สวัสดี 한국어 русский ٣٫٤", ["สวัสดี", "한국어", "русский", "٣٫٤"]),
        ("m² Ⅷ 😀", ["m", "Ⅷ", "😀"]),
        ('צה"ל', ['צה"ל']),
        ('צ"ה"ל צה\' א\'ב a:ה"ל', ['צ"ה', "ל", "צה'", "א'ב", "a:ה", "ל"]),
        ("©2020 x® A™ ↔↕ ☺", ["©", "2020", "x", "®", "a", "™", "↔", "↕", "☺"]),
        ("√2 ㎏ ㌀ ㋿", ["2", "㌀"]),
        ("\u202f \u203f \u2040 \u2054 a\u203fb _\u203f", ["a\u203fb"]),
        ("x\u02c2y \u02ff \u02e5 ʼa", ["x\u02c2y", "\u02ff", "ʼa"]),
        ("1\ufe102 ;a", ["1\ufe102", "a"]),
        ("a՟b ՚", ["a", "b"]),
        ("❤️ ❤ 👍🏽👍 🏽a", ["❤️", "❤", "👍🏽", "👍", "🏽", "a"]),
        ("👩\u200d👩\u200d👧 👩\u200dx", ["👩\u200d👩\u200d👧", "👩\u200d", "x"]),
        ("🏴\U000e0067\U000e0062\U000e007fa", ["🏴\U000e0067\U000e0062\U000e007f", "a"]),
        ("🇩🇪🇫🇷🇩 🇩", ["🇩🇪", "🇫🇷"]),
        ("1️⃣2 #️⃣ *⃣ # *", ["1️⃣2", "#️⃣", "*⃣"]),
        ("🅰b ℹ️ ℹ\u200d👩", ["🅰b", "ℹ️", "ℹ\u200d👩"]),
        ("アア ア_ア アa カタ1", ["アア", "ア_ア", "ア", "a", "カタ", "1"]),
        ("々人〇 ㈀", ["々", "人", "〇"]),
        ("𐕰 \u08be", []),  # letters since Unicode 14 and 13
        ("", []),
    ],
)
def test_words_are_lucenes(text: str, expected: list[str]) -> None:
    """Lucene 9.9.1's StandardTokenizer gives these words."""
    lower = [word.lower() for word in expected]
    assert [word.lower() for word in words(text) if word.strip("_")] == lower
    assert [word.lower() for word in words_by_classes(text)] == lower


@given(text=st.text(max_size=60) | st.text(alphabet="aB1_.,:;' é’–ßα日ア٣©\u203f\u0301", max_size=40))
@example("A.b_.c:d")
def test_the_quick_ways_cut_as_the_general_one(text: str) -> None:
    quick = [word.lower() for word in words(text) if word.strip("_")]
    assert quick == [word.lower() for word in words_by_classes(text)]


def test_classes_are_those_of_unicode() -> None:
    """Differences from a later Unicode are characters that changed after version 12.1."""
    properties = {
        "a": r"[\p{WB=ALetter}\u070f]", "h": r"\p{WB=Hebrew_Letter}", "n": r"[\p{WB=Numeric}--\u19da]",
        "k": r"\p{WB=Katakana}", "i": r"[\p{Han}\p{Hiragana}]", "s": r"[\p{LB=SA}\u19da]", "S": r"\p{LB=SA}",
        "x": r"[\p{WB=Extend}\p{WB=Format}\u0600-\u0605\u06dd\u070f\u08e2\U000110bd\U000110cd]",
        ":": r"\p{WB=MidLetter}", ",": r"[\p{WB=MidNum}\ufe10\ufe14]", ".": r"\p{WB=MidNumLet}",
        "'": r"'", '"': r'"', "_": r"\p{WB=ExtendNumLet}", "r": r"\p{WB=Regional_Indicator}", "#": r"[#*]",
        "M": r"\p{Emoji_Modifier}", "z": r"\u200d", "v": r"\ufe0e", "V": r"\ufe0f", "c": r"\u20e3",
        "A": r"[\p{Extended_Pictographic}&&\p{WB=ALetter}]", "T": r"\U000e007f", "t": r"[\U000e0020-\U000e007e]",
        "p": r"[\p{Extended_Pictographic}\p{So}\p{Sm}\p{Cn}\U0001fbf0-\U0001fbf9]",
    }  # fmt: skip
    classes, characters = WordClasses(), "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    by_class: dict[str, list[str]] = {}
    for character in characters:
        by_class.setdefault(classes[ord(character)], []).append(character)
    del by_class["-"]
    assert set(by_class) == set(properties)
    for kind, members in by_class.items():
        others = regex.sub(properties[kind], "", "".join(members), flags=regex.V1)
        assert not others, (kind, ascii(others))
    assert len(by_class["a"]) > 28_000
    assert len(by_class["p"]) > 3_700


def test_english_is_analysed_as_lucene_does() -> None:
    analyse = analyser_for("en")
    assert analyse("The dog's relational studies, and O’Neil’s flies WILL not be running!") == [
        "dog", "relat", "studi", "o’neil", "fli", "run",
    ]  # fmt: skip
    assert analyse("___ __ _") == []
    assert analyse("İSTANBUL ΟΔΟΣ ΣΑΣ K") == [
        "istanbul",
        "οδοσ",
        "σασ",
        "k",
    ]  # Java lowers characters, not words
    assert analyse("aspirin ©") == ["aspirin", "©"]
    assert len(ENGLISH_STOP_WORDS) == 33


def test_without_stemming_words_stay_whole() -> None:
    assert analyser_for("en", stemming=False)("The running dogs'") == ["running", "dogs"]


def test_a_word_longer_than_lucene_keeps_is_cut() -> None:
    terms = analyser_for("en", stemming=False)("x" * (MAX_WORD_LENGTH + 5))
    assert [len(term) for term in terms] == [MAX_WORD_LENGTH, 5]


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("é" + "x" * 300, [255, 46]),
        ("x" * 254 + ".y", [254, 1]),  # the scanner does not see the letter behind the full stop
        ("_" * 300 + "a", [255]),
        ("𐐨" * 200, [127, 73]),  # two UTF-16 code units each
        ("a" + "\u0301" * 300 + "b", [255, 1]),
        ("👩" + "\u200d" * 300 + "👩", [254, 48]),
    ],
)
def test_long_words_are_cut_where_lucenes_buffer_ends(text: str, lengths: list[int]) -> None:
    assert [len(term) for term in analyser_for("en", stemming=False)(text)] == lengths


def test_a_long_line_of_marks_takes_no_time() -> None:
    assert analyser_for("en")("_" * 1_000_000 + "." * 1_000_000 + "é") == ["é"]
    assert analyser_for("en")("_" * 1_000_000 + "é\u0301") == ["_" * 254 + "é"]
    assert analyser_for("en")("\u203f" * 1_000_000 + "\u200d" * 1_000_000) == []


def test_other_languages_are_stemmed_by_snowball_or_left_alone() -> None:
    german = analyser_for("de-AT")
    assert german("Die Häuser") == ["haus"]
    assert german.name == "German, Snowball"
    assert analyser_for("xx")("Two Words") == ["two", "words"]
