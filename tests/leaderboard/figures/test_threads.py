"""Figures in a process with threads, which import plotly and pandas when they need them."""

from __future__ import annotations

import subprocess
import sys

#: Program that draws a figure while another thread is importing pandas, which takes a second here.
DRAWS = """
import importlib.abc, sys, threading, time
import django
django.setup()
from leaderboard.figures.drawing import go

class SlowPandas(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "pandas._libs":
            started.set()
            time.sleep(1)

started = threading.Event()
sys.meta_path.insert(0, SlowPandas())
other = threading.Thread(target=__import__, args=("pandas",))
other.start()
started.wait()
print(len(go.Figure(go.Bar(x=[1, 2], y=[3, 4])).data))
other.join()
"""


def test_a_figure_is_drawn_while_another_thread_imports_pandas() -> None:
    drawn = subprocess.run([sys.executable, "-c", DRAWS], capture_output=True, text=True, timeout=120, check=False)
    assert (drawn.stdout, drawn.stderr) == ("1\n", "")
