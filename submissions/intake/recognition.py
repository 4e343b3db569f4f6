"""Which dataset a run file is for, by its ids: of queries, which are topics, and of documents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from django.conf import settings

from evaluation.archives.compression import BLOCK, FileLimits, open_blocks
from evaluation.core.errors import InvalidContent
from evaluation.runs.forms import recognize, trec_text, write_as_trec
from evaluation.runs.json_runs import JSON
from evaluation.runs.problems import EMPTY, UNKNOWN_DOCUMENTS_SHARE, refuse_binary
from leaderboard.datasets.qrels import scoring_target
from leaderboard.models import Dataset

#: So many documents of a file are looked up.
DOCUMENTS = 2_000
#: Topics that the file and the dataset share, over all that either has: at least so many. Topics alone are weak
#: evidence, since many collections number theirs from 1.
LEAST_ALIKE, LEAST_ALIKE_WITHOUT_CORPUS = 0.1, 0.5
#: JSON files that describe a run, or its results.
_METADATA = re.compile(
    r"(?:.*/)?(?:meta(?:data)?|config(?:uration)?|(?:hyper)?param(?:eter)?s|hparams|settings|arg(?:ument)?s"
    r"|package(?:-lock)?|environment|results|metrics|scores|evaluation)\.json",
    re.IGNORECASE,
)


def datasets_of(path: Path) -> list[Dataset]:
    """The datasets that take runs and whose ids the file has: none, one, or several that it fits equally well.

    Raises InvalidContent for a file that has no lines, or is no text.
    """
    queries, documents = _ids(path)
    found: dict[tuple[bool, float], list[Dataset]] = {}
    taking = Dataset.objects.open_for_runs().select_related("current_version", "current_qrels")
    for dataset in taking if queries else ():
        version = dataset.current_version
        if version is None:
            continue
        version.dataset = dataset  # the same row, which is not to be read again
        target = scoring_target(version)
        topics, corpus = set(target.query_ids), target.document_ids
        alike = len(queries & topics) / len(queries | topics)
        known = corpus is None or corpus.contain(documents).mean() >= 1 - UNKNOWN_DOCUMENTS_SHARE
        if known and alike >= (LEAST_ALIKE_WITHOUT_CORPUS if corpus is None else LEAST_ALIKE):
            # A corpus that has the documents says more than topics do.
            found.setdefault((corpus is not None, alike), []).append(dataset)
    return found[max(found)] if found else []


def without_metadata(files: Mapping[str, Path]) -> dict[str, Path]:
    """Return the files, by name, without JSON that is metadata by its name and no run, or all if there are no others.

    A file whose JSON is damaged may be a run and remains.
    """
    kept = {
        name: path for name, path in files.items() if not (_METADATA.fullmatch(name) and _is_no_run(path))
    }
    return kept or dict(files)


def _is_no_run(path: Path) -> bool:
    """Return whether a file is valid JSON, but in no format of runs."""
    try:
        with trec_text(path):
            return False
    except InvalidContent as error:
        return all(problem.code == JSON and not problem.lines for problem in error.report.problems)


def _ids(path: Path) -> tuple[set[str], list[str]]:
    """The ids of queries, and of some documents, in what is checked at once of the file. Raises InvalidContent."""
    queries, documents = set[str](), dict[str, None]()
    for line in _beginning(path).splitlines():
        fields = line.split()
        if len(fields) == 6:
            queries.add(fields[0].decode(errors="replace"))
            if len(documents) < DOCUMENTS:
                documents[fields[2].decode(errors="replace")] = None
    return queries, list(documents)


def _beginning(path: Path) -> bytes:
    content, limits = bytearray(), FileLimits()
    for block in open_blocks(path, limits):
        content += block
        if len(content) > settings.VALIDATE_AT_ONCE_BYTES:
            break
    if not content.strip():
        raise InvalidContent.of(EMPTY.problem())
    form = recognize(bytes(content[:BLOCK]))
    if form is None:
        refuse_binary(bytes(content[:4096]))
        return bytes(content)
    lines = BytesIO()
    # A JSON document is read as a whole; the last of several lines may be incomplete.
    whole_lines = bytes(content[: content.rfind(b"\n") + 1])
    write_as_trec(form, path if form == "json" else whole_lines or bytes(content), limits, lines)
    return lines.getvalue()
