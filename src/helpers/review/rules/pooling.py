"""Representations of whole sequences: means over padding, last outputs of two directions."""

import ast
import re

from helpers.review.code import Part
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    ancestors,
    argument,
    const,
    is_open,
    method,
    name_of,
    receiver,
)
from helpers.review.tracing import construction

_RECURRENT = {"nn.LSTM": 4, "nn.GRU": 4, "nn.RNN": 5}


@rule("sequences-two-last", "wrong", "bidirectional")
def last_of_both_directions(code):
    """`out[:, -1]` of a bidirectional layer: the backward direction has read one step there."""
    for node in code.nodes_of(ast.Subscript):
        value = code.value(node.value) if isinstance(node.value, ast.Name) else None
        if not isinstance(value, Part) or value.index != 0 or code.called(value.value):
            continue
        if not isinstance(value.value, ast.Call) or not isinstance(node.ctx, ast.Load):
            continue
        constructor = construction(code, value.value.func)
        if code.called(constructor) not in _RECURRENT or is_open(constructor):
            continue
        first = code.const(
            argument(constructor, "batch_first", _RECURRENT[code.called(constructor)])
        )
        both = code.const(argument(constructor, "bidirectional"))
        if both is True and _last_step(node.slice, first is True) and _is_output(node.value):
            yield node


def _is_output(name):
    """Return whether a name is the first target of each `out, state = lstm(x)` that assigns it."""
    statements = [assignment.statement for assignment in name.scope.assigned.get(name.id, ())]
    pairs = [
        assignment.targets[0] for assignment in statements if isinstance(assignment, ast.Assign)
    ]
    pairs = [pair for pair in pairs if isinstance(pair, ast.Tuple)]
    return bool(pairs) and all(name_of(pair.elts[0]) == name.id for pair in pairs)


def _last_step(index, batch_first):
    """Return whether an index selects all features of the last step."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    expected = [":", "-1"] if batch_first else ["-1"]
    written = [ast.unparse(part) for part in parts]
    return written[: len(expected)] == expected and all(
        word in (":", "...") for word in written[len(expected) :]
    )


@rule("sequences-mean-padding", "wrong", "mean(")
def mean_over_padding(code):
    """`embedded.mean(1)` of a padded batch: the mean includes the padding."""
    for call in code.calls if _PADDED.search(code.source) else ():
        pooled, function = _mean_of_steps(code, call), code.function_of(call)
        compared = any(ancestors(call, ast.Assert, ast.Compare))
        if pooled is None or compared or not _of_padded(code, pooled, 0):
            continue
        if not isinstance(function, FUNCTIONS) or not _uses_mask(code, function):
            yield call


_PADDED = re.compile(r"Embedding\(|key_padding_mask|last_hidden_state")


def _uses_mask(code, function):
    """Return whether a function multiplies by a mask, or divides by a number of tokens."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult | ast.Div)
        and re.search(r"(?i)mask|len|count|denom|pad", ast.unparse(node))
        for node in code.walk(function)
    )


def _mean_of_steps(code, call):
    """Return `x` of `x.mean(1)` and `torch.mean(x, dim=1)`."""
    torch = code.called(call) == "torch.mean"
    if method(call) != "mean" or code.called(call) and not torch:
        return None
    operand = (call.args[0] if call.args else None) if torch else receiver(call)
    return operand if const(argument(call, "dim", int(torch))) in (1, -2) else None


_KEEP = ("dropout", "relu", "tanh", "gelu", "float", "to", "contiguous")
_KEEPERS = ("nn.Dropout", "nn.ReLU", "nn.Tanh", "nn.GELU", "nn.LayerNorm", "nn.Identity")


def _of_padded(code, node, depth):
    """Return whether a tensor has one row per token of a padded batch."""
    if depth > 6 or node is None:
        return False
    if isinstance(node, Part):
        return node.index == 0 and _of_padded(code, node.value, depth + 1)
    if isinstance(node, ast.Attribute) and node.attr == "last_hidden_state":
        return _padded_texts(code)
    if isinstance(node, ast.Name):
        return _of_padded(code, code.value(node), depth + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return any(_of_padded(code, side, depth + 1) for side in (node.left, node.right))
    return isinstance(node, ast.Call) and _padded_call(code, node, depth)


def _padded_call(code, call, depth):
    masks = [k.value for k in call.keywords if (k.arg or "").endswith("key_padding_mask")]
    if masks:
        return not isinstance(masks[0], ast.Constant)
    constructor = construction(code, call.func) if not code.called(call) else None
    name = code.called(constructor) if constructor is not None else code.called(call)
    if name == "nn.Embedding":
        return argument(constructor, "padding_idx", 2) is not None
    if name in _KEEPERS or name.startswith("F.") and method(call) in _KEEP:
        return bool(call.args) and _of_padded(code, call.args[0], depth + 1)
    kept = not name and method(call) in _KEEP and name_of(receiver(call)) != "self"
    return kept and _of_padded(code, receiver(call), depth + 1)


def _padded_texts(code):
    """Return whether the file tokenizes several texts with padding."""
    for call in code.calls:
        padding = const(argument(call, "padding"))
        several = call.args and re.search(r"s$|s\[|batch|list|\[", ast.unparse(call.args[0]))
        if padding == "max_length" or padding in (True, "longest") and several:
            return True
    return False
