"""Losses that receive the wrong input."""

import ast
import re

from helpers.review.code import Part
from helpers.review.graphless import elements, graphless
from helpers.review.kinds import is_model, is_module_class, kind, no_graph
from helpers.review.registry import rule
from helpers.review.rules.learning import differentiated, negated
from helpers.review.rules.modules import learns
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    ancestors,
    argument,
    const,
    descendants,
    is_inside,
    is_open,
    method,
    name_of,
    names_in,
    receiver,
)
from helpers.review.tracing import (
    construction,
    ends_in,
    is_activation,
    is_loss_call,
    is_named_loss,
    loss_calls,
)

_BCE = "binary_cross_entropy"


@rule("losses-double-softmax", "wrong")
def double_softmax(code):
    """`cross_entropy(model(x).softmax(1), y)`, even if the model's last layer is the softmax."""
    for call, prediction in loss_calls(code, "cross_entropy", "CrossEntropyLoss"):
        if is_activation(code, prediction, {"softmax"}):
            yield call


@rule("losses-double-sigmoid", "wrong")
def double_sigmoid(code):
    """`binary_cross_entropy_with_logits(x.sigmoid(), t)`."""
    for call, prediction in loss_calls(code, f"{_BCE}_with_logits", "BCEWithLogitsLoss"):
        if is_activation(code, prediction, {"sigmoid"}):
            yield call


@rule("losses-bce-softmax", "wrong")
def bce_softmax(code):
    """`binary_cross_entropy(z.softmax(1), t)`."""
    for name, module in ((_BCE, "BCELoss"), (f"{_BCE}_with_logits", "BCEWithLogitsLoss")):
        for call, prediction in loss_calls(code, name, module):
            if is_activation(code, prediction, {"softmax"}):
                yield call


@rule("losses-nll-softmax", "wrong")
def nll_of_softmax(code):
    """`nll_loss(x.softmax(1), y)` without the logarithm."""
    for call, prediction in loss_calls(code, "nll_loss", "NLLLoss"):
        if is_activation(code, prediction, {"softmax"}):
            yield call


@rule("losses-kl-log", "wrong")
def kl_without_log(code):
    """`kl_div(p, q)` with probabilities as its first argument."""
    for call, prediction in loss_calls(code, "kl_div", "KLDivLoss"):
        if is_activation(code, prediction, {"softmax"}):
            yield call


@rule("losses-underflow", "wrong")
def log_of_softmax(code):
    """`x.softmax(1).log()`: -inf where a probability is 0."""
    for call in code.calls_named("log"):
        name, base = code.called(call), receiver(call)
        operand = call.args[0] if name == "torch.log" and call.args else None if name else base
        if isinstance(operand, ast.Call) and is_activation(code, operand, {"softmax"}):
            if not ends_in(code, operand.func, {"softmax"}):
                yield call
                continue
        if operand is not None and _is_weighted_by_target(call) and not no_graph(code, call):
            if _is_probability(code, operand):
                yield call


_TARGET = re.compile(r"(?i)target|label|(^|_)(y|gt)(_true|s)?$")


def _is_weighted_by_target(call):
    """Return whether the logarithm is a factor in a product with the target."""
    node = call
    while isinstance(node.parent, ast.BinOp) and isinstance(node.parent.op, ast.Mult):
        node = node.parent
    return any(_TARGET.search(name) for name in names_in(node))


def _is_probability(code, operand):
    """Return True for `p` and `1 - p` of the output of a sigmoid or softmax."""
    for _ in range(3):
        if isinstance(operand, ast.Name):
            operand = code.resolved(operand)
        if isinstance(operand, ast.BinOp) and isinstance(operand.op, ast.Sub):
            operand = operand.right if code.const(operand.left) == 1 else None
    return isinstance(operand, ast.Call) and is_activation(code, operand, {"sigmoid", "softmax"})


@rule("losses-kl-mean", "wrong")
def kl_mean(code):
    """`kl_div` with the default reduction divides by the number of elements."""
    for call in code.calls_to("F.kl_div", "nn.KLDivLoss"):
        if not is_open(call):
            reduction = argument(call, "reduction")
            old = argument(call, "size_average") or argument(call, "reduce")
            if (
                not old
                and (reduction is None or const(reduction) == "mean")
                and not _is_scaled_otherwise(call)
            ):
                yield call


def _is_scaled_otherwise(call):
    """Return whether a factor follows that is not the square of a temperature."""
    factors, below = [], call
    for operation in ancestors(call, ast.BinOp):
        if isinstance(operation.op, ast.Mult):
            factors.append(
                ast.unparse(operation.right if is_inside(below, operation.left) else operation.left)
            )
        below = operation
    return bool(factors) and not _SQUARE.search(" * ".join(factors))


_SQUARE = re.compile(r"(?i)\b([\w.]*temp\w*|t|tau)\)? (\*\* 2|\* \1\b)")


@rule("losses-class-error", "raises")
def loss_class_called(code):
    """`nn.MSELoss(pred, target)` makes a module and computes nothing."""
    for call in code.calls:
        name = code.called(call) or code.dotted(code.value(call.func)) or ""
        if re.fullmatch(r"nn\.\w+Loss", name) and len(call.args) >= 2:
            if is_open(call) or name == "nn.AdaptiveLogSoftmaxWithLoss":
                continue
            if not any(isinstance(arg, ast.Constant) for arg in call.args[:2]):
                yield call


@rule("losses-reduction-error", "raises")
def unknown_reduction(code):
    """`reduction="avg"`."""
    for call in code.calls:
        if re.match(r"nn\.\w+Loss$|F\.\w+(_loss|entropy\w*|kl_div)$", code.called(call)):
            value = code.const(argument(call, "reduction"))
            if value not in (None, "none", "mean", "sum", "batchmean"):
                yield call


@rule("grad-modes-who-error", "raises")
def loss_of_argmax(code):
    """A loss of `argmax`, which has no gradient."""
    for call in code.calls:
        is_loss = is_loss_call(code, call) or is_named_loss(code, call)
        if is_loss and (operand := argument(call, "input", 0)) is not None:
            if _is_argmax(code, operand):
                yield call


_RETYPES = {"float", "to", "type", "double", "squeeze", "unsqueeze", "view", "reshape"}


def _is_argmax(code, node):
    for _ in range(6):
        if isinstance(node, ast.Name):
            node = code.value(node)
            if isinstance(node, Part) and node.index == 1 and method(node.value) == "max":
                return argument(node.value, "dim", int(bool(code.called(node.value)))) is not None
        elif isinstance(node, ast.Call) and method(node) in _RETYPES:
            node = receiver(node)
        else:
            break
    if method(node) != "argmax":
        return False
    return code.called(node) == "torch.argmax" or not code.called(node)


@rule("losses-target-first", "wrong")
def swapped(code):
    """`cross_entropy(labels, logits)`: target and input are swapped."""
    pattern = re.compile(r"(?i)^(y|labels?|targets?|y_true|truth|gt)$")
    output = re.compile(r"(?i)^(outputs?|logits?|pred(iction)?s?|y_pred|y_hat|out)$")
    for names in (
        ("cross_entropy", "CrossEntropyLoss"),
        ("nll_loss", "NLLLoss"),
        (_BCE, "BCELoss"),
        (f"{_BCE}_with_logits", "BCEWithLogitsLoss"),
    ):
        for call, prediction in loss_calls(code, *names):
            target = argument(call, "target", 1)
            if isinstance(prediction, ast.Name) and isinstance(target, ast.Call):
                if _of_model(code, target) and _from_loader(code, prediction):
                    yield call
            if isinstance(prediction, ast.Name) and isinstance(target, ast.Name):
                if (
                    pattern.match(prediction.id)
                    and output.match(target.id)
                    or _of_model(code, target)
                    and _from_loader(code, prediction)
                ):
                    yield call


def _of_model(code, node):
    """Return True for an unchanged output of a model."""
    value = code.resolved(node)
    return isinstance(value, ast.Call) and is_model(code, value.func) and not code.called(value)


def _from_loader(code, node):
    """Return True for the second tensor of a batch."""
    value = code.value(node)
    return isinstance(value, Part) and value.index is None and value.element == 1


@rule("losses-through-numpy", "wrong")
def cut_by_numpy(code):
    """`torch.from_numpy(model(a).data.cpu().numpy())` as the input of a loss: no gradient."""
    yield from _numpy_in_forward(code)
    for call in code.calls_to("torch.from_numpy", "torch.tensor", "torch.FloatTensor"):
        operand = call.args[0] if call.args else None
        base = operand.value if isinstance(operand, ast.Subscript) else operand
        if method(base) != "numpy" or no_graph(code, call):
            continue
        while isinstance(base, ast.Call | ast.Attribute) and not isinstance(base, ast.Name):
            base = receiver(base) if isinstance(base, ast.Call) else base.value
            if base is None:
                break
        value = code.value(base) if isinstance(base, ast.Name) else None
        output = isinstance(value, ast.Call) and is_model(code, value.func)
        if (
            output
            and code.methods(code.function_of(call), "backward")
            and _first_of_loss(code, call)
        ):
            yield call


_WITHOUT_GRADIENT = re.compile(
    r"(?i)arg(max|min|sort)|topk|sort|nonzero|long|int|bool|index|idx|ids|assign|mask|len|size|dtype"
)


def _numpy_in_forward(code):
    """`torch.tensor(f(self.layer(x).detach().numpy()))` in `forward`: the layer is not trained."""
    for call in code.calls_to("torch.from_numpy", "torch.tensor", "torch.FloatTensor"):
        inside = call.scope is not code.tree and getattr(call.scope, "name", "") == "forward"
        if not inside or not call.args or call.owner is None or no_graph(code, call):
            continue
        statement = next(ancestors(call, ast.Assign, ast.Return), None)
        if statement is None or _WITHOUT_GRADIENT.search(ast.unparse(statement)):
            continue
        operand = call.args[0]
        value = code.value(operand) if isinstance(operand, ast.Name) else operand
        left = _left_to_numpy(value) if isinstance(value, ast.AST) else None
        if left is not None and _of_layer(code, left, 0) and is_module_class(code, call.owner.name):
            if not _WITHOUT_GRADIENT.search(ast.unparse(value)):
                yield call


def _left_to_numpy(value):
    """Return `x` of an expression with `x.detach().cpu().numpy()` or `x.tolist()`."""
    for call in descendants(value):
        if method(call) in ("numpy", "tolist") and isinstance(call.func, ast.Attribute):
            base = call.func.value
            while isinstance(base, ast.Call | ast.Attribute) and not isinstance(base, ast.Name):
                inner = receiver(base) if isinstance(base, ast.Call) else base.value
                if inner is None or name_of(inner) == "self":
                    return base
                base = inner
            return base
    return None


def _of_layer(code, node, depth):
    """Return whether a value is computed from the output of a layer with parameters."""
    value = code.value(node) if isinstance(node, ast.Name) else node
    if not isinstance(value, ast.Call) or depth > 3:
        return False
    if learns(code, construction(code, value.func)) or (
        not code.called(value) and name_of(receiver(value)) == "self" and is_model(code, value.func)
    ):
        return True
    below = value.args[:1] if code.called(value) or name_of(receiver(value)) == "self" else []
    below = below or [receiver(value)]
    return any(_of_layer(code, arg, depth + 1) for arg in below if arg is not None)


def _first_of_loss(code, call):
    """Return whether the tensor is assigned to a name that is the first argument of a loss."""
    statement = next(ancestors(call, ast.Assign), None)
    name = name_of(statement.targets[0]) if statement is not None else None
    for other in code.calls_under(code.function_of(call)):
        losses = re.search(r"(?i)loss|criterion", name_of(other.func) or ast.unparse(other.func))
        if name and losses and other.args and name_of(other.args[0]) == name:
            return code.value(other.args[0]) is not None
    return False


@rule("losses-detached", "raises")
def rebuilt(code):
    """`torch.tensor(loss.item(), requires_grad=True).backward()`: the graph is cut."""
    for call in code.calls_named("backward"):
        if code.called(call) or receiver(call) is None:
            continue
        value = receiver(call)
        for _ in range(4):
            value = code.value(value) if isinstance(value, ast.Name) else value
            if method(value) in ("mean", "sum") and not code.called(value):
                value = receiver(value)
        name = code.called(value)
        if name in ("torch.tensor", "torch.autograd.Variable", "torch.FloatTensor", "torch.Tensor"):
            operand = value.args[0] if value.args else None
            computed = kind(code, operand) in ("loss", "tensor", "number")
            if operand is not None and (computed or _has_computed(code, operand)):
                if code.const(argument(value, "requires_grad")) is True and not isinstance(
                    operand, ast.Constant
                ):
                    yield value


def _has_computed(code, node):
    """Return True for a list that `append` fills with computed values."""
    filled = elements(code, node) if isinstance(node, ast.Name) else ()
    return any(isinstance(element, ast.Call | ast.BinOp | ast.UnaryOp) for element in filled)


@rule("losses-exponential", "wrong", "exp(")
def exponential_of_loss(code):
    """`torch.exp(criterion(output, target))` as the loss: it overflows."""
    for call in code.calls:
        operand = call.args[0] if code.called(call) == "torch.exp" and call.args else None
        if method(call) == "exp" and not code.called(call):
            operand = receiver(call)
        inner = operand.left if _grows_with_loss(operand) else operand
        inner = code.resolved(inner)
        if isinstance(inner, ast.Call) and is_loss_call(code, inner):
            if differentiated(code, call, 0):
                yield call


def _grows_with_loss(node):
    """Return whether `loss + x` or `loss * 2` grows with the loss."""
    if not isinstance(node, ast.BinOp):
        return False
    value = const(node.right)
    scaled = isinstance(node.op, ast.Mult | ast.Div) and isinstance(value, int | float)
    return isinstance(node.op, ast.Add) or scaled and value > 0


@rule("losses-dice-sign", "wrong", "dice|Dice|iou|IoU|IOU|accard|versky|imilarity|ssim")
def overlap_minimized(code):
    """`class DiceLoss` that returns the Dice coefficient: a small loss is a small overlap."""
    yield from _similarity_minimized(code)
    for function in code.nodes_of(*FUNCTIONS):
        owner = function.owner.name if function.owner is not None else ""
        name = owner if function.name == "forward" else function.name
        if not re.search(r"(?i)(dice|iou|jaccard|tversky).*loss|loss.*(dice|iou)", name):
            continue
        if re.search(rf"(1\.?0?|-) *-? *(self\.)?{name}|-{name}", code.source):
            continue
        values = code.return_values(function)
        value = values[0] if len(values) == 1 else None
        for _ in range(3):
            value = code.resolved(value)
            summed = isinstance(value, ast.BinOp) and method(value.left) == "sum"
            if summed and isinstance(value.op, ast.Div) and not code.called(value.left):
                value = receiver(value.left)  # divided by the number of samples
            value = receiver(value) if method(value) in ("mean", "sum") else value
        ratio = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)
        if ratio and re.search(r"(?i)inter|\btp\b|2\.? \*", ast.unparse(value.left)):
            if "-" not in ast.unparse(value) and "Function" not in _bases(function.owner):
                if not any(negated(code, call) for call in _calls_of(code, name)):
                    yield values[0]


def _similarity_minimized(code):
    """`loss = F.cosine_similarity(a, b).mean()` and `loss.backward()`: the vectors move apart."""
    for call in code.calls:
        module = code.called(construction(code, call.func)) == "nn.CosineSimilarity"
        known = code.called(call) == "F.cosine_similarity" or module
        if not known and (method(call) not in ("ssim", "ms_ssim") or code.targets(call)):
            continue
        node = call
        while getattr(node.parent, "attr", "") in ("mean", "sum") or method(node.parent) == "mean":
            node = node.parent.parent if isinstance(node.parent, ast.Attribute) else node.parent
        parent = node.parent
        name = name_of(parent.targets[0]) if isinstance(parent, ast.Assign) else None
        once = name in call.scope.backward and len(call.scope.assigned.get(name, ())) == 1
        if once and not negated(code, node) and "requires_grad" not in code.source:
            yield call


def _calls_of(code, name):
    """Yield the calls of a function of this file, or of an object of the class."""
    for call in code.calls:
        constructor = construction(code, call.func)
        if method(call) == name or constructor is not None and name_of(constructor.func) == name:
            yield call


def _bases(owner):
    return "" if owner is None else " ".join(map(ast.unparse, owner.bases))


@rule("losses-log-sum-exp", "wrong", "log(")
def log_of_sum(code):
    """`torch.log(torch.sum(torch.exp(logits), dim=1))`: it overflows; use `logsumexp`."""
    bounded = re.compile(r"(?i)max|clamp|sim|cos|norm|dist|shift|soft|sigmoid|tanh|logadd|beta")
    for call in code.calls_named("log"):
        if code.called(call) not in ("", "torch.log"):
            continue
        total = _argument_or_base(code, call, "torch.log")
        if method(total) != "sum" or code.called(total) not in ("", "torch.sum"):
            continue
        power = _argument_or_base(code, total, "torch.sum")
        if method(power) != "exp" or code.called(power) not in ("", "torch.exp"):
            continue
        exponent = _argument_or_base(code, power, "torch.exp")
        base = exponent.value if isinstance(exponent, ast.Subscript) else exponent
        value = code.value(base) if isinstance(base, ast.Name) else exponent
        written = ast.unparse(exponent) + (ast.unparse(value) if isinstance(value, ast.AST) else "")
        if any(
            isinstance(operand, ast.BinOp) and isinstance(operand.op, ast.Sub)
            for operand in (exponent, value)
        ):
            continue  # the maximum may be subtracted
        if any(
            name_of(statement.target) == name_of(exponent)
            for statement in code.nodes_of(ast.AugAssign)
        ):
            continue
        scores = re.search(r"(?i)logits?|log_?p(rob)?s?|scores?|energ|log_?lik|outputs?", written)
        if scores and not bounded.search(written):
            yield call


def _argument_or_base(code, call, name):
    """Return `x` of `torch.log(x)` and of `x.log()`."""
    operand = receiver(call)
    if code.called(call) == name:
        operand = call.args[0] if call.args else None
    value = code.resolved(operand) if isinstance(operand, ast.Name) else operand
    return value if method(value) in ("sum", "exp") else operand


@rule("losses-log-sigmoid", "wrong", "logsigmoid|LogSigmoid")
def log_of_complement(code):
    """`F.logsigmoid(1 - logits)` for `log(1 - sigmoid(logits))`, which is `logsigmoid(-logits)`."""
    for call in code.calls:
        if code.called(call) == "F.logsigmoid" or kind(code, call.func) == "module:LogSigmoid":
            value = code.resolved(call.args[0]) if call.args else None
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub):
                if const(value.left) == 1:
                    yield call


def _penalty_of_data(code):
    """Yield `l2 += p.data.norm()` over `model.parameters()`, if the sum is added to a loss."""
    for node in code.nodes_of(ast.AugAssign, ast.Assign):
        name = name_of(node.target if isinstance(node, ast.AugAssign) else node.targets[0])
        loop = next(ancestors(node, ast.For), None)
        if not name or loop is None or method(loop.iter) not in ("parameters", "named_parameters"):
            continue
        cut = [child for child in descendants(node.value) if _is_cut(child)]
        variables = names_in(loop.target)
        if cut and all(name_of(penalty) in variables for penalty in map(_uncut, cut)):
            terms = [use for use in code.uses(node.scope, name) if not is_inside(use, loop)]
            if any(
                isinstance(term.parent, ast.BinOp) and differentiated(code, term, 0)
                for term in terms
            ):
                yield node


def _is_cut(node):
    return isinstance(node, ast.Attribute) and node.attr == "data" or method(node) == "detach"


def _uncut(node):
    return node.value if isinstance(node, ast.Attribute) else receiver(node)


@rule("losses-item-part", "wrong", ".item()|.data|.detach()")
def term_without_graph(code):
    """`loss = loss_a + loss_b.item()`: the second term has no gradient."""
    yield from _penalty_of_data(code)
    for node in code.nodes_of(ast.Assign, ast.AugAssign):
        name = name_of(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        if name not in node.scope.backward:
            continue
        terms = list(_terms(node.value))
        if isinstance(node, ast.AugAssign):
            terms = [*terms, node.target] if isinstance(node.op, ast.Add) else []
        cut = [term for term in terms if method(term) == "item" and not code.called(term)]
        named = [call for call in cut if re.search(r"(?i)loss|reg|penalty", ast.unparse(call))]
        if len(named) < len(terms) and _differentiated_below(code, node, name):
            yield from named


def _differentiated_below(code, node, name):
    """Return whether `backward` of the name follows in the same loop."""
    loops = list(ancestors(node, *LOOPS))
    return any(
        call.lineno > node.lineno and list(ancestors(call, *LOOPS)) == loops
        for call in code.methods(code.function_of(node), "backward")
        if re.search(rf"\b{re.escape(name)}\b", ast.unparse(call))
    )


def _terms(node):
    """Yield the terms of a sum, without their constant factors."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _terms(node.left)
        yield from _terms(node.right)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and const(node.left):
        yield node.right
    else:
        yield node


_MAKES = ("tensor", "as_tensor", "FloatTensor", "Tensor", "array", "to", "cuda", "float", "clamp")


@rule("losses-pos-weight", "wrong", "pos_weight")
def pos_weight_inverted(code):
    """`pos_weight = n_positive / n_negative`: the rare class gets the smaller weight."""
    for call in code.calls:
        pos_weight = argument(call, "pos_weight")
        for _ in range(6):
            if isinstance(pos_weight, ast.Name):
                pos_weight = code.value(pos_weight)
            elif isinstance(pos_weight, ast.List):
                pos_weight = pos_weight.elts[0] if len(pos_weight.elts) == 1 else None
            elif method(pos_weight) in _MAKES:
                pos_weight = pos_weight.args[0] if code.called(pos_weight) else receiver(pos_weight)
        if not isinstance(pos_weight, ast.BinOp) or not isinstance(pos_weight.op, ast.Div):
            continue
        above, below = (ast.unparse(side) for side in (pos_weight.left, pos_weight.right))
        positive, negative = r"(?i)pos|n_?1\b|ones", r"(?i)neg|n_?0\b|zeros|total|len\("
        if re.search(positive, above) and not re.search(negative, above):
            if re.search(negative, below):
                yield pos_weight


@rule("losses-grad-forced", "wrong", "requires_grad")
def gradient_forced(code):
    """`loss.requires_grad = True` before `loss.backward()`: the loss has no graph, only a flag."""
    for node in code.nodes_of(ast.Assign, ast.Call):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            flag = isinstance(target, ast.Attribute) and target.attr == "requires_grad"
            base = target.value if flag else None
        else:
            value = node.args[0] if node.args else ast.Constant(True)
            base = receiver(node) if method(node) == "requires_grad_" else None
        if base is None or const(value) is not True:
            continue
        if not isinstance(base, ast.Name):
            leaf = method(base) in ("detach", "clone")  # made on purpose
            if not leaf and _differentiated_at_once(code, node) and graphless(code, base):
                yield node
            continue
        loss = code.value(base)
        computed = isinstance(loss, ast.Call) and re.search(
            r"(?i)loss|criterion|entropy|mse", ast.unparse(loss.func)
        )
        computed = (
            computed
            and _output_without_graph(code, loss)
            or isinstance(loss, ast.Call | ast.BinOp)
            and (graphless(code, loss))
        )
        if computed and (_same_at_backward(code, base) or _differentiated_at_once(code, node)):
            yield node


def _same_at_backward(code, base):
    """Return whether `backward` is called on the name while it has the same value."""
    return any(
        name_of(receiver(call)) == base.id and code.value(receiver(call)) is code.value(base)
        for call in code.methods(code.function_of(base), "backward")
    )


def _differentiated_at_once(code, node):
    """Return whether `backward` is called on the expression, or on the name assigned to it."""
    parent = node.parent
    name = name_of(parent.targets[0]) if isinstance(parent, ast.Assign) else None
    called = isinstance(parent, ast.Attribute) and parent.attr == "backward"
    return called or any(
        name_of(receiver(call)) == name and code.value(receiver(call)) is node
        for call in code.methods(code.function_of(node), "backward")
        if name is not None
    )


def _output_without_graph(code, loss):
    """Return whether the output in a loss has no graph, as after `argmax` or `detach`."""
    operand = loss.args[0] if loss.args else None
    if graphless(code, operand):
        return True
    for _ in range(4):
        value = code.resolved(operand)
        value = value.value if isinstance(value, Part) else value
        if not isinstance(value, ast.AST):
            return False
        if no_graph(code, value) or re.search(
            r"argmax|\.detach\(|\.item\(|\.numpy\(|torch\.(tensor|max|round)\(|\.data\b",
            ast.unparse(value),
        ):
            return True
        operand = receiver(value) if isinstance(value, ast.Call) else None
    return False


_DOUBLE = {"sigmoid": {"sigmoid", "softmax"}, "softmax": {"sigmoid", "softmax"}}
_DOUBLE["log_softmax"] = _DOUBLE["softmax"]


@rule("losses-activated-twice", "wrong", "sigmoid|softmax")
def activated_twice(code):
    """`sigmoid(output)` in a Dice loss that receives a softmax."""
    for call in code.calls:
        method_name, name = method(call), code.called(call)
        if method_name not in _DOUBLE or name not in (
            "",
            f"F.{method_name}",
            f"torch.{method_name}",
        ):
            continue
        operand = (call.args[0] if call.args else None) if name else receiver(call)
        if operand is None or name_of(operand) == "self" or not _of_loss(call):
            continue
        if any(ancestors(call, ast.If, ast.IfExp)):
            continue  # an option of the loss
        if is_activation(code, operand, _DOUBLE[method_name]):
            yield call


def _of_loss(call):
    """Return whether a call is in a loss or a metric, by the names of its function and class."""
    scope, owner = call.scope, getattr(call.owner, "name", "")
    names = f"{owner} {getattr(scope, 'name', '')}"
    return re.search(r"(?i)loss|dice|iou|jaccard|tversky|focal|criterion|metric|accuracy", names)


@rule("losses-negated", "wrong")
def negated_loss(code):
    """`loss = -criterion(model(x), y)` that an optimizer minimizes."""
    calls = [
        child
        for child in code.nodes_of(ast.UnaryOp)
        if isinstance(child.op, ast.USub) and isinstance(child.operand, ast.Call)
    ]
    if not calls or ".step()" not in code.source or _ON_PURPOSE.search(code.source):
        return
    for node in calls:
        call = node.operand
        known = is_loss_call(code, call) and len(call.args) >= 2 and not call.keywords
        name = name_of(node.parent.targets[0]) if isinstance(node.parent, ast.Assign) else None
        if not known or not name or not re.search(r"(?i)loss|^err", name) or no_graph(code, node):
            continue
        if _NOT_LOSSES.search(f"{name} {ast.unparse(call)}") or not _of_batch(code, call.args[1]):
            continue
        if differentiated(code, node, 0) and not negated(code, node):
            yield node


_ON_PURPOSE = re.compile(
    r"(?i)adversar|attack|ascent|unlearn|forget|maximi[sz]|minimax|confus|discrepan|reversal|domain"
    r"|\bgan\b|generator|discriminator|reward|privac|perturb|fgsm|likelihood|log_?prob|entropy_loss"
)
_NOT_LOSSES = re.compile(r"(?i)adv|gan|fool|neg|log_?p|score|fake|fair|bias|sens")


def _of_batch(code, node):
    """Return True for a loop variable or an item of a batch, even reshaped or moved."""
    while method(node) in ("view", "reshape", "flatten", "squeeze", "float", "long", "to", "cuda"):
        node = receiver(node)
    value = code.value(node) if name_of(node) else None
    if method(value) in ("to", "cuda", "float", "long"):
        return True
    return isinstance(value, Part) and (value.index is None or isinstance(value.value, ast.Name))


@rule("losses-temperature-one", "wrong", "kl_div|KLDivLoss")
def one_temperature(code):
    """`kl_div(log_softmax(student), softmax(teacher / T))`: only the teacher has a temperature."""
    if not re.search(r"(?i)teacher|student|distill|\bkd_", code.source):
        return
    for call, prediction in loss_calls(code, "kl_div", "KLDivLoss"):
        target = argument(call, "target", 1)
        both = [_logits_of(code, side) for side in (prediction, target)]
        if None in both:
            continue
        divisors = [_divisor(code, logits) for logits in both]
        if "" in divisors and divisors != ["", ""] and None not in divisors:
            yield call


def _logits_of(code, node):
    """Return the argument of `softmax` or `log_softmax`, even through a name."""
    value = code.resolved(node) if isinstance(node, ast.AST) else None
    if method(value) in ("detach", "log"):
        value = code.resolved(receiver(value))
    if method(value) not in ("softmax", "log_softmax"):
        return None
    name = code.called(value)
    if name in ("F.softmax", "F.log_softmax", "torch.softmax", "torch.log_softmax"):
        return argument(value, "input", 0)
    return None if name or name_of(receiver(value)) == "self" else receiver(value)


def _divisor(code, node):
    """Return the divisor of the logits, "" without one; None if it is unknown."""
    value = node if isinstance(node, ast.BinOp | ast.Call) else code.resolved(node)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        return ast.unparse(value.right)
    return "" if isinstance(value, ast.Call | Part) or value is None else None


@rule("losses-weight-frequency", "wrong", "bincount")
def weights_are_frequencies(code):
    """`CrossEntropyLoss(weight=counts / counts.sum())`: frequent classes get the large weights."""
    for call in code.calls:
        name = code.called(call)
        if name not in ("nn.CrossEntropyLoss", "nn.NLLLoss", "F.cross_entropy", "F.nll_loss"):
            continue
        weight = argument(call, "weight", 2 if name.startswith("F.") else 0)
        if weight is not None and _is_frequency(code, weight):
            yield call
    for call in code.calls:
        sampler = code.called(call).endswith("WeightedRandomSampler")
        weight = argument(call, "weights", 0) if sampler else None
        weight = code.resolved(weight) if name_of(weight) else weight
        looked_up = isinstance(weight, ast.Subscript) and isinstance(weight.slice, ast.Name)
        if looked_up and _is_frequency(code, weight.value):
            yield call


_CASTS = ("tensor", "FloatTensor", "Tensor", "as_tensor", "from_numpy", "array", "asarray")


def _is_frequency(code, node):
    """Return True for counts of the classes, even divided by their sum or a number of samples."""
    for _ in range(8):
        if isinstance(node, ast.Name | ast.Attribute) and name_of(node):
            node = code.resolved(node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            if _is_count(code, node.right):  # `counts.sum() / counts`
                return False
            node = node.left
        elif method(node) in _CASTS and node.args:
            node = node.args[0]
        elif method(node) in ("float", "to", "cuda", "double") and receiver(node) is not None:
            node = receiver(node)
        else:
            break
    return _is_count(code, node)


def _is_count(code, node):
    """Return True for `torch.bincount(labels)`, `np.bincount(labels)`, `labels.bincount()`."""
    for _ in range(4):
        if isinstance(node, ast.Name | ast.Attribute) and name_of(node):
            node = code.resolved(node)
        elif method(node) in ("float", "to", "cuda", "double", "clamp") and receiver(node):
            node = receiver(node)
        elif method(node) in _CASTS and node.args:
            node = node.args[0]
    return method(node) == "bincount"
