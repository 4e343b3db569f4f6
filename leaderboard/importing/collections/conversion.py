"""Files of a collection in other formats than BEIR's, told by their names and converted below the import's folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from evaluation.collections.other_formats import write_judgements, write_records
from evaluation.collections.smart import read_smart, read_smart_judgements
from evaluation.collections.tables import convert_judgements, convert_texts, has_other_names
from evaluation.collections.topics import queries_of, read_topics
from evaluation.core.errors import InvalidContent
from evaluation.core.problems import Problem
from leaderboard.datasets.problems import problem
from leaderboard.importing.collections.options import ImportOptions

#: Names are short and plain enough to be those of files here; one that begins with a dot is a system's.
_OTHER = re.compile(
    r"(?P<root>(?:.+/)?)(?:(?P<table>corpus|queries|qrels)\.csv|qrels/(?P<split>[A-Za-z0-9_-]{1,20})\.csv"
    r"|(?P<topics>(?!\.)[\w.-]{0,60}topics(?:[\w.-]{0,60}(?:[0-9]|\.txt|\.xml|\.sgml?|\.trec))?)"
    r"|(?P<documents>[\w-]{1,60}\.(?i:all)(?:\.[0-9]+)?)|(?P<queries>[\w-]{1,60}\.(?i:qry))"
    r"|(?P<judged>[\w-]{1,60}\.(?i:rel)|cranqrel))(?:\.gz)?",
    re.ASCII,
)


def other_format(name: str, split: str = "") -> tuple[str, str] | None:
    """(folder, the part of BEIR's layout that it stands for) of a file in another format; None for any other file."""
    match = _OTHER.fullmatch(name)
    if match is None:
        return None
    if match["documents"] or match["table"] == "corpus":
        part = "corpus.jsonl"
    elif match["topics"] or match["queries"] or match["table"] == "queries":
        part = "queries.jsonl"
    else:
        part = f"qrels-{match['split'] or split}.tsv"
    return match["root"], part


class Conversion:
    """The files of a collection by part, those of other formats converted; `problems` are of those that cannot be."""

    def __init__(self, files: dict[str, Path], options: ImportOptions, work: Path) -> None:
        self.files: dict[str, Path] = {}
        self.problems: list[Problem] = []
        self.topic_field = ""
        self._given, self._options = files, options
        for part, path in files.items():
            convert = self._converter(part, path)
            if convert is None:
                self.files[part] = path
                continue
            target = work / "converted" / part
            target.parent.mkdir(exist_ok=True)
            try:
                convert(target)
            except InvalidContent as error:
                self.problems += error.report.problems
            else:
                self.files[part] = target
        if options.topic_field and not self.topic_field and not self.problems:
            message = f"--topic-field {options.topic_field}: the queries are no TREC topics"
            self.problems.append(problem("topic_field", message, "Leave it out."))

    def _converter(self, part: str, path: Path) -> Callable[[Path], None] | None:
        if path.name.endswith((".csv", ".csv.gz")):
            return partial(convert_judgements if part.startswith("qrels-") else convert_texts, [path])
        match = _OTHER.fullmatch(path.name)
        if match is None:
            texts = part in ("corpus.jsonl", "queries.jsonl")
            return partial(convert_texts, [path]) if texts and has_other_names(path, part) else None
        if match["topics"]:
            return partial(self._convert_topics, path)
        if match["judged"]:
            return partial(self._convert_smart_judgements, path)
        return lambda target: write_records(target, read_smart(path))

    def _convert_topics(self, path: Path, target: Path) -> None:
        self.topic_field, queries = queries_of(path, read_topics(path), self._options.topic_field)
        write_records(target, queries)

    def _convert_smart_judgements(self, path: Path, target: Path) -> None:
        """Judgements may name queries by their place in the SMART file of these."""
        queries = self._given.get("queries.jsonl")
        is_smart = queries is not None and other_format(queries.name) and not queries.name.endswith(".csv")
        write_judgements(
            target, read_smart_judgements(path, read_smart(queries) if queries and is_smart else [])
        )
