"""From text to terms: word boundaries, possessives, stop words, long words, languages."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evaluation.text import ENGLISH_STOP_WORDS, MAX_WORD_LENGTH, analyser_for
from evaluation.text.words import words, words_by_classes


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
        ("สวัสดี 한국어 русский ٣٫٤", ["สวัสดี", "한국어", "русский", "٣", "٤"]),
        ("m² Ⅷ 😀", ["m", "Ⅷ"]),
        ('צה"ל', ['צה"ל']),
        ("", []),
    ],
)
def test_words_follow_unicode_word_boundaries(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(text=st.text(max_size=60) | st.text(alphabet="aB1_.,:;' é’–ßα日ア٣\u0301", max_size=40))
@example("A.b_.c:d")
def test_the_quick_ways_cut_as_the_general_one(text: str) -> None:
    assert [word.lower() for word in words(text)] == [word.lower() for word in words_by_classes(text)]


def test_english_is_analysed_as_lucene_does() -> None:
    analyse = analyser_for("en")
    assert analyse("The dog's relational studies, and O’Neil’s flies WILL not be running!") == [
        "dog", "relat", "studi", "o’neil", "fli", "run",
    ]  # fmt: skip
    assert analyse("___ __ _") == []
    assert len(ENGLISH_STOP_WORDS) == 33


def test_without_stemming_words_stay_whole() -> None:
    assert analyser_for("en", stemming=False)("The running dogs'") == ["running", "dogs"]


def test_a_word_longer_than_lucene_keeps_is_cut() -> None:
    terms = analyser_for("en", stemming=False)("x" * (MAX_WORD_LENGTH + 5))
    assert [len(term) for term in terms] == [MAX_WORD_LENGTH, 5]


def test_a_long_line_of_marks_takes_no_time() -> None:
    assert analyser_for("en")("_" * 1_000_000 + "." * 1_000_000 + "é") == ["é"]


def test_other_languages_are_stemmed_by_snowball_or_left_alone() -> None:
    german = analyser_for("de-AT")
    assert german("Die Häuser") == ["haus"]
    assert german.name == "German, Snowball"
    assert analyser_for("xx")("Two Words") == ["two", "words"]
