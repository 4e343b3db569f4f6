"""Finding a collection's files by their names, in a folder or a zip.

The layout is BEIR's: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv`; also `qrels.txt` in TREC format for the
scored split, and `document-ids.txt` where the documents themselves may not be kept. Each may end in `.gz`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from evaluation.core.problems import Problem
from leaderboard.datasets.problems import problem

_MEMBER = re.compile(
    r"(?P<root>(?:.+/)?)"
    r"(?:(?P<plain>corpus|queries)\.jsonl|(?P<ids>document-ids)\.txt|(?P<trec>qrels)\.txt"
    r"|qrels/(?P<split>[A-Za-z0-9_-]{1,20})\.tsv)(?:\.gz)?"
)


@dataclass(slots=True)
class Layout:
    """File names by what they hold; `qrels` by split."""

    corpus: str = ""
    queries: str = ""
    document_ids: str = ""
    qrels: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def names(self) -> list[str]:
        """Every file that belongs to the collection."""
        return [name for name in (self.corpus, self.queries, self.document_ids, *self.qrels.values()) if name]


def find_layout(names: Iterable[str], split: str) -> Layout:
    """Which of the names (with `/` between folders) are the collection's; `qrels.txt` stands for `split`.

    A zip usually has everything in one folder: the shallowest folder with a file of the layout is taken.
    """
    matches = [match for name in sorted(names) if (match := _MEMBER.fullmatch(name))]
    layout = Layout()
    if not matches:
        return layout
    root = min((match["root"] for match in matches), key=lambda folder: (folder.count("/"), folder))
    for match in matches:
        if match["root"] == root:
            _place(layout, match, split)
    return layout


def _place(layout: Layout, match: re.Match[str], split: str) -> None:
    name = match.string
    if match["trec"] or match["split"]:
        of = match["split"] or split
        earlier = layout.qrels.setdefault(of, name)
    else:
        attribute = match["plain"] or "document_ids"
        earlier = getattr(layout, attribute) or name
        setattr(layout, attribute, earlier)
    if earlier != name:
        layout.problems.append(
            problem(
                "ambiguous_files", f"{earlier} and {name} are the same part twice", "Keep one of the two."
            )
        )
