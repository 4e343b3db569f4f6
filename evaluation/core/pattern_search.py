"""Regular expressions searched within a bound, so that no pattern keeps whoever searches for ever."""

from __future__ import annotations

import time
from typing import Any

from evaluation.core.errors import EndlessPattern

#: Seconds of the processor that one search may take, and all slow ones together.
IN_ONE_TEXT, ALTOGETHER = 2.0, 30.0
#: A search that takes longer is a slow one.
_SLOW = 0.02


class PatternSearch:
    """Searches that share a bound. Make a new one for each run that is scored."""

    def __init__(self) -> None:
        self._left = ALTOGETHER

    def search(self, pattern: Any, text: str, line: int) -> Any:
        """The first match of a pattern (of the package regex), None where there is none.

        `line` is where the pattern stands in its file. Raises EndlessPattern.
        """
        begun = time.process_time()
        try:
            found = pattern.search(text, timeout=IN_ONE_TEXT)
        except TimeoutError as error:
            raise EndlessPattern(line, f"takes more than {IN_ONE_TEXT:g} s in one text") from error
        took = time.process_time() - begun
        if took > _SLOW:
            self._left -= took
        if self._left < 0:
            raise EndlessPattern(line, f"and others take more than {ALTOGETHER:g} s altogether")
        return found
