"""Show a graph convolution's matrix for three normalizations, with and without self-loops."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from helpers.explorers import Explorer

FEATURES = (1.0, 2.0, 3.0, 4.0, 5.0)
EDGES = ((0, 1), (0, 2), (1, 2), (2, 3))  # initial edges; node 4 is isolated
NORMS = ("sum", "mean", "GCN")


def weights(adjacency: Tensor, norm: str) -> Tensor:
    """Return the normalized adjacency matrix, which multiplies the features.

    Args:
        adjacency: float tensor of shape (n, n), including self-loops.
        norm: "sum" for A, "mean" for D^-1 A, "GCN" for D^-1/2 A D^-1/2.

    Returns:
        Float tensor of shape (n, n); nan for 0 * (1 / 0).
    """
    degree = adjacency.sum(1)
    if norm == "mean":
        return adjacency * degree[:, None] ** -1
    if norm == "GCN":
        return degree[:, None] ** -0.5 * adjacency * degree**-0.5
    return adjacency


def table(norm: str) -> list[list[list[float | None]]]:
    """Return the entries of `weights` by adjacency, degree of the row and degree of the column.

    An entry of the matrix depends only on these three numbers; nan is stored as None.
    """
    n = len(FEATURES)
    a = torch.tensor([0.0, 1.0])[:, None, None]
    row, column = torch.arange(n + 1.0)[:, None], torch.arange(n + 1.0)
    entry = {
        "sum": a + 0 * row + 0 * column,
        "mean": a * row**-1 + 0 * column,
        "GCN": row**-0.5 * a * column**-0.5,
    }[norm]
    return [
        [[round(w, 6) if math.isfinite(w) else None for w in line] for line in part]
        for part in entry.tolist()
    ]


def convolve_explorer(lang: str | None = None) -> Explorer:
    """Choose edges, self-loops and the normalization; see the matrix and the next features."""
    data = {
        "features": FEATURES,
        "edges": EDGES,
        "norms": NORMS,
        "tables": [table(norm) for norm in NORMS],
    }
    return Explorer(
        "convolve",
        data,
        {
            "en": (
                "A graph of five nodes, the matrix of a graph convolution and the features after "
                "it. Without self-loops, the degree 0 of the isolated node makes all features of "
                "the symmetric normalization nan; with self-loops its feature stays 5."
            ),
            "zh": (
                "五个节点的图、图卷积的矩阵，以及卷积之后的特征。没有自环时，孤立节点的度为 0，"
                "对称归一化使所有特征都变成 nan；加上自环后，它的特征仍是 5。"
            ),
        },
        lang,
    )
