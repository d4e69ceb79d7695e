from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import os
import subprocess
import sys
import threading
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from verdicts import expect

from helpers import cuda_semantics as cs
from helpers import fake
from helpers.demos import cuda_semantics as demos
from helpers.exercises import cuda_semantics as exercises
from helpers.views_and_copies import same_storage

# ---------------------------------------------------------------- where, unregistered


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_where_returns_dtype_and_device(dtype, device):
    words = f"{dtype}, {device}".removeprefix("torch.")
    assert cs.where(torch.zeros(1, dtype=dtype, device=device)) == words


def test_unregistered_returns_exactly_the_tensors_that_to_skips():
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = torch.zeros(1)
            self.by_name = {"a": nn.Linear(1, 1), "n": 3}
            self.pair = (torch.zeros(1), "text")
            self.parameter = nn.Parameter(torch.zeros(1))
            self.register_buffer("buffer", torch.zeros(1))
            self.modules_known = nn.ModuleList([nn.Linear(1, 1)])
            self.number = 4

    model = nn.Sequential(Part(), nn.BatchNorm1d(2))
    assert cs.unregistered(model) == ["0.plain", "0.by_name['a']", "0.pair[0]"]
    assert cs.unregistered(model[0]) == ["plain", "by_name['a']", "pair[0]"]
    assert cs.unregistered(nn.TransformerEncoderLayer(4, 2)) == []


@given(st.sets(st.sampled_from(["a", "b", "c"])), st.sets(st.sampled_from(["d", "e"])))
def test_unregistered_matches_the_tensors_left_on_the_cpu(plain, buffers):
    model = nn.Module()
    for name in plain:
        setattr(model, name, torch.zeros(1))
    for name in buffers:
        model.register_buffer(name, torch.zeros(1))
    model.to("meta")
    stayed = {name for name in plain | buffers if not getattr(model, name).is_meta}
    assert set(cs.unregistered(model)) == stayed == plain


def test_unregistered_searches_containers_and_skips_registered_tensors():
    @dataclass
    class Pair:
        table: torch.Tensor
        name: str = ""

    class Part(nn.Module):
        constant = torch.ones(1)

        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(1, 1), nn.LSTM(1, 1)
            self.all = [self.a, self.b, self.a.weight]
            self.nested = [[nn.Linear(1, 1)], {"k": deque([torch.ones(1)])}]
            self.some = {torch.ones(1)}
            self.pair = Pair(torch.ones(1))
            self.call = partial(max, torch.ones(1), key=torch.ones(1))
            self.loop = []
            self.loop.append(self.loop)

    assert cs.unregistered(nn.GRU(2, 2)) == []
    assert cs.unregistered(Part()) == [
        "constant",
        "nested[0][0]",
        "nested[1]['k'][0]",
        "some[0]",
        "pair.table",
        "call.args[0]",
        "call.keywords['key']",
    ]


# ---------------------------------------------------------------- toy queue


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_toy_gpu_runs_work_in_order_after_its_launch(works):
    gpu = demos.ToyGPU()
    for work in works:
        gpu.launch(work)
    assert gpu.clock == len(works)
    for (result, begin, end), work in zip(gpu.launches, works, strict=True):
        assert end - begin == work and begin >= result
    for (_, _, end), (result, begin, _) in zip(gpu.launches, gpu.launches[1:], strict=False):
        assert begin == max(end, result)  # as early as the rules allow
    gpu.synchronize()
    assert gpu.clock == max(len(works), gpu.free) == gpu.free


@given(st.lists(st.integers(1, 9), max_size=9), st.booleans())
def test_tasks_run_once_in_order_at_launch_or_synchronize(works, blocking):
    gpu, done = demos.ToyGPU(blocking), []
    for number, work in enumerate(works):
        gpu.launch(work, lambda number=number: done.append(number))
        assert done == (list(range(number + 1)) if blocking else [])
    gpu.synchronize()
    assert done == list(range(len(works)))
    gpu.synchronize()
    assert len(done) == len(works)  # nothing runs twice
    if blocking:
        assert gpu.clock == sum(works) + len(works)


def test_synchronize_raises_an_error_and_ends_the_queue():
    gpu, done = demos.ToyGPU(), []
    gpu.launch(1, lambda: 1 / 0)
    gpu.launch(1, lambda: done.append(1))
    with pytest.raises(ZeroDivisionError):
        gpu.synchronize()
    gpu.synchronize()
    assert done == []


@pytest.mark.parametrize("work", [0, -3])
def test_launch_rejects_work_without_duration(work):
    with pytest.raises(ValueError, match=f"at least 1 step, got {work}"):
        demos.ToyGPU().launch(work)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.booleans())
def test_copies_share_one_queue_and_waiting_is_never_faster(load, copy, kernel, batches, wait):
    rows = demos.copies(load, copy, kernel, batches, wait)
    for spans in rows.values():
        assert all(a[2] <= b[1] for a, b in zip(spans, spans[1:], strict=False))
    loaded = [end for what, _, end in rows["Python"] if what == "load"]
    copied = [(begin, end) for what, begin, end in rows["GPU"] if what == "copy"]
    worked = [(begin, end) for what, begin, end in rows["GPU"] if what == "kernel"]
    assert len(loaded) == len(copied) == len(worked) == batches
    assert all(end <= begin for end, (begin, _) in zip(loaded, copied, strict=True))
    assert all(b - a == copy for a, b in copied) and all(b - a == kernel for a, b in worked)
    waits = [end for what, _, end in rows["Python"] if what == "wait"]
    assert waits == ([end for _, end in copied] if wait else [])
    goes_on = demos.copies(load, copy, kernel, batches, wait=False)
    assert goes_on["GPU"][-1][2] <= rows["GPU"][-1][2]


def test_draw_copies_draws_every_span():
    above, below = demos.draw_copies(5, 3, 3, 2).axes
    assert [t.get_text() for t in above.texts] == ["load", "wait"] * 2 + ["copy", "kernel"] * 2
    assert [t.get_text() for t in below.texts] == ["load"] * 2 + ["copy", "kernel"] * 2


def test_draw_timeline_draws_each_launch_and_reading():
    gpu = demos.ToyGPU()
    for work in (3, 5):
        gpu.launch(work)
    axis = demos.draw_timeline(gpu, {"early": 2, "late": 9}).axes[0]
    words = [text.get_text() for text in axis.texts]
    assert words == ["1", "2", "early", "late"]
    assert [line.get_xdata()[0] for line in axis.lines] == [2, 9]
    boxes = [bar.get_paths()[0].get_extents() for bar in axis.collections]
    assert [(b.x0, b.x1) for b in boxes] == [(0, 1), (1, 4), (1, 2), (4, 9)]
    with pytest.raises(ValueError, match="at least one launch"):
        demos.draw_timeline(demos.ToyGPU(), {})


# ---------------------------------------------------------------- CUDA_VISIBLE_DEVICES


@pytest.mark.parametrize(
    ("value", "installed", "seen"),
    [
        ("2,1", 3, [2, 1]),  # the two examples of NVIDIA's programming guide
        ("0,2,-1,1", 3, [0, 2]),
        ("", 4, []),
        ("3", 4, [3]),
        ("0,9,1", 4, [0]),
        ("1,1", 4, []),
        ("0,1", 0, []),
    ],
)
def test_visible_devices_follows_the_documentation(value, installed, seen):
    assert list(cs.visible_devices(value, installed).values()) == seen
    assert list(cs.visible_devices(value, installed)) == [f"cuda:{i}" for i in range(len(seen))]


@given(st.lists(st.integers(-1, 9), max_size=6), st.integers(1, 8))
def test_visible_devices_matches_the_count_of_torch(numbers, installed):
    value = ",".join(map(str, numbers))
    with (
        patch.dict("os.environ", CUDA_VISIBLE_DEVICES=value),
        patch.object(torch.cuda, "_raw_device_count_nvml", lambda: installed),
    ):
        count = torch.cuda._device_count_nvml()
    assert len(cs.visible_devices(value, installed)) == count


@pytest.mark.parametrize(
    ("value", "read"),
    [("", []), ("2,0", [2, 0]), ("1,-1,0", [1]), ("0,0", []), ("GPU-8932f937", ["GPU-8932f937"])],
)
def test_private_parser_of_torch_reads_numbers_and_uuids(value, read, monkeypatch):
    """`torch.cuda._parse_visible_devices` reads numbers or UUIDs up to the first invalid one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert cs._parse_visible_devices(value) == read
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"


def test_visible_devices_rejects_negative_counts_and_uuids(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(ValueError, match="not be negative, got -1"):
        cs.visible_devices("0", -1)
    with pytest.raises(ValueError, match="numbers separated by commas, got 'GPU-8932f937'"):
        cs.visible_devices("GPU-8932f937", 2)
    for value, installed in ((None, 2), (0, 2), ("0", "2"), ("0", 2.0)):
        with pytest.raises(TypeError, match="expected a text and an int"):
            cs.visible_devices(value, installed)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ  # the environment is unchanged


# ---------------------------------------------------------------- a rehearsal

needs_cuda_build = pytest.mark.skipif(torch.version.cuda is None, reason="built without CUDA")


class Tuple(nn.Module):
    """Return two outputs; an unregistered scale stays on the CPU."""

    def __init__(self, registered=True):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        if registered:
            self.register_buffer("scale", torch.ones(2))
        else:
            self.scale = torch.ones(2)

    def forward(self, x):
        hidden = self.layer(x)
        return hidden, hidden * self.scale


def batch():
    return torch.randn(4, 3), torch.zeros(4, dtype=torch.int64)


def training(make_loss=lambda scores, y: nn.functional.cross_entropy(scores, y.to("cuda"))):
    def step(model, optimizer, x, y):
        model.to("cuda")
        _, scores = model(x.to("cuda"))
        loss = make_loss(scores, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        torch.cuda.synchronize()
        return f"{loss.item():.3f}"

    return step


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "Adagrad": torch.optim.Adagrad,
}


@needs_cuda_build
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_rehearse_accepts_a_correct_step_and_keeps_the_model(make):
    model = Tuple()
    optimizer, before = make(model.parameters()), model.layer.weight.clone()
    if make is not OPTIMIZERS["Adagrad"]:  # Adagrad creates its state before the move to the GPU
        result = cs.rehearse(training(), model, optimizer, *batch())
        assert result.passed and result.line is None
        assert repr(result) == "✓ the step would run"
    assert torch.equal(model.layer.weight, before) and model.layer.weight.grad is None
    assert model(batch()[0])[0].isfinite().all()


def labels_on_the_cpu(scores, y):
    return nn.functional.cross_entropy(scores, y)  # labels


def weights_on_the_cpu(scores, y):
    return nn.functional.cross_entropy(scores, y.cuda(), weight=torch.ones(2))  # weights


def to_numpy(scores, y):
    return torch.tensor(scores.detach().numpy()).sum()  # numpy


@needs_cuda_build
@pytest.mark.parametrize(
    ("make_loss", "error"),
    [
        (labels_on_the_cpu, "RuntimeError: Expected all tensors to be on the same device"),
        (weights_on_the_cpu, "RuntimeError: Expected all tensors to be on the same device"),
        (to_numpy, "TypeError: can't convert cuda:0 device type tensor to numpy"),
    ],
)
def test_rehearse_reports_the_failing_line(make_loss, error):
    model = Tuple()
    step, optimizer = training(make_loss), torch.optim.Adam(model.parameters())
    result = cs.rehearse(step, model, optimizer, *batch())
    lines, start = inspect.getsourcelines(make_loss)
    assert not result.passed
    assert (result.line, result.number) == (lines[1].strip(), start + 1)
    assert result.error.startswith(error)
    assert repr(result).startswith(f"✗ line {start + 1}: {result.line}\n  ")


@needs_cuda_build
def test_rehearse_reports_indices_on_another_device():
    def read(y):
        table = torch.ones(10)
        return table[y.to("cuda")]

    def write(y):
        table = torch.ones(10)
        table[y.to("cuda")] = 1.0

    def right(y):
        return torch.ones(10, device="cuda")[y] + torch.ones(10, device="cuda")[y.to("cuda")]

    y = torch.zeros(4, dtype=torch.long)
    for step in (read, write):
        result = cs.rehearse(step, y)
        assert "indices should be either on cpu or on the same device as the indexed" in str(result)
        assert "table[y.to" in result.line
    assert cs.rehearse(right, y).passed


@needs_cuda_build
def test_rehearse_accepts_pinned_batches_and_rejects_uncopyable_arguments():
    assert cs.rehearse(lambda x: x.pin_memory().to("cuda", non_blocking=True), torch.ones(2)).passed
    with pytest.raises(TypeError, match="arguments that can be copied, got: .*generator"):
        cs.rehearse(print, (i for i in range(2)))


@needs_cuda_build
def test_rehearse_reports_models_on_mixed_devices():
    def step(encoder, head, x):
        encoder.to("cuda")
        features = encoder(x.to("cuda"))
        return head(features)  # the head stays on the CPU

    models = nn.Linear(3, 4), nn.Linear(4, 2)
    assert cs.rehearse(step, *models, batch()[0]).line.startswith("return head")

    def two_cards(encoder, head, x):
        return head.to("cuda:1")(encoder.to("cuda:0")(x.to("cuda:0")))

    result = cs.rehearse(two_cards, *models, batch()[0])
    assert "cuda:1" in result.error and "cuda:0" in result.error


@needs_cuda_build
def test_rehearse_reports_unregistered_tensors_inside_the_module():
    model = Tuple(registered=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    result = cs.rehearse(training(), model, optimizer, *batch())
    assert result.line == "return hidden, hidden * self.scale"


@needs_cuda_build
def test_rehearse_reports_a_late_move_at_the_optimizer():
    model = Tuple()
    optimizer = torch.optim.Adam(model.parameters())
    model(batch()[0])[1].sum().backward()
    optimizer.step()  # creates its averages on the CPU
    result = cs.rehearse(training(), model, optimizer, *batch())
    assert result.line == "optimizer.step()" and "same device" in result.error


@needs_cuda_build
def test_rehearse_reports_branches_on_tensor_values():
    def by_tensor(x):
        if x.cuda().sum() > 0:
            return x

    def by_number(x):
        total = 0.0
        total += x.cuda().sum().item()
        return "large" if total > 1 else "small"

    def by_nan(x):
        if not math.isfinite(x.cuda().sum().item()):
            return x

    def by_remainder(x):
        return "odd" if x.cuda().sum().item() % 2 == 1 else "even"

    for step, line in (
        (by_tensor, "if x.cuda()"),
        (by_number, 'return "large"'),
        (by_nan, "if not math.isfinite"),
        (by_remainder, 'return "odd"'),
    ):
        result = cs.rehearse(step, torch.ones(2))
        assert result.line.startswith(line)
        assert result.error.startswith("NoNumberError: this line needs the value of a tensor")


@needs_cuda_build
def test_rehearse_supports_deepcopy_of_a_model():
    def step(model, x):
        model.to("cuda")
        average = copy.deepcopy(model)
        assert average.layer.weight.is_cuda and isinstance(average.layer.weight, nn.Parameter)
        assert average.layer.weight is not model.layer.weight
        best = copy.deepcopy(model.state_dict())
        average.load_state_dict(best)
        return average(x.to("cuda"))

    result = cs.rehearse(step, Tuple(), batch()[0])
    assert result.passed, result


@needs_cuda_build
def test_rehearse_keeps_a_model_from_outside_on_the_cpu():
    model = nn.Linear(2, 1)

    def step():
        model.to("cuda")

    result = cs.rehearse(step)
    assert "uses a real tensor from outside: pass it" in result.error
    assert result.line == 'model.to("cuda")' and model.weight.device.type == "cpu"


@needs_cuda_build
def test_rehearse_reports_other_errors_too():
    def step(x):
        return x.cuda() @ torch.ones(7, 2, device="cuda")

    assert "RuntimeError" in cs.rehearse(step, torch.ones(2, 3)).error
    assert cs.rehearse(lambda: 1 / 0).error == "ZeroDivisionError: division by zero"


def test_missing_device_support_raises():
    lacking = "mps" if torch.version.cuda else "cuda"
    if getattr(torch, lacking).is_available():
        pytest.skip("this machine has it")
    for device in (lacking, f"{lacking}:0"):  # with an index, autograd would abort the process
        words = f"not linked with support for {lacking} devices: fake tensors need a PyTorch that"
        with pytest.raises(RuntimeError, match=words):
            cs.rehearse(lambda x, d=device: nn.Linear(1, 1).to(d)(x.to(d)), torch.ones(1))
        with pytest.raises(RuntimeError, match=words), fake.fake_tensors():
            nn.Linear(1, 1, device=device)(torch.ones(1, device=device))


# ---------------------------------------------------------------- sentences of the chapter


def logs(x):
    return f"{x.sum():.3f}"


def by_mask(x):
    return x[x > 0]


@needs_cuda_build
def test_rehearse_accepts_a_log_and_rejects_a_mask():
    with fake.fake_tensors():
        assert logs(torch.ones(3, device="cuda")) == "nan"
    assert cs.rehearse(lambda x: logs(x.cuda()), torch.ones(3)).passed
    assert "NoNumberError" in cs.rehearse(lambda x: by_mask(x.cuda()), torch.ones(3)).error


@pytest.mark.parametrize(
    "make", [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.Adamax]
)
@needs_cuda_build
def test_load_state_dict_keeps_only_the_step_on_the_cpu(make):
    with fake.fake_tensors():
        model = nn.Linear(2, 1)
        optimizer = make(model.parameters(), lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        model.to("cuda")
        optimizer.load_state_dict(optimizer.state_dict())
        for state in optimizer.state.values():
            assert [k for k, v in state.items() if not v.is_cuda] == ["step"]


def test_device_context_does_not_apply_to_from_numpy_and_legacy_tensor():
    import numpy as np

    with torch.device("meta"):
        reached = [torch.tensor([1.0]), torch.as_tensor(np.ones(2)), torch.asarray(np.ones(2))]
        left = [
            torch.Tensor(2),
            torch.from_numpy(np.ones(2)),
            torch.frombuffer(bytearray(2), dtype=torch.uint8),
        ]
    assert all(x.is_meta for x in reached) and not any(x.is_meta for x in left)


def test_conversion_moves_gradients_and_keeps_parameter_objects():
    layer = nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    weight = layer.weight
    layer.double()
    assert layer.weight is weight and weight.grad.dtype == torch.float64


# ---------------------------------------------------------------- exercises


def normalize(store, forward=lambda self, x: (x - self.mean) / self.std):
    def init(self, mean, std):
        nn.Module.__init__(self)
        store(self, mean, std)

    return type("Normalize", (nn.Module,), {"__init__": init, "forward": forward})


def buffers(self, mean, std, persistent=True):
    self.register_buffer("mean", mean, persistent=persistent)
    self.register_buffer("std", std, persistent=persistent)


def plain(self, mean, std):
    self.mean, self.std = mean, std


def parameters(self, mean, std):
    self.mean, self.std = nn.Parameter(mean), nn.Parameter(std)


def frozen(self, mean, std):
    self.mean = nn.Parameter(mean, requires_grad=False)
    self.std = nn.Parameter(std, requires_grad=False)


def in_a_list(self, mean, std):
    self.constants = [mean, std]


def one_buffer(self, mean, std):
    self.register_buffer("constants", torch.stack([mean, std]))


def scale_and_shift(self, mean, std):
    self.register_buffer("scale", 1 / std)
    self.register_buffer("shift", -mean / std)


@pytest.mark.parametrize("store", [buffers])
def test_check_normalize_accepts_buffers(store):
    for _ in range(5):
        assert exercises.check_normalize(normalize(store)).passed


@pytest.mark.parametrize(
    "answer",
    [
        normalize(one_buffer, lambda s, x: (x - s.constants[0]) / s.constants[1]),
        normalize(scale_and_shift, lambda s, x: x * s.scale + s.shift),
    ],
)
def test_check_normalize_accepts_other_ways_to_store_the_constants(answer):
    for _ in range(20):
        verdict = exercises.check_normalize(answer)
        assert verdict.passed, verdict


def with_dtype(self, mean, std):
    buffers(self, mean, std)
    self.dtype = mean.dtype


def batch_norm(self, mean, std):
    """Standardize with a BatchNorm in eval mode: wrong after `model.train()`."""
    self.norm = nn.BatchNorm1d(len(mean), eps=1e-14, affine=False, dtype=mean.dtype).eval()
    self.norm.running_mean.copy_(mean)
    self.norm.running_var.copy_(std**2)


def half_saved(self, mean, std):
    self.register_buffer("mean", mean)
    self.register_buffer("std", std, persistent=False)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (normalize(plain), "mean and std did not move"),
        (normalize(parameters), "an optimizer would train mean and std"),
        (normalize(lambda s, m, d: buffers(s, m, d, False)), "must contain both constants"),
        (normalize(buffers, lambda self, x: x - self.mean / self.std), "not (x - mean) / std"),
        (
            normalize(in_a_list, lambda s, x: (x - s.constants[0]) / s.constants[1]),
            "the forward pass fails: Tensor on device",
        ),
        (
            normalize(plain, lambda s, x: (x - s.mean.to(x.device)) / s.std.to(x.device)),
            "did not move",
        ),
        (normalize(buffers, lambda s, x: ((x - s.mean) / s.std).float()), "expected torch.float64"),
        (
            normalize(with_dtype, lambda s, x: ((x - s.mean) / s.std).to(s.dtype)),
            "after .double() the result is torch.float32",
        ),
        (normalize(buffers, lambda s, x: None), "expected a tensor, got None"),
        (normalize(batch_norm, lambda s, x: s.norm(x)), "not (x - mean) / std in torch.float32"),
        (normalize(half_saved), "loading the state_dict did not restore the constants"),
        (
            normalize(buffers, torch.no_grad()(lambda s, x: (x - s.mean) / s.std)),
            "no gradient reaches x",
        ),
        (lambda mean, std: lambda x: (x - mean) / std, "expected an nn.Module, got function"),
    ],
)
def test_check_normalize_rejects_wrong_answers(answer, says):
    for _ in range(3):
        expect(exercises.check_normalize(answer), says)


def same_dict(batch, moved):
    result = copy.copy(batch)
    result.update(moved)
    return result


def to_device(batch, device):
    if isinstance(batch, (torch.Tensor, PackedSequence)):
        return batch.to(device)
    if isinstance(batch, dict):
        return same_dict(batch, {k: to_device(v, device) for k, v in batch.items()})
    if isinstance(batch, (list, tuple)):
        parts = [to_device(v, device) for v in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


def variant(tensor=None, container=None, other=None):
    """Return the right answer with one part replaced."""

    def answer(batch, device):
        if isinstance(batch, (torch.Tensor, PackedSequence)):
            return (tensor or type(batch).to)(batch, device)
        if isinstance(batch, dict):
            return same_dict(batch, {k: answer(v, device) for k, v in batch.items()})
        if isinstance(batch, (list, tuple)):
            parts = [answer(v, device) for v in batch]
            if container:
                return container(batch, parts)
            return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
        return other(batch) if other else batch

    return answer


def only_tensors(batch, device):
    """Keep the container types, but treat a packed sequence as a named tuple."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return same_dict(batch, {k: only_tensors(v, device) for k, v in batch.items()})
    if isinstance(batch, (list, tuple)):
        parts = [only_tensors(v, device) for v in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


def whatever_moves(batch, device):
    """Move a module too, as if it were data."""
    return batch.to(device) if isinstance(batch, torch.nn.Module) else everything(batch, device)


def everything(batch, device):
    if isinstance(batch, dict):
        return same_dict(batch, {k: whatever_moves(v, device) for k, v in batch.items()})
    return to_device(batch, device)


def repacked(batch, device):
    """Move only the data of a packed sequence and lose the lengths of its rows."""
    if isinstance(batch, PackedSequence):
        return PackedSequence(batch.data.to(device), torch.tensor([len(batch.data)]))
    return batch.to(device)


def copied(tensor, device):
    return tensor.to(device, copy=True) if isinstance(tensor, torch.Tensor) else tensor.to(device)


def without_gradient(part, device):
    if isinstance(part, PackedSequence) or part.device == device:
        return part.to(device)
    return part.detach().to(device)


def in_place(batch, device):
    if isinstance(batch, (dict, list)):
        for key in batch if isinstance(batch, dict) else range(len(batch)):
            batch[key] = in_place(batch[key], device)
        return batch
    return to_device(batch, device)


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1", "meta"])
def test_copy_true_copies_on_every_device(device):
    with fake.fake_tensors():
        try:
            there = torch.ones(2, device=device)
        except RuntimeError as error:
            pytest.skip(f"this PyTorch is not built for {device}: {error}")
        here = torch.ones(2)
        for x in (there, here):
            assert not same_storage(x.to(device, copy=True), x)
        assert there.to(device) is there


def by_pytree(batch, device):
    from torch.utils import _pytree

    def one(part):
        return part.to(device) if isinstance(part, (torch.Tensor, PackedSequence)) else part

    return _pytree.tree_map(one, batch, is_leaf=lambda part: isinstance(part, PackedSequence))


def by_hand(batch, device, order=("sorted_indices", "unsorted_indices"), to=torch.Tensor.to):
    """Build a packed sequence from its parts."""
    if not isinstance(batch, PackedSequence):
        return batch.to(device)
    rows = [getattr(batch, name) for name in order]
    rows = [row if row is None else to(row, device) for row in rows]
    return PackedSequence(batch.data.to(device), batch.batch_sizes, *rows)


def order_left_behind(batch, device):
    return by_hand(batch, device, to=lambda row, device: row)


def order_swapped(batch, device):
    return by_hand(batch, device, order=("unsorted_indices", "sorted_indices"))


def data_copied(batch, device):
    if not isinstance(batch, PackedSequence):
        return batch.to(device)
    return PackedSequence(batch.data.to(device, copy=True), *by_hand(batch, device)[1:])


def cut_off(part, device):
    if isinstance(part, PackedSequence) or part.device == device:
        return part.to(device)
    return part.detach().to(device).requires_grad_(part.requires_grad)


@pytest.mark.parametrize("answer", [to_device, by_pytree, variant(by_hand)])
def test_check_to_device_accepts_right_answers(answer):
    for _ in range(10):
        verdict = exercises.check_to_device(answer)
        assert verdict.passed, verdict


def unordered(batch, device):
    """Rebuild a packed sequence without the order of its rows."""
    if isinstance(batch, PackedSequence):
        return PackedSequence(batch.data.to(device), batch.batch_sizes)
    return batch.to(device)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda b, d: {k: v.to(d) for k, v in b.items()}, "AttributeError"),
        (lambda b, d: b, "batch: the tensor is not on the device"),
        (variant(copied), "was copied although it was there already"),
        (variant(without_gradient), "no gradient reaches the tensor"),
        (variant(lambda t, d: t.double().to(d)), "dtype or shape changed"),
        (variant(container=lambda b, parts: parts), "batch: expected tuple, got list"),
        (
            variant(container=lambda b, p: tuple(p) if isinstance(b, tuple) else p),
            "batch: expected Pair, got tuple",
        ),
        (
            variant(other=lambda v: torch.tensor(v) if isinstance(v, int) else v),
            "batch[1]: expected int, got Tensor",
        ),
        (variant(other=str), "batch[1][1]: expected NoneType, got str"),
        (
            lambda b, d: OrderedDict(to_device(b, d)) if isinstance(b, dict) else to_device(b, d),
            "expected dict, got OrderedDict",
        ),
        (in_place, "the caller's batch was changed"),
        (
            lambda b, d: (
                {k: to_device(v, d) for k, v in b.items()}
                if isinstance(b, dict)
                else to_device(b, d)
            ),
            "expected OrderedDict, got dict",
        ),
        (
            lambda b, d: (
                defaultdict(None, to_device(b, d))
                if isinstance(b, defaultdict)
                else to_device(b, d)
            ),
            "the defaultdict lost its default",
        ),
        (only_tensors, "your code raised"),
        (whatever_moves, "the caller's batch['encoder'] has other parameters"),
        (variant(repacked), "the lengths of the packed sequence changed"),
        (variant(unordered), "the packed sequence lost the order of its rows"),
        (variant(order_left_behind), "sorted_indices of the packed sequence is not on the device"),
        (variant(order_swapped), "sorted_indices of the packed sequence changed"),
        (variant(data_copied), "was copied although it was there already"),
        (variant(cut_off), "no gradient reaches the tensor"),
        (
            variant(lambda t, d: t.double().to(d) if isinstance(t, PackedSequence) else t.to(d)),
            "dtype or shape changed",
        ),
    ],
)
def test_check_to_device_rejects_wrong_answers(answer, says):
    for _ in range(3):
        expect(exercises.check_to_device(answer), says)


def test_random_batches_contain_every_container_and_leaf():
    import random

    seen, rng = set(), random.Random(0)

    def walk(batch):
        seen.add(type(batch).__name__)
        if isinstance(batch, dict):
            batch = list(batch.values())
        if isinstance(batch, (list, tuple)):
            for part in batch:
                walk(part)

    for _ in range(200):
        walk(exercises._nested(rng, 3))
    assert seen == {"dict", "list", "tuple", "Pair", "Tensor", "str", "int", "NoneType"}


def move(model, optimizer, target):
    model.to(target)
    optimizer.load_state_dict(optimizer.state_dict())


def move_by_hand(model, optimizer, target, skip=("step",), change=lambda v: v):
    model.to(target)
    for state in optimizer.state.values():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and key not in skip:
                state[key] = change(value).to(target)


def forget(model, optimizer, target):
    model.to(target)
    optimizer.state.clear()


def replace(model, optimizer, target):
    for layer in model:
        layer.weight = nn.Parameter(layer.weight.detach().to(target))
        layer.bias = nn.Parameter(layer.bias.detach().to(target))
    optimizer.load_state_dict(optimizer.state_dict())


def restart(model, optimizer, target):
    move(model, optimizer, target)
    for state in optimizer.state.values():
        if "step" in state:
            state["step"] = torch.zeros(())


def new_settings(model, optimizer, target):
    move(model, optimizer, target)
    for group in optimizer.param_groups:
        group["lr"] = 1e-3


def new_weights(model, optimizer, target):
    move(model, optimizer, target)
    for layer in model:
        layer.reset_parameters()


def with_dimensions(model, optimizer, target):
    model.to(target)
    for state in optimizer.state.values():
        tensors = {k: v for k, v in state.items() if isinstance(v, torch.Tensor) and v.dim() > 0}
        state.update({key: value.to(target) for key, value in tensors.items()})


def through_a_copy(model, optimizer, target):
    kept = copy.deepcopy(optimizer.state_dict())
    model.to(target)
    optimizer.load_state_dict(kept)


@pytest.mark.parametrize("answer", [move, move_by_hand, through_a_copy])
def test_check_move_accepts_right_answers(answer):
    before = torch.__future__.get_swap_module_params_on_conversion()
    for _ in range(3):
        assert exercises.check_move(answer).passed
    assert torch.__future__.get_swap_module_params_on_conversion() is before


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda m, o, t: m.to(t), "the state of Adam stayed torch.float32"),
        (lambda m, o, t: None, "the model did not move"),
        (with_dimensions, "the state of Adam stayed torch.float32"),
        (forget, "the optimizer's moments are missing"),
        (lambda m, o, t: move(m, o, "meta" if t == "meta" else torch.double), "did not move"),
        (restart, "the optimizer's step count changed"),
        (new_settings, "the optimizer's settings changed"),
        (new_weights, "the random state of torch was changed"),
        (replace, "the optimizer refers to other parameters than the model"),
        (lambda m, o, t: move_by_hand(m, o, t, change=torch.zeros_like), "the moments changed"),
        (lambda m, o, t: move_by_hand(m, o, t, skip=("step", "sum")), "state of Adagrad stayed"),
        (lambda m, o, t: move_by_hand(m, o, t, skip=()), "the step count moved too"),
        (
            lambda m, o, t: move(m, o, t) if isinstance(t, torch.dtype) else m.to(t),
            "the state of Adam stayed on the old device",
        ),
    ],
)
def test_check_move_rejects_wrong_answers(answer, says):
    expect(exercises.check_move(answer), says)


# ---------------------------------------------------------------- the module itself


def test_import_loads_no_heavy_module():
    code = (
        "import sys, torch; before = set(sys.modules); import helpers.cuda_semantics;"
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"matplotlib", "torchvision", "IPython", "sklearn"} & set(out.stdout.split())


@needs_cuda_build
def test_rehearse_supports_batch_norm_and_optimizer_state():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()

    def step(model, optimizer, x):
        model.to("cuda")
        optimizer.load_state_dict(optimizer.state_dict())
        model(x.to("cuda")).sum().backward()
        optimizer.step()

    found = cs.rehearse(step, model, optimizer, torch.randn(5, 3))
    assert found.passed, found


def test_unregistered_searches_distributions():
    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.prior = torch.distributions.Normal(torch.zeros(2), torch.ones(2))

    assert cs.unregistered(Coder()) == ["prior.loc", "prior.scale"]
    with pytest.raises(TypeError, match=r"module must be an nn\.Module, got list"):
        cs.unregistered([Coder()])


class Uncopied:
    def __deepcopy__(self, memo):
        raise SystemError("no copy")  # as torch.Generator does under fake tensors


def test_rehearse_rejects_arguments_that_cannot_be_copied():
    batches = iter(torch.utils.data.DataLoader([1]))
    for argument in (Uncopied(), threading.Lock(), (i for i in [1]), batches):
        with pytest.raises(TypeError, match="expected arguments that can be copied"):
            cs.rehearse(lambda x: x, argument)


def test_unregistered_skips_unset_fields():
    @dataclasses.dataclass
    class Config:
        scale: torch.Tensor
        later: torch.Tensor = dataclasses.field(init=False)

    model = nn.Linear(2, 2)
    model.config = Config(torch.ones(1))
    assert cs.unregistered(model) == ["config.scale"]
