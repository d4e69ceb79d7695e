"""Provide a trace for the allocator model, which several tests replay."""

from __future__ import annotations

from typing import Any

import torch


def notes_trace(repeats: int = 1) -> list[tuple[Any, ...]]:
    """Return the trace of the old notes: a 3x3 convolution over batches of 1, 3 and 1 again.

    A `Conv2d(3, 10, 3)` is moved to the device (1120 bytes in two tensors). Then for each batch
    of 3x321x321 float32 images: copy the images, compute the 319x319 output, free both. At the
    end the cache is emptied. Sizes are those of tensors on the meta device. Workspace of cuDNN is
    not included.

    Args:
        repeats: how many times each batch size runs before the next; the notes have 5.
    """
    net = torch.nn.Conv2d(3, 10, kernel_size=3, device="meta")
    trace: list[tuple[Any, ...]] = [
        ("malloc", name, parameter.nbytes) for name, parameter in net.named_parameters()
    ]
    for number, batch in enumerate((1, 3, 1), start=1):
        images = torch.ones(batch, 3, 321, 321, device="meta")
        output = net(images)
        for _ in range(repeats):
            trace += [
                ("malloc", f"images {number}", images.nbytes),
                ("malloc", f"output {number}", output.nbytes),
                ("free", f"output {number}"),
                ("free", f"images {number}"),
            ]
    return [*trace, ("empty_cache",)]
