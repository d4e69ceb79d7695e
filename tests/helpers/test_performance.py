"""Test the helpers of `performance` against PyTorch, and its checkers with wrong answers."""

from __future__ import annotations

import json
import linecache
import math
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from inspect import signature

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import flex_attention as flex
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import Compare, Timer
from torch.utils.data import DataLoader
from verdicts import expect

from helpers import performance
from helpers.demos import performance as demos
from helpers.exercises import performance as exercises
from helpers.tensor_recipes import EXACT

# ---------------------------------------------------------------- shares


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock with one that only the test advances."""
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def move(seconds):
        now[0] += seconds

    return move


@pytest.mark.parametrize(("load", "work"), [(3.0, 1.0), (1.0, 3.0), (0.0, 2.0), (2.0, 0.0)])
def test_shares_match_the_clock(clock, load, work):
    def batches():
        for i in range(6):
            clock(100.0 if i == 0 else load)  # the first batch includes starting the workers
            yield i

    seen = []

    def step(batch):
        seen.append(batch)
        clock(50.0 if batch == 0 else work)

    found = performance.shares(batches(), step)
    assert seen == list(range(6))
    assert found == {"data": load / (load + work), "step": work / (load + work)}


def test_shares_stops_after_the_given_batches(clock):
    asked = []

    def endless():
        while True:
            asked.append(0)
            clock(1.0)
            yield None

    assert performance.shares(endless(), lambda _: clock(1.0), batches=3)["data"] == 0.5
    assert len(asked) == 4
    performance.shares(endless(), lambda _: clock(1.0))
    assert len(asked) == 4 + 1 + 50  # one warm-up batch and the default number
    assert performance.shares([0, 0], lambda _: None) == {"data": 0.0, "step": 0.0}


@pytest.mark.parametrize("loader", [[], [1], iter([2])])
def test_shares_requires_two_batches(loader):
    with pytest.raises(ValueError, match="at least two batches"):
        performance.shares(loader, lambda _: None)


def test_shares_rejects_zero_batches():
    with pytest.raises(ValueError, match="batches must be at least 1, got 0"):
        performance.shares([1, 2], lambda _: None, batches=0)


@pytest.mark.parametrize("batches", ["9", 2.5, None, True])
def test_shares_requires_an_integer(batches):
    with pytest.raises(TypeError, match="batches must be an integer, got"):
        performance.shares([1, 2], lambda _: None, batches=batches)


@pytest.mark.parametrize("loader", [None, 5, print])
def test_shares_requires_an_iterable(loader):
    with pytest.raises(TypeError, match="loader must be an iterable of batches, got"):
        performance.shares(loader, lambda _: None)


def test_shares_accepts_numpy_integers_and_sequences():
    class Sequence:
        def __getitem__(self, i):
            if i > 4:
                raise IndexError(i)
            return i

    seen = []
    performance.shares(Sequence(), seen.append, batches=np.int64(2))
    assert seen == [0, 1, 2]


def test_helpers_reject_non_callables():
    with pytest.raises(TypeError, match="step must be something to call, got NoneType"):
        performance.shares([1, 2], None)
    for helper in (performance.operators, performance.waits, performance.recompiles):
        with pytest.raises(TypeError, match="function must be something to call, got Tensor"):
            helper(torch.ones(1))


def test_shares_reports_a_slow_loader():
    found = performance.shares(demos.Photos(0.01, 8), nn.Linear(4, 2))
    assert found["data"] > 0.5 and math.isclose(sum(found.values()), 1)


# ---------------------------------------------------------------- operators


@given(st.integers(0, 20))
@settings(deadline=None)
def test_operators_counts_calls(n):
    x = torch.ones(3)

    def run():
        for _ in range(n):
            x.add(1)

    assert performance.operators(run) == Counter({"aten.add": n} if n else {})


def test_operators_includes_backward_and_excludes_profiler_ranges():
    w = nn.Parameter(torch.ones(3))

    def run():
        with torch.profiler.record_function("mine"):
            w.exp().sum().backward()

    found = performance.operators(run)
    assert found["aten.exp"] == 1 and found["aten.mul"] == 1
    assert all(name.startswith("aten.") for name in found)


def test_operators_and_waits_count_higher_order_operators():
    x = torch.ones(3)
    branch = lambda: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))  # noqa: E731
    found = performance.operators(branch)
    assert found == {"aten.sum": 1, "aten.gt": 1, "cond": 1}
    assert [wait.call for wait in performance.waits(branch)] == ["cond"]


def test_operators_counts_compiled_functions_as_eager():
    graphs = performance.Counting()
    compiled = torch.compile(lambda x: x.sin() + 1, backend=graphs)
    compiled(torch.ones(2))
    assert len(graphs) == 1
    found = performance.operators(lambda: compiled(torch.ones(5)))
    assert found["aten.sin"] == found["aten.add"] == 1 and len(graphs) == 1


@pytest.mark.parametrize("helper", [performance.operators, performance.waits])
def test_fullgraph_functions_run_uncompiled_when_counted(helper):
    graphs = performance.Counting()
    compiled = torch.compile(lambda x: x.sin(), backend=graphs, fullgraph=True)
    result = []
    found = helper(lambda: result.append(compiled(torch.ones(2))))
    assert found == ([] if helper is performance.waits else {"aten.ones": 1, "aten.sin": 1})
    assert torch.equal(result[0], torch.ones(2).sin()) and len(graphs) == 0
    compiled(torch.ones(2))
    assert len(graphs) == 1  # the function compiles again after the count


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("helper", [performance.operators, performance.waits])
@pytest.mark.parametrize("masked", [True, False])
def test_flex_attention_counts_as_one_operator_without_waits(helper, masked):
    q, k, v = torch.randn(3, 1, 2, 16, 8)
    bias = torch.randn(2)
    mask = None
    if masked:
        mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu")

    def run():
        return flex.flex_attention(q, k, v, lambda s, b, h, i, j: s + bias[h], block_mask=mask)

    result = []
    found = helper(lambda: result.append(run()))
    torch.testing.assert_close(result[0], run())
    assert found == [] if helper is performance.waits else found["flex_attention"] == 1


def test_flex_attention_is_counted_before_any_compilation():
    code = """
import warnings; warnings.simplefilter("ignore")
import torch
from torch.nn.attention.flex_attention import flex_attention
from helpers import performance
x = torch.randn(1, 1, 16, 8)
print(performance.operators(lambda: flex_attention(x, x, x))["flex_attention"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "1\n", done.stderr


def step_of(kind, parameters, **options):
    weights = [nn.Parameter(torch.ones(3)) for _ in range(parameters)]
    optimizer = kind(weights, **options)
    for weight in weights:
        weight.grad = torch.ones(3)
    optimizer.step()
    return performance.operators(optimizer.step)


def test_adamw_for_loop_runs_about_ten_operators_per_parameter():
    plain = step_of(torch.optim.AdamW, 20, foreach=False)
    assert 9 <= sum(plain.values()) / 20 <= 12


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_fused_updates_all_parameters_in_one_operator(kind):
    found = step_of(getattr(torch.optim, kind), 20, fused=True, lr=0.1)
    assert found.pop(f"aten._fused_{kind.lower()}_") == 1
    assert set(found) <= {"aten._foreach_add_"}  # counts the steps


@pytest.mark.parametrize(("kind", "each"), [("SGD", 1), ("AdamW", 2)])
def test_fused_runs_once_for_each_group_and_dtype(kind, each):
    def operators(*groups):
        optimizer = getattr(torch.optim, kind)([{"params": g} for g in groups], lr=0.1, fused=True)
        for p in sum(groups, []):
            p.grad = torch.ones_like(p)
        optimizer.step()
        return sum(performance.operators(optimizer.step).values())

    def new(n, dtype=torch.float32):
        return [nn.Parameter(torch.ones(3, dtype=dtype)) for _ in range(n)]

    assert operators(new(9)) == each
    assert operators(new(3), new(6)) == 2 * each
    assert operators(new(9) + new(2, torch.bfloat16)) == 2 * each


def test_only_four_optimizers_accept_fused():
    every = [v for v in vars(torch.optim).values() if isinstance(v, type)]
    fused = {
        kind.__name__
        for kind in every
        if issubclass(kind, torch.optim.Optimizer) and "fused" in signature(kind).parameters
    }
    assert fused == {"SGD", "Adam", "AdamW", "Adagrad"}


# ---------------------------------------------------------------- waits

X, Y, INDEX = torch.rand(4), torch.rand(()), torch.tensor([0, 3, 1])
N, MASK = torch.full((1,), 2), torch.tensor([True, False, True, True])


def put(index, value, shape=(4,)):
    x = torch.ones(shape)
    x[index] = value


# The cases of `test_sync_warning` in PyTorch's test/test_torch.py, without indices on another
# device and values read on the CPU.
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
    "loop": lambda: [x + 1 for x in X],
    "tensor of a tensor": lambda: torch.as_tensor(X),
    "tensor of numbers": lambda: torch.tensor([1, 2]),
    "new_tensor of numbers": lambda: X.new_tensor([1, 2]),
    "normal with numbers": lambda: torch.normal(X, 1.0),
    "linspace of numbers": lambda: torch.linspace(0, 1, 3),
    "multinomial with replacement": lambda: torch.multinomial(X, 2, replacement=True),
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
    "format of several": (lambda: f"{X}", "__format__"),
    "tensor of tensors": (lambda: torch.tensor([Y, Y]), "tensor"),
    "as_tensor of tensors": (lambda: torch.as_tensor(data=[[Y], [1.0]]), "as_tensor"),
    "multinomial": (lambda: torch.multinomial(X + 1, 2), "multinomial"),
    "asarray of tensors": (lambda: torch.asarray([Y, Y]), "asarray"),
    "new_tensor of tensors": (lambda: X.new_tensor([Y, Y]), "new_tensor"),
    "to_sparse": (lambda: X.to_sparse(), "to_sparse"),
    "coalesce": (lambda: torch.sparse_coo_tensor([[0, 0]], X[:2], (4,)).coalesce(), "coalesce"),
    "matrix_exp": (lambda: torch.matrix_exp(torch.eye(3)), "matrix_exp"),
    "normal with tensors": (lambda: torch.normal(X, X), "normal"),
    "normal with a standard deviation": (lambda: torch.normal(0.0, X), "normal"),
    "linspace from a tensor": (lambda: torch.linspace(Y, 2, 3), "linspace"),
    "logspace to a tensor": (lambda: torch.logspace(0, Y, 3), "logspace"),
    "index by a tensor of one number": (lambda: X[INDEX[0]], "__getitem__"),
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
def test_waits_returns_nothing_for_asynchronous_calls(name):
    assert performance.waits(FREE[name]) == []


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name", WAITING)
def test_waits_reports_synchronizing_calls(name):
    run, call = WAITING[name]
    (found,) = performance.waits(run)
    assert found.call == call and ("lambda" in found.line or found.line == "x[index] = value")


def test_waits_returns_user_lines_in_order():
    def run():
        loss = X.sum()
        if loss > 0:
            float(loss)
        return max(X)

    found = performance.waits(run)
    assert [w.line for w in found] == ["if loss > 0:", "float(loss)", *["return max(X)"] * 3]
    assert performance.waits(lambda: None) == []


def test_waits_reports_calls_in_the_backward_pass():
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
def test_waits_ignores_optimizer_step_counts_on_the_cpu(kind):
    optimizer = kind([grown()])
    assert performance.waits(optimizer.step) == []


def test_waits_reports_reduce_lr_on_plateau():
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD([grown()]))
    (found,) = performance.waits(lambda: scheduler.step(X.sum()))
    assert found.call == "__float__" and "scheduler.step(X.sum())" in found.line


def test_waits_returns_the_line_of_an_ipython_prompt():
    name = "<ipython-input-1-abc>"
    linecache.cache[name] = (9, None, ["Y.item()\n"], name)
    code = compile("Y.item()", name, "exec")
    (found,) = performance.waits(lambda: exec(code, {"Y": Y}))
    assert found.line == "Y.item()"


def test_waits_reports_lbfgs():
    p = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.LBFGS([p], max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    assert performance.waits(lambda: optimizer.step(closure))


def test_waits_and_operators_restore_modes_after_an_error():
    with pytest.raises(ZeroDivisionError):
        performance.waits(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        performance.operators(lambda: 1 / 0)
    assert performance.operators(lambda: X + X) == {"aten.add": 1}


def test_waits_reports_copies_from_gpu_to_cpu():
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


def test_counting_backend_and_recompiles_report_compilations():
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


def test_counting_accepts_compile_options_and_recompiles_keywords():
    for options in ({"mode": "reduce-overhead"}, {"options": {"a": 1}}):
        graphs = performance.Counting()
        compiled = torch.compile(lambda x, n=1: x + n, backend=graphs, **options)
        assert compiled(torch.ones(1)).item() == 2 and len(graphs) == 1
        assert performance.recompiles(compiled, torch.ones(1), n=1) is None
        assert "n" in performance.recompiles(compiled, torch.ones(1), n="a")
    assert performance.recompiles(lambda x: x, torch.ones(1)) is None


def test_capture_scalar_outputs_traces_item_without_a_graph_break():
    def scaled(x):
        return x * x.sum().item()

    for captured in (False, True):
        torch.compiler.reset()
        with torch._dynamo.config.patch(capture_scalar_outputs=captured):
            found = torch._dynamo.explain(scaled)(torch.ones(3))
            assert (found.graph_break_count == 0) == captured
            graphs = performance.Counting()
            compiled = torch.compile(scaled, backend=graphs)
            assert [compiled(k * torch.ones(3))[0].item() for k in (1, 2, 3)] == [3, 12, 27]
            if captured:
                assert len(graphs) == 1


def test_profiler_table_accepts_the_sort_keys_of_the_chapter():
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        torch.ones(3) + 1
    for name in ("self_cpu_time_total", "self_device_time_total"):
        assert "aten::add" in prof.key_averages().table(sort_by=name, row_limit=10)


def test_compare_prints_one_table(capsys):
    timers = [Timer("x + 1", globals={"x": X}, label="add", description=d) for d in "ab"]
    Compare([timer.timeit(2) for timer in timers]).print()
    text = capsys.readouterr().out
    assert text.count(" add ") == 1 and " a " in text and " b " in text


def sizes_compiled(sizes, **options):
    torch.compiler.reset()
    graphs, numbers = performance.Counting(), []
    compiled = torch.compile(lambda x: x + 1, backend=graphs, **options)
    for size in sizes:
        compiled(torch.ones(size, 4))
        numbers.append(len(graphs))
    return numbers


def test_sizes_0_and_1_are_compiled_separately():
    assert sizes_compiled((64, 29, 1, 0, 2), dynamic=True) == [1, 1, 2, 3, 3]
    assert sizes_compiled((64, 29, 50, 1)) == [1, 2, 2, 3]


def test_eval_recompiles_only_modules_that_depend_on_the_mode():
    for layer, expected in ((nn.ReLU(), 1), (nn.Dropout(), 2)):
        torch.compiler.reset()
        graphs = performance.Counting()
        model = nn.Sequential(nn.Linear(4, 4), layer)
        compiled = torch.compile(model, backend=graphs)
        compiled(torch.ones(2, 4))
        model.eval()
        compiled(torch.ones(2, 4))
        assert len(graphs) == expected


class Numbered(nn.Module):
    n = 0

    def forward(self, x):
        return x * self.n


def test_existing_graphs_still_run_after_the_recompile_limit(caplog):
    ran = []

    def backend(graph, inputs):
        return lambda *args: (ran.append(0), graph(*args))[1]

    model = Numbered()
    torch.compiler.reset()
    compiled = torch.compile(model, backend=backend)
    for model.n in range(2, 14):
        compiled(torch.ones(2))
    assert len(ran) == torch._dynamo.config.recompile_limit == 8
    assert len([r for r in caplog.records if "recompile_limit" in r.getMessage()]) == 1
    model.n = 4
    assert compiled(torch.ones(2)).tolist() == [4, 4] and len(ran) == 9
    model.n = 99
    assert compiled(torch.ones(2)).tolist() == [99, 99] and len(ran) == 9
    assert performance.recompiles(compiled, torch.ones(2)) is None


@pytest.mark.parametrize(
    ("limit", "compilations"),
    [(8, {"strings": 8, "lengths": 2}), (16, {"strings": 12, "lengths": 2})],
)
def test_larger_recompile_limit_compiles_each_constant(limit, compilations):
    """Each string compiles its own graph; the second length compiles one graph for all lengths."""
    cases = {
        "strings": (lambda x, kind: x * len(kind), [(torch.ones(2), k) for k in "abcdefghijkl"]),
        "lengths": (lambda x: x * 2, [(torch.ones(n),) for n in range(2, 14)]),
    }
    found = {}
    with torch._dynamo.config.patch(recompile_limit=limit):
        for name, (function, calls) in cases.items():
            torch.compiler.reset()
            graphs = performance.Counting()
            compiled = torch.compile(function, backend=graphs)
            for arguments in calls:
                compiled(*arguments)
            found[name] = len(graphs)
    assert found == compilations


@pytest.mark.parametrize("options", [{"fullgraph": True}, {}])
def test_recompile_limit_raises_if_configured(options):
    model = Numbered()
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", **options)
    with (
        torch._dynamo.config.patch(fail_on_recompile_limit_hit=not options),
        pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit),
    ):
        for model.n in range(2, 14):
            compiled(torch.ones(2))


@pytest.mark.parametrize(
    ("call", "breaks"),
    [
        (lambda x: print("hi"), True),
        (lambda x: x.sum().item(), True),
        (lambda x: json.dumps({"a": 1}), True),
        (lambda x: np.sin(x.numpy()), False),
    ],
)
def test_graph_breaks_at_the_expected_calls(call, breaks):
    def function(x):
        y = x + 1
        call(x)
        return y * 2

    torch.compiler.reset()
    found = torch._dynamo.explain(function)(torch.ones(3)).graph_break_count
    assert bool(found) == breaks


def test_blocks_with_similar_inputs_share_a_graph():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x).relu()

    for needs, expected in ((True, 1), (False, 2)):
        torch.compiler.reset()
        graphs, x = performance.Counting(), torch.ones(2, 4, requires_grad=needs)
        for _ in range(4):
            block = Block()
            block.compile(backend=graphs)
            x = block(x)
        assert len(graphs) == expected


def test_graph_break_in_a_loop_skips_the_function():
    def block(x):
        return x.relu() + 1

    def halved(x, layer):
        for _ in range(3):
            x = layer(x)
            if x.sum() > 1:
                x = x / 2
        return x

    for layer, expected in ((torch.relu, 0), (block, 1)):
        torch.compiler.reset()
        found = torch._dynamo.explain(halved)(torch.ones(3), layer)
        assert found.graph_count == expected and found.graph_break_count <= 0
        torch.compiler.reset()
        graphs = performance.Counting()
        compiled = torch.compile(halved, backend=graphs)
        x = torch.ones(3)
        assert torch.equal(compiled(x, layer), halved(x, layer)) and len(graphs) == expected


def test_graph_break_in_try_or_a_context_manager_skips_the_function():
    @contextmanager
    def own():
        yield

    def tries(x):
        try:
            if x.sum() > 1:
                x = x / 2
        finally:
            x = x + 1
        return x

    def enters(x):
        with own():
            if x.sum() > 1:
                x = x / 2
        return x + 1

    def enters_torch(x):
        with torch.no_grad():
            if x.sum() > 1:
                x = x / 2
        return x + 1

    for function, expected in ((tries, 0), (enters, 0), (enters_torch, 2)):
        torch.compiler.reset()
        graphs, x = performance.Counting(), torch.ones(3)
        assert torch.equal(torch.compile(function, backend=graphs)(x), function(x))
        assert len(graphs) == expected, function


def test_counting_must_be_an_instance():
    torch.compiler.reset()
    with pytest.raises(Exception, match=r"an instance as the backend, Counting\(\), got the class"):
        torch.compile(lambda x: x + 1, backend=performance.Counting)(torch.ones(1))


@pytest.mark.parametrize("kind", ["OneCycleLR", "CyclicLR"])
def test_cyclic_schedulers_change_the_momentum(kind):
    options = {"OneCycleLR": {"total_steps": 9}, "CyclicLR": {"base_lr": 0.01}}[kind]
    adam = torch.optim.Adam([nn.Parameter(torch.ones(1))], lr=torch.tensor(0.1))
    scheduler = getattr(torch.optim.lr_scheduler, kind)(adam, max_lr=0.1, **options)
    before = adam.param_groups[0]["betas"]
    adam.step(), scheduler.step()
    assert adam.param_groups[0]["betas"] != before


def test_flush_denormal_applies_to_the_thread_and_later_ones():
    def decayed():
        return (torch.tensor([1e-30]) * 1e-10).item()

    with ThreadPoolExecutor(1) as earlier, ThreadPoolExecutor(1) as later:
        earlier.submit(int).result()
        if not torch.set_flush_denormal(True):
            pytest.skip("the processor does not support it")
        try:
            assert decayed() == later.submit(decayed).result() == 0
            assert earlier.submit(decayed).result() > 0
        finally:
            torch.set_flush_denormal(False)


def test_mark_dynamic_of_a_specialized_size_raises():
    def add(x):
        return x + torch.zeros(64, 4)

    torch.compiler.reset()
    x = torch.ones(64, 4)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(Exception, match="marked .* as dynamic but your code specialized it") as e:
        torch.compile(add, backend="eager")(x)
    assert "ConstraintViolationError" in f"{type(e.value).__name__} {e.value.__cause__!r}"
    torch.compiler.reset()
    graphs = performance.Counting()
    torch.compile(add, backend=graphs, dynamic=True)(torch.ones(64, 4))
    assert len(graphs) == 1


def test_recompiles_propagates_errors_of_the_function():
    root = torch.compile(lambda x: torch.linalg.cholesky(x), backend="eager")
    assert performance.recompiles(root, torch.eye(2)) == "nothing is compiled yet"
    root(torch.eye(2))
    with pytest.raises(RuntimeError, match="positive-definite"):
        performance.recompiles(root, -torch.eye(2))


def test_integer_arguments_become_dynamic_unlike_attributes():
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
def test_queue_satisfies_the_queue_rules(steps, python, launches, work, gap):
    free = demos.queue(steps, python, launches, work, gap)
    waits = demos.queue(steps, python, launches, work, gap, wait=True)
    assert len(free.launches) == len(waits.launches) == steps * launches
    assert free.free <= waits.free and demos.busy(free) >= demos.busy(waits)
    for (_, _, end), (result, begin, _) in zip(free.launches, free.launches[1:], strict=False):
        assert begin == max(end, result)
    assert 0 < demos.busy(free) <= 1


def test_busy_requires_a_launch():
    with pytest.raises(ValueError, match="at least one launch"):
        demos.busy(demos.queue(steps=0))


def test_all_cases_have_the_same_work():
    done = {
        name: sum(end - begin for _, begin, end in demos.queue(**options).launches)
        for name, options in demos.CASES.items()
    }
    assert len(set(done.values())) == 1
    assert demos.draw_queue().labels()[0] == "slow loading"


def test_photos_and_threads_return_the_expected_batches():
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


def all_at_once(loader, step, clock, wait):
    begin = clock()
    batches = list(loader)
    data, begin = clock() - begin, clock()
    for batch in batches:
        step(batch)
        wait()
    return data, clock() - begin


def ahead(loader, step, clock, wait):
    """Fetch the next batch after the step: also right."""
    begin = clock()
    batch, data, compute = next(loader, None), clock() - begin, 0
    while batch is not None:
        begin = clock()
        step(batch)
        wait()
        compute += clock() - begin
        begin = clock()
        batch = next(loader, None)
        data += clock() - begin
    return torch.tensor(data), np.float32(compute)


def exchanged(*arguments):
    return split_time(*arguments)[::-1]


def late(loader, step, clock, wait):
    data, compute = split_time(loader, step, clock, lambda: None)
    begin = clock()
    wait()
    return data, compute + clock() - begin


def whole_seconds(*arguments):
    return tuple(int(seconds) for seconds in split_time(*arguments))


def shares_only(*arguments):
    data, compute = split_time(*arguments)
    return data / (data + compute), compute / (data + compute)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (split_time, None),
        (split_otherwise, None),
        (ahead, None),
        (all_at_once, "before you ask for the next"),
        (lambda loader, step, clock, wait: [step(b) for b in loader] and "ab", "return a pair"),
        (lambda loader, step, clock, wait: [step(b) for b in loader] and ("a", "b"), "two numbers"),
        (without_waiting, "until the queue was empty"),
        (inside, "data took"),
        (exchanged, "exchanged"),
        (late, "data took"),
        (shares_only, "data took"),
        (whole_seconds, "took"),
        (lambda loader, step, clock, wait: sum(1 for _ in loader), "step ran 0 times"),
        (lambda loader, step, clock, wait: [step(b) for b in loader], "return a pair"),
        (lambda loader, step, clock, wait: [(step(b), step(b)) for b in loader], "once for each"),
    ],
)
def test_check_split_time_returns_the_expected_verdict(answer, says):
    for _ in range(5):
        result = exercises.check_split_time(answer)
        if answer in (exchanged, late) and not result.passed:
            continue  # the message differs where times happen to be equal
        expect(result, says)


def nearest(points, centres):
    return (points[:, None] - centres).square().sum(-1).argmin(1)


def nearest_topk(points, centres):
    distances = torch.cdist(points, centres, compute_mode=EXACT)
    return distances.topk(1, largest=False).indices[:, 0]


def nearest_loop(points, centres):
    found = [int((point - centres).norm(dim=-1).argmin()) for point in points]
    return torch.tensor(found, dtype=torch.int64)


def nearest_python(points, centres):
    rows = centres.tolist()
    found = [min(range(len(rows)), key=lambda i: math.dist(p, rows[i])) for p in points.tolist()]
    return torch.tensor(found, dtype=torch.int64)


def nearest_numpy(points, centres):
    off = points.numpy()[:, None] - centres.numpy()
    return torch.from_numpy(np.linalg.norm(off, axis=-1).argmin(1))


def nearest_over_centres(points, centres):
    return torch.stack([(points - c).norm(dim=1) for c in centres], 1).argmin(1)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (nearest, None),
        (lambda p, c: torch.cdist(p, c, compute_mode=EXACT).argmin(1), None),
        (lambda p, c: torch.cdist(p, c).argmin(1), "far from the origin"),
        (lambda p, c: torch.linalg.vector_norm(p[:, None] - c, dim=2).min(1).indices, None),
        (lambda p, c: (p.unsqueeze(1) - c).abs().sum(2).argmin(1), "the centres"),
        (lambda p, c: (c.square().sum(1) - 2 * p @ c.T).argmin(1), "far from the origin"),
        (lambda p, c: torch.vmap(lambda x: (x - c).square().sum(-1).argmin())(p), None),
        (nearest_topk, None),
        (lambda p, c: torch.cdist(p, c, p=math.inf).argmin(1), "the centres"),
        (lambda p, c: torch.cdist(p, c, p=3).argmin(1), "the centres"),
        (nearest_python, "tolist in the line"),
        (nearest_numpy, "numpy in the line"),
        (lambda p, c: torch.zeros(len(p), dtype=torch.int64) + nearest(p, c), "devices"),
        (nearest_loop, "use operations on whole tensors"),
        (nearest_over_centres, "use operations on whole tensors"),
        (lambda p, c: nearest(p, c).int(), "expected torch.int64"),
        (lambda p, c: nearest(p, c)[:, None], "expected shape"),
        (lambda p, c: nearest(p, c).tolist(), "expected a tensor"),
        (lambda p, c: (p[:, None] - c).square().sum(-1).argmax(1), "wrong"),
        (lambda p, c: nearest(c, p), "expected shape"),
        (lambda p, c: nearest(p[:, :1], c[:, :1]), "the centres"),
        (lambda p, c: nearest(p[:, :2], c[:, :2]), "the centres"),
        (lambda p, c: nearest(p[:, -3:], c[:, -3:]), "the centres"),
        (lambda p, c: (p[:, None] - c).half().square().sum(-1).argmin(1), "the centres"),
        (lambda p, c: (p[:, None] - c).square().sum(-1).half().argmin(1), "the centres"),
        (lambda p, c: (p[:, None] - c).sum(-1).abs().argmin(1), "wrong"),
        (lambda p, c: nearest(p.sub_(1), c), "points was changed"),
        (lambda p, c: nearest(p.float(), c.float()) if len(p) else 1 / 0, "ZeroDivisionError"),
    ],
)
def test_check_nearest_returns_the_expected_verdict(answer, says):
    for _ in range(3):
        expect(exercises.check_nearest(answer), says)


def mean_below(losses, limit):
    counts = losses < limit
    return (torch.where(counts, losses, 0) / counts.sum().clamp(min=1)).sum()


def sum_first(losses, limit):
    counts = losses < limit
    return torch.where(counts, losses, 0).sum() / counts.sum().clamp(min=1)


def by_weights(losses, limit):
    counts = losses < limit
    return losses.masked_fill(~counts, 0).div(torch.clamp(counts.sum(), min=1)).sum()


def by_product(losses, limit):
    counts = losses < limit
    return (losses * counts).sum() / counts.sum().clamp(min=1)


def by_mask(losses, limit):
    kept = losses[losses < limit]
    return kept.mean() if len(kept) else losses.sum() * 0


def in_place(losses, limit):
    losses.data = torch.where(losses.data < limit, losses.data, 0)
    return mean_below(losses, limit)


def by_nanmean(losses, limit):
    return torch.where(losses < limit, losses, torch.nan).nanmean().nan_to_num(neginf=-torch.inf)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (mean_below, None),
        (by_weights, None),
        (lambda v, m: mean_below(v.double(), m), "float32 losses give torch.float64"),
        (lambda v, m: (v.masked_fill(~(v < m), 0) / (v < m).float().sum().clamp(min=1)).sum(),
         None),
        (sum_first, "divide before you add up"),
        (lambda v, m: (v.masked_fill(~(v < m), 0) / (v < m).to(v).sum().clamp(min=1)).sum(),
         "the count exceeds the range"),
        (lambda v, m: v.masked_fill(~(v < m), 0).sum() / ((v < m).sum() + 1e-6),
         "with float64 inputs"),
        (lambda v, m: torch.where(v < m, v, torch.zeros(len(v), dtype=v.dtype)).sum()
         / (v < m).sum().clamp(min=1), "mixes devices"),
        (in_place, "losses was changed"),
        (by_product, "wrong with inf"),
        (by_mask, "synchronizes with the GPU: __getitem__"),
        (lambda v, m: torch.where(v < m, v, 0).mean(), "wrong where two losses are not below"),
        (lambda v, m: torch.where(v < m, v / torch.where(v < m, v, 0).count_nonzero().clamp(min=1),
                                  0).sum(), "wrong where two losses are not below"),
        (lambda v, m: torch.where(v < m, v, 0).sum() / (v < m).sum(), "where no loss is below"),
        (lambda v, m: torch.where(v <= m, v, 0).sum() / (v <= m).sum().clamp(min=1), "limit"),
        (lambda v, m: mean_below(v, m).detach(), "no graph"),
        (lambda v, m: mean_below(v, m)[None], "shape ()"),
        (lambda v, m: mean_below(v, m).item(), "shape ()"),
        (lambda v, m: mean_below(v, m).float(), "with float64 inputs: expected torch.float64"),
        (lambda v, m: torch.clamp(v, max=m).mean(), "wrong where two losses are not below"),
        (lambda v, m: mean_below(v, m) if (v < m).any() else v.nan_to_num().sum() * 0,
         "synchronizes with the GPU: __bool__"),
    ],
)  # fmt: skip
def test_check_mean_below_returns_the_expected_verdict(answer, says):
    for _ in range(3):
        expect(exercises.check_mean_below(answer), says)


def test_check_mean_below_rejects_nanmean():
    """Right numbers, but `nan_to_num` zeroes the gradient where the mean is -inf."""
    expect(exercises.check_mean_below(by_nanmean), "the gradient is wrong")


@pytest.mark.parametrize(
    "name", ["svd", "svdvals", "eigh", "eig", "eigvals", "matrix_rank", "pinv", "inv", "cholesky"]
)
def test_waits_reports_linalg_functions_that_check_errors(name):
    function, x = getattr(torch.linalg, name), torch.eye(3)
    (wait,) = performance.waits(lambda: function(x))
    assert wait.call.startswith("linalg_")
    assert performance.waits(lambda: torch.linalg.slogdet(x)) == []
