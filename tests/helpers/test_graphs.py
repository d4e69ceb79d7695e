"""Test the helpers, demonstrations and checkers of `graphs`."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from verdicts import expect

from helpers import graphs
from helpers.demos import graphs as demos
from helpers.exercises import Verdict
from helpers.exercises import graphs as exercises
from helpers.memory_caching import footprint

seeds = st.integers(0, 10_000)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_graph(seed: int, n: int, count: int) -> torch.Tensor:
    """Return random directed edges, shape (2, count), with repetitions and self-loops."""
    return torch.randint(n, (2, count), generator=seeded(seed))


def dense(edges: torch.Tensor, n: int, weight: torch.Tensor | None = None) -> torch.Tensor:
    """Return the (n, n) matrix of targets by sources; repeated edges add up."""
    weight = torch.ones(edges.shape[1]) if weight is None else weight
    return weight.new_zeros(n, n).index_put((edges[1], edges[0]), weight, accumulate=True)


# ---------------------------------------------------------------- aggregate


@given(seeds, st.integers(1, 8), st.integers(0, 20), st.sampled_from([(), (3,), (2, 3)]))
@settings(deadline=None, max_examples=60)
def test_aggregate_matches_a_reduction_per_node(seed, n, count, shape):
    target = random_graph(seed, n, count)[1]
    messages = torch.randn(count, *shape, generator=seeded(seed), requires_grad=True)
    reductions = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}
    for (name, reduce), dtype in zip(
        reductions.items(), (torch.int64, torch.int32, torch.int64), strict=True
    ):
        out = graphs.aggregate(messages, target.to(dtype), n, name)
        assert out.shape == (n, *shape)
        for node in range(n):
            own = messages[target == node]
            want = reduce(own, dim=0) if len(own) else torch.zeros(shape)
            torch.testing.assert_close(out[node], want)
        if count:
            assert torch.autograd.grad(out.sum(), messages)[0].isfinite().all()


def test_aggregate_keeps_precision_in_bfloat16():
    ones, target = torch.ones(3000, dtype=torch.bfloat16), torch.zeros(3000, dtype=torch.int64)
    assert torch.zeros(1, dtype=torch.bfloat16).index_add(0, target, ones).item() == 256
    out = graphs.aggregate(ones, target, 1)
    assert out.dtype == torch.bfloat16 and out.tolist() == [3008.0]  # 3000, rounded
    assert graphs.aggregate(ones, target, 1, "mean").tolist() == [1.0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((torch.ones(2), torch.tensor([0, 1]), 2, "add"), 'must be "sum", "mean" or "max"'),
        ((torch.ones(2), torch.tensor([0.0, 1.0]), 2), r"got torch.float32 of shape \(2,\)"),
        ((torch.ones(2), torch.tensor([[0, 1]]), 2), r"int32 of shape \(2,\), got .*\(1, 2\)"),
        ((torch.ones(3), torch.tensor([0, 1]), 2), r"of shape \(3,\), got .*\(2,\)"),
        ((torch.ones(2), torch.tensor([0, 2]), 2), "from 0 to 1, got 0 to 2"),
        ((torch.ones(2), torch.tensor([-1, 0]), 2), "from 0 to 1, got -1 to 0"),
        ((torch.tensor([1, 2]), torch.tensor([0, 1]), 2), "floating point, .* got torch.int64"),
        ((torch.tensor(1.0), torch.tensor([0]), 2), r"of shape \(E, ...\), got .*\(\)"),
        (([1.0], torch.tensor([0]), 2), r"of shape \(E, ...\), got list"),
        ((torch.ones(1), torch.tensor([0]).numpy(), 2), r"int32 of shape \(1,\), got ndarray"),
        ((torch.ones(1), torch.tensor([0]), 2.0), "must be an int that is not negative, got 2.0"),
        ((torch.ones(0), torch.tensor([]).long(), -1), "an int that is not negative, got -1"),
    ],
)
def test_aggregate_rejects_invalid_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        graphs.aggregate(*arguments)


# ---------------------------------------------------------------- normalization


@given(seeds, st.integers(1, 8), st.integers(0, 20))
@settings(deadline=None, max_examples=60)
def test_gcn_norm_matches_the_formula(seed, n, count):
    once = random_graph(seed, n, count)
    both = torch.cat([once, once.flip(0)], dim=1).unique(dim=1)
    edges, weight = graphs.gcn_norm(both, n)
    A = dense(both, n).fill_diagonal_(1)
    root = torch.diag(A.sum(1) ** -0.5)
    torch.testing.assert_close(dense(edges, n, weight), root @ A @ root)
    again = graphs.gcn_norm(edges, n)
    assert torch.equal(again[0], edges) and torch.equal(again[1], weight)


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        (torch.tensor([[0, 1], [1, 3]]), "from 0 to 2, got 0 to 3"),
        (torch.tensor([[0.0], [1.0]]), "got torch.float32"),
        (torch.tensor([[0, 1, 2]]), r"shape \(2, E\), got .*\(1, 3\)"),
        (torch.tensor([0, 1]), r"shape \(2, E\), got .*\(2,\)"),
        (torch.tensor([[0], [1]]).numpy(), r"shape \(2, E\), got ndarray"),
    ],
)
def test_invalid_edge_lists_raise(edges, words):
    for f in (
        lambda: graphs.gcn_norm(edges, 3),
        lambda: graphs.batch_graphs([(torch.ones(3, 1), edges)]),
        lambda: graphs.negative_edges(edges, 3, 1),
    ):
        with pytest.raises(ValueError, match=words):
            f()


# ---------------------------------------------------------------- softmax


@given(seeds, st.integers(1, 6), st.integers(0, 20), st.sampled_from([(), (2,)]))
@settings(deadline=None, max_examples=60)
def test_edge_softmax_matches_softmax_per_target(seed, n, count, heads):
    target = random_graph(seed, n, count)[1]
    scores = 100 * torch.randn(count, *heads, generator=seeded(seed), dtype=torch.float64)
    scores.requires_grad_()
    weight = graphs.edge_softmax(scores, target, n)
    want = torch.zeros_like(scores)
    for node in range(n):
        want = torch.where(
            (target == node).view(-1, *[1] * len(heads)),
            scores.masked_fill((target != node).view(-1, *[1] * len(heads)), -torch.inf).softmax(0),
            want,
        )
    torch.testing.assert_close(weight, want)
    if count:
        factors = torch.randn(scores.shape, generator=seeded(seed), dtype=torch.float64)
        mine, theirs = (torch.autograd.grad((w * factors).sum(), scores)[0] for w in (weight, want))
        torch.testing.assert_close(mine, theirs)


def test_edge_softmax_excludes_scores_of_minus_infinity():
    scores = torch.tensor([-torch.inf, 0.0, -torch.inf, -torch.inf], dtype=torch.float16)
    weight = graphs.edge_softmax(scores, torch.tensor([0, 0, 1, 1]), 3)
    assert weight.tolist() == [0, 1, 0, 0] and weight.dtype == torch.float16
    with pytest.raises(ValueError, match="scores must be floating point"):
        graphs.edge_softmax(torch.tensor([1]), torch.tensor([0]), 1)


# ---------------------------------------------------------------- batches


@given(seeds, st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), min_size=1, max_size=4))
@settings(deadline=None, max_examples=60)
def test_batch_graphs_preserves_results_of_each_graph(seed, sizes):
    alone = [
        (torch.randn(n, 2, generator=seeded(seed + i)), random_graph(seed + i, n or 1, e * (n > 0)))
        for i, (n, e) in enumerate(sizes)
    ]
    x, edges, batch = graphs.batch_graphs(alone)
    out = graphs.aggregate(x[edges[0]], edges[1], len(x))
    want = [graphs.aggregate(a[e[0]], e[1], len(a)) for a, e in alone]
    torch.testing.assert_close(out, torch.cat(want))
    assert batch.bincount(minlength=len(sizes)).tolist() == [n for n, _ in sizes]
    assert torch.equal(batch, batch.sort().values) and batch.dtype == edges.dtype == torch.int64


def test_batch_graphs_accepts_generators_and_rejects_bad_features():
    one = torch.ones(2, 3), torch.tensor([[0], [1]])
    assert graphs.batch_graphs(g for g in (one, one))[1].tolist() == [[0, 2], [1, 3]]
    for x, words in ((torch.tensor(1.0), r"got torch.float32 of shape \(\)"), ([1.0], "got list")):
        with pytest.raises(ValueError, match=words):
            graphs.batch_graphs([(x, one[1])])


def test_batch_graphs_requires_a_graph():
    with pytest.raises(ValueError, match="at least one graph, got none"):
        graphs.batch_graphs([])


# ---------------------------------------------------------------- sampling


def layers(x: torch.Tensor, edges: torch.Tensor, depth: int) -> torch.Tensor:
    for _ in range(depth):
        x = x + graphs.aggregate(x[edges[0]], edges[1], len(x), "mean").tanh()
    return x


@given(seeds, st.integers(1, 10), st.integers(0, 30), st.integers(1, 3), st.data())
@settings(deadline=None, max_examples=60)
def test_sampling_all_edges_preserves_the_outputs(seed, n, count, depth, data):
    edges = random_graph(seed, n, count)
    chosen = data.draw(st.permutations(range(n)))[: data.draw(st.integers(1, n))]
    start = torch.tensor(chosen)
    nodes, local = graphs.sample_neighbours(edges.int(), start, [count + 1] * depth)
    assert nodes.dtype == local.dtype == torch.int64
    assert torch.equal(nodes[: len(start)], start) and len(nodes.unique()) == len(nodes)
    x = torch.randn(n, 2, generator=seeded(seed))
    out = layers(x[nodes], local, depth)[: len(start)]
    torch.testing.assert_close(out, layers(x, edges, depth)[start])


@given(seeds, st.integers(2, 10), st.integers(0, 40), st.integers(0, 3), st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_sample_neighbours_draws_at_most_fanout_distinct_edges(seed, n, count, first, second):
    edges = random_graph(seed, n, count).unique(dim=1)
    start = torch.randperm(n, generator=seeded(seed))[:2]
    nodes, local = graphs.sample_neighbours(edges, start, [first, second], seeded(seed))
    found = {tuple(pair) for pair in nodes[local].T.tolist()}
    assert len(found) == local.shape[1] and found <= {tuple(pair) for pair in edges.T.tolist()}
    degree, drawn = edges[1].bincount(minlength=n), local[1].bincount(minlength=len(nodes))
    assert torch.equal(drawn[:2], degree[start].clamp(max=first))
    assert (drawn[2:] <= second).all()
    again = graphs.sample_neighbours(edges, start, [first, second], seeded(seed))
    assert torch.equal(nodes, again[0]) and torch.equal(local, again[1])


def test_sample_neighbours_draws_edges_uniformly():
    edges = torch.stack([torch.arange(1, 6), torch.zeros(5, dtype=torch.int64)])
    start, generator = torch.tensor([0]), seeded(0)
    drawn = [graphs.sample_neighbours(edges, start, [2], generator)[0][1:] for _ in range(1000)]
    counts = torch.cat(drawn).bincount(minlength=6)[1:]
    assert counts.sum() == 2000 and (counts - 400).abs().max() < 80


@pytest.mark.parametrize(
    ("edges", "start", "fanouts", "words"),
    [
        ([[0], [1]], torch.tensor([1, 1]), [2], "without duplicates"),
        ([[0], [1]], torch.tensor([1.0]), [2], "got torch.float32"),
        ([[0], [1]], torch.tensor([[1]]), [2], r"shape \(B,\), .* \(1, 1\)"),
        ([[0], [1]], torch.tensor([1]), [-1], r"not negative, got \[-1\]"),
        ([[0], [1]], torch.tensor([1]), [2.5], r"must be ints .* got \[2.5\]"),
        ([[0], [1]], torch.tensor([-1]), [1], "from 0 to 1, got -1 to 1"),
        ([[0], [1]], [1], [1], "of shape .*got list"),
        ([[0], [-1]], torch.tensor([1]), [1], "got -1 to 1"),
        ([0, 1], torch.tensor([1]), [1], r"shape \(2, E\)"),
    ],
)
def test_sample_neighbours_rejects_invalid_arguments(edges, start, fanouts, words):
    with pytest.raises(ValueError, match=words):
        graphs.sample_neighbours(torch.tensor(edges), start, fanouts)


def test_sample_neighbours_without_fanouts_returns_only_seeds():
    nodes, local = graphs.sample_neighbours(torch.tensor([[0], [1]]), torch.tensor([1]), [])
    assert nodes.tolist() == [1] and local.shape == (2, 0)
    nodes, local = graphs.sample_neighbours(torch.tensor([[0], [1]]).int(), torch.tensor([1]), [])
    assert local.dtype == torch.int64


def test_sample_neighbours_accepts_a_generator_of_fanouts():
    edges = torch.tensor([[0, 1], [1, 2]])
    nodes, local = graphs.sample_neighbours(edges, torch.tensor([2]), (k for k in (1, 1)))
    assert nodes.tolist() == [2, 1, 0] and local.tolist() == [[1, 2], [0, 1]]


# ---------------------------------------------------------------- negative edges


@given(seeds, st.integers(2, 8), st.integers(0, 20), st.data())
@settings(deadline=None, max_examples=60)
def test_negative_edges_returns_distinct_unlinked_pairs(seed, n, count, data):
    edges = random_graph(seed, n, count)
    linked = {frozenset(pair) for pair in edges.T.tolist() if pair[0] != pair[1]}
    free = n * (n - 1) // 2 - len(linked)
    number = data.draw(st.integers(0, free))
    found = graphs.negative_edges(edges, n, number, seeded(seed))
    pairs = {frozenset(pair) for pair in found.T.tolist()}
    assert found.shape == (2, number) and len(pairs) == number and not pairs & linked
    assert (found[0] < found[1]).all()
    assert torch.equal(found, graphs.negative_edges(edges, n, number, seeded(seed)))
    with pytest.raises(ValueError, match=f"from 0 to {free}, .*got {free + 1}"):
        graphs.negative_edges(edges, n, free + 1)


def test_negative_edges_draws_pairs_uniformly():
    edges, generator = torch.tensor([[0], [1]]), seeded(0)
    drawn = torch.cat([graphs.negative_edges(edges, 4, 2, generator) for _ in range(1000)], dim=1)
    counts = (drawn[0] * 4 + drawn[1]).bincount(minlength=16)
    assert counts[1] == 0 and ((counts[counts > 0] - 400).abs() < 80).all()
    assert (counts > 0).sum() == 5


def test_negative_edges_finds_the_last_pair_of_a_dense_graph():
    edges = torch.triu_indices(2000, 2000, 1)[:, torch.arange(1_999_000) != 7]
    assert graphs.negative_edges(edges, 2000, 1).tolist() == [[0], [8]]
    with pytest.raises(TypeError, match="count must be an int, got 1.0"):
        graphs.negative_edges(edges, 2000, 1.0)


# ---------------------------------------------------------------- demonstrations


def test_a_community_graph_is_undirected_and_denser_inside():
    edges, community = demos.community_graph(400, generator=seeded(3))
    assert torch.equal(edges.unique(dim=1), edges.flip(0).unique(dim=1))
    assert (edges[0] != edges[1]).all() and edges.shape == edges.unique(dim=1).shape
    same = (community[edges[0]] == community[edges[1]]).float().mean()
    assert 0.68 < same < 0.82  # 0.06 / (0.06 + 2 * 0.01) = 0.75
    assert community.bincount(minlength=3).min() > 100


def test_smoothing_returns_the_similarity_after_each_layer():
    edges, _ = demos.community_graph(60, inside=0.2, outside=0.1, generator=seeded(0))
    edges, weight = graphs.gcn_norm(edges, 60)
    P, x = dense(edges, 60, weight), torch.randn(60, 16, generator=seeded(5))
    h = 0.7 * P @ (0.7 * P @ x + 0.3 * x) + 0.3 * x
    similar = nn.functional.cosine_similarity(h[:, None], h, dim=2).mean().item()
    assert demos.smoothing(edges, weight, 2, 0.3, seeded(5))[2] == pytest.approx(similar, abs=1e-4)
    assert demos.smoothing(edges, weight, 30, 0.0, seeded(5))[-1] > 0.99
    figure = demos.draw_smoothing(edges, weight, layers=4)
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [5, 5]


# ---------------------------------------------------------------- exercises


def mean(x, edges, weight):
    source, target = edges
    total = torch.zeros_like(x).index_add(0, target, weight[:, None] * x[source])
    scale = x.new_zeros(len(x)).index_add(0, target, weight)
    return total / scale.masked_fill(scale == 0, 1)[:, None]


def mean_by_sparse(x, edges, weight):
    A = torch.sparse_coo_tensor(edges.flip(0), weight, (len(x), len(x)))
    scale = torch.sparse.mm(A, x.new_ones(len(x), 1))
    return torch.sparse.mm(A, x) / scale.masked_fill(scale == 0, 1)


def mean_by_scatter(x, edges, weight):
    index = edges[1][:, None].expand(-1, x.shape[1])
    total = torch.zeros_like(x).scatter_add(0, index, weight[:, None] * x[edges[0]])
    scale = torch.zeros_like(x).scatter_add(0, index, weight[:, None].expand(index.shape))
    return torch.where(scale > 0, total / scale.where(scale > 0, 1), 0)


def maximum(x, batch, n):
    index = batch[:, None].expand_as(x)
    zeros = x.new_zeros(n, x.shape[1])
    return zeros.scatter_reduce(0, index, x, "amax", include_self=False)


def maximum_by_loop(x, batch, n):
    rows = [x[batch == g] for g in range(n)]
    return torch.stack([r.amax(0) if len(r) else x.new_zeros(x.shape[1]) for r in rows])


def maximum_by_index_reduce(x, batch, n):
    return x.new_zeros(n, x.shape[1]).index_reduce(0, batch, x, "amax", include_self=False)


def maximum_by_infinity(x, batch, n):
    index = batch[:, None].expand_as(x)
    top = x.new_full((n, x.shape[1]), -torch.inf).scatter_reduce(0, index, x, "amax")
    return top.masked_fill((batch.bincount(minlength=n) == 0)[:, None], 0)


def subgraph(edges, n, nodes):
    position = torch.full((n,), -1)
    position[nodes] = torch.arange(len(nodes))
    local = position[edges]
    return local[:, (local >= 0).all(0)]


def subgraph_by_search(edges, n, nodes):
    inside = edges[:, torch.isin(edges, nodes).all(0)]
    order = nodes.argsort()
    return order[torch.searchsorted(nodes[order], inside)] if len(nodes) else inside


@pytest.mark.parametrize(
    ("check", "right", "checks"),
    [
        (exercises.check_weighted_mean, mean, 5),
        (exercises.check_weighted_mean, mean_by_sparse, 5),
        (exercises.check_weighted_mean, mean_by_scatter, 5),
        (exercises.check_max_readout, maximum, 6),
        (exercises.check_max_readout, maximum_by_loop, 6),
        (exercises.check_max_readout, maximum_by_index_reduce, 6),
        (exercises.check_max_readout, maximum_by_infinity, 6),
        (exercises.check_subgraph, subgraph, 2),
        (exercises.check_subgraph, subgraph_by_search, 2),
    ],
)
def test_right_answers_pass_for_every_draw(check, right, checks):
    for _ in range(20):
        assert check(right) == Verdict(True, f"correct: {checks} checks passed")


def lost(x, edges, weight):
    out = torch.zeros_like(x)
    out[edges[1]] += weight[:, None] * x[edges[0]]
    return out


def total(x, edges, weight):
    return torch.zeros_like(x).index_add(0, edges[1], weight[:, None] * x[edges[0]])


def count(x, edges):
    return edges[1].bincount(minlength=len(x)).clamp(min=1)[:, None]


def scale(x, edges, weight):
    return x.new_zeros(len(x)).index_add(0, edges[1], weight)[:, None]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lost, "keeps one message per node"),
        (lambda x, e, w: lost(x, e, w) / count(x, e), "keeps one message per node"),
        (total, "this is the sum"),
        (lambda x, e, w: total(x, e, w) / count(x, e), "not by the number of edges"),
        (lambda x, e, w: mean(x, e, torch.ones_like(w)), "the weights are ignored"),
        (lambda x, e, w: mean(x, e.flip(0), w), "source and target are exchanged"),
        (lambda x, e, w: total(x, e, w) / scale(x, e, w), "nan: a node without edges"),
        (lambda x, e, w: (total(x, e, w) / scale(x, e, w)).nan_to_num(), "nan in the inputs"),
        (
            lambda x, e, w: torch.where(
                scale(x, e, w) == 0, x.new_zeros(()), total(x, e, w) / scale(x, e, w)
            ),
            "is not finite",
        ),
        (lambda x, e, w: total(x, e, w) / scale(x, e, w).clamp(min=1e-6), "small weights"),
        (lambda x, e, w: total(x, e, w) / (scale(x, e, w) + 1e-9), "small weights"),
        (lambda x, e, w: total(x, e, w) / scale(x, e, w).clamp(min=1e-12), "small weights"),
        (lambda x, e, w: total(x, e, w) / (scale(x, e, w) + 1e-20), "small weights"),
        (lambda x, e, w: total(x, e, w) / scale(x, e, w).clamp(min=1e-37), "or huge"),
        (lambda x, e, w: mean(x.detach(), e, w), "no gradient for x"),
        (lambda x, e, w: mean(x, e, w.detach()), "no gradient for weight"),
        (lambda x, e, w: mean(x.detach(), e, w.detach()), "the result has no graph"),
        (lambda x, e, w: mean(x.float(), e, w.float()), "with float64"),
        (lambda x, e, w: mean(x, e.unique(dim=1), torch.ones(e.unique(dim=1).shape[1])), "ignored"),
        (lambda x, e, w: mean(x, e, w) + 1e-2, "is "),
        (lambda x, e, w: mean(x, e, w).tolist(), "expected a tensor, got list"),
        (lambda x, e, w: mean(x, e, w)[: int(e.max()) + 1] if e.numel() else x, "shape"),
    ],
)
def test_wrong_means_are_reported(wrong, says):
    for _ in range(3):
        expect(exercises.check_weighted_mean(wrong), says)


def zeros_included(x, batch, n):
    index = batch[:, None].expand_as(x)
    return x.new_zeros(n, x.shape[1]).scatter_reduce(0, index, x, "amax")


def infinities(x, batch, n):
    index = batch[:, None].expand_as(x)
    return x.new_full((n, x.shape[1]), -torch.inf).scatter_reduce(0, index, x, "amax")


def one_node(x, batch, n):
    out = x.new_zeros(n, x.shape[1])
    out[batch] = x
    return out


def one_feature(x, batch, n):
    zeros = x.new_zeros(n, x.shape[1])
    return zeros.scatter_reduce(0, batch[:, None], x, "amax", include_self=False)


def very_negative(x, batch, n):
    index = batch[:, None].expand_as(x)
    top = x.new_full((n, x.shape[1]), -1e9).scatter_reduce(0, index, x, "amax")
    return top.masked_fill(top == -1e9, 0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (zeros_included, "negative maxima are 0"),
        (infinities, "gets -inf, not 0"),
        (one_node, "one node per graph"),
        (one_feature, "only the first feature is reduced"),
        (lambda x, b, n: graphs.aggregate(x, b, n, "mean"), "this is the mean"),
        (lambda x, b, n: -maximum(-x, b, n), "this is the minimum"),
        (lambda x, b, n: maximum(x, b, int(b.max()) + 1), "expected shape"),
        (very_negative, "near -1e30"),
        (lambda x, b, n: infinities(x, b, n).masked_fill(infinities(x, b, n).isinf(), 0), "-inf"),
        (lambda x, b, n: maximum(x.detach(), b, n), "the result has no graph"),
        (lambda x, b, n: maximum(x.float(), b, n), "with float64"),
        (lambda x, b, n: maximum(x, b.sort().values, n), "is "),
        (lambda x, b, n: maximum(x, b, n).tolist(), "expected a tensor, got list"),
    ],
)
def test_wrong_maxima_are_reported(wrong, says):
    for _ in range(3):
        expect(exercises.check_max_readout(wrong), says)


def test_drawn_nodes_are_unsorted_and_differ_from_positions():
    for seed in range(2000):
        torch.manual_seed(seed)
        nodes = exercises._subgraph_draw()[2]
        assert nodes.max() >= len(nodes) and not torch.equal(nodes, nodes.sort().values)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda e, n, m: e[:, torch.isin(e[1], m)], "edges from other nodes"),
        (lambda e, n, m: e[:, torch.isin(e, m).all(0)], "ids of the whole graph"),
        (lambda e, n, m: subgraph(e, n, m.sort().values), "positions in the sorted nodes"),
        (lambda e, n, m: subgraph(e, n, m).unique(dim=1), "repeated edges are missing"),
        (lambda e, n, m: subgraph(e, n, m).flip(0), "source and target are exchanged"),
        (lambda e, n, m: subgraph(e, n, m).float(), "expected torch.int64"),
        (lambda e, n, m: subgraph(e, n, m)[:, 1:], "expected shape"),
        (lambda e, n, m: subgraph(e[:, e[0] != e[1]], n, m), "expected shape"),
        (lambda e, n, m: subgraph(e, n, m).T, "expected shape"),
        (lambda e, n, m: subgraph(e, n, m).tolist(), "expected a tensor, got list"),
        (lambda e, n, m: subgraph(e, int(e.max()) + 1, m), "RuntimeError"),
    ],
)
def test_wrong_subgraphs_are_reported(wrong, words):
    for _ in range(3):
        found = exercises.check_subgraph(wrong)
        assert not found.passed and (words in found.message or "Error" in found.message), found


def test_max_check_accepts_a_maximum_at_the_last_node(monkeypatch):
    """The last node of each graph may have the maximum by chance."""
    x, batch = torch.tensor([[-2.0, 1.0], [-1.0, 2.0]]), torch.tensor([0, 0])
    monkeypatch.setattr(exercises, "_max_draw", lambda: (x, batch, 2))
    exercises._max_value(maximum)


# ---------------------------------------------------------------- sentences of the chapter


@pytest.mark.parametrize("rows", [[0, 1, 2], [0, 2]])
def test_isolated_node_nan_reaches_only_weights_after_the_mean(rows):
    edges, y = torch.tensor([[0, 2], [2, 0]]), torch.tensor([0, 1, 2])
    first, second = nn.Linear(4, 5), nn.Linear(5, 3)
    h = first(torch.randn(3, 4))
    mean = torch.zeros_like(h).index_add(0, edges[1], h[edges[0]]) / edges[1].bincount()[:, None]
    loss = nn.functional.cross_entropy(second(mean)[rows], y[rows])
    loss.backward()
    assert loss.isnan() == (1 in rows)
    assert second.weight.grad.isnan().all() and first.weight.grad.isfinite().all()


def test_float32_ids_are_exact_up_to_2_to_the_24():
    assert torch.tensor([2.0**24 - 1, 2**24]).long().tolist() == [2**24 - 1, 2**24]
    assert torch.tensor([2**24 + 1.0]).long().item() == 2**24


def test_single_column_index_reduces_only_the_first_feature():
    messages, index = torch.ones(2, 3), torch.tensor([[0], [0]])
    out = torch.zeros(1, 3).scatter_reduce(0, index, messages, "amax", include_self=False)
    assert out.tolist() == [[1, 0, 0]]


def test_self_loops_are_duplicated_by_adding_reverse_edges():
    edges = torch.tensor([[0, 1], [0, 2]])
    both = torch.cat([edges, edges.flip(0)], dim=1)
    assert (both == 0).all(0).sum() == 2 and (both.unique(dim=1) == 0).all(0).sum() == 1


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_gradient_of_sparse_values_allocates_a_dense_matrix(layout):
    edges = random_graph(3, 40, 90).unique(dim=1)
    x = torch.randn(40, 3, requires_grad=True)
    A = torch.sparse_coo_tensor(edges, torch.ones(edges.shape[1]), (40, 40)).to_sparse_csr()

    def product(weight):
        if layout == "coo":
            return torch.sparse.mm(torch.sparse_coo_tensor(edges, weight, (40, 40)), x)
        parts = A.crow_indices(), A.col_indices(), weight
        return torch.sparse.mm(torch.sparse_csr_tensor(*parts, (40, 40)), x)

    for learned in (True, False):
        loss = product(torch.rand(edges.shape[1], requires_grad=learned)).sum()
        assert (footprint(loss.backward).peak > 4 * 40 * 40) == learned


@given(seeds)
@settings(deadline=None, max_examples=20)
def test_isolated_node_makes_all_dense_outputs_nan(seed):
    A = torch.zeros(4, 4)
    A[:3, :3] = 1 - torch.eye(3)
    scale = A.sum(1) ** -0.5
    out = (scale[:, None] * A * scale) @ torch.randn(4, 2, generator=seeded(seed))
    assert out.isnan().all()


def test_sparse_product_does_not_save_the_messages():
    x, weight = torch.randn(50, 7, requires_grad=True), torch.rand(400, requires_grad=True)
    edges = random_graph(0, 50, 400)
    A = torch.sparse_coo_tensor(edges.flip(0), weight, (50, 50))

    def saved(f):
        shapes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: shapes.append(tuple(t.shape)) or t, lambda t: t
        ):
            f()
        return shapes

    assert (400, 7) not in saved(lambda: torch.sparse.mm(A, x))
    by_edges = saved(
        lambda: torch.zeros(50, 7).index_add(0, edges[1], weight[:, None] * x[edges[0]])
    )
    assert (400, 7) in by_edges


def test_sparse_layouts_use_the_expected_bytes():
    edges = random_graph(1, 30, 100).unique(dim=1)
    count = edges.shape[1]
    A = torch.sparse_coo_tensor(edges, torch.ones(count), (30, 30)).coalesce()
    assert A.indices().nbytes + A.values().nbytes == 20 * count
    csr = A.to_sparse_csr()
    parts = csr.crow_indices(), csr.col_indices(), csr.values()
    assert sum(t.nbytes for t in parts) == 12 * count + 8 * 30 + 8


def test_two_hop_diagonal_equals_the_degrees():
    """The weight of a node's own label after two hops is its degree."""
    edges, _ = demos.community_graph(40, inside=0.2, outside=0.2, generator=seeded(0))
    A = dense(edges, 40)
    assert torch.equal((A @ A).diagonal(), A.sum(1))


def test_csr_value_gradients_match_the_dense_product():
    edges = random_graph(2, 20, 80).unique(dim=1)
    weight, x = torch.rand(edges.shape[1], requires_grad=True), torch.randn(20, 3)
    A = torch.sparse_coo_tensor(edges, torch.ones(edges.shape[1]), (20, 20)).to_sparse_csr()
    csr = torch.sparse_csr_tensor(A.crow_indices(), A.col_indices(), weight, (20, 20))
    full = torch.zeros(20, 20).index_put((edges[0], edges[1]), weight)  # sorted by unique
    by_csr, by_full = (torch.autograd.grad((P @ x).square().sum(), weight)[0] for P in (csr, full))
    torch.testing.assert_close(by_csr, by_full)


def gcn(x, edges, weight):
    for _ in range(2):
        x = dense(edges, len(x), weight) @ x
        x = x.tanh()
    return x


def test_sampled_gcn_requires_the_degrees_of_the_full_graph():
    edges, _ = demos.community_graph(60, inside=0.1, outside=0.1, generator=seeded(0))
    x, start = torch.randn(60, 3, generator=seeded(1)), torch.tensor([5, 3])
    edges, weight = graphs.gcn_norm(edges, 60)
    want, A = gcn(x, edges, weight)[start], dense(edges, 60, weight)
    nodes, local = graphs.sample_neighbours(edges, start, [60, 60])
    own = A[nodes[local[1]], nodes[local[0]]]
    torch.testing.assert_close(gcn(x[nodes], local, own)[:2], want)
    cut = gcn(x[nodes], *graphs.gcn_norm(local, len(nodes)))[:2]
    assert not torch.allclose(cut, want, atol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_vanishes_in_the_first_of_sixteen_layers(seed):
    torch.manual_seed(seed)
    edges, y = demos.community_graph(300)
    edges, weight = graphs.gcn_norm(edges, 300)
    P, x, norms = dense(edges, 300, weight), torch.randn(300, 3), []
    for depth in (2, 16):
        first, last = nn.Linear(3, 16), nn.Linear(16, 3)
        h = first(x).relu()
        for layer in [nn.Linear(16, 16) for _ in range(depth)]:
            h = layer(P @ h).relu()
        nn.functional.cross_entropy(last(h), y).backward()
        norms.append(first.weight.grad.norm())
    assert norms[1] < norms[0] / 100


def test_gcn_norm_uses_in_degrees():
    edges, weight = graphs.gcn_norm(torch.tensor([[0, 1], [2, 2]]), 3)  # in-degrees 1, 1 and 3
    assert edges.tolist() == [[0, 1, 0, 1, 2], [2, 2, 0, 1, 2]]
    torch.testing.assert_close(weight, torch.tensor([1 / 3**0.5, 1 / 3**0.5, 1, 1, 1 / 3]))


@pytest.mark.parametrize(
    ("graph", "words"),
    [((torch.ones(2, 1), torch.tensor([[0], [1]]), 1), "tuple of 3"), ({"x": 1}, "got dict")],
)
def test_batch_graphs_requires_pairs(graph, words):
    with pytest.raises(ValueError, match=f"expected pairs \\(features, edges\\), .*{words}"):
        graphs.batch_graphs([graph])
