"""Faults that a formula may have, each as what makes a faulty formula of a right one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from evaluation.judgements.answers import FoundAnswers
from evaluation.measures.formulas import JudgedRankings, Values


def shifted(formula: Callable[..., Values]) -> Callable[..., Values]:
    """Every document stands one rank lower, behind a text of 1,000 tokens."""

    def faulty(ranking: JudgedRankings, k: int | None, level: int) -> Values:
        found = ranking.answers
        lower = found and FoundAnswers(found.rank + 1, found.tokens + 1000)
        ranks = {"rank": ranking.rank + 1, "elsewhere_rank": ranking.elsewhere_rank + 1}
        return formula(replace(ranking, **ranks, answers=lower), k, level)

    return faulty


def cut_deeper(formula: Callable[..., Values]) -> Callable[..., Values]:
    return lambda ranking, k, level: formula(ranking, k + 1 if k else 2, level)


def stricter(formula: Callable[..., Values]) -> Callable[..., Values]:
    return lambda ranking, k, level: formula(ranking, k, level + 1)


def regraded(formula: Callable[..., Values]) -> Callable[..., Values]:
    """Grades of retrieved documents are one higher."""
    return lambda ranking, k, level: formula(replace(ranking, grade=ranking.grade + 1), k, level)


def imprecise(formula: Callable[..., Values]) -> Callable[..., Values]:
    return lambda ranking, k, level: formula(ranking, k, level) + 2e-9


def turned(formula: Callable[..., Values]) -> Callable[..., Values]:
    """Values stand at other queries."""
    return lambda ranking, k, level: np.roll(formula(ranking, k, level), 1)


FAULTS = (shifted, cut_deeper, stricter, regraded, imprecise, turned)
