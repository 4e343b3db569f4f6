"""Documents that are left out of the rankings of single queries before these are measured, as BRIGHT's `excluded_ids`.

`excluded.tsv` has a line for each pair: the query's id, a tab, the document's id; usually under the header
`query-id<TAB>corpus-id`. A document that is excluded for a query counts as never retrieved, and the documents
behind it move up.
"""

from pathlib import Path

from evaluation.archives.compression import open_lines
from evaluation.collections.beir import BYTE_ORDER_MARK, MAX_ID_BYTES
from evaluation.collections.tables import column_places
from evaluation.core.problems import InvalidContent, LineProblems
from evaluation.judgements.forms import PROBLEMS
from evaluation.judgements.qrels import Qrels

_COLUMNS = ("query-id", "corpus-id")
_PROBLEMS = {
    "encoding": PROBLEMS["encoding"],
    "identifier": PROBLEMS["identifier"],
    "fields": (
        "not two fields with a tab between them: {lines}",
        "Write `query<TAB>document`, usually under the header `query-id<TAB>corpus-id`.",
    ),
    "duplicate": ("a document excluded again for a query: {lines}", "Name each pair once."),
    "empty": ("the file excludes no document", "Leave it out, or check that the right file was chosen."),
}


def read_excluded(path: Path) -> Qrels:
    """The excluded documents of each query, in the form of judgements, all of grade 0; the file may be compressed.

    Raises InvalidContent with every class of problem in the file and its first lines.
    """
    pairs: dict[str, dict[str, int]] = {}
    problems = LineProblems()
    for number, line in enumerate(open_lines(path), start=1):
        line = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
        is_header = number == 1 and column_places(line.decode(errors="replace").split("\t"), _COLUMNS)
        if not line.strip() or is_header:
            continue
        if code := _add(pairs, line):
            problems.note(code, number)
    if problems:
        raise InvalidContent.of(*problems.report(_PROBLEMS))
    if not pairs:
        raise InvalidContent.of_text(_PROBLEMS, "empty")
    return Qrels.from_dict(pairs)


def _add(pairs: dict[str, dict[str, int]], line: bytes) -> str | None:
    """Keep one line's pair, or say what is wrong with it."""
    fields = [field.strip() for field in line.split(b"\t")]
    if len(fields) != 2:
        return "fields"
    if any(name.split() != [name] or len(name) > MAX_ID_BYTES for name in fields):
        return "identifier"
    try:
        query, document = (name.decode() for name in fields)
    except UnicodeDecodeError:
        return "encoding"
    if document in pairs.setdefault(query, {}):
        return "duplicate"
    pairs[query][document] = 0
    return None
