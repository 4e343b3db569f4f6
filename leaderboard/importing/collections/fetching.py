"""Collections fetched where an operator asks on the command line: from the hub, or by the package ir_datasets."""

import errno
import importlib.util
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.archives.compression import describe_bytes
from evaluation.archives.hub import COMMIT, NAME, HubFile, NotFetched, Repository, reaching_the_hub
from evaluation.collections.other_formats import (
    Record,
    Topic,
    select_queries,
    write_excluded,
    write_judgements,
    write_records,
)
from evaluation.collections.tables import convert_examples, convert_judgements, convert_texts
from evaluation.core.problems import InvalidContent
from leaderboard.core.storage.store import work_folder
from leaderboard.datasets.problems import problem
from leaderboard.importing.collections.importer import DiskSpaceError
from leaderboard.importing.collections.source import ZIP_POLICY, ImportOptions, Progress

#: The layouts of mteb's repositories: JSON lines as BEIR's, or Parquet in a folder for each part; and BRIGHT's, whose
#: splits have documents of their own, and examples with queries, judgements and excluded documents.
_HUB_FILE = re.compile(
    r"(?P<part>corpus|queries)(?:\.jsonl(?:\.gz)?|[/-][\w.-]+\.parquet)"
    r"|qrels/(?P<plain>\w{1,20})\.(?:tsv|jsonl)|(?:qrels|default|data)/(?P<split>\w{1,20})-[\w.-]+\.parquet"
    r"|(?P<bright>documents|examples)/(?P<of>\w{1,20})-[\w.-]+\.parquet"
)
_EXAMPLES = "examples"
_LAYOUT = (
    "Taken are corpus, queries and qrels as mteb's repositories have them, and BRIGHT's documents and examples; "
    "convert others and import a folder."
)
#: What is fetched lies here, then again as JSON lines, expanded, and in the store.
_COPIES = 4


@contextmanager
def fetched(source: str, options: ImportOptions, progress: Progress) -> Iterator[tuple[Path, ImportOptions]]:
    """Yield a folder with the collection, and the options with what its source says: `hf:OWNER/NAME[@REVISION]` or
    `ir_datasets:ID`. Raises InvalidContent with one problem, or DiskSpaceError.
    """
    kind, _, name = source.partition(":")
    fetch = {"hf": _from_hub, "ir_datasets": _from_ir_datasets}.get(kind)
    if fetch is None:
        message = f"{source} names no source"
        raise _refusal(message, "Say hf:OWNER/NAME[@REVISION] or ir_datasets:ID.")
    with work_folder("fetch") as folder:
        target = folder / "collection"
        (target / "qrels").mkdir(parents=True)
        try:
            said = fetch(name, options, target, progress)
        except NotFetched as error:
            raise _refusal(f"{source}: {error.message}", "Nothing is kept of it: try again later.") from error
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise DiskSpaceError(f"Nothing was imported: the disk is full with {source}.") from error
        yield target, said


def _refusal(message: str, hint: str) -> InvalidContent:
    return InvalidContent.of(problem("not_fetched", message, hint))


def _from_hub(named: str, options: ImportOptions, target: Path, progress: Progress) -> ImportOptions:
    name, _, revision = named.partition("@")
    if not NAME.fullmatch(name):
        raise _refusal(f"{name} names no repository", "Say hf:OWNER/NAME, such as hf:mteb/scifact.")
    with reaching_the_hub():
        repository = Repository("datasets", name, revision or "main")
        commit = repository.commit
        if not COMMIT.fullmatch(commit) or (COMMIT.fullmatch(revision) and revision != commit):
            raise NotFetched("hub_missing", f"the hub answered with another commit: {commit[:60]}")
        files = repository.files(
            lambda each: (
                (match := _HUB_FILE.fullmatch(each)) is not None and match["of"] in (None, options.split)
            )
        )
        # Of a part that is there twice the one in lines is taken; Parquet may be in several files.
        lines = {_part_of(file.name): file for file in reversed(files) if not file.name.endswith(".parquet")}
        files = [file for file in files if lines.get(_part_of(file.name), file) is file]
        _check_files(files, options, target)
        total = sum(file.size for file in files)
        parts: dict[str, list[Path]] = {}
        here = 0
        for number, file in enumerate(files):
            progress(f"fetching {file.name}", here / max(1, total))
            path = target.parent / f"{number}-{file.name.replace('/', '-')}"
            repository.download(file, path)
            here += file.size
            parts.setdefault(_part_of(file.name), []).append(path)
    for part, paths in parts.items():
        if part == _EXAMPLES:
            convert_examples(paths, target, options.split)
        elif part.endswith(".tsv") and paths[0].suffix != ".tsv":
            convert_judgements(paths, target / part)
        elif paths[0].suffix == ".parquet":
            convert_texts(paths, target / part)
        else:
            paths[0].rename(target / part)
    label = options.version_label or f"{name[:60]}@{commit[:12]}"
    return replace(options, source=f"hf:{name}@{commit}", version_label=label)


def _part_of(name: str) -> str:
    match = _HUB_FILE.fullmatch(name)
    if match is None:
        raise ValueError("only files of the layouts are fetched")
    if match["bright"]:
        return {"documents": "corpus.jsonl", "examples": _EXAMPLES}[match["bright"]]
    return f"{match['part']}.jsonl" if match["part"] else f"qrels/{match['plain'] or match['split']}.tsv"


def _check_files(files: list[HubFile], options: ImportOptions, target: Path) -> None:
    """Refuse what would be of no use, before it is fetched."""
    there = {_part_of(file.name) for file in files}
    there |= {"queries.jsonl", f"qrels/{options.split}.tsv"} if _EXAMPLES in there else set()
    needed = {"queries.jsonl"} | (set() if options.runs_only else {"corpus.jsonl"})
    needed |= set() if options.collecting else {f"qrels/{options.split}.tsv"}
    if missing := needed - there:
        what = ", ".join(sorted(each.partition(".")[0] for each in missing))
        have = ", ".join(sorted(file.name for file in files)) or "nothing of the kind"
        raise _refusal(f"the repository has no {what}, but {have}"[:1000], _LAYOUT)
    if any(file.name.endswith(".parquet") for file in files) and not importlib.util.find_spec("pyarrow"):
        raise _refusal("the repository has Parquet files", "Install pyarrow here: pip install pyarrow.")
    size = sum(file.size for file in files)
    free = shutil.disk_usage(target).free - ZIP_POLICY.free_bytes
    if size * _COPIES > free:
        needs = f"{describe_bytes(size)} are said to come, and {_COPIES} times as much is needed"
        raise DiskSpaceError(f"Nothing was imported: {needs}; {describe_bytes(max(0, free))} are free.")


def _from_ir_datasets(name: str, options: ImportOptions, target: Path, progress: Progress) -> ImportOptions:
    """What ir_datasets downloads it keeps in its own folder, with its own checks of size, checksum and free disk."""
    try:
        import ir_datasets
    except ImportError as error:
        hint = "Install it beside the site, pip install ir_datasets, or import a folder."
        raise _refusal("the package ir_datasets is not installed here", hint) from error
    try:
        dataset = ir_datasets.load(name)
    except KeyError as error:
        hint = "Its catalogue is at https://ir-datasets.com: give an id such as beir/nfcorpus/test."
        raise _refusal(f"ir_datasets has no dataset {name}", hint) from error
    kinds = {"docs": not options.runs_only, "queries": True, "qrels": not options.collecting}
    if lacking := [
        kind for kind, wanted in kinds.items() if wanted and not getattr(dataset, f"has_{kind}")()
    ]:
        raise _refusal(
            f"{name} has no {', '.join(lacking)}", "Give the id of one of its parts, such as …/test."
        )
    try:
        asked = _write_ir_datasets(dataset, kinds, options, target, progress)
    except (InvalidContent, MemoryError):
        raise
    except Exception as error:  # whatever a loader of the catalogue may raise, of which there are dozens
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        reason = " ".join(str(error).split())[:300]
        message = f"ir_datasets did not bring {name}: {type(error).__name__}: {reason}"
        raise _refusal(message, "Nothing is kept of it here: try again later.") from error
    field = f", the {asked} of each topic" if asked != "text" else ""
    return replace(
        options, source=f"ir_datasets:{name} (ir_datasets {ir_datasets.__version__}{field})", topic_field=None,
        ir_datasets_id=options.ir_datasets_id or name,
    )  # fmt: skip


def _write_ir_datasets(
    dataset: Any, kinds: Mapping[str, bool], options: ImportOptions, target: Path, progress: Progress
) -> str:
    """Write the collection; which field of its topics is the query, `text` where they are none."""
    if kinds["docs"]:
        progress("fetching documents", 0.0)
        documents = (_document(document, number) for number, document in enumerate(dataset.docs_iter(), 1))
        write_records(target / "corpus.jsonl", documents)
    progress("fetching queries", 0.0)
    topics = []
    for number, query in enumerate(dataset.queries_iter(), 1):
        fields = query._asdict().items()
        texts = {name: text for name, text in fields if text and isinstance(text, str) and name != "query_id"}
        topics.append(Topic(query.query_id, texts, number))
    asked, queries = select_queries(Path("queries"), topics, options.topic_field)
    write_records(target / "queries.jsonl", queries)
    if kinds["qrels"]:
        judged = [(each.query_id, each.doc_id, each.relevance) for each in dataset.qrels_iter()]
        # The grade that marks documents which are left out of rankings, as in the catalogue's BRIGHT.
        grades = dataset.qrels_defs().items() if hasattr(dataset, "qrels_defs") else ()
        excluded = next((grade for grade, text in grades if grade < 0 and text.startswith("Excluded")), None)
        write_excluded(target / "excluded.tsv", (each[:2] for each in judged if each[2] == excluded))
        kept = (each for each in judged if each[2] != excluded)
        write_judgements(target / "qrels" / f"{options.split}.tsv", kept)
    return asked


def _document(document: Any, number: int) -> Record:
    text = getattr(document, "text", None)
    title = getattr(document, "title", "") if text is not None else ""
    return Record(document.doc_id, title or "", document.default_text() if text is None else text, number)
