"""Checkers of the exercises of the chapter on graph neural networks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.exercises.losses import nan_remains
from helpers.exercises.tools import a_tensor, between, close, in_dtypes, leaves


def _is(got: Tensor, wrong: Tensor, right: Tensor, **near: float) -> bool:
    """Return whether the result is the wrong one, unless that is right for this input."""
    return torch.allclose(got, wrong, **near) and not torch.allclose(wrong, right, **near)


# ---------------------------------------------------------------- weighted mean of the neighbours


def _mean(x: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted mean by a dense matrix, in float64."""
    n = len(x)
    A = weight.new_zeros(n, n, dtype=torch.float64)
    A = A.index_put((edges[1], edges[0]), weight.double(), accumulate=True)
    total = A.sum(1, keepdim=True)
    return (A @ x.double() / total.masked_fill(total == 0, 1)).to(x.dtype)


def _mean_draw() -> tuple[Tensor, Tensor, Tensor]:
    """Return a directed graph with repeated edges, a node without edges and one of weights 0."""
    n = between(6, 9)
    free = torch.randperm(n)[:-2]  # of the last two nodes, one is isolated, one has weights 0
    source, target = free[torch.randint(len(free), (2, 4 * n))]
    edges = torch.stack([source, target])
    edges = torch.cat([edges, edges[:, :3]], dim=1)
    unweighted = sorted(set(range(n)) - set(free.tolist()))[between(0, 1)]
    edges = torch.cat([edges, torch.tensor([[0, 1], [unweighted, unweighted]])], dim=1)
    weight = torch.rand(edges.shape[1]) + 0.1
    weight[-2:] = 0
    order = torch.randperm(edges.shape[1])
    return torch.randn(n, between(2, 4)), edges[:, order], weight[order]


def _mean_value(f: Callable) -> None:
    for _ in range(4):
        x, edges, weight = _mean_draw()
        got, right = a_tensor(f(x, edges, weight), x.shape, x.dtype), _mean(x, edges, weight)
        source, target = edges
        lost = torch.zeros_like(x)
        lost[target] = weight[:, None] * x[source]
        total = torch.zeros_like(x).index_add(0, target, weight[:, None] * x[source])
        count = target.bincount(minlength=len(x)).clamp(min=1)[:, None]
        for wrong, why in (
            (lost, "an indexed assignment keeps one message per node: use index_add"),
            (lost / count, "an indexed += keeps one message per node: use index_add"),
            (total, "this is the sum: divide by the sum of the weights"),
            (total / count, "divide by the sum of the weights, not by the number of edges"),
            (_mean(x, edges, torch.ones_like(weight)), "the weights are ignored"),
            (
                _mean(x, edges.flip(0), weight),
                "source and target are exchanged: row 0 of edges contains the sources",
            ),
            (
                _mean(x, edges.unique(dim=1), torch.ones(edges.unique(dim=1).shape[1])),
                "the weights are ignored, and repeated edges are dropped",
            ),
        ):
            assert not _is(got, wrong, right, atol=1e-4), why
        assert not got.isnan().any(), (
            "nan: a node without edges, or with weights of 0, is divided by 0"
        )
        close(got, right, atol=1e-4)


def _mean_scale(f: Callable) -> None:
    x, edges, weight = _mean_draw()
    close(
        f(x, edges, weight * 1e-30),
        _mean(x, edges, weight),
        "wrong for small weights: a clamp or an epsilon changes them, replace a sum of 0 only",
        atol=1e-4,
    )


def _mean_none(f: Callable) -> None:
    x, edges, weight = _mean_draw()
    longer = torch.cat([x, x[:1]])  # one more node, without edges
    got = a_tensor(f(longer, edges, weight), longer.shape, x.dtype)
    close(got, _mean(longer, edges, weight), "wrong if the last node has no edges", atol=1e-4)
    close(f(x, edges[:, :0], weight[:0]), torch.zeros_like(x), "without edges the result is 0")
    one = 1e4 * x[:1, :1]
    loop, alone = torch.zeros(2, 1, dtype=torch.int64), torch.ones(1)
    close(f(one, loop, alone), one, "wrong for one node with one feature and a self-loop")
    nan_remains(lambda x: f(x, loop, alone), one)


def _mean_gradient(f: Callable) -> None:
    x, edges, weight = _mean_draw()
    factors = torch.randn_like(x)
    for one in (x.requires_grad_(), weight.requires_grad_()):
        got = a_tensor(f(x, edges, weight))
        assert got.requires_grad, "the result has no graph"
        mine, theirs = (
            torch.autograd.grad((out * factors).sum(), one, allow_unused=True)[0]
            for out in (got, _mean(x, edges, weight))
        )
        name = "x" if one is x else "weight"
        assert mine is not None, f"the result has no gradient for {name}"
        assert (mine.abs() < 1e6).all(), (
            f"the gradient for {name} is not finite, or huge: replace a sum of 0 before the "
            "division"
        )
        defined = slice(None) if one is x else weight != 0  # a sum of 0 is a special case
        assert torch.allclose(mine[defined], theirs[defined], rtol=1e-3, atol=1e-3), (
            f"the result is right, its gradient for {name} is not"
        )


def _mean_dtypes(f: Callable) -> None:
    x, edges, weight = _mean_draw()
    in_dtypes(lambda x, w: f(x, edges, w), lambda x, w: _mean(x, edges, w), x, weight)


def check_weighted_mean(answer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(x, edges, weight)`: the weighted mean of the sources at each target.

    `x` has the shape (N, F), `edges` (2, E), `weight` (E,), in the dtype of `x` and not negative.
    """
    f = leaves(answer, "x", "edges", "weight")
    return verdict(f, [_mean_value, _mean_scale, _mean_none, _mean_gradient, _mean_dtypes])


# ---------------------------------------------------------------- maximum of each graph


def _max(x: Tensor, batch: Tensor, graphs: int) -> Tensor:
    rows = [x[batch == g] for g in range(graphs)]
    return torch.stack([r.amax(0) if len(r) else x.new_zeros(x.shape[1]) for r in rows])


def _max_draw() -> tuple[Tensor, Tensor, int]:
    """Return negative features of nodes in mixed order, and graphs of which some are empty."""
    graphs = between(5, 7)
    full = torch.randperm(graphs - 1)[:-1]  # the last graph and another one are empty
    batch = torch.cat([full, full[torch.randint(len(full), (between(8, 12),))]])
    batch = batch[torch.randperm(len(batch))]
    x = -torch.rand(len(batch), between(2, 4)) - 0.5
    x[:, 1] *= -1
    return x, batch, graphs


def _max_value(f: Callable) -> None:
    for _ in range(4):
        x, batch, graphs = _max_draw()
        got = a_tensor(f(x, batch, graphs), (graphs, x.shape[1]), x.dtype)
        right = _max(x, batch, graphs)
        assert not got.isinf().any(), "a graph without nodes gets -inf, not 0"
        assert not got.isnan().any(), "a graph without nodes gets nan, not 0"
        sizes = batch.bincount(minlength=graphs).clamp(min=1)[:, None]
        mean = torch.zeros_like(right).index_add(0, batch, x) / sizes
        last = torch.zeros_like(right)
        last[batch] = x
        first = torch.zeros_like(right)
        first[:, 0] = right[:, 0]
        for wrong, why in (
            (first, "only the first feature is reduced: expand the index to the shape of x"),
            (
                right.clamp(min=0),
                "negative maxima are 0: the zeros of the output are included, see include_self",
            ),
            (mean, "this is the mean"),
            (-_max(-x, batch, graphs), "this is the minimum"),
            (last, "this is one node per graph, not the maximum"),
        ):
            assert not _is(got, wrong, right), why
        close(got, right)


def _max_one(f: Callable) -> None:
    x = torch.randn(5, 3)
    close(
        f(x, torch.zeros(5, dtype=torch.int64), 1), x.amax(0, keepdim=True), "wrong for one graph"
    )
    one = torch.zeros(1, dtype=torch.int64)
    close(f(x[:1, :1], one, 1), x[:1, :1], "wrong for one node with one feature")
    empty = torch.zeros(0, dtype=torch.int64)
    close(f(x[:0], empty, 2), torch.zeros(2, 3), "wrong without nodes: the result is 0")


def _max_large(f: Callable) -> None:
    x, batch, graphs = _max_draw()
    x = x - 1e30
    close(f(x, batch, graphs), _max(x, batch, graphs), "wrong for features near -1e30", rtol=1e-5)


def _max_infinite(f: Callable) -> None:
    x, batch, graphs = _max_draw()
    x[batch == batch[0]] = -torch.inf
    close(
        f(x, batch, graphs),
        _max(x, batch, graphs),
        "a graph whose features are -inf has nodes: its maximum is -inf",
    )


def _max_gradient(f: Callable) -> None:
    x, batch, graphs = _max_draw()
    got = f(x.requires_grad_(), batch, graphs)
    assert got.requires_grad, "the result has no graph"
    factors = torch.randn_like(got)
    mine, theirs = (
        torch.autograd.grad((out * factors).sum(), x)[0] for out in (got, _max(x, batch, graphs))
    )
    close(mine, theirs, "the result is right, its gradient is not")


def _max_dtypes(f: Callable) -> None:
    x, batch, graphs = _max_draw()
    in_dtypes(lambda x: f(x, batch, graphs), lambda x: _max(x, batch, graphs), x)
    nan_remains(f, x, batch, graphs)


def check_max_readout(answer: Callable[[Tensor, Tensor, int], Tensor]) -> Verdict:
    """Check `answer(x, batch, graphs)`: the maximum over the nodes of each graph.

    `x` has the shape (N, F), `batch` (N,), in any order; the result (graphs, F) is 0 for graphs
    without nodes.
    """
    f = leaves(answer, "x", "batch")
    tests = [_max_value, _max_one, _max_large, _max_infinite, _max_gradient, _max_dtypes]
    return verdict(f, tests)


# ---------------------------------------------------------------- subgraph


def _subgraph(edges: Tensor, nodes: Tensor) -> Tensor:
    place = {node: i for i, node in enumerate(nodes.tolist())}
    pairs = [(place[u], place[v]) for u, v in edges.T.tolist() if u in place and v in place]
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def _subgraph_draw() -> tuple[Tensor, int, Tensor]:
    n = between(8, 11)
    nodes = torch.randperm(n)[: between(4, 6)]
    while torch.equal(nodes, nodes.sort().values) or int(nodes.max()) < len(nodes):
        nodes = torch.randperm(n)[: len(nodes)]  # neither sorted nor their own positions
    inner = nodes[torch.randint(len(nodes), (2, 8))]
    edges = torch.cat([torch.randint(n, (2, 4 * n)), inner, inner[:, :2]], dim=1)
    return edges[:, torch.randperm(edges.shape[1])], n, nodes


def _subgraph_value(f: Callable) -> None:
    for _ in range(4):
        edges, n, nodes = _subgraph_draw()
        right = _subgraph(edges, nodes)
        got = f(edges, n, nodes)
        inside = torch.isin(edges, nodes).all(0)
        by_target = edges[:, torch.isin(edges[1], nodes)]
        for wrong, why in (
            (edges[:, inside], "these are the ids of the whole graph: return positions in nodes"),
            (by_target, "edges from other nodes are included, and ids are those of the graph"),
            (
                _subgraph(edges, nodes.sort().values),
                "these are positions in the sorted nodes: nodes come in any order",
            ),
            (
                right.unique(dim=1),
                "the order of the edges is another, or repeated edges are missing",
            ),
            (right.flip(0), "source and target are exchanged"),
        ):
            same = isinstance(got, Tensor) and got.shape == wrong.shape and (got == wrong).all()
            assert not same, why
        a_tensor(got, right.shape, torch.int64)
        close(got, right)


def _subgraph_edges(f: Callable) -> None:
    edges, n, nodes = _subgraph_draw()
    none = torch.zeros(2, 0, dtype=torch.int64)
    close(f(edges[:, :0], n, nodes), none, "without edges the result has the shape (2, 0)")
    close(f(edges, n, nodes[:0]), none, "without nodes the result has the shape (2, 0)")
    apart = edges[:, ~torch.isin(edges, nodes).any(0)]
    close(f(apart, n, nodes), none, "without edges inside the result has the shape (2, 0)")
    close(f(edges, n, torch.arange(n)), edges, "with all nodes in order the edges are the same")
    loop = nodes[[1, 1]][:, None]
    close(f(loop, n, nodes), torch.tensor([[1], [1]]), "a self-loop of a node is an edge")
    close(f(loop, n, nodes[1:2]), torch.zeros_like(loop), "wrong for one node")
    assert f(edges, n + 5, nodes).shape == _subgraph(edges, nodes).shape, (
        "isolated nodes with large ids change the result"
    )


def check_subgraph(answer: Callable[[Tensor, int, Tensor], Tensor]) -> Verdict:
    """Check `answer(edges, n, nodes)`: the edges between `nodes`, as positions in `nodes`.

    `edges` has the shape (2, E), `nodes` (M,), different and in any order; the result is int64, of
    shape (2, K), in the order of `edges`.
    """
    return verdict(leaves(answer, "edges", "", "nodes"), [_subgraph_value, _subgraph_edges])
