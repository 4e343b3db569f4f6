"""Template tags for the page head: title and summary for search engines and link previews."""

from html import unescape

from django import template
from django.template.loader_tags import BLOCK_CONTEXT_KEY
from django.utils.html import strip_tags

from leaderboard.boards.model import Board
from leaderboard.boards.wording import shorten
from leaderboard.core.text.markdown import first_sentence

register = template.Library()

SITE = (
    "A public leaderboard for information retrieval: runs and models are scored on hidden and open relevance "
    "judgments, with significance tests, measured costs and a baseline for every result."
)
#: Maximum length of a description.
MAX_LENGTH = 300


@register.simple_tag(takes_context=True)
def page_title(context: template.Context) -> str:
    """Return the page's `title` block as plain text, or the site's name without a block.

    Templates can render a block only once, so a tag is needed to repeat it.
    """
    blocks = context.render_context.get(BLOCK_CONTEXT_KEY)
    block = blocks.get_block("title") if blocks else None
    if block is None:
        return str(context.get("site_name") or "Runboard")
    return unescape(strip_tags(block.nodelist.render(context))).strip()


@register.simple_tag(takes_context=True)
def page_summary(context: template.Context) -> str:
    """Return the page's description in at most MAX_LENGTH characters.

    It is the verdict of its board, its `summary`, the first sentence of its object's description, or the site's
    description.
    """
    board, summary = context.get("board"), context.get("summary")
    if isinstance(board, Board) and board.summary:
        summary = f"{board.title}. {board.summary.text}"
    for name in ("dataset", "benchmark", "system"):
        subject = context.get(name)
        if not summary and isinstance(subject, dict):
            summary = first_sentence(subject.get("description") or "")
    return shorten(" ".join((summary or SITE).split()), MAX_LENGTH)
