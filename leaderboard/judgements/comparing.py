"""Comparison of imported judgments with the current ones, merging, and adoption; runs in the scorer."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from evaluation.collections.document_ids import DocumentIds
from evaluation.core.files import file_sha256
from evaluation.judgements.merge import (
    UNNAMED_JUDGES,
    Conflict,
    Grades,
    Judge,
    JudgeGrades,
    JudgementComparison,
    MergePolicy,
    agreements,
    compare,
    count_merged_by_judge,
    merge,
    write_judgements,
)
from evaluation.judgements.qrels import read_qrels
from leaderboard.core import wakeup
from leaderboard.core.audit import record
from leaderboard.core.storage.store import Area, local_path, path_of, put, work_folder
from leaderboard.datasets.qrels import (
    JudgementFile,
    current_or_next_qrels,
    documents_not_in_corpus,
    load_grades,
)
from leaderboard.judgements.disclosure import is_secret, record_compared
from leaderboard.judgements.drawing import draw, record_pool
from leaderboard.judgements.imports import (
    JudgeKind,
    State,
    check_judgements,
    compare_again,
    get_judge,
    is_current,
    read_import,
)
from leaderboard.judgements.labels import compare_label_import, merge_label_import
from leaderboard.judgements.rescoring.campaigns import RescoreUnderWay, get_pending_rescore, must_rescore, start_rescore
from leaderboard.judgements.rescoring.content import OfferedContent, offer_content, prepare_content
from leaderboard.models import Dataset, DatasetVersion, Entry, JudgementImport, Pool, Qrels, Rescore
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board, lock_boards
from leaderboard.systems.baselines import request_baseline


@dataclass(frozen=True, slots=True)
class MergedJudgements:
    """Merged judgments in private storage that no row references yet."""

    judgements: JudgementFile | Qrels
    content: OfferedContent
    judged_by: dict[str, Any]
    labels_sha256: str = ""


def compare_import(import_: JudgementImport, folder: Path) -> dict[str, Any]:
    """Compare an import with the dataset's current judgments, and return the new columns of its row.

    These are counts, including the agreement of its judge with others, and the checksum of the stored conflicts.
    """
    qrels = import_.dataset.current_qrels
    if import_.judge_kind == JudgeKind.LABELS and qrels is not None:
        return compare_label_import(import_, qrels)
    new_grades = _imported_grades(import_, qrels)
    comparison = compare(present_grades(qrels), new_grades)
    key = ""
    if comparison.conflicts:
        conflict_file = folder / "conflicts"
        conflict_file.write_text(
            "".join(f"{item.query}\t{item.document}\t{item.old}\t{item.new}\n" for item in comparison.conflicts)
        )
        key = put(Area.CURATION, conflict_file)
    level = import_.dataset.relevance_level
    agreement = [
        item
        for item in agreements([*_grades_by_judge(qrels), (get_judge(import_), new_grades)], level)
        if str(get_judge(import_)) in item["judges"]
    ]
    counts = {**import_.counts, **comparison.counts(), "agreement": agreement}
    return {"against": qrels, "counts": counts, "conflicts_sha256": key}


def _grades_by_judge(qrels: Qrels | None) -> JudgeGrades:
    """Return the judges behind qrels with their grades, oldest first.

    The initial judgments are followed by all merged imports.
    """
    lineage: list[Qrels] = []
    while qrels is not None:
        lineage.insert(0, qrels)
        qrels = qrels.made_from
    if not lineage:
        return []
    imports = JudgementImport.objects.filter(qrels__in=lineage, state=State.MERGED).select_related("version")
    imports = imports.exclude(judge_kind=JudgeKind.LABELS)
    grades_by_judge: list[tuple[Judge, Grades]] = []
    for import_ in imports.order_by("settled_at", "pk"):
        grades = _imported_grades(import_, import_.against)
        if not grades_by_judge and import_.against is not None:
            grades_by_judge.append((UNNAMED_JUDGES, present_grades(import_.against)))
        grades_by_judge.append((get_judge(import_), grades))
    return grades_by_judge or [(UNNAMED_JUDGES, present_grades(lineage[-1]))]


def record_comparison(import_: JudgementImport, columns: dict[str, Any]) -> None:
    """Store the result of a comparison for the curator, and record it. Call this within `audit.acting`.

    An import that adds no judgments and has no conflicts is discarded without a decision. With hidden judgments this
    would reveal grades, so the import continues.
    """
    qrels, counts = columns["against"], columns["counts"]
    is_unchanged = not is_secret(import_, qrels) and not counts["new"] and not counts["conflicts"]
    pending_imports = JudgementImport.objects.filter(pk=import_.pk, state=State.COMPARING)
    pending_imports.update(
        state=State.DISCARDED if is_unchanged else State.READY,
        settled_at=timezone.now() if is_unchanged else None,
        version=import_.dataset.current_version,
        **columns,
    )
    record_compared(import_, import_.dataset, qrels)


def merge_import(import_: JudgementImport, folder: Path) -> MergedJudgements:
    """Merge an import with the chosen policy and store the file, without writing rows.

    The result also has the content that the dataset will offer, and the judges with their numbers of judgments and
    agreement.
    """
    if import_.judge_kind == JudgeKind.LABELS and import_.against is not None:
        labels_sha256, judged_by = merge_label_import(import_, import_.against, folder)
        return MergedJudgements(import_.against, OfferedContent(), judged_by, labels_sha256)
    new_grades = _imported_grades(import_, import_.against)
    grades = merge(present_grades(import_.against), new_grades, MergePolicy(import_.policy))
    path = folder / "merged.tsv"
    write_judgements(grades, path)
    qrels, table = read_qrels(path), import_.version.document_ids_sha256
    missing_documents = (
        documents_not_in_corpus(qrels, DocumentIds.open(local_path(Area.INDEXES, table))) if table else []
    )
    judgements = JudgementFile(qrels, path, file_sha256(path), frozenset(missing_documents))
    put(Area.QRELS, path, judgements.sha256)
    row = Qrels(version=import_.version, split=import_split(import_), sha256=judgements.sha256)
    # Record the judges, their numbers of judgments, and their agreement on pairs with several judgments.
    by_judge = [*_grades_by_judge(import_.against), (get_judge(import_), new_grades)]
    judges = [
        {**judge._asdict(), "called": str(judge), "judgements": count}
        for judge, count in count_merged_by_judge(by_judge, grades).items()
    ]
    agreement = agreements(by_judge, import_.dataset.relevance_level)
    content = prepare_content(import_.dataset, row)
    return MergedJudgements(judgements, content, {"judges": judges, "agreement": agreement})


@transaction.atomic
def record_merge(import_: JudgementImport, merged_judgements: MergedJudgements) -> str:
    """Create the next qrels of the dataset and adopt them, and return the outcome for the log.

    Call this within `audit.acting`. A settled import does not change. If the dataset's judgments changed in the
    meantime, the import is compared again. If a rescore is pending, the import waits for the curator.
    """
    lock_boards([import_.dataset_id])
    locked_import = JudgementImport.objects.select_related("dataset", "against").get(pk=import_.pk)
    if locked_import.state != State.MERGING:
        return "This import was settled in the meantime."
    if not is_current(locked_import):
        compare_again(locked_import)
        return "The judgments changed in the meantime. The import is being compared again."
    if get_pending_rescore(locked_import.dataset_id) is not None:
        JudgementImport.objects.filter(pk=locked_import.pk).update(state=State.READY)
        return "Decide on the pending rescore first."
    qrels = current_or_next_qrels(
        locked_import.version,
        import_split(locked_import),
        merged_judgements.judgements,
        files={"labels_sha256": merged_judgements.labels_sha256},
        made_from=locked_import.against,
        note=locked_import.note,
        judged_by=merged_judgements.judged_by,
    )
    JudgementImport.objects.filter(pk=locked_import.pk).update(
        state=State.MERGED, qrels=qrels, settled_at=timezone.now()
    )
    record(
        "judgements merged",
        locked_import,
        dataset=locked_import.dataset,
        before={"qrels": locked_import.against.number if locked_import.against else None},
        after={"qrels": qrels.number, "conflicts": locked_import.policy},
    )
    rescore = adopt_qrels(locked_import.dataset, qrels, locked_import.note, merged_judgements.content)
    return f"Qrels v{qrels.number}: " + ("the stored runs are being rescored." if rescore else "adopted.")


def import_split(import_: JudgementImport) -> str:
    """Return the split of the judgments, which is that of the compared ones."""
    return import_.against.split if import_.against is not None else "test"


def present_grades(qrels: Qrels | None) -> dict[bytes, dict[bytes, int]]:
    return load_grades(qrels) if qrels is not None else {}


def _imported_grades(import_: JudgementImport, qrels: Qrels | None) -> dict[bytes, dict[bytes, int]]:
    # A larger scale was confirmed when the file was imported.
    return read_import(import_.version, path_of(Area.CURATION, import_.sha256), qrels, scale_grew=True).grades


def list_conflicts(import_: JudgementImport, limit: int | None = None) -> Iterator[Conflict]:
    """Yield the conflicts with both grades. The caller must check the permission and record the access.

    With hidden judgments, only users who may read them may see which pairs conflict (`disclosure.is_blind_decision`).
    """
    if not import_.conflicts_sha256:
        return
    with path_of(Area.CURATION, import_.conflicts_sha256).open(encoding="utf-8") as lines:
        for line in islice(lines, limit):
            query, document, old_grade, new_grade = line.rstrip("\n").split("\t")
            yield Conflict(query, document, int(old_grade), int(new_grade))


@transaction.atomic
def adopt_qrels(dataset: Dataset, qrels: Qrels, note: str, content: OfferedContent | None = None) -> Rescore | None:
    """Score the dataset on `qrels` from now on, and return the rescore that this requires, if any.

    If results have to be rescored, only the rescore is started. First judgments are adopted at once: waiting runs are
    then scored, and the dataset's BM25 is requested. `note` is the public origin of the judgments. `content` are the
    files that belong to them (`rescoring.content.prepare_content`), unless the caller offers these. Call this within
    `audit.acting`.

    Raises:
        RescoreUnderWay: While another rescore is pending.
        ValueError: For qrels of a version other than the dataset's current one.
    """
    locked_dataset = lock_board(dataset.pk)
    if locked_dataset.current_version_id != qrels.version_id:
        raise ValueError(f"{qrels} do not belong to the current version of {dataset}")
    if locked_dataset.current_qrels_id == qrels.pk:
        return None
    if must_rescore(locked_dataset, qrels):
        return start_rescore(locked_dataset, qrels, note)
    pending_rescore = get_pending_rescore(locked_dataset)
    if pending_rescore is not None:
        raise RescoreUnderWay(pending_rescore)
    locked_dataset.current_qrels = qrels
    if locked_dataset.runs_only:
        locked_dataset.state = Dataset.State.PUBLISHED
    locked_dataset.save()
    if content is not None:
        offer_content(locked_dataset, DatasetVersion.objects.get(pk=qrels.version_id), qrels, content)
    wakeup.wake_dispatcher()  # waiting runs can be scored now
    baselines = Entry.objects.filter(dataset=locked_dataset, is_baseline=True, evaluation__qrels=qrels)
    if not locked_dataset.runs_only and not baselines.exists():
        request_baseline(locked_dataset)
    board_changed(locked_dataset, Kind.IMPORTED)
    dataset.refresh_from_db()
    return None


def draw_now(pool: Pool) -> None:
    """Draw a requested pool immediately; a concurrent scorer then finds it drawn."""
    with work_folder("judging") as folder:
        record_pool(pool, draw(pool, folder, lambda share: None))
    pool.refresh_from_db()


def preview_judgements(
    dataset: Dataset, path: Path, *, scale_grew: bool = False, strict: bool = False
) -> JudgementComparison:
    """Compare a file with the current judgments without storing it.

    Raises the same exceptions as `imports.check_judgements`.
    """
    judgements = check_judgements(dataset, path, scale_grew=scale_grew, strict=strict)
    return compare(present_grades(dataset.current_qrels), judgements.grades)


def compare_now(import_: JudgementImport) -> None:
    """Compare an import immediately."""
    with work_folder("judging") as folder:
        record_comparison(import_, compare_import(import_, folder))
    import_.refresh_from_db()


def merge_now(import_: JudgementImport) -> str:
    """Merge an import immediately and return the outcome for the log. Call this within `audit.acting`."""
    with work_folder("judging") as folder:
        merged_judgements = merge_import(import_, folder)
        with transaction.atomic():
            outcome = record_merge(import_, merged_judgements)
    import_.refresh_from_db()
    return outcome
