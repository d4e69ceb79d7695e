"""The last layer of a model and the loss that receives its output."""

import ast
import re

from helpers.review.axes import axes
from helpers.review.code import Part, parameter
from helpers.review.kinds import is_model, kind, no_graph, returns
from helpers.review.registry import rule
from helpers.review.rules.learning import differentiated
from helpers.review.syntax import FUNCTIONS, above, argument, const, is_open, method, receiver, text
from helpers.review.tracing import (
    construction,
    forward_values,
    is_activation,
    is_loss_call,
    is_named_loss,
    layers,
    loss_calls,
    output,
    replaced_head,
)

_KEEP = {"squeeze", "view", "flatten", "reshape", "float", "to"}


def last_linear(code, node, depth=0):
    """Return the call `nn.Linear(…)` of the layer that an expression comes from, else None."""
    if depth > 8 or isinstance(node, Part) or node is None:
        return None
    if isinstance(node, ast.Name | ast.Attribute):
        return last_linear(code, code.resolved(node) if text(node) else None, depth + 1)
    if isinstance(node, ast.Subscript):  # `output[mask]`
        value = code.resolved(node)
        return last_linear(code, node.value if value is node else value, depth + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):  # `adjacency @ fc(x)`
        return last_linear(code, node.right, depth + 1)
    if not isinstance(node, ast.Call):
        return None
    if method(node) in _KEEP and receiver(node) is not None and not code.called(node):
        return last_linear(code, receiver(node), depth + 1)
    value = code.returned(node)
    return (
        _of_model(code, node.func, depth) if value is None else last_linear(code, value, depth + 1)
    )


def _of_model(code, model, depth):
    head = replaced_head(code, model)
    if head is not None:
        return _of_model(code, head, depth + 1) if depth < 8 else None
    type_name, constructor = kind(code, model) or "", construction(code, model)
    if code.called(model).startswith("nn."):
        type_name, constructor = kind(code, model) or "", model
    if type_name == "module:Linear":
        return constructor
    while type_name == "module:Sequential" and constructor is not None and constructor.args:
        constructor = (layers(code, constructor) or [None])[-1]
        type_name = "module:Sequential" if code.called(constructor) == "nn.Sequential" else ""
        if code.called(constructor) == "nn.Linear":
            return constructor
    for owner in code.bases(type_name.removeprefix("module:")):
        if forward := code.functions.get((owner.name, "forward")):
            values = returns(code, forward)
            return last_linear(code, values[0], depth + 1) if len(values) == 1 else None
    return None


@rule("losses-bce-error", "raises")
def bce_of_logits(code):
    """`binary_cross_entropy(fc(x), t)` without a sigmoid."""
    for call, given in loss_calls(code, "binary_cross_entropy", "BCELoss"):
        if last_linear(code, given) is not None:
            yield call


@rule("losses-negative", "wrong")
def nll_of_logits(code):
    """`nll_loss(fc(x), y)` without `log_softmax`."""
    for call, given in loss_calls(code, "nll_loss", "NLLLoss"):
        if last_linear(code, given) is not None:
            yield call


@rule("losses-one-column", "wrong")
def one_class(code):
    """`cross_entropy` of a single logit is always 0."""
    for call, given in loss_calls(code, "cross_entropy", "CrossEntropyLoss"):
        layer = last_linear(code, given)
        size = argument(layer, "out_features", 1) if layer is not None else _channels(code, given)
        if code.const(size) == 1 and not _squeezed(code, given):
            yield call
    yield from _one_score(code)


def _one_score(code):
    """`softmax(self.score(x), dim=-1)` of a layer with one unit: every weight is 1."""
    for call in code.calls:
        if code.called(call) not in ("F.softmax", "torch.softmax") or not call.args:
            continue
        scored = code.resolved(call.args[0]) if text(call.args[0]) else call.args[0]
        layer = construction(code, scored.func) if isinstance(scored, ast.Call) else None
        if code.called(layer) == "nn.Sequential":
            layer = (layers(code, layer) or [None])[-1]
        one = code.called(layer) == "nn.Linear" and argument(layer, "out_features", 1)
        if not one or code.const(one) != 1 or not scored.args:
            continue
        dim = const(argument(call, "dim", 1))
        if dim == -1 or dim == 1 and _is_matrix(code, scored.args[0]):
            yield call


def _is_matrix(code, node):
    """Return whether a tensor has two axes, as `torch.cat((x.view(-1, n), y), 1)`."""
    if code.called(node) in ("torch.cat", "torch.concat") and node.args:
        parts = getattr(node.args[0], "elts", ())
        return any(_is_matrix(code, one) for one in parts)
    value = code.value(node) if isinstance(node, ast.Name) else node
    flat = method(value) in ("view", "reshape") and len(value.args) == 2
    return flat and not code.called(value) or axes(code, node) == 2


def _channels(code, given):
    """Return the number of channels of the last convolution of a local model."""
    value = code.resolved(given)
    values = forward_values(code, value.func) if isinstance(value, ast.Call) else []
    final = values[0] if len(values) == 1 else None
    built = construction(code, final.func) if isinstance(final, ast.Call) else None
    if code.called(built) == "nn.Sequential":
        built = (layers(code, built) or [None])[-1]
    convolution = re.match(r"nn\.Conv(Transpose)?[23]d$", code.called(built))
    return argument(built, "out_channels", 1) if convolution else None


def _squeezed(code, node, depth=0):
    """Return whether the axis of the one unit is removed, so another axis has the classes."""
    node = code.resolved(node) if isinstance(node, ast.AST) else None
    if not isinstance(node, ast.Call) or depth > 4:
        return False
    if method(node) in ("squeeze", "view", "reshape", "flatten"):
        return True
    return any(_squeezed(code, one, depth + 1) for one in forward_values(code, node.func))


@rule("losses-squashed", "wrong")
def squashed_logits(code):
    """`cross_entropy(fc(x).relu(), y)` or with a sigmoid: it limits the range of the logits."""
    for call, given in loss_calls(code, "cross_entropy", "CrossEntropyLoss"):
        if is_activation(code, given, {"relu", "sigmoid", "tanh"}):
            yield call
    for call in code.calls:
        if code.called(call) in ("F.log_softmax", "torch.log_softmax"):
            given = _squashed(code, argument(call, "input", 0))
            if given is not None and last_linear(code, given) is not None:
                yield call
        elif code.called(call) == "nn.Sequential":
            names = [code.called(one).removeprefix("nn.") for one in layers(code, call)]
            pairs = zip(names, names[1:], names[2:], strict=False)
            if any(one[0] == "Linear" and one[1:] in _LIMITED for one in pairs):
                yield call


_LIMITED = {("ReLU", "Softmax")} | {(n, "LogSoftmax") for n in ("ReLU", "Sigmoid", "Tanh")}


def _squashed(code, node):
    """Return `x` of `F.relu(x)` or `x.sigmoid()`, even through a name."""
    value = code.value(node) if isinstance(node, ast.Name) else node
    if not isinstance(value, ast.Call) or method(value) not in ("relu", "sigmoid", "tanh"):
        return None
    if code.called(value):
        return value.args[0] if value.args else None
    return receiver(value) if kind(code, value.func) is None else None


@rule("losses-thresholded", "raises")
def thresholded(code):
    """A loss of `(out > 0.5).float()` or of `out.round()`, which have no gradient."""
    yield from _thresholded_inside(code)
    for call in code.calls:
        is_loss = kind(code, call) == "loss" and method(call) not in ("mean", "sum")
        if not is_loss and not is_named_loss(code, call):
            continue
        node = argument(call, "input", 0)
        for _ in range(4):
            if isinstance(node, ast.Name):
                node = code.value(node)
            elif isinstance(node, ast.Call) and method(node) in _KEEP and receiver(node):
                node = receiver(node)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Gt | ast.GtE):
            if call.scope.backward & _assigned_to(call):
                yield call


def _thresholded_inside(code):
    """`pred = (pred > 0.5).float()` in the function of a loss, which uses only the result."""
    for node in code.of(ast.Assign):
        scope, name = node.scope, text(node.targets[0])
        if not isinstance(scope, FUNCTIONS) or not name or not _is_loss_function(code, scope):
            continue
        value = node.value
        while method(value) in _KEEP and receiver(value) is not None:
            value = receiver(value)
        given = _thresholded(code, value)
        names = [one.arg for one in scope.args.args if one.arg != "self"]
        if given is None or names[:1] != [given] or any(above(node, ast.If, ast.With)):
            continue
        if given == name or len(code.uses(scope, given)) == 1:
            yield node


def _thresholded(code, value):
    """Return `x` of `x > 0.5` and of `x.argmax(1)`."""
    if isinstance(value, ast.Compare) and isinstance(value.ops[0], ast.Gt | ast.GtE):
        return text(value.left) if const(value.comparators[0]) is not None else None
    if method(value) != "argmax":
        return None
    return text(value.args[0] if code.called(value) and value.args else receiver(value))


def _is_loss_function(code, scope):
    """Return whether a function is a loss by its name, and something is differentiated."""
    owner = scope.owner.name if scope.owner is not None else ""
    name = owner if scope.name == "forward" else scope.name
    return bool(re.search(r"(?i)loss", name)) and "backward(" in code.source


def _assigned_to(call):
    targets = getattr(call.parent, "targets", ())
    return {one.id for one in targets if isinstance(one, ast.Name)}


@rule("losses-mask-reduced", "wrong")
def mask_after_mean(code):
    """`cross_entropy(logits, y) * mask`: the mean is taken before the mask."""
    yield from _focused_mean(code)
    for node in code.of(ast.BinOp):
        if not isinstance(node.op, ast.Mult):
            continue
        for loss, other in ((node.left, node.right), (node.right, node.left)):
            if re.search(
                r"(?i)(^|_)(mask|one_?hots?)$", getattr(other, "id", getattr(other, "attr", ""))
            ) or _of_samples(code, other):
                value = code.resolved(loss)
                value = value.right if isinstance(value, ast.BinOp) else value
                if isinstance(value, ast.Call) and (
                    _reduces(code, value) or _whole_sum(code, loss, value)
                ):
                    yield node


def _focused_mean(code):
    """`(1 - exp(-ce)) ** gamma * ce` of a mean: the factor of a focal loss, once for the batch."""
    for node in code.of(ast.BinOp):
        base = node.left if isinstance(node.op, ast.Pow) else None
        if not isinstance(base, ast.BinOp) or not isinstance(base.op, ast.Sub):
            continue
        chance = code.value(base.right) if text(base.right) else base.right
        if const(base.left) != 1 or method(chance) != "exp":
            continue
        power = chance.args[0] if code.called(chance) and chance.args else receiver(chance)
        if isinstance(power, ast.Name):
            power = code.value(power)
        if not isinstance(power, ast.UnaryOp) or not isinstance(power.op, ast.USub):
            continue
        loss = code.resolved(power.operand)
        if isinstance(loss, ast.Call) and _reduces(code, loss):
            yield node


def _whole_sum(code, node, value):
    """Return True for `torch.sum(1 + log_var - …)` without `dim`, even times a factor."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        node = node.right
    value = node if isinstance(node, ast.Call) else value
    named = code.called(value) in ("torch.sum", "torch.mean")
    return named and len(value.args) == 1 and not value.keywords


def _of_samples(code, node):
    """Return True for `keep = (a != b).float()`, which has one number per sample."""
    value = code.value(node) if isinstance(node, ast.Name) else None
    while method(value) in ("float", "to", "detach", "type", "cuda", "long", "double"):
        value = receiver(value)
    value = value.left if isinstance(getattr(value, "op", None), ast.BitOr | ast.BitAnd) else value
    value = code.resolved(value) if isinstance(value, ast.Name) else value
    if not isinstance(value, ast.Compare) or len(value.ops) != 1:
        return False
    sides = [code.value(one) for one in (value.left, value.comparators[0])]
    return any(
        isinstance(one, Part)
        and one.index == 1
        and method(one.value) in ("max", "topk")
        or method(one) == "argmax"
        for one in sides
    )


def _reduces(code, call):
    """Return True for a loss with its default reduction."""
    constructor = call if code.called(call) else construction(code, call.func)
    if (
        constructor is None
        or kind(code, call) != "loss"
        or not re.match(r"F\.|nn\.\w+Loss", code.called(constructor))
    ):
        return False
    if is_open(constructor):
        return False
    old = argument(constructor, "reduce") or argument(constructor, "size_average")
    given = argument(constructor, "reduction")
    if old is not None:
        return False
    return given is None or code.const(given) == "mean" or _mean_by_default(code, given)


def _mean_by_default(code, node):
    """Return True for `self.reduction` of `__init__(self, reduction="mean")` without a call."""
    name = text(node) or ""
    made = node.owner and code.functions.get((node.owner.name, "__init__"))
    if not name.startswith("self.") or not made or code.callers.get(made):
        return False
    given = [*zip(made.args.args[::-1], made.args.defaults[::-1], strict=False)]
    return any(one.arg == name[5:] and const(default) == "mean" for one, default in given)


@rule("losses-output-range", "wrong", "Normalize")
def output_of_other_range(code):
    """A decoder that ends in a sigmoid, and `mse_loss(recon, images)` of normalized images."""
    parts = [
        {code.called(one): one for one in getattr(call.args[0], "elts", ())}
        for call in code.calls
        if code.called(call) == "transforms.Compose" and call.args
    ]
    images = [one.get("transforms.Normalize") for one in parts if "transforms.ToTensor" in one]
    if (
        not images
        or not all(map(_subtracts, images))
        or re.search(r"(?i)denorm|unnorm|inv_?norm", code.source)
    ):
        return
    for name, module in (("mse_loss", "MSELoss"), ("l1_loss", "L1Loss")):
        for call, given in loss_calls(code, name, module):
            target = argument(call, "target", 1)
            output = code.resolved(given)
            output = output.value if isinstance(output, Part) else output
            same = isinstance(output, ast.Call) and text(target) in map(text, output.args)
            if same and is_activation(code, given, {"sigmoid", "relu"}):
                yield call


def _subtracts(normalize):
    """Return whether `Normalize` has a mean other than 0."""
    mean = argument(normalize, "mean", 0) if normalize is not None else None
    return mean is not None and any(const(one) != 0 for one in getattr(mean, "elts", [mean]))


@rule("losses-ctc-logits", "wrong", "ctc_loss|CTCLoss")
def ctc_of_logits(code):
    """`ctc_loss(fc(x).permute(1, 0, 2), …)` without `log_softmax`."""
    for call in code.calls:
        name = code.called(call)
        if name != "F.ctc_loss" if name else kind(code, call.func) != "lossfn:CTCLoss":
            continue
        given = argument(call, "log_probs", 0)
        for one in _passed_on(code, given):
            for _ in range(6):
                one = (output(code, code.value(one)) if text(one) else None) or code.resolved(one)
                if method(one) in ("permute", "transpose", "contiguous") and receiver(one):
                    one = receiver(one)
            if one is not None and last_linear(code, one) is not None:
                yield call
                break


def _passed_on(code, node):
    """Return the argument that the callers pass for a parameter, else the node."""
    scope = getattr(node, "scope", None)
    own = isinstance(node, ast.Name) and isinstance(scope, FUNCTIONS) and parameter(scope, node.id)
    passed = code.arguments(scope, node.id) if own and node.id not in scope.assigned else []
    return passed or [node]


@rule("losses-rounded", "wrong", "round(|floor(|ceil(|sign(")
def loss_of_rounded(code):
    """`criterion(torch.round(model(x)), y)`: the gradient of `round` is 0."""
    for call in code.calls:
        if is_loss_call(code, call) and call.args and not no_graph(code, call):
            if is_activation(code, call.args[0], {"round", "floor", "ceil", "sign"}):
                at_once = getattr(call.parent, "attr", "") == "backward"
                if (at_once or differentiated(code, call, 0)) and not _other_round(code, call):
                    yield call


def _other_round(code, call):
    """Return whether the rounded value is the target, or the rounding is not of PyTorch."""
    given = code.resolved(call.args[0])
    if re.match(r"(?i)(\w+\.)?\w+\(?(y|labels?|targets?|gt)\b", ast.unparse(call.args[0])):
        return True
    other = code.resolved(call.args[1]) if len(call.args) > 1 else None
    if isinstance(other, ast.Call) and is_model(code, other.func):
        return True
    rounds = method(given) in ("round", "floor", "ceil", "sign")
    return rounds and not code.called(given) and bool(given.args)
