"""The performance chapter's helpers against torch, and its exercises with planted wrong answers."""

from __future__ import annotations

import math
import time
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader

from helpers import performance
from helpers.demos import performance as demos
from helpers.exercises import performance as exercises


def expect(result, says):
    assert result.passed == (says is None), result
    assert says is None or says in result.message, result


# ---------------------------------------------------------------- shares


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves."""
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def move(seconds):
        now[0] += seconds

    return move


@pytest.mark.parametrize(("load", "work"), [(3.0, 1.0), (1.0, 3.0), (0.0, 2.0), (2.0, 0.0)])
def test_shares_are_those_of_the_clock(clock, load, work):
    def batches():
        for i in range(6):
            clock(100.0 if i == 0 else load)  # the first starts workers
            yield i

    seen = []

    def step(batch):
        seen.append(batch)
        clock(50.0 if batch == 0 else work)

    found = performance.shares(batches(), step)
    assert seen == list(range(6))
    assert found == {"data": load / (load + work), "step": work / (load + work)}


def test_shares_stops_in_time_and_takes_any_batch(clock):
    asked = []

    def endless():
        while True:
            asked.append(0)
            clock(1.0)
            yield None

    assert performance.shares(endless(), lambda _: clock(1.0), batches=3)["data"] == 0.5
    assert len(asked) == 4
    assert performance.shares([0, 0], lambda _: None) == {"data": 0.0, "step": 0.0}


@pytest.mark.parametrize("loader", [[], [1], iter([2])])
def test_shares_needs_two_batches(loader):
    with pytest.raises(ValueError, match="at least two batches"):
        performance.shares(loader, lambda _: None)


def test_shares_needs_a_number_of_batches():
    with pytest.raises(ValueError, match="batches must be at least 1, got 0"):
        performance.shares([1, 2], lambda _: None, batches=0)


def test_shares_of_a_slow_loader():
    found = performance.shares(demos.Photos(0.01, 8), nn.Linear(4, 2))
    assert found["data"] > 0.5 and math.isclose(sum(found.values()), 1)


# ---------------------------------------------------------------- operators


@given(st.integers(0, 20))
@settings(deadline=None)
def test_operators_are_counted(n):
    x = torch.ones(3)

    def run():
        for _ in range(n):
            x.add(1)

    assert performance.operators(run) == Counter({"aten.add": n} if n else {})


def test_operators_of_a_backward_pass_and_without_profiler_ranges():
    w = nn.Parameter(torch.ones(3))

    def run():
        with torch.profiler.record_function("mine"):
            w.exp().sum().backward()

    found = performance.operators(run)
    assert found["aten.exp"] == 1 and found["aten.mul"] == 1
    assert all(name.startswith("aten.") for name in found)


# ---------------------------------------------------------------- waits

X, Y, INDEX = torch.rand(4), torch.rand(()), torch.tensor([0, 3, 1])
N, MASK = torch.full((1,), 2), torch.tensor([True, False, True, True])


def put(index, value, shape=(4,)):
    x = torch.ones(shape)
    x[index] = value


# The table of `test_sync_warning` in PyTorch's test/test_torch.py, but for indices on another
# device, and what is read on the CPU.
FREE = {
    "put a number by mask": lambda: put(MASK, 1.0),
    "put by index": lambda: put(INDEX, Y),
    "get by index": lambda: X[INDEX],
    "one_hot with classes": lambda: F.one_hot(INDEX, num_classes=4),
    "one_hot with classes by position": lambda: F.one_hot(INDEX, 4),
    "randperm": lambda: torch.randperm(20000),
    "repeat with size": lambda: torch.repeat_interleave(X, 2, output_size=8),
    "repeat by tensor with size": lambda: torch.repeat_interleave(X, N, output_size=8),
    "any": lambda: torch.any(Y),
    "put a number by mask and slice": lambda: put((slice(None), MASK), 1.0, (3, 4)),
    "where of three": lambda: torch.where(MASK, X, 0),
    "clip": lambda: nn.utils.clip_grad_norm_([grown()], 1.0),
    "cross_entropy": lambda: F.cross_entropy(torch.randn(2, 3), torch.tensor([0, 1])),
    "to the CPU, on the CPU": lambda: X.to("cpu"),
    "batch norm": lambda: nn.BatchNorm1d(3)(torch.randn(4, 3)),
    "argmax": lambda: X.argmax(),
    "split": lambda: X.split([1, 3]),
}
WAITING = {
    "put a tensor by mask": (lambda: put(MASK, Y), "__setitem__"),
    "put by mask and index": (
        lambda: put((INDEX, torch.ones(3).bool()), 1.0, (4, 3)),
        "__setitem__",
    ),
    "get by mask": (lambda: X[MASK], "__getitem__"),
    "get by mask and slice": (lambda: torch.ones(3, 4)[:, MASK], "__getitem__"),
    "nonzero": (lambda: X.nonzero(), "nonzero"),
    "if": (lambda: X if Y else -X, "__bool__"),
    "one_hot": (lambda: F.one_hot(INDEX), "one_hot"),
    "repeat by tensor": (lambda: torch.repeat_interleave(X, N), "repeat_interleave"),
    "item": (lambda: Y.item(), "item"),
    "float": (lambda: float(Y), "__float__"),
    "format": (lambda: f"{Y:.2f}", "__format__"),
    "print": (lambda: str(X), "__repr__"),
    "tolist": (lambda: X.tolist(), "tolist"),
    "cpu": (lambda: X.cpu(), "cpu"),
    "numpy": (lambda: X.numpy(), "numpy"),
    "masked_select": (lambda: X.masked_select(MASK), "masked_select"),
    "where of one": (lambda: torch.where(MASK), "where"),
    "equal": (lambda: torch.equal(X, X), "equal"),
    "allclose": (lambda: torch.allclose(X, X), "allclose"),
    "unique": (lambda: torch.unique(INDEX), "unique"),
    "range": (lambda: range(INDEX[0]), "__index__"),
    "in": (lambda: 1 in INDEX, "__contains__"),
    "bincount": (lambda: torch.bincount(INDEX), "bincount"),
    "inverse": (lambda: torch.linalg.inv(torch.eye(2)), "linalg_inv"),
    "clip and raise": (
        lambda: nn.utils.clip_grad_norm_([grown()], 1.0, error_if_nonfinite=True),
        "__bool__",
    ),
}


def grown():
    p = nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    return p


@pytest.mark.parametrize("name", FREE)
def test_what_does_not_wait(name):
    assert performance.waits(FREE[name]) == []


@pytest.mark.parametrize("name", WAITING)
def test_what_waits(name):
    run, call = WAITING[name]
    (found,) = performance.waits(run)
    assert found.call == call and ("lambda" in found.line or found.line == "x[index] = value")


def test_lines_are_those_of_the_reader_and_waits_come_in_order():
    def run():
        loss = X.sum()
        if loss > 0:
            float(loss)
        return max(X)

    found = performance.waits(run)
    assert [w.line for w in found] == ["if loss > 0:", "float(loss)", *["return max(X)"] * 3]
    assert performance.waits(lambda: None) == []


def test_a_wait_in_a_backward_pass_is_seen():
    class Peeks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, upstream):
            return upstream * upstream.sum().item()

    x = torch.ones(2, requires_grad=True)
    (found,) = performance.waits(lambda: Peeks.apply(x).sum().backward())
    assert found.line == "return upstream * upstream.sum().item()"


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam])
def test_optimizers_that_count_on_the_cpu_are_left_out(kind):
    optimizer = kind([grown()])
    assert performance.waits(optimizer.step) == []


def test_lbfgs_waits():
    p = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.LBFGS([p], max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    assert performance.waits(lambda: optimizer.step(closure))


def test_what_raises_leaves_no_mode_behind():
    with pytest.raises(ZeroDivisionError):
        performance.waits(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        performance.operators(lambda: 1 / 0)
    assert performance.operators(lambda: X + X) == {"aten.add": 1}


def test_copies_from_a_device_to_the_cpu():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        try:
            x = torch.empty(3, device="cuda")
        except (RuntimeError, AssertionError):
            pytest.skip("PyTorch is not built for CUDA")
        target = torch.empty(3)
        found = performance.waits(lambda: (x.to("cpu"), x.cpu(), target.copy_(x)))
        assert [w.call for w in found] == ["to", "cpu", "copy_"]
        assert performance.waits(lambda: x.to("cpu", non_blocking=True)) == []
        assert performance.waits(lambda: target.to("cuda")) == []
        assert performance.waits(lambda: x.half()) == []


# ---------------------------------------------------------------- compilations


def test_counting_and_reasons():
    graphs = performance.Counting()
    compiled = torch.compile(lambda x, s: x * len(s), backend=graphs, dynamic=False)
    assert len(graphs) == 0
    assert torch.equal(compiled(torch.ones(3), "ab"), 2 * torch.ones(3)) and len(graphs) == 1
    assert performance.recompiles(compiled, torch.zeros(3), "ab") is None
    assert "expected 3, actual 4" in performance.recompiles(compiled, torch.ones(4), "ab")
    assert "s == 'ab'" in performance.recompiles(compiled, torch.ones(3), "abc")
    assert "dtype mismatch" in performance.recompiles(compiled, torch.ones(3).double(), "ab")
    assert len(graphs) == 1
    assert all(isinstance(graph, torch.fx.GraphModule) for graph in graphs.graphs)


def test_an_error_of_the_function_is_its_own():
    root = torch.compile(lambda x: torch.linalg.cholesky(x), backend="eager")
    assert performance.recompiles(root, torch.eye(2)) == "nothing is compiled yet"
    root(torch.eye(2))
    with pytest.raises(RuntimeError, match="positive-definite"):
        performance.recompiles(root, -torch.eye(2))


def test_numbers_in_arguments_become_dynamic_and_integers_in_attributes_do_not():
    class Scaled(nn.Module):
        by = 0

        def forward(self, x):
            return x * self.by

    model, graphs = Scaled(), performance.Counting()
    compiled = torch.compile(model, backend=graphs)
    for model.by in range(2, 7):
        compiled(torch.ones(2))
    assert len(graphs) == 5

    graphs = performance.Counting()
    compiled = torch.compile(lambda x, by: x * by, backend=graphs)
    for by in range(2, 7):
        compiled(torch.ones(2), by)
    assert len(graphs) == 2


# ---------------------------------------------------------------- stand-ins


@given(
    st.integers(1, 5), st.integers(0, 9), st.integers(1, 5), st.integers(1, 9), st.integers(0, 4)
)
def test_queue_keeps_the_rules_of_a_queue(steps, python, launches, work, gap):
    free = demos.queue(steps, python, launches, work, gap)
    waits = demos.queue(steps, python, launches, work, gap, wait=True)
    assert len(free.launches) == len(waits.launches) == steps * launches
    assert free.free <= waits.free and demos.busy(free) >= demos.busy(waits)
    for (_, _, end), (made, begin, _) in zip(free.launches, free.launches[1:], strict=False):
        assert begin == max(end, made)
    assert 0 < demos.busy(free) <= 1


def test_busy_needs_a_launch():
    with pytest.raises(ValueError, match="at least one launch"):
        demos.busy(demos.queue(steps=0))


def test_the_cases_have_the_same_work():
    done = {
        name: sum(end - begin for _, begin, end in demos.queue(**options).launches)
        for name, options in demos.CASES.items()
    }
    assert len(set(done.values())) == 1
    assert demos.draw_queue().labels()[0] == "slow loading"


def test_photos_and_threads():
    begin = time.perf_counter()
    assert [x.shape for x in demos.Photos(0.01, 3)] == [(8, 4)] * 3
    assert time.perf_counter() - begin > 0.02
    assert len(demos.Photos(0.01)) == 12
    assert list(map(int, DataLoader(demos.Threads(), num_workers=1))) == [1, 1]
    assert list(demos.Threads()) == [torch.get_num_threads()] * 2


# ---------------------------------------------------------------- exercises


def split_time(loader, step, clock, wait):
    data = compute = 0.0
    asked = clock()
    while (batch := next(loader, None)) is not None:
        got = clock()
        step(batch)
        wait()
        data, compute = data + got - asked, compute + clock() - got
        asked = clock()
    return data, compute


def split_otherwise(loader, step, clock, wait):
    begin, compute = clock(), 0
    for batch in loader:
        wait()
        t = clock()
        step(batch)
        wait()
        compute += clock() - t
    return [clock() - begin - compute, compute]


def without_waiting(loader, step, clock, wait):
    return split_time(loader, step, clock, lambda: None)


def inside(loader, step, clock, wait):
    compute = 0.0
    for batch in loader:
        begin = clock()
        step(batch)
        wait()
        compute += clock() - begin
    return 0.0, compute


def exchanged(*arguments):
    return split_time(*arguments)[::-1]


def late(loader, step, clock, wait):
    data, compute = split_time(loader, step, clock, lambda: None)
    begin = clock()
    wait()
    return data, compute + clock() - begin


def shares_only(*arguments):
    data, compute = split_time(*arguments)
    return data / (data + compute), compute / (data + compute)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (split_time, None),
        (split_otherwise, None),
        (without_waiting, "until their work was done"),
        (inside, "data took"),
        (exchanged, "exchanged"),
        (late, "data took"),
        (shares_only, "data took"),
        (lambda loader, step, clock, wait: sum(1 for _ in loader), "step ran 0 times"),
        (lambda loader, step, clock, wait: [step(b) for b in loader], "return a pair"),
        (lambda loader, step, clock, wait: [(step(b), step(b)) for b in loader], "once for each"),
    ],
)
def test_split_time_is_checked(answer, says):
    for _ in range(5):
        result = exercises.check_split_time(answer)
        if answer in (exchanged, late) and not result.passed:
            continue  # another sentence where times happen to be equal
        expect(result, says)


def nearest(points, centres):
    return (points[:, None] - centres).square().sum(-1).argmin(1)


def nearest_loop(points, centres):
    found = [int((point - centres).norm(dim=-1).argmin()) for point in points]
    return torch.tensor(found, dtype=torch.int64)


def nearest_over_centres(points, centres):
    return torch.stack([(points - c).norm(dim=1) for c in centres], 1).argmin(1)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (nearest, None),
        (lambda p, c: torch.cdist(p, c).argmin(1), None),
        (lambda p, c: torch.linalg.vector_norm(p[:, None] - c, dim=2).min(1).indices, None),
        (lambda p, c: (p.unsqueeze(1) - c).abs().sum(2).argmin(1), "the centres"),
        (nearest_loop, "leave the loops to PyTorch"),
        (nearest_over_centres, "leave the loops to PyTorch"),
        (lambda p, c: nearest(p, c).int(), "expected int64"),
        (lambda p, c: nearest(p, c)[:, None], "expected the shape"),
        (lambda p, c: nearest(p, c).tolist(), "return a tensor"),
        (lambda p, c: (p[:, None] - c).square().sum(-1).argmax(1), "wrong"),
        (lambda p, c: nearest(c, p), "expected the shape"),
        (lambda p, c: nearest(p[:, :1], c[:, :1]), "the centres"),
        (lambda p, c: (p[:, None] - c).sum(-1).abs().argmin(1), "wrong"),
        (lambda p, c: nearest(p.sub_(1), c), "the inputs were changed"),
        (lambda p, c: nearest(p.float(), c.float()) if len(p) else 1 / 0, "ZeroDivisionError"),
    ],
)
def test_nearest_is_checked(answer, says):
    for _ in range(3):
        expect(exercises.check_nearest(answer), says)


def mean_below(losses, limit):
    counts = losses < limit
    return torch.where(counts, losses, 0).sum() / counts.sum().clamp(min=1)


def by_weights(losses, limit):
    counts = losses < limit
    return losses.masked_fill(~counts, 0).sum() / torch.clamp(counts.sum(), min=1)


def by_product(losses, limit):
    counts = losses < limit
    return (losses * counts).sum() / counts.sum().clamp(min=1)


def by_mask(losses, limit):
    kept = losses[losses < limit]
    return kept.mean() if len(kept) else losses.sum() * 0


def by_nanmean(losses, limit):
    return torch.where(losses < limit, losses, torch.nan).nanmean().nan_to_num()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (mean_below, None),
        (by_weights, None),
        (by_product, "wrong with inf"),
        (by_mask, "waits for the GPU: __getitem__"),
        (lambda v, m: torch.where(v < m, v, 0).mean(), "wrong where two do not count"),
        (lambda v, m: torch.where(v < m, v, 0).sum() / (v < m).sum(), "where no loss counts"),
        (lambda v, m: torch.where(v <= m, v, 0).sum() / (v <= m).sum().clamp(min=1), "limit"),
        (lambda v, m: mean_below(v, m).detach(), "no graph"),
        (lambda v, m: mean_below(v, m)[None], "shape ()"),
        (lambda v, m: mean_below(v, m).item(), "shape ()"),
        (lambda v, m: mean_below(v, m).float(), "float64 losses give torch.float32"),
        (lambda v, m: torch.clamp(v, max=m).mean(), "wrong where two do not count"),
        (lambda v, m: mean_below(v, m) if (v < m).any() else v.nan_to_num().sum() * 0,
         "waits for the GPU: __bool__"),
    ],
)  # fmt: skip
def test_mean_below_is_checked(answer, says):
    for _ in range(3):
        expect(exercises.check_mean_below(answer), says)


def test_mean_by_nanmean():
    """Right numbers; whether its gradients are finite is the checker's to say."""
    result = exercises.check_mean_below(by_nanmean)
    losses = torch.tensor([3.0, 4.0], requires_grad=True)
    by_nanmean(losses, 1.0).backward()
    assert result.passed == bool(losses.grad.isfinite().all())
