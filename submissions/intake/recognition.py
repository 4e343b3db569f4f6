"""Recognition of a run's dataset by the ids in the file."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

from django.conf import settings

from evaluation.archives.compression import BLOCK, FileLimits, open_blocks
from evaluation.core.problems import InvalidContent, Report
from evaluation.runs.answer_runs import read_answer_run
from evaluation.runs.forms import recognize_format, write_as_trec
from evaluation.runs.problems import EMPTY, NO_KNOWN_QUERY, UNKNOWN_DOCUMENTS, UNKNOWN_DOCUMENTS_SHARE, refuse_binary
from leaderboard.datasets.qrels import scoring_target
from leaderboard.models import Dataset

#: Maximum number of a file's documents that are looked up.
MAX_COMPARED_DOCUMENTS = 2_000
#: Minimum Jaccard similarity between the topics of a file and a dataset, with and without a corpus. Topics alone are
#: weak evidence, because many collections number theirs from 1.
MIN_SIMILARITY, MIN_SIMILARITY_WITHOUT_CORPUS = 0.1, 0.5
#: Numbers of fields in lines from which ids are read. The last two fields of a run's line may be missing, and answers
#: may cite no document.
_COMPARED_FIELDS = (1, 4, 5, 6)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Overlap of the ids of a run and a dataset: shares of the run's queries and documents in the dataset.

    `documents` is None if the dataset has no corpus or the run no documents. `similarity` is the Jaccard similarity of
    the topics, `topics` the number of the dataset's.
    """

    dataset: Dataset
    queries: float
    documents: float | None
    similarity: float
    topics: int

    @property
    def is_match(self) -> bool:
        """Whether the corpus has the documents and enough queries are the same."""
        if self.documents is None:
            return self.similarity >= MIN_SIMILARITY_WITHOUT_CORPUS
        return self.similarity >= MIN_SIMILARITY and self.documents >= 1 - UNKNOWN_DOCUMENTS_SHARE


def compare_ids(path: Path, open_datasets: Iterable[Dataset]) -> list[Overlap]:
    """Return the overlap of the file's ids with each dataset.

    The list is empty if no line has ids. Raises InvalidContent if the file is empty or is not text.
    """
    queries, documents = set[str](), dict[str, None]()
    for line in _read_trec_start(path).splitlines():
        fields = line.split()
        if len(fields) in _COMPARED_FIELDS:
            queries.add(fields[0].decode(errors="replace"))
            if len(fields) > 1 and len(documents) < MAX_COMPARED_DOCUMENTS:
                documents[fields[2].decode(errors="replace")] = None
    overlaps = []
    for dataset in open_datasets if queries else ():
        version = dataset.current_version
        if version is None:
            continue
        version.dataset = dataset  # avoid another query for the same row
        target = scoring_target(version)
        topics, corpus = set(target.query_ids), target.document_ids
        common = len(queries & topics)
        share = None if corpus is None or not documents else float(corpus.contain(list(documents)).mean())
        overlaps.append(Overlap(dataset, common / len(queries), share, common / len(queries | topics), len(topics)))
    return overlaps


def best_matches(overlaps: Iterable[Overlap]) -> list[Dataset]:
    """Return the datasets that match best, several of them if they match equally well."""
    matches: dict[tuple[bool, float], list[Dataset]] = {}
    for overlap in overlaps:
        if overlap.is_match:
            # A matching corpus is stronger evidence than matching topics.
            matches.setdefault((overlap.documents is not None, overlap.similarity), []).append(overlap.dataset)
    return matches[max(matches)] if matches else []


def find_closest(overlaps: Sequence[Overlap]) -> tuple[list[Dataset], str]:
    """Return the dataset with the most ids of the run, and a sentence about it; both empty if no dataset has any."""
    closest = max(overlaps, key=lambda overlap: (overlap.documents or 0, overlap.queries), default=None)
    if closest is None or not (closest.documents or closest.queries):
        return [], ""
    name = name_datasets([closest.dataset])
    if closest.queries == 1 and closest.documents in (None, 1):
        answered = f"{closest.similarity * closest.topics:.0f} of {closest.topics:,} queries"
        return [closest.dataset], f"The run answers {answered} of {name}, too few to be certain. "
    shares = f"{closest.queries:.0%} of the run's queries"
    if closest.documents is not None:
        shares += f" and {closest.documents:.0%} of its documents"
    return [closest.dataset], f"The closest is {name}, with {shares}. "


def name_datasets(datasets: Iterable[Dataset]) -> str:
    return " and ".join(f"{dataset.name} ({dataset.slug})" for dataset in datasets)


def suggest_dataset(path: Path, report: Report, open_datasets: Iterable[Dataset]) -> Report:
    """Return the report; if its errors show a wrong dataset, their hints name the dataset that the ids match."""
    wrong = [problem for problem in report.errors if problem.code in (NO_KNOWN_QUERY, UNKNOWN_DOCUMENTS)]
    matches = best_matches(compare_ids(path, open_datasets)) if wrong else []
    if not matches:
        return report
    hint = f"The ids match {name_datasets(matches)}. "
    problems = (replace(each, hint=hint + each.hint) if each in wrong else each for each in report.problems)
    return replace(report, problems=tuple(problems))


def read_start(path: Path, limit: int) -> bytes:
    """Return the expanded file, up to the block in which it exceeds `limit` bytes. Raises InvalidContent."""
    content = bytearray()
    for block in open_blocks(path, FileLimits()):
        content += block
        if len(content) > limit:
            break
    return bytes(content)


def _read_trec_start(path: Path) -> bytes:
    """Return the beginning of a run, converted to TREC format; of an answer run, lines with query ids come first.

    Raises InvalidContent if the file is empty or is not text.
    """
    content = read_start(path, settings.VALIDATE_AT_ONCE_BYTES)
    if not content.strip():
        raise InvalidContent.build(EMPTY.problem())
    form = recognize_format(content[:BLOCK])
    if form is None:
        refuse_binary(content[:4096])
        return content
    lines = BytesIO()
    # A single JSON document is read completely. In JSON lines, the last line may be incomplete.
    whole_lines = content[: content.rfind(b"\n") + 1]
    if form == "answers":
        run = read_answer_run(whole_lines or content, FileLimits())
        return "\n".join(run.responses).encode() + b"\n" + run.trec_lines()[0]
    write_as_trec(form, path if form == "json" else whole_lines or content, FileLimits(), lines)
    return lines.getvalue()
