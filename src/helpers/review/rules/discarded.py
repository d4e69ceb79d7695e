"""Computed values that are lost, and forward passes without a graph."""

import ast
import re

from helpers.review.axes import column
from helpers.review.code import Part
from helpers.review.following import output_shape
from helpers.review.kinds import is_module_class, kind, no_graph
from helpers.review.registry import rule
from helpers.review.rules.outputs import last_linear
from helpers.review.syntax import LOOPS, ancestors, argument, const, method, name_of, receiver
from helpers.review.tracing import construction, is_activation


@rule("modules-result-lost", "wrong")
def result_lost(code):
    """`F.relu(self.conv(x))` as a statement of `forward`: the result is not used."""
    for (owner, name), function in code.functions.items():
        if name != "forward" or not is_module_class(code, owner or ""):
            continue
        if "hook" in code.source_of(function):
            continue  # a hook may collect the results
        for node in code.walk(function):
            if isinstance(node, ast.Expr) and _computes(code, node.value):
                yield node.value
    for (owner, name), function in code.functions.items():
        for node in code.walk(function) if owner and name == "__getitem__" else ():
            call = node.value if isinstance(node, ast.Expr) else None
            if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Name):
                if re.fullmatch(r"self\.(\w+_)?transforms?", name_of(call.func) or ""):
                    yield call


def _computes(code, node):
    """Return True for the output of a layer or activation that changes nothing else."""
    if isinstance(node, ast.BinOp):
        return _computes(code, node.left) or _computes(code, node.right)
    if not isinstance(node, ast.Call) or const(argument(node, "inplace")) is True:
        return False
    name = code.called(node)
    if name:
        return bool(re.match(r"F\.\w+[^_]$", name)) and not argument(node, "out")
    constructor = construction(code, node.func)
    layer = code.called(constructor)
    return layer.startswith("nn.") and const(argument(constructor, "inplace")) is not True


@rule("training-forward-no-grad", "raises", "no_grad|inference_mode")
def forward_without_graph(code):
    """`with no_grad(): out = model(x)`, and `loss.backward()` of a loss of `out`."""
    for call in code.calls_named("backward"):
        if code.called(call) or call.args or no_graph(code, call):
            continue
        loss = code.value(receiver(call)) if name_of(receiver(call)) else None
        loop = next(ancestors(call, *LOOPS), None)
        if not isinstance(loss, ast.Call) or loop is None or not loss.args:
            continue
        if "requires_grad" in code.source_of(loop) or no_graph(code, loss) or len(loss.args) != 2:
            continue
        operand = loss.args[0]
        value = code.value(operand) if isinstance(operand, ast.Name) else None
        values = operand.scope.assigned.get(operand.id, []) if isinstance(operand, ast.Name) else []
        model = isinstance(value, ast.Call) and not code.called(value) and name_of(value.func)
        if (
            model
            and _is_plain_loss(code, loss)
            and len(values) == 1
            and no_graph(code, value)
            and loop in ancestors(value, *LOOPS)
        ):
            yield call


def _is_plain_loss(code, call):
    """Return True for a loss without its own parameters."""
    name = name_of(call.func) or ""
    named = re.search(r"(?i)loss|criterion|crit$", name) and f"{name}.parameters" not in code.source
    known = (kind(code, call.func) or "").startswith("lossfn:") or code.called(call)[:2] == "F."
    return bool(known or named and code.value(call.func) is None)


@rule("sequences-state-axis", "raises", "zeros|randn")
def state_batch_first(code):
    """`h0 = zeros(batch, layers, hidden)`: the state has the layers first."""
    for call in code.calls:
        layer = construction(code, call.func) if not code.called(call) else None
        if code.called(layer) not in ("nn.LSTM", "nn.GRU", "nn.RNN") or len(call.args) < 2:
            continue
        states = getattr(call.args[1], "elts", [call.args[1]])
        for state in states[:1]:
            creation = _creation(code, state)
            if (
                creation is not None
                and _is_batch(creation.args[0])
                and not _is_batch(creation.args[1])
            ):
                yield creation


def _creation(code, node):
    """Return `zeros(a, b, c)` of a state, even moved to a device."""
    for _ in range(6):
        if isinstance(node, ast.Name):
            node = code.value(node)
        elif method(node) in ("to", "cuda", "requires_grad_", "detach", "Variable"):
            node = receiver(node) if method(node) != "Variable" else node.args[0]
        else:
            break
    name = code.called(node)
    is_creation = name in ("torch.zeros", "torch.randn", "torch.ones") and len(node.args) == 3
    return node if is_creation else None


def _is_batch(node):
    written = ast.unparse(node)
    return bool(re.search(r"(?i)batch|^bs$|\bsize\(0\)|shape\[0\]|^len\(|^[bn]$", written))


@rule("loading-length", "raises", "__len__")
def windows_too_many(code):
    """`self.data[i + self.window]` and `len(self.data)` samples: the last indices do not exist."""
    for name in code.classes:
        get, length = (code.functions.get((name, word)) for word in ("__getitem__", "__len__"))
        values = code.return_values(length)
        length_call = values[0] if len(values) == 1 else None
        if (
            get is None
            or method(length_call) != "len"
            or not length_call.args
            or len(get.args.args) != 2
        ):
            continue
        index, data = get.args.args[1].arg, name_of(length_call.args[0])
        for node in code.walk(get):
            if isinstance(node, ast.Subscript) and name_of(node.value) == data:
                if _is_window_end(node.slice, index) and not re.search(
                    r"\bif\b|%|min\(", code.source_of(get)
                ):
                    yield length_call
                    break


def _is_window_end(node, index):
    """Return True for `i + self.window`."""
    later = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
    return later and name_of(node.left) == index and (name_of(node.right) or "").startswith("self.")


@rule("losses-temperature-product", "wrong", "temp|tau")
def multiplied_by_temperature(code):
    """`logits = a @ b.T * temperature`: the similarities must be divided by it."""
    for node in code.nodes_of(ast.BinOp):
        name = name_of(node.right) or ""
        if not isinstance(node.op, ast.Mult) or not re.search(
            r"(?i)(^|[._])(temp(erature)?|tau)$", name
        ):
            continue
        if re.search(r"(?i)exp\(|inv|/ *\w*(temp|tau)|log_temp|1 */", code.source):
            continue
        similar = isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.MatMult)
        similar = similar or code.called(node.left) in ("torch.matmul", "torch.mm", "torch.einsum")
        if similar and re.search(r"cross_entropy|CrossEntropy", code.source):
            yield node


@rule("rl-categorical", "wrong", "Categorical(")
def logits_as_probabilities(code):
    """`Categorical(fc(x))` of logits, or `Categorical(logits=softmax(x))`."""
    for call in code.calls:
        if not code.called(call).endswith("distributions.Categorical"):
            continue
        probs, logits = argument(call, "probs", 0), argument(call, "logits")
        if probs is not None:
            logarithms = is_activation(code, probs, {"log_softmax"})
            if logarithms or last_linear(code, probs) is not None:
                yield call
        elif logits is not None and is_activation(code, logits, {"softmax"}):
            yield call


@rule("loading-zip-shuffled", "wrong", "zip(")
def zipped_apart(code):
    """`zip(x_loader, y_loader)` of two loaders that shuffle separately."""
    for loop in code.nodes_of(ast.For):
        zip_call = (
            loop.iter.args[0]
            if method(loop.iter) in ("enumerate", "tqdm") and (loop.iter.args)
            else loop.iter
        )
        if method(zip_call) != "zip" or len(zip_call.args) != 2:
            continue
        constructors = [construction(code, arg) for arg in zip_call.args]
        if all(
            code.called(constructor) == "data.DataLoader" and _shuffles(constructor)
            for constructor in constructors
        ):
            names = [
                name_of(argument(constructor, "dataset", 0)) or "" for constructor in constructors
            ]
            pair = [re.search(p, n) for p, n in zip(_INPUT_AND_TARGET, names, strict=True)]
            if all(pair) and not re.search(_INPUT_AND_TARGET[0], names[1]):
                yield zip_call


_INPUT_AND_TARGET = (
    r"(?i)^x|(^|_)(x|inputs?|images?|imgs?|features?)(_|$)",
    r"(?i)^y|(^|_)(y|targets?|labels?|masks?)(_|$)",
)


def _shuffles(call):
    return const(argument(call, "shuffle", 2)) is True and argument(call, "generator") is None


@rule("evaluation-argmax-column", "wrong", "argmax")
def argmax_of_column(code):
    """`model(x).argmax(1)` of a model with one output unit: always 0."""
    for call in code.calls:
        name = code.called(call)
        if method(call) != "argmax" or name not in ("", "torch.argmax"):
            continue
        operand = argument(call, "input", 0) if name else receiver(call)
        dim = argument(call, "dim", int(bool(name)))
        if dim is not None and const(dim) in (1, -1) and _one_unit(code, operand):
            yield call


def _one_unit(code, node):
    value = code.value(node) if isinstance(node, ast.Name) else node
    value = code.element(value) if isinstance(value, Part) else value
    module = isinstance(value, ast.Call) and (kind(code, value.func) or "").startswith("module:")
    return module and column(code, value)


@rule("images-reshaped", "wrong", "reshape(|view(")
def channels_reshaped(code):
    """`x.reshape(n, 3, 32, 32)` of images (n, 32, 32, 3): the values of pixels are mixed."""
    for call in code.calls_named("reshape", "view"):
        if code.called(call) or len(call.args) != 4:
            continue
        sizes = [code.const(arg) for arg in call.args]
        shape = output_shape(code, receiver(call))
        if shape is not None and shape.whole and len(shape.sizes) == 4 and None not in sizes[1:]:
            height, width, channels = shape.sizes[1:]
            if channels in (1, 3, 4) and channels > 1 and sizes[1:] == [channels, height, width]:
                if (height, width) != (channels, height):
                    yield call
