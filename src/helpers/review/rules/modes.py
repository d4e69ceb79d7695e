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
    ancestors,
    descendants,
    is_inside,
    last_name,
    method,
    name_of,
    place,
    receiver,
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
    for loop in code.outer_loops:
        order = events(code, loop, 3)
        kinds = {event.kind for event in order}
        if not {"eval", "backward"} <= kinds or not kinds & {"step", "scaled"}:
            continue
        evals = [event for event in order if event.kind == "eval"]
        trained = {event.name.split(".")[-1] for event in _zeroed_models(code, order)}
        own_evals = [e for e in evals if e.name.split(".")[-1] in trained] or evals
        restored = re.search(_RESTORES, _sources(code, loop))
        if not restored and _same_model(own_evals):
            yield own_evals[0].call
    yield from _lost_in_epoch(code)


def _lost_in_epoch(code):
    """`if step % 100 == 0: evaluate(model)` between batches, and `train()` once in an epoch."""
    for loop in code.loops:
        if not batch_loop(code, loop) or _FRAMEWORK.search(code.source):
            continue
        order = events(code, loop, 3)
        kinds = {event.kind for event in order}
        if not {"eval", "backward"} <= kinds or not kinds & {"step", "scaled"}:
            continue
        if re.search(_RESTORES, _sources(code, loop)):
            continue
        first = next(n for n, event in enumerate(order) if event.kind == "backward")
        late = [event for event in order[first:] if event.kind == "eval"]
        trained = [
            c for c in code.methods(code.function_of(loop), "train") if is_model(code, receiver(c))
        ]
        named = {
            (name_of(receiver(other_call)) or "").split(".")[-1]
            for other_call in trained
            if not other_call.args
        }
        late = [event for event in late if event.name.split(".")[-1] in named]
        call = _called_in(code, loop, late[0].call) if late and _same_model(late) else None
        if call is not None and not _ends_training(loop, call):
            yield call


_RESTORES = r"\.train\(|\.training = |set_mode|training_mode|freeze|set_train"


def _called_in(code, loop, call):
    """Return the call in the loop that runs the given call."""
    for other_call in code.calls_under(loop):
        if other_call is call or any(
            inner is call
            for target in code.targets(other_call)
            for inner in code.calls_under(target, 2)
        ):
            return other_call
    return call


def _ends_training(loop, call):
    """Return whether `break` or `return` follows the evaluation, or it runs at the last batch."""
    branch = next(ancestors(call, ast.If), None)
    if branch is None or not is_inside(branch, loop):
        return False
    return isinstance(branch.body[-1], ast.Break | ast.Return) or "len(" in ast.unparse(branch.test)


def _zeroed_models(code, steps):
    return [
        step for step in steps if step.kind == "zero_grad" and is_model(code, receiver(step.call))
    ]


def _sources(code, loop):
    """Return the source of the loop and of the functions that it calls."""
    parts = [code.source_of(loop)]
    for node in code.walk(loop, 3):
        if isinstance(node, ast.Call):
            parts += [code.source_of(target) for target in code.targets(node)]
    return "\n".join(parts)


def _same_model(evals):
    """Return whether no model in eval mode has the name of an untrained one, such as `teacher`."""
    names = {eval_event.name.split(".")[-1] for eval_event in evals}
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
        if any(event.kind == "train" for event in order):
            kinds = {event.kind for event in order}
            if not kinds & {"backward", "step"}:
                train = next(event for event in order if event.kind == "train")
                if not any(
                    event.kind == "eval" and place(event.call) < place(train.call)
                    for event in order
                ) and _called_after(code, loop, train.call):
                    yield train.call
    yield from _training_before_loop(code)


def _training_before_loop(code):
    """Yield `model.train()` at the start of `evaluate`, which has no backward pass."""
    for (_, name), function in code.functions.items():
        if not re.match(r"(?i)_?(val(id)?(ate|ation)?|test|eval(uate|uation)?)(_|$)", name):
            continue
        order = [
            event for event in events(code, function, 1) if event.kind in (*_MODES, "backward")
        ]
        loops = [
            loop
            for loop in code.loops
            if loop.scope is function and batch_loop(code, loop)
            if no_graph(code, loop) or _held_out(loop)
        ]
        if [event.kind for event in order] == ["train"] and loops and function.body:
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
    trained = {name_of(receiver(c)) for c in code.calls_named("train") if not c.args}
    for loop in code.loops:
        if not batch_loop(code, loop) or code.methods(loop, "backward", "train", follow=2):
            continue
        chosen = code.methods(code.function_of(loop), "train")  # as for BatchNorm statistics
        if isinstance(code.function_of(loop), FUNCTIONS) and chosen:
            continue
        function_name = getattr(code.function_of(loop), "name", "")
        named = depends and (
            _VALIDATION.search(name_of(iterated(loop.iter)) or "")
            or re.match(r"(?i)_?(val(id)?(ate|ation)?|test|eval(uate|uation)?)(_|$)", function_name)
            and no_graph(code, loop)
        )
        for call in code.calls_under(loop):
            off = (
                name_of(call.func) in trained and is_model(code, call.func) and no_graph(code, call)
            )
            if off or named and _own_model(code, call.func):
                yield call
                break


def _own_model(code, func):
    """Return True for a model that this file creates, of its own class or a known family."""
    if (kind(code, func) or "").startswith("module:"):
        return True
    constructor = construction(code, func) if isinstance(func, ast.Name) else None
    return (
        is_model(code, func)
        and _FAMILY.search(last_name(getattr(constructor, "func", None))) is not None
    )


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
            or any(off.search(c) for c in _sources_around(code, loop))
        ):
            continue
        function = code.function_of(loop)
        if code.methods(loop, "backward", follow=2) or _called_without_graph(code, function):
            continue
        for node in code.walk(loop):
            if isinstance(node, ast.Call) and _in_eval(code, node, loop):
                yield node
                break


def _in_eval(code, call, loop):
    """Return whether `eval` is the model's last mode before the loop in this function."""
    if not is_model(code, call.func):
        return False
    values = call.scope.assigned.get(name_of(call.func), ())
    latest = max(
        (assignment.end for assignment in values if assignment.end < place(loop)), default=(0, 0)
    )
    modes = [
        event.kind
        for event in events(code, code.function_of(loop), 0)
        if event.kind in _MODES
        and latest < place(event.call) < place(loop)
        and event.name == name_of(call.func)
    ]
    return modes[-1:] == ["eval"]


def _sources_around(code, loop):
    function = code.function_of(loop)
    if isinstance(function, FUNCTIONS):
        yield code.source_of(function)
    else:
        yield code.source_of(loop)
        yield "\n".join(code.lines[max(0, loop.lineno - 8) : loop.lineno])
    if "set_grad_enabled(False)" in code.source:
        yield "set_grad_enabled"


def _called_without_graph(code, function):
    callers = code.callers.get(function, ())
    return any(no_graph(code, call) for call in callers)


@rule("grad-modes-bare", "wrong")
def bare(code):
    """`torch.no_grad()` as a statement, or `with torch.no_grad:`."""
    for node in code.nodes_of(ast.Expr):
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
    for node in code.nodes_of(ast.With):
        if any(
            code.called(item.context_expr) in ("torch.no_grad", "torch.inference_mode")
            for item in node.items
        ) and all(
            isinstance(statement, ast.Assign)
            and isinstance(statement.targets[0], ast.Name)
            and isinstance(statement.value, ast.Name)
            for statement in node.body
        ):
            yield node


@rule("grad-modes-generator", "wrong")
def generator(code):
    """`yield` inside `with torch.no_grad():`: the caller's code runs without gradients."""
    for node in code.nodes_of(ast.Yield, ast.YieldFrom):
        function = code.function_of(node)
        decorated = " ".join(
            ast.unparse(decorator) for decorator in getattr(function, "decorator_list", ())
        )
        if "contextmanager" in decorated or "fixture" in decorated:
            continue
        for block in ancestors(node, ast.With):
            if any(
                code.called(i.context_expr) in ("torch.no_grad", "torch.inference_mode")
                for i in block.items
            ):
                yield node
                break


@rule("training-mode-called", "wrong")
def mode_not_called(code):
    """`model.eval`, `optimizer.step` or `loss.backward` without parentheses."""
    for node in code.nodes_of(ast.Expr):
        attribute = node.value
        if not isinstance(attribute, ast.Attribute) or code.is_display(node):
            continue
        if attribute.attr in ("eval", "train", "cuda"):
            mistake = is_model(code, attribute.value)
        elif attribute.attr in ("step", "zero_grad"):
            mistake = is_optimizer(code, attribute.value) or is_scheduler(code, attribute.value)
        else:
            named = re.search(r"(?i)loss", name_of(attribute.value) or "")
            mistake = attribute.attr == "backward" and named
        if mistake:
            yield node


@rule("training-mode-inference", "wrong")
def inference_in_training_mode(code):
    """`model.load_state_dict(…)` and `model.train()` in a file that only predicts."""
    trains = r"backward|optim|\.eval\(|\.train\(False|fit\(|[Tt]rainer|\bgrad\b|freeze"
    if re.search(trains, code.source) or _FRAMEWORK.search(code.source):
        return
    for call in code.calls_named("train"):
        if call.args or call.keywords or call.owner is not None:
            continue
        loaded = [
            other_call
            for other_call in code.calls_named("load_state_dict")
            if name_of(receiver(other_call)) == name_of(receiver(call))
            if other_call.scope is call.scope and place(other_call) < place(call)
        ]
        if loaded and _called_after(code, code.function_of(call), call):
            yield call


@rule("fine-tuning-teacher", "wasted")
def teacher_with_graph(code):
    """A teacher whose output builds a graph, without `no_grad` or `detach`."""
    for loop in code.loops:
        if not code.methods(loop, "backward"):
            continue
        for node in code.walk(loop):
            if not isinstance(node, ast.Call) or not re.search(
                r"(?i)(^|[._])teacher(_model|_net)?$", name_of(node.func) or ""
            ):
                continue
            name = (name_of(node.func) or "").split(".")[-1]
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
    for call in [other_call for scope in code.scopes for other_call in code.methods(scope, "eval")]:
        loop = next(ancestors(call, ast.For), None)
        if call.args or not _is_norm(call, loop):
            continue
        outer_function = code.function_of(call)
        later = [other_call for other_call in code.calls if _trains_in_loop(code, other_call)]
        if isinstance(outer_function, ast.Module):  # a cell of its own may freeze another model
            module_calls = [node for node in descendants(loop.iter) if "modules" in method(node)]
            later = [
                other_call
                for other_call in later
                if name_of(receiver(other_call)) == name_of(receiver(module_calls[0]))
            ]
            later = [other_call for other_call in later if place(other_call) > place(call)]
            if ".train()" in "".join(code.lines[max(0, loop.lineno - 3) : loop.lineno - 1]):
                continue  # written to follow each `train()`
        alone = isinstance(outer_function, ast.Module) or any(
            other_call.scope is outer_function for other_call in later
        )
        places = [call] if alone else code.callers.get(outer_function, [])
        for _ in range(2):  # a method that another method calls
            outer = [code.function_of(frozen_call) for frozen_call in places]
            if places and all(getattr(function, "owner", None) is not None for function in outer):
                places = [
                    other_call for f in outer for other_call in code.callers.get(f, [])
                ] or places
        frozen = [frozen_call for frozen_call in places if not _in_epochs(code, frozen_call)]
        if later and places and len(frozen) == len(places):
            yield call


def _is_norm(call, loop):
    """Return True for `m.eval()` in a loop over the modules that selects norm layers."""
    if loop is None or name_of(receiver(call)) not in [
        name_of(node) for node in descendants(loop.target) if isinstance(node, ast.Name)
    ]:
        return False
    tests = [
        ast.unparse(branch.test) for branch in ancestors(call, ast.If) if is_inside(branch, loop)
    ]
    modules = re.search(r"\.(named_)?modules\(\)", ast.unparse(loop.iter))
    return modules and any(
        "isinstance" in test and re.search("Norm|norm|BN", test) for test in tests
    )


def _trains_in_loop(code, call):
    """Return True for `model.train()` in a loop over epochs, even in a function that it calls."""
    plain = method(call) == "train" and not call.args and not call.keywords
    return plain and is_model(code, receiver(call)) and bool(code.loops_around(call))


def _in_epochs(code, call):
    """Return whether a training loop is around a call or around its callers."""
    return any(code.methods(loop, "backward", follow=3) for loop in code.loops_around(call))
