"""Compute the shapes that layers return.

A size is an integer: a positive one is the size itself, and -n is a multiple of n, so -1 is any
size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

ANY = -1


@dataclass(frozen=True)
class Shape:
    """The sizes of the last axes of a tensor.

    `whole` is true if these are all axes. `image` is true for the output of a convolution or a
    pooling layer in two dimensions, whose last axes are height and width. `joined` is the call of
    `view` that changed the number of samples.
    """

    sizes: tuple[int, ...]
    whole: bool = False
    image: bool = False
    joined: object = None

    def size(self, axis: int) -> int:
        """Return the size of an axis, counted from the end; `ANY` for an unknown one."""
        return self.sizes[axis] if len(self.sizes) >= -axis else ANY

    def axis(self, axis: int) -> int | None:
        """Return the index from the end of an axis that is counted from either side."""
        if axis < 0:
            return axis if not self.whole or -axis <= len(self.sizes) else None
        return axis - len(self.sizes) if self.whole and axis < len(self.sizes) else None

    def with_last(self, *sizes: int) -> Shape:
        """Return the shape with other sizes of the last axes."""
        kept = self.sizes[: max(0, len(self.sizes) - len(sizes))]
        return Shape((*kept, *sizes), self.whole)


def unequal(size: int, required: int | None) -> bool:
    """Return True if a size certainly differs from the size that a layer requires."""
    if not required or required < 1:
        return False
    return size != required if size > 0 else required % -size != 0


def product(sizes: Sequence[int]) -> int:
    """Return the product of sizes, a multiple of the known ones."""
    total = math.prod(abs(size) for size in sizes)
    return total if all(size > 0 for size in sizes) else -total


def broadcast(a: Shape | None, b: Shape | None) -> Shape | None:
    """Return the shape of a sum; a size that is not 1 in one operand is the size of the result."""
    if a is None or b is None:
        shape = a or b
        if shape is None:
            return None
        sizes = tuple(ANY if size == 1 else size for size in shape.sizes)
        return Shape(sizes, False, shape.image)
    if len(a.sizes) < len(b.sizes):
        a, b = b, a
    sizes = []
    for n in range(-len(a.sizes), 0):
        x, y = a.size(n), b.size(n) if -n <= len(b.sizes) or not b.whole else 1
        sizes.append(_wider(x, y))
    return Shape(tuple(sizes), a.whole and b.whole, a.image or b.image)


def _wider(x: int, y: int) -> int:
    if 1 in (x, y):
        return y if x == 1 else x
    return max(x, y) if max(x, y) > 0 or x == y else ANY


def windowed(size: int, kernel: int | None, stride: int | None, padding: int | None, dilation=1):
    """Return the size of an axis after a convolution or a pooling layer."""
    if size < 1 or None in (kernel, stride, padding, dilation) or stride < 1:
        return ANY
    return max(0, (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1) or ANY


def transposed(size: int, kernel, stride, padding, extra, dilation) -> int:
    """Return the size of an axis after a transposed convolution."""
    if size < 1 or None in (kernel, stride, padding, extra, dilation):
        return ANY
    return max(0, (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + extra + 1) or ANY


def flattened(shape: Shape | None, start: int, end: int) -> Shape | None:
    """Return the shape after `flatten(start, end)`."""
    if shape is None or (first := shape.axis(start)) is None or (last := shape.axis(end)) is None:
        return None
    n = len(shape.sizes)
    if -first > n or first > last:
        return None
    kept = shape.sizes[: n + first], shape.sizes[n + last + 1 :]
    return Shape((*kept[0], product(shape.sizes[n + first : n + last + 1]), *kept[1]), shape.whole)


def viewed(shape: Shape | None, sizes: Sequence[int | None]) -> Shape:
    """Return the shape after `view(*sizes)`; None represents a size that is not a number."""
    result = Shape(tuple(size if size and size > 0 else ANY for size in sizes), True)
    image = shape is not None and shape.whole and shape.image and len(shape.sizes) == 4
    if len(sizes) != 2 or not image:
        return result
    features = product(shape.sizes[1:])
    if sizes[1] == ANY and sizes[0] != ANY:
        return Shape((shape.sizes[0], features), True)
    mixed = sizes[0] in (ANY, None) and unequal(features, sizes[1])
    return replace(result, joined=mixed or None)


def concatenated(shapes: Sequence[Shape | None], dim: int) -> Shape | None:
    """Return the shape of `torch.cat(shapes, dim)`."""
    if not shapes or None in shapes or len({len(shape.sizes) for shape in shapes}) > 1:
        return None
    first = shapes[0]
    axis = first.axis(dim)
    if axis is None or -axis > len(first.sizes):
        return None
    parts = [shape.size(axis) for shape in shapes]
    total = sum(parts) if all(part > 0 for part in parts) else ANY
    sizes = [*first.sizes]
    sizes[axis] = total
    for n in range(-len(sizes), 0):
        if n != axis:
            sizes[n] = max(shape.size(n) for shape in shapes)
    return Shape(tuple(sizes), all(shape.whole for shape in shapes), first.image)


def reordered(shape: Shape | None, order: Sequence[int | None]) -> Shape | None:
    """Return the shape after `permute(*order)`."""
    if (
        shape is None
        or not shape.whole
        or sorted(map(str, order)) != sorted(map(str, range(len(shape.sizes))))
    ):
        return None
    return Shape(tuple(shape.sizes[axis] for axis in order), True)


def without(shape: Shape | None, axes: Sequence[int | None]) -> Shape | None:
    """Return the shape after a reduction over axes, or after an index into them."""
    places = [shape.axis(axis) if shape and isinstance(axis, int) else None for axis in axes]
    if None in places or any(-place > len(shape.sizes) for place in places):
        return None
    n = len(shape.sizes)
    kept = tuple(size for i, size in enumerate(shape.sizes) if i - n not in places)
    return Shape(kept, shape.whole)
