"""Targets of language models that are not shifted by one position."""

import ast
import re

from helpers.review.code import Part
from helpers.review.kinds import is_model, kind
from helpers.review.registry import rule
from helpers.review.rules.learning import differentiated
from helpers.review.syntax import ancestors, const, method, name_of, receiver
from helpers.review.tracing import construction


@rule("language-garbage", "wrong")
def not_shifted(code):
    """`cross_entropy(model(ids).flatten(0, 1), ids.flatten())` with a causal mask: not shifted."""
    yield from _window_with_target(code)
    yield from _same_twice(code)
    masked = re.search(r"is_causal|torch\.(triu|tril)\(|square_subsequent_mask", code.source)
    for call in code.calls:
        known = code.called(call) == "F.cross_entropy"
        if len(call.args) < 2 or not known and kind(code, call.func) != "lossfn:CrossEntropyLoss":
            continue
        prediction, target = unshaped(code, call.args[0]), unshaped(None, call.args[1])
        if _is_decoder_input(code, prediction, target) or _masked_decoder(code, prediction, target):
            yield call
            continue
        prediction = _model_call(code, prediction)
        if isinstance(prediction, ast.Call) and is_model(code, prediction.func) and prediction.args:
            recurrent = _predicts_next(code, prediction.func)
            source = unshaped(None, prediction.args[0])
            same = isinstance(source, ast.Name) and name_of(source) == name_of(target)
            plain = same and len(prediction.args) <= 1 + recurrent and not prediction.keywords
            if (
                not plain
                or not masked
                and not recurrent
                or _target_is_renewed(code, prediction, target)
            ):
                continue
            if isinstance(call.parent, ast.Return) or differentiated(code, call, 0):
                yield call


def _model_call(code, node):
    """Return the call `model(x, state)` of `logits, state = model(x, state)`."""
    value = code.value(node) if isinstance(node, ast.Name) else None
    return value.value if isinstance(value, Part) and value.index == 0 else node


def _target_is_renewed(code, call, target):
    """Return whether the target has another value than at the call of the model."""
    source = unshaped(None, call.args[0])
    values = [code.value(name) for name in (source, target)]
    if values[0] is values[1]:
        return False
    return not (isinstance(values[1], ast.Call) and unshaped(None, values[1]) is not values[1])


def _predicts_next(code, model):
    """Return whether a local model is an embedding and one recurrent layer of one direction."""
    name = (kind(code, model) or "").removeprefix("module:")
    source = code.source_of(code.classes[name]) if name in code.classes else ""
    layers = re.findall(r"nn\.(?:LSTM|GRU|RNN)\(", source)
    other = re.search(r"(?i)bidirectional|encoder|decoder|\[:, ?:?-1|roll\(|shift", source)
    return len(layers) == 1 and "nn.Embedding(" in source and not other


def _masked_decoder(code, prediction, target):
    """Return whether an unknown model gets the target and its mask: `model(src, tgt, tgt_mask)`."""
    prediction = _model_call(code, prediction)
    if (
        not isinstance(prediction, ast.Call)
        or not is_model(code, prediction.func)
        or len(prediction.args) < 2
    ):
        return False
    if (kind(code, prediction.func) or "").removeprefix("module:") in code.classes:
        return False
    written = " ".join(
        map(ast.unparse, (*prediction.args, *(keyword.value for keyword in prediction.keywords)))
    )
    if not re.search(r"(?i)\b(tgt|trg|target|dec)\w*_mask|causal", written):
        return False
    same = isinstance(target, ast.Name) and name_of(prediction.args[1]) == target.id
    return same and not _target_is_renewed(
        code, ast.Call(prediction.func, [prediction.args[1]], []), target
    )


def _same_twice(code):
    """`model(x, x)` of a causal model whose `forward(idx, targets)` does not shift the targets."""
    if not re.search(r"is_causal|torch\.(triu|tril)\(|square_subsequent_mask", code.source):
        return
    for call in code.calls:
        name = (kind(code, call.func) or "").removeprefix("module:")
        forward = code.functions.get((name, "forward"))
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        if forward is None or len(arguments) != 2 or not name_of(arguments[0]):
            continue
        names = [parameter.arg for parameter in forward.args.args[1:3]]
        if name_of(arguments[0]) != name_of(arguments[1]) or len(names) < 2:
            continue
        if re.search(r"target|label|^y$|tgt", names[1]) and not _slices_positions(code, forward):
            yield call


def _slices_positions(code, forward):
    """Return whether a slice in `forward` leaves out the first or the last position."""
    body = code.source_of(forward)
    return re.search(r"\[[^\]]*(1:|:-1)|roll\(|shift", body) or "cross_entropy" not in body.lower()


def _window_with_target(code):
    """`x = data[i : i + n]` and `y = data[i + n - 1]`: the target is the last row of the input."""
    windows = {}
    for node in code.nodes_of(ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        first = parts[0] if parts else None
        loop = next(ancestors(node, ast.For, ast.ListComp), None)
        if loop is None or first is None or not isinstance(node.ctx, ast.Load):
            continue
        key = loop, name_of(node.value) or ast.unparse(node.value)
        if isinstance(first, ast.Slice):
            rest = node.slice.elts[1:] if isinstance(node.slice, ast.Tuple) else []
            takes_all = all(
                isinstance(element, ast.Slice) and element.upper is element.lower is None
                for element in rest
            )
            if (
                takes_all
                and first.upper is not None
                and first.lower is not None
                and first.step is None
            ):
                windows.setdefault(key, set()).add(_linear_form(code, first.upper))
        elif _linear_form(code, first, 1) in windows.get(key, ()) and _is_target(node):
            yield node


def _is_target(node):
    """Return whether an item is assigned to a name of a target, or appended to such a list."""
    parent = node.parent
    name = name_of(parent.targets[0]) if isinstance(parent, ast.Assign) else None
    name = name_of(receiver(parent)) if method(parent) == "append" else name
    return bool(re.search(r"(?i)(^|_)(y|ys|target|label|train_label)s?(_|$)", name or ""))


def _linear_form(code, node, plus=0):
    """Return a sum of names and numbers in a form that does not depend on their order."""
    number, names = plus, []
    stack = [(node, 1)]
    while stack:
        term, sign = stack.pop()
        value = code.value(term) if isinstance(term, ast.Name) else None
        if isinstance(term, ast.BinOp) and isinstance(term.op, ast.Add | ast.Sub):
            other = -sign if isinstance(term.op, ast.Sub) else sign
            stack += [(term.left, sign), (term.right, other)]
        elif type(const(term)) is int:
            number += sign * const(term)
        elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub):
            stack.append((value, sign))
        else:
            names.append(f"{sign}{ast.unparse(term)}")
    return number, *sorted(names)


_SHIFTS = re.compile(r"\bcat\(|roll|shift|\bfor\b|sos|bos|start|new_|zeros")


def _is_decoder_input(code, prediction, target):
    """Return whether the whole target is the input of a decoder: `decoder(y, h)` and `y`."""
    value = code.value(prediction) if isinstance(prediction, ast.Name) else prediction
    call = value.value if isinstance(value, Part) and value.index == 0 else value
    name = (kind(code, getattr(call, "func", None)) or "").removeprefix("module:")
    forward = code.functions.get((name, "forward"))
    if not isinstance(call, ast.Call) or forward is None or not isinstance(target, ast.Name):
        return False
    places = [n for n, arg in enumerate(call.args) if name_of(arg) == target.id]
    names = [parameter.arg for parameter in forward.args.args[1:]]
    if len(call.args) < 2 or len(places) != 1 or places[0] >= len(names):
        return False
    source = code.source_of(code.classes[name]) if name in code.classes else ""
    layer = re.search(r"nn\.(Transformer|TransformerDecoder|GRU|LSTM|RNN)\(", source)
    if not layer or _SHIFTS.search(code.source_of(forward)) or "bidirectional=True" in source:
        return False
    reads = [
        use for use in code.uses(forward, names[places[0]]) if isinstance(use.parent, ast.Call)
    ]
    sliced = any(
        isinstance(use.parent, ast.Subscript) for use in code.uses(forward, names[places[0]])
    )
    embedded = [
        code.called(construction(code, read.parent.func)) == "nn.Embedding" for read in reads
    ]
    return any(embedded) and not sliced


def unshaped(code, node):
    """Return `x` of `x.view(-1)`, `x.transpose(1, 2)` and the like; with `code` through names."""
    for _ in range(6):
        if method(node) in ("view", "reshape", "flatten", "transpose", "permute", "contiguous"):
            node = receiver(node)
        elif (
            code and isinstance(node, ast.Name) and isinstance(value := code.value(node), ast.Call)
        ):
            shaped = method(value) in ("view", "reshape", "flatten", "transpose", "permute")
            if not shaped and not is_model(code, value.func):
                break
            node = value
        else:
            break
    return node
