"""What a submission or another change is refused with: the sender's problems, never a fault of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evaluation.core.problems import Problem, ProblemCode, Report

INVALID_RUN = ProblemCode("invalid_run", "At least one of the files cannot be scored, so none was taken.",
    "Each file's problems follow.")  # fmt: skip
INVALID_CHECKPOINT = ProblemCode("invalid_checkpoint", "The checkpoint cannot be run here.",
    "Each finding follows.")  # fmt: skip
CHECKPOINT_REFUSED = ProblemCode("checkpoint_refused", "The library does not take the checkpoint as it is, so nothing "
    "was run, and nothing was counted.", "Each finding follows; `python -m evaluation pack` asks the library "
    "before you send it.", is_free=True)  # fmt: skip
ALREADY_SUBMITTED = ProblemCode("already_submitted", "The system has the same run on this dataset already, under the "
    "same label.", "Nothing to do. If it is another configuration, label it.", is_free=True)  # fmt: skip
LABEL_NEEDED = ProblemCode("label_needed", "The system has a result on this dataset under the same label already, "
    "from another run, another engine or other parameters.", "Label this one, or withdraw the other first; send runs "
    "that differ by their seed together.", "-F configuration=\"k1 1.2\"", is_free=True)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileReport:
    """The verdict on one file. `dataset` is a slug, empty where none could be told.

    `model` describes a checkpoint that can be run: its kind, weights, dimension, and so on; empty for runs. `pending`
    has sentences on checks that only a job performs.
    """

    name: str
    dataset: str
    report: Report
    model: Mapping[str, Any] = field(default_factory=dict)
    pending: Sequence[str] = ()

    @property
    def checkpoint(self) -> Mapping[str, Any] | None:
        """What a checkpoint is, None for all else."""
        return self.model or None

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as the API and the job's row hold it."""
        return {"file": self.name, "dataset": self.dataset, **self.report.as_dict()}


class ChangeRefused(Exception):
    """Something cannot be changed so; the message says why and what would be right."""

    #: The status of a page that says it.
    status = 400


class Refused(Exception):
    """Nothing was stored. `problems` are about the request, `files` the verdict on each file that was read."""

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
    def of(cls, code: ProblemCode, message: str, hint: str = "") -> Refused:
        """Return a refusal for one reason that lies in the request."""
        return cls(code, message, [code.problem(message, hint)])

    @classmethod
    def for_files(cls, files: Iterable[FileReport]) -> Refused:
        """Return a refusal because of what the files contain."""
        files = tuple(files)
        bad = [file for file in files if not file.report.valid]
        named = bad[0].name if len(bad) == 1 else f"{len(bad)} of {len(files)} files"
        return cls(INVALID_RUN, f"Nothing was submitted: {named} cannot be scored.", files=files)

    @classmethod
    def for_checkpoint(cls, file: FileReport) -> Refused:
        """Return a refusal because of what a checkpoint contains, or lacks."""
        detail = f"Nothing was submitted: {file.name} is not a checkpoint that can be run here."
        return cls(INVALID_CHECKPOINT, detail, files=[file])

    def all_problems(self) -> list[Problem]:
        """Every problem, those of files named by file where there are several."""
        several = len(self.files) > 1
        return [
            *self.problems,
            *(
                replace(problem, message=f"{file.name}: {problem.message}") if several else problem
                for file in self.files
                for problem in file.report.problems
            ),
        ]
