"""Classes of queries, for which boards show separate scores.

All functions are pure and map texts or lengths to the name of a class. Words are those of BM25
(`evaluation.text.words`), so an ideograph counts as a word. docs/read-a-board.md describes the classes for readers.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence

from evaluation.text.words import words

#: Maximum number of words of short and of medium queries.
MAX_SHORT_WORDS, MAX_MEDIUM_WORDS = 3, 8
#: Maximum number of words of a query that counts as keywords if it is not a question.
MAX_KEYWORD_WORDS = 5
_QUESTION_MARKS = ("?", "？", "؟", "፧")
#: First words of questions by language. In other languages, only a question mark identifies a question.
_QUESTION_WORDS = {
    "de": "wer was wann wo wohin woher warum weshalb wieso wie welche welcher welches wem wen ist sind kann gibt",
    "en": "who whom whose what when where why which how is are was were do does did can could should will has have",
    "es": "quién quiénes qué cuándo dónde cuál cuáles cómo cuánto cuántos cuánta cuántas",
    "fr": "qui que quoi quand où pourquoi comment combien quel quelle quels quelles est-ce",
    "it": "chi cosa quando dove perché quale quali come quanto quanti",
    "pt": "quem quando onde qual quais como quanto quantos",
}
#: Scripts of Japanese, which mixes kana with Han characters.
_KANA = ("hiragana", "katakana")
#: Common names of scripts that Unicode names differently.
_SCRIPTS = {"cjk": "han"}


def length_class(text: str) -> str:
    """Return `short` for at most 3 words, `medium` for at most 8, and `long` for more."""
    count = len(words(text))
    return "short" if count <= MAX_SHORT_WORDS else "medium" if count <= MAX_MEDIUM_WORDS else "long"


def type_class(text: str, language: str) -> str:
    """Return `question`, `keywords`, or `statement`.

    A question ends with a question mark, or begins with a question word of the `language` (an ISO 639 code). Other
    queries are keywords if they have at most 5 words.
    """
    first_word = text.split(maxsplit=1)[0].casefold() if text.strip() else ""
    if text.rstrip().endswith(_QUESTION_MARKS) or first_word in _QUESTION_WORDS.get(language, "").split():
        return "question"
    return "keywords" if len(words(text)) <= MAX_KEYWORD_WORDS else "statement"


def script_class(text: str) -> str:
    """Return the most frequent script of the letters, such as `latin`, `han`, or `cyrillic`; empty without letters.

    Texts with hiragana or katakana are `japanese`.
    """
    names = (unicodedata.name(letter, "").partition(" ")[0].lower() for letter in text if letter.isalpha())
    scripts = Counter(filter(None, names))
    if any(name in scripts for name in _KANA):
        return "japanese"
    return next((_SCRIPTS.get(name, name) for name, _ in scripts.most_common(1)), "")


def document_class(median_words: float, thirds: Sequence[float]) -> str:
    """Return `short`, `medium`, or `long` for the median length of a query's relevant documents.

    `thirds` are the lengths that divide the documents of the collection into three parts of equal size.
    """
    return "short" if median_words <= thirds[0] else "medium" if median_words <= thirds[1] else "long"
