"""Reference pages of measures, efficiency protocol, and file formats."""

import re
from collections.abc import Iterable, Mapping

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_safe

from evaluation.archives.compression import FileLimits
from evaluation.checkpoints.findings import CODES
from evaluation.core.problems import PROBLEM_CODES, ProblemCode, codes_about
from evaluation.efficiency import measurements, protocol
from evaluation.execution.failures import MODEL_FAILURES
from evaluation.measures.registry import DEFAULT_MEASURES, FAMILIES, SPEC_VERSION
from evaluation.statistics.ladder import PUBLIC_STEP, STEP
from leaderboard.boards.columns.costs import BETWEEN_JOBS, COSTS, OVER_STORED_RUNS
from leaderboard.core.cache.pages import cache_page
from leaderboard.models import HardwareClass
from leaderboard.results.board_rows.measurements import MAX_DEVIATION
from leaderboard.results.protection import HIDDEN_DECIMALS


@require_safe
@cache_page(lambda: SPEC_VERSION)
def measures(request: HttpRequest) -> HttpResponse:
    """Show all measures with names, formulas and sources, and the rules that apply to all."""
    context = {
        "section": "docs",
        "families": FAMILIES.values(),
        "default_measures": DEFAULT_MEASURES,
        "specification": SPEC_VERSION,
        "hidden_decimals": HIDDEN_DECIMALS,
        "ladder_step": STEP,
        "public_step": PUBLIC_STEP,
    }
    return render(request, "leaderboard/measures.html", context)


#: Kinds of problems with a submission, and patterns of their codes. Other codes are of the last kind.
REQUEST_KINDS: Mapping[str, str] = {
    gettext_noop("Files and uploads"): "upload|file|tus_|piece|content_type|too_large|member_",
    gettext_noop("Models and images"): "checkpoint|engine|hub_|image|container|gpu|prompt|sandbox|models|no_corpus",
    gettext_noop("Rounds"): "round|tag|priority|run_type",
    gettext_noop("Seed sets and several runs"): "seed|label|twice|number_of_runs|several|pairing",
    gettext_noop("Requests, datasets, systems, and accounts"): "",
}
#: The same for problems with a file, by severity.
FILE_KINDS: Mapping[str, str] = {
    gettext_noop("Errors: the file is rejected"): "error",
    gettext_noop("Warnings: the file is scored"): "",
}


def _by_kind(pairs: Iterable[tuple[ProblemCode, str]], kinds: Mapping[str, str]) -> list[tuple[str, list[ProblemCode]]]:
    """Return the codes by the first kind whose pattern occurs in the text of their pair."""
    codes: dict[str, list[ProblemCode]] = {kind: [] for kind in kinds}
    for code, text in pairs:
        codes[next(kind for kind, pattern in kinds.items() if re.search(pattern, text))].append(code)
    return list(codes.items())


@require_safe
@cache_page(lambda: SPEC_VERSION)
def formats(request: HttpRequest) -> HttpResponse:
    """Show formats of runs and datasets, limits, and all problem codes."""
    context = {
        "section": "docs",
        "file_codes": _by_kind(((code, code.severity) for code in codes_about("file")), FILE_KINDS),
        "request_codes": _by_kind(((code, code) for code in codes_about("request")), REQUEST_KINDS),
        "checkpoint_codes": [
            (code, text) for code, text in CODES.items() if code not in PROBLEM_CODES or code in MODEL_FAILURES
        ],
        "failure_codes": [code for code in codes_about("model") if code not in CODES],
        "checkpoint_limit": settings.CHECKPOINT_LIMIT_BYTES,
        "pieces_limit": settings.CHECKPOINT_PIECES_LIMIT_BYTES,
        "limits": FileLimits(),
        "upload_limit": settings.UPLOAD_LIMIT_BYTES,
        "at_once": settings.VALIDATE_AT_ONCE_BYTES,
    }
    return render(request, "leaderboard/formats.html", context)


@require_safe
def efficiency(request: HttpRequest) -> HttpResponse:
    """Show the efficiency protocol, cost columns, and hardware classes with their prices, in two queries."""
    today = timezone.now().date()
    machines = []
    for machine in HardwareClass.objects.prefetch_related("prices").order_by("name", "-created_at"):
        prices = sorted(machine.prices.all(), key=lambda price: price.valid_from, reverse=True)
        valid = next((price for price in prices if price.valid_from <= today), None)
        machines.append({"machine": machine, "prices": [(price, price == valid) for price in prices]})
    context = {
        "section": "docs",
        "protocol": {
            "name": protocol.PROTOCOL,
            "depth": protocol.DEPTH,
            "warm_up": measurements.FULL_EFFORT.warm_up,
            "searches": measurements.FULL_EFFORT.searches,
            "most_queries": measurements.FULL_EFFORT.throughput_queries,
            "batch": measurements.BATCH,
            "whole": measurements.FULL_EFFORT,
            "beside": measurements.VARIANT_EFFORT,
            "share": 100 * measurements.SHARE_OF_JOB,
            "least_seconds": measurements.MIN_SECONDS,
            "groups": protocol.GROUPS,
            "settled": 100 * protocol.SETTLED_DIFFERENCE,
            "off": 100 * MAX_DEVIATION,
            "between_jobs": 100 * BETWEEN_JOBS,
            "narrow": 100 * protocol.NARROW,
            "most_unsettled": 100 * measurements.MAX_UNSETTLED,
            "most_spread": 100 * measurements.MAX_SPREAD,
            "most_other_work": 100 * measurements.MAX_OTHER_WORK,
        },
        "costs": COSTS,
        "over_stored_runs": OVER_STORED_RUNS,
        "machines": machines,
    }
    return render(request, "leaderboard/efficiency.html", context)
