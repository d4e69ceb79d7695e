"""New layers of a pretrained model that are frozen, or have a name that the model does not use."""

import ast
import re

from helpers.review.kinds import kind
from helpers.review.registry import rule
from helpers.review.rules.modules import learns
from helpers.review.rules.parameters import optimizers
from helpers.review.syntax import ancestors, argument, const, method, name_of, receiver
from helpers.review.tracing import construction

_FAMILIES = (
    (r"(wide_)?resne(x?t)\w*|googlenet|inception_v3|shufflenet\w*|regnet\w*", "fc"),
    (
        r"vgg\w*|alexnet|densenet\w*|mobilenet\w*|efficientnet\w*|squeezenet\w*|mnasnet\w*|"
        r"convnext\w*",
        "classifier",
    ),
    (r"vit_\w+", "heads"),
    (r"swin\w*", "head"),
)
_HEADS = ("fc", "classifier", "head", "heads", "linear", "last_linear", "out", "output")


@rule("fine-tuning-head-name", "wrong", "models.|models import")
def head_of_other_name(code):
    """`resnet.classifier = nn.Linear(512, 10)`: the model uses `fc`."""
    for node in code.nodes_of(ast.Assign):
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr not in _HEADS:
            continue
        if name_of(target.value) == "self" or not _is_layer(code, node.value):
            continue
        name = code.called(construction(code, target.value))
        right = _head(name.removeprefix("models.")) if name.startswith("models.") else None
        if right and right != target.attr and not _is_called(code, target):
            yield node


def _head(name):
    return next((head for family, head in _FAMILIES if re.fullmatch(family, name)), None)


def _is_layer(code, node):
    return isinstance(node, ast.Call) and (
        code.called(node).startswith("nn.") and learns(code, node) or "Sequential" in method(node)
    )


def _is_called(code, target):
    """Return whether the file calls the new layer itself."""
    written = name_of(target)
    return any(name_of(call.func) == written for call in code.calls)


@rule("fine-tuning-head-frozen", "wrong", "requires_grad")
def head_frozen(code):
    """`net.fc = nn.Linear(…)` and then `requires_grad = False` for all parameters."""
    for loop in code.nodes_of(ast.For):
        model = _frozen(loop)
        if model in (None, "self"):
            continue
        later = code.lines[loop.end_lineno :]
        source = "\n".join(
            later if loop.scope is code.tree else later[: _end_of_scope(loop) - loop.end_lineno]
        )
        changed = r"requires_grad|unfreeze|= *nn\.(Linear|Sequential)|"
        changed += r"\.(fc|heads?|classifier)\b(?!.*in_features)"
        replaced = _replaced_before(code, loop, model)
        trained = rf"\b{re.escape(model)}\.parameters\(" if replaced else _optimizes(model)
        if re.search(trained, source) and not re.search(changed, source):
            yield loop
    yield from _frozen_part(code)


def _optimizes(model):
    """Return the pattern of an optimizer of all parameters of a model."""
    return rf"optim\.\w+\(\s*(params=)?{re.escape(model)}\.parameters\(\)"


def _frozen_part(code):
    """`Adam(model.backbone.parameters())` of a part that the constructor of the model freezes."""
    if re.search(r"requires_grad_?\(?\s*=?\s*\(?True|unfreeze|requires_grad_\(\)", code.source):
        return
    frozen = {
        (loop.owner, _frozen(loop)) for loop in code.nodes_of(ast.For) if loop.owner is not None
    }
    for _, _, assignment, model in optimizers(code):
        base, _, part = (model or "").rpartition(".")
        for owner, name in frozen if base else ():
            is_instance = _class_of(code, assignment.value) == owner.name
            if name == f"self.{part}" and is_instance and not _replaced_part(code, owner, name):
                yield assignment.statement


def _replaced_part(code, owner, name):
    """Return whether a part of the frozen model is replaced by a layer that learns."""
    return any(
        attribute.startswith(f"{name}.") and _is_layer(code, assignment.value)
        for attribute, values in owner.attributes.items()
        for assignment in values
    )


def _class_of(code, call):
    """Return the class of `model` in `Adam(model.backbone.parameters())`."""
    params = argument(call, "params", 0)
    part = receiver(params) if isinstance(params, ast.Call) else None
    base = part.value if isinstance(part, ast.Attribute) else None
    return (kind(code, base) or "").removeprefix("module:")


def _end_of_scope(node):
    return getattr(node.scope, "end_lineno", None) or 0


def _frozen(loop):
    """Return `net` of `for p in net.parameters(): p.requires_grad = False`."""
    call = loop.iter
    if method(call) not in ("parameters", "named_parameters") or len(loop.body) != 1:
        return None
    only = loop.body[0]
    if isinstance(only, ast.Assign):
        target = only.targets[0]
        off = isinstance(target, ast.Attribute) and target.attr == "requires_grad"
        return name_of(receiver(call)) if off and const(only.value) is False else None
    off = isinstance(only, ast.Expr) and method(only.value) == "requires_grad_"
    requires_grad = argument(only.value, "requires_grad", 0) if off else None
    return (
        name_of(receiver(call))
        if requires_grad is not None and const(requires_grad) is False
        else None
    )


def _replaced_before(code, loop, model):
    """Return whether a head of the model is replaced above the loop in the same function."""
    for node in code.nodes_of(ast.Assign):
        target = node.targets[0]
        above_it = node.scope is loop.scope and node.end_lineno < loop.lineno
        branch = any(ancestors(node, ast.If)) or any(ancestors(loop, ast.If))
        if not above_it or branch or not isinstance(target, ast.Attribute | ast.Subscript):
            continue
        if (name_of(target) or "").startswith(f"{model}.") and _is_layer(code, node.value):
            return True
    return False
