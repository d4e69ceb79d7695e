"""Inspect an autograd graph: count its saved tensors, list its nodes, draw it.

Source: "Autograd mechanics", https://pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from helpers import checks
from helpers.figures import COLORS, Figure, figure, title
from helpers.sparse import dense_parts


def storage_id(tensor: torch.Tensor) -> int:
    """Return an int that identifies the storage of a live tensor on any device.

    `data_ptr` does not: it is 0 for every tensor on the meta device. The result is
    `UntypedStorage._cdata`, PyTorch's private address of the storage's C++ object.

    Raises:
        TypeError: `tensor` is not a tensor.
    """
    return checks.tensor("tensor", tensor).untyped_storage()._cdata


def saved_tensors(function: Callable[[], Any]) -> list[torch.Size]:
    """Run `function` and return the shape of each tensor that autograd saves for the backward pass.

    A tensor that two operations save is listed twice.

    Raises:
        TypeError: `function` cannot be called.
    """
    checks.function("function", function)
    shapes: list[torch.Size] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        shapes.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function()
    return shapes


class _Saved:
    """Replacement of a saved tensor in the graph, freed when the graph releases the tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()


class Alive:
    """Counter of the tensors that graphs save for a backward pass; created by `watch_saved`."""

    def __init__(self) -> None:
        self._refs: list[weakref.ref[_Saved]] = []

    def _pack(self, tensor: torch.Tensor) -> _Saved:
        saved = _Saved(tensor)
        self._refs.append(weakref.ref(saved))
        return saved

    def _tensors(self) -> list[torch.Tensor]:
        return [saved.tensor for ref in self._refs if (saved := ref()) is not None]

    def count(self) -> int:
        """Return the number of live saved tensors; one saved by two operations counts twice."""
        return len(self._tensors())

    def bytes(self, but: torch.nn.Module | None = None) -> int:
        """Return the bytes of the saved storages, each counted once, except storages of `but`.

        A graph also saves weights and buffers. They take no extra memory, because the model stores
        them in any case: pass the model as `but` to exclude them.

        Raises:
            TypeError: `but` is not a module.
        """
        if but is not None:
            checks.module("but", but)
        own = () if but is None else (*but.parameters(), *but.buffers())
        owned = {storage_id(part) for t in own for part in dense_parts(t)}
        parts = [part for t in self._tensors() for part in dense_parts(t)]
        sizes = {storage_id(t): t.untyped_storage().nbytes() for t in parts}
        return sum(size for storage, size in sizes.items() if storage not in owned)


@contextmanager
def watch_saved() -> Iterator[Alive]:
    """Count the tensors that autograd saves inside the `with` block, until they are freed.

    The returned counter can be read inside the block and after it.
    """
    alive = Alive()
    with torch.autograd.graph.saved_tensors_hooks(alive._pack, lambda saved: saved.tensor):
        yield alive


def graph(output: torch.Tensor) -> dict[Any, list[Any]]:
    """Return the graph of `output`: each node (a `grad_fn`) with the nodes it sends gradients to.

    The result is empty if `output` has no graph. Leaves appear as `AccumulateGrad` nodes, whose
    `.variable` is the leaf tensor.

    Raises:
        TypeError: `output` is not a tensor.
    """
    checks.tensor("output", output)
    nodes: dict[Any, list[Any]] = {}
    todo = [output.grad_fn] if output.grad_fn is not None else []
    while todo:
        node = todo.pop()
        if node not in nodes:
            nodes[node] = [after for after, _ in node.next_functions if after is not None]
            todo += nodes[node]
    return nodes


def leaves(output: torch.Tensor) -> list[torch.Tensor]:
    """Return the leaf tensors to which the graph of `output` sends gradients."""
    return [node.variable for node in graph(output) if hasattr(node, "variable")]


def draw_graphs(outputs: Mapping[str, torch.Tensor], names: Mapping[str, torch.Tensor]) -> Figure:
    """Draw the graph of each of `outputs`, with its key as the title.

    The output is at the top, and operations follow in the order in which a backward pass reaches
    them. Leaves are labelled with their key in `names`. A tensor of `names` that no gradient
    reaches is drawn as an empty dashed box.

    Raises:
        TypeError: `outputs` or `names` is not a dict of tensors.
        ValueError: `outputs` is empty.
    """
    checks.mapping("outputs", outputs), checks.mapping("names", names)
    if not outputs:
        raise ValueError("draw_graphs needs at least one output, got none")
    graphs = [_shorten(graph(output)) for output in outputs.values()]
    rows = max(max(_levels(nodes).values(), default=0) for nodes in graphs) + 2
    drawing, axes = figure(len(outputs), size=(3.5, 0.42 * rows + 0.3))
    for axis, name, nodes in zip(axes, outputs, graphs, strict=True):
        title(axis, name, code=True)
        axis.axis("off")
        _draw(axis, nodes, names, rows)
    return drawing


def _shorten(nodes: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
    """Return the graph without the transposes that `nn.Linear` applies to its weights."""

    def skip(node: Any) -> Any:
        while node.name() == "TBackward0":
            (node,) = nodes[node]
        return node

    return {
        node: [skip(after) for after in afters]
        for node, afters in nodes.items()
        if node.name() != "TBackward0"
    }


def _levels(nodes: dict[Any, list[Any]]) -> dict[Any, int]:
    """Return the length of the longest path from the output to each node, in depth-first order."""
    incoming = Counter(after for afters in nodes.values() for after in afters)
    roots = [node for node in nodes if not incoming[node]]
    order: dict[Any, int] = {}
    todo = roots[::-1]
    while todo:
        if (node := todo.pop()) not in order:
            order[node] = 0
            todo += reversed(nodes[node])
    ready = roots
    while ready:
        node = ready.pop()
        for after in nodes[node]:
            order[after] = max(order[after], order[node] + 1)
            incoming[after] -= 1
            if not incoming[after]:
                ready.append(after)
    return order


def _draw(
    axis: Any, nodes: dict[Any, list[Any]], names: Mapping[str, torch.Tensor], rows: int
) -> None:
    depth = _levels(nodes)
    levels: dict[int, list[Any]] = {}
    for node, level in depth.items():
        levels.setdefault(level, []).append(node)
    label = {id(tensor): name for name, tensor in names.items()}
    reached = {id(getattr(node, "variable", None)) for node in nodes}
    cut = [name for name, tensor in names.items() if id(tensor) not in reached]
    widest = max(3, len(cut), *map(len, levels.values()))
    positions = {
        node: (column + (widest - len(line)) / 2, -level)
        for level, line in levels.items()
        for column, node in enumerate(line)
    }
    for node, start in positions.items():
        leaf = getattr(node, "variable", None)
        text = node.name().removesuffix("0").removesuffix("Backward")
        _box(axis, *start, text if leaf is None else label.get(id(leaf), "?"), leaf is not None)
        for after in nodes[node]:
            arrow = {"arrowstyle": "->", "color": COLORS["grey"], "shrinkA": 10, "shrinkB": 10}
            axis.annotate("", xy=positions[after], xytext=start, arrowprops=arrow)
    for column, name in enumerate(cut):
        _box(axis, column + (widest - len(cut)) / 2, 1 - rows, name, True, cut=True)
    axis.set(xlim=(-0.5, widest - 0.5), ylim=(0.5 - rows, 0.5))


def _box(axis: Any, x: float, y: float, text: str, leaf: bool, cut: bool = False) -> None:
    style = {
        "boxstyle": "round,pad=0.35",
        "facecolor": COLORS["white" if cut else "pale blue" if leaf else "pale grey"],
        "edgecolor": COLORS["grey"],
        "linestyle": "--" if cut else "-",
    }
    axis.text(x, y, text, ha="center", va="center", fontsize=8.5, color=COLORS["black"], bbox=style)
