"""Shapes and dimensions that fit by accident."""

import ast
import re

from helpers.review.batches import classes
from helpers.review.code import Part
from helpers.review.following import mismatches, output_shape
from helpers.review.kinds import iterated, kind, returns
from helpers.review.registry import rule
from helpers.review.rules.outputs import last_linear
from helpers.review.rules.recurrent import from_one
from helpers.review.syntax import above, argument, const, last, method, place, receiver, text
from helpers.review.tracing import construction, loss_calls


@rule("views-view-error", "raises")
def view_after_transpose(code):
    """`x.transpose(1, 2).view(n, -1)`: it joins axes that are not next to each other."""
    for call in code.calls:
        if method(call) != "view" or code.called(call) or not call.args:
            continue
        inner = receiver(call)
        order = _order(inner) if isinstance(inner, ast.Call) and not code.called(inner) else None
        joined = (order or [])[len(call.args) - 1 :]
        last_axis = const(call.args[-1]) == -1 or len(call.args) == 1 and const(call.args[0])
        if last_axis and len(joined) > 1 and joined != [*range(joined[0], joined[-1] + 1)]:
            if len(call.args) > 1 or not code.dotted(call.args[0]):
                yield call


def _order(call):
    """Return the position of each axis before `transpose`, `permute` or `t`; None if unknown."""
    dims = [const(one) for one in call.args]
    if method(call) == "t" and not dims:
        return [1, 0]
    if not all(isinstance(one, int) and one >= 0 for one in dims):
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
            given, dim = argument(call, "input", 0), argument(call, "dim", 1)
        elif not name and kind(code, call.func) in _SOFTMAX:
            layer = construction(code, call.func)
            given, dim = (call.args or [None])[0], argument(layer, "dim", 0) if layer else None
        elif not name and method(call) in ("softmax", "log_softmax"):
            given, dim = receiver(call), argument(call, "dim", 0)
        else:
            continue
        if code.const(dim) == 0 and code.const(dim) is not False and _is_batch(code, given):
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
    if any(isinstance(one, ast.Constant | ast.Subscript) for one in value.args):
        return False
    if value.args and re.search(r"unsqueeze|single|\[None", ast.unparse(value)):
        return False
    type_name = kind(code, value.func) or ""
    if type_name in ("module:Linear", "module:Sequential"):
        return getattr(code.function(node), "name", "") == "forward"
    name = last(value.func)
    return getattr(code.function(node), "name", "") == "forward" and bool(
        re.search(r"(?i)^(classifier|fc\d?|head|out(put)?(_layer)?|linear\d?)$", name)
    )


@rule("tensor-recipes-implicit-dim", "wrong")
def softmax_without_dim(code):
    """`F.softmax(x)` and `nn.Softmax()`: the dimension depends on the number of axes."""
    for call in code.calls:
        name = code.called(call)
        if name in ("F.softmax", "F.log_softmax", "F.softmin"):
            given = argument(call, "dim", 1)
        elif name in ("nn.Softmax", "nn.LogSoftmax", "nn.Softmin"):
            given = argument(call, "dim", 0)
        else:
            continue
        if (
            given is None
            and not any(k.arg is None for k in call.keywords)
            and not any(isinstance(one, ast.Starred) for one in call.args)
        ):
            yield call


@rule("views-scrambled", "wrong")
def view_for_permute(code):
    """`x.view(n, h * w, c)` of (n, c, h, w): the values are mixed, not moved."""
    for call in code.calls:
        if method(call) not in ("view", "reshape") or code.called(call) or len(call.args) < 2:
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
        dims = _axes_of(value, text(receiver(call))) if isinstance(value, ast.AST) else []
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
    if isinstance(node, ast.Subscript) and text(node.value) == f"{name}.shape":
        axis = const(node.slice)
    elif method(node) == "size" and node.args and text(receiver(node)) == name:
        axis = const(node.args[0])
    else:
        axis = None
    return [axis] if isinstance(axis, int) and axis >= 0 else []


def _permuted_otherwise(code):
    """`x.permute(0, 2, 1).reshape(n, c, h)`: the sizes follow the order before `permute`."""
    for call in code.calls:
        if method(call) not in ("view", "reshape") or code.called(call) or len(call.args) < 2:
            continue
        inner = receiver(call)
        inner = code.resolved(inner)
        order = _order(inner) if isinstance(inner, ast.Call) and not code.called(inner) else None
        names = _sizes(code, _embedded(code, receiver(inner))) if order else None
        if not names or len({*names}) < len(names) or len(order) < len(names):
            continue
        if not all(_factors(one) for one in call.args):
            continue
        moved = [names[n] for n in order if n < len(names)]
        given = [one for size in call.args for one in _factors(size) if one in names]
        if sorted(given) == sorted(moved) and given != moved:
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
    return [text(node)] if isinstance(node, ast.Name | ast.Attribute) else []


@rule("views-heads", "wrong")
def heads_merged(code):
    """`out.reshape(batch, length, width)` of (batch, heads, length, width): heads are mixed."""
    for call in code.calls:
        if method(call) not in ("view", "reshape") or code.called(call) or len(call.args) != 3:
            continue
        names = [one.id if isinstance(one, ast.Name) else "" for one in call.args[:2]]
        unpacked = [
            [text(one) for one in target.elts[:2]]
            for statement in code.walk(code.function(call))
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
    if _order(node) in ([0, 2, 1, 3], [0, 2, 1]):
        inner = _heads_first(code, receiver(node), depth + 1)
        split = method(receiver(node)) in ("view", "reshape") and not _of_frames(receiver(node))
        return not inner if inner is not None else True if split else None
    if method(node) in ("view", "reshape") and len(node.args) == 4:
        return _splits_heads(node)
    return _heads_first(code, receiver(node), depth + 1) if method(node) in _SAME else None


def _splits_heads(call):
    """Return whether the second of four new sizes is the number of heads; None for images."""
    return None if _of_frames(call) else bool(re.search("(?i)heads?$", text(call.args[1]) or ""))


def _of_frames(call):
    """Return whether the new sizes are those of images or videos, without heads."""
    return any(re.search(r"(?i)frame|spatial|height|width", ast.unparse(one)) for one in call.args)


def _of_stacked(code, node):
    """Return True for `qkv[2]` of `qkv.reshape(B, N, 3, heads, -1).permute(2, 0, 3, 1, 4)`."""
    whole = node.value
    whole = receiver(whole) if method(whole) == "unbind" else whole
    value = code.value(whole) if isinstance(whole, ast.Name) else whole
    if not isinstance(value, ast.Call) or _order(value) != [2, 0, 3, 1, 4]:
        return False
    split = receiver(value)
    heads = split.args[3] if method(split) in ("view", "reshape") and len(split.args) == 5 else None
    return bool(re.search(r"(?i)heads?$|^h$", text(heads) or ""))


def _part_heads(code, part, depth):
    """Return `_heads_first` for one of several values, of `chunk` or of a local function."""
    if part.index is None or not isinstance(part.value, ast.Call):
        return None
    if method(part.value) in ("chunk", "unbind"):
        return _heads_first(code, receiver(part.value), depth + 1)
    targets = code.targets(part.value)
    values = returns(code, targets[0]) if len(targets) == 1 else []
    if len(values) == 1 and isinstance(values[0], ast.Tuple) and part.index < len(values[0].elts):
        return _heads_first(code, values[0].elts[part.index], depth + 1)
    return None


def _sizes(code, node):
    """Return the names of the sizes of a tensor, from `n, c, h, w = x.shape` before it."""
    name = text(node)
    if name is None:
        return None
    sizes = None
    for statement in code.walk(code.function(node)):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
            if statement.lineno < node.lineno and _shape_of(statement.value) == name:
                sizes = [text(one) for one in statement.targets[0].elts]
                line = statement.lineno
    if sizes and not all(sizes):
        return None
    if sizes and any(
        line < one.statement.lineno < node.lineno for one in node.scope.assigned.get(name, ())
    ):
        return None
    return sizes


def _shape_of(node):
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return text(node.value)
    if method(node) == "size" and not node.args:
        return text(receiver(node))
    return None


def _moves_channels(names, sizes):
    """Return whether the new sizes change the order of the old ones, so values change their axis.

    Only sizes that are names of the old ones, products of them, -1 and 1 are compared.
    """
    if len(names) < 3 or len({*names}) < len(names):
        return False
    given = [[-1] if const(one) == -1 else names_of(one) for one in sizes if const(one) != 1]
    order = [name for group in given for name in group]
    if not all(given) or not all(_is_product(one) for one in sizes) or len(order) < 2:
        return False
    if -1 not in order:
        return sorted(order) == sorted(names) and order != names
    if not {*order} - {-1} <= {*names} or len({*order}) < len(order):
        return False
    at = order.index(-1)
    before, after = order[:at], order[at + 1 :]
    return before != names[:at] or after != names[len(names) - len(after) :]


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
    return [one.id for one in sorted(_names(node), key=place)]


def _names(node):
    return [one for one in ast.walk(node) if isinstance(one, ast.Name)]


@rule("export-one", "wrong")
def squeeze_of_batch(code):
    """`criterion(model(x).squeeze(), y)`: a last batch of one sample loses its axis."""
    for call in code.calls:
        if (
            method(call) == "squeeze"
            and not code.called(call)
            and not call.args
            and not call.keywords
        ):
            value = receiver(call)
            value = code.resolved(value)
            model = isinstance(value, ast.Call) and (kind(code, value.func) or "").startswith(
                "module:"
            )
            if model and _indexed(call):
                yield call


def _indexed(call):
    """Return whether the result is iterated, indexed or put into a list, so its axis matters."""
    up = call.parent
    while isinstance(up, ast.Attribute | ast.Call) and method(up) not in (
        "extend",
        "list",
        "enumerate",
    ):
        if isinstance(up, ast.Attribute) and up.attr in ("tolist", "numpy"):
            return isinstance(up.parent.parent, ast.Call) and method(up.parent.parent) == "extend"
        up = up.parent
    return method(up) in ("extend", "enumerate") or isinstance(up, ast.For)


@rule("tensor-recipes-width", "wrong")
def one_hot(code):
    """`F.one_hot(labels)`: the width is the largest label of the batch."""
    for call in code.calls:
        if code.called(call) == "F.one_hot" and len(call.args) == 1 and not call.keywords:
            if not any(above(call, ast.Assert)):
                yield call


@rule("normalization-layer-dims", "raises")
def norm_of_other_dims(code):
    """`BatchNorm2d` directly after `Linear` or `Conv1d`: it requires other dimensions."""
    for call in code.calls:
        if code.called(call) == "nn.Sequential":
            for before, after in zip(call.args, call.args[1:], strict=False):
                if _unfit(code.called(before)[3:], code.called(after)[3:]):
                    yield after
        elif len(call.args) == 1 and getattr(code.function(call), "name", "") == "forward":
            given = call.args[0]
            given = code.resolved(given)
            kinds = [kind(code, getattr(one, "func", None)) or "" for one in (given, call)]
            if all(one.startswith("module:") for one in kinds):
                if _unfit(*(one[7:] for one in kinds)):
                    yield call


def _unfit(before, after):
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
    for call, given in loss_calls(code, "cross_entropy", "CrossEntropyLoss"):
        target = argument(call, "target", 1)
        part = code.value(target) if isinstance(target, ast.Name) else target
        if isinstance(part, Part):
            if part.index is not None or part.element is None:
                continue
            loader = iterated(part.value)
            count = classes(code, loader) if part.element == 1 else None
            count = count or _labels(code, _stored(code, loader, part.element))
        else:
            count = _labels(code, part) if _assigned_once(code, target) else None
        shape = output_shape(code, given)
        known = count and shape is not None and len(shape.sizes) < 3
        if known and 1 < shape.size(-1) < count or _numbered_from_one(code, given):
            yield call


def _assigned_once(code, node):
    """Return True unless a name is a global variable that is assigned several times."""
    if not isinstance(node, ast.Name) or node.id in node.scope.assigned:
        return True
    return len(code.tree.assigned.get(node.id, ())) == 1


def _stored(code, loader, element):
    """Return the tensor of a `TensorDataset` that a loop over its loader yields."""
    built = construction(code, loader)
    if code.called(built) == "data.DataLoader":
        built = construction(code, argument(built, "dataset", 0))
    given = built.args if code.called(built) == "data.TensorDataset" else ()
    return given[element] if element < len(given) else None


def _labels(code, node):
    """Return the largest label plus one of `torch.randint(1, 11, …)` or `torch.tensor([1, 2])`."""
    node = code.resolved(node) if isinstance(node, ast.AST) else None
    while method(node) in ("long", "to") and receiver(node) is not None:
        node = receiver(node)
    if code.called(node) == "torch.randint":
        size = argument(node, "size")
        numbers = [argument(node, "low"), argument(node, "high"), *node.args]
        numbers = [one for one in numbers if one is not None]
        numbers = numbers if size is not None else numbers[:-1]
        high = code.const(numbers[-1]) if numbers else None
        return high if type(high) is int else None
    if code.called(node) in ("torch.tensor", "torch.LongTensor") and node.args:
        values = [const(one) for one in getattr(node.args[0], "elts", ())]
        return max(values) + 1 if values and all(type(v) is int for v in values) else None
    return None


def _counts_from_one(table):
    """Return True for `{"cat": 1, "dog": 2}`, which numbers its keys from 1."""
    names = [const(one) for one in table.keys]
    values = [const(one) for one in table.values]
    named = len(names) > 1 and all(isinstance(one, str) for one in names)
    return named and values == [*range(1, len(values) + 1)]


_LABELS = re.compile(r"(?i)label|class|target|cat|(^|_)y|tag|l2i|c2i|cls")


def _numbered_from_one(code, given):
    """Return whether `{name: i for i, name in enumerate(names, 1)}` numbers `len(names)` labels."""
    tables = [one for one in code.of(ast.DictComp) if from_one(one)]
    tables += [one for one in code.of(ast.Dict) if _counts_from_one(one)]
    if not tables or re.search(r"(?i)- 1\b|background|ignore_index|pad", code.source):
        return False
    layer = last_linear(code, given)
    size = argument(layer, "out_features", 1) if layer is not None else None
    size = code.resolved(size) if size is not None else None
    for one in tables:
        name = text(getattr(one.parent, "targets", [None])[0])
        if isinstance(one, ast.Dict):
            mapped = isinstance(one.parent, ast.Call) and method(one.parent) in ("map", "replace")
            listed = mapped or name and _LABELS.search(name)
            if listed and code.const(size) == len(one.values):
                return True
            continue
        names = one.generators[0].iter.args[0]
        listed = code.resolved(names)
        same = method(size) == "len" and text(size.args[0]) in (name, text(names))
        count = code.const(size)
        same = same or type(count) is int and count == len(getattr(listed, "elts", ()))
        if same and name and _LABELS.search(name):
            return True
    return False
