"""Checkers of the exercises of the chapter on backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.autograd import watch_saved
from helpers.exercises import Verdict, verdict
from helpers.exercises.modes import called_in_its_modes
from helpers.exercises.tools import a_float, close, in_two_modes, random_state_kept, unchanged


def _accumulate_model_and_chunks(
    counts: list[int],
) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    model = in_two_modes(nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double())
    chunks = []
    for valid in counts:
        size = valid + int(torch.randint(1, 4, ()))
        labels = torch.randint(0, 3, (size,))
        labels[torch.randperm(size)[valid:]] = -100
        chunks.append((torch.randn(5, size, dtype=torch.float64).T, labels))
    return model, chunks


def _accumulate_whole(model: nn.Module, chunks: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    x, labels = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    return list(torch.autograd.grad(F.cross_entropy(model(x), labels), model.parameters()))


def _accumulate_compare(f: Callable, counts: list[int], dirty: bool, complaint: str) -> None:
    model, chunks = _accumulate_model_and_chunks(counts)
    right = _accumulate_whole(model, chunks)
    if dirty:
        for p in model.parameters():
            p.grad = torch.randn_like(p)
    before = [p.detach().clone() for p in model.parameters()]
    seeded = "the random state of {} was changed: the gradients need no random numbers"
    kept = unchanged("gradients", model=model, chunks=chunks)
    with called_in_its_modes(model), kept, random_state_kept(seeded):
        f(model, chunks)
        same = all(map(torch.equal, model.parameters(), before))
        assert same, "a weight has changed: do not update the parameters"
    for p, expected in zip(model.parameters(), right, strict=True):
        assert p.grad is not None, "a parameter has no gradient: call backward"
        assert not p.grad.isnan().any(), "nan: the mean over a chunk without labels is 0 / 0"
        close(p.grad.float(), expected.float(), complaint)


def _accumulate_equal(f: Callable) -> None:
    complaint = (
        "wrong even with the same number of labels in each chunk: compare with one whole batch"
    )
    _accumulate_compare(f, [3, 3, 3], False, complaint)


def _accumulate_unequal(f: Callable) -> None:
    complaint = (
        "chunks with few labels have too much weight: divide sums by the number of all labels"
    )
    _accumulate_compare(f, [1, 4, 7], False, complaint)


def _accumulate_empty(f: Callable) -> None:
    _accumulate_compare(f, [0, 5], False, "wrong when a chunk has no label at all")


def _accumulate_clean(f: Callable) -> None:
    _accumulate_compare(f, [2, 5], True, "the old gradients are still included: clear them first")


def _accumulate_memory(f: Callable) -> None:
    model, chunks = _accumulate_model_and_chunks([2, 3, 4])
    left: list[int] = []
    sizes: list[int] = []

    def watch(_: nn.Module, args: tuple[Tensor, ...]) -> None:
        left.append(alive.count())
        sizes.append(len(args[0]))

    with watch_saved() as alive:
        handle = model.register_forward_pre_hook(watch)
        f(model, chunks)
        handle.remove()
    assert max(sizes, default=0) <= max(len(x) for x, _ in chunks), (
        "the model received several chunks at once: call it once for each chunk"
    )
    assert not any(left), (
        "the graphs of several chunks exist at the same time: call backward after each chunk"
    )


def check_accumulate(
    answer: Callable[[nn.Module, list[tuple[Tensor, Tensor]]], Any],
) -> Verdict:
    """Check `answer(model, chunks)`: leaves the gradient of the whole batch in `.grad`.

    `chunks` is a list of `(x, labels)` with x of shape (n, 5), float64, and labels of shape (n,)
    of which some are -100, ignored. The loss is the mean cross-entropy over all labels that are
    not ignored, in all chunks together. Gradients from before do not count. Only one chunk's
    graph may be alive at a time.
    """
    return verdict(
        answer,
        [
            _accumulate_equal,
            _accumulate_unequal,
            _accumulate_empty,
            _accumulate_clean,
            _accumulate_memory,
        ],
    )


def _equal(got: Tensor | None, right: Tensor | None) -> bool:
    return got is right if got is None or right is None else torch.equal(got, right)


def _loss_gradients_case() -> tuple[list[Tensor], list[nn.Parameter]]:
    trunk = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    parameters = list(trunk.parameters())
    for p in parameters:
        p.grad = torch.randn_like(p)
    out = trunk(torch.randn(6, 3)).tanh().square()  # one graph shared by all
    scale = torch.rand(3) * 9 + 1
    return [s * column.sum() for s, column in zip(scale, out.T, strict=True)], parameters


def _loss_gradients_two_heads() -> tuple[list[Tensor], list[nn.Parameter]]:
    trunk, *heads = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 2)
    h = trunk(torch.randn(6, 3)).tanh()
    parameters = [p for part in (trunk, *heads) for p in part.parameters()]
    return [head(h).square().sum() for head in heads], parameters


def _loss_gradients_half() -> tuple[list[Tensor], list[nn.Parameter]]:
    weight = nn.Parameter(torch.rand(4, dtype=torch.half) + 1)
    return [(weight * 400).sum(), weight.sum()], [weight]


def _loss_gradients_norms(f: Callable) -> None:
    losses, parameters = _loss_gradients_case()
    right = []
    for loss in losses:
        pieces = torch.autograd.grad(loss, parameters, retain_graph=True)
        right.append(torch.cat([g.flatten() for g in pieces]).norm().item())
    got = f(losses, parameters)
    assert got is not None and len(got) == 3, "return one number for each loss"
    for mine, theirs in zip(got, right, strict=True):
        assert math.isclose(a_float(mine), theirs, rel_tol=1e-3), (
            "a norm is wrong: for one loss at a time, take the root of the sum of squares over "
            "all parameters, without the old values of .grad"
        )


def _loss_gradients_unreached(f: Callable) -> None:
    losses, parameters = _loss_gradients_two_heads()
    right = []
    for loss in losses:
        pieces = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
        right.append(torch.cat([g.flatten() for g in pieces]).norm().item())
    try:
        got = f(losses, parameters)
    except (RuntimeError, TypeError, AttributeError):
        raise AssertionError(
            "with two heads, each loss does not depend on one of them: count its gradient as 0"
        ) from None
    assert all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(got, right, strict=True)), (
        "with two heads a norm is wrong: a head that a loss does not depend on counts as 0"
    )


def _loss_gradients_precise(f: Callable) -> None:
    got = f(*_loss_gradients_half())
    assert all(math.isclose(a, b, rel_tol=1e-2) for a, b in zip(got, (800, 2), strict=True)), (
        f"with float16 gradients of 400 the norms are {got} instead of [800.0, 2.0]: "
        "their squares overflow in float16"
    )


def _loss_gradients_untouched(f: Callable) -> None:
    losses, parameters = _loss_gradients_case()
    parameters[1].grad = None
    before = [None if p.grad is None else p.grad.clone() for p in parameters]
    with unchanged(losses=losses, parameters=parameters):
        f(losses, parameters)
        same = all(map(_equal, (p.grad for p in parameters), before))
        assert same, ".grad was changed: compute the gradients without storing them there"


def _loss_gradients_usable(f: Callable) -> None:
    losses, parameters = _loss_gradients_case()
    f(losses, parameters)
    try:
        sum(losses).backward()
    except RuntimeError:
        raise AssertionError(
            "the graph was freed, so the training step cannot call backward"
        ) from None


def check_loss_gradients(
    answer: Callable[[list[Tensor], list[nn.Parameter]], Sequence[float]],
) -> Verdict:
    """Check `answer(losses, parameters)`: for each loss the norm of its gradient, as a float.

    The norm is that of all parameters' gradients together; a parameter that a loss does not
    depend on counts as 0. Both arguments are lists. Afterwards `.grad` is as it was, and the sum
    of the losses can still be sent backward.
    """
    return verdict(
        answer,
        [
            _loss_gradients_norms,
            _loss_gradients_unreached,
            _loss_gradients_precise,
            _loss_gradients_untouched,
            _loss_gradients_usable,
        ],
    )
