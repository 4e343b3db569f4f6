"""A collection where it lies, a folder or a zip, as files to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from evaluation.archives.zip import Archive, Policy, is_zip, open_archive
from evaluation.core.errors import InvalidContent
from evaluation.core.problems import Problem
from leaderboard.datasets.problems import missing, problem
from leaderboard.importing.collections.layout import Layout, find_layout
from leaderboard.importing.collections.options import ImportOptions

#: Told what is being done and the share of it that is done, 0 to 1.
Progress = Callable[[str, float], None]

#: Folders are searched so deep.
_DEPTH = 3

#: A collection has few files of its own, and may lie among many others. Curators may bring any size that fits.
ZIP_POLICY = Policy(
    max_members=10_000,
    members_hint="Pack only the collection's own files; 10,000 are the limit.",
    expansion_hint="Text shrinks three- to tenfold. Import the folder instead, if this one is real.",
    free_bytes=2**30,
)


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a collection; `qrels` by split. What is missing is None, or among `problems`."""

    corpus: Path | None
    queries: Path | None
    document_ids: Path | None
    qrels: dict[str, Path] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@contextmanager
def open_source(path: Path, options: ImportOptions, work: Path, progress: Progress) -> Iterator[Source]:
    """The collection at `path`; a zip is expanded below `work`. Raises InvalidContent if it is neither."""
    if path.is_dir():
        names = {name.relative_to(path).as_posix(): name for name in _files_below(path, _DEPTH)}
        layout = find_layout(names, options.split)
        yield _source(layout, {name: names[name] for name in layout.names()}, options)
    elif path.is_file() and is_zip(path):
        with open_archive(path, ZIP_POLICY) as archive:
            layout = find_layout(archive.names, options.split)
            files = _expanded(archive, layout, work, progress)
        yield _source(layout, files, options)
    else:
        raise InvalidContent.of(
            problem(
                "no_collection",
                f"{path.name} is neither a folder nor a zip" if path.exists() else f"there is no {path}",
                "Give a folder or a zip with corpus.jsonl, queries.jsonl and qrels/test.tsv.",
            )
        )


def _files_below(folder: Path, depth: int) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path
        elif path.is_dir() and depth > 1:
            yield from _files_below(path, depth - 1)


def _expanded(archive: Archive, layout: Layout, work: Path, progress: Progress) -> dict[str, Path]:
    """The archive's files by their names in it. On disk they have names of ours: the entry's is never a path."""
    kinds = {
        layout.corpus: "corpus.jsonl",
        layout.queries: "queries.jsonl",
        layout.document_ids: "document-ids.txt",
    }
    kinds |= {name: f"qrels-{split}.tsv" for split, name in layout.qrels.items()}
    paths = {name: work / kinds[name] for name in layout.names()}
    archive.extract(paths, lambda name, share: progress(f"expanding {kinds[name]}", share))
    return paths


def _source(layout: Layout, paths: dict[str, Path], options: ImportOptions) -> Source:
    return Source(
        corpus=paths.get(layout.corpus),
        queries=paths.get(layout.queries),
        document_ids=paths.get(layout.document_ids),
        qrels={split: paths[name] for split, name in layout.qrels.items()},
        problems=(*layout.problems, *_missing(layout, options)),
    )


def _missing(layout: Layout, options: ImportOptions) -> Iterator[Problem]:
    if not layout.queries:
        yield missing(
            "queries.jsonl", "Put queries.jsonl (or queries.jsonl.gz) at the top of the folder or zip."
        )
    if not layout.corpus and not options.runs_only:
        yield missing(
            "corpus.jsonl",
            "Put corpus.jsonl (or .gz) beside queries.jsonl; for a collection without its documents say --runs-only.",
        )
    if options.split not in layout.qrels and not options.collecting:
        found = ", ".join(sorted(layout.qrels))
        hint = (
            f"Name one of the splits that are there: --split {found}."
            if found
            else "Put the judgements there (or qrels.txt in TREC format); without any yet, say --collecting."
        )
        yield missing(f"qrels/{options.split}.tsv", hint)
