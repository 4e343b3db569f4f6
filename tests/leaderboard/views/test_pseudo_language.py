"""Pages in a language that does not exist, whose every letter has an accent: what has none was never translated."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape

import pytest
from django.template import engines
from django.test import Client
from django.utils import translation

from tests.pages import clear_page_cache
from tests.structure.test_templates import NAMES

ACCENTS = str.maketrans("aeiouyncAEIOUYNC", "áéíóúýñçÁÉÍÓÚÝÑÇ")
#: What no translator may change: values to come, tags and entities.
KEPT = re.compile(r"(%\(\w+\)[sd]|<[^>]*>|&\w+;)")
#: Not read, or the same in every language: what is typed, written by a program, or the name of something.
LEFT_OUT = re.compile(r"<(script|style|code|pre|kbd|svg|time|title)\b.*?</\1>|<[^>]*>", re.DOTALL)
PAGES = (
    "/",
    "/benchmarks/",
    "/compare/",
    "/rounds/",
    "/news/",
    "/search/?q=bm25&kind=team",  # titles of documentation are not translated
    "/nosuch/",
    "/docs/nosuch/",
)
#: Of the operator, and what users typed.
DATA = {*NAMES, "bm25", "nosuch", "testserver", "Privacy"}


def accented(text: str) -> str:
    parts = KEPT.split(text)
    return "".join(part if number % 2 else part.translate(ACCENTS) for number, part in enumerate(parts))


@pytest.fixture
def accents(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every text that goes through gettext comes back with accents."""
    looked_up: dict[str, Callable[..., str]] = {
        "gettext": accented,
        "pgettext": lambda _context, text: accented(text),
        "ngettext": lambda one, many, number: accented(one if number == 1 else many),
        "npgettext": lambda _context, one, many, number: accented(one if number == 1 else many),
    }
    for name, function in looked_up.items():
        monkeypatch.setattr(translation._trans, name, function, raising=False)
    clear_page_cache()
    yield
    clear_page_cache()


def bare_words(page: str) -> set[str]:
    """Words with a vowel or consonant that a translated text would have accented."""
    text = unescape(LEFT_OUT.sub("\n", page))
    return {word for word in re.findall(r"[^\W\d_]\w+", text) if word != accented(word)} - DATA


@pytest.mark.django_db
@pytest.mark.parametrize("address", PAGES)
def test_a_page_has_no_text_of_its_own(address: str, client: Client, accents: None) -> None:
    assert bare_words(client.get(address).content.decode()) == set()


def test_a_bare_sentence_is_found(accents: None) -> None:
    page = "{% load i18n %}<p>{% blocktranslate with n=3 %}All <b>{{ n }} systems</b>{% endblocktranslate %} are</p>"
    assert bare_words(engines["django"].from_string(page).render()) == {"are"}
