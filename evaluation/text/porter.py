"""The Porter stemmer as implemented by Lucene's PorterStemFilter.

M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with the two later changes of Porter's own
program, which Lucene adopted: `bli → ble` instead of `abli → able`, and the additional `logi → log`. Words of one or
two characters are not changed. Characters other than a, e, i, o, u, y are consonants.

PyStemmer's `porter` has neither change, and does not remove double consonants, unlike the paper (`trekk` from
trekking). It returns other stems for 94 of the 38,045 words of Vaswani, NFCorpus, and Cranfield, such as `technologi`,
so BM25 would differ from Anserini's (docs/decisions/0002).
"""

_VOWELS = frozenset("aeiou")

#: Step 2: suffixes and replacements for stems with a measure above 0. Longer suffixes precede shorter ones that they
#: end with, and the first match applies.
_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"),
    ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"), ("logi", "log"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
#: Step 4: suffixes to remove from stems with a measure above 1; `ion` only after s or t.
_STEP_4 = tuple((suffix, "") for suffix in (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate",
    "iti", "ous", "ive", "ize",
))  # fmt: skip


def stem(word: str) -> str:
    """Return the stem of a lower-case word."""
    if len(word) <= 2 and len(word.encode("utf-16-le", "surrogatepass")) <= 4:  # two code units, as in Lucene
        return word
    word = _step_1(word)
    if len(word) > 1:
        word = _replace_suffix(word, _STEP_2)
    word = _replace_suffix(word, _STEP_3)
    word = _replace_suffix(word, _STEP_4, 1)
    measure = _measure(word)
    if word.endswith("e"):
        measure_of_stem = _measure(word[:-1])
        if measure_of_stem > 1 or (measure_of_stem == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and measure > 1 else word


def _shape(word: str) -> str:
    """Return the word with `c` for each consonant and `v` for each vowel; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in _VOWELS or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(stem: str) -> int:
    """Return m in [C](VC)^m[V], the number of vowel sequences followed by consonants."""
    return _shape(stem).count("vc")


def _ends_short(word: str) -> bool:
    """Return whether the word ends with consonant, vowel, consonant other than w, x, and y (*o in the paper)."""
    return len(word) >= 3 and word[-1] not in "wxy" and _shape(word).endswith("cvc")


def _step_1(word: str) -> str:
    """Remove plurals, -ed, and -ing, and replace a final y by i."""
    if word.endswith("sses") or word.endswith("ies"):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        if _measure(word[:-3]) > 0:
            word = word[:-1]
    else:
        for suffix in ("ed", "ing"):
            if word.endswith(suffix):
                if "v" in _shape(word[: -len(suffix)]):
                    word = _mend(word[: -len(suffix)])
                break
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    return word


def _mend(stem: str) -> str:
    """Restore the e of a stem without -ed or -ing, or remove its double consonant."""
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if len(stem) >= 2 and stem[-1] == stem[-2] and _shape(stem)[-1] == "c":
        return stem if stem[-1] in "lsz" else stem[:-1]
    if _measure(stem) == 1 and _ends_short(stem):
        return stem + "e"
    return stem


def _replace_suffix(word: str, rules: tuple[tuple[str, str], ...], minimum: int = 0) -> str:
    """Replace the first suffix that the word ends with, if the measure of its stem is above `minimum`.

    The suffix `ion` matches only after s or t.
    """
    for suffix, replacement in rules:
        if word.endswith(suffix):
            stem = word[: -len(suffix)]
            if suffix == "ion" and not stem.endswith(("s", "t")):
                continue
            return stem + replacement if _measure(stem) > minimum else word
    return word
