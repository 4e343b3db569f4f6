"""What is private has no path in a process that is to have none of it."""

from __future__ import annotations

from typing import Any

import pytest

from leaderboard.core.storage.store import Area, path_of

NAME = "0" * 64


@pytest.mark.parametrize("area", [Area.QRELS, Area.CURATION])
def test_private_content_is_refused_where_private_storage_is_off(area: Area, settings: Any) -> None:
    assert path_of(area, NAME).name == NAME
    settings.PRIVATE_STORAGE = False
    with pytest.raises(PermissionError, match="not for this process"):
        path_of(area, NAME)
    assert path_of(Area.RUNS, NAME).name == NAME
