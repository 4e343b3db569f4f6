"""What a system costs, measured: latency, throughput, memory and size under a published protocol."""

from evaluation.efficiency.hardware import Hardware, describe
from evaluation.efficiency.measurements import was_disturbed
from evaluation.efficiency.protocol import PROTOCOL, Figures, Latency, measure

__all__ = ["PROTOCOL", "Figures", "Hardware", "Latency", "describe", "measure", "was_disturbed"]
