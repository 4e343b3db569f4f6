"""Several runs for one dataset in one submission are seeds of one system: how each is labelled, and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from django.core.exceptions import ValidationError

from evaluation.core.files import sha256_of
from evaluation.core.problems import Problem, ProblemCode
from leaderboard.core.text.names import validate_name
from leaderboard.results.publishing.scored import SEEDS
from submissions.intake.files import RunFile

TOO_MANY_SEEDS = ProblemCode("too_many_seeds", "More than five files for one dataset: several are seeds of one "
    "system.", "Send five at most.")  # fmt: skip
SEED_LABELS = ProblemCode("seed_labels", "Labels of seeds, and not one for each file that is a seed.",
    "As many labels as files, in the same order, or none: then the files' names tell.", "-F dataset=nfcorpus -F "
    "file=@a.txt -F file=@b.txt -F seed=1,2")  # fmt: skip
SEED_LABEL = ProblemCode("seed_label", "A seed's label is longer than 80 characters, or has some that nobody sees.",
    "A short label.", "-F seed=42")  # fmt: skip
SEED_LABEL_TWICE = ProblemCode("seed_label_twice", "Two seeds of one dataset with the same label.",
    "Label each differently.")  # fmt: skip
SAME_RUN_TWICE = ProblemCode("same_run_twice", "Two seeds of one dataset that are the same run.",
    "Send each run once; if two came out alike, look at how they were made.")  # fmt: skip

MOST_SEEDS = SEEDS.stop - 1
LONGEST_LABEL = 80

#: What names of run files end in, and says nothing of the seed.
_ENDINGS = re.compile(r"(\.(txt|run|trec|res|json|tsv|gz|zst|bz2))+$", re.IGNORECASE)
_NUMBERED = re.compile(r"(.*?)(\d+)$")


def split_labels(texts: Iterable[str]) -> list[str]:
    """Labels from fields that may repeat, and hold several separated by commas."""
    return [label.strip() for text in texts for label in text.split(",") if label.strip()]


def label_seeds(runs: Sequence[RunFile], said: Sequence[str]) -> tuple[list[RunFile], list[Problem]]:
    """The runs, those of seed sets with labels, and everything that is wrong with the sets.

    Labels that were said go to the files of sets in order: to all of them, or, given once, to each set's. Of files
    without any the names tell: `<dataset>.<label>.txt`, else what they are called, else they are numbered.
    """
    sets = _sets(runs)
    problems = [problem for members in sets.values() for problem in _refused(members)]
    if said:
        labels, wrong = _given_labels(sets, said)
        problems += wrong
    else:
        labels = {
            run.path: label
            for members in sets.values()
            for run, label in zip(members, _labels_from_names(members), strict=True)
        }
    labelled = [replace(run, seed=labels.get(run.path, "")) for run in runs]
    for members in _sets(labelled).values():
        problems += _refused_labels(members)
    return labelled, problems


def _sets(runs: Sequence[RunFile]) -> dict[int, list[RunFile]]:
    """By dataset the runs of which there are several."""
    found: dict[int, list[RunFile]] = {}
    for run in runs:
        found.setdefault(run.dataset.pk, []).append(run)
    return {dataset: members for dataset, members in found.items() if len(members) > 1}


def _refused(members: Sequence[RunFile]) -> list[Problem]:
    """What is wrong with the files of one set, whatever they are called."""
    problems = []
    dataset = members[0].dataset
    if len(members) > MOST_SEEDS:
        problems.append(
            TOO_MANY_SEEDS.problem(
                f"There are {len(members)} files for {dataset}.",
                f"Several files for one dataset are seeds of one system, {MOST_SEEDS} at most.",
            )
        )
    for first, second in _find_duplicates(members):
        problems.append(duplicate_seed_problem(first, second))
    return problems


def _find_duplicates(members: Sequence[RunFile]) -> list[tuple[RunFile, RunFile]]:
    """Files with the bytes of an earlier one, each with that one."""
    found: list[tuple[RunFile, RunFile]] = []
    seen: dict[tuple[int, str], RunFile] = {}
    sizes = [run.path.stat().st_size for run in members]
    for run, size in zip(members, sizes, strict=True):
        if sizes.count(size) == 1:
            continue
        key = (size, sha256_of(run.path))
        if key in seen:
            found.append((seen[key], run))
        seen.setdefault(key, run)
    return found


def duplicate_seed_problem(first: RunFile, second: RunFile) -> Problem:
    """The problem of two seeds that are the same run."""
    return SAME_RUN_TWICE.problem(
        f"{first.name} and {second.name} are the same run.",
        f"Seeds differ. Send each run for {first.dataset} once; if two of them came out alike, look at how they were "
        "made.",
    )


def _given_labels(
    sets: Mapping[int, Sequence[RunFile]], said: Sequence[str]
) -> tuple[dict[Path, str], list[Problem]]:
    """The labels by the runs' paths, and what is wrong with how many there are."""
    in_order = [run for members in sets.values() for run in members]
    if not sets:
        hint = "Leave seed out, or send all seeds of a dataset at once; one run alone has a configuration."
        return {}, [SEED_LABELS.problem("Seeds were labelled, and no dataset has several files.", hint)]
    if len(said) == len(in_order):
        return {run.path: label for run, label in zip(in_order, said, strict=True)}, []
    if all(len(members) == len(said) for members in sets.values()):
        pairs = [pair for members in sets.values() for pair in zip(members, said, strict=True)]
        return {run.path: label for run, label in pairs}, []
    message = f"There are {len(said)} labels of seeds, and {len(in_order)} files that are seeds."
    hint = "Give one label for each file, in the same order, or none: then the files' names tell."
    return {}, [SEED_LABELS.problem(message, hint)]


def _labels_from_names(members: Sequence[RunFile]) -> list[str]:
    stems = [_ENDINGS.sub("", Path(run.name).name) for run in members]
    dataset = f"{members[0].dataset.slug}."
    if all(stem.startswith(dataset) for stem in stems):
        return [stem.removeprefix(dataset).split(".")[0] for stem in stems]
    numbered = [_NUMBERED.fullmatch(stem) for stem in stems]
    beginnings = {match[1] for match in numbered if match}
    if all(numbered) and len(beginnings) == 1:
        stems = [match[2] for match in numbered if match]
    if len(set(stems)) == len(stems) and all(stem and len(stem) <= LONGEST_LABEL for stem in stems):
        return stems
    return [str(number) for number in range(1, len(members) + 1)]


def _refused_labels(members: Sequence[RunFile]) -> list[Problem]:
    """What is wrong with the labels of one set."""
    problems = []
    labels = [run.seed for run in members]
    for label in dict.fromkeys(label for label in labels if labels.count(label) > 1 and label):
        named = ", ".join(run.name for run in members if run.seed == label)
        message = f"Several files for {members[0].dataset} have the label “{label}”: {named}."
        problems.append(SEED_LABEL_TWICE.problem(message, "Label each seed differently."))
    for run in members:
        wrong = _wrong_label(run.seed) if run.seed else ""
        if wrong:
            hint = f"At most {LONGEST_LABEL} characters that can be seen, for example 1 or 42."
            problems.append(SEED_LABEL.problem(f"{run.name}: its label cannot be used. {wrong}", hint))
    return problems


def _wrong_label(label: str) -> str:
    if len(label) > LONGEST_LABEL:
        return f"It has {len(label)} characters."
    try:
        validate_name(label)
    except ValidationError as error:
        return " ".join(error.messages)
    return ""
