"""Every page as it is read: templates that are laid out in lines lose or double a blank easily."""

from __future__ import annotations

import re
from html import unescape

import pytest

from tests.doors.content import Site
from tests.doors.expected import ROWS
from tests.doors.walking import doors_of

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")]
#: What is no running text.
LEFT_OUT = re.compile(r"<(script|style|pre|code|kbd|textarea|svg|title|option)\b.*?</\1\s*>|<!--.*?-->", re.DOTALL)
#: What begins a line, or hides what it has from all but screen readers; `·` stands between facts.
BLOCK = re.compile(
    r"</?(?:p|div|li|ul|ol|d[ldt]|h[1-6]|t[dhr]|table|thead|tbody|caption|section|header|footer|nav|form|fieldset|legend|label"
    r"|summary|details|figure|figcaption|main|body|html|head|br|input|select|button|small|blockquote|link|meta)\b[^>]*>"
    r"|<span class=\"visually-hidden\">.*?</span>",
    re.DOTALL,
)
TAG = re.compile(r"<[^>]*>")
LINK = re.compile(r"<a\b[^>]*>((?:(?!</a>).)*)</a>(.?)", re.DOTALL)


def faults(page: str) -> set[str]:
    """Where a blank stands before a comma or inside a bracket, or is underlined at the end of a link."""
    page = LEFT_OUT.sub("…", page)
    found = set()
    for line in BLOCK.split(page):
        for text, after in LINK.findall(line):
            if text[-1:].isspace() and after and not after.isspace():
                found.add(" ".join(TAG.sub("", text).split()) + " |" + after)
        words = " ".join(unescape(TAG.sub("", line)).split())
        found.update(re.findall(r".{0,30}(?:\w [,;](?= |$)|\( |\w \)|[,;:],|, ,).{0,20}", words))
    return found


@pytest.mark.long
def test_no_page_has_a_blank_too_much(site: Site) -> None:
    wrong, seen = [], 0
    for door in doors_of(site, ROWS):
        person = "root" if door.address.startswith("/admin/") else "owner"
        answer = site.people[person].get(door.address)
        if answer.status_code == 200 and "html" in answer.headers["Content-Type"]:
            seen += 1
            wrong += [f"{door.name} ({door.address}): {fault}" for fault in faults(answer.content.decode())]
    assert seen > 80
    assert not wrong, "\n".join(wrong)


def test_faults_are_found() -> None:
    page = "<p>One <a href='/'>two </a>, three ( four</p> <p>all, <b>right</b>: <a> here</a> and (there)</p>"
    assert faults(page) == {"two |,", "One two , three ( four"}
