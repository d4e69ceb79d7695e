"""Helpers of the chapter "Normalize activations, initialize weights".

Source: `torch.nn.BatchNorm2d`, https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html,
and `torch.nn.init`, https://pytorch.org/docs/stable/nn.init.html
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Init = Callable[[Tensor], Any]


def moving(model: nn.Module, x: Tensor) -> list[str]:
    """The names of the buffers that one forward pass of `x` would change.

    Run on a copy and without gradients, in the mode the model is in; the model stays as it is.
    An empty list means that the pass leaves no trace, as in evaluation.
    """
    model = copy.deepcopy(model)
    before = {name: b.clone() for name, b in model.named_buffers()}
    with torch.no_grad():
        model(x)
    return [name for name, b in model.named_buffers() if not torch.equal(b, before[name])]


# ---------------------------------------------------------------- noise of small batches


def statistics_noise(size: int, trials: int = 2000) -> dict[str, float]:
    """How far the mean and the variance of a batch of `size` standard normal samples scatter.

    Returns:
        The standard deviation over `trials` batches of the `mean` and of the unbiased `variance`.

    Raises:
        ValueError: `size` is below 2, where a variance has no meaning.
    """
    _at_least_two(size)
    generator = torch.Generator().manual_seed(0)
    batches = torch.randn(trials, size, generator=generator)
    return {"mean": batches.mean(1).std().item(), "variance": batches.var(1).std().item()}


def neighbour_noise(layer: nn.Module, size: int, trials: int = 200) -> float:
    """How far one sample's output scatters when the others in its batch of `size` are replaced.

    The batch has shape (size, 16), float32, standard normal; `layer` stays in the mode it is in.

    Returns:
        The standard deviation over `trials` batches, averaged over the features.

    Raises:
        ValueError: `size` is below 2, so that there is no other sample.
    """
    _at_least_two(size)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(trials, size, 16, generator=generator)
    x[:, 0] = x[0, 0].clone()  # the same sample everywhere
    with torch.no_grad():
        outputs = torch.stack([layer(batch)[0] for batch in x])
    return outputs.std(0).mean().item()


def _at_least_two(size: int) -> None:
    if size < 2:
        raise ValueError(f"size must be at least 2, got {size}")


def draw_batch_noise() -> Figure:
    """Left, the noise of a batch's statistics; right, what it does to the output of one sample."""
    import matplotlib.pyplot as plt

    sizes = [2, 4, 8, 16, 32, 64, 128, 256]
    noise = [statistics_noise(size) for size in sizes]
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharex=True)
    for key, style in {"mean": "o-", "variance": "s--"}.items():
        color = {"mean": "#0a6b7d", "variance": "#c2410c"}[key]
        axes[0].plot(sizes, [n[key] for n in noise], style, color=color, label=f"batch {key}")
    layers = {"BatchNorm1d": nn.BatchNorm1d(16), "LayerNorm": nn.LayerNorm(16)}
    for (name, layer), style in zip(layers.items(), ("s--", "o-"), strict=True):
        color = {"BatchNorm1d": "#c2410c", "LayerNorm": "#0a6b7d"}[name]
        axes[1].plot(
            sizes, [neighbour_noise(layer, s) for s in sizes], style, color=color, label=name
        )
    axes[0].set_title("statistics of the batch", loc="left", fontsize=10)
    axes[1].set_title("output of one fixed sample", loc="left", fontsize=10)
    axes[0].set_ylabel("standard deviation")
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.set_ylim(bottom=-0.03)
        axis.set_xlabel("batch size")
        _finish(axis)
    figure.tight_layout()
    return figure


# ---------------------------------------------------------------- signal through a deep network


def signal(init: Init | None, depth: int = 30, width: int = 256) -> dict[str, list[float]]:
    """The size of activations and gradients, layer by layer, in a fresh network with ReLU.

    `depth` layers `nn.Linear(width, width, bias=False)` with a ReLU between any two. The input
    and the gradient at the output are standard normal, 256 samples, float32, seed 0.

    Args:
        init: fills a weight of shape (width, width) in place; None keeps what `nn.Linear` made.

    Returns:
        `forward`: the root mean square of each layer's output, before the ReLU; `backward`: that
        of the gradient there. Both have length `depth`, the layer nearest to the input first.

    Raises:
        ValueError: `depth` or `width` is below 1.
    """
    if min(depth, width) < 1:
        raise ValueError(f"depth and width must be at least 1, got {depth} and {width}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        h, outputs = torch.randn(256, width), []
        for _ in range(depth):
            layer = nn.Linear(width, width, bias=False)
            if init is not None:
                init(layer.weight)
            h = layer(h.relu() if outputs else h)
            outputs.append(h)
        gradients = torch.autograd.grad(h, outputs, torch.randn(256, width))
    return {"forward": [_rms(t) for t in outputs], "backward": [_rms(t) for t in gradients]}


def per_layer(sizes: list[float]) -> float:
    """The factor by which `sizes` grow from one layer to the next, on (geometric) average.

    Raises:
        ValueError: there are fewer than two sizes.
    """
    if len(sizes) < 2:
        raise ValueError(f"expected at least two sizes, got {len(sizes)}")
    return (sizes[-1] / sizes[0]) ** (1 / (len(sizes) - 1))


def _rms(t: Tensor) -> float:
    return t.detach().double().square().mean().sqrt().item()


def draw_signal(inits: Mapping[str, Init | None]) -> Figure:
    """Activations and gradients layer by layer for each of `inits`, on a logarithmic axis.

    Raises:
        ValueError: `inits` is empty.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    if not inits:
        raise ValueError("draw_signal needs at least one init, got none")
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
    looks = [("#555", ":"), ("#c2410c", "--"), ("#7a5195", "-."), ("#0a6b7d", "-")]
    for number, (name, init) in enumerate(inits.items()):
        color, line = looks[number % len(looks)]
        for axis, sizes in zip(axes, signal(init).values(), strict=True):
            layers = range(1, len(sizes) + 1)
            axis.plot(layers, sizes, line, color=color, linewidth=2, label=name)
    axes[0].set_title("activations, forward", loc="left", fontsize=10)
    axes[1].set_title("gradients, backward", loc="left", fontsize=10)
    axes[0].set_ylabel("root mean square")
    for axis in axes:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(base=1e10))
        axis.set_xlabel("layer")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=8, loc="lower left")
    figure.tight_layout()
    return figure


def _finish(axis: Any) -> None:
    axis.legend(frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)


# ---------------------------------------------------------------- exercises


def check_recompute(answer: Callable[[nn.Module, Iterable[Tensor]], Any]) -> Verdict:
    """Check `answer(model, batches)`: running statistics become the average over the batches.

    `batches` is a list of float32 tensors of shape (n, 3). The running mean of every BatchNorm
    layer must be the mean of the batch means, its running variance the mean of the unbiased batch
    variances, whatever it held before; parameters, momentum and modes must stay.
    """

    def case() -> tuple[nn.Module, list[Tensor], dict[str, Tensor]]:
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=0.3), nn.Tanh())
        model += nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
        model.train(bool(torch.randint(2, ())))
        for layer in (model[1], model[4]):
            layer.running_mean.uniform_(5, 6)
            layer.running_var.uniform_(5, 6)
            layer.num_batches_tracked.fill_(40)
        batches = list(torch.randn(5, 8, 3) * 2 + 1)
        seen: dict[str, list[Tensor]] = {"1": [], "4": []}
        twin = copy.deepcopy(model).train()
        for name, inputs in seen.items():
            twin[int(name)].register_forward_pre_hook(
                lambda _, args, inputs=inputs: inputs.append(args[0].detach())
            )
        for batch in batches:
            twin(batch)
        right = {}
        for name, inputs in seen.items():
            right[f"{name}.running_mean"] = torch.stack([i.mean(0) for i in inputs]).mean(0)
            right[f"{name}.running_var"] = torch.stack([i.var(0) for i in inputs]).mean(0)
        return model, batches, right

    def statistics(f: Callable) -> None:
        model, batches, right = case()
        f(model, batches)
        for name, value in right.items():
            found = model.get_buffer(name)
            what = f"{name} is not the average over the batches"
            assert torch.allclose(found, value, atol=1e-4), what

    def the_rest(f: Callable, training: bool) -> None:
        model, batches, _ = case()
        model.train(training)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        f(model, batches)
        for name, p in model.named_parameters():
            assert torch.equal(p, before[name]), f"the parameter {name} has changed"
        momenta = [model[1].momentum, model[4].momentum]
        assert momenta == [0.3, 0.1], f"the momentum should be as before, [0.3, 0.1]: got {momenta}"
        modes = {m.training for m in model.modules()}
        assert modes == {training}, f"the model came with training={training}: leave it like that"

    tests = [statistics, lambda f: the_rest(f, True), lambda f: the_rest(f, False)]
    return verdict(answer, tests)


def check_merge(answer: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Verdict:
    """Check `answer(means, variances, counts)`: the mean and biased variance of the whole batch.

    `means` and `variances` (biased) have shape (shards, channels), float64; `counts` has shape
    (shards,), int64. The result is a pair of tensors of shape (channels,).
    """

    def case() -> tuple[list[Tensor], Tensor]:
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

    def run(f: Callable) -> tuple[Tensor, Tensor, Tensor]:
        inputs, whole = case()
        got = f(*inputs)
        pair = isinstance(got, tuple) and len(got) == 2
        assert pair and all(isinstance(t, Tensor) for t in got), (
            "return two tensors: mean, variance"
        )
        for name, t in zip(("mean", "variance"), got, strict=True):
            shape = tuple(t.shape)
            assert shape == (3,), f"the {name} should have one number per channel, got {shape}"
        return (*got, whole)

    def mean(f: Callable) -> None:
        got, _, whole = run(f)
        what = "the mean is not that of the whole batch: the shards have different sizes"
        assert torch.allclose(got.double(), whole.mean(0), atol=1e-4), what

    def variance(f: Callable) -> None:
        _, got, whole = run(f)
        got, right = got.double(), whole.var(0, correction=0)
        what = "that is the unbiased variance: divide by the number of samples"
        assert not torch.allclose(got, whole.var(0), atol=1e-4), what
        what = "the variance is too small: the means of the shards differ, which counts too"
        assert not (got < right - 1e-4).any(), what
        assert torch.allclose(got, right, atol=1e-4), "the variance is not that of the whole batch"

    return verdict(answer, [mean, variance])


def check_init(answer: Callable[[nn.Module], Any]) -> Verdict:
    """Check `answer(model)`: Kaiming-normal weights for ReLU (fan-in), biases zero, in place.

    Holds for every `nn.Linear` and `nn.Conv1d/2d/3d`, however deep inside; normalization layers
    and embeddings must stay as they are.
    """

    def model() -> nn.Sequential:
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
        )

    def weights(f: Callable) -> None:
        net = model()
        f(net)
        for name, layer in net.named_modules():
            if not isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
                continue
            what = f"layer {name}, {type(layer).__name__}"
            w = layer.weight.detach()
            ratio = w.std().item() / (2 / w[0].numel()) ** 0.5
            assert abs(ratio - 1) < 0.1, f"{what}: std is {ratio:.1f} times sqrt(2 / fan_in)"
            far = w.abs().max() > 2.5 * w.std()
            assert far, (
                f"{what}: right std, but the weights are not drawn from a normal distribution"
            )
            if layer.bias is not None:
                assert not layer.bias.detach().any(), f"{what}: the bias is not zero"

    def others(f: Callable) -> None:
        net = model()
        kept = {n: p.detach().clone() for n, p in net.named_parameters() if n[:3] in ("1.0", "4.w")}
        f(net)
        for name, before in kept.items():
            layer = type(net.get_submodule(name.rpartition(".")[0])).__name__
            assert torch.equal(net.get_parameter(name), before), f"{name} of {layer} has changed"

    def same_objects(f: Callable) -> None:
        net = model()
        before = dict(net.named_parameters())
        f(net)
        for name, p in net.named_parameters():
            what = f"{name} is a new object: an optimizer built before would train the old one"
            assert p is before.get(name), what
            assert p.requires_grad and p.is_leaf, f"{name} can no longer be trained"

    return verdict(answer, [weights, others, same_objects])
