"""plotly's traces and layouts. They are imported when the first figure is drawn: a page with frames draws none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.functional import SimpleLazyObject

if TYPE_CHECKING:
    import plotly.graph_objects as go
else:

    def _graph_objects() -> Any:
        import plotly.graph_objects

        return plotly.graph_objects

    go = SimpleLazyObject(_graph_objects)

__all__ = ["go"]
