"""Checkers of the exercises of the chapter on exporting and serving a model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import (
    a_tensor,
    between,
    close,
    global_state_kept,
    ints,
    kind,
    learns,
    leaves,
    random_state_kept,
    tensors,
    unchanged,
    with_gradients,
)
from helpers.export import error_reason, quiet


class _Watched:
    """Module that records each change of its mode, however it is made."""

    seen: list[str]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "training" and "seen" in vars(self) and value != self.training:
            self.seen.append(name)
        super().__setattr__(name, value)


class _Linear(_Watched, nn.Linear):
    pass


class _BatchNorm(_Watched, nn.BatchNorm1d):
    pass


class _Dropout(_Watched, nn.Dropout):
    pass


class _Served(nn.Module):
    """Classifier that records its calls and the changes of its mode."""

    def __init__(self, width: int, classes: int, meeting: Barrier | None = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _Linear(width, 8), _BatchNorm(8), _Dropout(0.5), _Linear(8, classes)
        )
        for _ in range(9):
            self.layers(3 * torch.randn(32, width) + 1)
        self.sizes: list[int] = []
        self.recorded: list[bool] = []
        self.switched = self.frozen = False
        self.meeting = meeting
        self.eval()
        self.modes: list[str] = []
        for layer in self.layers:
            layer.seen = self.modes
        self.ready = True
        self.names = {*vars(self), "names"}

    def train(self, mode: bool = True) -> nn.Module:
        changes = any(m.training != mode for m in self.modules())
        self.switched = self.switched or (changes and getattr(self, "ready", False))
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        assert x.ndim == 2, (
            f"the model got shape {tuple(x.shape)}: it requires a batch, (N, features)"
        )
        self.sizes.append(len(x))
        self.frozen = self.frozen or not all(p.requires_grad for p in self.parameters())
        scores = self.layers(x)
        self.recorded.append(scores.requires_grad)
        if self.meeting:  # the other request gets here, too, unless there is a lock
            with contextlib.suppress(BrokenBarrierError):
                self.meeting.wait(0.5)
        return scores


def _answers_asked(f: Callable, model: _Served, requests: list[Tensor]) -> list[int]:
    with unchanged(requests=requests, **{"the model": model}), global_state_kept():
        got = f(model, requests)
        changed = model.switched or model.modes
        assert not changed, "other threads use this model: do not change its mode"
        frozen = model.frozen or not all(p.requires_grad for p in model.parameters())
        assert not frozen, "other threads use this model: do not change its parameters"
    added = sorted(vars(model).keys() - model.names)
    assert not added, f"the model got the attribute {added[:1]}, which other threads share"
    assert isinstance(got, list), f"return a list, got {kind(got)}"
    got = ints(got, "the class indices must be int")
    assert not any(model.recorded), "graphs were recorded: use torch.inference_mode()"
    return got


def _answers_compare(
    f: Callable, count: int, complaint: str, classes: int = 5, dtype: torch.dtype = torch.float32
) -> None:
    width = int(torch.randint(3, 7, ()))
    model = with_gradients(_Served(width, classes).to(dtype))
    requests = [3 * torch.randn(width, dtype=dtype) + 1 for _ in range(count)]
    least = 1e-4 if dtype == torch.float32 else 1e-10
    with torch.no_grad():
        if count > 100:  # the two best logits differ by less than a narrower dtype resolves
            last = model.layers[-1]
            last.weight.mul_(10 * least)
            last.weight[1] = -last.weight[0]
            last.bias[:2] = 8.0
        best = [(x, model.layers(x[None]).topk(2)) for x in requests]
    # the order of closer logits in this dtype can depend on the batch size
    best = [(x, top) for x, top in best if top.values[0, 0] - top.values[0, 1] > least]
    requests, want = [x for x, _ in best], [int(top.indices[0, 0]) for _, top in best]
    count = len(requests)
    got = _answers_asked(f, model, requests)
    assert len(got) == count, f"{complaint}: {len(got)} classes for {count} requests"
    wrong = [i for i in range(count) if got[i] != want[i]]
    assert not wrong, f"{complaint}: class {got[wrong[0]]} instead of {want[wrong[0]]}"
    if count:
        assert model.sizes == [count], (
            f"the model ran {len(model.sizes)} times: put all requests into one batch"
        )


def _answers_several(f: Callable) -> None:
    for count in (8, 3, between(30, 90), 1000):
        _answers_compare(f, count, "wrong for several requests")
    _answers_compare(f, 1000, "wrong in float64", dtype=torch.float64)
    wants: list[list[int]] = [[], []]
    while wants[0] == wants[1]:
        model, batch = _Served(4, 5), 3 * torch.randn(9, 4) + 1
        wants = [model.layers(x).argmax(1).tolist() for x in (batch, batch.flip(1))]
    requests = list(batch)
    for want in wants:  # other numbers with the same sum, in the same places
        assert f(model, requests) == want, "the result of earlier requests is returned again"
        for x in requests:
            x.copy_(x.flip(0))


def _answers_one(f: Callable) -> None:
    _answers_compare(f, 1, "wrong for a single request")
    _answers_compare(f, 1, "wrong for a single request of two classes", classes=2)


def _answers_square(f: Callable) -> None:
    _answers_compare(f, 5, "wrong where there are as many requests as classes")


def _answers_none(f: Callable) -> None:
    _answers_compare(f, 0, "wrong for no request")


def _answers_thread(f: Callable) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_answers_compare, f, 4, "wrong in a thread").result()


def _answers_caller(f: Callable) -> None:
    requests = [torch.randn(3) for _ in range(2)]
    with torch.no_grad():
        f(_Served(3, 4), requests)
        assert not torch.is_grad_enabled(), "gradients are switched on for the caller"


def _answers_together(f: Callable) -> None:
    model = _Served(3, 5, Barrier(2))
    requests = [[3 * torch.randn(3) + 1 for _ in range(20)] for _ in range(2)]
    with torch.no_grad():
        want = [model.layers(torch.stack(one)).argmax(1).tolist() for one in requests]
    with ThreadPoolExecutor(2) as pool:
        got = [*pool.map(f, [model] * 2, requests)]
    assert got == want, "with two threads at the same time, one got the result of the other"


def check_answers(answer: Callable[[nn.Module, list[Tensor]], list[int]]) -> Verdict:
    """Check `answer(model, requests)`: the class of each request, as a list of int.

    `requests` are tensors of shape (features,). The model is in evaluation mode, other threads use
    it too, and it is run once for all requests, without a graph, in any thread.
    """
    return verdict(
        answer,
        [
            _answers_several,
            _answers_one,
            _answers_square,
            _answers_none,
            _answers_thread,
            _answers_caller,
            _answers_together,
        ],
        draws=True,
    )


def _clip_right(x: Tensor) -> Tensor:
    norm = x.norm()
    return (x / norm if norm > 1 else x) * x.shape[0]


def _clip_case(n: int, size: float, d: int, dtype: torch.dtype = torch.float32) -> Tensor:
    x = torch.randn(n, d, dtype=dtype)
    return size * x / x.norm()


def _clip_compare(got: Any, x: Tensor, complaint: str) -> None:
    a_tensor(got, x.shape, x.dtype)
    assert not got.isnan().any(), f"nan: {complaint}"
    close(got, _clip_right(x), complaint, 1e-4)


def _clip_cases(d: int) -> list[tuple[Tensor, str]]:
    return [
        (_clip_case(4, 5.0, d), "wrong where the norm is above 1"),
        (_clip_case(4, 80.0, d), "wrong where the norm is far above 1"),
        (_clip_case(4, 1.05, d), "wrong where the norm is just above 1"),
        (_clip_case(4, 0.3, d), "wrong where the norm is below 1: such an input stays as it is"),
        (torch.zeros(2, d), "wrong for zeros"),
        (_clip_case(1, 3.0, d), "wrong for a batch of one"),
        (_clip_case(7, 0.9, d), "wrong for a batch of seven"),
        (_clip_case(40, 2.0, d), "wrong for a batch of forty"),
    ]


def _clip_plain(f: Callable) -> None:
    model = f()
    assert isinstance(model, nn.Module), "expected a subclass of nn.Module"
    others = [
        (_clip_case(4, 5.0, 3, torch.float64), "wrong in float64"),
        (_clip_case(3, 5.0, 4).t(), "wrong for a transposed input"),
    ]
    for mode in (True, False):
        for x, complaint in [*_clip_cases(3), *_clip_cases(int(torch.randint(4, 9, ()))), *others]:
            with unchanged(**{"the input": x}):
                got = model.train(mode)(x)
            _clip_compare(got, x, complaint if mode else f"in evaluation mode {complaint}")


def _clip_program(f: Callable, example: Tensor) -> Callable[[Tensor], Tensor]:
    try:
        with quiet():
            return torch.export.export(f(), (example,), dynamic_shapes=({0: Dim.DYNAMIC},)).module()
    except Exception as error:
        raise AssertionError(f"torch.export raises: {error_reason(error)}") from error


def _clip_exports(f: Callable) -> None:
    for size, d in ((5.0, 3), (0.3, 5)):  # the example must not decide
        run = _clip_program(f, _clip_case(3, size, d))
        for x, complaint in _clip_cases(d):
            try:
                got = run(x)
            except Exception as error:
                raise AssertionError(
                    f"the program raises for {len(x)} rows: {error_reason(error)}"
                ) from error
            _clip_compare(got, x, f"as an exported program {complaint}")

    for x, complaint in _clip_cases(4):
        x.requires_grad_()
        (mine,) = learns(f()(x), x, "the result has no graph: x gets no gradient")
        assert not mine.isnan().any(), (
            f"the gradient is nan, {complaint}: torch.where differentiates both branches"
        )
        (theirs,) = torch.autograd.grad(_clip_right(x).sum(), x)
        close(mine, theirs, f"the gradient is {complaint}", 1e-3, 1e-4)


def check_clip(answer: Callable[[], nn.Module]) -> Verdict:
    """Check `answer`, a module without arguments that `torch.export` takes for any batch size.

    Its `forward(x)`, with `x` of shape (N, d), divides `x` by its norm (that of all its elements)
    where that norm is above 1, and multiplies what it has by N.
    """
    return verdict(answer, [_clip_plain, _clip_exports])


def _quantize_ask(f: Callable, weight: Tensor) -> tuple[Tensor, Tensor]:
    with random_state_kept("random numbers were drawn: the state of {} has changed"):
        q, scale = tensors(leaves(f, "the weight")(weight), 2, "return a tuple of two tensors")
    assert q.dtype == torch.int8, f"the first must be int8, got {q.dtype}"
    assert q.shape == weight.shape, f"int8 of shape {tuple(q.shape)}: keep that of the weight"
    assert scale.shape in ((len(weight),), (len(weight), 1)), (
        f"scales of shape {tuple(scale.shape)}: expected one for each row"
    )
    assert scale.is_floating_point(), f"scales must be floats, got {scale.dtype}"
    assert scale.isfinite().all(), "a scale is not finite: check rows of zeros"
    return q, scale.reshape(-1, 1)


def _quantize_compare(f: Callable, weight: Tensor, complaint: str) -> None:
    q, scale = _quantize_ask(f, weight)
    largest = weight.abs().amax(1, keepdim=True).double()
    some = largest > 0
    assert torch.allclose(scale[some].double(), largest[some] / 127, 6e-4, 0), (
        f"{complaint}: the scale of a row is its largest absolute value over 127"
    )
    back = q.double() * scale.double()
    far = (back - weight.double()).abs()
    assert (far <= 0.505 * scale.double()).all(), (
        f"{complaint}: a number is off by more than half a step: round to the nearest"
    )


def _quantize_normal(f: Callable) -> None:
    for shape in ((4, 9), (7, 3), (5, 5), (3, 70), (70, 3), (6, 1), (1, 6)):
        _quantize_compare(f, torch.randn(shape), "wrong for random weights")


def _quantize_signs(f: Callable) -> None:
    _quantize_compare(f, -torch.rand(3, 6) - 0.1, "wrong where all numbers are negative")
    _quantize_compare(f, torch.rand(3, 6) + 0.1, "wrong where all numbers are positive")


def _quantize_unequal(f: Callable) -> None:
    weight = torch.randn(5, 8) * torch.tensor([[1.0], [1e-3], [1.0], [50.0], [1e4]])
    weight[0] = weight[0].sign() * 3e-9
    _quantize_compare(f, weight, "wrong where rows differ in size")


def _quantize_zeros(f: Callable) -> None:
    weight = torch.randn(3, 5)
    weight[1] = 0
    q, _ = _quantize_ask(f, weight)
    assert not q[1].any(), "a row of zeros must stay zeros"
    _quantize_compare(f, weight, "wrong beside a row of zeros")
    q, _ = _quantize_ask(f, torch.zeros(2, 3))
    assert not q.any(), "a weight of zeros must stay zeros"


def _quantize_parameter(f: Callable) -> None:
    for dtype in (torch.float32, torch.float64):
        weight = nn.Linear(6, 4, dtype=dtype).weight
        _, scale = _quantize_ask(f, weight)
        assert not scale.requires_grad, "the scale has a graph: work on weight.detach()"
        _quantize_compare(f, weight.detach(), f"wrong for the weight of a layer in {dtype}")


def _quantize_half(f: Callable) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        weight = torch.randn(5, 200).to(dtype)
        _quantize_compare(f, weight, f"wrong for a weight in {dtype}: compute in float32")
        _, scale = _quantize_ask(f, weight)
        assert scale.dtype in (torch.float32, torch.float64), (
            f"scales must be float32 or float64, got {scale.dtype}"
        )


def check_quantize(answer: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Verdict:
    """Check `answer(weight)`: int8 and a scale for each row, so that `q * scale` is near `weight`.

    `weight` has shape (out, in) and any floating dtype. The scale of a row is its largest absolute
    value over 127; `q` is int8 of the same shape, `scale` of shape (out,) or (out, 1) and finite,
    also for a row of zeros.
    """
    return verdict(
        answer,
        [
            _quantize_normal,
            _quantize_signs,
            _quantize_unequal,
            _quantize_zeros,
            _quantize_parameter,
            _quantize_half,
        ],
    )
