"""Checks of the patterns in `answers.jsonl`, in a process with limits on time and memory.

The package regex can interrupt a search but not a compilation, and does not limit the memory of either:
`(?:a{1000}){1000}` is compiled to a million copies. This file is also the program of that process, so it does not
import other modules of Runboard.
"""

import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import islice

import regex

FLAGS = regex.IGNORECASE | regex.MULTILINE
#: Maximum number of characters of a pattern in NFD, and of patterns in a file.
MAX_CHARACTERS, MAX_PATTERNS = 1_000, 10_000
#: Seconds that a pattern may take on each test text, and the length of these texts in characters.
SEARCH_SECONDS, TEXT_LENGTH = 0.2, 1_000
#: Maximum processor seconds for one pattern (rounded up) and for a file, and bytes of memory for all its patterns.
PATTERN_SECONDS, FILE_SECONDS, MEMORY_BYTES = 2.0, 30.0, 1 << 29
#: Strings to repeat in test texts, in addition to strings of the pattern, and the maximum number of texts.
_REPEATED_STRINGS, _MAX_TRIALS = ("a", "1", " ", "ab ", "1,"), 60
#: Calls of groups, which can recurse endlessly, and the flag that permits spaces and comments inside them.
_CALL = regex.compile(r"\(\?(?:R|[+-]?\d|&|P>|[a-wyzA-Z]*x)")
#: Recursion limit, lower than the remaining depth in other processes, so that they can compile every accepted pattern.
_RECURSION = 500


def check_patterns(patterns: Mapping[int, Sequence[str]]) -> dict[int, str]:
    """Return the problem codes of lines with unusable patterns, by line number.

    `patterns` are texts by line number. They are tried in a process with limits. Raises RuntimeError if it did not run.
    """
    problems = {
        line: "unusable_pattern"
        for line, texts in patterns.items()
        if any(len(text) > MAX_CHARACTERS or _CALL.search(text) for text in texts)
    }
    candidates: dict[int, Sequence[str]] = {}
    number = 0
    for line, texts in patterns.items():
        number += len(texts)
        if number > MAX_PATTERNS:
            problems[line] = "too_many_patterns"
            break
        if line not in problems:
            candidates[line] = texts
    if candidates:
        command = [sys.executable, "-I", __file__]
        lines = json.dumps(list(candidates.items()))
        process = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
        rows = [row.partition(" ") for row in process.stdout.splitlines()]
        if not rows:
            raise RuntimeError(f"patterns could not be checked: {process.stderr}")
        problems |= {int(line): code for line, _, code in rows}
    return {line: code for line, code in problems.items() if code}


def _main() -> None:
    """Check the patterns in standard input, and print the number and the problem code of each line.

    The code `endless_pattern` is printed first, in case the process is killed.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(_RECURSION)
    compiled: list[object] = []  # Stored, because the memory limit is for all patterns together.
    for line, texts in json.load(sys.stdin):
        if time.process_time() > FILE_SECONDS:
            print(line, "too_many_patterns")
            return
        print(line, "endless_pattern", flush=True)
        print(line, _find_problem(texts, compiled), flush=True)


def _find_problem(texts: Sequence[str], compiled: list[object]) -> str:
    """Compile patterns and search test texts with them; return the code of the first problem, or an empty string.

    Compiled patterns are added to `compiled`.
    """
    try:
        for text in texts:
            # A slower process is killed, because this is the only way to end a loop in the package's C code.
            limit = math.ceil(time.process_time() + PATTERN_SECONDS)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            pattern = regex.compile(text, FLAGS)
            compiled.append(pattern)
            if pattern.search("", timeout=SEARCH_SECONDS):
                return "empty_answer"
            # Excessive backtracking shows on texts that repeat a character or a word of the pattern.
            words = regex.findall(r"\w+", regex.sub(r"\\.", " ", text))
            repeated = dict.fromkeys([*_REPEATED_STRINGS, *words, *(f"{word} " for word in words), *text])
            for string in islice(repeated, _MAX_TRIALS):
                pattern.search(f"{string * (TEXT_LENGTH // len(string))}! {' '.join(words)}", timeout=SEARCH_SECONDS)
    except (regex.error, RecursionError, OverflowError):
        return "unusable_pattern"
    except (TimeoutError, MemoryError):
        return "endless_pattern"
    return ""


if __name__ == "__main__":
    _main()
