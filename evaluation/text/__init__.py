"""From text to the terms of an index: words, lower case, stop words, stems.

English is analysed as Lucene's EnglishAnalyzer does (and with it Anserini, whose BM25 is the field's reference):
StandardTokenizer, possessive 's, lower case, 33 stop words, Porter. Other languages: the same words, lower case,
Snowball's stemmer for the language where there is one, and no stop words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import Stemmer

from evaluation.text import porter
from evaluation.text.words import words

#: Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET.
ENGLISH_STOP_WORDS = frozenset(
    (
        "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no",
        "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this",
        "to", "was", "will", "with",
    )
)  # fmt: skip

#: Longer words are cut into pieces of this many characters, as Lucene's StandardTokenizer does.
MAX_WORD_LENGTH = 255

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
    """Turns text into terms. `name` is what boards print beside a baseline; `description` says each step."""

    name: str
    description: str
    stem: Callable[[str], str] | None = None
    stop_words: frozenset[str] = frozenset()
    possessives: tuple[str, ...] = ()

    def __call__(self, text: str) -> list[str]:
        """The terms of the text, in order, with repetitions."""
        return [term for word in self.words(text) if (term := self.term(word)) is not None]

    def words(self, text: str) -> list[str]:
        """The words that `term` takes, long ones cut into pieces."""
        found = words(text)
        if found and len(max(found, key=len)) > MAX_WORD_LENGTH:
            found = [piece for word in found for piece in pieces(word)]
        return found

    def term(self, word: str) -> str | None:
        """The term that a word stands for in the index; None for a stop word."""
        term = word.lower()
        if term.endswith(self.possessives):
            term = term[:-2]
        if not term or term in self.stop_words or not term.strip("_"):
            return None
        return self.stem(term) if self.stem is not None else term


def pieces(word: str) -> list[str]:
    """The word in pieces no longer than Lucene keeps."""
    return [word[start : start + MAX_WORD_LENGTH] for start in range(0, len(word), MAX_WORD_LENGTH)]


def analyser_for(language: str = "en", stemming: bool = True) -> Analyser:
    """The analyser of a language, given by its ISO 639-1 code (`de`; also `de-AT`).

    A language without a stemmer is analysed into lower-case words.
    """
    language = language.lower().replace("_", "-").split("-")[0]
    if language == "en":
        return Analyser(
            name="English, Porter" if stemming else "English, no stemming",
            description="UAX #29 words, without 's, lower case, Lucene's 33 stop words"
            + (", Porter stemmer (Lucene's)" if stemming else ""),
            stem=porter.stem if stemming else None,
            stop_words=ENGLISH_STOP_WORDS,
            possessives=_POSSESSIVES,
        )
    algorithm = SNOWBALL_LANGUAGES.get(language)
    if algorithm is None or not stemming:
        name = algorithm.capitalize() if algorithm else language
        return Analyser(name=f"{name}, no stemming", description="UAX #29 words, lower case")
    return Analyser(
        name=f"{algorithm.capitalize()}, Snowball",
        description=f"UAX #29 words, lower case, Snowball stemmer for {algorithm.capitalize()}",
        stem=Stemmer.Stemmer(algorithm, 0).stemWord,
    )
