"""Helpers of the chapter on embeddings: IDs without a row.

Source: https://pytorch.org/docs/stable/generated/torch.nn.Embedding.html
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from helpers import checks


def out_of_range(ids: Tensor, table: nn.Embedding | nn.EmbeddingBag) -> dict[tuple[int, ...], int]:
    """Return the positions and values of the IDs for which an embedding has no row.

    These IDs are below 0 or not below `table.num_embeddings`. On a GPU the call synchronizes.

    Args:
        ids: integers, any shape, on any device.
        table: the embedding; its weights are not read.

    Returns:
        From the index of each such ID in `ids` to the ID; an empty dict if a lookup succeeds.

    Raises:
        TypeError: `ids` is not a tensor of integers with values, or `table` is not an embedding.
    """
    if isinstance(table, type) or not hasattr(table, "num_embeddings"):
        raise TypeError(f"table must be an embedding, got {type(table).__name__}")
    if not isinstance(ids, Tensor):
        raise TypeError(f"ids must be a tensor of integers, got {type(ids).__name__}")
    if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        raise TypeError(f"ids must be a tensor of integers, got {ids.dtype}")
    ids = checks.filled("ids", ids).cpu().long()
    outside = (ids < 0) | (ids >= table.num_embeddings)
    return {tuple(where): int(ids[tuple(where)]) for where in outside.nonzero().tolist()}
