"""Figures and demonstrations of the chapter on views and copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from helpers.figures import COLORS, Figure, figure, title
from helpers.views_and_copies import Operation, storage_cells, view_or_copy

TABLE: dict[str, Operation] = {
    "t[0]": lambda t: t[0],
    "t[:, ::2]": lambda t: t[:, ::2],
    "t.transpose(0, 1)": lambda t: t.transpose(0, 1),
    "t.permute(1, 0)": lambda t: t.permute(1, 0),
    "t.unsqueeze(0)": lambda t: t.unsqueeze(0),
    "t.expand(2, -1, -1)": lambda t: t.expand(2, -1, -1),
    "t.diagonal()": lambda t: t.diagonal(),
    "t.unfold(1, 2, 1)": lambda t: t.unfold(1, 2, 1),
    "t.chunk(2)[0]": lambda t: t.chunk(2)[0],
    "t.detach()": lambda t: t.detach(),
    "t.reshape(-1)": lambda t: t.reshape(-1),
    "t.flatten()": lambda t: t.flatten(),
    "t.contiguous()": lambda t: t.contiguous(),
    "t.to(t.dtype)": lambda t: t.to(t.dtype),
    "t.to(torch.float64)": lambda t: t.to(torch.float64),
    "t[[0, 1]]": lambda t: t[[0, 1]],
    "t[t > 0]": lambda t: t[t > 0],
    "t.flip(0)": lambda t: t.flip(0),
    "t.roll(1)": lambda t: t.roll(1),
    "t.repeat(2, 1)": lambda t: t.repeat(2, 1),
    "torch.cat([t, t])": lambda t: torch.cat([t, t]),
    "t + 0": lambda t: t + 0,
    "t.clone()": lambda t: t.clone(),
}


_CHINESE = {
    "default: channel by channel": "默认：一个通道接一个通道",
    "channels_last: pixel by pixel": "channels_last：一个像素接一个像素",
}


def copy_table(*tensors: Tensor) -> dict[str, list[str]]:
    """Run every operation of `TABLE` on each of `tensors` and return what each result is.

    Args:
        tensors: two-dimensional, floating point, at least 2 by 2.

    Returns:
        For each operation the verdicts of `view_or_copy`, in the order of `tensors`.

    Raises:
        ValueError: a tensor has another form.
    """
    for t in tensors:
        if t.ndim != 2 or min(t.shape) < 2 or not t.is_floating_point():
            raise ValueError(
                "expected floating point tensors of at least 2 by 2, got "
                f"{t.dtype} of shape {tuple(t.shape)}"
            )
    return {
        code: [view_or_copy(operation, t) for t in tensors] for code, operation in TABLE.items()
    }


def draw_storage(tensors: Mapping[str, Tensor]) -> Figure:
    """Draw the storage of each image tensor as a strip of cells, labelled by channel and pixel.

    Args:
        tensors: by title; each of shape (1, C, H, W), with at most 4 channels, filling its
            storage.

    Raises:
        ValueError: a tensor has another shape or does not fill its storage, or there is none.
    """
    from matplotlib.patches import Rectangle

    if not tensors:
        raise ValueError("draw_storage needs at least one tensor, got none")
    for name, t in tensors.items():
        if t.ndim != 4 or len(t) != 1 or t.shape[1] > 4:
            raise ValueError(
                f"expected shape (1, C, H, W) with C up to 4, got {tuple(t.shape)} for {name!r}"
            )
        if sorted(storage_cells(t).flatten().tolist()) != list(
            range(t.untyped_storage().nbytes() // t.element_size())
        ):
            raise ValueError(f"{name!r} does not read every cell of its storage once")
    faces = [*(COLORS[f"pale {hue}"] for hue in ("blue", "orange", "grey")), COLORS["white"]]
    drawing, axes = figure(
        size=(3.6, 0.75 * len(tensors)), chinese=_CHINESE, nrows=len(tensors), squeeze=False
    )
    for axis, (name, t) in zip(axes[:, 0], tensors.items(), strict=True):
        for index, cell in zip(_indices(t.shape), storage_cells(t).flatten().tolist(), strict=True):
            _, c, row, column = index
            style = {"facecolor": faces[c], "edgecolor": COLORS["grey"], "linewidth": 1}
            axis.add_patch(Rectangle((cell, 0), 1, 1, **style))
            axis.text(cell + 0.5, 0.7, f"c{c}", ha="center", va="center", fontsize=9)
            axis.text(cell + 0.5, 0.28, f"{row},{column}", ha="center", va="center", fontsize=8.5)
        axis.set(xlim=(-0.05, t.numel() + 0.05), ylim=(-0.05, 1.05))
        title(axis, name)
        axis.axis("off")
    return drawing


def _indices(shape: Sequence[int]) -> list[list[int]]:
    return torch.cartesian_prod(*map(torch.arange, shape)).reshape(-1, len(shape)).tolist()


def gradient_after(write: Callable[[Tensor], object]) -> float | str:
    """Return the gradient of `x` if `write(s)` edits `s = sigmoid(x)` before the backward pass.

    `x` is `[0., 0.]`, so the correct gradient of `s.sum()` is 0.25.

    Returns:
        The first element of the gradient, or `"caught"` if the backward pass raised.
    """
    x = torch.zeros(2, requires_grad=True)
    s = torch.sigmoid(x)
    write(s)
    try:
        s.sum().backward()
    except RuntimeError:
        return "caught"
    return round(x.grad[0].item(), 2)
