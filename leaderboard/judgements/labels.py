"""Labels of answers by named judges: checks of files, comparison, merging, and answers without a label."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from evaluation.collections.beir import read_queries
from evaluation.judgements.labels import (
    Labels,
    changed_nuggets,
    compare_labels,
    judge_records,
    labeled_answers,
    merge_labels,
    read_labels,
    summarize_judges,
    write_labels,
)
from evaluation.judgements.merge import MergePolicy
from evaluation.runs.forms import read_responses
from leaderboard.core.storage.runs import run_path
from leaderboard.core.storage.store import Area, local_path, path_of, put
from leaderboard.datasets.qrels import load_labels, load_qrels
from leaderboard.judgements.pools import JudgingRefused, eligible_runs
from leaderboard.models import Dataset, JudgementImport, Qrels, Run

#: Runs that give an answer, by query and text.
Answers = Mapping[tuple[str, str], Collection[int]]


def check_labels(dataset: Dataset, path: Path) -> Labels:
    """Read a file of labels for the dataset without storing it.

    Raises:
        InvalidContent: With all problems of the file.
        JudgingRefused: For a dataset without judgments.
    """
    version, qrels = dataset.current_version, dataset.current_qrels
    if version is None or qrels is None:
        raise JudgingRefused(f"{dataset} has no relevance judgments. Import them before labels of answers.")
    queries = {query.id for query in read_queries(local_path(Area.FILES, version.queries_sha256))}
    known: Labels = {(judge["name"], "", ""): judge for judge in qrels.judged_by.get("labels", {}).get("judges", ())}
    return read_labels(path, queries, known)


def collect_answers(runs: Iterable[Run]) -> Answers:
    """Return the answers of all stored runs that have answers."""
    answers: dict[tuple[str, str], set[int]] = {}
    for run in runs:
        path = run_path(run.sha256)
        answer_run = read_responses(path) if path.exists() else None
        for query, response in (answer_run.responses if answer_run else {}).items():
            if response.answer.strip():
                answers.setdefault((query, response.answer), set()).add(run.pk)
    return answers


def find_unlabeled(answers: Answers, labels: Labels, qrels: Qrels | None) -> dict[str, Answers]:
    """Return the answers to judged queries without a label of each judge; without judges, all under an empty name."""
    queries = frozenset(load_qrels(qrels).query_ids) if qrels is not None else {query for query, _ in answers}
    return {
        judge: {key: runs for key, runs in answers.items() if key[0] in queries and (judge, *key) not in labels}
        for judge, _, _ in judge_records(labels) or [("", "", "")]
    }


def count_unlabeled(unlabeled: Mapping[str, Answers]) -> list[dict[str, Any]]:
    """Return the number of answers that lack a label, and of their runs, for each judge."""
    return [
        {"judge": judge, "answers": len(answers), "runs": len({run for runs in answers.values() for run in runs})}
        for judge, answers in unlabeled.items()
    ]


def write_unlabeled(unlabeled: Mapping[str, Answers], query_texts: Mapping[str, str], target: Path) -> None:
    """Write the answers that lack a label as JSON Lines, with the judges who did not label them, sorted by text."""
    with target.open("wb") as output:
        for key in sorted({key for answers in unlabeled.values() for key in answers}):
            judges = [judge for judge, answers in unlabeled.items() if judge and key in answers]
            record = {"query_id": key[0], "query": query_texts.get(key[0], ""), "answer": key[1]}
            output.write(orjson.dumps(record | {"unlabeled_by": judges}) + b"\n")


def compare_label_import(import_: JudgementImport, qrels: Qrels) -> dict[str, Any]:
    """Compare imported labels with the current ones and the stored answers, and return the new columns of its row."""
    old_labels, new_labels = load_labels(qrels), _imported_labels(import_, qrels)
    merged = merge_labels(old_labels, new_labels, MergePolicy.KEEP)
    answers = collect_answers(eligible_runs(import_.dataset))
    counts = {
        "agreement": summarize_judges(merged)["agreement"],
        "unknown_answers": sum(key[1:] not in answers for key in labeled_answers(new_labels)),
        "changed_nuggets": len(changed_nuggets(old_labels, new_labels)),
        "unlabeled": count_unlabeled(find_unlabeled(answers, merged, qrels)),
    }
    all_counts = {**import_.counts, **compare_labels(old_labels, new_labels), **counts}
    return {"against": qrels, "counts": all_counts, "conflicts_sha256": ""}


def merge_label_import(import_: JudgementImport, qrels: Qrels, folder: Path) -> tuple[str, dict[str, Any]]:
    """Merge an import with the chosen policy, and return the checksum of the stored labels and the new `judged_by`."""
    labels = merge_labels(load_labels(qrels), _imported_labels(import_, qrels), MergePolicy(import_.policy))
    path = folder / "labels.jsonl"
    write_labels(labels, path)
    return put(Area.QRELS, path), {**qrels.judged_by, "labels": summarize_judges(labels)}


def _imported_labels(import_: JudgementImport, qrels: Qrels) -> Labels:
    """Return the labels of an import. Raises InvalidContent if one of its judges differs from a judge of `qrels`."""
    return read_labels(path_of(Area.CURATION, import_.sha256), known=load_labels(qrels))
