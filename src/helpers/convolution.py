"""Helpers of the chapter on convolution: output sizes, paddings and receptive fields.

All sizes, kernels, strides and paddings are those of one axis, in cells; apply the functions axis
by axis. Sources: the shape formulas of `torch.nn.Conv2d`, `ConvTranspose2d` and `MaxPool2d`,
https://pytorch.org/docs/stable/nn.html, and Dumoulin and Visin 2016, "A guide to convolution
arithmetic for deep learning", https://arxiv.org/abs/1603.07285
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


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
    """Return the output size of a convolution along one axis, as `nn.Conv1d` computes it.

    Args:
        size: cells of the input.
        kernel_size: weights of the kernel along this axis.
        stride: cells between two windows.
        padding: cells added on each side, or "same" or "valid".
        dilation: distance between two neighbouring weights.

    Raises:
        ValueError: torch raises for these settings: the kernel spans more than the padded input,
            "same" comes with a stride, or a number is too small.
        TypeError: a setting is not an int.
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
    """Return the output size of a transposed convolution along one axis, as in `ConvTranspose1d`.

    Args:
        size: cells of the input.
        kernel_size: weights of the kernel along this axis.
        stride: cells between the places of two neighbouring inputs in the output.
        padding: cells cropped on each side of the output.
        output_padding: cells that are cropped less, or added, at the end.
        dilation: distance between two neighbouring weights.

    Raises:
        ValueError: torch raises for these settings: `output_padding` is not smaller than stride or
            dilation, nothing is left after cropping (some backends then give an empty tensor
            instead), or a number is too small.
        TypeError: a setting is not an int.
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
    result = (size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1
    if result < 1:
        raise ValueError(f"cropping {padding} cells on each side leaves a size of {result}")
    return result


def adaptive_windows(size: int, output_size: int) -> list[tuple[int, int]]:
    """Return for each output cell of adaptive pooling its input window (start, end), end exclusive.

    Start is floor(i · size / output_size) and end is ceil((i + 1) · size / output_size).

    Raises:
        ValueError: `size` below 1 or `output_size` below 0.
        TypeError: one of them is not an int.
    """
    _integers(_POSITIVE, size=size, output_size=output_size)
    return [
        (i * size // output_size, -(-(i + 1) * size // output_size)) for i in range(output_size)
    ]


def same_padding(
    size: int, kernel_size: int, stride: int = 1, dilation: int = 1
) -> tuple[int, int]:
    """Return the padding (left, right) for which the output has ceil(size / stride) cells.

    With stride 1 this equals `padding="same"`. With a larger stride, which PyTorch does not
    support, it equals TensorFlow's SAME: the padding depends on the size. An odd cell is added on
    the right.

    Raises:
        ValueError: a number is too small.
        TypeError: a setting is not an int.
    """
    _integers(_POSITIVE, size=size, kernel_size=kernel_size, stride=stride, dilation=dilation)
    last = (-(-size // stride) - 1) * stride  # start of the last window
    total = max(last + dilation * (kernel_size - 1) + 1 - size, 0)
    return total // 2, total - total // 2


_LAYERS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
)
_CELLWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU),
    *(nn.Mish, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.Sigmoid, nn.Tanh, nn.Softplus),
    *(nn.Softsign, nn.LogSigmoid, nn.Tanhshrink, nn.Softshrink, nn.Hardshrink, nn.RReLU),
    *(nn.Threshold, nn.FeatureAlphaDropout),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.Identity),
    *(nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
)


@dataclass(frozen=True)
class ReceptiveField:
    """The part of the input that one output cell reads, along one axis.

    Attributes:
        size: number of cells from the first to the last that it reads.
        jump: distance in input cells between the fields of neighbouring output cells.
        start: the first input cell that output cell 0 reads; negative inside the padding.
    """

    size: int
    jump: int
    start: int

    def cells(self, i: int) -> range:
        """Return the input cells from the first to the last that output cell `i` reads.

        Raises:
            TypeError: `i` is not an int.
            ValueError: `i` is negative.
        """
        _integers({}, i=i)
        first = self.start + i * self.jump
        return range(first, first + self.size)


def receptive_field(*layers: nn.Module) -> ReceptiveField:
    """Return the receptive field of `layers`, applied in this order.

    Args:
        layers: convolutions, max and average poolings with the same settings along each axis;
            `nn.Sequential` of them; elementwise layers, which do not change the field.

    Raises:
        TypeError: a layer is of another kind.
        ValueError: a layer's settings differ between the axes.

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
    values = set(value) if isinstance(value, tuple | list) else {value}
    if len(values) > 1:
        raise ValueError(f"{name} must be the same along each axis, got {value} in {layer}")
    return values.pop()
