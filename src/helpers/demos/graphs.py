"""Graphs and the figure of the chapter on graph neural networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers import checks
from helpers.figures import COLORS, figure, legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CHINESE = {
    "layers": "层数",
    "mean cosine similarity": "平均余弦相似度",
    "averages only": "只求平均",
    "20% of the input": "每层加 20% 的输入",
}


def community_graph(
    nodes: int,
    classes: int = 3,
    inside: float = 0.06,
    outside: float = 0.01,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw a graph with random edges, which are more frequent inside communities.

    Args:
        nodes: number of nodes.
        classes: number of communities.
        inside: probability of an edge between two nodes of one community.
        outside: probability of an edge between two nodes of different communities.
        generator: of the random numbers; None: the global one.

    Returns:
        The edges, int64, shape (2, E), in both directions and without self-loops, and the
        community of each node, int64, shape (nodes,).

    Raises:
        TypeError, ValueError: a number is not an int or too small, or a probability not from 0 to
            1.
    """
    nodes, classes = checks.integer("nodes", nodes, 0), checks.integer("classes", classes, 1)
    checks.fraction("inside", inside), checks.fraction("outside", outside)
    community = torch.randint(classes, (nodes,), generator=generator)
    chance = torch.where(community[:, None] == community, inside, outside)
    once = (torch.rand(nodes, nodes, generator=generator) < chance).triu(1).nonzero().T
    return torch.cat([once, once.flip(0)], dim=1), community


def smoothing(
    edges: Tensor, weight: Tensor, layers: int, share: float, generator: torch.Generator
) -> list[float]:
    """Return the mean cosine similarity of all pairs of nodes after 0, 1, … `layers` layers.

    A layer is h = (1 - share) P h + share x, without parameters, for random features x.

    Args:
        edges: shape (2, E).
        weight: of the edges, shape (E,): the entries of P.
        layers: number of layers.
        share: of the input in each layer, from 0 to 1.
        generator: of the features.
    """
    n = int(edges.max()) + 1
    h = x = torch.randn(n, 16, generator=generator)
    similar = []
    for _ in range(layers + 1):
        direction = F.normalize(h, dim=1)
        similar.append((direction @ direction.T).mean().item())
        mixed = torch.zeros_like(h).index_add(0, edges[1], weight[:, None] * h[edges[0]])
        h = (1 - share) * mixed + share * x
    return similar


def draw_smoothing(edges: Tensor, weight: Tensor, layers: int = 32) -> Figure:
    """Draw `smoothing` without and with a share of the input."""
    drawing, axis = figure(chinese=_CHINESE)
    for name, share, color, line in (
        ("averages only", 0.0, COLORS["orange"], "-"),
        ("20% of the input", 0.2, COLORS["teal"], "--"),
    ):
        generator = torch.Generator().manual_seed(0)
        values = smoothing(edges, weight, layers, share, generator)
        axis.plot(values, line, color=color, label=name, linewidth=2)
    axis.set(xlabel="layers", ylabel="mean cosine similarity", ylim=(-0.05, 1.05))
    legend(axis)
    return drawing
