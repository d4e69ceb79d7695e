"""Rewrite a source into a normal form, so that a rule need not know each way to write a value.

In the normal form a name that is used once, in the next statement, is replaced by its value; an
entry of a dict is a name; `torch.softmax(x, 1)` is `x.softmax(1)`; and the first arguments of the
functions of PyTorch are positional. Each node keeps its position in the file.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache

from helpers.review.syntax import FUNCTIONS, copied, descendants

_METHODS = re.findall(  # functions of torch that are methods of their first argument
    r"\w+",
    "abs argmax argmin bmm clamp clip cumprod cumsum div exp expand_as flatten gather log "
    "log_softmax masked_fill matmul mean mm mul norm permute pow prod relu reshape round sigmoid "
    "softmax sqrt square squeeze std sub sum t tanh topk transpose unsqueeze var",
)
_LOSSES = (
    r"cross_entropy|nll_loss|mse_loss|(smooth_)?l1_loss|huber_loss|binary_cross_entropy\w*|kl_div"
)
_FIRST = {  # names of the first arguments, by a pattern of the class or function
    _LOSSES: ("input", "target"),
    "SGD|R?Adam(W|ax)?|RMSprop|Adagrad|NAdam": ("params",),
    "masked_fill": ("input", "mask", "value"),
    "pow": ("input", "exponent"),
    "matmul|bmm|mm": ("input", "other"),
    "norm": ("input", "p"),
    "clamp": ("input", "min", "max"),
    "gather": ("input", "dim", "index"),
    "topk": ("input", "k", "dim"),
    "flatten": ("input", "start_dim", "end_dim"),
    "DataLoader": ("dataset", "batch_size"),
    "Linear": ("in_features", "out_features"),
    "Embedding": ("num_embeddings", "embedding_dim"),
    "StepLR": ("optimizer", "step_size"),
    "clip_grad_norm_": ("parameters", "max_norm"),
    "save": ("obj", "f"),
    "cat|stack": ("tensors", "dim"),
    "|".join(["dropout", "normalize", "interpolate", "pad", *_METHODS]): ("input", "dim"),
}
_MODULES = {"torch", "F", "nn", "optim", "functional", "data", "utils", "lr_scheduler"}
_ONCE = {  # the expressions of a statement that run once, before its body
    ast.Assign: ("value",),
    ast.AugAssign: ("value",),
    ast.AnnAssign: ("value",),
    ast.Return: ("value",),
    ast.Expr: ("value",),
    ast.If: ("test",),
    ast.For: ("iter",),
}
_LATER = (
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.IfExp,
    ast.BoolOp,
)
_BLOCKS = ("body", "orelse", "finalbody")
_VALUES = (ast.Call, ast.BinOp, ast.Subscript, ast.Compare, ast.UnaryOp)


def normalized(body: list[ast.stmt]) -> list[ast.stmt] | None:
    """Return the normal form of the statements of a module, None if they have it already."""
    tree = ast.Module([copied(statement) for statement in body], [])
    form = _Form(tree)
    form.visit(tree)
    _collapse(tree, form)
    return tree.body if form.changed else None


class _Form(ast.NodeTransformer):
    """Write entries of dicts as names, functions as methods, and first arguments by position."""

    def __init__(self, tree: ast.Module) -> None:
        self.changed = False
        self.entries = _entries(tree)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        name = _entry(node)
        if name is None or name.partition(".")[0] not in self.entries:
            return node
        self.changed = True
        return ast.copy_location(ast.Name(name.rpartition(".")[2], node.ctx), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name, base = _called(node)
        if node.keywords and (base or name[:1].isupper()):
            self._place(node, _first_parameters(name))
        if base == "torch" and name in _METHODS and node.args:
            if not isinstance(node.args[0], ast.Starred | ast.List | ast.Tuple | ast.Constant):
                node.func = ast.copy_location(
                    ast.Attribute(node.args.pop(0), name, ast.Load()), node.func
                )
                self.changed = True
        return node

    def _place(self, node: ast.Call, names: tuple[str, ...]) -> None:
        """Make keyword arguments positional, as long as they continue the positional ones."""
        if any(isinstance(arg, ast.Starred) for arg in node.args):
            return
        keywords = {keyword.arg: keyword for keyword in node.keywords}
        for name in names[len(node.args) :]:
            if name not in keywords:
                break
            node.args.append(keywords[name].value)
            node.keywords.remove(keywords[name])
            self.changed = True


@cache
def _first_parameters(name: str) -> tuple[str, ...]:
    """Return the names of the first arguments of a function or class of PyTorch."""
    return next((names for pattern, names in _FIRST.items() if re.fullmatch(pattern, name)), ())


def _called(node: ast.Call) -> tuple[str, str]:
    """Return the name of a called function, and the last name of its module."""
    if isinstance(node.func, ast.Name):
        return node.func.id, ""
    if not isinstance(node.func, ast.Attribute):
        return "", ""
    base = node.func.value
    last = base.id if isinstance(base, ast.Name) else getattr(base, "attr", "")
    return node.func.attr, last if last in _MODULES else ""


def _entry(node: ast.AST) -> str | None:
    """Return `parts.model` for `parts["model"]`."""
    plain = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
    key = node.slice.value if plain and isinstance(node.slice, ast.Constant) else None
    return f"{node.value.id}.{key}" if isinstance(key, str) and key.isidentifier() else None


def _entries(tree: ast.Module) -> set[str]:
    """Return the dicts whose entries are only set and read by their names, each set by a call."""
    used, names, keys, filled = Counter(), Counter(), {}, set()
    for node in descendants(tree):
        if isinstance(node, ast.Name):
            names[node.id] += 1
        if isinstance(node, ast.arg):
            names[node.arg] += 1
        if (name := _entry(node)) is not None:
            used[node.value.id] += 1
            keys.setdefault(node.value.id, set()).add(name.rpartition(".")[2])
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            if isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Dict):
                if not node.value.keys:
                    used[node.targets[0].id] += 1
            if _entry(node.targets[0]) and isinstance(node.value, ast.Call):
                filled.add(node.targets[0].value.id)
    return {
        dictionary
        for dictionary in filled
        if used[dictionary] == names[dictionary] and not any(map(names.get, keys[dictionary]))
    }


# ---------------------------------------------------------------- names that are used once


def _collapse(tree: ast.Module, form: _Form) -> None:
    for scope in descendants(tree):
        if isinstance(scope, (ast.Module, *FUNCTIONS)):
            once = _used_once(scope)
            if once:
                for node in _statements_of(scope):
                    for field in _BLOCKS:
                        block = getattr(node, field, None)
                        if isinstance(block, list):
                            form.changed |= _collapse_block(block, once)


def _statements_of(scope: ast.AST) -> list[ast.AST]:
    """Return the nodes of a scope without those of its functions and classes."""
    nodes, stack = [], [scope]
    while stack:
        node = stack.pop()
        nodes.append(node)
        stack += [
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.stmt | ast.ExceptHandler)
            and not isinstance(child, (*FUNCTIONS, ast.ClassDef))
        ]
    return nodes


def _used_once(scope: ast.AST) -> set[str]:
    """Return the variables of a scope that it sets once and reads once."""
    reads, sets = Counter(), Counter()
    for node in descendants(scope):
        if isinstance(node, ast.Name):
            (reads if isinstance(node.ctx, ast.Load) else sets)[node.id] += 1
        elif isinstance(node, ast.arg):
            sets[node.arg] += 1
        elif isinstance(node, ast.Global | ast.Nonlocal):
            sets.update([*node.names, *node.names])
    return {name for name, count in sets.items() if count == reads[name] == 1}


def _collapse_block(block: list[ast.stmt], once: set[str]) -> bool:
    changed, n = False, len(block) - 1
    while n > 0:
        name = _temporary(block[n - 1], once)
        if name is not None and _substituted(block[n], name, block[n - 1].value):
            del block[n - 1]
            changed = True
        n -= 1
    return changed


def _temporary(node: ast.stmt, once: set[str]) -> str | None:
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    target = node.targets[0]
    known = isinstance(target, ast.Name) and target.id in once
    return target.id if known and isinstance(node.value, _VALUES) else None


def _substituted(node: ast.stmt, name: str, value: ast.AST) -> bool:
    """Replace the name in the expressions of a statement that run once; return if it was there."""
    stack = [(node, field) for field in _ONCE.get(type(node), ())]
    while stack:
        outer, field = stack.pop()
        inner = getattr(outer, field)
        for n, child in enumerate(inner if isinstance(inner, list) else [inner]):
            if isinstance(child, ast.Name) and child.id == name:
                if isinstance(node, ast.Expr) and isinstance(outer, ast.Attribute):
                    return False  # `loss.backward()`
                if isinstance(inner, list):
                    inner[n] = value
                else:
                    setattr(outer, field, value)
                return True
            if isinstance(child, ast.AST) and not isinstance(child, _LATER):
                stack += [(child, each) for each in child._fields]
    return False
