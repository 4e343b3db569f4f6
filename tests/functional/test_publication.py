"""What whoever publishes, runs or cites the software looks for in its root."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import yaml

from leaderboard import VERSION
from tests.docker.dockerfile import copied, read_stages

ROOT = Path(__file__).resolve().parents[2]
#: Of the licence's text as the Apache Software Foundation publishes it, and Debian ships it.
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_the_licence_is_apaches_own_text_and_named_everywhere() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE", "NOTICE"]
    source = [step for step in read_stages(ROOT / "docker/Dockerfile")["source"].steps if step.instruction == "COPY"]
    assert {"LICENSE", "NOTICE"} <= {name for step in source for name in copied(step)[1]}


def test_the_notice_names_what_is_by_others() -> None:
    notice = (ROOT / "NOTICE").read_text()
    for name in ("Porter", "Lucene", "Unicode", "htmx", "plotly.js", "Django", "Python Software"):
        assert name in notice


def test_the_version_stands_in_one_place() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert (citation["license"], citation.get("version")) == (project["license"], None)
    assert project["version"] == VERSION


def test_what_newcomers_read_refers_to_what_is_there() -> None:
    for name in ("CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "README.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / name).read_text()):
            assert (ROOT / target).exists(), f"{name}: {target}"


def test_the_forge_and_the_hooks_run_what_there_is() -> None:
    recipes = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    stages = set(read_stages(ROOT / "docker/Dockerfile"))
    workflows = [yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")]
    jobs = [job for workflow in workflows for job in workflow["jobs"].values()]
    steps = [step for job in jobs for step in job.get("steps", [])]  # others call a workflow
    made = {word for step in steps for word in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))}
    assert {"test", "docs"} <= made <= recipes
    assert all(set(job.get("strategy", {}).get("matrix", {}).get("target", [])) <= stages for job in jobs)
    tested = next(workflow for workflow in workflows if workflow["name"] == "Tests")
    assert tested["jobs"]["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    for hook in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]:
        assert (ROOT / hook["entry"].split()[0]).exists(), hook["id"]


def test_every_page_of_the_documentation_has_a_place_on_its_site() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert listed == pages | {"decisions/README.md"}


def test_the_changelog_keeps_to_its_format() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert text.startswith("# Changelog\n")
    kinds = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert all(re.fullmatch(r"\[Unreleased\]|\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", head) for head in heads)


def test_how_to_report_a_fault_is_said_and_what_it_refers_to_is_there() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert "/.well-known/security.txt" in text
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
