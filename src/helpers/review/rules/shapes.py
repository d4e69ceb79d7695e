"""Shapes and dimensions that fit by accident."""

import ast
import re

from helpers.review.batches import classes
from helpers.review.code import Part
from helpers.review.following import mismatches, output_shape
from helpers.review.kinds import iterated, kind
from helpers.review.registry import rule
from helpers.review.rules.outputs import last_linear
from helpers.review.rules.recurrent import from_one
from helpers.review.syntax import (
    ancestors,
    argument,
    const,
    descendants,
    last_name,
    method,
    name_of,
    place,
    receiver,
)
from helpers.review.tracing import construction, loss_calls


@rule("views-view-error", "raises")
def view_after_transpose(code):
    """`x.transpose(1, 2).view(n, -1)`: it joins axes that are not next to each other."""
    for call in code.calls_named("view"):
        if code.called(call) or not call.args:
            continue
        inner = receiver(call)
        order = (
            _axis_order(inner) if isinstance(inner, ast.Call) and not code.called(inner) else None
        )
        joined = (order or [])[len(call.args) - 1 :]
        last_axis = const(call.args[-1]) == -1 or len(call.args) == 1 and const(call.args[0])
        if last_axis and len(joined) > 1 and joined != [*range(joined[0], joined[-1] + 1)]:
            if len(call.args) > 1 or not code.dotted(call.args[0]):
                yield call


def _axis_order(call):
    """Return the position of each axis before `transpose`, `permute` or `t`; None if unknown."""
    dims = [const(arg) for arg in call.args]
    if method(call) == "t" and not dims:
        return [1, 0]
    if not all(isinstance(dim, int) and dim >= 0 for dim in dims):
        return None
    if method(call) == "permute":
        return dims
    if method(call) == "transpose" and len(dims) == 2:
        order = [*range(max(dims) + 1)]
        order[dims[0]], order[dims[1]] = dims[1], dims[0]
        return order
    return None


@rule("tensor-recipes-dim-silent", "wrong")
def softmax_over_batch(code):
    """`softmax(logits, dim=0)` of a batch: it normalizes over the samples."""
    for call in code.calls:
        name = code.called(call)
        if name in ("F.softmax", "torch.softmax", "F.log_softmax", "torch.log_softmax"):
            operand, dim = argument(call, "input", 0), argument(call, "dim", 1)
        elif not name and kind(code, call.func) in _SOFTMAX:
            layer = construction(code, call.func)
            operand, dim = (call.args or [None])[0], argument(layer, "dim", 0) if layer else None
        elif not name and method(call) in ("softmax", "log_softmax"):
            operand, dim = receiver(call), argument(call, "dim", 0)
        else:
            continue
        if code.const(dim) == 0 and code.const(dim) is not False and _is_batch(code, operand):
            yield call
    for call in code.calls:
        layers = call.args if code.called(call) == "nn.Sequential" else ()
        for before, layer in zip(layers, layers[1:], strict=False):
            axis = argument(layer, "dim", 0) if code.called(layer) == "nn.Softmax" else None
            if code.called(before) == "nn.Linear" and const(axis) == 0:
                yield layer


_SOFTMAX = ("module:Softmax", "module:LogSoftmax")


def _is_batch(code, node):
    """Return True for a model's output of a batch, or a layer's output in `forward`."""
    value = code.resolved(node)
    if isinstance(value, ast.Subscript) and ast.unparse(value.slice) in ("(:, -1)", "(:, -1, :)"):
        return True  # the last position of a batch of sequences
    if isinstance(value, Part) or not isinstance(value, ast.Call):
        return False
    if any(isinstance(arg, ast.Constant | ast.Subscript) for arg in value.args):
        return False
    if value.args and re.search(r"unsqueeze|single|\[None", ast.unparse(value)):
        return False
    type_name = kind(code, value.func) or ""
    if type_name in ("module:Linear", "module:Sequential"):
        return getattr(code.function_of(node), "name", "") == "forward"
    name = last_name(value.func)
    return getattr(code.function_of(node), "name", "") == "forward" and bool(
        re.search(r"(?i)^(classifier|fc\d?|head|out(put)?(_layer)?|linear\d?)$", name)
    )


@rule("tensor-recipes-implicit-dim", "wrong")
def softmax_without_dim(code):
    """`F.softmax(x)` and `nn.Softmax()`: the dimension depends on the number of axes."""
    for call in code.calls:
        name = code.called(call)
        if name in ("F.softmax", "F.log_softmax", "F.softmin"):
            dim = argument(call, "dim", 1)
        elif name in ("nn.Softmax", "nn.LogSoftmax", "nn.Softmin"):
            dim = argument(call, "dim", 0)
        else:
            continue
        if (
            dim is None
            and not any(k.arg is None for k in call.keywords)
            and not any(isinstance(arg, ast.Starred) for arg in call.args)
        ):
            yield call


@rule("views-scrambled", "wrong")
def view_for_permute(code):
    """`x.view(n, h * w, c)` of (n, c, h, w): the values are mixed, not moved."""
    for call in code.calls_named("view", "reshape"):
        if code.called(call) or len(call.args) < 2:
            continue
        names = _sizes(code, receiver(call))
        if names and _moves_channels(names, call.args) or names is None and _reordered(code, call):
            yield call
    yield from _permuted_otherwise(code)


def _reordered(code, call):
    """Return True if the sizes of `x.view(n, pixels, c)` are axes of `x` in another order."""
    axes = []
    for size in call.args:
        value = code.value(size) if isinstance(size, ast.Name) else None
        dims = _axes_of(value, name_of(receiver(call))) if isinstance(value, ast.AST) else []
        last = code.value(receiver(call)) if dims else None
        if not dims or isinstance(last, ast.AST) and last.lineno > value.lineno:
            return False
        axes += dims
    return sorted(axes) == [*range(len(axes))] != axes


def _axes_of(node, name):
    """Return the axes in `x.shape[2] * x.shape[3]`; none for others."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _axes_of(node.left, name), _axes_of(node.right, name)
        return left + right if left and right else []
    if isinstance(node, ast.Subscript) and name_of(node.value) == f"{name}.shape":
        axis = const(node.slice)
    elif method(node) == "size" and node.args and name_of(receiver(node)) == name:
        axis = const(node.args[0])
    else:
        axis = None
    return [axis] if isinstance(axis, int) and axis >= 0 else []


def _permuted_otherwise(code):
    """`x.permute(0, 2, 1).reshape(n, c, h)`: the sizes follow the order before `permute`."""
    for call in code.calls_named("view", "reshape"):
        if code.called(call) or len(call.args) < 2:
            continue
        inner = receiver(call)
        inner = code.resolved(inner)
        order = (
            _axis_order(inner) if isinstance(inner, ast.Call) and not code.called(inner) else None
        )
        names = _sizes(code, _embedded(code, receiver(inner))) if order else None
        if not names or len({*names}) < len(names) or len(order) < len(names):
            continue
        if not all(_factors(arg) for arg in call.args):
            continue
        moved = [names[n] for n in order if n < len(names)]
        factors = [factor for size in call.args for factor in _factors(size) if factor in names]
        if sorted(factors) == sorted(moved) and factors != moved:
            yield call


def _embedded(code, node):
    """Return `x` of `x = self.embedding(x)`, which adds a last axis; else the node."""
    value = code.value(node) if isinstance(node, ast.Name) else None
    if isinstance(value, ast.Call) and kind(code, value.func) == "module:Embedding" and value.args:
        return value.args[0]
    return node


def _factors(node):
    """Return the names of a product, `["c", "self.dim"]` of `c * self.dim`; none for others."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _factors(node.left), _factors(node.right)
        return [*left, *right] if left and right else []
    return [name_of(node)] if isinstance(node, ast.Name | ast.Attribute) else []


@rule("views-heads", "wrong")
def heads_merged(code):
    """`out.reshape(batch, length, width)` of (batch, heads, length, width): heads are mixed."""
    for call in code.calls_named("view", "reshape"):
        if code.called(call) or len(call.args) != 3:
            continue
        names = [arg.id if isinstance(arg, ast.Name) else "" for arg in call.args[:2]]
        unpacked = [
            [name_of(element) for element in target.elts[:2]]
            for statement in code.walk(code.function_of(call))
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Tuple) and _shape_of(_unsliced(statement.value))
        ]
        unpacked += [[first, names[1]] for first, _ in unpacked if _is_length(code, call.args[1])]
        if names in unpacked and _heads_first(code, receiver(call)):
            yield call


def _is_length(code, node):
    """Return True for the name of `query.shape[1]` or `query.size(1)`."""
    value = code.value(node) if isinstance(node, ast.Name) else None
    if method(value) == "size":
        return len(value.args) == 1 and const(value.args[0]) == 1
    return isinstance(value, ast.Subscript) and const(value.slice) == 1 and _shape_of(value.value)


def _unsliced(node):
    return node.value if isinstance(node, ast.Subscript) else node


_SAME = {"contiguous", "softmax", "masked_fill", "dropout", "to", "float", "clone", "chunk"}


def _heads_first(code, node, depth=0):
    """Return whether the second and third axis of a tensor are swapped; None if unknown."""
    if depth > 12 or node is None:
        return None
    if isinstance(node, Part | ast.Subscript) and _of_stacked(code, node):
        return True
    if isinstance(node, Part):
        return _part_heads(code, node, depth)
    if isinstance(node, ast.Name):
        return _heads_first(code, code.value(node), depth + 1)
    if isinstance(node, ast.BinOp):
        side = node.right if isinstance(node.op, ast.MatMult) else node.left
        return _heads_first(code, side, depth + 1)
    if not isinstance(node, ast.Call):
        return None
    name = code.called(node)
    if name == "torch.matmul" and len(node.args) == 2:
        return _heads_first(code, node.args[1], depth + 1)
    if name == "F.scaled_dot_product_attention" and len(node.args) > 2:
        return _heads_first(code, node.args[2], depth + 1)
    if name or receiver(node) is None:
        return None
    if _axis_order(node) in ([0, 2, 1, 3], [0, 2, 1]):
        inner = _heads_first(code, receiver(node), depth + 1)
        split = method(receiver(node)) in ("view", "reshape") and not _of_frames(receiver(node))
        return not inner if inner is not None else True if split else None
    if method(node) in ("view", "reshape") and len(node.args) == 4:
        return _splits_heads(node)
    return _heads_first(code, receiver(node), depth + 1) if method(node) in _SAME else None


def _splits_heads(call):
    """Return whether the second of four new sizes is the number of heads; None for images."""
    return None if _of_frames(call) else bool(re.search("(?i)heads?$", name_of(call.args[1]) or ""))


def _of_frames(call):
    """Return whether the new sizes are those of images or videos, without heads."""
    return any(re.search(r"(?i)frame|spatial|height|width", ast.unparse(arg)) for arg in call.args)


def _of_stacked(code, node):
    """Return True for `qkv[2]` of `qkv.reshape(B, N, 3, heads, -1).permute(2, 0, 3, 1, 4)`."""
    expression = node.value
    expression = receiver(expression) if method(expression) == "unbind" else expression
    value = code.value(expression) if isinstance(expression, ast.Name) else expression
    if not isinstance(value, ast.Call) or _axis_order(value) != [2, 0, 3, 1, 4]:
        return False
    split = receiver(value)
    heads = split.args[3] if method(split) in ("view", "reshape") and len(split.args) == 5 else None
    return bool(re.search(r"(?i)heads?$|^h$", name_of(heads) or ""))


def _part_heads(code, part, depth):
    """Return `_heads_first` for one of several values, of `chunk` or of a local function."""
    if part.index is None or not isinstance(part.value, ast.Call):
        return None
    if method(part.value) in ("chunk", "unbind"):
        return _heads_first(code, receiver(part.value), depth + 1)
    targets = code.targets(part.value)
    values = code.return_values(targets[0]) if len(targets) == 1 else []
    if len(values) == 1 and isinstance(values[0], ast.Tuple) and part.index < len(values[0].elts):
        return _heads_first(code, values[0].elts[part.index], depth + 1)
    return None


def _sizes(code, node):
    """Return the names of the sizes of a tensor, from `n, c, h, w = x.shape` before it."""
    name = name_of(node)
    if name is None:
        return None
    sizes = None
    for statement in code.walk(code.function_of(node)):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
            if statement.lineno < node.lineno and _shape_of(statement.value) == name:
                sizes = [name_of(element) for element in statement.targets[0].elts]
                line = statement.lineno
    if sizes and not all(sizes):
        return None
    if sizes and any(
        line < assignment.statement.lineno < node.lineno
        for assignment in node.scope.assigned.get(name, ())
    ):
        return None
    return sizes


def _shape_of(node):
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return name_of(node.value)
    if method(node) == "size" and not node.args:
        return name_of(receiver(node))
    return None


def _moves_channels(names, sizes):
    """Return whether the new sizes change the order of the old ones, so values change their axis.

    Only sizes that are names of the old ones, products of them, -1 and 1 are compared.
    """
    if len(names) < 3 or len({*names}) < len(names):
        return False
    groups = [[-1] if const(size) == -1 else names_of(size) for size in sizes if const(size) != 1]
    order = [name for group in groups for name in group]
    if not all(groups) or not all(_is_product(size) for size in sizes) or len(order) < 2:
        return False
    if -1 not in order:
        return sorted(order) == sorted(names) and order != names
    if not {*order} - {-1} <= {*names} or len({*order}) < len(order):
        return False
    position = order.index(-1)
    before, after = order[:position], order[position + 1 :]
    return before != names[:position] or after != names[len(names) - len(after) :]


def _is_product(node):
    return (
        isinstance(node, ast.Name)
        or const(node) in (1, -1)
        or isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult)
        and _is_product(node.left)
        and _is_product(node.right)
    )


def names_of(node):
    """Return the names in a size, as two for `h * w`."""
    nodes = (child for child in descendants(node) if isinstance(child, ast.Name))
    return [name.id for name in sorted(nodes, key=place)]


@rule("export-one", "wrong")
def squeeze_of_batch(code):
    """`criterion(model(x).squeeze(), y)`: a last batch of one sample loses its axis."""
    for call in code.calls_named("squeeze"):
        if not code.called(call) and not call.args and not call.keywords:
            value = receiver(call)
            value = code.resolved(value)
            model = isinstance(value, ast.Call) and (kind(code, value.func) or "").startswith(
                "module:"
            )
            if model and _indexed(call):
                yield call


def _indexed(call):
    """Return whether the result is iterated, indexed or put into a list, so its axis matters."""
    ancestor = call.parent
    while isinstance(ancestor, ast.Attribute | ast.Call) and method(ancestor) not in (
        "extend",
        "list",
        "enumerate",
    ):
        if isinstance(ancestor, ast.Attribute) and ancestor.attr in ("tolist", "numpy"):
            return method(ancestor.parent.parent) == "extend"
        ancestor = ancestor.parent
    return method(ancestor) in ("extend", "enumerate") or isinstance(ancestor, ast.For)


@rule("tensor-recipes-width", "wrong")
def one_hot(code):
    """`F.one_hot(labels)`: the width is the largest label of the batch."""
    for call in code.calls_to("F.one_hot"):
        if len(call.args) == 1 and not call.keywords:
            if not any(ancestors(call, ast.Assert)):
                yield call


@rule("normalization-layer-dims", "raises")
def norm_of_other_dims(code):
    """`BatchNorm2d` directly after `Linear` or `Conv1d`: it requires other dimensions."""
    for call in code.calls:
        if code.called(call) == "nn.Sequential":
            for before, after in zip(call.args, call.args[1:], strict=False):
                if _is_unfit_norm(code.called(before)[3:], code.called(after)[3:]):
                    yield after
        elif len(call.args) == 1 and getattr(code.function_of(call), "name", "") == "forward":
            operand = call.args[0]
            operand = code.resolved(operand)
            kinds = [
                kind(code, getattr(module_call, "func", None)) or ""
                for module_call in (operand, call)
            ]
            if all(module_kind.startswith("module:") for module_kind in kinds):
                if _is_unfit_norm(*(module_kind[7:] for module_kind in kinds)):
                    yield call


def _is_unfit_norm(before, after):
    """Return whether BatchNorm does not accept the dimensions that the layer before it returns."""
    norm = re.fullmatch(r"(?:Batch|Instance)Norm([123])d", after)
    if norm and before == "Linear":
        return norm[1] != "1"
    layer = re.fullmatch(r"Conv(?:Transpose)?([123])d", before)
    return bool(norm and layer and norm[1] != layer[1])


@rule("modules-sizes", "raises", "Linear|Conv|LSTM|GRU|RNN")
def sizes_unfit(code):
    """`nn.Linear(32, 2)` of a tensor with 16 features, or `nn.Conv2d(3, 8, 3)` of 1 channel."""
    yield from mismatches(code)["sizes"]


@rule("modules-no-flatten", "raises", "Linear")
def conv_to_linear(code):
    """`self.fc(self.conv(x))` without `flatten`: the linear layer gets images."""
    yield from mismatches(code)["flatten"]


@rule("views-samples", "raises", "view(|reshape(")
def samples_changed(code):
    """`x.view(-1, 320)` of 20 × 5 × 5 features: the number of samples changes."""
    yield from mismatches(code)["joined"]


@rule("losses-few-classes", "raises", "CrossEntropyLoss|cross_entropy")
def fewer_outputs_than_classes(code):
    """`cross_entropy` of 2 outputs for the labels of MNIST, or for labels that begin at 1."""
    for call, prediction in loss_calls(code, "cross_entropy", "CrossEntropyLoss"):
        target = argument(call, "target", 1)
        part = code.value(target) if isinstance(target, ast.Name) else target
        if isinstance(part, Part):
            if part.index is not None or part.element is None:
                continue
            loader = iterated(part.value)
            count = classes(code, loader) if part.element == 1 else None
            count = count or _label_count(code, _stored_tensor(code, loader, part.element))
        else:
            count = _label_count(code, part) if _assigned_once(code, target) else None
        shape = output_shape(code, prediction)
        known = count and shape is not None and len(shape.sizes) < 3
        if known and 1 < shape.size(-1) < count or _numbered_from_one(code, prediction):
            yield call


def _assigned_once(code, node):
    """Return True unless a name is a global variable that is assigned several times."""
    if not isinstance(node, ast.Name) or node.id in node.scope.assigned:
        return True
    return len(code.tree.assigned.get(node.id, ())) == 1


def _stored_tensor(code, loader, element):
    """Return the tensor of a `TensorDataset` that a loop over its loader yields."""
    constructor = construction(code, loader)
    if code.called(constructor) == "data.DataLoader":
        constructor = construction(code, argument(constructor, "dataset", 0))
    arguments = constructor.args if code.called(constructor) == "data.TensorDataset" else ()
    return arguments[element] if element < len(arguments) else None


def _label_count(code, node):
    """Return the largest label plus one of `torch.randint(1, 11, …)` or `torch.tensor([1, 2])`."""
    node = code.resolved(node) if isinstance(node, ast.AST) else None
    while method(node) in ("long", "to") and receiver(node) is not None:
        node = receiver(node)
    if code.called(node) == "torch.randint":
        size = argument(node, "size")
        numbers = [argument(node, "low"), argument(node, "high"), *node.args]
        numbers = [number for number in numbers if number is not None]
        numbers = numbers if size is not None else numbers[:-1]
        high = code.const(numbers[-1]) if numbers else None
        return high if type(high) is int else None
    if code.called(node) in ("torch.tensor", "torch.LongTensor") and node.args:
        values = [const(element) for element in getattr(node.args[0], "elts", ())]
        return max(values) + 1 if values and all(type(v) is int for v in values) else None
    return None


def _counts_from_one(table):
    """Return True for `{"cat": 1, "dog": 2}`, which numbers its keys from 1."""
    names = [const(key) for key in table.keys]
    values = [const(value) for value in table.values]
    named = len(names) > 1 and all(isinstance(name, str) for name in names)
    return named and values == [*range(1, len(values) + 1)]


_LABELS = re.compile(r"(?i)label|class|target|cat|(^|_)y|tag|l2i|c2i|cls")


def _numbered_from_one(code, prediction):
    """Return whether `{name: i for i, name in enumerate(names, 1)}` numbers `len(names)` labels."""
    tables = [node for node in code.nodes_of(ast.DictComp) if from_one(node)]
    tables += [dictionary for dictionary in code.nodes_of(ast.Dict) if _counts_from_one(dictionary)]
    if not tables or re.search(r"(?i)- 1\b|background|ignore_index|pad", code.source):
        return False
    layer = last_linear(code, prediction)
    size = argument(layer, "out_features", 1) if layer is not None else None
    size = code.resolved(size) if size is not None else None
    for table in tables:
        name = name_of(getattr(table.parent, "targets", [None])[0])
        if isinstance(table, ast.Dict):
            mapped = method(table.parent) in (
                "map",
                "replace",
            )
            listed = mapped or name and _LABELS.search(name)
            if listed and code.const(size) == len(table.values):
                return True
            continue
        names = table.generators[0].iter.args[0]
        listed = code.resolved(names)
        same = method(size) == "len" and name_of(size.args[0]) in (name, name_of(names))
        count = code.const(size)
        same = same or type(count) is int and count == len(getattr(listed, "elts", ()))
        if same and name and _LABELS.search(name):
            return True
    return False
