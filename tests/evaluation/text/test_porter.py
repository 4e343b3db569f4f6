"""The Porter stemmer: the pairs of its paper, Lucene's departures, and agreement with Snowball's elsewhere."""

from __future__ import annotations

import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from evaluation.text.porter import stem

#: Word and stem after the whole algorithm, for the examples of each step in the paper.
PAIRS = """
caresses caress, ponies poni, ties ti, caress caress, cats cat, feed feed, agreed agre, plastered plaster,
bled bled, motoring motor, sing sing, conflated conflat, troubled troubl, sized size, hopping hop, tanned tan,
falling fall, hissing hiss, fizzed fizz, failing fail, filing file, happy happi, sky sky, relational relat,
conditional condit, rational ration, valenci valenc, hesitanci hesit, digitizer digit, radicalli radic,
differentli differ, vileli vile, analogousli analog, vietnamization vietnam, predication predic, operator oper,
feudalism feudal, decisiveness decis, hopefulness hope, callousness callous, formaliti formal,
sensitiviti sensit, sensibiliti sensibl, triplicate triplic, formative form, formalize formal,
electriciti electr, electrical electr, hopeful hope, goodness good, revival reviv, allowance allow,
inference infer, airliner airlin, gyroscopic gyroscop, adjustable adjust, defensible defens, irritant irrit,
replacement replac, adjustment adjust, dependent depend, adoption adopt, homologou homolog, communism commun,
activate activ, angulariti angular, homologous homolog, effective effect, bowdlerize bowdler, probate probat,
rate rate, cease ceas, controll control, roll roll, a a, is is, by by, yes ye, generalizations gener
"""


@pytest.mark.parametrize(("word", "expected"), [pair.split() for pair in PAIRS.replace("\n", " ").split(", ")])
def test_the_examples_of_the_paper(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [("possibly", "possibl"), ("conformably", "conform"), ("ontology", "ontolog"), ("analogies", "analog")],
)
def test_the_two_departures_that_lucene_makes(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("word", "expected"), [("3d", "3d"), ("covid19s", "covid19"), ("naïves", "naïv"), ("u.s", "u.")]
)
def test_other_characters_are_consonants(word: str, expected: str) -> None:
    assert stem(word) == expected


SYLLABLES = """
a e i o u y ab er ing ed s sses ies eed at iz bl ll ss tt l c v tion al ational izer alli entli ousli ation ator
alism iveness fulness biliti icate ative ical ness ment ement ent ion ism iti ous ive ize nn w x
"""


def test_snowballs_porter_is_another_stemmer() -> None:
    """Were this to fail, our own would have lost its reason."""
    words = ["technology", "possibly", "trekking", "revved"]
    assert [stem(word) for word in words] == ["technolog", "possibl", "trek", "rev"]
    theirs = [Stemmer.Stemmer("porter").stemWord(word) for word in words]
    assert theirs == ["technologi", "possibli", "trekk", "revv"]


@given(word=st.lists(st.sampled_from(SYLLABLES.split()), min_size=2, max_size=5).map("".join))
def test_every_other_word_is_stemmed_as_snowball_does(word: str) -> None:
    if len(word) > 2 and "bli" not in word and "bly" not in word:
        assert stem(word) == Stemmer.Stemmer("porter").stemWord(word)


@given(word=st.text(alphabet="abcdefghijklmnopqrstuvwxyzé3'._", max_size=30))
def test_any_word_has_a_stem_no_longer_than_itself_and_one(word: str) -> None:
    assert len(stem(word)) <= len(word) + 1
