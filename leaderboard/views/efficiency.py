"""The page that says how costs are measured, on which machines, and what those cost."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from evaluation.efficiency import protocol
from leaderboard.boards.columns.costs import BETWEEN_JOBS, COSTS, OFF, OVER_STORED_RUNS
from leaderboard.models import HardwareClass


@require_safe
def efficiency(request: HttpRequest) -> HttpResponse:
    """Protocol, columns, hardware classes and prices. Two queries."""
    context = {
        "section": "measures",
        "protocol": {
            "name": protocol.PROTOCOL,
            "depth": protocol.DEPTH,
            "warm_up": protocol.WARM_UP_SEARCHES,
            "searches": protocol.TIMED_SEARCHES,
            "most_queries": protocol.BATCHED_QUERIES,
            "batch": protocol.BATCH,
            "whole": protocol.WHOLE,
            "beside": protocol.OF_VARIANT,
            "groups": protocol.GROUPS,
            "settled": 100 * protocol.SETTLED,
            "off": 100 * OFF,
            "between_jobs": 100 * BETWEEN_JOBS,
        },
        "costs": COSTS,
        "over_stored_runs": OVER_STORED_RUNS,
        "machines": _machines(),
    }
    return render(request, "leaderboard/efficiency.html", context)


def _machines() -> list[dict[str, Any]]:
    """Every hardware class with its prices, the newest first; the one that is valid today is marked."""
    today = timezone.now().date()
    found = []
    for machine in HardwareClass.objects.prefetch_related("prices").order_by("name", "-created_at"):
        prices = sorted(machine.prices.all(), key=lambda price: price.valid_from, reverse=True)
        valid = next((price for price in prices if price.valid_from <= today), None)
        found.append({"machine": machine, "prices": [(price, price == valid) for price in prices]})
    return found
