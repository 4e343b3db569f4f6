"""Imports of judgments by curators: validated as a whole, compared by the scorer, then merged."""

import re
from pathlib import Path

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from evaluation.collections.beir import read_queries
from evaluation.collections.document_ids import DocumentIds
from evaluation.judgements.import_file import HIGHEST_GRADE, NewJudgements, read_judgements
from evaluation.judgements.labels import judge_records, labeled_answers
from evaluation.judgements.merge import UNNAMED_JUDGES, Judge
from leaderboard.core.audit import actor, record
from leaderboard.core.storage.store import Area, local_path, put
from leaderboard.core.text.names import validate_name
from leaderboard.core.work_requests import request_work
from leaderboard.judgements.disclosure import is_secret
from leaderboard.judgements.labels import check_labels
from leaderboard.judgements.pools import ConcurrentChange, JudgingRefused
from leaderboard.judgements.rescoring.campaigns import RescoreUnderWay, get_pending_rescore
from leaderboard.models import Dataset, DatasetVersion, JudgementImport, Pool, Qrels, WorkRequest
from leaderboard.results.board_rows.revisions import lock_boards

State = JudgementImport.State
JudgeKind = JudgementImport.JudgeKind
Conflicts = JudgementImport.Conflicts
#: States of unsettled imports, and of imports that the scorer processes.
OPEN = (State.COMPARING, State.READY, State.MERGING)
SCORER_STATES = (State.COMPARING, State.MERGING)
_SHA256 = re.compile("[0-9a-f]{64}")


def check_judgements(dataset: Dataset, path: Path, *, scale_grew: bool = False, strict: bool = False) -> NewJudgements:
    """Read a file of judgments for the dataset without storing it.

    `scale_grew` allows grades above those of the current judgments. `strict` rejects documents that are not in the
    corpus.

    Raises:
        InvalidContent: With all problems of the file.
        JudgingRefused: For a dataset without content.
    """
    return read_import(_require_version(dataset), path, dataset.current_qrels, scale_grew=scale_grew, strict=strict)


def read_import(
    version: DatasetVersion, path: Path, qrels: Qrels | None, *, scale_grew: bool, strict: bool = False
) -> NewJudgements:
    """Return the judgments in a file for a version whose current judgments are `qrels`. Raises InvalidContent.

    Unless `scale_grew`, grades above the highest one of `qrels` are problems. `strict` rejects documents that are not
    in the corpus.
    """
    table = version.document_ids_sha256
    grades = (qrels.statistics if qrels is not None else {}).get("grades", {})
    highest_grade = max(map(int, grades), default=0)
    return read_judgements(
        path,
        {query.id for query in read_queries(local_path(Area.FILES, version.queries_sha256))},
        DocumentIds.open(local_path(Area.INDEXES, table)) if table else None,
        highest=max(HIGHEST_GRADE, highest_grade),  # Without relevant documents so far, there is no scale to enforce.
        scale=highest_grade if highest_grade > 0 and not scale_grew else None,
        strict=strict,
    )


def _require_version(dataset: Dataset) -> DatasetVersion:
    if dataset.current_version is None:
        raise JudgingRefused(f"{dataset} has no queries on this site. Import the collection first.")
    return dataset.current_version


def check_judge(judge: Judge) -> None:
    """Raise JudgingRefused for a judge without a readable name, or a model that cannot be reproduced.

    A model needs a version and the checksum of its prompt; other judges must have neither.
    """
    if not judge.name.strip():
        raise JudgingRefused("Enter the judge (--judge): the name of a group, such as “NIST assessors”, or of a model.")
    if judge.kind == JudgeKind.MODEL and not (judge.version.strip() and _SHA256.fullmatch(judge.prompt)):
        raise JudgingRefused(
            f"Enter the version of {judge.name} and the SHA-256 of its prompt as 64 hexadecimal digits, so that others "
            "can reproduce the judgments."
        )
    if judge.kind != JudgeKind.MODEL and (judge.version or judge.prompt):
        raise JudgingRefused("Only a model has a version and a prompt. Choose “a model”, or leave both empty.")
    _check_line("The judge’s name", judge.name.strip())
    _check_line("The model’s version", judge.version.strip())


def _check_line(label: str, text: str) -> None:
    """Raise JudgingRefused if the text is not valid as a name; `label` names it in the message."""
    try:
        if text:
            validate_name(text)
    except ValidationError as error:
        raise JudgingRefused(f"{label}: {' '.join(error.messages)}") from error


def get_judge(import_: JudgementImport) -> Judge:
    """Return the judge of an import, or `UNNAMED_JUDGES` if it is unknown."""
    if not import_.judge_name:
        return UNNAMED_JUDGES
    return Judge(import_.judge_kind, import_.judge_name, import_.judge_version, import_.judge_prompt)


def import_judgements(
    dataset: Dataset,
    path: Path,
    judge: Judge,
    *,
    name: str = "",
    note: str = "",
    pool: Pool | None = None,
    scale_grew: bool = False,
    strict: bool = False,
) -> JudgementImport:
    """Check a file of judgments, store it, and request its comparison with the current judgments by the scorer.

    A judge of the kind LABELS means that the file has labels of answers and names its judges. Call this within
    `audit.acting`.

    Raises:
        evaluation.core.problems.InvalidContent: With all problems of the file; nothing is stored.
        JudgingRefused: For an invalid judge, note, or pool.
    """
    is_labels = judge.kind == JudgeKind.LABELS
    if not is_labels:
        check_judge(judge)
    _check_line("The note", note.strip())
    version = _require_version(dataset)
    if pool is not None and pool.version_id != version.pk:
        raise JudgingRefused(f"{pool} does not belong to the dataset's current version.")
    if is_labels:
        labels = check_labels(dataset, path)
        counts = {"pairs": len(labeled_answers(labels))}
        names = [name for name, _, _ in judge_records(labels)]
        judge = Judge(JudgeKind.LABELS, ", ".join(names) if len(", ".join(names)) <= 80 else f"{len(names)} judges")
    else:
        judgements = check_judgements(dataset, path, scale_grew=scale_grew, strict=strict)
        counts = {"lines": judgements.lines, "pairs": judgements.pairs, "unjudged": judgements.unjudged}
        if judgements.missing:
            counts["missing"] = judgements.missing
    sha256 = put(Area.CURATION, path)
    with transaction.atomic():
        import_ = JudgementImport.objects.create(
            dataset=dataset,
            version=version,
            against=dataset.current_qrels,
            pool=pool,
            file_name=(name or path.name)[:200],
            sha256=sha256,
            counts=counts,
            note=note[:300],
            judge_kind=judge.kind,
            judge_name=judge.name.strip()[:80],
            judge_version=judge.version.strip()[:80],
            judge_prompt=judge.prompt,
            created_by=actor().person,
        )
        request_import_work(import_)
        record("judgements brought", import_, dataset=dataset, after={**import_.counts, "judge": str(judge)})
    return import_


def request_merge(import_: JudgementImport, policy: Conflicts) -> None:
    """Request the merge of a compared import with a conflict policy. Call this within `audit.acting`.

    Raises:
        ConcurrentChange: If the import was settled concurrently, or if the judgments changed since the comparison,
            which is then repeated.
        JudgingRefused: While a rescore is pending, or if the merge would not change open judgments.
    """
    with transaction.atomic():
        lock_boards([import_.dataset_id])
        imports = JudgementImport.objects.select_related("dataset__current_qrels", "against")
        locked_import = imports.get(pk=import_.pk)
        concurrent_change = _concurrent_change(locked_import)
        if not concurrent_change:
            if (rescore := get_pending_rescore(locked_import.dataset_id)) is not None:
                raise JudgingRefused(f"{RescoreUnderWay(rescore)}.")
            # With hidden judgments this refusal would reveal grades, so a merge without changes is allowed.
            if not is_secret(locked_import, locked_import.against) and not count_changes(locked_import, policy):
                reason = f"no pair is new, and the policy “{policy.label}” keeps all grades"
                raise JudgingRefused(f"This merge would not change the judgments: {reason}.")
            JudgementImport.objects.filter(pk=locked_import.pk).update(state=State.MERGING, policy=policy)
            request_import_work(locked_import)
            record(
                "merge requested",
                locked_import,
                dataset=locked_import.dataset_id,
                after={"conflicts": policy.value},
            )
    import_.refresh_from_db()
    if concurrent_change:
        raise ConcurrentChange(concurrent_change)


def _concurrent_change(locked_import: JudgementImport) -> str:
    """Return a message if the import is decided or its comparison outdated, or else an empty string.

    An outdated comparison is requested again.
    """
    if locked_import.state != State.READY:
        return f"Another curator has already decided: this import is {locked_import.get_state_display()}."
    if is_current(locked_import):
        return ""
    compare_again(locked_import)
    return "The judgments have changed since the comparison. The import is being compared again."


def is_current(import_: JudgementImport) -> bool:
    """Return whether the import was compared with the dataset's current judgments."""
    dataset = import_.dataset
    return (import_.version_id, import_.against_id) == (dataset.current_version_id, dataset.current_qrels_id)


def count_changes(import_: JudgementImport, policy: Conflicts) -> int:
    """Return the number of judgments that the merge would add or change, according to the comparison."""
    counts = import_.counts
    changed_counts = {
        Conflicts.KEEP: 0,
        Conflicts.REPLACE: counts.get("conflicts", 0),
        Conflicts.HIGHEST: counts.get("raised", 0),
    }
    return int(counts.get("new", 0) + changed_counts[policy])


def compare_again(import_: JudgementImport) -> None:
    """Request another comparison of an unsettled or failed import. Raises ConcurrentChange if it is settled."""
    open_imports = JudgementImport.objects.filter(pk=import_.pk, state__in=[*OPEN, State.FAILED])
    with transaction.atomic():
        if not open_imports.update(state=State.COMPARING, policy=""):
            raise ConcurrentChange("This import is already settled.")
        request_import_work(import_)
        record("judgements compared again", import_, dataset=import_.dataset_id)


def discard_import(import_: JudgementImport) -> None:
    """Discard an import. Call this within `audit.acting`. Raises ConcurrentChange if it is settled or being merged."""
    open_imports = JudgementImport.objects.filter(pk=import_.pk, state__in=[State.COMPARING, State.READY, State.FAILED])
    with transaction.atomic():
        if not open_imports.update(state=State.DISCARDED, settled_at=timezone.now()):
            raise ConcurrentChange("This import is already settled or is being merged.")
        record("judgements discarded", import_, dataset=import_.dataset_id)
    import_.refresh_from_db()


def fail_import(import_id: int) -> None:
    """Mark an import as failed after an internal error."""
    JudgementImport.objects.filter(pk=import_id, state__in=SCORER_STATES).update(state=State.FAILED)


def request_import_work(import_: JudgementImport) -> None:
    """Request the scorer's next step for the import, on behalf of the acting user."""
    person = actor().person
    payload = {"import": import_.pk, "by": person.pk if person is not None else None}
    request_work(WorkRequest.Kind.MERGE, import_.dataset, payload)
