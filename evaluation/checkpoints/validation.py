"""Validate a checkpoint folder without loading anything, so that all that is wrong is said at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.files import ModelFiles, walk
from evaluation.checkpoints.findings import Findings
from evaluation.checkpoints.kinds import Requirements, make_plan
from evaluation.checkpoints.plan import Plan
from evaluation.core.problems import Report

Kinds = CheckpointKind | Collection[CheckpointKind] | None


@dataclass(frozen=True, slots=True)
class Validation:
    """The verdict on a checkpoint: `plan` is what to rebuild, and None where `report` has errors."""

    report: Report
    plan: Plan | None

    @property
    def valid(self) -> bool:
        """Whether it may be rebuilt."""
        return self.plan is not None


def validate_folder(source: Path, wanted: Kinds = None, pooling: str = "") -> Validation:
    """Check a folder as people upload it.

    `wanted` is the kind, or the kinds, that would do; None for any. `pooling` says how tokens become one vector where
    the files do not: "max" or "sum" for SPLADE, "mean", "cls", "max" or "lasttoken" for a dense encoder. Raises OSError
    for faults of the disk, never for what is in the files.
    """
    findings = Findings()
    return validate_files(walk(source, findings), requirements_of(wanted, pooling, source.name), findings)


def requirements_of(wanted: Kinds, pooling: str, name: str) -> Requirements:
    """What is asked of a checkpoint, in one value."""
    if wanted is None:
        return Requirements(pooling=pooling, name=name)
    return Requirements(frozenset([wanted] if isinstance(wanted, CheckpointKind) else wanted), pooling, name)


def validate_files(source: ModelFiles, wanted: Requirements, findings: Findings) -> Validation:
    """The verdict on the files of a folder, with what was found before."""
    plan = make_plan(_top(source), wanted, findings) if source.names else None
    if findings.has("adapter") and not any(name.endswith(".safetensors") for name in source.names):
        findings.refuse("adapter", "", "an adapter alone needs a model from elsewhere")
    if plan is None and not findings.refused:  # nothing may be refused without a word
        findings.refuse("unknown_kind", "", "what it is cannot be told from its files")
    if source.allowance.left_out:
        findings.remark("weights_not_sent", "", "of the weights only their headers were read")
    report = findings.report()
    return Validation(report, plan if report.valid else None)


def _top(source: ModelFiles) -> ModelFiles:
    """The folder that holds the model, where what was sent is a folder in a folder."""
    for _ in range(2):
        tops = {name.partition("/")[0] for name in source.names}
        if len(tops) != 1 or any("/" not in name for name in source.names):
            break
        source = source.within(tops.pop())
    return source
