"""Floating point operations that a piece of work takes: unlike seconds, the same on every machine.

A multiply-add is two of them. torch counts those of models (`FlopCounterMode`): matrix products, convolutions and
attention, by the shapes of what is computed; what it does value by value is left out. What searches do outside of torch
they say themselves, by `add`: a posting is a multiply-add, and so is each dimension of a vector that is compared.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Operations:
    """What was counted: multiply-adds outside of torch, and, once counting has ended, all `flops`."""

    multiply_adds: int = 0
    flops: int = 0


_counting: list[Operations] = []


def are_counted() -> bool:
    """Return whether somebody counts at the moment."""
    return bool(_counting)


def add(multiply_adds: Callable[[], int]) -> None:
    """Count what a search did outside of torch; it is not even asked for where nobody counts."""
    for each in _counting:
        each.multiply_adds += multiply_adds()


@contextmanager
def counting() -> Iterator[Operations]:
    """Count the operations of the block, in this thread. It takes longer than it would: never time it."""
    found = Operations()
    torch_counts = _torch_counter() if "torch" in sys.modules else None
    _counting.append(found)
    try:
        if torch_counts is None:
            yield found
        else:
            with torch_counts:
                yield found
    finally:
        _counting.remove(found)
    found.flops = 2 * found.multiply_adds + (torch_counts.get_total_flops() if torch_counts else 0)


def _torch_counter() -> Any:
    """torch's counter, which leaves out attention on the CPU, and takes no query heads that share keys, by itself."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    attention = (
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
    )
    return FlopCounterMode(
        display=False, custom_mapping={getattr(torch.ops.aten, name): _attention_flops for name in attention}
    )


def _attention_flops(
    query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any
) -> int:
    """Both matrix products of attention; shapes are (…, heads, length, dimension)."""
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
