"""Efficiency of retrieval systems: latency, throughput, memory, and size under a published protocol."""

from evaluation.efficiency.hardware import Hardware, describe
from evaluation.efficiency.measurements import is_brief, noise_reasons
from evaluation.efficiency.protocol import PROTOCOL, EfficiencyFigures, Latency, measure

__all__ = [
    "PROTOCOL",
    "EfficiencyFigures",
    "Hardware",
    "Latency",
    "describe",
    "is_brief",
    "measure",
    "noise_reasons",
]
