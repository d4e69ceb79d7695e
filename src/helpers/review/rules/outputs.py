"""The last layer of a model and the loss that receives its output."""

import ast
import re

from helpers.review.axes import axes
from helpers.review.code import Part, has_parameter
from helpers.review.kinds import is_model, kind, no_graph
from helpers.review.registry import rule
from helpers.review.rules.learning import differentiated
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
        return last_linear(code, code.resolved(node) if name_of(node) else None, depth + 1)
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
            values = code.return_values(forward)
            return last_linear(code, values[0], depth + 1) if len(values) == 1 else None
    return None


@rule("losses-bce-error", "raises")
def bce_of_logits(code):
    """`binary_cross_entropy(fc(x), t)` without a sigmoid."""
    for call, prediction in loss_calls(code, "binary_cross_entropy", "BCELoss"):
        if last_linear(code, prediction) is not None:
            yield call


@rule("losses-negative", "wrong")
def nll_of_logits(code):
    """`nll_loss(fc(x), y)` without `log_softmax`."""
    for call, prediction in loss_calls(code, "nll_loss", "NLLLoss"):
        if last_linear(code, prediction) is not None:
            yield call


@rule("losses-one-column", "wrong")
def one_class(code):
    """`cross_entropy` of a single logit is always 0."""
    for call, prediction in loss_calls(code, "cross_entropy", "CrossEntropyLoss"):
        layer = last_linear(code, prediction)
        size = (
            argument(layer, "out_features", 1) if layer is not None else _channels(code, prediction)
        )
        if code.const(size) == 1 and not _squeezed(code, prediction):
            yield call
    yield from _one_score(code)


def _one_score(code):
    """`softmax(self.score(x), dim=-1)` of a layer with one unit: every weight is 1."""
    for call in code.calls_to("F.softmax", "torch.softmax"):
        if not call.args:
            continue
        scored = code.resolved(call.args[0]) if name_of(call.args[0]) else call.args[0]
        layer = construction(code, scored.func) if isinstance(scored, ast.Call) else None
        if code.called(layer) == "nn.Sequential":
            layer = (layers(code, layer) or [None])[-1]
        out_features = code.called(layer) == "nn.Linear" and argument(layer, "out_features", 1)
        if not out_features or code.const(out_features) != 1 or not scored.args:
            continue
        dim = const(argument(call, "dim", 1))
        if dim == -1 or dim == 1 and _is_matrix(code, scored.args[0]):
            yield call


def _is_matrix(code, node):
    """Return whether a tensor has two axes, such as `torch.cat((x.view(-1, n), y), 1)`."""
    if code.called(node) in ("torch.cat", "torch.concat") and node.args:
        parts = getattr(node.args[0], "elts", ())
        return any(_is_matrix(code, part) for part in parts)
    value = code.value(node) if isinstance(node, ast.Name) else node
    flat = method(value) in ("view", "reshape") and len(value.args) == 2
    return flat and not code.called(value) or axes(code, node) == 2


def _channels(code, logits):
    """Return the number of channels of the last convolution of a local model."""
    value = code.resolved(logits)
    values = forward_values(code, value.func) if isinstance(value, ast.Call) else []
    final = values[0] if len(values) == 1 else None
    constructor = construction(code, final.func) if isinstance(final, ast.Call) else None
    if code.called(constructor) == "nn.Sequential":
        constructor = (layers(code, constructor) or [None])[-1]
    convolution = re.match(r"nn\.Conv(Transpose)?[23]d$", code.called(constructor))
    return argument(constructor, "out_channels", 1) if convolution else None


def _squeezed(code, node, depth=0):
    """Return whether the axis of the one unit is removed, so another axis has the classes."""
    node = code.resolved(node) if isinstance(node, ast.AST) else None
    if not isinstance(node, ast.Call) or depth > 4:
        return False
    if method(node) in ("squeeze", "view", "reshape", "flatten"):
        return True
    return any(_squeezed(code, value, depth + 1) for value in forward_values(code, node.func))


@rule("losses-squashed", "wrong")
def squashed_logits(code):
    """`cross_entropy(fc(x).relu(), y)` or with a sigmoid: it limits the range of the logits."""
    for call, prediction in loss_calls(code, "cross_entropy", "CrossEntropyLoss"):
        if is_activation(code, prediction, {"relu", "sigmoid", "tanh"}):
            yield call
    for call in code.calls:
        if code.called(call) in ("F.log_softmax", "torch.log_softmax"):
            prediction = _squashed(code, argument(call, "input", 0))
            if prediction is not None and last_linear(code, prediction) is not None:
                yield call
        elif code.called(call) == "nn.Sequential":
            names = [code.called(layer).removeprefix("nn.") for layer in layers(code, call)]
            pairs = zip(names, names[1:], names[2:], strict=False)
            if any(pair[0] == "Linear" and pair[1:] in _LIMITED for pair in pairs):
                yield call


_LIMITED = {("ReLU", "Softmax")} | {(n, "LogSoftmax") for n in ("ReLU", "Sigmoid", "Tanh")}


def _squashed(code, node):
    """Return `x` of `F.relu(x)` or `x.sigmoid()`, even through a name."""
    value = code.value(node) if isinstance(node, ast.Name) else node
    if method(value) not in ("relu", "sigmoid", "tanh"):
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
    for node in code.nodes_of(ast.Assign):
        scope, name = node.scope, name_of(node.targets[0])
        if not isinstance(scope, FUNCTIONS) or not name or not _is_loss_function(code, scope):
            continue
        value = node.value
        while method(value) in _KEEP and receiver(value) is not None:
            value = receiver(value)
        threshold_input = _thresholded(code, value)
        names = [parameter.arg for parameter in scope.args.args if parameter.arg != "self"]
        if (
            threshold_input is None
            or names[:1] != [threshold_input]
            or any(ancestors(node, ast.If, ast.With))
        ):
            continue
        if threshold_input == name or len(code.uses(scope, threshold_input)) == 1:
            yield node


def _thresholded(code, value):
    """Return `x` of `x > 0.5` and of `x.argmax(1)`."""
    if isinstance(value, ast.Compare) and isinstance(value.ops[0], ast.Gt | ast.GtE):
        return name_of(value.left) if const(value.comparators[0]) is not None else None
    if method(value) != "argmax":
        return None
    return name_of(value.args[0] if code.called(value) and value.args else receiver(value))


def _is_loss_function(code, scope):
    """Return whether a function is a loss by its name, and something is differentiated."""
    owner = scope.owner.name if scope.owner is not None else ""
    name = owner if scope.name == "forward" else scope.name
    return bool(re.search(r"(?i)loss", name)) and "backward(" in code.source


def _assigned_to(call):
    targets = getattr(call.parent, "targets", ())
    return {target.id for target in targets if isinstance(target, ast.Name)}


@rule("losses-mask-reduced", "wrong")
def mask_after_mean(code):
    """`cross_entropy(logits, y) * mask`: the mean is taken before the mask."""
    yield from _focused_mean(code)
    for node in code.nodes_of(ast.BinOp):
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
    for node in code.nodes_of(ast.BinOp):
        base = node.left if isinstance(node.op, ast.Pow) else None
        if not isinstance(base, ast.BinOp) or not isinstance(base.op, ast.Sub):
            continue
        chance = code.value(base.right) if name_of(base.right) else base.right
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
    sides = [code.value(side) for side in (value.left, value.comparators[0])]
    return any(
        isinstance(side, Part)
        and side.index == 1
        and method(side.value) in ("max", "topk")
        or method(side) == "argmax"
        for side in sides
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
    reduction = argument(constructor, "reduction")
    if old is not None:
        return False
    return reduction is None or code.const(reduction) == "mean" or _mean_by_default(code, reduction)


def _mean_by_default(code, node):
    """Return True for `self.reduction` of `__init__(self, reduction="mean")` without a call."""
    name = name_of(node) or ""
    constructor = node.owner and code.functions.get((node.owner.name, "__init__"))
    if not name.startswith("self.") or not constructor or code.callers.get(constructor):
        return False
    defaults = [*zip(constructor.args.args[::-1], constructor.args.defaults[::-1], strict=False)]
    return any(
        parameter.arg == name[5:] and const(default) == "mean" for parameter, default in defaults
    )


@rule("losses-output-range", "wrong", "Normalize")
def output_of_other_range(code):
    """A decoder that ends in a sigmoid, and `mse_loss(recon, images)` of normalized images."""
    parts = [
        {code.called(element): element for element in getattr(call.args[0], "elts", ())}
        for call in code.calls_to("transforms.Compose")
        if call.args
    ]
    images = [part.get("transforms.Normalize") for part in parts if "transforms.ToTensor" in part]
    if (
        not images
        or not all(map(_subtracts, images))
        or re.search(r"(?i)denorm|unnorm|inv_?norm", code.source)
    ):
        return
    for name, module in (("mse_loss", "MSELoss"), ("l1_loss", "L1Loss")):
        for call, prediction in loss_calls(code, name, module):
            target = argument(call, "target", 1)
            output = code.resolved(prediction)
            output = output.value if isinstance(output, Part) else output
            same = isinstance(output, ast.Call) and name_of(target) in map(name_of, output.args)
            if same and is_activation(code, prediction, {"sigmoid", "relu"}):
                yield call


def _subtracts(normalize):
    """Return whether `Normalize` has a mean other than 0."""
    mean = argument(normalize, "mean", 0) if normalize is not None else None
    return mean is not None and any(
        const(element) != 0 for element in getattr(mean, "elts", [mean])
    )


@rule("losses-ctc-logits", "wrong", "ctc_loss|CTCLoss")
def ctc_of_logits(code):
    """`ctc_loss(fc(x).permute(1, 0, 2), …)` without `log_softmax`."""
    for call in code.calls:
        name = code.called(call)
        if name != "F.ctc_loss" if name else kind(code, call.func) != "lossfn:CTCLoss":
            continue
        log_probs = argument(call, "log_probs", 0)
        for tensor in _passed_on(code, log_probs):
            for _ in range(6):
                tensor = (
                    output(code, code.value(tensor)) if name_of(tensor) else None
                ) or code.resolved(tensor)
                if method(tensor) in ("permute", "transpose", "contiguous") and receiver(tensor):
                    tensor = receiver(tensor)
            if tensor is not None and last_linear(code, tensor) is not None:
                yield call
                break


def _passed_on(code, node):
    """Return the argument that the callers pass for a parameter, else the node."""
    scope = getattr(node, "scope", None)
    is_parameter = (
        isinstance(node, ast.Name)
        and isinstance(scope, FUNCTIONS)
        and has_parameter(scope, node.id)
    )
    passed = (
        code.arguments(scope, node.id) if is_parameter and node.id not in scope.assigned else []
    )
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
    value = code.resolved(call.args[0])
    if re.match(r"(?i)(\w+\.)?\w+\(?(y|labels?|targets?|gt)\b", ast.unparse(call.args[0])):
        return True
    other = code.resolved(call.args[1]) if len(call.args) > 1 else None
    if isinstance(other, ast.Call) and is_model(code, other.func):
        return True
    rounds = method(value) in ("round", "floor", "ceil", "sign")
    return rounds and not code.called(value) and bool(value.args)
