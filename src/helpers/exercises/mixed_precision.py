"""Checkers of the exercises of the chapter on mixed precision."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from helpers.exercises import Verdict, verdict
from helpers.exercises.modes import called_in_its_modes
from helpers.exercises.tools import a_tensor, in_two_modes, random_state_kept, unchanged


def _scaled_step_flat_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    grads = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
    return torch.cat([g.flatten() for g in grads])


def _scaled_step_flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def _scaled_step_draw() -> tuple[nn.Module, Tensor, Tensor]:
    model = in_two_modes(nn.Sequential(nn.Linear(3, 2), nn.Identity()))
    return model, torch.randn(8, 3), torch.randn(8, 2) * 5


def _scaled_step_tools(model: nn.Module) -> tuple[Optimizer, torch.amp.GradScaler]:
    scale = 1.375 * 2.0 ** torch.randint(6, 12, ()).item()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2 + 0.4 * torch.rand(()).item())
    return optimizer, torch.amp.GradScaler("cpu", init_scale=scale)


def _scaled_step_run(f: Callable, share: float, stale: bool = False) -> None:
    """Take a step with `max_norm` at `share` of the norm, so `min(1, share)` of it is taken."""
    model, x, y = _scaled_step_draw()
    gradient, before = _scaled_step_flat_gradient(model, x, y), _scaled_step_flat(model)
    optimizer, scaler = _scaled_step_tools(model)
    lr, scale = optimizer.param_groups[0]["lr"], scaler.get_scale()
    kept = {"optimizer": optimizer, "model": model}
    if stale:
        for p in model.parameters():
            p.grad = torch.full_like(p, scale * gradient.norm().item())
    batch = {"x, of the batch": x, "y, of the batch": y}
    same = unchanged("values gradients", **kept)
    with called_in_its_modes(model), same, unchanged(**batch), random_state_kept():
        f(model, x, y, optimizer, scaler, gradient.norm().item() * share)
    moved = (before - _scaled_step_flat(model)) / lr
    taken = (moved @ gradient / gradient.square().sum()).item()  # 1: the whole gradient
    straight = (moved - taken * gradient).norm() <= 5e-4 * moved.norm()

    def close(factor: float) -> bool:
        return math.isclose(taken, factor, rel_tol=5e-4) and bool(straight)

    growth = scaler.get_growth_interval(), scaler.get_growth_factor(), scaler.get_backoff_factor()
    assert growth == (2000, 2.0, 0.5), "a setting of the scaler was changed"
    if close(min(1.0, share)):
        assert scaler.get_scale() == scale, "the scale changed after a successful step"
        return
    assert moved.any(), "the weights were not updated"
    assert not close(share / scale), (
        "the scaled gradients were clipped: call unscale_ before clipping"
    )
    assert not close(1.0), "the gradients were not clipped"
    assert not stale, "the gradients of an earlier step were not cleared"
    raise AssertionError("the update differs from that of SGD on clipped gradients")


def _scaled_step_skip(f: Callable, factor: float, scale: float | None = None) -> None:
    """Take a step on a batch whose labels are multiplied by `factor`; it must be skipped."""
    model, x, y = _scaled_step_draw()
    before, (optimizer, scaler) = _scaled_step_flat(model), _scaled_step_tools(model)
    if scale:
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    scale = scaler.get_scale()
    f(model, x, y * factor, optimizer, scaler, 1.0)
    assert torch.equal(_scaled_step_flat(model), before), (
        "infinite gradients reached the weights: let the scaler take the step"
    )
    assert scaler.get_scale() == scale / 2, (
        "after infinite gradients the scale must be halved: call scaler.update()"
    )


def _scaled_step_overflowing(f: Callable) -> None:
    _scaled_step_skip(f, 1e4, 2.0**127)
    model, x, y = _scaled_step_draw()
    optimizer, scaler = _scaled_step_tools(model)
    scaler.set_growth_interval(1)
    scale = scaler.get_scale()
    f(model, x, y, optimizer, scaler, 1.0)
    assert scaler.get_scale() == 2 * scale, (
        "the scale never grows: leave the step and the scale to scaler.step and scaler.update()"
    )


def check_scaled_step(answer: Callable[..., None]) -> Verdict:
    """Check `answer(model, x, y, optimizer, scaler, max_norm)`: one scaled, clipped step.

    The loss is `F.mse_loss(model(x), y)`, `x` and `y` are float32 of shapes (8, 3) and (8, 2),
    `scaler` is a `torch.amp.GradScaler("cpu")`. The step must equal that without a scaler and leave
    the scale as it was; a batch with infinite gradients must be skipped and halve the scale, also
    where only the scaled loss is infinite.
    """
    return verdict(
        answer,
        [
            lambda f: _scaled_step_run(f, 0.3),
            lambda f: _scaled_step_run(f, 3.0),
            lambda f: _scaled_step_run(f, 0.5, stale=True),
            lambda f: _scaled_step_skip(f, math.inf),
            _scaled_step_overflowing,
        ],
    )


def _rms_compare(f: Callable, x: Tensor, complaint: str) -> None:
    given = x.clone()
    autocast = torch.is_autocast_enabled("cpu")
    with random_state_kept(), unchanged(x=given):
        got = f(given)
    assert torch.is_autocast_enabled("cpu") == autocast, "autocast was not restored"
    want = x.double().square().mean(-1, keepdim=True).sqrt()
    a_tensor(got)
    assert got.shape == want.shape, (
        f"the shape should be {(*want.shape,)}, got {(*got.shape,)}: keepdim=True"
    )
    assert got.dtype == x.dtype, f"expected {x.dtype}, the dtype of x, got {got.dtype}"
    finest = torch.finfo(x.dtype)
    close = torch.isclose(
        got.double(), want, rtol=2 * finest.eps, atol=finest.smallest_normal * finest.eps
    )
    assert close.all(), complaint


def _rms_plain(f):
    _rms_compare(f, torch.randn(4, 16), "wrong even in float32")
    _rms_compare(f, torch.randn(2, 3, 5), "wrong for three dimensions: only the last is averaged")
    _rms_compare(f, torch.randn(7), "wrong for a single dimension")
    _rms_compare(f, torch.randn(5, 4, 3).mT, "wrong for a transposed tensor")


def _rms_large(f):
    _rms_compare(f, torch.randn(3, 64).sign().half() * 300, "300 in float16: its square is inf")
    _rms_compare(
        f, torch.full((2, 1000), 60000.0).half(), "60,000 in float16: the result is in range"
    )


def _rms_small(f):
    tiny = torch.rand(3, 64).add(1).mul(1e-7)
    tiny[0] = 1.5e-7  # 20% off in float16; the errors of random numbers would cancel out
    _rms_compare(f, tiny, "small float32 numbers are wrong: no epsilon is needed")
    _rms_compare(f, torch.rand(3, 64).add(1).mul(1e-5).half(), "small float16 numbers became 0")
    _rms_compare(f, tiny.bfloat16(), "small bfloat16 numbers are wrong: no epsilon is needed")


def _rms_brain(f):
    _rms_compare(f, torch.randn(3, 64).bfloat16(), "wrong in bfloat16")


def _rms_zeros(f):
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        _rms_compare(f, torch.zeros(2, 8, dtype=dtype), "rows of zeros should give 0")


def _rms_under_autocast(f):
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype=dtype):
            _rms_compare(f, (torch.randn(3, 64) * 300).to(dtype), f"wrong under autocast, {dtype}")


def _rms_learning(f):
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for enabled in {False, dtype != torch.float32}:
            x = torch.randn(3, 8).to(dtype).requires_grad_()
            with torch.autocast("cpu", dtype, enabled=enabled):
                got = f(x)
            assert got.requires_grad, f"the result has no gradient for {dtype}"
            (grad,) = torch.autograd.grad(got.float().sum(), x)
            wide = x.detach().double()
            want = wide / wide.norm(dim=1, keepdim=True) / 8**0.5
            assert torch.allclose(grad.double(), want, rtol=0.02, atol=1e-3), (
                f"the gradient is wrong for {dtype}"
            )
        x = torch.zeros(2, 8, dtype=dtype, requires_grad=True)
        (grad,) = torch.autograd.grad(f(x).float().sum(), x)
        assert grad.isfinite().all(), (
            f"the gradient of a row of zeros is not finite for {dtype}: the root has an "
            "infinite derivative at 0"
        )


def check_rms(answer: Callable[[Tensor], Tensor]) -> Verdict:
    """Check `answer(x)`: the root of the mean square over the last dimension, which stays as 1.

    `x` has shape (..., n) and dtype float16, bfloat16 or float32; its numbers are 0 or between 1e-7
    and 60,000 in size. The result has that dtype and carries gradients. It must be right to the
    digits of the dtype, also under autocast. Rows of zeros give 0.
    """
    return verdict(
        answer,
        [
            _rms_plain,
            _rms_large,
            _rms_small,
            _rms_brain,
            _rms_zeros,
            _rms_under_autocast,
            _rms_learning,
        ],
    )
