"""Counting of floating point operations, which unlike seconds are the same on every machine.

A multiply-add counts as two operations. For models, torch counts matrix products, convolutions, and attention by the
shapes of their operands (`FlopCounterMode`), but no elementwise operations. Searches outside of torch report their
own operations through `add`: one multiply-add per posting, and one per dimension of each compared vector.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Operations:
    """Operation counts: multiply-adds outside of torch and, after counting has ended, the total `flops`."""

    multiply_adds: int = 0
    flops: int = 0


_active_counts: list[Operations] = []


def are_counted() -> bool:
    return bool(_active_counts)


def add(multiply_adds: Callable[[], int]) -> None:
    """Report multiply-adds outside of torch. The function is called only while operations are being counted."""
    for counter in _active_counts:
        counter.multiply_adds += multiply_adds()


@contextmanager
def count_operations() -> Iterator[Operations]:
    """Yield a counter of the block's operations. Its `flops` are computed when the block ends.

    Counting slows down the block, so never time it.
    """
    operations = Operations()
    torch_counts: Any = None
    if "torch" in sys.modules:
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        # The counter does not know attention on the CPU, nor grouped-query attention.
        attention = (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
        )
        mapping = {getattr(torch.ops.aten, name): _attention_flops for name in attention}
        torch_counts = FlopCounterMode(display=False, custom_mapping=mapping)
    _active_counts.append(operations)
    try:
        if torch_counts is None:
            yield operations
        else:
            with torch_counts:
                yield operations
    finally:
        _active_counts.remove(operations)
    operations.flops = 2 * operations.multiply_adds + (torch_counts.get_total_flops() if torch_counts else 0)


def _attention_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any) -> int:
    """Return the operations of both matrix products of attention. Shapes are (…, heads, length, dimension)."""
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
