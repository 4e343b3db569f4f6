"""Exceptions and problem codes for refused submissions and changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evaluation.core.problems import Problem, ProblemCode, Report

INVALID_RUN = ProblemCode("invalid_run", "At least one file cannot be scored, so no file was accepted.",
    "Fix the problems listed for each file.")  # fmt: skip
INVALID_CHECKPOINT = ProblemCode("invalid_checkpoint", "Runboard cannot run this checkpoint.",
    "Fix the problems listed for each file.")  # fmt: skip
CHECKPOINT_REFUSED = ProblemCode("checkpoint_refused", "The library cannot load the checkpoint. No run was produced "
    "and no quota was used.", "Fix the listed problems. `python -m evaluation pack` runs the same check before "
    "you upload.", is_free=True)  # fmt: skip
ALREADY_SUBMITTED = ProblemCode("already_submitted", "The system already has the same run on this dataset under the "
    "same label.", "You do not need to submit it again. Label it if it is another configuration.",
    is_free=True)  # fmt: skip
LABEL_NEEDED = ProblemCode("label_needed", "The system already has a result on this dataset under the same label, "
    "from another run, engine, or set of parameters.", "Label this one, or withdraw the other first. Submit runs "
    "that differ only by their seed together.", "-F configuration=\"k1 1.2\"", is_free=True)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileReport:
    """Verdict on one file.

    `dataset` is a slug, empty if the dataset could not be determined. `model` describes a runnable checkpoint (kind,
    weights, dimension, ...) and is empty for runs. `pending` lists sentences about checks that only a job performs.
    """

    name: str
    dataset: str
    report: Report
    model: Mapping[str, Any] = field(default_factory=dict)
    pending: Sequence[str] = ()

    @property
    def checkpoint(self) -> Mapping[str, Any] | None:
        """Description of the checkpoint, or None for other files."""
        return self.model or None

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as stored in the job's row and shown by the API."""
        return {"file": self.name, "dataset": self.dataset, **self.report.as_dict()}


class ChangeRefused(Exception):
    """A change that the current state does not allow; the message explains why and suggests an alternative."""

    #: HTTP status of the page that shows the message.
    status = 400


class Refused(Exception):
    """Refusal of a submission. Nothing was stored.

    `problems` concern the request as a whole, and `files` contains the verdict on each file that was read.
    """

    #: Datasets that the file may belong to, if none matches alone.
    datasets: Sequence[Any] = ()

    def __init__(
        self,
        code: str,
        detail: str,
        problems: Iterable[Problem] = (),
        files: Iterable[FileReport] = (),
    ) -> None:
        self.code, self.detail = code, detail
        self.problems, self.files = tuple(problems), tuple(files)
        super().__init__(detail)

    @classmethod
    def for_problem(cls, code: ProblemCode, message: str, hint: str = "") -> Refused:
        """Build a refusal for one problem of the request."""
        return cls(code, message, [code.problem(message, hint)])

    @classmethod
    def for_files(cls, files: Iterable[FileReport]) -> Refused:
        """Build a refusal for files of which at least one is invalid. It contains the reports of all files."""
        files = tuple(files)
        invalid_files = [file for file in files if not file.report.valid]
        subject = invalid_files[0].name if len(invalid_files) == 1 else f"{len(invalid_files)} of {len(files)} files"
        return cls(INVALID_RUN, f"No run was submitted: {subject} cannot be scored.", files=files)

    @classmethod
    def for_checkpoint(cls, file: FileReport) -> Refused:
        """Build a refusal for a checkpoint that cannot be run."""
        detail = f"No model was submitted: {file.name} is not a checkpoint that Runboard can run."
        return cls(INVALID_CHECKPOINT, detail, files=[file])

    def all_problems(self) -> list[Problem]:
        """Return the problems of the request and of its files, with file names if there are several files."""
        prefix_names = len(self.files) > 1
        return [
            *self.problems,
            *(
                replace(problem, message=f"{file.name}: {problem.message}") if prefix_names else problem
                for file in self.files
                for problem in file.report.problems
            ),
        ]
