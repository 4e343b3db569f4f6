"""Only one module opens hidden judgments, for the scorer and the callers that are listed here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = "leaderboard/datasets/qrels.py"
#: Modules that name the area of the store without reading from it: its definition, and the sweep of unused files.
AREA_NAMED = {HOME, "leaderboard/core/storage/store.py", "submissions/jobs/cleanup.py"}
#: Callers of each function that returns hidden judgements or something computed from single ones. A new caller must be
#: the scorer, or ask for the right and record the reading: importing and pages call `disclosure.load_compared` instead.
CALLERS = {
    "load_qrels": {
        HOME,
        "leaderboard/judgements/disclosure.py",  # asks for the right, records
        "leaderboard/judgements/drawing.py",  # the scorer: pools
        "leaderboard/judgements/labels.py",  # the scorer: judged queries, and `label_answers`
        "leaderboard/judgements/rescoring/content.py",  # the scorer: new topics
        "leaderboard/results/pooled.py",  # the scorer: open boards
        "leaderboard/results/protection.py",  # the scorer: parts of a competition
        "submissions/jobs/kinds/datasets.py",  # the scorer: reveals
    },
    "load_grades": {"leaderboard/judgements/comparing.py"},
    "load_parts": {"leaderboard/results/protection.py"},
    "verifying_judgements": {"submissions/jobs/kinds/score.py"},
    "answer_texts": {
        "leaderboard/management/commands/label_answers.py",  # asks for the right, records
        "submissions/jobs/kinds/score.py",
    },
    "load_labels": {
        "leaderboard/judgements/drawing.py",  # the scorer: pools
        "leaderboard/judgements/labels.py",  # the scorer: comparison and merging
        "leaderboard/management/commands/label_answers.py",  # asks for the right, records
    },
    "label_records": {"submissions/jobs/kinds/score.py"},
    "recorded_qrels_path": {"leaderboard/admin/datasets.py"},  # asks for the right, records
    "present_grades": {"leaderboard/judgements/comparing.py"},
    "public_queries": {
        "leaderboard/results/protection.py",
        "leaderboard/results/publishing/publication.py",  # the scorer
        "leaderboard/results/significance/hidden.py",  # the scorer
    },
    "compare_import": {"leaderboard/judgements/comparing.py", "submissions/jobs/kinds/datasets.py"},
    "preview_judgements": {"leaderboard/management/commands/import_judgements.py"},  # asks for the right, records
    "list_conflicts": {"leaderboard/admin/judging.py"},  # asks for the right, records
    "private_paths": {
        "leaderboard/importing/topics/batches.py",  # the scorer, and curators who may read hidden judgments
        "leaderboard/importing/topics/renewal.py",  # the scorer: rolling benchmarks
    },
    "load_compared": {
        "leaderboard/importing/collections/twins.py",
    },
}
#: Callers that score: `scoring_target` without `qrels` has no judgements.
SCORERS = {"submissions/jobs/kinds/score.py", "leaderboard/results/pooled.py"}
WRITERS = {"put"}


def trees() -> Iterator[tuple[str, ast.Module]]:
    for package in ("leaderboard", "submissions"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations" not in path.parts:
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_the_area_of_judgements_is_opened_in_one_module() -> None:
    opened = set()
    for module, tree in trees():
        stored = {
            id(node.args[0])
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and name_of(node.func) in WRITERS and node.args
        }
        opened |= {
            module
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "Area.QRELS" and id(node) not in stored
        }
    assert opened == AREA_NAMED, f"read judgements through {HOME}"


def test_hidden_judgements_have_few_callers() -> None:
    callers: dict[str, set[str]] = {name: set() for name in CALLERS}
    scorers = set()
    for module, tree in trees():
        for node in ast.walk(tree):
            # Every use of the name, not only calls: a function may be passed on.
            if isinstance(node, (ast.Name, ast.Attribute)) and (name := name_of(node)) in callers:
                callers[name].add(module)
            if (
                isinstance(node, ast.Call)
                and name_of(node.func) == "scoring_target"
                and (len(node.args) > 1 or any(each.arg in ("qrels", None) for each in node.keywords))
            ):
                scorers.add(module)
    callers["load_qrels"].add(HOME)
    for name, modules in CALLERS.items():
        unlisted = callers[name] - modules
        assert not unlisted, f"{name} returns hidden judgements: {unlisted} may not call it, or must be listed"
        assert callers[name] == modules, f"{name} has no such caller any more: {modules - callers[name]}"
    assert scorers == SCORERS
