"""Helpers of the chapter "Work out what a convolution reads".

All sizes, kernels, strides and paddings are those of one axis, in cells; apply the functions axis
by axis. Sources: the shape formulas of `torch.nn.Conv2d`, `ConvTranspose2d` and `MaxPool2d`,
https://pytorch.org/docs/stable/nn.html, and Dumoulin and Visin 2016, "A guide to convolution
arithmetic for deep learning", https://arxiv.org/abs/1603.07285
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _integers(at_least: dict[str, int], **values: object) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an int, got {value!r} ({type(value).__name__})")
        if value < at_least.get(name, 0):
            raise ValueError(f"{name} must be at least {at_least.get(name, 0)}, got {value}")


_POSITIVE = {"size": 1, "kernel_size": 1, "stride": 1, "dilation": 1}


def conv_output_size(
    size: int, kernel_size: int, stride: int = 1, padding: int | str = 0, dilation: int = 1
) -> int:
    """The output size of a convolution along one axis, as `nn.Conv1d` computes it.

    Args:
        size: cells of the input.
        kernel_size: taps of the kernel.
        stride: cells between two windows.
        padding: cells added on each side, or "same" or "valid".
        dilation: cells from one tap to the next.

    Raises:
        ValueError: torch refuses these settings: the kernel spans more than the padded input,
            "same" comes with a stride, or a number is too small.
        TypeError: a setting is no int.
    """
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"padding must be an int, 'same' or 'valid', got {padding!r}")
        if padding == "same" and stride != 1:
            raise ValueError(f"padding='same' needs stride 1, got stride {stride}")
    same, padding = padding == "same", 0 if isinstance(padding, str) else padding
    _integers(
        _POSITIVE,
        size=size,
        kernel_size=kernel_size,
        stride=stride,
        padding=padding,
        dilation=dilation,
    )
    if same:
        return size
    span, padded = dilation * (kernel_size - 1) + 1, size + 2 * padding
    if span > padded:
        raise ValueError(f"the kernel spans {span} cells, the padded input has only {padded}")
    return (padded - span) // stride + 1


def conv_transpose_output_size(
    size: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
    dilation: int = 1,
) -> int:
    """The output size of a transposed convolution along one axis, as `nn.ConvTranspose1d` has it.

    Args:
        size: cells of the input.
        kernel_size: taps of the kernel.
        stride: cells between the places of two neighbouring inputs in the output.
        padding: cells cropped on each side of the output.
        output_padding: cells that are cropped less, or added, at the end.
        dilation: cells from one tap to the next.

    Raises:
        ValueError: torch refuses these settings: `output_padding` is not smaller than stride or
            dilation, nothing is left after cropping (some backends then give an empty tensor
            instead), or a number is too small.
        TypeError: a setting is no int.
    """
    _integers(
        _POSITIVE,
        size=size,
        kernel_size=kernel_size,
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
    )
    if output_padding >= max(stride, dilation):
        raise ValueError(
            f"output_padding must be smaller than stride or dilation, got {output_padding} "
            f"with stride {stride} and dilation {dilation}"
        )
    found = (size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1
    if found < 1:
        raise ValueError(f"cropping {padding} cells on each side leaves a size of {found}")
    return found


def pool_output_size(
    size: int,
    kernel_size: int,
    stride: int | None = None,
    padding: int = 0,
    dilation: int = 1,
    ceil_mode: bool = False,
) -> int:
    """The output size of max or average pooling along one axis (average pooling: dilation 1).

    Args:
        size: cells of the input.
        kernel_size: cells of the window.
        stride: cells between two windows; None means `kernel_size`.
        padding: cells added on each side, at most half of `kernel_size`.
        dilation: cells from one cell of the window to the next.
        ceil_mode: whether a window may hang over the end; it must start inside the input or the
            padding on the left.

    Raises:
        ValueError: torch refuses these settings: too much padding, no window fits, or a number is
            too small.
        TypeError: a setting is no int.
    """
    stride = kernel_size if stride is None else stride
    _integers(
        _POSITIVE,
        size=size,
        kernel_size=kernel_size,
        stride=stride,
        padding=padding,
        dilation=dilation,
    )
    if 2 * padding > kernel_size:
        raise ValueError(f"padding {padding} is more than half of kernel_size {kernel_size}")
    span, padded = dilation * (kernel_size - 1) + 1, size + 2 * padding
    found = (padded - span + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (found - 1) * stride >= size + padding:
        found -= 1  # the last window would start beyond the input
    if found < 1:
        raise ValueError(f"no window fits: it spans {span} cells, the padded input has {padded}")
    return found


def adaptive_windows(size: int, output_size: int) -> list[tuple[int, int]]:
    """The windows of adaptive pooling: cell i reads the input from start up to, not with, end.

    Start is floor(i · size / output_size) and end is ceil((i + 1) · size / output_size).

    Raises:
        ValueError: `size` below 1 or `output_size` below 0.
        TypeError: one of them is no int.
    """
    _integers(_POSITIVE, size=size, output_size=output_size)
    return [
        (i * size // output_size, -(-(i + 1) * size // output_size)) for i in range(output_size)
    ]


def same_padding(
    size: int, kernel_size: int, stride: int = 1, dilation: int = 1
) -> tuple[int, int]:
    """The cells to add left and right so that the output has ceil(size / stride) cells.

    With stride 1 this is what `padding="same"` does. With a larger stride, which PyTorch refuses,
    it is what TensorFlow calls SAME: the padding depends on the size. An odd cell goes right.

    Raises:
        ValueError: a number is too small.
        TypeError: a setting is no int.
    """
    _integers(_POSITIVE, size=size, kernel_size=kernel_size, stride=stride, dilation=dilation)
    last = (-(-size // stride) - 1) * stride  # where the last window starts
    total = max(last + dilation * (kernel_size - 1) + 1 - size, 0)
    return total // 2, total - total // 2


# ---------------------------------------------------------------- receptive field

_LAYERS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
)
_CELLWISE = (
    *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Identity),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.Dropout, nn.Dropout2d, nn.Dropout3d),
)


@dataclass(frozen=True)
class ReceptiveField:
    """What one cell of an output can see of the input, along one axis.

    Attributes:
        size: cells from the first to the last that it reads.
        jump: how far the field moves from one output cell to the next.
        start: the first input cell that output cell 0 reads; negative inside the padding.
    """

    size: int
    jump: int
    start: int

    def cells(self, i: int) -> range:
        """The input cells from the first to the last that output cell `i` can see."""
        first = self.start + i * self.jump
        return range(first, first + self.size)


def receptive_field(*layers: nn.Module) -> ReceptiveField:
    """The receptive field of `layers` in this order, computed layer by layer.

    Args:
        layers: convolutions, max and average poolings with the same settings along each axis;
            `nn.Sequential` of them; layers that work cell by cell, which change nothing.

    Raises:
        TypeError: a layer of another kind.
        ValueError: a layer's settings differ between axes.

    Source: Araujo, Norris and Sim 2019, "Computing Receptive Fields of Convolutional Neural
    Networks", https://distill.pub/2019/computing-receptive-fields
    """
    size, jump, start = 1, 1, 0
    for layer in layers:
        for part in layer if isinstance(layer, nn.Sequential) else [layer]:
            if isinstance(part, nn.Sequential):
                inner = receptive_field(part)
                size, start = size + (inner.size - 1) * jump, start + inner.start * jump
                jump *= inner.jump
                continue
            if isinstance(part, _CELLWISE):
                continue
            if not isinstance(part, _LAYERS):
                raise TypeError(
                    "expected convolutions, poolings and layers that work cell by cell, "
                    f"got {type(part).__name__}"
                )
            span = (_one(part, "dilation") if hasattr(part, "dilation") else 1) * (
                _one(part, "kernel_size") - 1
            )
            padding = part.padding if isinstance(part.padding, str) else _one(part, "padding")
            left = {"same": span // 2, "valid": 0}.get(padding, padding)
            size, start = size + span * jump, start - left * jump
            jump *= _one(part, "stride")
    return ReceptiveField(size, jump, start)


def _one(layer: nn.Module, name: str) -> int:
    value = getattr(layer, name)
    values = set(value) if isinstance(value, tuple) else {value}
    if len(values) > 1:
        raise ValueError(f"{name} must be the same along each axis, got {value} in {layer}")
    return values.pop()


def paths(module: nn.Module, shape: Sequence[int], at: int | None = None) -> Tensor:
    """How many ways lead from each input cell to one output cell, counted by autograd.

    All parameters of a copy of `module` become 1; the gradient of one output cell in the
    input then counts the ways, up to the factors of average poolings. It is 0 exactly where the
    cell is not read.

    Args:
        module: convolutions, average poolings, activations.
        shape: the input's shape without the batch, (C, n) or (C, H, W) or (C, D, H, W).
        at: the index of the output cell, the same along each axis; None is the middle.

    Returns:
        float64, of `shape` without the channels, which are added up.

    Raises:
        TypeError: `module` holds a max pooling, whose gradient reaches one cell of the window
            only, or gives something that is no tensor.
    """
    if any("MaxPool" in type(part).__name__ for part in module.modules()):
        raise TypeError("the gradient of max pooling reaches one cell only: use average pooling")
    twin = copy.deepcopy(module).double().eval()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.fill_(1.0)
    x = torch.ones(1, *shape, dtype=torch.float64, requires_grad=True)
    out = twin(x)
    if not isinstance(out, Tensor):
        raise TypeError(f"expected a module that gives a tensor, got {type(out).__name__}")
    cell = out.sum(1)[0]
    cell = cell[tuple(n // 2 if at is None else at for n in cell.shape)]
    (gradient,) = torch.autograd.grad(cell, x)
    return gradient[0].sum(0)


def draw_paths(stacks: dict[str, nn.Module], size: int = 21) -> Figure:
    """Draw `paths` from `size` input cells to the middle output cell, one stack under another.

    Args:
        stacks: 1-D modules with one input channel, by title.
        size: cells of the input.

    Raises:
        ValueError: `stacks` is empty.
    """
    import matplotlib.pyplot as plt

    if not stacks:
        raise ValueError("draw_paths needs at least one stack, got none")
    figure, axes = plt.subplots(
        len(stacks), 1, figsize=(7, 1.3 * len(stacks) + 0.4), sharex=True, squeeze=False
    )
    for axis, (title, stack) in zip(axes[:, 0], stacks.items(), strict=True):
        ways = paths(stack, (1, size)).tolist()
        bars = axis.bar(range(size), ways, color="#0a6b7d", width=0.8)
        axis.bar_label(bars, [f"{way:g}" if way else "" for way in ways], fontsize=9)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set(yticks=[], ylim=(0, 1.3 * max(ways)))
        axis.spines[["top", "right", "left"]].set_visible(False)
    axes[-1, 0].set(xlabel="input cell", xticks=range(0, size, 2))
    figure.tight_layout()
    return figure


def draw_overlap(layers: dict[str, nn.Module], size: int = 6) -> Figure:
    """Draw what each layer makes of a constant image when all its weights are equal.

    Args:
        layers: 2-D modules with one input and one output channel, by title; they are copied.
        size: height and width of the image of ones.

    Raises:
        ValueError: `layers` is empty.
    """
    import matplotlib.pyplot as plt

    if not layers:
        raise ValueError("draw_overlap needs at least one layer, got none")
    figure, axes = plt.subplots(1, len(layers), figsize=(8, 3), squeeze=False)
    for axis, (title, layer) in zip(axes[0], layers.items(), strict=True):
        image = overlap(layer, size)
        axis.imshow(image.numpy(), cmap="cividis", vmin=0, vmax=image.max())
        for (row, column), value in zip(
            torch.cartesian_prod(*map(torch.arange, image.shape)).tolist(),
            image.flatten().tolist(),
            strict=True,
        ):
            dark = value < 0.6 * image.max()
            color = "white" if dark else "black"
            axis.text(column, row, f"{value:g}", ha="center", va="center", fontsize=7, color=color)
        axis.set_title(title, fontsize=10)
        axis.axis("off")
    figure.tight_layout()
    return figure


def overlap(layer: nn.Module, size: int = 6) -> Tensor:
    """What `layer` with weights of 1 makes of an image of ones: how many ways reach each cell.

    Args:
        layer: 2-D, one input and one output channel; it is copied.
        size: height and width of the image.

    Returns:
        Shape (H, W) of the output, float32.
    """
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            parameter.fill_(0.0 if name.rpartition(".")[2] == "bias" else 1.0)
        return twin(torch.ones(1, 1, size, size))[0, 0]


# ---------------------------------------------------------------- exercises


def check_output_padding(answer: Callable[[int, int, int, int, int], int]) -> Verdict:
    """Check `answer(size, kernel_size, stride, padding, dilation)`: the right `output_padding`.

    With it, the transposed convolution must bring the output of the convolution back to `size`.
    """

    def draw(stride: int, dilated: bool) -> tuple[int, int, int]:
        while True:
            k, p, d = (int(torch.randint(low, 5, ())) for low in (2, 0, 2))
            d = d if dilated else 1
            span = d * (k - 1) + 1
            # each term of the formula must count, or an answer without it would pass by chance
            terms = [1, 2 * p - span, 2 * p, (d - 1) * (k - 1) if dilated else 1]
            if p < k and (stride == 1 or all(term % stride for term in terms)):
                return k, p, d

    def test(stride: int, dilated: bool):
        def back(f):
            k, p, d = draw(stride, dilated)
            first = d * (k - 1) + 1 + int(torch.randint(0, 5, ()))
            for size in range(first, first + stride):  # these need `stride` different answers
                out = conv_output_size(size, k, stride, p, d)
                found = f(size, k, stride, p, d)
                assert isinstance(found, int) and not isinstance(found, bool), (
                    f"expected an int, got {type(found).__name__}"
                )
                assert 0 <= found < stride, (
                    f"{found} is not allowed for stride {stride}: "
                    f"it must lie between 0 and {stride - 1}"
                )
                layer = nn.ConvTranspose1d(1, 1, k, stride, p, found, dilation=d, device="meta")
                got = layer(torch.empty(1, 1, out, device="meta")).shape[-1]
                assert got == size, (
                    f"size {size}, kernel {k}, stride {stride}, padding {p}, dilation {d}: "
                    f"it comes back as {got} with output_padding {found}"
                )

        return back

    return verdict(answer, [test(1, False), test(3, False), test(4, True), test(5, True)])


def check_adaptive(answer: Callable[[Tensor, int], Tensor]) -> Verdict:
    """Check `answer(x, o)`: adaptive average pooling of `x` (N, C, n) to `o` cells, by hand."""

    def test(what: str, draw: Callable[[], tuple[int, int]]):
        def same(f):
            n, o = draw()
            x = torch.randn(2, 3, n)
            got, want = f(x, o), F.adaptive_avg_pool1d(x, o)
            assert isinstance(got, Tensor), f"expected a tensor, got {type(got).__name__}"
            assert got.shape == want.shape, (
                f"from {n} to {o} cells: expected the shape {tuple(want.shape)}, "
                f"got {tuple(got.shape)}"
            )
            wrong = (~torch.isclose(got, want, atol=1e-5)).any(0).any(0).nonzero().flatten()
            assert not len(wrong), (
                f"from {n} to {o} cells ({what}): output cell {int(wrong[0])} is not the mean of "
                f"the cells {list(range(*adaptive_windows(n, o)[wrong[0]]))}"
            )

        return same

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, ()))

    def divides() -> tuple[int, int]:
        o = number(1, 5)
        return o * number(2, 4), o

    def smaller() -> tuple[int, int]:
        o = number(3, 7)
        return 2 * o - 1, o

    def larger() -> tuple[int, int]:
        n = number(3, 7)
        return n, 2 * n - 1

    return verdict(
        answer,
        [
            test("the sizes divide", divides),
            test("they do not divide", smaller),
            test("more cells than before", larger),
        ],
    )


def check_signed_sqrt(answer: Callable[[Tensor], Tensor]) -> Verdict:
    """Check `answer(x)`: nearly sign(x) · sqrt(|x|), without a jump and with finite gradients."""

    def value(f):
        x = torch.randn(3, 4) * 10 ** torch.empty(3, 1).uniform_(-4, 2)
        got, want = f(x), x.sign() * x.abs().sqrt()
        assert isinstance(got, Tensor), f"expected a tensor, got {type(got).__name__}"
        assert got.shape == x.shape, f"expected the shape {tuple(x.shape)}, got {tuple(got.shape)}"
        off = (got - want).abs().max()
        assert off < 0.01, "the value is more than 0.01 away from sign(x) · sqrt(|x|)"

    def gradient(f):
        x = torch.cat([torch.zeros(3), torch.randn(3)])[torch.randperm(6)].requires_grad_()
        out = f(x)
        assert out.requires_grad, "the result has no graph, so no gradient can pass"
        (found,) = torch.autograd.grad(out.sum(), x)
        assert found.isfinite().all(), "the gradient at 0 is not finite"
        assert (found[x != 0] > 0).all(), "the gradient away from 0 is not positive"

    def jump(f):
        tiny = 10 ** torch.empty(()).uniform_(-14, -11)
        below, above = f(torch.stack([-tiny, tiny])).tolist()
        assert abs(above - below) < 1e-3, "there is a jump at 0: both sides must meet"

    return verdict(answer, [value, gradient, jump])
