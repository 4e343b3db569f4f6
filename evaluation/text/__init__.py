"""Conversion of text to index terms: words, lower case, stop words, stems.

English is analyzed like in Lucene's EnglishAnalyzer (and in Anserini, the reference for BM25):
StandardTokenizer, possessive 's, lower case, 33 stop words, Porter. Other languages follow the steps of their Lucene
analyzers, if available: words or character bigrams, lower case, stop words, normalized Arabic letters and
decimal digits, and Snowball's stemmer. Stop words are Snowball's lists, which Lucene uses as well. For languages
without a list, all words are indexed (docs/decisions/0012).
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from evaluation.text import porter
from evaluation.text.languages import known_language_code, language_name
from evaluation.text.words import MAX_WORD_LENGTH, lower_case, words, words_by_classes

#: Characters of Lucene's CJKBigramFilter: Han, hiragana, katakana, and Hangul, in any mixture.
_CJK = re.compile(
    "[\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3130-\u318f"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
#: Scripts without spaces between words: Thai, Lao, Burmese, Khmer.
_WITHOUT_BLANKS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")

CJK_LANGUAGES = {"zh": "Chinese", "ja": "Japanese", "ko": "Korean", "yue": "Cantonese"}
DICTIONARY_LANGUAGES = {"th": "Thai", "lo": "Lao", "km": "Khmer", "my": "Burmese"}


def cjk_bigrams(text: str) -> list[str]:
    """Return the words of the text, with sequences of Chinese, Japanese, or Korean characters as overlapping bigrams.

    A sequence of one character is a word. Full-width letters and digits and half-width katakana are normalized
    (NFKC).
    """
    if text.isascii():
        return words(text)
    text = unicodedata.normalize("NFKC", text)
    result: list[str] = []
    end = 0
    for run in _CJK.finditer(text):
        result += words(text[end : run.start()])
        pairs = [text[index : index + 2] for index in range(run.start(), run.end() - 1)]
        result += pairs or [run.group()]
        end = run.end()
    return result + words(text[end:])


def dictionary_words(language: str, text: str) -> list[str]:
    """Return the words of the text, dividing words of `language`, which has no spaces, by ICU's dictionary."""
    from icu4py.breakers import WordBreaker  # loads 32 MiB of data that few collections need

    result = []
    for word in words(text):
        if _WITHOUT_BLANKS.search(word):
            result += [part for part in WordBreaker(word, language) if any(map(str.isalnum, part))]
        else:
            result.append(word)
    return result


#: Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET.
ENGLISH_STOP_WORDS = frozenset(
    (
        "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no",
        "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this",
        "to", "was", "will", "with",
    )
)  # fmt: skip

_POSSESSIVES = ("'s", "\u2019s", "\uff07s")

#: ISO 639-1 codes of the languages that have a Snowball stemmer.
SNOWBALL_LANGUAGES = {
    "ar": "arabic", "hy": "armenian", "eu": "basque", "ca": "catalan", "cs": "czech", "da": "danish",
    "nl": "dutch", "eo": "esperanto", "et": "estonian", "fi": "finnish", "fr": "french", "de": "german",
    "el": "greek", "hi": "hindi", "hu": "hungarian", "id": "indonesian", "ga": "irish", "it": "italian",
    "lt": "lithuanian", "ne": "nepali", "no": "norwegian", "fa": "persian", "pl": "polish",
    "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "es": "spanish",
    "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip


@dataclass(frozen=True)
class Analyser:
    """Function that converts text to terms.

    Attributes:
        name: Name shown on boards next to a baseline.
        description: Description of all steps.
        remark: Sentence about limitations, for curators; usually empty.
        stem: Stemmer.
        stop_words: Words that are not indexed.
        possessives: Suffixes of two characters to remove.
        cut: Function that divides text into words.
        normalise: Function that normalizes terms before stemming.
    """

    name: str
    description: str
    remark: str = ""
    stem: Callable[[str], str] | None = None
    stop_words: frozenset[str] = frozenset()
    possessives: tuple[str, ...] = ()
    cut: Callable[[str], list[str]] = words
    normalise: Callable[[str], str] | None = None

    def __call__(self, text: str) -> list[str]:
        """Return the terms of the text in order, including repetitions."""
        return [term for word in self.words(text) if (term := self.term(word)) is not None]

    def words(self, text: str) -> list[str]:
        """Return the words of the text, with long ones divided."""
        pieces = self.cut(text)
        if pieces and len(max(pieces, key=len)) > MAX_WORD_LENGTH:
            pieces = [piece for word in pieces for piece in words_by_classes(word)]
        return pieces

    def term(self, word: str) -> str | None:
        """Return the index term of a word, in lower case, normalized, and stemmed, or None for a stop word."""
        term = lower_case(word)
        if term.endswith(self.possessives):
            term = term[:-2]
        if not term or term in self.stop_words or not term.strip("_"):
            return None
        if self.normalise is not None:
            term = self.normalise(term)
        return self.stem(term) if self.stem is not None else term


#: Lucene's ArabicNormalizer: one alef, yeh for alef maksura, heh for teh marbuta, neither tatweel nor vowel marks.
_ARABIC_LETTERS = str.maketrans(
    "\u0622\u0623\u0625\u0649\u0629",
    "\u0627\u0627\u0627\u064a\u0647",
    "\u0640" + "".join(map(chr, range(0x064B, 0x0653))),
)


def _decimal_digits(term: str) -> str:
    """Replace decimal digits of any script by 0 to 9, like Lucene's DecimalDigitFilter."""
    if term.isascii() or not any(map(str.isdecimal, term)):
        return term
    return "".join(str(unicodedata.decimal(character)) if character.isdecimal() else character for character in term)


def analyser_for(language: str = "en", stemming: bool = True) -> Analyser:
    """Return the analyzer of a language, given by its code (see `language_code`).

    For a language without an analyzer, known or not, terms are lower-case words, and the remark explains this.
    """
    language = known_language_code(language)
    if language == "en":
        return Analyser(
            name="English, Porter" if stemming else "English, no stemming",
            description="UAX #29 words, without 's, lower case, Lucene's 33 stop words"
            + (", Porter stemmer (Lucene's)" if stemming else ""),
            stem=porter.stem if stemming else None,
            stop_words=ENGLISH_STOP_WORDS,
            possessives=_POSSESSIVES,
        )
    if language in CJK_LANGUAGES:
        return Analyser(
            name=f"{CJK_LANGUAGES[language]}, pairs of characters",
            description="UAX #29 words, Chinese, Japanese, and Korean as character bigrams, NFKC, lower case",
            cut=cjk_bigrams,
        )
    return _create_analyser(language, stemming)


def _create_analyser(language: str, stemming: bool) -> Analyser:
    """Return an analyzer with the stemmer, stop words, and dictionary that exist for the language."""
    import Stemmer
    from whoosh.lang.stopwords import stoplists

    algorithm = SNOWBALL_LANGUAGES.get(language) if stemming else None
    stop_words = stoplists.get(language, frozenset())
    dictionary = DICTIONARY_LANGUAGES.get(language)
    language_label = language_name(language)
    has_analyser = dictionary or stop_words or language in SNOWBALL_LANGUAGES
    fallback = "no stemming" if has_analyser else "no analyzer"
    method = "words by ICU" if dictionary else "Snowball" if algorithm else fallback
    steps = ["words by ICU's dictionary" if dictionary else "UAX #29 words", "lower case"]
    steps += [f"{len(stop_words)} stop words (Snowball's)"] if stop_words else []
    steps += ["one form of Arabic letters"] if language == "ar" else []
    steps += ["decimal digits as 0 to 9"]
    steps += [f"Snowball stemmer for {language_label}"] if algorithm else []
    return Analyser(
        name=f"{language_label}, {method}",
        description=", ".join(steps),
        remark=""
        if has_analyser
        else f"There is no analyzer for {language_label}: BM25 compares lowercased words without stemming.",
        stem=Stemmer.Stemmer(algorithm, 0).stemWord if algorithm else None,
        stop_words=stop_words,
        cut=partial(dictionary_words, language) if dictionary else words,
        normalise=_decimal_digits
        if language != "ar"
        else lambda term: _decimal_digits(term).translate(_ARABIC_LETTERS),
    )
