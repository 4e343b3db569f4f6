"""Candidates for exact search from a graphics card: matrix products and the best of them stay there."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from evaluation.engines.base import Floats, Numbers

#: Scores held on the device at a time: 512 MiB of them.
_SCORES_HELD = 2**27
#: Share of the device's free memory that vectors may take to stay there between searches.
_SHARE_OF_MEMORY = 0.6


class DeviceSearch:
    """Scores shards of vectors (documents × dimensions, float32 or float16) on a device of torch, in float32."""

    def __init__(self, shards: Sequence[NDArray[Any]], device: str) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False  # its rounding is beyond the margin of the search
        self._device = torch.device(device)
        self._shards: Sequence[NDArray[Any] | torch.Tensor] = shards
        # Vectors of another device than a card need not be copied to be there.
        free = torch.cuda.mem_get_info(self._device)[0] if self._device.type == "cuda" else 0
        if sum(shard.nbytes for shard in shards) < _SHARE_OF_MEMORY * free:
            self._shards = [tensor_of(shard).to(self._device) for shard in shards]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def candidates(self, queries: Floats, kept: int) -> tuple[Floats, Numbers]:
        """Return scores (descending) and numbers of the `kept` best documents of each query."""
        asked = torch.from_numpy(queries).to(self._device)
        width = max(_SCORES_HELD // len(queries), kept)
        scores = torch.empty((len(queries), 0), device=self._device)
        documents = torch.empty((len(queries), 0), dtype=torch.int64, device=self._device)
        for first, vectors in self._blocks(width):
            products = asked @ vectors.float().T
            best = products.topk(min(kept, products.shape[1]), dim=1)
            scores = torch.cat([scores, best.values], dim=1)
            documents = torch.cat([documents, best.indices + first], dim=1)
            if scores.shape[1] > kept:
                scores, places = scores.topk(kept, dim=1)
                documents = documents.gather(1, places)
        scores, places = scores.sort(dim=1, descending=True)
        return scores.cpu().numpy(), documents.gather(1, places).cpu().numpy()

    def _blocks(self, width: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield (number of the first document, vectors on the device) of blocks of at most `width` documents."""
        first = 0
        for shard in self._shards:
            for start in range(0, len(shard), width):
                block = shard[start : start + width]
                tensor = block if isinstance(block, torch.Tensor) else tensor_of(block).to(self._device)
                yield first + start, tensor
            first += len(shard)


def tensor_of(array: NDArray[Any]) -> torch.Tensor:
    """Return the array as a tensor that is only read; torch would warn that it must not be written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
