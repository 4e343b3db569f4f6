"""Answer runs: JSON Lines with a response per query, from which rankings and citations are read.

Three forms are accepted. Runboard's own is documented in the user guide. TREC RAG's has sentences with citations that
are positions in `references`, and `topic_id` or `metadata.narrative_id`. BrowseComp-Plus's has `result`,
`retrieved_docids`, and `tool_call_counts`; its final text states `Exact Answer:` and `Confidence:` on lines of their
own and cites documents in brackets. A text without a confidence has 100%, which is also the maximum, as in the
evaluation of BrowseComp-Plus. All regular expressions run in linear time, because texts are untrusted.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from evaluation.archives.compression import SIZE, FileLimits, describe_bytes, open_lines
from evaluation.core.problems import InvalidContent, LineProblems, ProblemCode
from evaluation.judgements.forms import is_number
from evaluation.judgements.responses import Response
from evaluation.runs.header import BYTE_ORDER_MARK
from evaluation.runs.json_runs import MAX_ENTRIES, MAX_OBJECTS, QUERY, as_id, find_key, parse_hit, parse_json
from evaluation.runs.problems import CONFIDENCE_RANGE, EMPTY, UNRETRIEVED_CITATIONS

MAX_ANSWER_CHARACTERS = 100_000
MAX_CITATIONS = 1_000
#: Maximum numbers of lines, and of cited and ranked documents, in a run. They bound its memory to about 400 MiB.
#: Runs of this length are verified completely.
MAX_LINES, MAX_DOCUMENTS = 200_000, 2_000_000
#: Keys that may hold a ranking; the last is BrowseComp-Plus's.
_RANKINGS = ("ranking", "hits", "retrieved_docids")
#: Keys of query ids, in order of preference. The last three may be texts, which other keys override.
_QUERY_IDS = (*QUERY[:-3], "narrativeid", "id", *QUERY[-3:])
_FIGURES = [each.name for each in fields(Response) if each.default is None]
#: Patterns of the first line of an answer run: all of one group match.
_FORMS = ((rb'"answer"\s*:\s*["\[n]',), (rb'"retrieved_docids"\s*:', rb'"result"\s*:'))
#: Characters of keys and ids that JSON may escape needlessly.
_ESCAPED = re.compile(rb"\\u00([2-7][0-9A-Fa-f])")
#: Number and percent sign. A hyphen after a letter or digit, as in “mid-80%”, is not a minus sign.
_CONFIDENCE = re.compile(r"((?:(?<!\w)[-−])?\d+(?:\.\d+)?)\s*(%?)")
_BRACKETS = re.compile(r"[\[【]([^\[\]【】]{1,400})[\]】]")
_EXAMPLE = '{"query_id": "q1", "answer": "Paris", "citations": ["d7", "d2"]}'

_FileProblem = partial(ProblemCode, about="file")
NOT_A_RESPONSE = _FileProblem(
    "not_a_response", "A line of an answer run that is not a JSON object with a query id and an answer.",
    f"Write lines such as {_EXAMPLE}, with each key once, and at most {MAX_OBJECTS:,} brackets and {MAX_ENTRIES:,} "
    "commas per line. Ids have no white space. An answer is a text, null, or a list of sentences with `text`.",
    '{"query_id": "q1"}', message="{lines} not a JSON object with a query id and an answer",
)  # fmt: skip
REPEATED_RESPONSE = _FileProblem(
    "repeated_response", "A query that an earlier line of the answer run has answered.", "Write one line per query.",
    message="{lines} with the query of an earlier line",
)  # fmt: skip
LONG_ANSWER = _FileProblem(
    "long_answer", f"An answer of more than {MAX_ANSWER_CHARACTERS:,} characters.", "Shorten the answer.",
    message=f"{{lines}} with an answer of more than {MAX_ANSWER_CHARACTERS:,} characters",
)  # fmt: skip
CITATIONS = _FileProblem(
    "citations", f"Citations that are not a list of at most {MAX_CITATIONS:,} document ids.",
    "Write `citations` as a list of document ids without white space. In a record with `references`, whole numbers are "
    "positions in this list, counted from 0.", message=f"{{lines}} with citations that are not a list of at most "
    f"{MAX_CITATIONS:,} document ids, or of positions in `references`",
)  # fmt: skip
RESPONSE_RANKING = _FileProblem(
    "response_ranking", "A ranking that is not a list of different documents, best first.",
    "Write `ranking` as a list of document ids, or of objects with `docid` and `score`, each document once.",
    message="{lines} with a ranking that is not a list of different document ids, or of documents with scores",
)  # fmt: skip
FIGURE = _FileProblem(
    "figure", "A stated figure that is not a number in range.",
    "Write `confidence` as a number from 0 to 1, such as 0.85 for 85%, and `search_calls`, `tokens`, `seconds`, and "
    "`cost` as numbers from 0 to 10¹², without quotes.", '"confidence": 85',
    message="{lines} with a figure out of range",
)  # fmt: skip


@dataclass
class AnswerRun:
    """Responses by query id, with the number of each query's line, and rankings of scored documents where given.

    `documents` is the number of all citations and ranked documents. `warnings` are about trajectories.
    """

    responses: dict[str, Response] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    rankings: dict[str, Mapping[str, float]] = field(default_factory=dict)
    tag: str = "answers"
    documents: int = 0
    warnings: LineProblems = field(default_factory=LineProblems)

    def trec_lines(self, *, cited: bool = False) -> tuple[bytes, list[int]]:
        """Return TREC lines of the rankings, or of the citations if `cited`, and the line of the run for each of them.

        In a run without rankings, the citations are the ranking.
        """
        text, numbers = bytearray(), list[int]()
        for query, response in self.responses.items():
            ranking = self.rankings.get(query, {})
            if cited or not self.rankings:
                ranking = {document: float(-place) for place, document in enumerate(response.citations)}
            for place, (document, score) in enumerate(ranking.items(), 1):
                text += f"{query} Q0 {document} {place} {score!r} {self.tag}\n".encode()
                numbers.append(self.lines[query])
        return bytes(text), numbers


def is_answer_run(first_line: bytes) -> bool:
    """Return whether a file that begins with this line is an answer run."""
    line = _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), first_line)
    return line.startswith(b"{") and any(all(re.search(pattern, line) for pattern in group) for group in _FORMS)


def read_answer_run(source: Path | str | bytes, limits: FileLimits) -> AnswerRun:
    """Read an answer run, plain or compressed. Raises InvalidContent with every problem of its lines."""
    run, problems, size = AnswerRun(), LineProblems(), 0
    for number, line in enumerate(open_lines(source, limits, limits.max_json_bytes), 1):
        line, size = line.removeprefix(BYTE_ORDER_MARK), size + len(line)
        if size > limits.max_query_bytes:
            message = f"the answer run is over {describe_bytes(limits.max_query_bytes)} expanded"
            raise SIZE.refusal(message, "Leave out rankings, or shorten the answers.")
        if number > MAX_LINES or run.documents > MAX_DOCUMENTS:
            message = f"the answer run has over {MAX_LINES:,} lines, or {MAX_DOCUMENTS:,} documents"
            raise SIZE.refusal(message, "Rank fewer documents per query, such as 100.")
        if line.strip():
            _add_line(run, bytearray(line), number, limits, problems)
    if problems:
        raise InvalidContent.build(*problems.report())
    return run


def read_response_files(folder: Path) -> tuple[bytes, list[str]]:
    """Return the JSON files of a folder as JSON Lines in the order of their names, and the names.

    Trajectories in the form of BrowseComp-Plus are reduced to their final text, without metadata such as local paths.
    Raises InvalidContent for a file that is not JSON.
    """
    lines, paths = bytearray(), sorted(folder.glob("*.json"))
    for path in paths:
        try:
            record = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise NOT_A_RESPONSE.refusal(f"{path.name} is not JSON: {error}", NOT_A_RESPONSE.hint) from error
        if isinstance(record, dict) and isinstance(record.get("result"), list):
            record.pop("metadata", None)
            record["result"] = _output_texts(record)[-1:]
        lines += json.dumps(record).encode() + b"\n"
    if not paths:
        raise EMPTY.refusal("the folder has no .json files", "Name the folder with one JSON file per query.")
    return bytes(lines), [path.name for path in paths]


def _add_line(run: AnswerRun, line: bytearray, number: int, limits: FileLimits, problems: LineProblems) -> None:
    """Add the response of a line to the run, or note all of its problems."""
    try:
        record = parse_json(line, number)
    except InvalidContent:
        record = None
    query, answer = _read_query(record), _read_answer(record)
    if not _is_id(query, limits) or answer is None:
        problems.note(NOT_A_RESPONSE, number)
        return
    figures = {name: record.get(name) for name in _FIGURES}
    citations, ranking = _read_citations(record), _read_ranking(record)
    if _is_trajectory(record):
        note = partial(run.warnings.note, line=number)
        answer, citations, stated = _read_final_text(record, answer, ranking or {}, note)
        figures |= stated
    if query in run.lines:
        problems.note(REPEATED_RESPONSE, number)
    if len(answer) > MAX_ANSWER_CHARACTERS:
        problems.note(LONG_ANSWER, number)
    if citations is None or len(citations) > MAX_CITATIONS or not all(_is_id(each, limits) for each in citations):
        problems.note(CITATIONS, number)
    if ranking is None or not all(_is_id(each, limits) for each in ranking):
        problems.note(RESPONSE_RANKING, number)
    if not all(
        each is None or is_number(each, 0, 1e12 if name != "confidence" else 1) for name, each in figures.items()
    ):
        problems.note(FIGURE, number)
    if not problems:
        run.responses[query] = response = Response(answer, tuple(dict.fromkeys(citations or ())), **figures)
        if ranking:
            run.rankings[query] = ranking
        run.documents += len(response.citations) + len(ranking or ())
        tag = record.get("run_id") or _metadata(record).get("run_id")
        if isinstance(tag, str) and _is_id(tag, limits):
            run.tag = tag
    run.lines[query] = number


def _is_id(name: Any, limits: FileLimits) -> bool:
    is_name = isinstance(name, str) and name.split() == [name] and not name.startswith("\ufeff")
    return is_name and len(name.encode("utf-8", "surrogatepass")) <= limits.max_id_bytes


def _metadata(record: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = record.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _read_query(record: Any) -> Any:
    """Return the query id of a record, or None."""
    if not isinstance(record, dict):
        return None
    for mapping in (record, _metadata(record)):
        key = find_key(mapping, _QUERY_IDS)
        if key is not None and (query := as_id(mapping[key])):
            return query
    return None


def _is_trajectory(record: Mapping[str, Any]) -> bool:
    """Return whether a record is in the form of BrowseComp-Plus."""
    return "result" in record and "answer" not in record


def _output_texts(record: Mapping[str, Any]) -> list[Any]:
    """Return the steps of a trajectory in the form of BrowseComp-Plus that have texts for the user."""
    return [each for each in record["result"] if isinstance(each, dict) and each.get("type") == "output_text"]


def _read_answer(record: Any) -> str | None:
    """Return the text of an answer, empty for null or a trajectory without one; None without an answer."""
    if not isinstance(record, dict):
        return None
    if _is_trajectory(record):
        if not isinstance(record["result"], list):
            return None
        is_complete = record.get("status", "completed") == "completed"
        text = next((each.get("output") for each in reversed(_output_texts(record)) if is_complete), "")
        return text if isinstance(text, str) else None
    answer = record.get("answer", ...)
    if isinstance(answer, list):
        sentences = [each.get("text") if isinstance(each, dict) else None for each in answer]
        return " ".join(map(str, sentences)) if all(isinstance(each, str) for each in sentences) else None
    return "" if answer is None else answer if isinstance(answer, str) else None


def _read_citations(record: Mapping[str, Any]) -> list[Any] | None:
    """Return the cited ids in order, or None if they are not lists of ids or of positions in the references."""
    references = record.get("references") or []
    lists = [record.get("citations") or []]
    if isinstance(record.get("answer"), list):
        lists = [sentence.get("citations") or [] for sentence in record["answer"]]
    if not isinstance(references, list) or not all(isinstance(each, list) for each in lists):
        return None
    citations = []
    for citation in (each for cited in lists for each in cited):
        if type(citation) is int and references:
            if not 0 <= citation < len(references):
                return None
            citation = references[citation]
        citations.append(as_id(citation))
    return citations


def _read_ranking(record: Mapping[str, Any]) -> dict[str, float] | None:
    """Return scores by document, best first, from a list of ids or of hits; None if it is neither, or repeats one."""
    key = next((name for name in _RANKINGS if record.get(name) is not None), "")
    hits = record.get(key, [])
    if not isinstance(hits, list):
        return None
    ranking: dict[str, float] = {}
    for place, hit in enumerate(hits):
        document, score, _ = (hit, None, None) if isinstance(hit, int) else parse_hit(hit)
        document, score = as_id(document), float(-place) if score is None else score
        is_repeated = document in ranking and key != "retrieved_docids"
        if not document or not is_number(score, -3e38, 3e38) or is_repeated:
            return None
        ranking.setdefault(document, float(score))
    return dict(sorted(ranking.items(), key=lambda item: -item[1]))


def _read_final_text(
    record: Mapping[str, Any], text: str, retrieved: Collection[str], note: Callable[[str], None]
) -> tuple[str, list[str], dict[str, Any]]:
    """Return answer, citations, and figures of a final text in the form of BrowseComp-Plus. `note` records warnings.

    Brackets cite only documents that the system retrieved, because texts contain other brackets.
    """
    counts = record.get("tool_call_counts")
    calls = [count for count in counts.values() if type(count) is int] if isinstance(counts, dict) else None
    figures: dict[str, Any] = {"search_calls": None if calls is None else sum(calls)}
    names = [name for match in _BRACKETS.finditer(text) for name in re.split(r"[,;\s]+", match[1])]
    if any(name.isdecimal() and name not in retrieved for name in names):
        note(UNRETRIEVED_CITATIONS)
    if text.strip():
        stated = _CONFIDENCE.search(_find_statement(text, "confidence"))
        number, sign = (float(stated[1].replace("−", "-")), stated[2]) if stated else (100.0, "%")
        share = number / 100 if sign or number > 1 else number
        figures["confidence"] = min(max(share, 0.0), 1.0)
        if share != figures["confidence"]:
            note(CONFIDENCE_RANGE)
    return _find_statement(text, "exact answer") or text, [name for name in names if name in retrieved], figures


def _find_statement(text: str, label: str) -> str:
    """Return what follows the first label on its line or else on the next one, without asterisks of Markdown."""
    lines = [line for line in text.splitlines() if line.strip(" \t*")]
    for line, next_line in pairwise([*lines, ""]):
        name, colon, value = line.partition(":")
        if colon and name.strip(" \t*").casefold() == label:
            return value.strip(" \t*") or next_line.strip(" \t*")
    return ""


def find_response(source: Path, query_id: str) -> Response | None:
    """Return the response to one query in an accepted answer run, or None."""
    run, limits, name = AnswerRun(), FileLimits(), json.dumps(query_id, ensure_ascii=False)[1:-1].encode()
    for number, line in enumerate(open_lines(source, limits, limits.max_json_bytes), 1):
        # Other escapes in an id have other bytes. Ids have no line breaks, which answers often have.
        if name in line or b"\\u" in line or b"\\/" in line:
            content = bytearray(line.removeprefix(BYTE_ORDER_MARK))
            if _read_query(parse_json(content, number)) == query_id:
                _add_line(run, content, number, limits, LineProblems())
                return run.responses[query_id]
    return None
