"""Selection of candidates for exact search on a GPU, by matrix products."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from evaluation.engines.base import Floats, Numbers

#: Maximum number of scores on the device (512 MiB).
_SCORES_HELD = 2**27
#: Maximum share of the device's free memory for vectors that remain there between searches.
_SHARE_OF_MEMORY = 0.6


class DeviceSearch:
    """Scores shards of vectors (documents × dimensions, float32 or float16) on a torch device, in float32."""

    def __init__(self, shards: Sequence[NDArray[Any]], device: str) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False  # TF32 rounding exceeds the margin of exact search
        self._device = torch.device(device)
        self._shards: Sequence[NDArray[Any] | torch.Tensor] = shards
        # Only CUDA devices need a copy of the vectors.
        free_bytes = torch.cuda.mem_get_info(self._device)[0] if self._device.type == "cuda" else 0
        if sum(shard.nbytes for shard in shards) < _SHARE_OF_MEMORY * free_bytes:
            self._shards = [as_tensor(shard).to(self._device) for shard in shards]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def candidates(self, queries: Floats, count: int) -> tuple[Floats, Numbers]:
        """Return scores (descending) and numbers of the `count` best documents of each query by inner product."""
        query_tensor = torch.from_numpy(queries).to(self._device)
        width = max(_SCORES_HELD // len(queries), count)
        scores = torch.empty((len(queries), 0), device=self._device)
        documents = torch.empty((len(queries), 0), dtype=torch.int64, device=self._device)
        for first_document, vectors in self._blocks(width):
            products = query_tensor @ vectors.float().T
            top_products = products.topk(min(count, products.shape[1]), dim=1)
            scores = torch.cat([scores, top_products.values], dim=1)
            documents = torch.cat([documents, top_products.indices + first_document], dim=1)
            if scores.shape[1] > count:
                scores, indices = scores.topk(count, dim=1)
                documents = documents.gather(1, indices)
        scores, indices = scores.sort(dim=1, descending=True)
        return scores.cpu().numpy(), documents.gather(1, indices).cpu().numpy()

    def _blocks(self, width: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the first document number and the vectors on the device, for blocks of at most `width` documents."""
        first_document = 0
        for shard in self._shards:
            for start in range(0, len(shard), width):
                block = shard[start : start + width]
                tensor = block if isinstance(block, torch.Tensor) else as_tensor(block).to(self._device)
                yield first_document + start, tensor
            first_document += len(shard)


def as_tensor(array: NDArray[Any]) -> torch.Tensor:
    """Return the array as a tensor without torch's warning about read-only arrays. The tensor must not be modified."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
