"""Files of a collection in a folder or zip, and the options of an import.

The layout is that of BEIR: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv`. Optional files are `qrels.txt` in
TREC format for the scored split, `document-ids.txt` if the documents cannot be stored, `answers.jsonl` for measures
that search for answers in texts, `excluded.tsv` for documents excluded from the rankings of single queries, and
`tags.tsv` for query tags. All names may end in `.gz`. Files in other formats can replace any of the first three,
and are converted (`Conversion`). Judgments by subtopic (`subtopic-qrels.txt`) are converted, too; other measures use
the highest grades.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from evaluation.judgements.merge import write_judgements as write_grades
from evaluation.judgements.subtopics import highest_grades, read_subtopics, write_subtopics
from leaderboard.datasets.problems import in_file, missing_file, name_some, problem

#: Progress callback with the name of the stage and the fraction done, 0 to 1.
Progress = Callable[[str, float], None]

_MEMBER = re.compile(
    r"(?P<root>(?:.+/)?)"
    r"(?:(?P<plain>corpus|queries|answers)\.jsonl|(?P<ids>document-ids)\.txt|(?P<trec>(?:subtopic-)?qrels)\.(?:txt|tsv)|(?P<pairs>excluded|tags)\.tsv"
    r"|qrels/(?P<split>[A-Za-z0-9_-]{1,20})\.(?:tsv|txt))(?:\.gz)?"
)

#: Maximum depth of the search in folders.
_DEPTH = 3

#: Limits for zip files. A collection has few files, but the zip may contain many others. Its size is limited by the
#: disk only.
ZIP_POLICY = ZipPolicy(
    max_members=10_000,
    members_hint="Pack only the files of the collection. At most 10,000 are allowed.",
    expansion_hint="Text usually compresses by a factor of 3 to 10. If the file is valid, import the folder instead.",
    free_bytes=2**30,
)


#: Options that do not correspond to columns of `Dataset`.
_NOT_COLUMNS = (
    "slug", "collecting", "split", "primary", "measures", "baseline", "version_label", "twin_of", "topic_field",
    "source", "strict", "card", "judged_by",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of an import; None means unchanged, or the default for a new dataset.

    Attributes:
        hidden: Whether the judgments are hidden; True by default.
        collecting: Open the dataset for runs before there are judgments.
        split: Split of the judgments used for scoring.
        primary: Primary measure of the board.
        measures: Other measures of the board.
        protection, public_share: Protection of a new dataset.
        baseline: Run that replaces BM25 as the baseline.
        twin_of: Slug of the open dataset whose hidden half this is.
        topic_field: Field of TREC topics that is the query, one of `other_formats.FIELDS`.
        source: Source of a downloaded collection.
        judged_by: Who made new judgments, or how, as shown on the board.
        strict: Reject judgments of documents that are not in the corpus.
        card: `licence`, `language`, and `task` as the source states them, to propose to a curator.
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
    judged_by: str | None = None
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
    card: Mapping[str, str] = field(default_factory=dict)

    def columns(self) -> dict[str, Any]:
        """Return the options that are columns of `Dataset` and are not None."""
        return {name: value for name, value in asdict(self).items() if value is not None and name not in _NOT_COLUMNS}


@dataclass(frozen=True, slots=True)
class CollectionFiles:
    """Files of a collection, with `qrels` by split; missing ones are None or among `problems`.

    `topic_field` is the field of TREC topics that is the query, or empty for other formats.
    """

    corpus: Path | None
    queries: Path | None
    document_ids: Path | None
    answers: Path | None = None
    qrels: dict[str, Path] = field(default_factory=dict)
    topic_field: str = ""
    excluded: Path | None = None
    tags: Path | None = None
    subtopics: Path | None = None
    problems: tuple[Problem, ...] = ()


#: Hint for archives and folders without a collection.
_LAYOUT = "A collection is a zip or a folder with corpus.jsonl, queries.jsonl, and qrels/test.tsv."


def short_name(name: str) -> str:
    """Return the end of a file's name in a collection: with the folder for `qrels/test.tsv`, and else without."""
    folder, _, base = name.rpartition("/")
    return f"qrels/{base}" if folder.rpartition("/")[2] == "qrels" else base


@contextmanager
def open_source(path: Path, options: ImportOptions, work: Path, progress: Progress) -> Iterator[CollectionFiles]:
    """Find and convert the files of a collection in a folder or zip, and yield them, with problems of missing files.

    A zip is expanded in `work`.

    Raises:
        InvalidContent: If `path` is neither a folder nor a zip.
    """
    if path.is_dir():
        files = {name.relative_to(path).as_posix(): name for name in _list_files(path, _DEPTH)}
        parts, problems = _find_parts(files, options.split)
        yield _convert({part: files[name] for part, name in parts.items()}, problems, options, work)
    elif path.is_file() and is_zip(path):
        with open_archive(path, ZIP_POLICY) as archive:
            parts, problems = _find_parts(archive.names, options.split)
            part_by_name = {name: part for part, name in parts.items()}
            # Only short, safe ends of names become paths. They have a separate folder, because files that are written
            # during reading may have the same names.
            expanded = work / "expanded"
            (expanded / "qrels").mkdir(parents=True)
            targets = {name: expanded / short_name(name) for name in parts.values()}
            archive.extract(targets, lambda name, share: progress(f"expanding {part_by_name[name]}", share))
        yield _convert({part: targets[name] for part, name in parts.items()}, problems, options, work)
    else:
        raise InvalidContent.build(
            problem(
                "no_collection",
                f"{path.name} is neither a folder nor a zip{_other_archive(path)}"
                if path.exists()
                else f"{path} does not exist",
                _LAYOUT,
            )
        )


def list_parts(path: Path, split: str) -> set[str]:
    """Return the parts of the collection in a folder or zip, such as `corpus.jsonl` and `qrels-test.tsv`.

    Judgments without a split in their name belong to `split`. Other files are omitted.
    """
    if path.is_dir():
        names = [name.relative_to(path).as_posix() for name in _list_files(path, _DEPTH)]
    elif path.is_file() and is_zip(path):
        with open_archive(path, ZIP_POLICY) as archive:
            names = list(archive.names)
    else:
        return set()
    return set(_find_parts(names, split)[0])


def _other_archive(path: Path) -> str:
    """Return the end of a message that names the format of another archive, or an empty string for other files."""
    try:
        next(open_blocks(path), None)
    except InvalidContent as error:
        return f": {error}"
    return ""


def _list_files(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files in a folder and its subfolders, down to `depth` levels, in order."""
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path
        elif path.is_dir() and depth > 1:
            yield from _list_files(path, depth - 1)


def _find_parts(names: Iterable[str], split: str) -> tuple[dict[str, str], list[Problem]]:
    """Return the names of the collection's files by part, and problems with ambiguous names.

    Names use `/` between folders. Judgments are `qrels-<split>.tsv`; `qrels.txt` contains the judgments of `split`. A
    zip usually has all files in one folder, so the shallowest folder with a known file is used. Files in other formats
    only replace missing parts.
    """
    matches = [match for name in sorted(names) if (match := _MEMBER.fullmatch(name))]
    standard_files = {match.string: (match["root"], _get_part(match, split)) for match in matches}
    other_files = {
        name: folder_and_part
        for name in sorted(names)
        if name not in standard_files and (folder_and_part := other_format(name, split))
    }
    roots = {folder for folder, _ in (standard_files or other_files).values()}
    if not roots:
        found = name_some([name[:60] for name in sorted(names)]) or "it is empty"
        return {}, [problem("no_collection", f"there is no file of a collection: {found}", _LAYOUT)]
    root = min(roots, key=lambda folder: (folder.count("/"), folder), default="")
    parts: dict[str, str] = {}
    problems = []
    for layout in (standard_files, other_files):
        earlier_parts = set(parts)
        for name, (folder, part) in layout.items():
            if folder != root or part in earlier_parts:
                continue
            other_name = parts.setdefault(part, name)
            if other_name != name:
                message = f"{other_name} and {name} contain the same part of the collection"
                problems.append(problem("ambiguous_files", message, "Keep one of the two."))
    return parts, problems


def _get_part(match: re.Match[str], split: str) -> str:
    """Return the part that a file of BEIR's layout contains, such as `corpus.jsonl` or `qrels-test.tsv`."""
    if match["pairs"]:
        return f"{match['pairs']}.tsv"
    if match["plain"] or match["ids"]:
        return f"{match['plain']}.jsonl" if match["plain"] else "document-ids.txt"
    return f"qrels-{match['split'] or split}.tsv"


def _convert(files: dict[str, Path], problems: list[Problem], options: ImportOptions, work: Path) -> CollectionFiles:
    """Convert files in other formats, and return the collection's files by kind, with problems of missing ones."""
    conversion = Conversion(files, options, work)
    files, problems = conversion.files, problems + conversion.problems
    qrels = {
        part.removeprefix("qrels-").removesuffix(".tsv"): path
        for part, path in files.items()
        if part.startswith("qrels-")
    }
    corpus, queries = files.get("corpus.jsonl"), files.get("queries.jsonl")
    if conversion.problems or not files:  # Do not report unreadable files as missing, nor every part as missing.
        return CollectionFiles(corpus, queries, None, qrels=qrels, problems=tuple(problems))
    if queries is None:
        problems.append(
            missing_file("queries.jsonl", "Put queries.jsonl (or queries.jsonl.gz) at the top of the folder or zip.")
        )
    if corpus is None and not options.runs_only:
        hint = "Put corpus.jsonl (or .gz) next to queries.jsonl. For a collection without documents, use --runs-only."
        problems.append(missing_file("corpus.jsonl", hint))
    if options.split not in qrels and not options.collecting:
        hint = "Add the judgments (or qrels.txt in TREC format). If there are none yet, use --collecting."
        if qrels:
            hint = f"Choose one of the available splits: --split {', '.join(sorted(qrels))}."
        problems.append(missing_file(f"qrels/{options.split}.tsv", hint))
    ids, answers = files.get("document-ids.txt"), files.get("answers.jsonl")
    others = files.get("excluded.tsv"), files.get("tags.tsv"), conversion.subtopics
    return CollectionFiles(corpus, queries, ids, answers, qrels, conversion.topic_field, *others, tuple(problems))


#: File names in other formats. They are restricted to short, safe names; names with a leading dot are system files.
_OTHER_FORMAT = re.compile(
    r"(?P<root>(?:.+/)?)(?:(?P<table>corpus|queries|qrels)\.csv|qrels/(?P<split>[A-Za-z0-9_-]{1,20})\.csv"
    r"|(?P<topics>(?!\.)[\w.-]{0,60}topics(?:[\w.-]{0,60}(?:[0-9]|\.txt|\.xml|\.sgml?|\.trec))?)"
    r"|(?P<documents>[\w-]{1,60}\.(?i:all)(?:\.[0-9]+)?)|(?P<queries>[\w-]{1,60}\.(?i:qry))"
    r"|(?P<judged>[\w-]{1,60}\.(?i:rel)|cranqrel))(?:\.gz)?",
    re.ASCII,
)


def other_format(name: str, split: str = "") -> tuple[str, str] | None:
    """Return the root folder of a file in another format and the BEIR file that it corresponds to.

    Returns None for any other file. `split` is the default for judgments whose name has no split.
    """
    match = _OTHER_FORMAT.fullmatch(name)
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
    """Files of a collection by part, with those in other formats converted; each file that fails adds its problems."""

    def __init__(self, files: dict[str, Path], options: ImportOptions, work: Path) -> None:
        """Convert files in other formats, writing the results into `work`, and collect the problems of those that fail.

        Also adds a problem if a topic field is requested, but the queries are not TREC topics.
        """
        self.files: dict[str, Path] = {}
        self.problems: list[Problem] = []
        self.topic_field = ""
        self.subtopics: Path | None = None
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
            message = f"--topic-field {options.topic_field}: the queries are not TREC topics"
            self.problems.append(problem("topic_field", message, "Omit this option."))

    def _converter(self, part: str, path: Path) -> Callable[[Path], None] | None:
        """Return the function that converts a file of a part to a target path, or None if it has BEIR's layout."""
        if path.name.endswith((".csv", ".csv.gz")):
            return partial(convert_judgements if part.startswith("qrels-") else convert_texts, [path])
        match = _OTHER_FORMAT.fullmatch(path.name)
        if match is None:
            if path.name.startswith("subtopic-qrels."):
                return partial(self._separate_subtopics, path)
            texts = part in ("corpus.jsonl", "queries.jsonl")
            return partial(convert_texts, [path]) if texts and has_other_names(path, part) else None
        if match["topics"]:
            return partial(self._convert_topics, path)
        if match["judged"]:
            return partial(self._convert_smart_judgements, path)
        return lambda target: write_records(target, read_smart(path))

    def _separate_subtopics(self, path: Path, target: Path) -> None:
        """Convert judgments by subtopic to qrels with the highest grades, and write a normalized copy next to them."""
        try:
            grades = read_subtopics(path)
        except InvalidContent as error:
            raise InvalidContent.build(*in_file(short_name(path.as_posix()), error.report.problems)) from error
        write_grades(highest_grades(grades), target)
        self.subtopics = target.with_name("subtopic-qrels.txt")
        write_subtopics(grades, self.subtopics)

    def _convert_topics(self, path: Path, target: Path) -> None:
        self.topic_field, queries = select_queries(path, read_topics(path), self._options.topic_field)
        write_records(target, queries)

    def _convert_smart_judgements(self, path: Path, target: Path) -> None:
        """Convert SMART judgments, which may refer to queries by their position in the SMART query file."""
        queries = self._given.get("queries.jsonl")
        is_smart = queries is not None and other_format(queries.name) and not queries.name.endswith(".csv")
        write_judgements(target, read_smart_judgements(path, read_smart(queries) if queries and is_smart else []))
