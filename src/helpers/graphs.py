"""Helpers of the chapter on graph neural networks: aggregation, batching, sampling.

An edge list is an integer tensor of shape (2, E): row 0 contains the sources, row 1 the targets of
messages. An undirected graph contains each edge in both directions.

Source: Gilmer et al. 2017, "Neural Message Passing for Quantum Chemistry",
https://arxiv.org/abs/1704.01212
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from helpers import checks


def aggregate(messages: Tensor, target: Tensor, n: int, reduce: str = "sum") -> Tensor:
    """Reduce the messages to each node: their sum, mean or maximum.

    Args:
        messages: floating point, shape (E, ...): one message per edge.
        target: int64 or int32, shape (E,): the node that receives each message, from 0 to n - 1.
        n: number of nodes.
        reduce: "sum", "mean" or "max".

    Returns:
        Shape (n, ...), in the dtype of the messages; 0 for nodes without a message. Sums are
        computed at least in float32.

    Raises:
        ValueError: `reduce` is another word, a shape or dtype does not fit, or a target is outside
            the graph.
    """
    if reduce not in ("sum", "mean", "max"):
        raise ValueError(f'reduce must be "sum", "mean" or "max", got {reduce!r}')
    _check_values("messages", messages, target, n)
    target = target.long()
    if reduce == "max":
        index = target.view(-1, *[1] * (messages.dim() - 1)).expand_as(messages)
        zeros = messages.new_zeros(n, *messages.shape[1:])
        return zeros.scatter_reduce(0, index, messages, "amax", include_self=False)
    wide = torch.promote_types(messages.dtype, torch.float32)
    total = messages.new_zeros(n, *messages.shape[1:], dtype=wide)
    total = total.index_add(0, target, messages.to(wide))
    if reduce == "mean":
        count = target.bincount(minlength=n).clamp(min=1)
        total = total / count.view(-1, *[1] * (messages.dim() - 1))
    return total.to(messages.dtype)


def gcn_norm(edges: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the edges and weights of D^-1/2 (A + I) D^-1/2, the normalized adjacency of a GCN.

    Self-loops of the graph are replaced, so that each node has exactly one. D contains the number
    of edges to each node, its self-loop included.

    Args:
        edges: shape (2, E), of an undirected graph: each edge in both directions.
        n: number of nodes.

    Returns:
        The edges, shape (2, E' + n), and their weights, float32, shape (E' + n,), where E' is the
        number of edges that are no self-loops.

    Raises:
        ValueError: `edges` is not an edge list, or contains a node outside the graph.

    Source: Kipf and Welling 2017, https://arxiv.org/abs/1609.02907
    """
    _check_edges(edges), _check_ids(edges, n)
    loops = torch.arange(n, dtype=edges.dtype, device=edges.device).expand(2, n)
    edges = torch.cat([edges[:, edges[0] != edges[1]], loops], dim=1)
    scale = edges[1].bincount(minlength=n).float().rsqrt()
    return edges, scale[edges[0]] * scale[edges[1]]


def edge_softmax(scores: Tensor, target: Tensor, n: int) -> Tensor:
    """Return the softmax of the scores over the edges of each target node.

    Args:
        scores: floating point below inf, shape (E,) or (E, heads); -inf excludes an edge.
        target: int64 or int32, shape (E,), from 0 to n - 1.
        n: number of nodes.

    Returns:
        Weights in the shape and dtype of `scores`; those of a target add up to 1, or are all 0 if
        all its scores are -inf.

    Raises:
        ValueError: a shape or dtype does not fit, or a target is outside the graph.
    """
    _check_values("scores", scores, target, n)
    target, wide = target.long(), scores.to(torch.promote_types(scores.dtype, torch.float32))
    index = target.view(-1, *[1] * (scores.dim() - 1)).expand_as(scores)
    lowest = wide.new_full((n, *scores.shape[1:]), -torch.inf)
    top = lowest.scatter_reduce(0, index, wide.detach(), "amax")
    top = top.masked_fill(top == -torch.inf, 0)
    weight = (wide - top[target]).exp()
    total = torch.zeros_like(top).index_add(0, target, weight)
    return (weight / total.masked_fill(total == 0, 1)[target]).to(scores.dtype)


def batch_graphs(graphs: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Join graphs to one graph without edges between them, for example as a `collate_fn`.

    Args:
        graphs: pairs of features, shape (nodes, F), and edges, shape (2, E).

    Returns:
        Features of all nodes, shape (N, F); edges with the ids of the joined graph; and the number
        of each node's graph, int64, shape (N,).

    Raises:
        TypeError: `graphs` is no iterable.
        ValueError: there is no graph, one is not a pair, or its edges do not belong to its nodes.
    """
    if not isinstance(graphs, Iterable):
        raise TypeError(f"graphs must be a list of pairs, got {_kind(graphs)}")
    graphs = list(graphs)
    if not graphs:
        raise ValueError("expected at least one graph, got none")
    for graph in graphs:
        if not isinstance(graph, tuple | list) or len(graph) != 2:
            size = f" of {len(graph)}" if isinstance(graph, tuple | list) else ""
            raise ValueError(f"expected pairs (features, edges), got {type(graph).__name__}{size}")
        x, edges = graph
        if not isinstance(x, Tensor) or not x.dim():
            raise ValueError(f"features must be a tensor of shape (nodes, F), got {_kind(x)}")
        _check_edges(edges, len(x))
    sizes = torch.tensor([len(x) for x, _ in graphs], device=graphs[0][0].device)
    offsets = sizes.cumsum(0) - sizes
    edges = [e + offset for (_, e), offset in zip(graphs, offsets, strict=True)]
    batch = torch.arange(len(graphs), device=sizes.device).repeat_interleave(sizes)
    return torch.cat([x for x, _ in graphs]), torch.cat(edges, dim=1), batch


def sample_neighbours(
    edges: Tensor, seeds: Tensor, fanouts: Iterable[int], generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Sample the subgraph that computes the outputs of the seed nodes.

    Hop by hop, it draws at most `fanouts[hop]` edges to each node that the hop before has added.

    Args:
        edges: shape (2, E), on the CPU.
        seeds: int64, shape (B,), without duplicates.
        fanouts: edges per node, one number for each layer of the model.
        generator: of the random numbers; None: the global one.

    Returns:
        The nodes of the subgraph, int64, shape (M,), of which the first B are the seeds; and its
        edges, shape (2, K), as positions in these nodes.

    Raises:
        TypeError: `fanouts` is no iterable.
        ValueError: `edges` is not an edge list, a fanout is no int or negative, or the seeds have
            another shape, another dtype, duplicates or negative ids.

    Source: Hamilton et al. 2017, https://arxiv.org/abs/1706.02216
    """
    if not _is_integer(seeds, 1, torch.int64) or len(seeds.unique()) < len(seeds):
        raise ValueError(
            f"seeds must be int64 of shape (B,), without duplicates, got {_kind(seeds)}"
        )
    if not isinstance(fanouts, Iterable):
        raise TypeError(f"fanouts must be a list of ints, got {_kind(fanouts)}")
    fanouts = list(fanouts)
    if not all(hasattr(k, "__index__") and k >= 0 for k in fanouts):
        raise ValueError(f"fanouts must be ints that are not negative, got {fanouts}")
    _check_edges(edges)
    edges = edges.long()
    ids = torch.cat([edges.flatten(), seeds])
    n = int(ids.max()) + 1 if len(ids) else 0
    _check_ids(ids, n)
    nodes = new = seeds
    chosen = []
    for k in fanouts:
        some = torch.isin(edges[1], new).nonzero().flatten()
        some = some[torch.randperm(len(some), generator=generator)]
        target, order = edges[1, some].sort(stable=True)
        rank = torch.arange(len(some)) - torch.searchsorted(target, target)
        some = some[order][rank < k]
        chosen.append(some)
        sources = edges[0, some].unique()
        new = sources[~torch.isin(sources, nodes)]
        nodes = torch.cat([nodes, new])
    position = torch.empty(n, dtype=torch.int64)
    position[nodes] = torch.arange(len(nodes))
    return nodes, position[edges[:, torch.cat(chosen)]] if chosen else edges[:, :0]


def negative_edges(
    edges: Tensor, n: int, count: int, generator: torch.Generator | None = None
) -> Tensor:
    """Draw pairs of different nodes without an edge between them, in either direction.

    Args:
        edges: shape (2, E), on the CPU: the edges that are not drawn.
        n: number of nodes.
        count: number of pairs.
        generator: of the random numbers; None: the global one.

    Returns:
        int64, shape (2, count): different pairs, the smaller node first.

    Raises:
        TypeError: `count` is not an int.
        ValueError: `edges` is not an edge list of the graph, or it has fewer such pairs.
    """
    _check_edges(edges), _check_ids(edges, n)
    low, high = edges.long().sort(dim=0).values
    taken = (low * n + high)[low != high].unique()
    free = n * (n - 1) // 2 - len(taken)
    count = checks.integer("count", count)
    if not 0 <= count <= free:
        raise ValueError(
            f"count must be an int from 0 to {free}, the pairs without an edge, got {count}"
        )
    pairs = taken[:0]
    if 4 * (count + len(taken)) > n * (n - 1):  # more than half of all pairs: list them
        a, b = torch.triu_indices(n, n, 1)
        pairs = _without(a * n + b, taken)
    while len(pairs) < count:
        a, b = torch.randint(n, (2, 2 * count + 16), generator=generator).sort(dim=0).values
        pairs = torch.cat([pairs, _without((a * n + b)[a != b], taken)]).unique()
    pairs = pairs[torch.randperm(len(pairs), generator=generator)[:count]]
    return torch.stack([pairs // n, pairs % n])


def _without(pairs: Tensor, taken: Tensor) -> Tensor:
    return pairs[~torch.isin(pairs, taken)]


def _check_edges(edges: Tensor, n: int | None = None) -> None:
    if not _is_integer(edges, 2) or len(edges) != 2:
        raise ValueError(f"edges must be int64 or int32 of shape (2, E), got {_kind(edges)}")
    if n is not None:
        _check_ids(edges, n)


def _check_values(name: str, values: Tensor, target: Tensor, n: int) -> None:
    if not isinstance(values, Tensor) or not values.dim() or not values.is_floating_point():
        raise ValueError(f"{name} must be floating point, of shape (E, ...), got {_kind(values)}")
    if not _is_integer(target, 1) or target.shape != values.shape[:1]:
        raise ValueError(
            f"target must be int64 or int32 of shape {tuple(values.shape[:1])}, got {_kind(target)}"
        )
    _check_ids(target, n)


def _check_ids(ids: Tensor, n: int) -> None:
    try:
        n = checks.integer("n", n, 0)
    except (TypeError, ValueError):
        raise ValueError(
            f"the number of nodes must be an int that is not negative, got {n!r}"
        ) from None
    if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= n):
        raise ValueError(
            f"nodes must be from 0 to {n - 1}, got {int(ids.min())} to {int(ids.max())}"
        )


def _is_integer(value: object, dim: int, *dtypes: torch.dtype) -> bool:
    dtypes = dtypes or (torch.int64, torch.int32)
    return (
        isinstance(value, Tensor)
        and value.dim() == dim
        and value.dtype in dtypes
        and not value.is_meta
    )


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}{' on meta' * value.is_meta}"
    return type(value).__name__
