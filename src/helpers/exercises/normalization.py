"""Checkers of the exercises of the chapter on normalization."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import (
    close,
    in_two_modes,
    leaves,
    tensors,
    unchanged,
)


def _recompute_flat(x: Tensor) -> Tensor:
    return x.flatten(1)  # one pixel at most


def _recompute_case(
    dtype: torch.dtype = torch.float32,
) -> tuple[nn.Module, list[Tensor], dict[str, Tensor]]:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=0.3), nn.Tanh())
    model += nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    inner = nn.Sequential(nn.Unflatten(1, (2, 1, 1)), nn.BatchNorm2d(2))
    inner += nn.Sequential(nn.Unflatten(3, (1, 1)), nn.BatchNorm3d(2))
    model.append(inner).to(dtype)
    for layer in (model[1], model[4], inner[1], inner[3]):
        layer.running_mean.uniform_(5, 6)
        layer.running_var.uniform_(5, 6)
        layer.num_batches_tracked.fill_(40)
    batches = list(torch.randn(5, 8, 3, dtype=dtype) * 2 + 1)
    seen: dict[str, list[Tensor]] = {"1": [], "4": [], "5.1": [], "5.3": []}
    twin = copy.deepcopy(model).train()
    for name, inputs in seen.items():
        twin.get_submodule(name).register_forward_pre_hook(
            lambda _, args, inputs=inputs: inputs.append(args[0].detach())
        )
    for batch in batches:
        twin(batch)
    right = {}
    for name, inputs in seen.items():
        right[f"{name}.running_mean"] = torch.stack(
            [_recompute_flat(i).mean(0) for i in inputs]
        ).mean(0)
        right[f"{name}.running_var"] = torch.stack(
            [_recompute_flat(i).var(0) for i in inputs]
        ).mean(0)
    return model, batches, right


def _recompute_statistics(f: Callable) -> None:
    for dtype, training in ((torch.float32, True), (torch.float32, False), (torch.float64, False)):
        model, batches, right = _recompute_case(dtype)
        model.train(training)[1].eval()
        leaves(f, "", "batches")(model, batches)
        for name, value in right.items():
            what = f"{name} is not the average over the batches"
            close(model.get_buffer(name), value, what, atol=1e-4)


def _recompute_the_rest(f: Callable, training: bool, frozen: bool) -> None:
    model, batches, _ = _recompute_case()
    model.train(training)
    model[1].train(not frozen)
    modes = {name or "the model": m.training for name, m in model.named_modules()}
    before = {name: (p, p.detach().clone()) for name, p in model.named_parameters()}
    with unchanged("values modes objects", model=model):  # buffers may be replaced
        f(model, batches)
    for name, p in model.named_parameters():
        same, value = before[name]
        assert p is same and torch.equal(p, value), f"the parameter {name} has changed"
        assert p.requires_grad, f"the parameter {name} was frozen"
        assert p.grad is None, f"the parameter {name} has a gradient now"
    momenta = [layer.momentum for layer in (model[1], model[4], model[5][1], model[5][3])]
    came = [0.3, 0.1, 0.1, 0.1]
    assert momenta == came, f"the momentum was changed: expected {came}, got {momenta}"
    for name, m in model.named_modules():
        came = modes[name or "the model"]
        what = f"{name or 'the model'} had training={came} before the call: restore it"
        assert m.training == came, what


def check_recompute(answer: Callable[[nn.Module, Iterable[Tensor]], Any]) -> Verdict:
    """Check `answer(model, batches)`: running statistics become the average over the batches.

    `batches` is a list of tensors of shape (n, 3) in the model's dtype. The running mean of every
    BatchNorm layer must be the mean of the batch means, its running variance the mean of the
    unbiased batch variances, whatever its value was before. Parameters, momentum and the mode of
    every module must not change.
    """

    tests = [
        _recompute_statistics,
        lambda f: _recompute_the_rest(f, True, False),
        lambda f: _recompute_the_rest(f, False, True),
        lambda f: _recompute_the_rest(f, True, True),
    ]
    return verdict(answer, tests)


_DIGITS = "float64 statistics give a {} with the digits of float32: counts / counts.sum()?"


def _merge_case() -> tuple[list[Tensor], Tensor]:
    counts = [2, 3, 5, 9]
    order = torch.randperm(4).tolist()
    offset = torch.tensor([-4.0, -1.0, 2.0, 6.0], dtype=torch.double)
    shards = [
        torch.randn(counts[i], 3, dtype=torch.double) * (1 + k) + offset[k]
        for k, i in enumerate(order)
    ]
    means = torch.stack([s.mean(0) for s in shards])
    variances = torch.stack([s.var(0, correction=0) for s in shards])
    return [means, variances, torch.tensor([len(s) for s in shards])], torch.cat(shards)


def _merge_results(f: Callable) -> tuple[Tensor, Tensor, Tensor]:
    inputs, whole = _merge_case()
    got = leaves(f, "means", "variances", "counts")(*inputs)
    tensors(got, 2, "return two tensors: mean, variance")
    for name, t in zip(("mean", "variance"), got, strict=True):
        shape = tuple(t.shape)
        assert shape == (3,), f"the {name} should have one number per channel, got {shape}"
        dtype = "float64"
        assert t.dtype == torch.double, f"{dtype} statistics give a {name} of {t.dtype}"
    return (*got, whole)


def _merge_mean(f: Callable) -> None:
    got, _, whole = _merge_results(f)
    what = "the mean is not that of the whole batch: the shards have different sizes"
    assert torch.allclose(got, whole.mean(0), atol=1e-4), what
    assert torch.allclose(got, whole.mean(0), rtol=0, atol=1e-10), _DIGITS.format("mean")


def _merge_variance(f: Callable) -> None:
    _, got, whole = _merge_results(f)
    right = whole.var(0, correction=0)
    what = "that is the unbiased variance: divide by the number of samples"
    assert not torch.allclose(got, whole.var(0), atol=1e-4), what
    what = "the variance is too small: the means of the shards differ, and that adds to it"
    assert not (got < right - 1e-4).any(), what
    assert torch.allclose(got, right, atol=1e-4), "the variance is not that of the whole batch"
    assert torch.allclose(got, right, rtol=0, atol=1e-10), _DIGITS.format("variance")


def _merge_single(f: Callable) -> None:
    means, variances, counts = (t[:1] for t in _merge_case()[0])
    for got, right in zip(f(means, variances, counts), (means[0], variances[0]), strict=True):
        close(got, right, "with one shard the result is its mean and variance")


def _merge_float32(f: Callable) -> None:
    (means, variances, counts), whole = _merge_case()
    mean, got = f((means + 30_000).float(), variances.float(), counts)
    for name, t in zip(("mean", "variance"), (mean, got), strict=True):
        dtype = "float32"
        assert t.dtype == torch.float32, f"{dtype} statistics give a {name} of {t.dtype}"
    what = "in float32, means near 30000: the mean is not that of the whole batch"
    assert torch.allclose(mean.double(), whole.mean(0) + 30_000, rtol=0, atol=0.05), what
    what = "in float32, means near 30000: two large squares were subtracted"
    assert torch.allclose(got.double(), whole.var(0, correction=0), rtol=0.05), what


def check_merge(answer: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Verdict:
    """Check `answer(means, variances, counts)`: the mean and biased variance of the whole batch.

    `means` and `variances` (biased) have shape (shards, channels), float64 or, with means near
    30000, float32; `counts` has shape (shards,), int64. The result is a pair of tensors of shape
    (channels,) with the dtype of `means`.
    """

    return verdict(answer, [_merge_mean, _merge_variance, _merge_single, _merge_float32])


def _init_model() -> nn.Sequential:
    norm = nn.BatchNorm2d(64)
    nn.init.uniform_(norm.weight, 2, 3)
    return nn.Sequential(
        nn.Conv2d(32, 64, 3),
        nn.Sequential(norm, nn.ReLU(), nn.Sequential(nn.Conv1d(64, 96, 3, bias=False))),
        nn.BatchNorm2d(96, affine=False),
        nn.LayerNorm(8, elementwise_affine=False),
        nn.Embedding(10, 4, padding_idx=0),
        nn.Conv3d(32, 96, 2, groups=2),
        nn.Linear(48, 160),
        nn.utils.parametrizations.weight_norm(nn.Linear(48, 160)),
        nn.ConvTranspose2d(8, 8, 3),
        nn.modules.linear.NonDynamicallyQuantizableLinear(48, 160),  # as in MultiheadAttention
    )


def _init_weights(f: Callable) -> None:
    net = _init_model()
    f(net)
    for name, layer in net.named_modules():
        if not isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            continue
        what = f"layer {name}, {type(layer).__name__}"
        w = layer.weight.detach()
        ratio = w.std().item() / (2 / w[0].numel()) ** 0.5
        assert abs(ratio - 1) < 0.1, f"{what}: std is {ratio:.1f} times sqrt(2 / fan_in)"
        far = w.abs().max() > 2.5 * w.std()
        inside = (w.abs() < w.std()).float().mean().item()  # 0.683 for a normal one around 0
        assert far and abs(inside - 0.683) < 0.03, (
            f"{what}: right std, but the weights are not drawn from a normal distribution"
        )
        if layer.bias is not None:
            assert not layer.bias.detach().any(), f"{what}: the bias is not zero"


def _init_others(f: Callable) -> None:
    net = _init_model()
    kept = {
        n: p.detach().clone()
        for n, p in net.named_parameters()
        if n[:3] in ("1.0", "4.w", "8.w", "8.b")
    }
    f(net)
    for name, before in kept.items():
        layer = type(net.get_submodule(name.rpartition(".")[0])).__name__
        assert torch.equal(net.get_parameter(name), before), f"{name} of {layer} has changed"


def _init_same_objects(f: Callable) -> None:
    net = in_two_modes(_init_model())
    before = dict(net.named_parameters())
    with unchanged("values requires_grad objects", net=net):
        f(net)
    for name, p in net.named_parameters():
        what = f"{name} is a new object: an existing optimizer would train the old one"
        assert p is before.get(name), what
        assert p.requires_grad and p.is_leaf, f"{name} can no longer be trained"


def check_init(answer: Callable[[nn.Module], Any]) -> Verdict:
    """Check `answer(model)`: Kaiming-normal weights for ReLU (fan-in), biases zero, in place.

    Holds for every `nn.Linear` and `nn.Conv1d/2d/3d`, however deep inside, also with a
    parametrization; normalization layers and embeddings must stay as they are.
    """
    return verdict(answer, [_init_weights, _init_others, _init_same_objects], draws=True)
