"""New judgements held against the present ones, merged, and adopted by their dataset.

For the scorer, which alone reads hidden judgements.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from evaluation.collections.document_ids import DocumentIds
from evaluation.core.files import sha256_of
from evaluation.judgements.merge import (
    UNNAMED_JUDGES,
    Conflict,
    Grades,
    Judge,
    Judged,
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
    State,
    check_judgements,
    compare_again,
    is_current,
    judge_of,
    read_import,
)
from leaderboard.judgements.rescoring.campaigns import RescoreUnderWay, is_needed, start_rescore, under_way
from leaderboard.judgements.rescoring.content import OfferedContent, offer_content, prepare_content
from leaderboard.models import Dataset, DatasetVersion, Entry, JudgementImport, Pool, Qrels, Rescore
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board, lock_boards
from leaderboard.systems.baselines import request_baseline


@dataclass(frozen=True, slots=True)
class MergedJudgements:
    """Merged judgements in private storage, not named by a row yet."""

    judgements: JudgementFile
    content: OfferedContent
    judged_by: dict[str, Any]


def compare_import(brought: JudgementImport, folder: Path) -> dict[str, Any]:
    """Compare the import with the dataset's current judgements; return the columns of its row. Nothing is written."""
    against = brought.dataset.current_qrels
    new = _imported_grades(brought, against)
    held = compare(present_grades(against), new)
    key = ""
    if held.conflicts:
        listed = folder / "conflicts"
        listed.write_text(
            "".join(f"{each.query}\t{each.document}\t{each.old}\t{each.new}\n" for each in held.conflicts)
        )
        key = put(Area.CURATION, listed)
    level = brought.dataset.relevance_level
    agreed = [
        each
        for each in agreements([*_judged_before(against), (judge_of(brought), new)], level)
        if str(judge_of(brought)) in each["judges"]
    ]
    counts = {**brought.counts, **held.counts(), "agreement": agreed}
    return {"against": against, "counts": counts, "conflicts_sha256": key}


def _judged_before(qrels: Qrels | None) -> Judged:
    """Whose judgements these are: the files that were merged into them, oldest first, after those they began with."""
    lineage: list[Qrels] = []
    while qrels is not None:
        lineage.insert(0, qrels)
        qrels = qrels.made_from
    if not lineage:
        return []
    imports = JudgementImport.objects.filter(qrels__in=lineage, state=State.MERGED).select_related("version")
    found: list[tuple[Judge, Grades]] = []
    for each in imports.order_by("settled_at", "pk"):
        grades = _imported_grades(each, each.against)
        if not found and each.against is not None:
            found.append((UNNAMED_JUDGES, present_grades(each.against)))
        found.append((judge_of(each), grades))
    return found or [(UNNAMED_JUDGES, present_grades(lineage[-1]))]


def record_comparison(brought: JudgementImport, columns: dict[str, Any]) -> None:
    """Show the curator what was found, within `audit.acting`.

    Where nothing is new there is nothing to decide: the import ends. Beside hidden judgements that would tell grades.
    """
    against, counts = columns["against"], columns["counts"]
    nothing = not is_secret(brought, against) and not counts["new"] and not counts["conflicts"]
    waiting = JudgementImport.objects.filter(pk=brought.pk, state=State.COMPARING)
    waiting.update(
        state=State.DISCARDED if nothing else State.READY,
        settled_at=timezone.now() if nothing else None,
        version=brought.dataset.current_version,
        **columns,
    )
    record_compared(brought, brought.dataset, against)


def merge_import(brought: JudgementImport, folder: Path) -> MergedJudgements:
    """Merge as the curator chose, and store the file. No row is written."""
    new = _imported_grades(brought, brought.against)
    grades = merge(present_grades(brought.against), new, MergePolicy(brought.policy))
    path = folder / "merged.tsv"
    write_judgements(grades, path)
    qrels, table = read_qrels(path), brought.version.document_ids_sha256
    missing = (
        documents_not_in_corpus(qrels, DocumentIds.open(local_path(Area.INDEXES, table))) if table else []
    )
    judged = JudgementFile(qrels, path, sha256_of(path), frozenset(missing))
    put(Area.QRELS, path, judged.sha256)
    row = Qrels(version=brought.version, split=split_of(brought), sha256=judged.sha256)
    # Who made the merged judgements, how many of them, and how far they agree on what several judged.
    by_judge = [*_judged_before(brought.against), (judge_of(brought), new)]
    judges = [
        {**judge._asdict(), "called": str(judge), "judgements": count}
        for judge, count in count_merged_by_judge(by_judge, grades).items()
    ]
    agreement = agreements(by_judge, brought.dataset.relevance_level)
    content = prepare_content(brought.dataset, row)
    return MergedJudgements(judged, content, {"judges": judges, "agreement": agreement})


@transaction.atomic
def record_merge(brought: JudgementImport, merged: MergedJudgements) -> str:
    """Make the next judgements of the dataset, and adopt them; what came of it, in words for a log.

    Within `audit.acting`. Where the dataset's judgements changed meanwhile they are compared again; while a rescore is
    to be decided the import waits for the curator.
    """
    lock_boards([brought.dataset_id])
    present = JudgementImport.objects.select_related("dataset", "against").get(pk=brought.pk)
    if present.state != State.MERGING:
        return "It has been decided in the meantime."
    if not is_current(present):
        compare_again(present)
        return "The judgements have changed in the meantime and are compared again."
    if under_way(present.dataset_id) is not None:
        JudgementImport.objects.filter(pk=present.pk).update(state=State.READY)
        return "Decide on the pending rescore first."
    qrels = current_or_next_qrels(
        present.version,
        split_of(present),
        merged.judgements,
        made_from=present.against,
        note=present.note,
        judged_by=merged.judged_by,
    )
    JudgementImport.objects.filter(pk=present.pk).update(
        state=State.MERGED, qrels=qrels, settled_at=timezone.now()
    )
    record(
        "judgements merged",
        present,
        dataset=present.dataset,
        before={"qrels": present.against.number if present.against else None},
        after={"qrels": qrels.number, "conflicts": present.policy},
    )
    rescore = adopt_qrels(present.dataset, qrels, present.note, merged.content)
    return f"Qrels v{qrels.number}: " + ("the stored runs are rescored." if rescore else "adopted.")


def split_of(brought: JudgementImport) -> str:
    """Return the split that the judgements are for: that of the present ones."""
    return brought.against.split if brought.against is not None else "test"


def present_grades(qrels: Qrels | None) -> dict[bytes, dict[bytes, int]]:
    """Return the grades of a row, empty without one."""
    return load_grades(qrels) if qrels is not None else {}


def _imported_grades(brought: JudgementImport, against: Qrels | None) -> dict[bytes, dict[bytes, int]]:
    # Whether the scale may grow was asked when the file was brought.
    return read_import(
        brought.version, path_of(Area.CURATION, brought.sha256), against, scale_grew=True
    ).grades


def list_conflicts(brought: JudgementImport, most: int | None = None) -> Iterator[Conflict]:
    """Yield the conflicts, with both grades: for those who may read judgements, each reading recorded by the caller.

    Of hidden judgements nobody else may see which pairs these are: `disclosure.is_blind_decision`.
    """
    if not brought.conflicts_sha256:
        return
    with path_of(Area.CURATION, brought.conflicts_sha256).open(encoding="utf-8") as lines:
        for line in islice(lines, most):
            query, document, old, new = line.rstrip("\n").split("\t")
            yield Conflict(query, document, int(old), int(new))


@transaction.atomic
def adopt_qrels(
    dataset: Dataset, qrels: Qrels, note: str, content: OfferedContent | None = None
) -> Rescore | None:
    """Make `qrels` the judgements that the dataset is scored on. Returns the rescore that this takes, if any.

    `note` is public: where they are from. First judgements are taken at once: everything that waits for them is scored
    then, and the dataset's BM25 is made. `content` is what they bring then (`rescoring.content.prepare_content`), where
    the caller does not see to that.
    Within `audit.acting`. Raises RescoreUnderWay while another rescore is not decided, and ValueError for
    judgements of another version than the dataset's.
    """
    present = lock_board(dataset.pk)
    if present.current_version_id != qrels.version_id:
        raise ValueError(f"{qrels} are not for the present version of {dataset}")
    if present.current_qrels_id == qrels.pk:
        return None
    if is_needed(present, qrels):
        return start_rescore(present, qrels, note)
    other = under_way(present)
    if other is not None:
        raise RescoreUnderWay(other)
    present.current_qrels = qrels
    if present.runs_only:
        present.state = Dataset.State.PUBLISHED
    present.save()
    if content is not None:
        offer_content(present, DatasetVersion.objects.get(pk=qrels.version_id), qrels, content)
    wakeup.wake_dispatcher()  # runs that waited for judgements may be scored
    baselines = Entry.objects.filter(dataset=present, is_baseline=True, evaluation__qrels=qrels)
    if not present.runs_only and not baselines.exists():
        request_baseline(present)
    board_changed(present, Kind.IMPORTED)
    dataset.refresh_from_db()
    return None


def draw_now(pool: Pool) -> None:
    """Draw a pool that was asked for. A scorer that comes to it meanwhile finds it drawn."""
    with work_folder("judging") as folder:
        record_pool(pool, draw(pool, folder, lambda share: None))
    pool.refresh_from_db()


def preview_judgements(
    dataset: Dataset, path: Path, *, scale_grew: bool = False, strict: bool = False
) -> JudgementComparison:
    """Compare a file with the present judgements; nothing is stored. Raises as `imports.check_judgements`."""
    found = check_judgements(dataset, path, scale_grew=scale_grew, strict=strict)
    return compare(present_grades(dataset.current_qrels), found.grades)


def compare_now(brought: JudgementImport) -> None:
    """Compare judgements that were brought."""
    with work_folder("judging") as folder:
        record_comparison(brought, compare_import(brought, folder))
    brought.refresh_from_db()


def merge_now(brought: JudgementImport) -> str:
    """Merge judgements whose merge was asked for; what came of it, in words. Within `audit.acting`."""
    with work_folder("judging") as folder:
        merged = merge_import(brought, folder)
        with transaction.atomic():
            said = record_merge(brought, merged)
    brought.refresh_from_db()
    return said
