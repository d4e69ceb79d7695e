"""Infer the kind of a value: tensor, loss, number, optimizer, scheduler, loader, module, …"""

from __future__ import annotations

import ast
import re
from typing import Any

from helpers.review.code import Code, Part, has_parameter
from helpers.review.syntax import (
    FUNCTIONS,
    ancestors,
    const,
    descendants,
    last_name,
    method,
    name_of,
    wrapped,
)

LOSSES = {
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "kl_div",
    "ctc_loss",
    "triplet_margin_loss",
    "cosine_embedding_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "poisson_nll_loss",
    "gaussian_nll_loss",
}
CREATE = {
    "tensor",
    "zeros",
    "ones",
    "rand",
    "randn",
    "randint",
    "empty",
    "full",
    "arange",
    "linspace",
    "eye",
    "randperm",
    "zeros_like",
    "ones_like",
    "rand_like",
    "randn_like",
    "full_like",
    "empty_like",
    "from_numpy",
    "as_tensor",
    "Tensor",
    "FloatTensor",
    "LongTensor",
    "normal",
    "cat",
    "stack",
    "where",
    "matmul",
    "bmm",
    "mm",
    "einsum",
    "exp",
    "log",
    "sqrt",
    "relu",
    "sigmoid",
    "tanh",
    "softmax",
    "log_softmax",
    "flatten",
    "mean",
    "sum",
    "abs",
    "clamp",
    "multinomial",
    "argmax",
    "bernoulli",
    "transpose",
    "permute",
    "squeeze",
    "unsqueeze",
    "mul",
    "add",
    "pow",
    "concat",
}
MOVES = {
    "to",
    "cuda",
    "cpu",
    "float",
    "half",
    "double",
    "bfloat16",
    "long",
    "int",
    "bool",
    "byte",
    "type",
}
_NO_TENSOR = {
    "item",
    "tolist",
    "numpy",
    "size",
    "dim",
    "numel",
    "type",
    "is_contiguous",
    "get_device",
    "data_ptr",
    "backward",
    "stride",
    "element_size",
    "nelement",
    "state_dict",
    "parameters",
    "named_parameters",
    "children",
    "modules",
    "keys",
    "items",
    "values",
    "pop",
    "get",
    "append",
    "extend",
    "update",
    "split",
    "join",
    "shape",
}
_SAME = MOVES | {"eval", "train", "requires_grad_", "apply", "share_memory"}
_TUPLES = {"LSTM", "GRU", "RNN", "MultiheadAttention", "LSTMCell"}
_MODULES = {"nn.Module", "nn.Sequential", "nn.ModuleList"}


def is_module_class(code: Code, name: str) -> bool:
    """Return True if a local class is an `nn.Module`."""
    return any(
        (dotted := code.dotted(base) or "") in _MODULES
        or dotted.endswith(("LightningModule", "PreTrainedModel"))
        or dotted.startswith("models.")
        or isinstance(base, ast.Attribute)
        and base.attr == "Module"
        for owner in code.bases(name)
        for base in owner.bases
    )


def kind(code: Code, node: Any) -> str | None:
    """Return the kind of an expression.

    Returns:
        `tensor`, `loss` (a tensor that a loss function returned), `number`, `optimizer`,
        `scheduler`, `loader`, `dataset`, `scaler`, `lossfn:X`, `module:X` and `object:X` with the
        name X of the class, or None if it cannot be inferred.
    """
    if node is None:
        return None
    if node not in code.kinds:
        code.kinds[node] = None  # a circular assignment has no kind
        code.kinds[node] = _infer(code, node)
    return code.kinds[node]


def _infer(code: Code, node: Any) -> str | None:
    if isinstance(node, Part):
        return _part(code, node)
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return _name(code, node)
    if isinstance(node, ast.BinOp):
        kinds = {kind(code, node.left), kind(code, node.right)}
        return next((type_name for type_name in ("loss", "tensor") if type_name in kinds), None)
    if isinstance(node, ast.UnaryOp):
        return "number" if const(node) is not None else kind(code, node.operand)
    if isinstance(node, ast.IfExp):
        return kind(code, node.body) or kind(code, node.orelse)
    if isinstance(node, ast.Await | ast.NamedExpr):
        return kind(code, node.value)
    if isinstance(node, ast.Call):
        return _imported(code, node) or _local(code, node)
    number = isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    return "number" if number else None


def _part(code: Code, part: Part) -> str | None:
    if method(part.value) == "prepare" and part.index is not None:  # of accelerate
        arguments = part.value.args[part.index : part.index + 1]
        return kind(code, arguments[0]) if arguments else None
    inner = kind(code, part.value)
    if part.index is None:
        named = re.search(r"(?i)(loader|_dl|_iter|dataloader)s?$", name_of(part.value) or "")
        return "tensor" if inner in {"loader", "tensor"} or named else None
    if code.called(part.value) == "data.random_split":
        return "dataset"
    if (element := code.element(part)) is not None:
        return kind(code, element)
    return "tensor" if inner == "tensor" else None


def _name(code: Code, node: ast.AST) -> str | None:
    name = name_of(node)
    if name == "self" and node.owner is not None and is_module_class(code, node.owner.name):
        return f"module:{node.owner.name}"
    if isinstance(node, ast.Attribute) and node.attr in {"data", "grad", "T", "mT", "logits"}:
        if kind(code, node.value) in {"tensor", "loss"}:
            return "tensor"
    value = code.value(node) if name else None
    if value is not None:
        type_name = kind(code, value)
        if type_name or not isinstance(value, Part):
            number = isinstance(value, ast.Constant)
            return type_name or ("loss" if name in node.scope.backward and not number else None)
    elif passed_kind := _kind_of_arguments(code, node):
        return passed_kind
    if isinstance(node, ast.Subscript) and kind(code, node.value) == "tensor":
        return "tensor"
    return "loss" if name in node.scope.backward else None


def _kind_of_arguments(code: Code, node: ast.AST) -> str | None:
    """Return the kind of a parameter if all local calls pass arguments of the same kind."""
    scope, name = node.scope, name_of(node)
    if not isinstance(node, ast.Name) or not isinstance(scope, FUNCTIONS):
        return None
    if not has_parameter(scope, name) or name in scope.assigned:
        return None
    passed_arguments = code.arguments(scope, name)[:8]
    if (
        not passed_arguments
        and re.fullmatch(r"(\w+_)?(model|net|network)", name)
        and scope.owner is None
    ):
        return f"module:{code.main_class}" if code.main_class else None
    kinds = {kind(code, argument) for argument in passed_arguments}
    return kinds.pop() if len(kinds) == 1 else None


WRAPPERS = {  # functions whose result is called like the wrapped module
    "torch.compile",
    "nn.DataParallel",
}
_HEADS = {"optim": "optimizer", "sched": "scheduler"}
_WHOLE = {
    "data.DataLoader": "loader",
    "amp.GradScaler": "scaler",
    "nn.Parameter": "tensor",
    "data.TensorDataset": "dataset",
    "data.Subset": "dataset",
    "swa.AveragedModel": "module:AveragedModel",
    "swa.SWALR": "scheduler",
}


def _imported(code: Code, node: ast.Call) -> str | None:
    name = code.called(node)
    head, _, tail = name.partition(".")
    if name in _WHOLE:
        return _WHOLE[name]
    if name in WRAPPERS and node.args and (inner := kind(code, node.args[0])) is not None:
        return inner
    if head == "nn" and tail[:1].isupper():
        return ("lossfn:" if tail.endswith("Loss") else "module:") + tail
    if head in _HEADS and tail[:1].isupper():
        return _HEADS[head]
    if head == "models" and tail:
        return f"module:{tail}"
    if name.startswith("transformers.get_") and name.endswith(("schedule", "with_warmup")):
        return "scheduler"
    if name.startswith("torchvision.datasets"):
        return "dataset"
    if name in {"copy.deepcopy", "torch.jit.script"} and node.args:
        return kind(code, node.args[0])
    if head == "F":
        return "loss" if tail in LOSSES else "tensor"
    return "tensor" if head == "torch" and tail in CREATE else None


def _local(code: Code, node: ast.Call) -> str | None:
    func = node.func
    if isinstance(func, ast.Name):
        if func.id in code.classes:
            how = "module" if is_module_class(code, func.id) else _kind_of_object(code, func.id)
            return how if ":" in how else f"{how}:{func.id}"
        if func.id in {"float", "int", "len", "round", "str", "bool"}:
            return "number"
    if isinstance(func, ast.Attribute):
        base = kind(code, func.value) or ""
        if base.startswith(("module:", "lossfn:")) and func.attr in _SAME:
            return base
        if base in {"tensor", "loss"}:
            return _of_tensor(base, func.attr)
    base = kind(code, func) or ""
    if base.startswith("lossfn:"):
        return "loss"
    if base.startswith("module:") and base[7:] not in _TUPLES:
        return "tensor"
    return _kind_of_result(code, node)


def _kind_of_object(code: Code, name: str) -> str:
    bases = {code.dotted(base) for owner in code.bases(name) for base in owner.bases}
    if any((base or "").startswith("data.") for base in bases):
        return "dataset:" + name
    if any((base or "").startswith("optim.") for base in bases):
        return "optimizer:" + name
    if any((base or "").startswith("sched.") for base in bases):
        return "scheduler:" + name
    return "object"


def _of_tensor(base: str, name: str) -> str | None:
    if name in {"item", "tolist", "numpy"}:
        return "number"
    if name in _NO_TENSOR:
        return None
    return "tensor" if name in {"detach", "argmax"} else base


def _kind_of_result(code: Code, node: ast.Call) -> str | None:
    """Return the kind of the value of a local function, if all its `return` agree."""
    kinds = {kind(code, value) for value in code.returns(node)}
    return kinds.pop() if len(kinds) == 1 else None


# ---------------------------------------------------------------- by kind, else by name

_ITEM = re.compile(r"\['(\w+)'\]")  # `parts['model']` is named like `parts.model`


def _has_kind(code: Code, node: ast.AST | None, expected: str, pattern: str) -> bool:
    if node is None:
        return False
    type_name = kind(code, node)
    if type_name:
        return type_name.partition(":")[0] == expected
    return bool(re.search(pattern, _ITEM.sub(r".\1", name_of(node) or "")))


def is_optimizer(code: Code, node: ast.AST | None) -> bool:
    """Return True if a node is an optimizer, by its kind or else by its name."""
    return _has_kind(
        code, node, "optimizer", r"(?i)(^|[._])(optim|opt(_|$)|opt[dgac]?$|adam|sgd|trainer_)"
    )


def is_scheduler(code: Code, node: ast.AST | None) -> bool:
    """Return True if a node is a scheduler, by its kind or else by its name."""
    return _has_kind(code, node, "scheduler", r"(?i)sched")


def is_scaler(code: Code, node: ast.AST | None) -> bool:
    """Return True if a node is a gradient scaler, by its kind or else by its name."""
    return _has_kind(code, node, "scaler", r"(?i)(grad)?_?scaler$")


def is_model(code: Code, node: ast.AST | None) -> bool:
    """Return True if a node is a module, by its kind or else by its name."""
    name = (
        "model|net|network|classifier|encoder|decoder|generator|discriminator|policy|critic|actor"
    )
    name += "|transformer|unet|resnet|gpt|vae"
    role = r"(_?(local|online|main|eval|policy|target|student|teacher|old|new))?"
    return _has_kind(
        code, node, "module", rf"(?i)(^|[._])([a-z]*_)?(q?({name})|net_?[dg]){role}\d?$"
    )


def is_loader(code: Code, node: ast.AST | None) -> bool:
    """Return True if a node is a data loader, by its kind or else by its name."""
    return _has_kind(
        code, node, "loader", r"(?i)(loader|_dl)s?(\[[\w'\".]+\])?$|^(loader|dl)s?(\[|$)"
    )


def iterated(node: ast.AST) -> ast.AST:
    """Return the iterated object without wrappers such as `enumerate` and `tqdm`."""
    while (inner := wrapped(node)) is not None:
        node = inner
    return node


def batch_loop(code: Code, loop: ast.AST) -> bool:
    """Return True if a loop iterates over the batches of a loader."""
    if not isinstance(loop, ast.For):
        return False
    iterable = iterated(loop.iter)
    if isinstance(iterable, ast.Name) and isinstance(value := code.value(iterable), ast.AST):
        iterable = iterated(value) if wrapped(value) is not None else iterable  # a progress bar
    return is_loader(code, iterable) or kind(code, Part(iterable, None)) == "tensor"


def steps(code: Code, node: ast.AST, follow: int = 0) -> list[ast.Call]:
    """Return the calls `optimizer.step()` and `scaler.step(optimizer)` below a node."""
    return [
        call
        for call in code.methods(node, "step", follow=follow)
        if is_optimizer(code, call.func.value) or call.args and is_optimizer(code, call.args[0])
    ]


def no_graph(code: Code, node: ast.AST) -> bool:
    """Return True if a `with` statement or a decorator disables gradients at a node."""
    off = ("no_grad", "inference_mode", "set_grad_enabled")
    for block in ancestors(node, ast.With, stop=(ast.Module,)):
        for item in block.items:
            if any(name in off for name in _names_below(item.context_expr)):
                return True
    ancestor = code.function_of(node)
    while not isinstance(ancestor, ast.Module):
        if any(
            name in off[:2]
            for decorator in ancestor.decorator_list
            for name in _names_below(decorator)
        ):
            return True
        ancestor = code.function_of(ancestor.parent)
    return False


def _names_below(node: ast.AST) -> set[str]:
    return {last_name(child) for child in descendants(node)}
