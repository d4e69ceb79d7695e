"""Checkers of the exercises of the chapter on generative models."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict
from helpers.exercises.losses import nan_remains, one_number, same_gradient
from helpers.exercises.tools import between, close, in_dtypes, leaves, unchanged

# ---------------------------------------------------------------- one step of the generator


class _Log(list):
    """List that copies of a module share with it."""

    def __deepcopy__(self, memo: dict) -> _Log:
        return self


class _Recorder(nn.Sequential):
    """Discriminator that records the modes in which it and its copies ran."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.modes = _Log()

    def forward(self, x: Tensor) -> Tensor:
        self.modes.append(self.training)
        return super().forward(x)


def _gan(dtype: torch.dtype = torch.float32) -> tuple[nn.Module, _Recorder, Any, Tensor]:
    """Return G, D with its own gradients, the optimizer of G and noise."""
    latent, width, data = between(2, 4), between(5, 8), between(2, 3)
    G = nn.Sequential(nn.Linear(latent, width), nn.Tanh(), nn.Linear(width, data)).to(dtype)
    D = _Recorder(nn.Linear(data, width), nn.Tanh(), nn.Linear(width, 1)).to(dtype)
    D(torch.randn(3, data, dtype=dtype)).sum().backward()
    G(torch.randn(3, latent, dtype=dtype)).sum().backward()  # of an earlier step
    D.modes.clear()
    optimizer = torch.optim.SGD(G.parameters(), lr=0.5)
    return G, D, optimizer, torch.randn(latent, between(4, 7), dtype=dtype).T


def _after_step(G: nn.Module, D: nn.Module, z: Tensor, loss: Callable[[Tensor], Tensor]) -> list:
    """Return G's weights after one step of SGD with the learning rate 0.5, and the loss."""
    value = loss(D(G(z)))
    named = list(G.parameters())
    gradients = torch.autograd.grad(value, named)
    return [p.detach() - 0.5 * g for p, g in zip(named, gradients, strict=True)] + [value]


def _same(G: nn.Module, expected: list[Tensor]) -> bool:
    pairs = zip(G.parameters(), expected[:-1], strict=True)
    tight = 1e-5 if expected[0].dtype == torch.float32 else 1e-11
    return all(torch.allclose(p, w, rtol=tight, atol=tight) for p, w in pairs)


def _step_asked(f: Callable, G: nn.Module, D: _Recorder, optimizer: Any, z: Tensor) -> Any:
    with unchanged(D=D, z=z), unchanged("values gradients", G=G):
        got = f(G, D, optimizer, z)
    assert optimizer.param_groups[0]["lr"] == 0.5, "the learning rate was changed"
    return got


def _step_update(f: Callable) -> None:
    for dtype in (torch.float32, torch.float64):
        G, D, optimizer, z = _gan(dtype)
        start = [p.detach().clone() for p in G.parameters()]
        losses = {
            "right": lambda y: F.softplus(-y).mean(),
            "minimax": lambda y: -F.softplus(y).mean(),
            "opposite": lambda y: F.softplus(y).mean(),
            "sum": lambda y: F.softplus(-y).sum(),
        }
        updates = {name: _after_step(G, D, z, loss) for name, loss in losses.items()}
        old = [p.grad.clone() for p in G.parameters()]
        D.modes.clear()
        _step_asked(f, G, D, optimizer, z)
        assert not all(map(torch.equal, G.parameters(), start)), (
            "G did not change: is the fake batch detached, or optimizer.step() missing?"
        )
        stale = [w - 0.5 * g for w, g in zip(updates["right"][:-1], old, strict=True)]
        for name, complaint in (
            ("minimax", "this is the minimax loss: minimize -log D(G(z)), the BCE with label 1"),
            ("opposite", "G is trained to be recognized: the label of its samples is 1 here"),
            ("sum", "the loss is a sum: take the mean over the batch"),
        ):
            assert not _same(G, updates[name]), complaint
        assert not _same(G, [*stale, None]), (
            "the gradients of an earlier step were added: call zero_grad() first"
        )
        assert _same(G, updates["right"]), "the weights of G are not those after one step"


def _step_returned(f: Callable) -> None:
    G, D, optimizer, z = _gan(torch.float64)
    value = _after_step(G, D, z, lambda y: F.softplus(-y).mean())[-1].item()
    got = _step_asked(f, G, D, optimizer, z)
    assert isinstance(got, float), f"expected the loss as a float, got {type(got).__name__}"
    assert math.isclose(got, value, rel_tol=1e-6), (
        f"the loss before the step is {value:.4f}, and {got:.4f} was returned"
    )
    assert math.isclose(got, value, rel_tol=1e-12), (
        "the loss has the digits of float32, but the logits are float64: use ones_like(logits)"
    )


def _step_large(f: Callable) -> None:
    G, D, optimizer, z = _gan()
    with torch.no_grad():
        D[-1].bias -= 2000.0  # D is certain: the sigmoid rounds to 0
    gradients = torch.autograd.grad(F.softplus(-D(G(z))).mean(), list(G.parameters()))
    with torch.no_grad():  # a gradient of norm 5, which clipping shortens
        D[-1].weight *= 5.0 / torch.stack([g.norm() for g in gradients]).norm()
    D.modes.clear()
    updates = _after_step(G, D, z, lambda y: F.softplus(-y).mean())
    got = _step_asked(f, G, D, optimizer, z)
    assert math.isclose(got, updates[-1].item(), rel_tol=1e-5) and _same(G, updates), (
        "wrong for a D that is certain: a sigmoid rounds to 0, so use logits, "
        "binary_cross_entropy_with_logits, and the whole gradient"
    )


def _step_modes(f: Callable) -> None:
    for training in (True, False):
        G, D, optimizer, z = _gan()
        D.train(training)
        D[0].requires_grad_(False)  # a frozen layer
        steps = []
        optimizer.register_step_post_hook(lambda *_, steps=steps: steps.append(1))
        _step_asked(f, G, D, optimizer, z)
        assert len(steps) == 1, "expected one optimizer_G.step(), the optimizer given"
        assert D.modes == [training], "run D once, in the mode in which it came"
        assert not any(p.requires_grad for p in D[0].parameters())


def check_generator_step(
    answer: Callable[[nn.Module, nn.Module, torch.optim.Optimizer, Tensor], float],
) -> Verdict:
    """Check `answer(G, D, optimizer_G, z)`: a step of G with the non-saturating loss, a float.

    `z` has shape (N, latent), and D returns logits of shape (N, 1). Parameters, gradients,
    `requires_grad` and modes of D must be the same afterwards.
    """
    return verdict(answer, [_step_update, _step_returned, _step_large, _step_modes])


# ---------------------------------------------------------------- KL of two Gaussians


def _kl(mu: Tensor, logvar: Tensor, prior_mu: Tensor, prior_logvar: Tensor) -> Tensor:
    """Return the KL of each element."""
    ratio = (logvar - prior_logvar).exp()
    apart = (mu - prior_mu).square() * (-prior_logvar).exp()
    return 0.5 * (ratio + apart - 1 - logvar + prior_logvar)


def _kl_draw() -> list[Tensor]:
    shape = between(3, 5), between(6, 9)
    return [torch.randn(shape) for _ in range(4)]


def _kl_right(*inputs: Tensor) -> Tensor:
    return _kl(*inputs).sum(1).mean()


def _kl_value(f: Callable) -> None:
    for _ in range(3):
        mu, logvar, other, wide = _kl_draw()
        got, each = one_number(f(mu, logvar, other, wide)), _kl(mu, logvar, other, wide)
        if torch.allclose(got, each.sum(1).mean(), rtol=1e-4):  # a wrong value may equal it
            continue
        for wrong, complaint in (
            (each.mean(), "this is the mean over the latent dimensions: sum over them"),
            (each.sum(), "this is the sum over the batch: take the mean over it"),
            (
                _kl(other, wide, mu, logvar).sum(1).mean(),
                "this is KL(prior || posterior): exchange the two",
            ),
            (-each.sum(1).mean(), "the sign is wrong: a KL is never below 0"),
            (2 * each.sum(1).mean(), "the factor 1/2 is missing"),
            (
                _kl(mu, 2 * logvar, other, 2 * wide).sum(1).mean(),
                "logvar is the logarithm of the variance, not of the standard deviation",
            ),
            (
                _kl(mu, logvar, 0 * mu, 0 * mu).sum(1).mean(),
                "the prior is not N(0, 1) here: its mean and variance are arguments",
            ),
            (
                _kl(mu, logvar, 0 * mu, 0 * mu).mean(),
                "this is the mean of the KL to N(0, 1): the prior has a mean and a variance here, "
                "and the latent dimensions are summed",
            ),
        ):
            assert not torch.allclose(got, wrong, rtol=1e-4), complaint
        raise AssertionError("wrong value")


def _kl_equal(f: Callable) -> None:
    mu, logvar, *_ = _kl_draw()
    got = one_number(f(mu, logvar, mu.clone(), logvar.clone()))
    assert got.abs() < 1e-5, "for equal distributions the KL is 0"


def _kl_others(f: Callable) -> None:
    for shape in ((1, 4), (5, 1), (1, 1)):
        inputs = [torch.randn(shape) for _ in range(4)]
        close(one_number(f(*inputs)), _kl_right(*inputs), f"wrong for the shape {shape}", 1e-4)
    inputs = [torch.tensor([[x]]) for x in (30.0, 25.0, -3.0, -20.0)]
    close(
        one_number(f(*inputs)),
        _kl_right(*inputs),
        "wrong for large values: nothing may be clamped",
        1e-4,
    )


def _kl_gradient(f: Callable) -> None:
    inputs = [x.requires_grad_() for x in _kl_draw()]
    for x in inputs:
        same_gradient(f(*inputs), _kl_right(*inputs), x)


def _kl_dtypes(f: Callable) -> None:
    in_dtypes(f, _kl_right, *_kl_draw(), wider=True)
    nan_remains(f, *_kl_draw())


def check_kl(answer: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(mu, logvar, prior_mu, prior_logvar)`: KL(posterior || prior), one number.

    All have shape (N, latent). Expected is the sum over the latent dimensions, averaged over the
    batch, with gradients for all four.
    """
    asked = leaves(answer, "mu", "logvar", "prior_mu", "prior_logvar")
    return verdict(asked, [_kl_value, _kl_equal, _kl_others, _kl_gradient, _kl_dtypes])
