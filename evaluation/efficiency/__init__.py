"""Efficiency of retrieval systems: latency, throughput, memory, and size under a published protocol."""

from evaluation.efficiency.hardware import Hardware, describe
from evaluation.efficiency.measurements import EfficiencyFigures, is_brief, noise_reasons
from evaluation.efficiency.protocol import PROTOCOL

__all__ = ["PROTOCOL", "EfficiencyFigures", "Hardware", "describe", "is_brief", "noise_reasons"]
