"""The Porter stemmer, as Lucene's PorterStemFilter has it.

M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with the two departures that Porter's own
program made later and Lucene took over: `bli → ble` instead of `abli → able`, and the additional `logi → log`.
Words of one or two characters stay as they are. Characters other than a, e, i, o, u, y are consonants.

PyStemmer's `porter` has neither departure, and keeps doubled consonants that the paper does not (`trekk` of trekking):
94 of the 38,045 words of Vaswani, NFCorpus and Cranfield get another stem there, `technologi` for one, which would
make another BM25 than Anserini's (docs/decisions/0002).
"""

_VOWELS = frozenset("aeiou")

#: Step 2: suffix → replacement where the measure of the stem is above 0. Longer suffixes stand before
#: their own endings; the first that matches decides.
_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"),
    ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"), ("logi", "log"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
#: Step 4: suffixes dropped where the measure of the stem is above 1; `ion` only after s or t.
_STEP_4 = tuple((suffix, "") for suffix in (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate",
    "iti", "ous", "ive", "ize",
))  # fmt: skip


def stem(word: str) -> str:
    """The stem of a lower-case word."""
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
    """The word with `c` for each consonant and `v` for each vowel; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in _VOWELS or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(stem: str) -> int:
    """How often a vowel is followed by a consonant: m in [C](VC)^m[V]."""
    return _shape(stem).count("vc")


def _ends_short(word: str) -> bool:
    """Whether the word ends consonant, vowel, consonant, and the last is not w, x or y (*o in the paper)."""
    return len(word) >= 3 and word[-1] not in "wxy" and _shape(word).endswith("cvc")


def _step_1(word: str) -> str:
    """Plurals, -ed and -ing, and y → i."""
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
    """What -ed or -ing was taken from gets its e back, or loses its doubled consonant."""
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if len(stem) >= 2 and stem[-1] == stem[-2] and _shape(stem)[-1] == "c":
        return stem if stem[-1] in "lsz" else stem[:-1]
    if _measure(stem) == 1 and _ends_short(stem):
        return stem + "e"
    return stem


def _replace_suffix(word: str, rules: tuple[tuple[str, str], ...], least: int = 0) -> str:
    """Replace the first suffix that matches, if the measure of its stem is above `least`."""
    for suffix, replacement in rules:
        if word.endswith(suffix):
            stem = word[: -len(suffix)]
            if suffix == "ion" and not stem.endswith(("s", "t")):
                continue
            return stem + replacement if _measure(stem) > least else word
    return word
