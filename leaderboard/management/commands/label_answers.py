"""`manage.py label_answers DATASET`: label answers of runs with a language model."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from django.core.management.base import CommandParser
from django.utils import timezone

from evaluation.collections.beir import read_queries
from evaluation.core.problems import format_count
from evaluation.judgements.labels import merge_labels, read_labels
from evaluation.judgements.merge import MergePolicy
from leaderboard.core.audit import actor
from leaderboard.core.storage.store import Area, local_path
from leaderboard.datasets.qrels import answer_texts, load_labels, record_reading
from leaderboard.judgements.chat_judge import PROMPT_VERSION, BudgetSpent, ChatJudge, JudgeFailed
from leaderboard.judgements.disclosure import may_see_counts
from leaderboard.judgements.labels import collect_answers, find_unlabeled
from leaderboard.judgements.pools import JudgingRefused, eligible_runs
from leaderboard.management.curating import CurationCommand
from leaderboard.models import Dataset


class Command(CurationCommand):
    """Command that sends questions, correct answers, and answers of runs to a language model."""

    help = (
        "Label the answers of runs that a language model has not labeled yet. Questions, correct answers, and answers "
        "are sent to the endpoint. Labels are appended to the output. Import it with import_judgements --labels."
    )
    subjects = ("dataset",)
    atomic = False
    refusals = (JudgingRefused,)
    why_help = "reason, for the audit log"

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("--endpoint", required=True, help="OpenAI-compatible URL, such as http://127.0.0.1:8080/v1")
        parser.add_argument("--model", required=True, help="name of the model on the server")
        parser.add_argument("--judge", required=True, help="public name of the judge, used in its measures' names")
        parser.add_argument("--limit", type=int, help="maximum number of answers to label")
        parser.add_argument("--output", type=Path, default=Path("labels.jsonl"), help="default: labels.jsonl")
        parser.add_argument("--max-requests", type=int, default=1000, help="maximum number of requests; default: 1000")
        parser.add_argument("--key-variable", default="OPENAI_API_KEY", help="environment variable with the key")

    def curate(self, dataset: Dataset, judge: str, model: str, endpoint: str, output: Path, **options: Any) -> str:
        """Label the answers, append the labels to the output, and return a summary.

        Raises JudgingRefused without correct answers that the user may read, and for an unusable endpoint.
        """
        qrels = dataset.current_qrels
        texts = answer_texts(qrels) if qrels is not None else None
        if qrels is None or texts is None:
            raise JudgingRefused(f"{dataset} has no correct answers. Import the collection with an answers.jsonl.")
        if not may_see_counts(dataset, actor().person):
            raise JudgingRefused("Only users who may read hidden judgments can send correct answers to a model.")
        if not endpoint.startswith(("https://", "http://")):
            raise JudgingRefused(f"{endpoint} is not an address. Write it as https://api.example.org/v1.")
        identity = {"judge": judge, "kind": "model", "model": model, "prompt": PROMPT_VERSION}
        known = load_labels(qrels)
        # This raises InvalidContent for an invalid name, or one that belongs to another judge.
        labels = read_labels(orjson.dumps(identity), known=known)
        if output.exists():
            labels = merge_labels(labels, read_labels(output, known=labels), MergePolicy.KEEP)
        record_reading(qrels, dataset.pk, what="correct answers, sent to a model", model=model, endpoint=endpoint)
        correct_answers = {
            query: [*answers.texts, *(f"pattern: {pattern.pattern}" for pattern in answers.patterns)]
            for query, answers in texts.read_answers().items()
        }
        unlabeled = find_unlabeled(collect_answers(eligible_runs(dataset)), known | labels, qrels)[judge]
        keys = [key for key in sorted(unlabeled) if key[0] in correct_answers]
        queries = read_queries(local_path(Area.FILES, qrels.version.queries_sha256))
        questions = {query.id: (query.text, correct_answers.get(query.id, [])) for query in queries}
        chat = ChatJudge(endpoint, model, os.environ.get(options["key_variable"], ""), options["max_requests"])
        record = identity | {name: labels[judge, "", ""].get(name, 0) for name in ("requests", "failures")}
        count, outcome = _append_labels(chat, keys[: options["limit"]], questions, record, output)
        return (
            f"{format_count(count, 'answer')} labeled, {len(keys) - count:,} left; "
            f"{format_count(chat.requests, 'request')}. {outcome}Import the labels with manage.py import_judgements "
            f"{dataset.slug} {output} --labels."
        )


def _append_labels(
    chat: ChatJudge,
    keys: Sequence[tuple[str, str]],
    questions: Mapping[str, tuple[str, Sequence[str]]],
    record: Mapping[str, Any],
    output: Path,
) -> tuple[int, str]:
    """Append the labels of answers to the output, and return their number and a sentence on what failed, if anything.

    `questions` have correct answers. `record` describes the judge. It is appended with the new numbers of requests and
    failures, even if the command is interrupted.
    """
    count, failures, outcome = 0, 0, ""
    with output.open("ab") as file:
        try:
            for query, answer in keys:
                try:
                    correct = chat.label(*questions[query], answer)
                except JudgeFailed as error:
                    failures, outcome = failures + 1, f"The last failure: {error}. "
                else:
                    label = {"query_id": query, "answer": answer, "correct": correct}
                    file.write(orjson.dumps({**record, **label}) + b"\n")
                    file.flush()
                    count += 1
        except BudgetSpent:
            outcome = "Stopped because --max-requests was reached. "
        finally:
            totals = {"requests": record["requests"] + chat.requests, "failures": record["failures"] + failures}
            file.write(orjson.dumps({**record, **totals, "date": f"{timezone.now():%Y-%m-%d}"}) + b"\n")
    return count, outcome
