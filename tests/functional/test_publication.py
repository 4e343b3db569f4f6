"""What whoever publishes, runs or cites the software looks for in its root."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import yaml

from tests.docker.dockerfile import copied, read_stages

ROOT = Path(__file__).resolve().parents[2]
#: Of the licence's text as the Apache Software Foundation publishes it, and Debian ships it.
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_the_licence_is_apaches_own_text_and_named_everywhere() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE", "NOTICE"]
    source = [
        step for step in read_stages(ROOT / "docker/Dockerfile")["source"].steps if step.instruction == "COPY"
    ]
    assert {"LICENSE", "NOTICE"} <= {name for step in source for name in copied(step)[1]}


def test_the_notice_names_what_is_by_others() -> None:
    notice = (ROOT / "NOTICE").read_text()
    for name in ("Porter", "Lucene", "Unicode", "htmx", "plotly.js", "Django", "Python Software"):
        assert name in notice


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])


def test_how_to_report_a_fault_is_said_and_what_it_refers_to_is_there() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert "/.well-known/security.txt" in text
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
