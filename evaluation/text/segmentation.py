"""Languages that are written without blanks between words, or with more than a word between two blanks.

Chinese, Japanese and Korean are cut into pairs of neighbouring characters, as Lucene's CJKAnalyzer does; Thai, Lao,
Khmer and Burmese into words by ICU's dictionaries, which Lucene's analysers use as well.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import partial

from evaluation.text.words import words

#: Lucene's CJKBigramFilter takes Han, hiragana, katakana and Hangul, in any mixture.
_CJK = re.compile(
    "[\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3130-\u318f"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
#: Thai, Lao, Burmese, Khmer.
_WITHOUT_BLANKS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")

CJK_LANGUAGES = {"zh": "Chinese", "ja": "Japanese", "ko": "Korean", "yue": "Cantonese"}
DICTIONARY_LANGUAGES = {"th": "Thai", "lo": "Lao", "km": "Khmer", "my": "Burmese"}


def cjk_bigrams(text: str) -> list[str]:
    """The words of the text; a run of Chinese, Japanese or Korean as all pairs of neighbours, or as its only character.

    Letters and digits of full width and katakana of half width are first written as the usual ones (NFKC).
    """
    if text.isascii():
        return words(text)
    text = unicodedata.normalize("NFKC", text)
    found: list[str] = []
    end = 0
    for run in _CJK.finditer(text):
        found += words(text[end : run.start()])
        pairs = [text[at : at + 2] for at in range(run.start(), run.end() - 1)]
        found += pairs or [run.group()]
        end = run.end()
    return found + words(text[end:])


def dictionary_words(language: str) -> Callable[[str], list[str]]:
    """Cuts text into words, those of `language`, which has no blanks, by ICU's dictionary."""
    return partial(_dictionary_words, language)


def _dictionary_words(language: str, text: str) -> list[str]:
    from icu4py.breakers import WordBreaker  # 32 MiB of data, for few collections

    found = []
    for word in words(text):
        if _WITHOUT_BLANKS.search(word):
            found += [part for part in WordBreaker(word, language) if any(map(str.isalnum, part))]
        else:
            found.append(word)
    return found
