"""Validate run files while their sender waits, as long as they are small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django.conf import settings

from evaluation.archives.compression import Limits, describe_bytes, open_blocks
from evaluation.core.errors import InvalidContent
from evaluation.core.problems import Problem, ProblemCode, Report
from evaluation.runs.score import check_run
from leaderboard.datasets.qrels import scoring_target
from submissions.core.errors import FileReport
from submissions.intake.files import RunFile

TOO_LARGE_TO_CHECK_AT_ONCE = ProblemCode("too_large_to_check_at_once", "The file is too large to be checked while "
    "you wait.", "Submit it, and a worker checks it; or check it on your own machine, as above.",
    severity="warning")  # fmt: skip

#: What one request may bring to be validated at once, in multiples of the limit for one file.
REQUEST_FACTOR = 8


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file and the verdict on it; `report` is None for one so large that a worker has to look at it."""

    run: RunFile
    report: Report | None
    expanded_bytes: int = 0

    @property
    def passed(self) -> bool:
        """Whether the file may be stored: it is valid, or the verdict is left to a worker."""
        return self.report is None or self.report.valid

    def as_report(self, otherwise: Report = Report()) -> FileReport:  # noqa: B008 - Report is immutable
        """The verdict under the file's name."""
        return FileReport(self.run.name, self.run.dataset.slug, self.report or otherwise)

    def report_or_size(self) -> FileReport:
        """The verdict, or the notice that the file is too large to have one at once."""
        return self.as_report(Report((too_large_to_check(self.run.dataset.slug),)))


def check_files(runs: Iterable[RunFile]) -> Iterator[CheckedFile]:
    """The verdict on each file, in order."""
    left = settings.VALIDATE_AT_ONCE_BYTES * REQUEST_FACTOR
    for run in runs:
        checked = check_file(run, min(left, settings.VALIDATE_AT_ONCE_BYTES))
        left -= checked.expanded_bytes
        yield checked


def check_file(run: RunFile, at_most: int) -> CheckedFile:
    """Validate one file against its dataset, without judgements, unless it expands to more than `at_most` bytes."""
    try:
        size = expanded_size(run, at_most)
        if size > at_most:
            return CheckedFile(run, None, at_most)
        version = run.dataset.current_version
        if version is None:
            raise RuntimeError(f"{run.dataset.slug} takes runs and has no version")
        return CheckedFile(run, check_run(run.path, scoring_target(version)), size)
    except InvalidContent as error:
        return CheckedFile(run, error.report)


def expanded_size(run: RunFile, at_most: int) -> int:
    """The file's bytes, expanded; counting stops beyond `at_most`. Raises InvalidContent for a damaged file."""
    size = 0
    for block in open_blocks(run.path, Limits()):
        size += len(block)
        if size > at_most:
            break
    return size


def too_large_to_check(dataset: str) -> Problem:
    """The notice that a file is not checked while its sender waits, and what to do."""
    limit = describe_bytes(settings.VALIDATE_AT_ONCE_BYTES)
    return TOO_LARGE_TO_CHECK_AT_ONCE.problem(
        f"the file is over {limit} expanded, so it is not checked while you wait",
        "Submit it, and a worker checks it; or check it on your own machine: "
        f"python -m evaluation check --run FILE --queries queries.jsonl.gz, with the queries that {dataset} offers.",
    )
