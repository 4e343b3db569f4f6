"""A collection as a folder or zip of files that are found by their names, and what a curator says about it.

The layout is BEIR's: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv`; also `qrels.txt` in TREC format for the
scored split, `document-ids.txt` where the documents themselves may not be kept, `answers.jsonl` for measures that
look for answers in texts, and `excluded.tsv` for documents that are left out of the rankings of single queries. Each
may end in `.gz`. Where one of the first three is not there, it may be in another format, and is converted
(`Conversion`).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.archives.compression import open_blocks
from evaluation.archives.zip import ZipPolicy, is_zip, open_archive
from evaluation.collections.other_formats import (
    read_smart,
    read_smart_judgements,
    read_topics,
    select_queries,
    write_judgements,
    write_records,
)
from evaluation.collections.tables import convert_judgements, convert_texts, has_other_names
from evaluation.core.problems import InvalidContent, Problem
from leaderboard.datasets.problems import missing, problem

#: Told what is being done and the share of it that is done, 0 to 1.
Progress = Callable[[str, float], None]

_MEMBER = re.compile(
    r"(?P<root>(?:.+/)?)"
    r"(?:(?P<plain>corpus|queries|answers)\.jsonl|(?P<ids>document-ids)\.txt|(?P<trec>qrels)\.(?:txt|tsv)|(?P<excluded>excluded)\.tsv"
    r"|qrels/(?P<split>[A-Za-z0-9_-]{1,20})\.(?:tsv|txt))(?:\.gz)?"
)

#: Folders are searched so deep.
_DEPTH = 3

#: A collection has few files of its own, and may lie among many others. Curators may bring any size that fits.
ZIP_POLICY = ZipPolicy(
    max_members=10_000,
    members_hint="Pack only the collection's own files; 10,000 are the limit.",
    expansion_hint="Text shrinks three- to tenfold. Import the folder instead, if this one is real.",
    free_bytes=2**30,
)


#: Options that are no columns of `Dataset` as they stand.
_OTHERS = (
    "slug", "collecting", "split", "primary", "measures", "baseline", "version_label", "twin_of", "topic_field",
    "source", "strict",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """None means: as it is, or the default for a new dataset.

    `hidden` is True by default. `collecting` opens the dataset for runs before there are judgements. `split` names
    the judgements that runs are scored against. `measures` are those that the board shows, `primary` the first of
    them. `protection` and `public_share` are for new datasets. `baseline` is the run that systems are
    compared with instead of BM25. `twin_of` is the slug of the open dataset whose hidden half this is. `topic_field` is
    the field of TREC topics that is the query, one of `other_formats.FIELDS`. `source` says where the
    collection was fetched from. `strict` refuses judgements of documents that the corpus lacks.
    """

    slug: str
    name: str | None = None
    task: str | None = None
    domain: str | None = None
    language: str | None = None
    licence: str | None = None
    homepage: str | None = None
    citation: str | None = None
    description: str | None = None
    hidden: bool | None = None
    runs_only: bool | None = None
    collecting: bool = False
    split: str = "test"
    primary: str | None = None
    measures: tuple[str, ...] = ()
    relevance_level: int | None = None
    drop_self_matches: bool | None = None
    candidates_only: bool | None = None
    queries_visibility: str | None = None
    documents_visibility: str | None = None
    runs_visibility: str | None = None
    ir_datasets_id: str | None = None
    beir_name: str | None = None
    protection: str | None = None
    public_share: float | None = None
    baseline: Path | None = None
    version_label: str = ""
    twin_of: str | None = None
    topic_field: str | None = None
    source: str = ""
    strict: bool = False

    def columns(self) -> dict[str, Any]:
        """Return the columns of `Dataset` that were said."""
        return {name: said for name, said in asdict(self).items() if said is not None and name not in _OTHERS}


@dataclass(frozen=True, slots=True)
class CollectionFiles:
    """The files of a collection; `qrels` by split. What is missing is None, or among `problems`.

    `topic_field` is the field of TREC topics that is the query, empty where they are no TREC topics.
    """

    corpus: Path | None
    queries: Path | None
    document_ids: Path | None
    answers: Path | None = None
    qrels: dict[str, Path] = field(default_factory=dict)
    topic_field: str = ""
    excluded: Path | None = None
    problems: tuple[Problem, ...] = ()


@contextmanager
def open_source(
    path: Path, options: ImportOptions, work: Path, progress: Progress
) -> Iterator[CollectionFiles]:
    """Yield the collection at `path`; a zip is expanded below `work`. Raises InvalidContent if it is neither."""
    if path.is_dir():
        files = {name.relative_to(path).as_posix(): name for name in _files_below(path, _DEPTH)}
        parts, problems = _find_parts(files, options.split)
        yield _source({part: files[name] for part, name in parts.items()}, problems, options, work)
    elif path.is_file() and is_zip(path):
        with open_archive(path, ZIP_POLICY) as archive:
            parts, problems = _find_parts(archive.names, options.split)
            part_of = {name: part for part, name in parts.items()}
            # On disk the files have names of ours: the entry's is never a path. They lie apart from what is written
            # while they are read, which may have the same name.
            expanded = work / "expanded"
            expanded.mkdir()
            targets = {
                name: expanded / (name.rpartition("/")[2] if other_format(name) else part)
                for part, name in parts.items()
            }
            archive.extract(targets, lambda name, share: progress(f"expanding {part_of[name]}", share))
        yield _source({part: targets[name] for part, name in parts.items()}, problems, options, work)
    else:
        raise InvalidContent.of(
            problem(
                "no_collection",
                f"{path.name} is neither a folder nor a zip{_other_archive(path)}"
                if path.exists()
                else f"there is no {path}",
                "Give a folder or a zip with corpus.jsonl, queries.jsonl and qrels/test.tsv.",
            )
        )


def _other_archive(path: Path) -> str:
    """Return the end of a message that names the format of another archive, or an empty text."""
    try:
        next(open_blocks(path), None)
    except InvalidContent as error:
        return f": {error}"
    return ""


def _files_below(folder: Path, depth: int) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path
        elif path.is_dir() and depth > 1:
            yield from _files_below(path, depth - 1)


def _find_parts(names: Iterable[str], split: str) -> tuple[dict[str, str], list[Problem]]:
    """The collection's files among the names (with `/` between folders), by what they hold, and what is ambiguous.

    Judgements are `qrels-<split>.tsv`; `qrels.txt` stands for `split`. A zip usually has everything in one folder: the
    shallowest folder with a file of the layout is taken.
    """
    matches = [match for name in sorted(names) if (match := _MEMBER.fullmatch(name))]
    known = {match.string: (match["root"], _part_of(match, split)) for match in matches}
    others = {
        name: found for name in sorted(names) if name not in known and (found := other_format(name, split))
    }
    roots = {folder for folder, _ in (known or others).values()}
    root = min(roots, key=lambda folder: (folder.count("/"), folder), default="")
    parts: dict[str, str] = {}
    problems = []
    for layout in (known, others):
        there = set(parts)
        for name, (folder, part) in layout.items():
            if folder != root or part in there:
                continue
            earlier = parts.setdefault(part, name)
            if earlier != name:
                message = f"{earlier} and {name} are the same part twice"
                problems.append(problem("ambiguous_files", message, "Keep one of the two."))
    return parts, problems


def _part_of(match: re.Match[str], split: str) -> str:
    if match["excluded"]:
        return "excluded.tsv"
    if match["plain"] or match["ids"]:
        return f"{match['plain']}.jsonl" if match["plain"] else "document-ids.txt"
    return f"qrels-{match['split'] or split}.tsv"


def _source(
    files: dict[str, Path], problems: list[Problem], options: ImportOptions, work: Path
) -> CollectionFiles:
    converted = Conversion(files, options, work)
    files, problems = converted.files, problems + converted.problems
    qrels = {
        part.removeprefix("qrels-").removesuffix(".tsv"): path
        for part, path in files.items()
        if part.startswith("qrels-")
    }
    corpus, queries = files.get("corpus.jsonl"), files.get("queries.jsonl")
    if converted.problems:  # what could not be read is not missing
        return CollectionFiles(corpus, queries, None, qrels=qrels, problems=tuple(problems))
    if queries is None:
        problems.append(
            missing(
                "queries.jsonl", "Put queries.jsonl (or queries.jsonl.gz) at the top of the folder or zip."
            )
        )
    if corpus is None and not options.runs_only:
        hint = "Put corpus.jsonl (or .gz) beside queries.jsonl; for a collection without its documents say --runs-only."
        problems.append(missing("corpus.jsonl", hint))
    if options.split not in qrels and not options.collecting:
        hint = "Put the judgements there (or qrels.txt in TREC format); without any yet, say --collecting."
        if qrels:
            hint = f"Name one of the splits that are there: --split {', '.join(sorted(qrels))}."
        problems.append(missing(f"qrels/{options.split}.tsv", hint))
    ids, answers = files.get("document-ids.txt"), files.get("answers.jsonl")
    excluded = files.get("excluded.tsv")
    return CollectionFiles(
        corpus, queries, ids, answers, qrels, converted.topic_field, excluded, tuple(problems)
    )


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
        self.topic_field, queries = select_queries(path, read_topics(path), self._options.topic_field)
        write_records(target, queries)

    def _convert_smart_judgements(self, path: Path, target: Path) -> None:
        """Judgements may name queries by their place in the SMART file of these."""
        queries = self._given.get("queries.jsonl")
        is_smart = queries is not None and other_format(queries.name) and not queries.name.endswith(".csv")
        write_judgements(
            target, read_smart_judgements(path, read_smart(queries) if queries and is_smart else [])
        )
