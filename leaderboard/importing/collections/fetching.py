"""Download of collections from the Hugging Face hub or with ir_datasets."""

import errno
import importlib.util
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.archives.compression import describe_bytes
from evaluation.archives.hub import COMMIT, NAME, HubFile, NotFetched, Repository, connection_errors
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

#: Repository layouts: those of mteb, with JSON lines as in BEIR or with a folder of Parquet files for each part; and
#: that of BRIGHT, with separate documents for each split, and examples with queries, judgments, and excluded documents.
_HUB_FILE = re.compile(
    r"(?P<part>corpus|queries)(?:\.jsonl(?:\.gz)?|[/-][\w.-]+\.parquet)"
    r"|qrels/(?P<plain>\w{1,20})\.(?:tsv|jsonl)|(?:qrels|default|data)/(?P<split>\w{1,20})-[\w.-]+\.parquet"
    r"|(?P<bright>documents|examples)/(?P<of>\w{1,20})-[\w.-]+\.parquet"
)
_EXAMPLES = "examples"
_LAYOUT = (
    "Repositories need corpus, queries, and qrels in the layout of mteb, or documents and examples as in BRIGHT. "
    "Convert other layouts and import a folder."
)
#: Number of copies of the data: as downloaded, as JSON lines, expanded, and in the store.
_COPIES = 4


@contextmanager
def fetch_collection(source: str, options: ImportOptions, progress: Progress) -> Iterator[tuple[Path, ImportOptions]]:
    """Download a collection, and yield its folder and the options completed by the source's metadata.

    `source` is `hf:OWNER/NAME[@REVISION]` or `ir_datasets:ID`. The folder is deleted afterwards. Raises InvalidContent
    with one problem, or DiskSpaceError.
    """
    check_source(source)
    kind, _, name = source.partition(":")
    fetch = _from_hub if kind == "hf" else _from_ir_datasets
    with work_folder("fetch") as folder:
        target = folder / "collection"
        (target / "qrels").mkdir(parents=True)
        with _download_errors(source):
            completed_options = fetch(name, options, target, progress)
        yield target, completed_options


def check_source(source: str) -> None:
    """Raise InvalidContent unless the source is `hf:OWNER/NAME[@REVISION]` or `ir_datasets:ID`."""
    kind, _, reference = source.partition(":")
    name = reference.partition("@")[0]
    if kind == "hf" and not NAME.fullmatch(name):
        raise _refusal(f"{name} is not a repository name", "Enter hf:OWNER/NAME, such as hf:mteb/scifact.")
    if kind not in ("hf", "ir_datasets"):
        raise _refusal(f"{source} is not a valid source", "Enter hf:OWNER/NAME[@REVISION] or ir_datasets:ID.")


def list_repository(source: str, options: ImportOptions) -> dict[str, Any]:
    """Return facts about a hub source before its download.

    The facts are `repository`, `commit`, `licence` (empty if not stated), `files` (their number), and `bytes`. Raises
    the exceptions of `fetch_collection`.
    """
    reference = source.removeprefix("hf:")
    with work_folder("fetch") as folder, _download_errors(source), connection_errors():
        repository, files = _list_files(reference, options, folder)
    facts = {"repository": reference.partition("@")[0], "commit": repository.commit, "files": len(files)}
    licence = _read_card(repository.card).get("licence", "")
    return {**facts, "bytes": sum(file.size for file in files), "licence": licence}


@contextmanager
def _download_errors(source: str) -> Iterator[None]:
    """Convert a failed download in the block to InvalidContent, and a full disk to DiskSpaceError."""
    try:
        yield
    except NotFetched as error:
        raise _refusal(f"{source}: {error.message}", "No data was stored. Try again later.") from error
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise DiskSpaceError(f"{source} was not imported because the disk is full.") from error


def _refusal(message: str, hint: str) -> InvalidContent:
    return InvalidContent.build(problem("not_fetched", message, hint))


def _list_files(reference: str, options: ImportOptions, target: Path) -> tuple[Repository, list[HubFile]]:
    """Return a dataset repository of the hub at a commit, and its files to download.

    Raises InvalidContent for an invalid layout, NotFetched if the hub fails, and DiskSpaceError.
    """
    name, _, revision = reference.partition("@")
    repository = Repository("datasets", name, revision or "main")
    commit = repository.commit
    if not COMMIT.fullmatch(commit) or (COMMIT.fullmatch(revision) and revision != commit):
        raise NotFetched("hub_missing", f"the hub answered with another commit: {commit[:60]}")
    files = repository.files(
        lambda file: (match := _HUB_FILE.fullmatch(file)) is not None and match["of"] in (None, options.split)
    )
    # JSON lines take precedence over Parquet, which may consist of several files.
    lines = {_get_part(file.name): file for file in reversed(files) if not file.name.endswith(".parquet")}
    files = [file for file in files if lines.get(_get_part(file.name), file) is file]
    _check_files(files, options, target)
    return repository, files


def _from_hub(reference: str, options: ImportOptions, target: Path, progress: Progress) -> ImportOptions:
    """Download a dataset repository from the Hugging Face hub, and convert it to BEIR's layout in `target`.

    Returns the options with the source and a label of the commit. Raises the exceptions of `_list_files`.
    """
    with connection_errors():
        repository, files = _list_files(reference, options, target)
        total = max(1, sum(file.size for file in files))
        parts: dict[str, list[Path]] = {}

        def report(stage: str, start: int, size: int) -> None:
            progress(stage, (start + size) / total)

        for number, file in enumerate(files):
            path, start = target.parent / f"{number}-{file.name.replace('/', '-')}", sum(f.size for f in files[:number])
            repository.download(file, path, partial(report, f"fetching {file.name}", start))
            parts.setdefault(_get_part(file.name), []).append(path)
    name, commit = reference.partition("@")[0], repository.commit
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
    return replace(options, source=f"hf:{name}@{commit}", version_label=label, card=_read_card(repository.card))


def _read_card(card: Any) -> dict[str, str]:
    """Return license, language, and task of a dataset card, each if the card states exactly one."""
    names = {"licence": "license", "language": "language", "task": "task_categories"}
    stated = {key: card.get(name) for key, name in names.items()} if isinstance(card, dict) else {}
    single = {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in stated.items()}
    return {key: value for key, value in single.items() if isinstance(value, str)}


def _get_part(name: str) -> str:
    """Return the path of a repository file in BEIR's layout (such as `qrels/test.tsv`), or `examples`.

    Raises ValueError for any other file.
    """
    match = _HUB_FILE.fullmatch(name)
    if match is None:
        raise ValueError(f"{name} does not belong to a known layout")
    if match["bright"]:
        return {"documents": "corpus.jsonl", "examples": _EXAMPLES}[match["bright"]]
    return f"{match['part']}.jsonl" if match["part"] else f"qrels/{match['plain'] or match['split']}.tsv"


def _check_files(files: list[HubFile], options: ImportOptions, target: Path) -> None:
    """Check the repository's files before anything is downloaded.

    Raises InvalidContent if required parts or pyarrow are missing, and DiskSpaceError if the disk has too little space.
    """
    available_parts = {_get_part(file.name) for file in files}
    available_parts |= {"queries.jsonl", f"qrels/{options.split}.tsv"} if _EXAMPLES in available_parts else set()
    required_parts = {"queries.jsonl"} | (set() if options.runs_only else {"corpus.jsonl"})
    required_parts |= set() if options.collecting else {f"qrels/{options.split}.tsv"}
    if missing_parts := required_parts - available_parts:
        missing_names = ", ".join(sorted(part.partition(".")[0] for part in missing_parts))
        available_names = ", ".join(sorted(file.name for file in files)) or "no such files"
        raise _refusal(f"the repository has no {missing_names}, but {available_names}"[:1000], _LAYOUT)
    if any(file.name.endswith(".parquet") for file in files) and not importlib.util.find_spec("pyarrow"):
        hint = "Install pyarrow on the machine that downloads: make install-collections."
        raise _refusal("the repository has Parquet files", hint)
    size = sum(file.size for file in files)
    free_bytes = shutil.disk_usage(target).free - ZIP_POLICY.free_bytes
    if size * _COPIES > free_bytes:
        needs = f"the download has {describe_bytes(size)} and needs {_COPIES} times as much disk space"
        raise DiskSpaceError(f"The import failed: {needs}, but {describe_bytes(max(0, free_bytes))} are free.")


def _from_ir_datasets(name: str, options: ImportOptions, target: Path, progress: Progress) -> ImportOptions:
    """Download a dataset with ir_datasets, and write it to `target` in BEIR's layout.

    Returns the options with source and id. ir_datasets has its own cache folder and checks size, checksum, and disk
    space. Raises InvalidContent if it is not installed, fails, or lacks parts.
    """
    try:
        import ir_datasets
    except ImportError as error:
        hint = "Install it on the machine that downloads (make install-collections), or import a zip or folder."
        raise _refusal("the package ir_datasets is not installed", hint) from error
    try:
        dataset = ir_datasets.load(name)
    except KeyError as error:
        hint = "Choose an id from https://ir-datasets.com, such as beir/nfcorpus/test."
        raise _refusal(f"ir_datasets has no dataset {name}", hint) from error
    kinds = {"docs": not options.runs_only, "queries": True, "qrels": not options.collecting}
    if missing_kinds := [
        kind for kind, is_required in kinds.items() if is_required and not getattr(dataset, f"has_{kind}")()
    ]:
        raise _refusal(f"{name} has no {', '.join(missing_kinds)}", "Enter the id of one of its parts, such as …/test.")
    try:
        query_field = _write_ir_datasets(dataset, kinds, options, target, progress)
    except (InvalidContent, MemoryError):
        raise
    except Exception as error:  # ir_datasets has dozens of loaders, which raise various exceptions
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        reason = " ".join(str(error).split())[:300]
        message = f"ir_datasets could not load {name}: {type(error).__name__}: {reason}"
        raise _refusal(message, "No data was stored. Try again later.") from error
    field = f", the {query_field} of each topic" if query_field != "text" else ""
    return replace(
        options,
        source=f"ir_datasets:{name} (ir_datasets {ir_datasets.__version__}{field})",
        topic_field=None,
        ir_datasets_id=options.ir_datasets_id or name,
    )


def _write_ir_datasets(
    dataset: Any, kinds: Mapping[str, bool], options: ImportOptions, target: Path, progress: Progress
) -> str:
    """Write the queries of a dataset, and its documents and judgments if it has them, in BEIR's layout to `target`.

    `kinds` tells whether the dataset has documents (“docs”) and judgments (“qrels”). Judgments marked as excluded are
    written to `excluded.tsv`. Returns the topic field that is the query (`text` for plain queries).
    """
    if kinds["docs"]:
        progress("fetching documents", 0.0)
        write_records(target / "corpus.jsonl", _read_documents(dataset, progress))
    progress("fetching queries", 0.0)
    topics = []
    for number, query in enumerate(dataset.queries_iter(), 1):
        fields = query._asdict().items()
        texts = {name: text for name, text in fields if text and isinstance(text, str) and name != "query_id"}
        topics.append(Topic(query.query_id, texts, number))
    query_field, queries = select_queries(Path("queries"), topics, options.topic_field)
    write_records(target / "queries.jsonl", queries)
    if kinds["qrels"]:
        judgements = [(judgement.query_id, judgement.doc_id, judgement.relevance) for judgement in dataset.qrels_iter()]
        # BRIGHT marks documents that are excluded from rankings by a negative grade.
        grades = dataset.qrels_defs().items() if hasattr(dataset, "qrels_defs") else ()
        excluded = next((grade for grade, text in grades if grade < 0 and text.startswith("Excluded")), None)
        write_excluded(target / "excluded.tsv", (judgement[:2] for judgement in judgements if judgement[2] == excluded))
        other_judgements = (judgement for judgement in judgements if judgement[2] != excluded)
        write_judgements(target / "qrels" / f"{options.split}.tsv", other_judgements)
    return query_field


def _read_documents(dataset: Any, progress: Progress) -> Iterator[Record]:
    """Yield the documents of a dataset of ir_datasets, and report the share that is read."""
    total = dataset.docs_metadata().get("count", 0)
    for number, document in enumerate(dataset.docs_iter(), 1):
        if number % 1000 == 0:
            progress("fetching documents", number / max(total, number) if total else 0.0)
        yield _build_record(document, number)


def _build_record(document: Any, number: int) -> Record:
    """Return a document as a record; if it has no text field, the default text without a title."""
    text = getattr(document, "text", None)
    title = getattr(document, "title", "") if text is not None else ""
    return Record(document.doc_id, title or "", document.default_text() if text is None else text, number)
