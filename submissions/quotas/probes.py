"""Detection of runs that probe hidden judgments; they are flagged for curators and still scored.

docs/decisions/0018-quotas-and-young-teams.md explains the thresholds. Details of flags name submissions and count
similar queries; they never contain scores, queries, or documents.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from evaluation.runs.similarity import (
    RunFingerprints,
    Signature,
    compare,
    fingerprint_run,
    linked_submissions,
)
from leaderboard.core.storage.runs import StoredRun, run_path
from leaderboard.datasets.qrels import scoring_target, topic_texts
from leaderboard.models import Evaluation, Qrels, Run, Visibility
from submissions.models import Flag, Job, RunSignature, Submission

#: Share of queries answered, and usual number of documents per query, below which a run looks like a probe.
MIN_ANSWERED = 0.5
MIN_DOCUMENTS = 10
#: Number of earlier submissions to the same version that are compared. They include other users' submissions, since
#: one person may use several accounts.
MAX_COMPARED = 300
#: Length from which a chain of nearly identical submissions counts as probing.
MIN_CHAIN = 3


def fingerprint_submitted_run(job: Job, stored_run: StoredRun, qrels: Qrels) -> RunFingerprints | None:
    """Return the fingerprints of a submitted run on a hidden dataset; call it outside of transactions."""
    if not job.dataset.hidden or job.submission_id is None:
        return None
    return fingerprint_run(run_path(stored_run.sha256), scoring_target(qrels.version))


def flag_suspicious_run(
    job: Job, submission: Submission, evaluation: Evaluation, fingerprints: RunFingerprints
) -> list[Flag]:
    """Store the run's signature and return its flags, which are created if they do not exist.

    A run is flagged if it answers few queries, has few documents, has the same scores as an earlier submission, or is
    nearly the same as earlier ones. Call it in the transaction that records the evaluation.
    """
    run = evaluation.run
    defaults = {"submission": submission, "tops": fingerprints.signature.pack()}
    RunSignature.objects.get_or_create(run=run, defaults=defaults)
    findings: dict[Flag.Kind, Mapping[str, Any]] = {}
    if fingerprints.answered_share < MIN_ANSWERED:
        answered_count = int((fingerprints.documents > 0).sum())
        findings[Flag.Kind.FEW_QUERIES] = {"answered": answered_count, "topics": len(fingerprints.documents)}
    if 0 < fingerprints.median_documents < MIN_DOCUMENTS:
        findings[Flag.Kind.FEW_DOCUMENTS] = {"usual_documents": fingerprints.median_documents}
    # Runs of the latest submissions of all teams to this version, latest first, grouped by submission.
    signatures = RunSignature.objects.filter(run__version=run.version_id).exclude(submission=submission)
    signatures = signatures.exclude(submission=None).select_related("run").order_by("-pk")
    earlier_signatures: dict[str, list[RunSignature]] = {}
    for row in signatures.iterator(chunk_size=50):
        key = str(row.submission_id)
        if key not in earlier_signatures and len(earlier_signatures) == MAX_COMPARED:
            break
        earlier_signatures.setdefault(key, []).append(row)
    runs = {row.run_id: key for key, rows in earlier_signatures.items() for row in rows}
    evaluations = Evaluation.objects.filter(
        run__in=runs, qrels=evaluation.qrels_id, specification=evaluation.specification
    ).order_by("-run")
    for run_id, means in evaluations.values_list("run", "means"):
        shared_measures = set(means) & set(evaluation.means)
        if shared_measures and all(means[name] == evaluation.means[name] for name in shared_measures):
            findings[Flag.Kind.SAME_SCORES] = {"submission": runs[run_id]}
            break  # flag the latest one only
    if similarity := _nearest_earlier(run, fingerprints.signature, earlier_signatures):
        findings[Flag.Kind.NEARLY_THE_SAME] = similarity
    context = {"dataset": job.dataset, "team": submission.team, "submission": submission}
    return [
        Flag.objects.get_or_create(job=job, kind=kind, defaults={**context, "details": dict(details)})[0]
        for kind, details in findings.items()
    ]


def differing_queries(flag: Flag) -> list[tuple[str, str, bool]]:
    """Return id and text of each query that both compared runs answer with different first documents.

    The last value is true if only their order differs; these queries come last. The list is empty unless the queries
    are public and both runs are of the same version.
    """
    signatures = RunSignature.objects.filter(submission__in=flag.compared_runs(), run__version__dataset=flag.dataset)
    rows = {row.submission_id: row for row in signatures.select_related("run__version").order_by("pk")}
    versions = {row.run.version for row in rows.values()}
    if len(rows) < 2 or len(versions) > 1 or flag.dataset.queries_visibility != Visibility.PUBLIC:
        return []
    topics = sorted(topic_texts(versions.pop().topics_sha256).items(), key=lambda topic: topic[0].encode())
    first, second = (Signature.unpack(bytes(row.tops)) for row in rows.values())
    if not len(topics) == len(first.sets) == len(second.sets):
        return []
    differs = (first.sets != 0) & (second.sets != 0) & (first.ordered != second.ordered)
    rows_of_topics = zip(topics, differs, first.sets == second.sets, strict=True)
    return sorted(
        ((*topic, bool(same)) for topic, is_different, same in rows_of_topics if is_different), key=itemgetter(2)
    )


def _nearest_earlier(
    run: Run, signature: Signature, earlier_signatures: Mapping[str, Sequence[RunSignature]]
) -> dict[str, Any]:
    """Return details of the most similar earlier submission, if it is nearly the same or the run continues a chain.

    Otherwise the result is empty. The details contain the submission's id, the chain, and the numbers of queries with
    the same documents. Identical runs are ignored, because their scores identify them.
    """
    comparable_signatures: dict[str, list[Signature]] = {}
    for key, rows in earlier_signatures.items():
        candidates = [Signature.unpack(bytes(row.tops)) for row in rows if row.run.sha256 != run.sha256]
        # Signatures are comparable only if they cover the same topics of the version.
        if same_topics := [candidate for candidate in candidates if len(candidate.sets) == len(signature.sets)]:
            comparable_signatures[key] = same_topics
    similarities = [(compare(signature, other), key) for key, rows in comparable_signatures.items() for other in rows]
    similarities = [pair for pair in similarities if pair[0].is_comparable]
    if not similarities:
        return {}
    similarity, nearest_submission = max(similarities, key=lambda pair: pair[0].share)
    keys = list(comparable_signatures)
    positions = linked_submissions([signature], [comparable_signatures[key] for key in keys])
    chain = [keys[position] for position in positions]
    if not similarity.is_nearly_same and len(chain) + 1 < MIN_CHAIN:
        return {}
    return {
        "submission": nearest_submission,
        "chain": chain,
        "compared_submissions": len(comparable_signatures),
        **{name: getattr(similarity, name) for name in ("compared", "same_documents", "same_order")},
    }
