"""Attention masks: the diagonal of a causal mask, the padding of the other sequence."""

import ast
import re

from helpers.review.registry import rule
from helpers.review.syntax import argument, const, method, name_of, receiver
from helpers.review.tracing import construction

_CONVERTED = ("bool", "to", "cuda", "type", "byte", "unsqueeze", "expand", "repeat", "view")


@rule("attention-mask-diagonal", "wrong", "triu(")
def diagonal_masked(code):
    """`masked_fill(torch.triu(torch.ones(n, n)).bool(), -inf)`: a position cannot see itself."""
    for call in code.calls:
        name = code.called(call)
        if method(call) in ("masked_fill", "masked_fill_") and call.args:
            mask = argument(call, "mask", int(bool(name)))
            if mask is not None and _is_infinite(code, call.args[-1]):
                if (diagonal := _from_diagonal(code, mask, 0)) is not None:
                    yield diagonal
        elif not name and _attends(code, call):
            for keyword in call.keywords:
                if keyword.arg in ("attn_mask", "tgt_mask", "src_mask", "mask"):
                    if (
                        diagonal := _from_diagonal(code, keyword.value, 0, additive=True)
                    ) is not None:
                        yield diagonal


def _attends(code, call):
    name = code.called(construction(code, call.func))
    return name.startswith("nn.Transformer") or name == "nn.MultiheadAttention"


def _is_infinite(code, node):
    """Return whether a value is -inf, or a large negative number."""
    number = code.const(node)
    if isinstance(number, int | float):
        return number < -1000
    return bool(re.search(r"-.*(inf|finfo|1e\+?\d)|finfo\(.*\)\.min", ast.unparse(node)))


def _from_diagonal(code, node, depth, additive=False):
    """Return the call `torch.triu(x)` whose diagonal is True in a mask, None for other masks."""
    if depth > 8 or not isinstance(node, ast.AST):
        return None
    if isinstance(node, ast.Name | ast.Attribute):
        value = code.value(node)
        return _from_diagonal(code, value, depth + 1, additive) if value is not None else None
    if isinstance(node, ast.Subscript):
        return _from_diagonal(code, node.value, depth + 1, additive)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.Add):
        diagonals = (
            _from_diagonal(code, side, depth + 1, additive) for side in (node.left, node.right)
        )
        return next((diagonal for diagonal in diagonals if diagonal is not None), None)
    if isinstance(node, ast.Compare):
        number, how = const(node.comparators[0]), node.ops[0]
        true = number == 1 and isinstance(how, ast.Eq)
        true |= number == 0 and isinstance(how, ast.NotEq | ast.Gt)
        return _from_diagonal(code, node.left, depth + 1) if true else None
    return _from_call(code, node, depth, additive) if isinstance(node, ast.Call) else None


def _from_call(code, call, depth, additive):
    name = code.called(call)
    if method(call) in ("triu", "triu_"):
        inner = call.args[0] if name and call.args else receiver(call)
        offset = argument(call, "diagonal", 1 if name else 0)
        filled = bool(re.search(r"full\(.*-|\* ?-|-.*\*", ast.unparse(inner)))
        boolean = bool(re.search(r"ones|True", ast.unparse(inner))) and not filled
        start = 0 if offset is None else code.const(offset)
        fits = boolean if not additive else filled and "ones" not in ast.unparse(inner)
        fits |= additive and boolean and _converted(call)
        return call if start == 0 and fits else None
    if name or method(call) not in _CONVERTED:
        value = code.returned(call)
        return _from_diagonal(code, value, depth + 1, additive) if value is not None else None
    if receiver(call) is None or any("float" in ast.unparse(arg) for arg in call.args):
        return None
    return _from_diagonal(code, receiver(call), depth + 1, additive)


def _converted(call):
    """Return whether a mask is boolean: `triu(…).bool()`, `triu(…) == 1`, of `dtype=torch.bool`."""
    ancestor = call.parent
    while isinstance(ancestor, ast.Attribute | ast.Call) and ancestor.parent is not None:
        if isinstance(ancestor, ast.Attribute) and ancestor.attr == "bool":
            return True
        ancestor = ancestor.parent
    return isinstance(ancestor, ast.Compare) or "torch.bool" in ast.unparse(call)


@rule("attention-mask-source", "wrong", "key_padding_mask")
def padding_of_other_sequence(code):
    """`tgt_key_padding_mask=mask` and `memory_key_padding_mask=mask`: two sequences, one mask."""
    for call in code.calls:
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        target = keywords.get("tgt_key_padding_mask")
        source = keywords.get("memory_key_padding_mask", keywords.get("src_key_padding_mask"))
        if target is None or source is None or const(source) is not None:
            continue
        same = name_of(source) is not None and name_of(source) == name_of(target)
        inputs = [ast.unparse(arg) for arg in call.args[:2]]
        inputs += [ast.unparse(keywords[k]) for k in ("src", "tgt", "memory") if k in keywords]
        if same and len(inputs) == len({*inputs}) == 2:
            yield target


@rule("language-attention-mask", "wrong", "padding=")
def padding_attended(code):
    """`model(batch["input_ids"])` of texts that a tokenizer padded: no attention mask."""
    for call in code.calls:
        input_ids = argument(call, "input_ids", 0)
        ids = _plain_ids(code.value(input_ids) if isinstance(input_ids, ast.Name) else input_ids)
        if ids is None or len(call.args) + len(call.keywords) != 1 or code.called(call):
            continue
        tokens = code.resolved(ids.value) if name_of(ids.value) else None
        if _is_pretrained(code.resolved(call.func)) and _pads_several(tokens):
            yield call


def _is_pretrained(node):
    """Return True for `X.from_pretrained(name)`, also with `.to(device)` and `.eval()`."""
    while method(node) in ("to", "cuda", "eval", "half") and receiver(node) is not None:
        node = receiver(node)
    return method(node) == "from_pretrained"


def _plain_ids(node):
    """Return `batch["input_ids"]` and `batch.input_ids`, also moved or sliced."""
    for _ in range(4):
        if method(node) in ("to", "cuda") and receiver(node) is not None:
            node = receiver(node)
        elif isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            node = node.value
        else:
            break
    if isinstance(node, ast.Attribute):
        return node if node.attr == "input_ids" else None
    named = isinstance(node, ast.Subscript) and const(node.slice) == "input_ids"
    return node if named else None


def _pads_several(call):
    """Return whether a tokenizer pads several texts to one length."""
    while method(call) == "to" and receiver(call) is not None:
        call = receiver(call)
    if not isinstance(call, ast.Call) or not re.search(r"(?i)tok", name_of(call.func) or ""):
        return False
    padding = const(argument(call, "padding"))
    single = not call.args or isinstance(call.args[0], ast.Constant | ast.JoinedStr)
    return padding == "max_length" or padding in (True, "longest") and not single
