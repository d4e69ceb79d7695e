"""Look into an autograd graph: count what it saved, list its nodes, draw it.

Source: "Autograd mechanics", https://pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from helpers.figures import COLORS, Figure, figure, title


def storage_id(tensor: torch.Tensor) -> int:
    """A number that tells the storages of living tensors apart, also on the meta device.

    There every `data_ptr` is 0. PyTorch's own name for it, `UntypedStorage._cdata`, is private:
    the address of the storage's C++ object.
    """
    return tensor.untyped_storage()._cdata


def saved_tensors(function: Callable[[], Any]) -> list[torch.Size]:
    """The shapes of the tensors that autograd saves for the backward pass while `function` runs.

    A tensor that two operations save is listed twice.
    """
    shapes: list[torch.Size] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        shapes.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function()
    return shapes


class _Saved:
    """The object that a graph holds in place of a saved tensor; it dies with the graph's hold."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()


class Alive:
    """Counts the tensors that graphs still hold for a backward pass; `watch_saved` makes it."""

    def __init__(self) -> None:
        self._refs: list[weakref.ref[_Saved]] = []

    def _pack(self, tensor: torch.Tensor) -> _Saved:
        saved = _Saved(tensor)
        self._refs.append(weakref.ref(saved))
        return saved

    def _tensors(self) -> list[torch.Tensor]:
        return [saved.tensor for ref in self._refs if (saved := ref()) is not None]

    def count(self) -> int:
        """How many saved tensors are alive now; one that two operations saved counts twice."""
        return len(self._tensors())

    def bytes(self, but: torch.nn.Module | None = None) -> int:
        """The bytes of the storages behind them, each counted once, without those of `but`.

        A graph saves weights and buffers too, which costs nothing, because the model owns them
        anyway: pass the model as `but` to leave them out.
        """
        owned = {storage_id(t) for t in (*but.parameters(), *but.buffers())} if but else set()
        sizes = {storage_id(t): t.untyped_storage().nbytes() for t in self._tensors()}
        return sum(size for storage, size in sizes.items() if storage not in owned)


@contextmanager
def watch_saved() -> Iterator[Alive]:
    """Follow the tensors that autograd saves inside the `with` block, until they are freed.

    The counter may be asked inside the block and after it.
    """
    alive = Alive()
    with torch.autograd.graph.saved_tensors_hooks(alive._pack, lambda saved: saved.tensor):
        yield alive


def graph(output: torch.Tensor) -> dict[Any, list[Any]]:
    """The graph behind `output`: each node (a `grad_fn`) with the nodes it sends gradients to.

    Empty if `output` has no graph. Leaves appear as `AccumulateGrad` nodes, whose `.variable` is
    the leaf tensor.
    """
    nodes: dict[Any, list[Any]] = {}
    todo = [output.grad_fn] if output.grad_fn is not None else []
    while todo:
        node = todo.pop()
        if node not in nodes:
            nodes[node] = [after for after, _ in node.next_functions if after is not None]
            todo += nodes[node]
    return nodes


def leaves(output: torch.Tensor) -> list[torch.Tensor]:
    """The leaf tensors that a backward pass from `output` would give a gradient."""
    return [node.variable for node in graph(output) if hasattr(node, "variable")]


def draw_graphs(outputs: Mapping[str, torch.Tensor], names: Mapping[str, torch.Tensor]) -> Figure:
    """Draw the graph behind each of `outputs`, titled by its key.

    The output stands above, operations follow in the order in which a backward pass reaches them,
    leaves have the name that `names` gives them. A name that no gradient reaches is drawn as an
    empty dashed box.

    Raises:
        ValueError: `outputs` is empty.
    """
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
    """Leave out the transposes that `nn.Linear` puts before its weights."""

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
    """How far each node is from the output, by the longest way there; depth-first order."""
    waiting = Counter(after for afters in nodes.values() for after in afters)
    roots = [node for node in nodes if not waiting[node]]
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
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return order


def _draw(
    axis: Any, nodes: dict[Any, list[Any]], names: Mapping[str, torch.Tensor], rows: int
) -> None:
    depth = _levels(nodes)
    lines: dict[int, list[Any]] = {}
    for node, level in depth.items():
        lines.setdefault(level, []).append(node)
    label = {id(tensor): name for name, tensor in names.items()}
    reached = {id(getattr(node, "variable", None)) for node in nodes}
    cut = [name for name, tensor in names.items() if id(tensor) not in reached]
    widest = max(3, len(cut), *map(len, lines.values()))
    place = {
        node: (column + (widest - len(line)) / 2, -level)
        for level, line in lines.items()
        for column, node in enumerate(line)
    }
    for node, start in place.items():
        leaf = getattr(node, "variable", None)
        text = node.name().removesuffix("0").removesuffix("Backward")
        _box(axis, *start, text if leaf is None else label.get(id(leaf), "?"), leaf is not None)
        for after in nodes[node]:
            arrow = {"arrowstyle": "->", "color": COLORS["grey"], "shrinkA": 10, "shrinkB": 10}
            axis.annotate("", xy=place[after], xytext=start, arrowprops=arrow)
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
