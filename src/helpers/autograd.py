"""Look into an autograd graph: count what it saved, list its nodes, draw it.

Source: "Autograd mechanics", https://pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from helpers.figures import COLORS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    """Draw the graph behind each of `outputs`, one above the other, titled by its key.

    Leaves stand on the left under the name that `names` gives them, operations follow to the
    right. A name that no gradient reaches is drawn as an empty dashed box.

    Raises:
        ValueError: `outputs` is empty.
    """
    if not outputs:
        raise ValueError("draw_graphs needs at least one output, got none")
    drawing, axes = figure(len(outputs), size=(8, 2.1 * len(outputs)), squeeze=False)
    for axis, (title, output) in zip(axes[:, 0], outputs.items(), strict=True):
        axis.set_title(title, loc="left", family="monospace", fontsize=10)
        axis.axis("off")
        _draw(axis, _shorten(graph(output)), names)
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


def _draw(axis: Any, nodes: dict[Any, list[Any]], names: Mapping[str, torch.Tensor]) -> None:
    depth = _levels(nodes)
    rows: dict[int, int] = {}
    place = {}
    for node, level in depth.items():
        place[node] = (-1.9 * level, -rows.get(level, 0))
        rows[level] = rows.get(level, 0) + 1
    label = {id(tensor): name for name, tensor in names.items()}
    reached = set()
    for node, (x, y) in place.items():
        leaf = getattr(node, "variable", None)
        reached.add(id(leaf))
        text = node.name().removesuffix("0").removesuffix("Backward")
        _box(axis, x, y, text if leaf is None else label.get(id(leaf), "?"), leaf is not None)
        for after in nodes[node]:
            arrow = {"arrowstyle": "<-", "color": COLORS["grey"], "shrinkA": 24, "shrinkB": 24}
            axis.annotate("", xy=(x, y), xytext=place[after], arrowprops=arrow)
    left = min((x for x, _ in place.values()), default=0) - 1.9
    cut = [name for name, tensor in names.items() if id(tensor) not in reached]
    for row, name in enumerate(cut):
        _box(axis, left, -row, name, True, cut=True)
    bottom = -max([*rows.values(), len(cut), 2]) + 0.5
    axis.set(xlim=(left - 0.8, 0.8), ylim=(bottom, 0.5))


def _box(axis: Any, x: float, y: float, text: str, leaf: bool, cut: bool = False) -> None:
    face = "white" if cut else COLORS["pale blue"] if leaf else COLORS["pale grey"]
    style = {
        "boxstyle": "round,pad=0.4",
        "facecolor": face,
        "edgecolor": COLORS["grey"],
        "linestyle": "--" if cut else "-",
    }
    axis.text(x, y, text, ha="center", va="center", fontsize=9, color=COLORS["black"], bbox=style)
