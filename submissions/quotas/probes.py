"""Which runs over hidden judgements look like probes: flagged for the curator beside their scoring, never refused.

See docs/decisions/0018-quotas-and-young-teams.md for the thresholds. Details name submissions and say how many queries
are alike; never a score, a query or a document.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.runs.similarity import (
    RunFingerprints,
    RunSimilarity,
    Signature,
    compare,
    fingerprint_run,
    linked_submissions,
)
from leaderboard.core.storage.runs import StoredRun, run_path
from leaderboard.datasets.qrels import scoring_target
from leaderboard.models import Evaluation, Qrels, Run
from submissions.models import Flag, Job, RunSignature, Submission

#: Fewer of the topics answered than this, and fewer documents for most of those answered, is what a probe looks like.
LEAST_ANSWERED = 0.5
LEAST_DOCUMENTS = 10
#: So many earlier submissions to the same version are compared, whosever they are: who has several accounts sends what
#: is nearly the same from each.
COMPARED = 300
#: A chain of so many submissions, each nearly one of the others, is a walk.
CHAIN = 3


def signature_of(job: Job, stored: StoredRun, qrels: Qrels) -> RunFingerprints | None:
    """Return the fingerprints of a submitted run over hidden judgements; call it outside of transactions."""
    if not job.dataset.hidden or job.submission_id is None:
        return None
    return fingerprint_run(run_path(stored.sha256), scoring_target(qrels.version))


def flag_suspicious_run(
    job: Job, submission: Submission, evaluation: Evaluation, signed: RunFingerprints
) -> list[Flag]:
    """Keep the run's signature and flag what is noticed, in the transaction that records the evaluation."""
    run = evaluation.run
    defaults = {"submission": submission, "tops": signed.signature.pack()}
    RunSignature.objects.get_or_create(run=run, defaults=defaults)
    noticed: dict[Flag.Kind, Mapping[str, Any]] = {}
    if signed.answered_share < LEAST_ANSWERED:
        answered = int((signed.documents > 0).sum())
        noticed[Flag.Kind.FEW_QUERIES] = {"answered": answered, "topics": len(signed.documents)}
    if 0 < signed.median_documents < LEAST_DOCUMENTS:
        noticed[Flag.Kind.FEW_DOCUMENTS] = {"usual_documents": signed.median_documents}
    # The runs of all teams' last submissions to the version, by submission, the latest first.
    signatures = (
        RunSignature.objects.filter(run__version=run.version_id)
        .exclude(submission=submission)
        .exclude(submission=None)
        .select_related("run")
        .order_by("-pk")
    )
    earlier: dict[str, list[RunSignature]] = {}
    for row in signatures.iterator(chunk_size=50):
        key = str(row.submission_id)
        if key not in earlier and len(earlier) == COMPARED:
            break
        earlier.setdefault(key, []).append(row)
    runs = {row.run_id: key for key, rows in earlier.items() for row in rows}
    others = Evaluation.objects.filter(
        run__in=runs, qrels=evaluation.qrels_id, specification=evaluation.specification
    ).order_by("-run")
    for run_id, means in others.values_list("run", "means"):
        common = set(means) & set(evaluation.means)
        if common and all(means[name] == evaluation.means[name] for name in common):
            noticed[Flag.Kind.SAME_SCORES] = {"submission": runs[run_id]}
            break  # the latest one alone
    if alike := _nearest_earlier(run, signed.signature, earlier):
        noticed[Flag.Kind.NEARLY_THE_SAME] = alike
    about = {"dataset": job.dataset, "team": submission.team, "submission": submission}
    return [
        Flag.objects.get_or_create(job=job, kind=kind, defaults={**about, "details": dict(details)})[0]
        for kind, details in noticed.items()
    ]


def _nearest_earlier(
    run: Run, signature: Signature, earlier: Mapping[str, Sequence[RunSignature]]
) -> dict[str, Any]:
    """Return the nearest earlier submission, or the chain that the run continues; empty if there is neither.

    The very same run again is not "nearly" the same: it has the same scores.
    """
    kept: dict[str, list[Signature]] = {}
    for key, rows in earlier.items():
        others = [Signature.unpack(bytes(row.tops)) for row in rows if row.run.sha256 != run.sha256]
        # Signatures over other topics of the same version are not comparable.
        if comparable := [other for other in others if len(other.sets) == len(signature.sets)]:
            kept[key] = comparable
    likest: tuple[RunSimilarity, str] | None = None
    for key, signatures in kept.items():
        for other in signatures:
            likeness = compare(signature, other)
            if likeness.is_comparable and (likest is None or likeness.share > likest[0].share):
                likest = (likeness, key)
    if likest is None:
        return {}
    likeness, nearest = likest
    keys = list(kept)
    places = linked_submissions([signature], [kept[key] for key in keys])
    linked = [keys[place] for place in places]
    if not likeness.nearly_the_same and len(linked) + 1 < CHAIN:
        return {}
    return {
        "submission": nearest,
        "compared": likeness.compared,
        "same_documents": likeness.same_documents,
        "same_order": likeness.same_order,
        "chain": linked,
        "compared_submissions": len(kept),
    }
