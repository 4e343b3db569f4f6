"""Lines of a refused file: quotations of them in messages, and recognition of files that are not runs."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from evaluation.archives.compression import FileLimits, open_blocks
from evaluation.core.problems import LINES_NAMED, PROBLEM_CODES, ProblemCode, number_of
from evaluation.runs.header import BYTE_ORDER_MARK

#: Characters of a line, and of one of its fields, that a message shows.
SHOWN, SHOWN_FIELD = 80, 40
#: Bytes of a line that are kept: a longer one is cut before it is looked at.
_KEPT = 4096
#: Words that only the first line of a table has.
_HEADINGS = re.compile(
    rb"(query|q|topic|doc|document|corpus|passage|p|run)[-_ ]?(id|no|num|number)|query|topic|qid|docno|doc|document|"
    rb"iter|iteration|rank|score|sim|similarity|tag|run|system|relevance|grade|label",
    re.IGNORECASE,
)
_GRADE = re.compile(rb"-?[0-9]{1,3}(\.0*)?")


def lines_at(path: Path | str | bytes, numbers: Collection[int], limits: FileLimits) -> dict[int, bytes]:
    """Return the lines of a file with these 1-based numbers, without line ends, each cut to 4,096 bytes."""
    wanted = set(numbers)
    found: dict[int, bytes] = {}
    number, rest = 1, b""  # `rest` is the beginning of line `number`
    for block in open_blocks(path, limits) if wanted else ():
        last = number + block.count(b"\n")
        if any(number <= each <= last for each in wanted):
            *whole, rest = (rest + block).split(b"\n")
            found |= {at: line[:_KEPT] for at, line in enumerate(whole, number) if at in wanted}
            rest = rest[:_KEPT]
        else:
            rest = b""
        number = last
        if number > max(wanted):
            break
    if rest and number in wanted:
        found.setdefault(number, rest)
    return {at: line.removeprefix(BYTE_ORDER_MARK).removesuffix(b"\r") for at, line in found.items()}


def quote(text: bytes, longest: int = SHOWN) -> str:
    """Text for a message: one line of at most `longest` characters, with escapes for what cannot be printed."""
    decoded = text[: 4 * longest + 4].decode("utf-8", "backslashreplace")
    escaped = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in decoded
    )
    return escaped if len(escaped) <= longest else escaped[: longest - 1] + "…"


def quotation(code: ProblemCode, lines: tuple[int, ...], texts: Mapping[int, bytes]) -> str:
    """Return `; line 4 has 5 fields: “…”` for the first line of a problem, empty if the line is not at hand."""
    if not lines or lines[0] not in texts:
        return ""
    text = texts[lines[0]]
    description = _describe(code, text.split())
    return f"; line {lines[0]:,}{f' {description}' if description else ''}: “{quote(text)}”"


def _describe(code: ProblemCode, fields: Sequence[bytes]) -> str:
    """Describe what is wrong with a line, such as `has 5 fields` or `has the score 'nan'`."""
    if code == "fields":
        return (code.quote or "").format(fields=number_of(len(fields), "field")) if fields else "is blank"
    if len(fields) < 5:
        return ""
    query, document, score = (f"'{quote(fields[place], SHOWN_FIELD)}'" for place in (0, 2, 4))
    return (code.quote or "").format(
        query=query, document=document, score=score, query_bytes=len(fields[0]), document_bytes=len(fields[2])
    )


def is_header(text: bytes) -> bool:
    """Whether a line is one of column names, such as `query_id Q0 doc_id rank score tag`."""
    fields = [field.strip(b"\"'#") for field in re.split(rb"[\s,;]+", text.strip())]
    return sum(bool(_HEADINGS.fullmatch(field)) for field in fields) >= 2


def recognize_other(rows: Sequence[bytes]) -> tuple[str, str] | None:
    """Return the kind of a file that is not a run, by its first rows, and a hint, or None if it is unknown."""
    below_names = rows[1:] if rows and is_header(rows[0]) else rows
    cells = [re.split(rb"[\s,;]+", row.strip()) for row in below_names]
    if not cells:
        return None
    if all(map(is_trec_eval_result, cells)):
        return "results of trec_eval", "Send the run that trec_eval scored."
    if not all(map(_is_judgement, cells)):
        return None
    hint = "Send the ranking of a system."
    if (
        all(len(row) == 3 for row in cells)
        and cells[0][2] in (b"1", b"1.0")
        and len({row[2] for row in cells}) > 1
    ):
        hint += " If the third column is a rank, as in MS MARCO's runs, add the header line `qid docid rank`."
    return "relevance judgements (qrels)", hint


#: The first column of trec_eval's output.
_RESULT = re.compile(
    rb"runid|num_(q|ret|rel|rel_ret)|map(_cut_\d+)?|gm_(map|bpref)|Rprec(_mult_[\d.]+)?|bpref|recip_rank|infAP|Rndcg|11pt_avg"
    rb"|ndcg(_rel)?|iprec_at_recall_[\d.]+|(relative_)?P_\d+|(recall|success|ndcg_cut)_\d+|set_\w+|utility|(bin)?G"
)  # fmt: skip


def is_trec_eval_result(cells: Sequence[bytes]) -> bool:
    """Return whether the cells are a measure, a query or `all`, and a value."""
    return len(cells) == 3 and _RESULT.fullmatch(cells[0]) is not None


def _is_judgement(cells: Sequence[bytes]) -> bool:
    """Return whether the cells are `query 0 document grade` (TREC) or `query document grade` (BEIR)."""
    iteration = len(cells) == 4 and cells[1] in (b"0", b"Q0", b"q0")
    return (iteration or len(cells) == 3) and _GRADE.fullmatch(cells[-1]) is not None


def lines_to_quote(counted: Mapping[str, tuple[int, ...]]) -> set[int]:
    """Return the lines that messages quote, of the first lines of each problem: one, or five that may be judgments."""
    return {
        line
        for code, lines in counted.items()
        if PROBLEM_CODES[code].quote is not None
        for line in lines[: LINES_NAMED if code == "fields" else 1]
    }
