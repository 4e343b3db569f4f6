"""Labels of answers by named judges, and the nuggets that answers should contain.

A labels file has JSON objects of three kinds, one per line: `{"judge": "Ana", "kind": "person", "query_id": "q1",
"answer": "Paris", "correct": 1, "nuggets": {"n1": "support"}}`, where `correct` or `nuggets` may be missing;
`{"query_id": "q1", "nuggets": [{"id": "n1", "text": "in France", "vital": true}]}`; and a record of a judge, such as
`{"judge": "Llama", "kind": "model", "model": "llama-3.3-70b", "prompt": "1"}`. A label belongs to a query and the exact
text of an answer, so it applies to every run with this answer.

Nuggets and their scores follow Pradeep et al. (Initial Nugget Evaluation Results for the TREC 2024 RAG Track with the
AutoNuggetizer Framework, 2024): a nugget counts 1 if the answer supports it, 0.5 with partial support, and otherwise 0.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from evaluation.archives.compression import open_lines
from evaluation.collections.beir import as_text
from evaluation.core.problems import InvalidContent, LineProblems
from evaluation.judgements.forms import is_number
from evaluation.judgements.import_file import LIMITS, LONGEST_LINE, limit_lines
from evaluation.judgements.merge import MergePolicy
from evaluation.statistics.comparison import cohen_kappa

#: Measures of labels; the judge is a part of their names (`label_measure`).
LABEL_MEASURES = ("Correct", "NuggetR", "VitalR")
#: Judge, query, and answer. The answer is empty for nuggets, which have no judge, and for judges, who have no query.
Key = tuple[str, str, str]
#: Fields by key: `correct` and `nuggets` of a label, `nuggets` of a query, and those of `_RECORD` of a judge.
Labels = dict[Key, dict[str, Any]]

SUPPORT = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}
MAX_JUDGES, MAX_NAME = 20, 40
JUDGE_NAME = r"[\w.+-]+(?: [\w.+-]+)*"
_KEY = ("judge", "query_id", "answer")
#: Fields of a judge. The first three identify the judge.
_RECORD: dict[str, type] = {"kind": str, "model": str, "prompt": str, "date": str, "requests": int, "failures": int}
_IDENTITY = ("kind", "model", "prompt")
#: Translation of digits and lowercase letters to the basic Latin letters that they resemble.
_LOOK_ALIKES = str.maketrans("01iıɑɡаеорсухіјѕԁһԝвнмткαβεηικμνορτυχ", "olllagaeopcyxljsdhwbhmtkabehlkmnoptyx")
#: Pattern of the Unicode names of invisible letters (fillers), and of letters of two alphabets that look alike.
_AMBIGUOUS = re.compile(r"FILLER|(LATIN|GREEK|CYRILLIC).*(?!\1)(LATIN|GREEK|CYRILLIC)")
_PROBLEMS = {
    "label": ("{lines} not a label of an answer, a judge, or the nuggets of a query",
        'Write lines such as {"judge": "Ana", "kind": "person", "query_id": "q1", "answer": "Paris", "correct": 1}. '
        "To import relevance judgments, enter the judge's name in the form or command, and leave out --labels."),
    "judge": (f"{{lines}} with an unusable judge, or more than {MAX_JUDGES} judges",
        f"Write names of 1 to {MAX_NAME} letters, digits, and the characters “._+-”, and single blanks, the "
        "`kind` person or model, and other facts as short texts."),
    "judge_changed": ("{lines} with another kind, model, or prompt than earlier labels of the judge",
        "Give the judge another name, so that scores of different judges are not mixed."),
    "similar_judge": ("{lines} with a judge whose name looks like that of another judge: {similar}",
        "Write the name of the same judge in the same way, and give other judges clearly different names."),
    "judge_letters": ("{lines} with a judge whose name has invisible letters, or letters of several alphabets",
        "Write a name with letters of one alphabet, such as Latin."),
    "unknown_query": ("{lines} with a query that is not in the dataset", "Write query ids as in the queries file."),
    "correct": ("{lines} with a value of `correct` that is not a number from 0 to 1", "Write 0, 1, or a share."),
    "nuggets": (f"{{lines}} with unusable nuggets, or a label without one of {', '.join(SUPPORT)} for each of them",
        'Write the nuggets of the query as [{"id": "n1", "text": "in France", "vital": true}] in the same file.'),
    "duplicate": ("{lines} with the label or the nuggets of an earlier line", "Keep one line for each."),
    "empty": ("the file has no labels", "Check that the right file was chosen."),
}  # fmt: skip


def label_measure(measure: str, judge: str) -> str:
    return f"{measure}(judge='{judge}')"


def judge_records(labels: Labels) -> Labels:
    """Return the records of the judges, with their names as the first part of the key."""
    return {key: record for key, record in labels.items() if not key[1]}


def labeled_answers(labels: Labels) -> list[Key]:
    return [key for key in labels if key[2]]


def read_labels(path: Path | bytes, queries: Collection[str] | None = None, known: Labels | None = None) -> Labels:
    """Return the labels of a file, plain or compressed.

    `queries` are the ids of the dataset's queries, and `known` contains the judges of earlier labels. Raises
    InvalidContent with every problem of the file.
    """
    problems, labels, numbers, similar = LineProblems(), Labels(), dict[Key, int](), set[str]()
    judges = {
        key[0]: {name: record.get(name) for name in _IDENTITY} for key, record in judge_records(known or {}).items()
    }
    for number, line in enumerate(limit_lines(open_lines(path, LIMITS, LONGEST_LINE)), 1):
        if not line.strip():
            continue
        key, record = _parse_line(line)
        judge, query, answer = key
        stated = {name: record[name] for name in _RECORD if name in record}
        if not any(key):
            problems.note("label", number)
        elif judge and not (_is_judge(judge, stated) and len(judges.keys() | {judge}) <= MAX_JUDGES):
            problems.note("judge", number)
        elif known is not None and (similar_names := _similar_names(judge, judges)):
            problems.note("similar_judge", number)
            similar.update(similar_names)
        elif known is not None and judge not in judges and _is_ambiguous(judge):
            problems.note("judge_letters", number)
        elif judge:
            labels[judge, "", ""] = earlier = judges.setdefault(judge, {})
            if any(earlier.get(name) not in (None, stated[name]) for name in _IDENTITY if name in stated):
                problems.note("judge_changed", number)
            else:
                earlier |= stated
        if query:
            if queries is not None and query not in queries:
                problems.note("unknown_query", number)
            if not is_number(record.get("correct", 0), 0, 1):
                problems.note("correct", number)
            if key in numbers:
                problems.note("duplicate", number)
            names = ("correct", "nuggets") if answer else ("nuggets",)
            numbers[key], labels[key] = number, {name: record[name] for name in names if name in record}
    for key, number in numbers.items():
        ids, nuggets = _nugget_ids(labels.get(("", key[1], ""), {}).get("nuggets")), labels[key].get("nuggets", {})
        if "nuggets" in labels[key] and (not ids or (key[2] and not _is_support(nuggets, ids))):
            problems.note("nuggets", number)
    if problems:
        raise InvalidContent.build(*problems.report(_PROBLEMS, similar=", ".join(sorted(similar))))
    if not labels:
        raise InvalidContent.from_text(_PROBLEMS, "empty")
    return labels


def _parse_line(line: bytes) -> tuple[Key, dict[str, Any]]:
    """Return the key and the fields of a line; all parts of the key are empty if it is none of the three kinds."""
    try:
        record = orjson.loads(line)
        judge, query, answer = (as_text(record.get(name)) or "" for name in _KEY)
    except (ValueError, AttributeError):
        return ("", "", ""), {}
    is_label = bool(judge and query and answer.strip()) and not record.keys().isdisjoint(("correct", "nuggets"))
    is_other = not answer and bool(judge) != bool(query) and (bool(judge) or "nuggets" in record)
    return ((judge, query, answer) if is_label or is_other else ("", "", "")), record


def _is_judge(name: str, stated: Mapping[str, Any]) -> bool:
    is_name = len(name) <= MAX_NAME and re.fullmatch(JUDGE_NAME, name) and unicodedata.is_normalized("NFC", name)
    is_typed = all(type(value) is _RECORD[field] for field, value in stated.items())
    is_short = all(len(text) <= 200 and text.isprintable() for text in map(str, stated.values()))
    return bool(is_name and is_typed and is_short and stated.get("kind") in ("person", "model"))


def _similar_names(name: str, judges: Collection[str]) -> list[str]:
    """Return the other names that differ only in case, separators, and characters that look alike.

    Separators between digits distinguish names: gpt-4.1 is not gpt-41.
    """

    def skeleton(text: str) -> str:
        return re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", text).casefold()).translate(_LOOK_ALIKES)

    def is_similar(other: str) -> bool:
        numbers, other_numbers = (re.findall(r"\d+", text) for text in (name, other))
        is_regrouped = numbers != other_numbers and "".join(numbers) == "".join(other_numbers)
        return skeleton(name) == skeleton(other) and not is_regrouped

    return [] if name in judges else list(filter(is_similar, judges))


def _is_ambiguous(name: str) -> bool:
    letters = unicodedata.normalize("NFKC", name)
    return bool(_AMBIGUOUS.search(" ".join(unicodedata.name(letter, "") for letter in letters)))


def _nugget_ids(nuggets: Any) -> set[str]:
    """Return the ids of the nuggets of a query, empty if they are unusable."""
    rows = [row for row in nuggets if isinstance(row, dict)] if isinstance(nuggets, list) else []
    ids = {row["id"] for row in rows if [type(row.get(name)) for name in ("id", "text", "vital")] == [str, str, bool]}
    return ids if rows and len(ids) == len(nuggets) else set()


def _is_support(support: Any, ids: set[str]) -> bool:
    return isinstance(support, dict) and support.keys() == ids and set(map(str, support.values())) <= SUPPORT.keys()


def write_labels(labels: Labels, target: Path) -> None:
    """Write labels sorted by judge, query, and answer, so that equal labels produce equal files."""
    with target.open("wb") as output:
        for key, fields in sorted(labels.items()):
            kind = {"kind": labels[key[0], "", ""]["kind"]} if key[0] else {}
            names = {name: part for name, part in zip(_KEY, key, strict=True) if part}
            present = {name: value for name, value in fields.items() if value is not None}
            output.write(orjson.dumps(names | kind | present) + b"\n")


def merge_labels(old: Labels, new: Labels, policy: MergePolicy) -> Labels:
    """Return the labels, nuggets, and judges of both. `policy` decides between different fields of a key.

    With `MergePolicy.HIGHEST`, a new label replaces an old one with a lower degree of correctness. A query with changed
    nuggets has the old ones, or with `MergePolicy.REPLACE` the new ones. Labels of the other nuggets are dropped.
    """
    old, new = ({key: dict(fields) for key, fields in labels.items()} for labels in (old, new))
    changed, outdated = changed_nuggets(old, new), old if policy == MergePolicy.REPLACE else new
    for key in [key for key in outdated if key[2] and key[1] in changed]:
        outdated[key].pop("nuggets", None)
        if not outdated[key]:
            del outdated[key]
    merged = dict(old)
    for key, fields in new.items():
        earlier = old.get(key, {})
        is_higher = policy == MergePolicy.HIGHEST and fields.get("correct", 0) > earlier.get("correct", 0)
        replaces = policy == MergePolicy.REPLACE or is_higher or not key[1]
        merged[key] = {**earlier, **fields} if replaces else {**fields, **earlier}
    return merged


def changed_nuggets(old: Labels, new: Labels) -> set[str]:
    """Return the ids of the queries whose nuggets differ in their ids or texts."""
    old_texts, new_texts = (
        {key[1]: {row["id"]: row["text"] for row in fields["nuggets"]} for key, fields in labels.items() if not key[0]}
        for labels in (old, new)
    )
    return {query for query, texts in new_texts.items() if old_texts.get(query, texts) != texts}


def compare_labels(old: Labels, new: Labels) -> dict[str, int]:
    """Return the counts of `JudgementComparison.counts`, for fields of labels and nuggets of queries."""
    pairs = [(old.get(key, {}).get(name), value) for key in new if key[1] for name, value in new[key].items()]
    degrees = [(earlier, value) for earlier, value in pairs if isinstance(earlier, int | float)]
    queries = {key[1] for key in new if key[1]}
    return {
        "new": sum(earlier is None for earlier, _ in pairs),
        "same": sum(earlier == value for earlier, value in pairs),
        "conflicts": sum(earlier not in (None, value) for earlier, value in pairs),
        "raised": sum(value > earlier for earlier, value in degrees),
        "lowered": sum(value < earlier for earlier, value in degrees),
        "queries": len(queries),
        "new_queries": len(queries - {key[1] for key in old}),
    }


def summarize_judges(labels: Labels) -> dict[str, Any]:
    """Return the `judges` with their numbers of labels, and Cohen's κ of any two over their common answers.

    An answer is correct from a degree of 0.5 on.
    """
    verdicts: dict[str, dict[tuple[str, str], int]] = {judge: {} for judge, _, _ in sorted(judge_records(labels))}
    counts = Counter(judge for judge, _, _ in labeled_answers(labels))
    for judge, query, answer in labeled_answers(labels):
        if "correct" in labels[judge, query, answer]:
            verdicts[judge][query, answer] = int(labels[judge, query, answer]["correct"] >= 0.5)
    judges = [{**labels[judge, "", ""], "name": judge, "labels": counts[judge]} for judge in verdicts]
    agreement = []
    for first, second in combinations(verdicts, 2):
        if common := verdicts[first].keys() & verdicts[second].keys():
            kappa = cohen_kappa([(verdicts[first][key], verdicts[second][key]) for key in common])
            agreement.append({"judges": [first, second], "answers": len(common), "kappa": kappa})
    return {"judges": judges, "agreement": agreement}


def score_labels(
    query_ids: Sequence[str], answers: Mapping[str, str], labels: Labels
) -> dict[str, NDArray[np.float64]]:
    """Return a value per query for each measure of each judge who labeled every answer, by name of the measure.

    `answers` are the texts of a run by query. A query without answer scores 0.
    """
    answered = {query: answers[query] for query in query_ids if answers.get(query, "").strip()}
    scores = {}
    for judge, _, _ in judge_records(labels):
        for measure in LABEL_MEASURES:
            values = {query: _score_label(measure, (judge, query, text), labels) for query, text in answered.items()}
            if None not in values.values():
                column = [values.get(query, 0.0) for query in query_ids]
                scores[label_measure(measure, judge)] = np.array(column, np.float64)
    return scores


def _score_label(measure: str, key: Key, labels: Labels) -> float | None:
    """Return the value of an answer, or None without a label of all nuggets. It is 0 if none of them is vital."""
    label, nuggets = labels.get(key, {}), labels.get(("", key[1], ""), {}).get("nuggets", [])
    if measure == "Correct":
        return label.get("correct")
    support = label.get("nuggets", {})
    if not nuggets or support.keys() != {nugget["id"] for nugget in nuggets}:
        return None
    counted = [SUPPORT[support[nugget["id"]]] for nugget in nuggets if nugget["vital"] or measure == "NuggetR"]
    return sum(counted) / len(counted) if counted else 0.0
