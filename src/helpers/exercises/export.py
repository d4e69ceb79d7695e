"""Checkers of the exercises of the chapter on exporting and serving a model."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from helpers.exercises import Verdict, verdict
from helpers.export import quiet, said


class _Served(nn.Module):
    """A classifier that notes how it is called, and by whom its mode is changed."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, classes)
        )
        for _ in range(9):
            self.layers(3 * torch.randn(32, width) + 1)
        self.sizes: list[int] = []
        self.recorded: list[bool] = []
        self.switched = False
        self.eval()
        self.ready = True

    def train(self, mode: bool = True) -> nn.Module:
        self.switched = self.switched or getattr(self, "ready", False)
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        assert x.ndim == 2, f"the model got shape {tuple(x.shape)}: it wants a batch, (N, features)"
        self.sizes.append(len(x))
        scores = self.layers(x)
        self.recorded.append(scores.requires_grad)
        return scores


def check_answers(answer: Callable[[nn.Module, list[Tensor]], list[int]]) -> Verdict:
    """Check `answer(model, requests)`: the class of each request, as a list of int.

    `requests` are tensors of shape (features,). The model is in evaluation mode, other threads use
    it too, and it is run once for all requests, without a graph, whatever thread asks.
    """

    def asked(f: Callable, model: _Served, requests: list[Tensor]) -> list[int]:
        kept = [x.clone() for x in requests]
        with torch.enable_grad():
            got = f(model, requests)
            assert torch.is_grad_enabled(), "gradients stay switched off for the caller"
        assert len(requests) == len(kept), "the list of requests was changed"
        assert all(map(torch.equal, requests, kept)), "a request was changed in place"
        assert isinstance(got, list), f"return a list, got {type(got).__name__}"
        for one in got:
            assert type(one) is int, f"the classes must be int, got {type(one).__name__}"
        assert not model.switched, "another thread works with this model: leave its mode alone"
        assert not any(model.recorded), "graphs were recorded: use torch.inference_mode()"
        return got

    def compare(f: Callable, count: int, complaint: str, classes: int = 5) -> None:
        width = int(torch.randint(3, 7, ()))
        model = _Served(width, classes)
        requests = [3 * torch.randn(width) + 1 for _ in range(count)]
        with torch.no_grad():
            want = [int(model.layers(x[None]).argmax()) for x in requests]
        got = asked(f, model, requests)
        assert got == want, f"{complaint}: {got} instead of {want}"
        if count:
            assert model.sizes == [count], (
                f"the model ran {len(model.sizes)} times: put all requests into one batch"
            )

    def several(f: Callable) -> None:
        for count in (8, 3):
            compare(f, count, "wrong for several requests")

    def one(f: Callable) -> None:
        compare(f, 1, "wrong for a single request")
        compare(f, 1, "wrong for a single request of two classes", classes=2)

    def square(f: Callable) -> None:
        compare(f, 5, "wrong where there are as many requests as classes")

    def none(f: Callable) -> None:
        compare(f, 0, "wrong for no request")

    def thread(f: Callable) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(compare, f, 4, "wrong in a thread").result()

    return verdict(answer, [several, one, square, none, thread])


def check_clip(answer: Callable[[], nn.Module]) -> Verdict:
    """Check `answer`, a module without arguments that `torch.export` takes for any batch size.

    Its `forward(x)`, with `x` of shape (N, d), divides `x` by its norm (that of all its elements)
    where that norm is above 1, and multiplies what it has by N.
    """

    def right(x: Tensor) -> Tensor:
        norm = x.norm()
        return (x / norm if norm > 1 else x) * x.shape[0]

    def case(n: int, size: float, d: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
        x = torch.randn(n, d, dtype=dtype)
        return size * x / x.norm()

    def compare(got: Any, x: Tensor, complaint: str) -> None:
        assert isinstance(got, Tensor), f"return a tensor, got {type(got).__name__}"
        assert got.shape == x.shape, f"the shape is {tuple(got.shape)} instead of {tuple(x.shape)}"
        assert not got.isnan().any(), f"nan: {complaint}"
        assert torch.allclose(got, right(x), rtol=1e-4, atol=1e-5), complaint

    def cases() -> list[tuple[Tensor, str]]:
        return [
            (case(4, 5.0), "wrong where the norm is above 1"),
            (case(4, 0.3), "wrong where the norm is below 1: such an input stays as it is"),
            (torch.zeros(2, 3), "wrong for zeros"),
            (case(1, 3.0), "wrong for a batch of one"),
            (case(7, 0.9), "wrong for a batch of seven"),
        ]

    def plain(f: Callable) -> None:
        model = f()
        assert isinstance(model, nn.Module), "a class of nn.Module is wanted"
        for x, complaint in cases():
            kept = x.clone()
            got = model(x)
            assert torch.equal(x, kept), "the input was changed in place"
            compare(got, x, complaint)

    def program(f: Callable, example: Tensor) -> Callable[[Tensor], Tensor]:
        try:
            with quiet():
                return torch.export.export(
                    f(), (example,), dynamic_shapes=({0: Dim.DYNAMIC},)
                ).module()
        except Exception as error:
            raise AssertionError(f"torch.export refuses it: {said(error)}") from error

    def exports(f: Callable) -> None:
        for size in (5.0, 0.3):  # the example must not decide
            run = program(f, case(3, size))
            for x, complaint in cases():
                try:
                    got = run(x)
                except Exception as error:
                    raise AssertionError(
                        f"the program does not take {len(x)} rows: {said(error)}"
                    ) from error
                compare(got, x, f"as an exported program {complaint}")

    return verdict(answer, [plain, exports])


def check_quantize(answer: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Verdict:
    """Check `answer(weight)`: int8 and a scale for each row, so that `q * scale` is near `weight`.

    `weight` has shape (out, in). The scale of a row is its largest absolute value over 127; `q` is
    int8 of the same shape, `scale` of shape (out,) or (out, 1) and finite, also for a row of zeros.
    """

    def ask(f: Callable, weight: Tensor) -> tuple[Tensor, Tensor]:
        kept = weight.clone()
        got = f(weight)
        assert isinstance(got, tuple) and len(got) == 2, "return a tuple of two tensors"
        q, scale = got
        assert isinstance(q, Tensor) and isinstance(scale, Tensor), "return two tensors"
        assert torch.equal(weight, kept), "the weight was changed in place"
        assert q.dtype == torch.int8, f"the first must be int8, got {q.dtype}"
        assert q.shape == weight.shape, f"int8 of shape {tuple(q.shape)}: keep that of the weight"
        assert scale.shape in ((len(weight),), (len(weight), 1)), (
            f"scales of shape {tuple(scale.shape)}: one for each row is wanted"
        )
        assert scale.is_floating_point(), f"scales must be floats, got {scale.dtype}"
        assert scale.isfinite().all(), "a scale is not finite: mind rows of zeros"
        return q, scale.reshape(-1, 1)

    def compare(f: Callable, weight: Tensor, complaint: str) -> None:
        q, scale = ask(f, weight)
        largest = weight.abs().amax(1, keepdim=True)
        some = largest > 0
        assert torch.allclose(scale[some].double(), (largest / 127)[some].double(), rtol=1e-3), (
            f"{complaint}: the scale of a row is its largest absolute value over 127"
        )
        back = q.double() * scale.double()
        far = (back - weight.double()).abs()
        assert (far <= 0.505 * scale.double() + 1e-12).all(), (
            f"{complaint}: a number is off by more than half a step: round to the nearest"
        )

    def normal(f: Callable) -> None:
        for shape in ((4, 9), (7, 3), (5, 5)):
            compare(f, torch.randn(shape), "wrong for random weights")

    def signs(f: Callable) -> None:
        compare(f, -torch.rand(3, 6) - 0.1, "wrong where all numbers are negative")
        compare(f, torch.rand(3, 6) + 0.1, "wrong where all numbers are positive")

    def unequal(f: Callable) -> None:
        weight = torch.randn(4, 8) * torch.tensor([[1e-3], [1.0], [50.0], [1e4]])
        compare(f, weight, "wrong where rows differ in size")

    def zeros(f: Callable) -> None:
        weight = torch.randn(3, 5)
        weight[1] = 0
        q, _ = ask(f, weight)
        assert not q[1].any(), "a row of zeros must stay zeros"
        compare(f, weight, "wrong beside a row of zeros")

    def parameter(f: Callable) -> None:
        weight = nn.Linear(6, 4).weight
        q, scale = ask(f, weight)
        assert not scale.requires_grad, "the scale has a graph: work on weight.detach()"
        compare(f, weight.detach(), "wrong for the weight of a layer")

    return verdict(answer, [normal, signs, unequal, zeros, parameter])
