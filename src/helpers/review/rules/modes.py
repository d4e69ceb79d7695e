"""Training and evaluation mode, and gradients in validation."""

import ast
import re

from helpers.review.code import Part
from helpers.review.flow import events
from helpers.review.kinds import (
    batch_loop,
    is_model,
    is_optimizer,
    is_scheduler,
    iterated,
    kind,
    no_graph,
)
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    above,
    inside,
    last,
    method,
    place,
    receiver,
    text,
)
from helpers.review.tracing import construction

_VALIDATION = re.compile(
    r"(?i)(^|_|\.)(val|valid|validation|test|dev|eval)([_\d]|$|loader|dl|iter|data)"
)
_DEPENDS = re.compile(
    r"Dropout|BatchNorm|dropout|InstanceNorm|models\.|timm|from_pretrained|torchvision"
)
_FAMILY = re.compile(
    r"ResNet|resnet|VGG|DenseNet|MobileNet|EfficientNet|Inception|Transformer|BERT"
)
_MODES = ("train", "eval")
_FRAMEWORK = re.compile(r"(?i)lightning|import (fastai|ignite|keras)|from (fastai|ignite|keras)")


@rule("training-mode-lost", "wrong")
def mode_lost(code):
    """`model.eval()` without `model.train()` in each epoch: later epochs train in eval mode."""
    for loop in code.loops:
        if any(above(loop, *LOOPS)):
            continue
        order = events(code, loop, 3)
        kinds = {one.what for one in order}
        if not {"eval", "backward"} <= kinds or not kinds & {"step", "scaled"}:
            continue
        evals = [one for one in order if one.what == "eval"]
        trained = {one.name.split(".")[-1] for one in _trained(code, order)}
        mine = [e for e in evals if e.name.split(".")[-1] in trained] or evals
        restored = re.search(_RESTORES, _texts(code, loop))
        if not restored and _same_model(mine):
            yield mine[0].call
    yield from _lost_in_epoch(code)


def _lost_in_epoch(code):
    """`if step % 100 == 0: evaluate(model)` between batches, and `train()` once in an epoch."""
    for loop in code.loops:
        if not batch_loop(code, loop) or _FRAMEWORK.search(code.source):
            continue
        order = events(code, loop, 3)
        kinds = {one.what for one in order}
        if not {"eval", "backward"} <= kinds or not kinds & {"step", "scaled"}:
            continue
        if re.search(_RESTORES, _texts(code, loop)):
            continue
        first = next(n for n, one in enumerate(order) if one.what == "backward")
        late = [one for one in order[first:] if one.what == "eval"]
        trained = [
            c for c in code.methods(code.function(loop), "train") if is_model(code, receiver(c))
        ]
        named = {(text(receiver(one)) or "").split(".")[-1] for one in trained if not one.args}
        late = [one for one in late if one.name.split(".")[-1] in named]
        call = _called_in(code, loop, late[0].call) if late and _same_model(late) else None
        if call is not None and not _ends(loop, call):
            yield call


_RESTORES = r"\.train\(|\.training = |set_mode|training_mode|freeze|set_train"


def _called_in(code, loop, call):
    """Return the call in the loop that runs the given call."""
    for one in code.calls_under(loop):
        if one is call or any(
            inner is call for target in code.targets(one) for inner in code.calls_under(target, 2)
        ):
            return one
    return call


def _ends(loop, call):
    """Return whether `break` or `return` follows the evaluation, or it runs at the last batch."""
    up = next(above(call, ast.If), None)
    if up is None or not inside(up, loop):
        return False
    return isinstance(up.body[-1], ast.Break | ast.Return) or "len(" in ast.unparse(up.test)


def _trained(code, steps):
    return [one for one in steps if one.what == "zero_grad" and is_model(code, receiver(one.call))]


def _texts(code, loop):
    """Return the source of the loop and of the functions that it calls."""
    parts = [code.part(loop)]
    for node in code.walk(loop, 3):
        if isinstance(node, ast.Call):
            parts += [code.part(target) for target in code.targets(node)]
    return "\n".join(parts)


def _same_model(evals):
    """Return whether no model in eval mode has the name of an untrained one, as `teacher`."""
    names = {one.name.split(".")[-1] for one in evals}
    frozen = {
        "teacher",
        "target",
        "ema",
        "old",
        "ref",
        "vae",
        "backbone",
        "extractor",
        "feature_extractor",
    }
    return not any(word in name.lower() for name in names for word in frozen)


@rule("training-mode-validation", "wrong")
def training_in_validation(code):
    """`model.train()` in a loop over validation data that has no backward pass."""
    for loop in code.loops:
        if not batch_loop(code, loop) or not no_graph(code, loop):
            continue
        order = events(code, loop, 1)
        if any(one.what == "train" for one in order):
            kinds = {one.what for one in order}
            if not kinds & {"backward", "step"}:
                train = next(one for one in order if one.what == "train")
                if not any(
                    one.what == "eval" and place(one.call) < place(train.call) for one in order
                ) and _called_after(code, loop, train.call):
                    yield train.call
    yield from _training_before_loop(code)


def _training_before_loop(code):
    """Yield `model.train()` at the start of `evaluate`, which has no backward pass."""
    for (_, name), function in code.functions.items():
        if not re.match(r"(?i)_?(val(id)?(ate|ation)?|test|eval(uate|uation)?)(_|$)", name):
            continue
        order = [one for one in events(code, function, 1) if one.what in (*_MODES, "backward")]
        loops = [
            one
            for one in code.loops
            if one.scope is function and batch_loop(code, one)
            if no_graph(code, one) or _held_out(one)
        ]
        if [one.what for one in order] == ["train"] and loops and function.body:
            if place(order[0].call) < place(loops[0]) and not re.search("(?i)bn|dropout", name):
                yield order[0].call


def _held_out(loop):
    """Return whether the name of the loader is one of test or validation data."""
    return bool(
        re.search(r"(?i)\b(test|val(id)?|eval|dev)\w*(loader|_dl)\b", ast.unparse(loop.iter))
    )


def _called_after(code, loop, train):
    return any(
        isinstance(node, ast.Call) and is_model(code, node.func) and place(node) > place(train)
        for node in code.walk(loop)
    )


@rule("evaluation-loop-changes-model", "wrong")
def no_eval(code):
    """Validation without `model.eval()`, with a model that has dropout or BatchNorm."""
    if _FRAMEWORK.search(code.source):
        return
    if re.search(
        r"\.eval\(\)|\.train\((False|mode|train|is_train|phase)|set_eval|\.training = ",
        code.source,
    ):
        return
    depends = _DEPENDS.search(code.source) or _FAMILY.search(code.source)
    trained = {text(receiver(c)) for c in code.calls if method(c) == "train" and not c.args}
    for loop in code.loops:
        if not batch_loop(code, loop) or code.methods(loop, "backward", "train", follow=2):
            continue
        chosen = code.methods(code.function(loop), "train")  # as for BatchNorm statistics
        if isinstance(code.function(loop), FUNCTIONS) and chosen:
            continue
        around = getattr(code.function(loop), "name", "")
        named = depends and (
            _VALIDATION.search(text(iterated(loop.iter)) or "")
            or re.match(r"(?i)_?(val(id)?(ate|ation)?|test|eval(uate|uation)?)(_|$)", around)
            and no_graph(code, loop)
        )
        for call in code.calls_under(loop):
            off = text(call.func) in trained and is_model(code, call.func) and no_graph(code, call)
            if off or named and _own_model(code, call.func):
                yield call
                break


def _own_model(code, func):
    """Return True for a model that this file creates, of its own class or a known family."""
    if (kind(code, func) or "").startswith("module:"):
        return True
    built = construction(code, func) if isinstance(func, ast.Name) else None
    return is_model(code, func) and _FAMILY.search(last(getattr(built, "func", None))) is not None


@rule("evaluation-keeps-graph", "wasted")
def eval_with_graph(code):
    """Validation with `model.eval()` and without `torch.no_grad()`."""
    off = re.compile(
        r"no_grad|inference_mode|set_grad_enabled|requires_grad|autograd(?!\.Variable)|volatile|attack|\badv|_adv|saliency|\.grad\b"
    )
    if _FRAMEWORK.search(code.source):
        return
    for loop in code.loops:
        if (
            not batch_loop(code, loop)
            or no_graph(code, loop)
            or any(off.search(c) for c in _context(code, loop))
        ):
            continue
        around = code.function(loop)
        if code.methods(loop, "backward", follow=2) or _called_without_graph(code, around):
            continue
        for node in code.walk(loop):
            if isinstance(node, ast.Call) and _in_eval(code, node, loop):
                yield node
                break


def _in_eval(code, call, loop):
    """Return whether `eval` is the model's last mode before the loop in this function."""
    if not is_model(code, call.func):
        return False
    values = call.scope.assigned.get(text(call.func), ())
    latest = max((one.end for one in values if one.end < place(loop)), default=(0, 0))
    modes = [
        one.what
        for one in events(code, code.function(loop), 0)
        if one.what in _MODES
        and latest < place(one.call) < place(loop)
        and one.name == text(call.func)
    ]
    return modes[-1:] == ["eval"]


def _context(code, loop):
    around = code.function(loop)
    if isinstance(around, FUNCTIONS):
        yield code.part(around)
    else:
        yield code.part(loop)
        yield "\n".join(code.lines[max(0, loop.lineno - 8) : loop.lineno])
    if "set_grad_enabled(False)" in code.source:
        yield "set_grad_enabled"


def _called_without_graph(code, function):
    callers = code.callers.get(function, ())
    return any(no_graph(code, call) for call in callers)


@rule("grad-modes-bare", "wrong")
def bare(code):
    """`torch.no_grad()` as a statement, or `with torch.no_grad:`."""
    for node in code.of(ast.Expr):
        if not getattr(node.value, "args", None):
            if code.called(node.value) in (
                "torch.no_grad",
                "torch.inference_mode",
                "torch.enable_grad",
            ) and not code.is_display(node):
                yield node
        if isinstance(node, ast.With):
            for item in node.items:
                if code.dotted(item.context_expr) in ("torch.no_grad", "torch.inference_mode"):
                    yield node


@rule("grad-modes-alias", "wasted")
def alias_without_graph(code):
    """`with torch.no_grad(): frozen = noise`: the block computes nothing."""
    for node in code.of(ast.With):
        if any(
            code.called(item.context_expr) in ("torch.no_grad", "torch.inference_mode")
            for item in node.items
        ) and all(
            isinstance(one, ast.Assign)
            and isinstance(one.targets[0], ast.Name)
            and isinstance(one.value, ast.Name)
            for one in node.body
        ):
            yield node


@rule("grad-modes-generator", "wrong")
def generator(code):
    """`yield` inside `with torch.no_grad():`: the caller's code runs without gradients."""
    for node in code.of(ast.Yield, ast.YieldFrom):
        around = code.function(node)
        decorated = " ".join(ast.unparse(one) for one in getattr(around, "decorator_list", ()))
        if "contextmanager" in decorated or "fixture" in decorated:
            continue
        for up in above(node, ast.With):
            if any(
                code.called(i.context_expr) in ("torch.no_grad", "torch.inference_mode")
                for i in up.items
            ):
                yield node
                break


@rule("training-mode-called", "wrong")
def mode_not_called(code):
    """`model.eval`, `optimizer.step` or `loss.backward` without parentheses."""
    for node in code.of(ast.Expr):
        attribute = node.value
        if not isinstance(attribute, ast.Attribute) or code.is_display(node):
            continue
        if attribute.attr in ("eval", "train", "cuda"):
            mistake = is_model(code, attribute.value)
        elif attribute.attr in ("step", "zero_grad"):
            mistake = is_optimizer(code, attribute.value) or is_scheduler(code, attribute.value)
        else:
            named = re.search(r"(?i)loss", text(attribute.value) or "")
            mistake = attribute.attr == "backward" and named
        if mistake:
            yield node


@rule("training-mode-inference", "wrong")
def inference_in_training_mode(code):
    """`model.load_state_dict(…)` and `model.train()` in a file that only predicts."""
    trains = r"backward|optim|\.eval\(|\.train\(False|fit\(|[Tt]rainer|\bgrad\b|freeze"
    if re.search(trains, code.source) or _FRAMEWORK.search(code.source):
        return
    for call in code.calls:
        if method(call) != "train" or call.args or call.keywords or call.owner is not None:
            continue
        loaded = [
            one
            for one in code.calls
            if method(one) == "load_state_dict" and text(receiver(one)) == text(receiver(call))
            if one.scope is call.scope and place(one) < place(call)
        ]
        if loaded and _called_after(code, code.function(call), call):
            yield call


@rule("fine-tuning-teacher", "wasted")
def teacher_with_graph(code):
    """A teacher whose output builds a graph, without `no_grad` or `detach`."""
    for loop in code.loops:
        if not code.methods(loop, "backward"):
            continue
        for node in code.walk(loop):
            if not isinstance(node, ast.Call) or not re.search(
                r"(?i)(^|[._])teacher(_model|_net)?$", text(node.func) or ""
            ):
                continue
            name = (text(node.func) or "").split(".")[-1]
            if no_graph(code, node) or re.search(
                rf"{name}[\w.]*\.(requires_grad_\(False|parameters\(\))|freeze|detach", code.source
            ):
                continue
            if isinstance(node.parent, ast.Assign) or isinstance(
                code.value(node.func), ast.AST | Part | None
            ):
                yield node


@rule("normalization-frozen-undone", "wrong", ".eval()")
def frozen_before_train(code):
    """`m.eval()` for each BatchNorm before the epochs, and `model.train()` in each of them."""
    if re.search(r"def train\(\s*self", code.source) or _FRAMEWORK.search(code.source):
        return
    for call in [one for scope in code.scopes for one in code.methods(scope, "eval")]:
        loop = next(above(call, ast.For), None)
        if call.args or not _is_norm(call, loop):
            continue
        around = code.function(call)
        later = [one for one in code.calls if _trains_in_loop(code, one)]
        if isinstance(around, ast.Module):  # a cell of its own may freeze another model
            over = [one for one in ast.walk(loop.iter) if "modules" in method(one)]
            later = [one for one in later if text(receiver(one)) == text(receiver(over[0]))]
            later = [one for one in later if place(one) > place(call)]
            if ".train()" in "".join(code.lines[max(0, loop.lineno - 3) : loop.lineno - 1]):
                continue  # written to follow each `train()`
        alone = isinstance(around, ast.Module) or any(one.scope is around for one in later)
        places = [call] if alone else code.callers.get(around, [])
        for _ in range(2):  # a method that another method calls
            outer = [code.function(one) for one in places]
            if places and all(getattr(one, "owner", None) is not None for one in outer):
                places = [one for f in outer for one in code.callers.get(f, [])] or places
        frozen = [one for one in places if not _in_epochs(code, one)]
        if later and places and len(frozen) == len(places):
            yield call


def _is_norm(call, loop):
    """Return True for `m.eval()` in a loop over the modules that selects norm layers."""
    if loop is None or text(receiver(call)) not in [
        text(one) for one in ast.walk(loop.target) if isinstance(one, ast.Name)
    ]:
        return False
    tests = [ast.unparse(one.test) for one in above(call, ast.If) if inside(one, loop)]
    modules = re.search(r"\.(named_)?modules\(\)", ast.unparse(loop.iter))
    return modules and any("isinstance" in one and re.search("Norm|norm|BN", one) for one in tests)


def _trains_in_loop(code, call):
    """Return True for `model.train()` in a loop over epochs, even in a function that it calls."""
    plain = method(call) == "train" and not call.args and not call.keywords
    return plain and is_model(code, receiver(call)) and bool(code.loops_around(call))


def _in_epochs(code, call):
    """Return whether a training loop is around a call or around its callers."""
    return any(code.methods(loop, "backward", follow=3) for loop in code.loops_around(call))
