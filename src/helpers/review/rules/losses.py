"""Losses that get the wrong input."""

import ast
import re

from helpers.review.kinds import is_model, kind, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import above, argument, const, is_open, method, receiver, text
from helpers.review.tracing import ends_in, is_activation, is_loss_call, loss_calls

_BCE = "binary_cross_entropy"


@rule("losses-double-softmax", "wrong")
def double_softmax(code):
    """`cross_entropy(model(x).softmax(1), y)`, also if the model's last layer is the softmax."""
    for call, given in loss_calls(code, "cross_entropy", "CrossEntropyLoss"):
        if is_activation(code, given, {"softmax"}):
            yield call


@rule("losses-double-sigmoid", "wrong")
def double_sigmoid(code):
    """`binary_cross_entropy_with_logits(x.sigmoid(), t)`."""
    for call, given in loss_calls(code, f"{_BCE}_with_logits", "BCEWithLogitsLoss"):
        if is_activation(code, given, {"sigmoid"}):
            yield call


@rule("losses-bce-softmax", "wrong")
def bce_softmax(code):
    """`binary_cross_entropy(z.softmax(1), t)`."""
    for name, module in ((_BCE, "BCELoss"), (f"{_BCE}_with_logits", "BCEWithLogitsLoss")):
        for call, given in loss_calls(code, name, module):
            if is_activation(code, given, {"softmax"}):
                yield call


@rule("losses-nll-softmax", "wrong")
def nll_of_softmax(code):
    """`nll_loss(x.softmax(1), y)` without the logarithm."""
    for call, given in loss_calls(code, "nll_loss", "NLLLoss"):
        if is_activation(code, given, {"softmax"}):
            yield call


@rule("losses-kl-log", "wrong")
def kl_without_log(code):
    """`kl_div(p, q)` with probabilities as its first argument."""
    for call, given in loss_calls(code, "kl_div", "KLDivLoss"):
        if is_activation(code, given, {"softmax"}):
            yield call


@rule("losses-underflow", "wrong")
def log_of_softmax(code):
    """`x.softmax(1).log()`: -inf where a probability is 0."""
    for call in code.calls:
        if method(call) != "log":
            continue
        name, base = code.called(call), receiver(call)
        given = call.args[0] if name == "torch.log" and call.args else None if name else base
        if isinstance(given, ast.Call) and is_activation(code, given, {"softmax"}):
            if not ends_in(code, given.func, {"softmax"}):
                yield call


@rule("losses-kl-mean", "wrong")
def kl_mean(code):
    """`kl_div` with the default reduction divides by the number of elements."""
    for call in code.calls:
        if code.called(call) in ("F.kl_div", "nn.KLDivLoss") and not is_open(call):
            given = argument(call, "reduction")
            old = argument(call, "size_average") or argument(call, "reduce")
            if not old and (given is None or const(given) == "mean") and not _summed(call):
                yield call


def _summed(call):
    """A scale follows, so the author has thought of the size."""
    return any(isinstance(up.op, ast.Mult) for up in above(call, ast.BinOp))


@rule("losses-class-error", "raises")
def loss_class_called(code):
    """`nn.MSELoss(pred, target)` makes a module and computes nothing."""
    for call in code.calls:
        name = code.called(call) or code.dotted(code.value(call.func)) or ""
        if re.fullmatch(r"nn\.\w+Loss", name) and len(call.args) >= 2:
            if is_open(call) or name == "nn.AdaptiveLogSoftmaxWithLoss":
                continue
            if not any(isinstance(given, ast.Constant) for given in call.args[:2]):
                yield call


@rule("losses-reduction-error", "raises")
def unknown_reduction(code):
    """`reduction="avg"`."""
    for call in code.calls:
        if re.match(r"nn\.\w+Loss$|F\.\w+(_loss|entropy\w*|kl_div)$", code.called(call)):
            value = const(argument(call, "reduction"))
            if value not in (None, "none", "mean", "sum", "batchmean"):
                yield call


@rule("grad-modes-who-error", "raises")
def loss_of_argmax(code):
    """A loss of `argmax`, which has no gradient."""
    for call in code.calls:
        if is_loss_call(code, call) and (given := argument(call, "input", 0)) is not None:
            if _is_argmax(code, given):
                yield call


def _is_argmax(code, node):
    for _ in range(6):
        if isinstance(node, ast.Name):
            node = code.value(node)
        elif isinstance(node, ast.Call) and method(node) in ("float", "to", "squeeze"):
            node = receiver(node)
        else:
            break
    if not isinstance(node, ast.Call) or method(node) != "argmax":
        return False
    return code.called(node) == "torch.argmax" or not code.called(node)


@rule("losses-target-first", "wrong")
def swapped(code):
    """`cross_entropy(labels, logits)`: target and input exchanged."""
    pattern = re.compile(r"(?i)^(y|labels?|targets?|y_true|truth|gt)$")
    output = re.compile(r"(?i)^(outputs?|logits?|pred(iction)?s?|y_pred|y_hat|out)$")
    for names in (
        ("cross_entropy", "CrossEntropyLoss"),
        ("nll_loss", "NLLLoss"),
        (_BCE, "BCELoss"),
        (f"{_BCE}_with_logits", "BCEWithLogitsLoss"),
    ):
        for call, given in loss_calls(code, *names):
            target = argument(call, "target", 1)
            if isinstance(given, ast.Name) and isinstance(target, ast.Name):
                if pattern.match(given.id) and output.match(target.id):
                    yield call


@rule("losses-through-numpy", "wrong")
def cut_by_numpy(code):
    """`torch.from_numpy(model(a).data.cpu().numpy())` as the input of a loss: no gradient."""
    for call in code.calls:
        if code.called(call) not in ("torch.from_numpy", "torch.tensor", "torch.FloatTensor"):
            continue
        given = call.args[0] if call.args else None
        base = given.value if isinstance(given, ast.Subscript) else given
        if method(base) != "numpy" or no_graph(code, call):
            continue
        while isinstance(base, ast.Call | ast.Attribute) and not isinstance(base, ast.Name):
            base = receiver(base) if isinstance(base, ast.Call) else base.value
            if base is None:
                break
        value = code.value(base) if isinstance(base, ast.Name) else None
        output = isinstance(value, ast.Call) and is_model(code, value.func)
        if output and code.methods(code.function(call), "backward") and _first_of_loss(code, call):
            yield call


def _first_of_loss(code, call):
    """The name that gets the tensor is an argument of a loss that is no target."""
    statement = next(above(call, ast.Assign), None)
    name = text(statement.targets[0]) if statement is not None else None
    for other in code.calls_under(code.function(call)):
        losses = re.search(r"(?i)loss|criterion", text(other.func) or ast.unparse(other.func))
        if name and losses and other.args and text(other.args[0]) == name:
            return code.value(other.args[0]) is not None
    return False


@rule("losses-detached", "raises")
def rebuilt(code):
    """`torch.tensor(loss.item(), requires_grad=True).backward()`: the graph is cut."""
    for call in code.calls:
        if method(call) != "backward" or code.called(call) or receiver(call) is None:
            continue
        value = receiver(call)
        if isinstance(value, ast.Name):
            value = code.value(value)
        name = code.called(value)
        if name in ("torch.tensor", "torch.autograd.Variable", "torch.FloatTensor", "torch.Tensor"):
            given = value.args[0] if value.args else None
            if given is not None and kind(code, given) in ("loss", "tensor", "number"):
                if const(argument(value, "requires_grad")) is True and not isinstance(
                    given, ast.Constant
                ):
                    yield value
