"""Softmax and masks of attention."""

import ast
import re

from helpers.review.kinds import kind
from helpers.review.registry import rule
from helpers.review.rules.formulas import keeps_true, number, softmax_inputs
from helpers.review.syntax import argument, const, is_inside, method, name_of, names_in, receiver
from helpers.review.tracing import construction


def _products(code, node):
    """Return whether an expression is a product of queries and keys, even scaled and named."""
    for _ in range(6):
        if isinstance(node, ast.Name):
            node = code.value(node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult):
            node = node.left
        else:
            break
    matrix = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
    return matrix or method(node) in ("matmul", "bmm", "einsum", "baddbmm")


_MASKED = re.compile(r"(?i)(^|[._])(\w*mask|tril|causal)$")


@rule("attention-mask-multiplied", "wrong", "mask|tril|causal")
def mask_multiplied(code):
    """`softmax(scores * mask)`: a score of 0 still has a weight."""
    for node in code.nodes_of(ast.BinOp):
        if not isinstance(node.op, ast.Mult) or isinstance(node.parent, ast.BinOp):
            continue
        for scores, mask in ((node.left, node.right), (node.right, node.left)):
            if _MASKED.search(name_of(mask) or "") and _products(code, scores):
                if _is_softmaxed(code, node) and not _filled_later(code, node):
                    yield node


def _filled_later(code, node):
    """Return whether `scores += …` or `scores.masked_fill_(…)` follows the product."""
    name = name_of(node.parent.targets[0]) if isinstance(node.parent, ast.Assign) else None
    changes = [
        statement.target
        for statement in code.nodes_of(ast.AugAssign)
        if statement.scope is node.scope
    ]
    changes += [receiver(call) for call in code.calls if method(call).endswith("_")]
    return any(
        name and name_of(change) == name and change.lineno > node.lineno for change in changes
    )


def _is_softmaxed(code, node):
    parent = node.parent
    if method(parent) == "softmax":
        return True
    name = name_of(parent.targets[0]) if isinstance(parent, ast.Assign) else None
    return name is not None and any(
        code.value(softmax_input) is node
        for softmax_input in softmax_inputs(code, node.scope)
        if name_of(softmax_input) == name
    )


@rule("attention-mask-sign", "wrong", "pad|tril|triu")
def mask_reversed_by_sum(code):
    """`scores + (ids != pad) * -1e9`: the visible positions are masked."""
    for node in code.nodes_of(ast.BinOp):
        if not isinstance(node.op, ast.Mult):
            continue
        parent = node.parent
        if not isinstance(parent, ast.BinOp | ast.AugAssign) or not isinstance(
            parent.op, ast.Add | ast.Sub
        ):
            continue
        for mask, value in ((node.left, node.right), (node.right, node.left)):
            size = number(code, value)
            if size is None or abs(size) < 1000:
                continue
            low = size < 0 if isinstance(parent.op, ast.Add) else size > 0
            if isinstance(parent.op, ast.Sub) and node is getattr(parent, "left", None):
                continue
            if low and _mask_keeps_ones(code, mask) is True:
                yield node


def _mask_keeps_ones(code, node):
    """Return whether 1 in a mask means visible, including `1 - mask`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and const(node.left) == 1:
        inner = _mask_keeps_ones(code, node.right)
        return None if inner is None else not inner
    if isinstance(node, ast.Name) and isinstance(value := code.value(node), ast.AST):
        return _mask_keeps_ones(code, value)
    if method(node) in ("float", "long", "int", "double", "half") and receiver(node) is not None:
        return _mask_keeps_ones(code, receiver(node))
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        if all(isinstance(element, ast.Slice | ast.Constant) for element in node.slice.elts):
            return _mask_keeps_ones(code, node.value)
    return keeps_true(code, node)


def _splits_softmax(code, node):
    """Return True for `w.view(b, n, k)` of `w = softmax(scores.view(b * n, k))`."""
    if method(node) not in ("view", "reshape") or len(getattr(node, "args", ())) < 3:
        return False
    value = code.value(receiver(node)) if isinstance(receiver(node), ast.Name) else None
    operand = value.args[0] if isinstance(value, ast.Call) and value.args else None
    before = code.value(operand) if isinstance(operand, ast.Name) else operand
    same = method(before) in ("view", "reshape") and len(before.args) > 1
    return same and ast.dump(before.args[-1]) == ast.dump(node.args[-1])


def _softmax(code, node):
    """Return the softmax that an expression or its name comes from, and its `dim`."""
    for _ in range(4):
        if isinstance(node, ast.Name):
            node = code.value(node)
        elif re.search(r"(?i)drop", method(node)) and getattr(node, "args", ()):
            node = node.args[0]
        elif _splits_softmax(code, node):
            node = receiver(node)
        else:
            break
    if not isinstance(node, ast.Call):
        return None, None
    name = code.called(node)
    if name in ("F.softmax", "torch.softmax"):
        return node, code.const(argument(node, "dim", 1))
    if not name and method(node) == "softmax" and kind(code, node.func) is None:
        return node, code.const(argument(node, "dim", 0))
    constructor = construction(code, node.func)
    dim = argument(constructor, "dim", 0) if code.called(constructor) == "nn.Softmax" else None
    return node, code.const(dim) if dim is not None else None


_ATTENTION = re.compile(r"(?i)\batt|attn|attention|scores?|energ|weights?|alpha|align")


def _attends(code, weights, call):
    """Return whether a softmax is over a product of queries and keys, or named as attention."""
    first = call.args[0] if call.args else None
    operand = first if first is not None and const(first) is None else receiver(call)
    named = f"{name_of(weights)} {name_of(operand)}"
    return _ATTENTION.search(named) is not None or _products(code, operand)


@rule("attention-softmax-axis", "wrong", "oftmax")
def softmax_over_other_axis(code):
    """`softmax(scores, dim=1)` and `bmm(weights, values)`, which sums over the last axis."""
    calls = set()
    for node in code.nodes_of(ast.Call, ast.BinOp):
        for weights, axis in _contracted(code, node):
            call, dim = _softmax(code, weights)
            if call is None or not isinstance(dim, int) or isinstance(dim, bool):
                continue
            other = dim != axis if (dim < 0) == (axis < 0) else _before_last(code, call, dim, axis)
            if other and call not in calls and _attends(code, weights, call):
                calls.add(call)
                yield call


def _before_last(code, call, dim, axis):
    """Return True if `dim` certainly counts an axis before the last one, and `axis` is -1."""
    first = call.args[0] if call.args and const(call.args[0]) is None else receiver(call)
    return axis == -1 and 0 <= dim < _least_axes(code, first) - 1


def _least_axes(code, node, depth=0):
    """Return the number of axes that a product of queries and keys has at least."""
    if depth > 8 or node is None:
        return 0
    if isinstance(node, ast.Name):
        return _least_axes(code, code.value(node), depth + 1)
    if isinstance(node, ast.BinOp):
        return max(_least_axes(code, side, depth + 1) for side in (node.left, node.right))
    if not isinstance(node, ast.Call):
        return 0
    base = receiver(node) if not code.called(node) else None
    dims = [value for arg in node.args if type(value := const(arg)) is int]
    if method(node) == "transpose" and base is not None and sorted(dims) == [-2, -1]:
        return max(3, _least_axes(code, base, depth + 1))  # a matrix has `base.T`
    if method(node) == "transpose" and base is not None and len(dims) == 2:
        return max(max(dims) + 1, _least_axes(code, base, depth + 1))
    if method(node) == "permute" and base is not None:
        return len(node.args) if len(node.args) > 1 else 0
    if method(node) in ("view", "reshape") and base is not None and len(node.args) > 1:
        return len(node.args)
    if method(node) in ("view", "reshape", "sum", "mean", "squeeze", "flatten"):
        return 0
    if method(node) == "bmm":
        return 3
    parts = node.args if base is None or name_of(base) == "self" else [base, *node.args[:1]]
    return max((_least_axes(code, part, depth + 1) for part in parts), default=0)


def _contracted(code, node):
    """Yield the weights of a weighted sum with the axis that is summed, counted both ways."""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.MatMult):
            yield node.left, -1
        return
    name = code.called(node)
    if name in ("torch.bmm", "torch.matmul") and len(node.args) == 2:
        yield node.args[0], -1
        if name == "torch.bmm":
            yield node.args[0], 2
    elif not name and method(node) in ("bmm", "matmul") and len(node.args) == 1:
        yield receiver(node), -1
        if method(node) == "bmm":
            yield receiver(node), 2
    elif name == "torch.einsum" and len(node.args) == 3:
        yield from _einsum(node)
    else:
        yield from _summed_product(code, node, name)


def _einsum(node):
    """Yield the axis of the first operand that the second has and the result does not."""
    written = const(node.args[0])
    form = re.fullmatch(r"\s*(\w+)\s*,\s*(\w+)\s*->\s*(\w+)\s*", str(written))
    if not form:
        return
    first, second, result = form.groups()
    lost = [n for n, letter in enumerate(first) if letter in second and letter not in result]
    if len(lost) == 1:
        yield node.args[1], lost[0]
        yield node.args[1], lost[0] - len(first)


def _summed_product(code, node, name):
    """Yield the factors of `torch.sum(weights * x, dim=1)`, each with the axis."""
    if method(node) != "sum" or name not in ("", "torch.sum"):
        return
    product = (node.args[0] if node.args else None) if name else receiver(node)
    if isinstance(product, ast.Name):
        product = code.value(product)
    dim = code.const(argument(node, "dim", 1 if name else 0))
    if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
        if isinstance(dim, int) and not isinstance(dim, bool):
            yield product.left, dim
            yield product.right, dim


@rule("attention-target-mask", "wrong", "Transformer")
def decoder_without_mask(code):
    """`nn.Transformer` called with embedded target tokens and without `tgt_mask`."""
    for call in code.calls:
        constructor = construction(code, call.func) if not code.called(call) else None
        name = code.called(constructor) if constructor is not None else ""
        if name not in ("nn.Transformer", "nn.TransformerDecoder") or len(call.args) > 2:
            continue
        alone = r"(?i)step|generat|decode|infer|predict|sampl|greedy|beam|translat"
        if re.search(alone, getattr(code.function_of(call), "name", "")):
            continue  # the last position only is used
        if any(keyword.arg in (None, "tgt_mask", "tgt_is_causal") for keyword in call.keywords):
            continue
        position = 1 if name == "nn.Transformer" else 0
        target = argument(call, "tgt", position)
        if target is not None and _embedded_tokens(code, target, 0):
            yield call


def _embedded_tokens(code, node, depth):
    """Return whether a tensor comes from `nn.Embedding` of target tokens."""
    if depth > 6 or not isinstance(node, ast.AST):
        return False
    if isinstance(node, ast.Name):
        value = code.value(node)
        return (
            isinstance(value, ast.AST)
            and not is_inside(node, value)
            and _embedded_tokens(code, value, depth + 1)
        )
    if isinstance(node, ast.BinOp):
        return any(_embedded_tokens(code, side, depth + 1) for side in (node.left, node.right))
    if not isinstance(node, ast.Call):
        return False
    constructor = construction(code, node.func) if not code.called(node) else None
    if constructor is not None and code.called(constructor) == "nn.Embedding" and node.args:
        names = " ".join(names_in(node.args[0]))
        decodes = re.search("(?i)decod|caption", getattr(node.owner, "name", ""))
        return bool(decodes or re.search(r"(?i)tgt|trg|target|dec|caption|\by\b", names))
    inner = [*node.args[:1], *([receiver(node)] if receiver(node) is not None else [])]
    return any(_embedded_tokens(code, arg, depth + 1) for arg in inner)


@rule("attention-scale", "wrong", "head_dim|dim_head|d_head|head_size|d_k|depth")
def scaled_by_model(code):
    """`softmax(scores / embed_size ** 0.5)` of heads with `embed_size // heads` features."""
    for node in code.classes.values():
        split_width = _split_width(node)
        forward = code.functions.get((node.name, "forward"))
        for call in code.calls_under(forward) if forward is not None and split_width else ():
            if method(call) != "softmax" or not code.called(call) or not call.args:
                continue
            scores = call.args[0]
            scores = code.value(scores) if isinstance(scores, ast.Name) else scores
            root = _root_argument(scores.right) if _is_division(scores) else None
            if root is not None and name_of(root) in split_width:
                yield scores


def _split_width(owner):
    """Return the names of the width that the class divides by the number of heads."""
    names = set()
    for name, values in owner.attributes.items():
        value = values[0].value
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv):
            heads = re.search("head", ast.unparse(value.right))
            if heads and re.search(r"(?i)dim|d_k|d_head|depth|size", name):
                width = name_of(value.left)
                same = [n for n, v in owner.attributes.items() if name_of(v[0].value) == width]
                names |= {width, *same} - {None}
    return names


def _is_division(node):
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)


def _root_argument(node):
    """Return `d` of `d ** 0.5`, `d ** (1 / 2)` and `math.sqrt(d)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return node.left if ast.unparse(node.right) in ("0.5", "1 / 2") else None
    if method(node) == "sqrt" and len(node.args) == 1:
        return node.args[0]
    return None
