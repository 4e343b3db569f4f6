"""Judgements that a curator brings: taken in whole or not at all, compared by the scorer, then merged."""

import re
from pathlib import Path

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from evaluation.collections.beir import read_queries
from evaluation.collections.document_ids import DocumentIds
from evaluation.judgements.import_file import HIGHEST_GRADE, NewJudgements, read_judgements
from evaluation.judgements.merge import UNNAMED_JUDGES, Judge
from leaderboard.core.audit import actor, record
from leaderboard.core.storage.store import Area, local_path, put
from leaderboard.core.text.names import validate_name
from leaderboard.core.work_requests import request_work
from leaderboard.judgements.disclosure import is_secret
from leaderboard.judgements.pools import ConcurrentChange, JudgingRefused
from leaderboard.judgements.rescoring.campaigns import RescoreUnderWay, under_way
from leaderboard.models import Dataset, DatasetVersion, JudgementImport, Pool, Qrels, WorkRequest
from leaderboard.results.board_rows.revisions import lock_boards

State = JudgementImport.State
JudgeKind = JudgementImport.JudgeKind
Conflicts = JudgementImport.Conflicts
#: Those that are not settled, and those that the scorer works on.
OPEN = (State.COMPARING, State.READY, State.MERGING)
WORKING = (State.COMPARING, State.MERGING)
_SHA256 = re.compile("[0-9a-f]{64}")


def check_judgements(
    dataset: Dataset, path: Path, *, scale_grew: bool = False, strict: bool = False
) -> NewJudgements:
    """Read the file's judgements of the dataset's queries and documents; nothing is stored.

    `scale_grew` allows grades above those of the present judgments. `strict` refuses documents that the corpus
    lacks.
    Raises InvalidContent with everything that is wrong, and JudgingRefused for a dataset without content.
    """
    return read_import(_version(dataset), path, dataset.current_qrels, scale_grew=scale_grew, strict=strict)


def read_import(
    version: DatasetVersion, path: Path, present: Qrels | None, *, scale_grew: bool, strict: bool = False
) -> NewJudgements:
    """Return the judgements in a file, for a version that has `present` ones. Raises InvalidContent."""
    table = version.document_ids_sha256
    grades = (present.statistics if present is not None else {}).get("grades", {})
    known = max(map(int, grades), default=0)
    return read_judgements(
        path,
        {query.id for query in read_queries(local_path(Area.FILES, version.queries_sha256))},
        DocumentIds.open(local_path(Area.INDEXES, table)) if table else None,
        highest=max(HIGHEST_GRADE, known),
        # Where nothing is judged relevant yet there is no scale to keep to.
        scale=known if known > 0 and not scale_grew else None,
        strict=strict,
    )


def _version(dataset: Dataset) -> DatasetVersion:
    if dataset.current_version is None:
        raise JudgingRefused(f"{dataset} has no queries here: import the collection first.")
    return dataset.current_version


def check_judge(judge: Judge) -> None:
    """Raise JudgingRefused for a judge without a readable name, and for a model that nobody could ask again."""
    if not judge.name.strip():
        raise JudgingRefused(
            "Say who judged (--judge): the name of the people, such as “NIST assessors”, or of the model."
        )
    if judge.kind == JudgeKind.MODEL and not (judge.version.strip() and _SHA256.fullmatch(judge.prompt)):
        raise JudgingRefused(
            f"Say which version of {judge.name} judged, and the SHA-256 of its prompt as 64 hexadecimal digits: "
            "without both nobody can repeat it."
        )
    if judge.kind != JudgeKind.MODEL and (judge.version or judge.prompt):
        raise JudgingRefused(
            "Only a model has a version and a prompt: choose “a model”, or leave both empty."
        )
    _check_line("The judge’s name", judge.name.strip())
    _check_line("The model’s version", judge.version.strip())


def _check_line(what: str, text: str) -> None:
    """Raise JudgingRefused for a public line with characters that nobody sees."""
    try:
        if text:
            validate_name(text)
    except ValidationError as error:
        raise JudgingRefused(f"{what}: {' '.join(error.messages)}") from error


def judge_of(brought: JudgementImport) -> Judge:
    """Who judged; `UNNAMED_JUDGES` where that was not asked yet."""
    if not brought.judge_name:
        return UNNAMED_JUDGES
    return Judge(brought.judge_kind, brought.judge_name, brought.judge_version, brought.judge_prompt)


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
    """Take the file in, to be held against the present judgements by the scorer. Within `audit.acting`.

    Raises evaluation.core.problems.InvalidContent with everything that is wrong with it, or JudgingRefused; nothing is
    stored then.
    """
    check_judge(judge)
    _check_line("The note", note.strip())
    version = _version(dataset)
    if pool is not None and pool.version_id != version.pk:
        raise JudgingRefused(f"{pool} is not of the dataset's present version.")
    found = check_judgements(dataset, path, scale_grew=scale_grew, strict=strict)
    counts = {"lines": found.lines, "pairs": found.pairs, "unjudged": found.unjudged}
    if found.missing:
        counts["missing"] = found.missing
    sha256 = put(Area.CURATION, path)
    with transaction.atomic():
        brought = JudgementImport.objects.create(
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
        request_import_work(brought)
        record("judgements brought", brought, dataset=dataset, after={**brought.counts, "judge": str(judge)})
    return brought


def request_merge(brought: JudgementImport, policy: Conflicts) -> None:
    """Merge as the curator says. Within `audit.acting`.

    Raises ConcurrentChange where somebody decided first, or where the judgements have changed since they were
    compared: then they are compared again. JudgingRefused while a rescore is to be decided, or where nothing would
    change (judgements that are open).
    """
    with transaction.atomic():
        lock_boards([brought.dataset_id])
        imports = JudgementImport.objects.select_related("dataset__current_qrels", "against")
        present = imports.get(pk=brought.pk)
        overtaken = _concurrent_change(present)
        if not overtaken:
            if (rescore := under_way(present.dataset_id)) is not None:
                raise JudgingRefused(f"{RescoreUnderWay(rescore)}.")
            # Over hidden judgements the refusal would tell grades: the merge then gives what is there.
            if not is_secret(present, present.against) and not count_changes(present, policy):
                unchanged = f"no pair is new, and to {policy.label} leaves every conflict as it is"
                raise JudgingRefused(f"Nothing would change: {unchanged}.")
            JudgementImport.objects.filter(pk=present.pk).update(state=State.MERGING, policy=policy)
            request_import_work(present)
            record("merge requested", present, dataset=present.dataset_id, after={"conflicts": policy.value})
    brought.refresh_from_db()
    if overtaken:
        raise ConcurrentChange(overtaken)


def _concurrent_change(present: JudgementImport) -> str:
    """Return what somebody else changed meanwhile, or an empty text; changed judgements are compared at once."""
    if present.state != State.READY:
        return f"Someone has already decided: this import is {present.get_state_display()}."
    if is_current(present):
        return ""
    compare_again(present)
    return "The judgements have changed since the comparison and are compared again."


def is_current(present: JudgementImport) -> bool:
    """Whether the judgements that it was compared with are still the dataset's."""
    dataset = present.dataset
    return (present.version_id, present.against_id) == (
        dataset.current_version_id,
        dataset.current_qrels_id,
    )


def count_changes(present: JudgementImport, policy: Conflicts) -> int:
    """How many judgements the merge would add or change, as they were compared."""
    counts = present.counts
    changed = {
        Conflicts.KEEP: 0,
        Conflicts.REPLACE: counts.get("conflicts", 0),
        Conflicts.HIGHEST: counts.get("raised", 0),
    }
    return int(counts.get("new", 0) + changed[policy])


def compare_again(brought: JudgementImport) -> None:
    """Have the scorer compare once more: with the present judgements, or after a fault of ours.

    Raises ConcurrentChange where it is settled.
    """
    waiting = JudgementImport.objects.filter(pk=brought.pk, state__in=[*OPEN, State.FAILED])
    with transaction.atomic():
        if not waiting.update(state=State.COMPARING, policy=""):
            raise ConcurrentChange("This import is settled.")
        request_import_work(brought)
        record("judgements compared again", brought, dataset=brought.dataset_id)


def discard_import(brought: JudgementImport) -> None:
    """Throw the judgements away: nothing changes. Within `audit.acting`. Raises ConcurrentChange where it is
    settled."""
    waiting = JudgementImport.objects.filter(
        pk=brought.pk, state__in=[State.COMPARING, State.READY, State.FAILED]
    )
    with transaction.atomic():
        if not waiting.update(state=State.DISCARDED, settled_at=timezone.now()):
            raise ConcurrentChange("This import is settled, or being merged.")
        record("judgements discarded", brought, dataset=brought.dataset_id)
    brought.refresh_from_db()


def fail_import(brought: int) -> None:
    """Say that a fault of ours kept it from being compared or merged."""
    JudgementImport.objects.filter(pk=brought, state__in=WORKING).update(state=State.FAILED)


def request_import_work(brought: JudgementImport) -> None:
    """Ask the scorer for what its state says is to be done, in the name of who acts."""
    person = actor().person
    payload = {"import": brought.pk, "by": person.pk if person is not None else None}
    request_work(WorkRequest.Kind.MERGE, brought.dataset, payload)
