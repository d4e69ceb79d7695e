"""Helpers of the chapter on flex_attention: rules for documents and windows, kinds of blocks.

Source: https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from helpers import checks

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def document_index(lengths: Sequence[Sequence[int]], length: int | None = None) -> Tensor:
    """Return the document index of each token, and -1 for padding: int64, shape (N, L).

    Args:
        lengths: for each row, the lengths of its documents, in order, each at least 1.
        length: L; the longest row by default. The rest of a row is padding.

    Raises:
        TypeError: a length is not an integer.
        ValueError: a document is empty, or a row is longer than `length`.
    """
    if not isinstance(lengths, Iterable) or isinstance(lengths, str):
        raise TypeError(f"lengths must be one list of integers per row, got {lengths!r}")
    rows = [row.tolist() if isinstance(row, Tensor) else row for row in lengths]
    if not all(isinstance(row, Sequence) and not isinstance(row, str) for row in rows):
        raise TypeError(f"lengths must be one list of integers per row, got {lengths!r}")
    lengths = rows
    for given in [*(n for row in rows for n in row), *([] if length is None else [length])]:
        if not isinstance(given, Integral) or isinstance(given, bool):
            raise TypeError(f"a length must be an integer, got {given!r}")
    if any(n < 1 for row in lengths for n in row):
        raise ValueError("every document must have at least one token")
    longest = max(map(sum, lengths), default=0)
    length = longest if length is None else length
    if longest > length:
        raise ValueError(f"a row has {longest} tokens, and the length is {length}")
    index = torch.full((len(lengths), length), -1)
    for row, of_row in zip(index, lengths, strict=True):
        counts = torch.tensor([*of_row], dtype=torch.int64)
        row[: int(counts.sum())] = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return index


def document_rule(doc: Tensor) -> Rule:
    """Return a `mask_mod` for packed documents: a token attends to its document, itself included.

    The rule is causal. A padding token attends only to itself, so no row is fully masked.

    Args:
        doc: signed integers or uint8, shape (N, L), -1 for padding, on the device of the queries.
            The rule reads it later, so create a new rule for each batch.

    Raises:
        TypeError: `doc` is not a tensor of integers.
        ValueError: `doc` does not have two dimensions.
    """
    if not isinstance(doc, Tensor):
        raise TypeError(f"doc must be a tensor, got {type(doc).__name__}")
    if doc.is_floating_point() or doc.is_complex() or doc.dtype == torch.bool:
        raise TypeError(f"doc must contain integers, got {doc.dtype}")
    if doc.dim() != 2:
        raise ValueError(f"doc must have shape (N, L), got {tuple(doc.shape)}")

    def rule(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        same = (doc[b, i] == doc[b, j]) & (doc[b, i] >= 0)
        return (same & (i > j)) | (i == j)

    return rule


def window_rule(size: int, past: int = 0) -> Rule:
    """Return a causal `mask_mod` with a sliding window: a query attends to `size` positions.

    Args:
        size: number of positions, the query's own included, at least 1.
        past: number of cached keys before the first query.

    Raises:
        TypeError: `size` or `past` is not an integer.
        ValueError: `size` is below 1 or `past` below 0.
    """
    size, past = checks.integer("size", size), checks.integer("past", past)
    if size < 1 or past < 0:
        raise ValueError(f"size must be at least 1 and past at least 0, got {size} and {past}")

    def rule(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        back = i + past - j
        return (back >= 0) & (back < size)

    return rule


def block_kinds(block_mask: BlockMask) -> Tensor:
    """Return the kind of each block: 0 is skipped, 1 computed with the rule, 2 without it.

    Returns:
        int64, shape (B, H, blocks of queries, blocks of keys), on the CPU.

    Raises:
        TypeError: `block_mask` is not the result of `create_block_mask`.
    """
    if not hasattr(block_mask, "kv_num_blocks"):
        raise TypeError(
            f"expected a block mask from create_block_mask, got {type(block_mask).__name__}"
        )
    kinds = _listed(block_mask.kv_num_blocks, block_mask.kv_indices)
    if block_mask.full_kv_num_blocks is not None:
        full = _listed(block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
        kinds = kinds + 2 * full
    return kinds


def _listed(count: Tensor, index: Tensor) -> Tensor:
    """Return 1 for the first `count` columns that `index` lists in each row, else 0."""
    listed = torch.arange(index.shape[-1], device=index.device) < count[..., None]
    return torch.zeros_like(index).long().scatter_add(-1, index.long(), listed.long()).cpu()
