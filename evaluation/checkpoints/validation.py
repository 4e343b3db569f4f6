"""Validate a checkpoint without loading anything, and report all of its problems at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from evaluation.archives.zip import ZipPolicy
from evaluation.checkpoints.archives import POLICY, extract
from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.files import ModelFiles, walk
from evaluation.checkpoints.findings import Findings, attempt
from evaluation.checkpoints.kinds import Requirements, make_plan
from evaluation.checkpoints.limits import CheckpointAllowance
from evaluation.checkpoints.plan import Plan
from evaluation.core.problems import Report

Kinds = CheckpointKind | Collection[CheckpointKind] | None


@dataclass(frozen=True, slots=True)
class Validation:
    """The verdict on a checkpoint: `plan` tells how to rebuild it, and is None if `report` has errors."""

    report: Report
    plan: Plan | None

    @property
    def valid(self) -> bool:
        """Whether it may be rebuilt."""
        return self.plan is not None


def validate_folder(source: Path, wanted: Kinds = None, pooling: str = "") -> Validation:
    """Validate a folder as people upload it.

    Args:
        source: The folder.
        wanted: The kind, or the kinds, that would do; None for any.
        pooling: Combination of the tokens' outputs if the files name none: "max" or "sum" for SPLADE, "mean", "cls",
            "max" or "lasttoken" for a dense encoder.

    Raises:
        OSError: The disk has a fault. The content of files never raises.
    """
    return _validate(walk(source, Findings()), wanted, pooling, source.name)


def validate_archive(
    path: Path,
    scratch: Path,
    wanted: Kinds = None,
    pooling: str = "",
    policy: ZipPolicy = POLICY,
    without_weights: bool = False,
) -> Validation:
    """Validate an archive as `validate_folder` does, extracted into `scratch` until the checkpoint is rebuilt.

    `without_weights`: headers are enough for files of weights; then a remark says so, and it cannot be rebuilt.
    """
    findings = Findings()
    stored = extract(path, scratch, policy, findings)
    allowance = CheckpointAllowance(without_weights)
    files = ModelFiles(scratch, frozenset(stored), findings, "", allowance, stored)
    return _validate(files, wanted, pooling, path.name)


def _validate(source: ModelFiles, wanted: Kinds, pooling: str, name: str) -> Validation:
    """Return the verdict on the files of a folder, with the findings so far."""
    kinds = [wanted] if isinstance(wanted, CheckpointKind) else wanted or ()
    requirements, findings = Requirements(frozenset(kinds), pooling, name), source.findings
    plan = attempt(lambda: make_plan(_top(source), requirements)) if source.names else None
    if findings.has("adapter") and not any(name.endswith(".safetensors") for name in source.names):
        findings.at("").refuse("adapter", "an adapter alone needs a model from elsewhere")
    if plan is None and not findings.refused:  # every refusal needs a reason
        findings.at("").refuse("unknown_kind", "what it is cannot be told from its files")
    if source.allowance.left_out:
        findings.at("").remark("weights_not_sent", "of the weights only their headers were read")
    report = findings.report()
    return Validation(report, plan if report.valid else None)


def _top(source: ModelFiles) -> ModelFiles:
    """Return the folder that holds the model, if a folder in a folder was sent."""
    for _ in range(2):
        tops = {name.partition("/")[0] for name in source.names}
        if len(tops) != 1 or any("/" not in name for name in source.names):
            break
        source = source.within(tops.pop())
    return source
