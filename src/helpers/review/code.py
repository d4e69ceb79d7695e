"""Parse a source file for the rules: imports, scopes, assignments, local calls."""

from __future__ import annotations

import ast
import operator
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    SCOPES,
    ancestors,
    argument,
    children,
    const,
    default_of,
    descendants,
    exclusive,
    is_inside,
    is_open,
    last_name,
    method,
    name_of,
    parsed,
    place,
    wrapped,
)

CELL = "# %% next cell"
_SHORT = (
    ("torch.nn.functional.", "F."),
    ("torch.optim.lr_scheduler.", "sched."),
    ("torch.optim.swa_utils.", "swa."),
    ("torch.optim.", "optim."),
    ("torch.nn.utils.rnn.", "rnn."),
    ("torch.nn.utils.", "utils."),
    ("torch.nn.init.", "init."),
    ("torch.nn.", "nn."),
    ("torch.utils.data.", "data."),
    ("torch.cuda.amp.", "amp."),
    ("torch.amp.", "amp."),
    ("torch.distributed.", "dist."),
    ("torchvision.models.", "models."),
    ("torchvision.transforms.", "transforms."),
)
_USUAL = {  # meaning of names in a snippet without imports
    "torch": "torch",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "optim": "torch.optim",
    "np": "numpy",
    "random": "random",
    "copy": "copy",
    "DataLoader": "torch.utils.data.DataLoader",
    "Dataset": "torch.utils.data.Dataset",
    "models": "torchvision.models",
    "transforms": "torchvision.transforms",
    "torchvision": "torchvision",
}
# Objects whose method takes the loss: `accelerator.backward(loss)`, `self.manual_backward(loss)`
_THROUGH = re.compile(r"(?i)accelerator|fabric|engine|strategy|trainer|^self$|^dist")


@dataclass(frozen=True)
class Part:
    """A value that has no expression of its own.

    `Part(call, 1)` is `b` in `a, b = call()`, `Part(loader, None)` is `batch` in
    `for batch in loader`, and `Part(loader, None, 1)` is `y` in `for x, y in loader`.
    """

    value: ast.AST
    index: int | None
    element: int | None = None


@dataclass(frozen=True)
class Assignment:
    """The value of a name after the position `end` (line, column), where the statement ends."""

    end: tuple[int, int]
    value: ast.AST | Part
    statement: ast.AST


class Code:
    """A parsed source. Each node has `parent`, `scope` and `owner` (the enclosing class)."""

    def __init__(self, source: str) -> None:
        self.tree = parsed(source)
        self.source, self.lines = source, source.split("\n")
        self.names: dict[str, str] = {}
        self.stars: list[str] = []
        self.nodes: list[ast.AST] = []
        self.scopes: list[ast.AST] = []
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[tuple[str | None, str], ast.AST] = {}
        self.kinds: dict[ast.AST | Part, str | None] = {}  # results of `kinds.kind`
        self._dotted: dict[ast.AST, str | None] = {}
        self._called: dict[ast.Call, str] = {}
        self._forwards: dict[tuple[ast.AST | None, str], list[ast.AST]] = {}
        self._open: set[ast.AST | Part] = set()  # nodes that are being resolved
        self._values: dict[ast.AST, ast.AST | Part | None] = {}
        self._returned: dict[ast.Call, ast.AST | None] = {}
        self._returns: dict[ast.AST, list[ast.AST]] = {}
        self._arguments: dict[tuple[ast.AST, str], list[ast.AST]] = {}
        self.events: dict[ast.Call, Any] = {}  # results of `flow.event` by call
        self.events_below: dict[tuple[ast.AST, int], list[Any]] = {}  # results of `flow.events`
        self.losses: dict[str | None, list[ast.Call]] | None = None  # see `tracing.loss_calls`
        self.mismatches: dict[str, list[ast.AST]] | None = None  # see `following.mismatches`
        self._link()
        self._imports()
        for node in self.nodes:
            self._assignment(node)
        for scope in self.scopes:
            for values in scope.assigned.values():
                values.sort(key=lambda assignment: assignment.end)

    # ------------------------------------------------------------ building

    def _link(self) -> None:
        stack = [(self.tree, None, None, None)]
        while stack:
            node, parent, scope, owner = stack.pop()
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                node.__class__, node.targets, node.type_comment = ast.Assign, [node.target], None
            node.parent, node.scope, node.owner = parent, scope, owner
            self.nodes.append(node)
            if isinstance(node, SCOPES):
                node.assigned, node.backward = {}, set()
                self.scopes.append(node)
            if isinstance(node, FUNCTIONS):
                in_class = isinstance(parent, ast.ClassDef)
                self.functions.setdefault((owner.name if in_class else None, node.name), node)
            if isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, node)
                node.attributes = defaultdict(list)
            inner = node if isinstance(node, SCOPES) else scope
            inner_owner = node if isinstance(node, ast.ClassDef) else owner
            node.children = children(node)
            stack.extend([(child, node, inner, inner_owner) for child in reversed(node.children)])

    def _imports(self) -> None:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for name in node.names:
                    first = name.name.partition(".")[0]
                    self.names[name.asname or first] = name.name if name.asname else first
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for name in node.names:
                    if name.name == "*":
                        self.stars.append(node.module)
                    else:
                        self.names[name.asname or name.name] = f"{node.module}.{name.name}"
        if not self.names and not self.stars:
            self.names = dict(_USUAL)

    def _assignment(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, node)
        elif isinstance(node, ast.NamedExpr):
            self._assign(node.target, node.value, node)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._assign_loop(node.target, node.iter, node)
        elif isinstance(node, ast.comprehension):
            self._assign_loop(node.target, node.iter, node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._assign(node.optional_vars, node.context_expr, node.context_expr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("backward", "manual_backward"):
                through = _THROUGH.search(name_of(node.func.value) or "") and node.args
                if name := name_of(node.args[0] if through else node.func.value):
                    node.scope.backward.add(name)

    def _assign(self, target: ast.AST, value: ast.AST | Part, statement: ast.AST) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else None
            same = values is not None and len(values) == len(target.elts)
            for n, element in enumerate(target.elts):
                unpacked = value.value if isinstance(value, Part) else value
                self._assign(element, values[n] if same else Part(unpacked, n), statement)
        elif name := name_of(target):
            end = statement.end_lineno, statement.end_col_offset
            assignment = Assignment(end, value, statement)
            target.scope.assigned.setdefault(name, []).append(assignment)
            if name.startswith("self.") and target.owner is not None:
                target.owner.attributes[name].append(assignment)
            elif isinstance(getattr(statement, "parent", None), ast.ClassDef):
                statement.parent.attributes[f"self.{name}"].append(assignment)

    def _assign_loop(self, target: ast.AST, iterated: ast.AST, statement: ast.AST) -> None:
        while wrapped(iterated) is not None:
            several = target.elts if isinstance(target, ast.Tuple) else ()
            if isinstance(iterated, ast.Call):
                name = last_name(iterated.func)
                if name == "zip" and len(several) == len(iterated.args) > 1:
                    for element, arg in zip(several, iterated.args, strict=True):
                        self._assign_loop(element, arg, statement)
                    return
                if name == "enumerate" and len(several) == 2:
                    target = several[1]
            iterated = wrapped(iterated)
        places = {element: n for n, element in enumerate(getattr(target, "elts", ()))}
        for node in descendants(target):
            if isinstance(node, ast.Name):
                assignment = Assignment(
                    place(node), Part(iterated, None, places.get(node)), statement
                )
                node.scope.assigned.setdefault(node.id, []).append(assignment)

    # ------------------------------------------------------------ names

    @cached_property
    def uses_torch(self) -> bool:
        """True if the file imports torch, or has no imports and mentions torch."""
        modules = {name.partition(".")[0] for name in (*self.names.values(), *self.stars)}
        if self.names == _USUAL:
            return bool(re.search(r"\btorch\b|\bnn\.|optimizer|\.backward\(", self.source))
        libs = {"torch", "torchvision", "lightning", "pytorch_lightning", "timm", "transformers"}
        return bool(modules & libs)

    @cached_property
    def _nodes_by_type(self) -> dict[type, list[ast.AST]]:
        nodes = defaultdict(list)
        for node in self.nodes:
            nodes[type(node)].append(node)
        return nodes

    def nodes_of(self, *types: type) -> list[ast.AST]:
        """Return all nodes of these types; for a single type in source order."""
        return [node for node_type in types for node in self._nodes_by_type.get(node_type, ())]

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls in the file in source order."""
        return self.nodes_of(ast.Call)

    @cached_property
    def _calls_by_name(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """Places in `calls` of each imported name and of each name as written."""
        imported, written = defaultdict(list), defaultdict(list)
        for n, call in enumerate(self.calls):
            imported[self.called(call)].append(n)
            written[last_name(call.func)].append(n)
        return imported, written

    def calls_to(self, *names: str) -> list[ast.Call]:
        """Return the calls of functions and classes with these imported names."""
        return self._calls_at(self._calls_by_name[0], names)

    def calls_named(self, *names: str) -> list[ast.Call]:
        """Return the calls of methods and functions with these names, as written."""
        return self._calls_at(self._calls_by_name[1], names)

    def _calls_at(self, places: dict[str, list[int]], names: Iterable[str]) -> list[ast.Call]:
        return [self.calls[n] for n in sorted(n for name in {*names} for n in places.get(name, ()))]

    def dotted(self, node: ast.AST | None) -> str | None:
        """Return the imported name of a node in a short form: `F.cross_entropy`, `nn.Linear`."""
        if not isinstance(node, ast.Attribute | ast.Name):
            return None
        if node not in self._dotted:
            self._dotted[node] = self._full(node)
        return self._dotted[node]

    def _full(self, node: ast.AST) -> str | None:
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        if node.id in self._rebound and place(node) > self._rebound[node.id]:
            return None
        if node.id not in self.names:
            return self._starred(node.id) if not parts else None
        return _shortened(".".join([self.names[node.id], *reversed(parts)]))

    @cached_property
    def _rebound(self) -> dict[str, tuple[int, int]]:
        """Ends of module-level statements such as `model = model.Net()`, which hide an import."""
        return {
            name: values[0].end
            for name, values in self.tree.assigned.items()
            if name in self.names and isinstance(values[0].value, ast.AST)
            if any(name_of(node) == name for node in descendants(values[0].value))
        }

    def _alias(self, node: ast.AST) -> str | None:
        """Return the imported name that `loss_fn` or `LOSSES["ce"]` refers to at a call."""
        for _ in range(_CHAIN):
            if isinstance(node, ast.Call):
                name = self.dotted(node.func)
                if name == "functools.partial" and len(node.args) == 1:
                    node = node.args[0]
                elif getattr(node.func, "id", None) == "getattr" and len(node.args) == 2:
                    head, tail = self.dotted(node.args[0]), self.const(node.args[1])
                    return _shortened(f"{_long(head)}.{tail}") if head and tail else None
                else:
                    return None
            elif name_of(node) is None or name_of(node) == "self":
                return None
            elif name := self.dotted(node):
                return name if name.startswith(_FOLLOWED) else None
            else:
                node = self.value(node)
        return None

    def _starred(self, name: str) -> str | None:
        if not self.stars or name in self.classes or (None, name) in self.functions:
            return None
        for module in self.stars:
            if module in ("torch.nn", "torch.optim", "torch.utils.data") and name[:1].isupper():
                return _shortened(f"{module}.{name}")
            if module in ("torch", "torch.nn.functional") and name.islower():
                return _shortened(f"{module}.{name}")
        return None

    def called(self, node: object) -> str:
        """Return the imported name of the called function, "" if it was not imported."""
        if not isinstance(node, ast.Call):
            return ""
        name = self._called.get(node)
        if name is None:
            self._called[node] = name = self.dotted(node.func) or ""
            if not name and self._may_be_alias(node.func):
                self._called[node] = name = self._alias(node.func) or ""
        return name

    def _may_be_alias(self, func: ast.AST) -> bool:
        """Return whether a called name or attribute may be an alias of a function of PyTorch."""
        if isinstance(func, ast.Name):
            return (
                func.id in self._aliases
                or self._passes_functions
                and has_parameter(func.scope, func.id)
            )
        if isinstance(func, ast.Attribute):
            return name_of(func) in self._aliases
        return isinstance(func, ast.Subscript | ast.Call)

    @cached_property
    def _passes_functions(self) -> bool:
        """Whether a call in the file passes a function of PyTorch as an argument."""
        return any(
            isinstance(arg, ast.Attribute) and (self.dotted(arg) or "").startswith("F.")
            for call in self.calls
            for arg in (*call.args, *(k.value for k in call.keywords))
        )

    @cached_property
    def _aliases(self) -> set[str]:
        """Names that may refer to a function or a class of PyTorch."""
        return {
            name
            for scope in self.scopes
            for name, values in scope.assigned.items()
            if any(self._is_alias(assignment.value) for assignment in values)
        }

    def _is_alias(self, value: ast.AST | Part) -> bool:
        if isinstance(value, ast.Name | ast.Attribute):
            return (self.dotted(value) or "").startswith(_FOLLOWED) or (
                self._passes_functions and isinstance(value, ast.Name)
            )
        if isinstance(value, ast.Subscript):
            return isinstance(value.slice, ast.Name | ast.Constant | ast.Subscript | ast.Attribute)
        return isinstance(value, ast.Call) and last_name(value.func) in ("partial", "getattr")

    def source_of(self, node: ast.AST) -> str:
        """Return the source lines of a node."""
        if isinstance(node, ast.Module):
            return self.source
        return "\n".join(self.lines[node.lineno - 1 : node.end_lineno])

    # ------------------------------------------------------------ values

    @cached_property
    def _reads(self) -> dict[str, list[ast.Name]]:
        """Nodes that read each name."""
        places = defaultdict(list)
        for node in self.nodes_of(ast.Name):
            if isinstance(node.ctx, ast.Load):
                places[node.id].append(node)
        return places

    def uses(self, scope: ast.AST, name: str) -> list[ast.Name]:
        """Return the nodes in a scope and its functions that read a name, except in `x = f(x)`."""
        return [
            node
            for node in self._reads.get(name, ())
            if is_inside(node, scope) and not _reassigns(node, name)
        ]

    def value(self, node: ast.AST) -> ast.AST | Part | None:
        """Return the value of a name at `node`: the value of the last assignment before it."""
        if self._open:  # the value may depend on the nodes that are being resolved
            return self._value_at(node)
        if node not in self._values:
            self._values[node] = self._value_at(node)
        return self._values[node]

    def _value_at(self, node: ast.AST) -> ast.AST | Part | None:
        name, scope = name_of(node), node.scope
        if name is None:
            return None
        while scope is not None:
            if assigned := self.assignment_before(scope, name, node):
                return assigned.value
            if name.startswith("self."):
                break
            if has_parameter(scope, name):
                arguments = self.arguments(scope, name)
                return arguments[0] if len(arguments) == 1 else None
            scope = scope.scope
        if name.startswith("self.") and node.owner is not None:
            attribute = self._attribute(node, name)
            if attribute is not None:
                return attribute
        if node in self._open:
            return None
        self._open.add(node)
        try:
            return self._item(node) if isinstance(node, ast.Subscript) else self._field(node)
        finally:
            self._open.discard(node)

    def _item(self, node: ast.Subscript) -> ast.AST | Part | None:
        """Return the entry of a literal for `parts["model"]`, `pair[0]` or `losses[name]`."""
        key = self.const(node.slice)
        container = self.resolved(node.value) if isinstance(key, str | int) else None
        return entry_of(container, key)

    def _field(self, node: ast.AST) -> ast.AST | Part | None:
        """Return the value of an attribute of an object of this file, such as `args.lr`."""
        if not isinstance(node, ast.Attribute) or node.attr in self._set_outside:
            return None
        resolved = self.resolved(node.value) if name_of(node.value) != "self" else None
        if method(resolved) in ("parse_args", "parse_known_args"):
            return self._options.get(node.attr)
        if method(resolved) in ("Namespace", "SimpleNamespace"):
            return entry_of(resolved, node.attr)
        annotation = self._annotation(node.value) if resolved is None else None
        name = resolved.func if isinstance(resolved, ast.Call) else annotation
        name = getattr(name, "id", None)
        return self._attribute_of(name, node.attr) if name in self.classes else None

    def _annotation(self, node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Name) or not isinstance(node.scope, FUNCTIONS):
            return None
        signature = node.scope.args
        for parameter in (*signature.posonlyargs, *signature.args, *signature.kwonlyargs):
            if parameter.arg == node.id:
                return parameter.annotation
        return None

    def _attribute_of(self, name: str, attribute: str) -> ast.AST | Part | None:
        """Return the only value of an attribute of a class, including a dataclass."""
        owners = self.bases(name)
        assignments = next(
            (o.attributes[k] for o in owners if (k := f"self.{attribute}") in o.attributes), []
        )
        if len(assignments) != 1:
            return None
        if isinstance(assignments[0].statement.parent, ast.ClassDef):  # a field: a call may set it
            passed = self._passed_fields.get(name, {}).get(attribute, [])
            return assignments[0].value if not passed else passed[0] if len(passed) == 1 else None
        return assignments[0].value

    @cached_property
    def _passed_fields(self) -> dict[str, dict[str, list[ast.AST]]]:
        """Keyword arguments of the calls of each class."""
        fields = defaultdict(lambda: defaultdict(list))
        for call in self.calls:
            if isinstance(call.func, ast.Name) and call.func.id in self.classes:
                for keyword in call.keywords:
                    if keyword.arg:
                        fields[call.func.id][keyword.arg].append(keyword.value)
        return fields

    @cached_property
    def _set_outside(self) -> set[str]:
        """Attributes assigned on an object other than `self`, as in `args.n = 3`."""
        return {
            node.attr
            for node in self.nodes_of(ast.Attribute)
            if isinstance(node.ctx, ast.Store) and name_of(node.value) != "self"
        }

    @cached_property
    def _options(self) -> dict[str, ast.AST]:
        """Defaults of the options that `add_argument` declares."""
        options = {}
        for call in self.calls:
            default = argument(call, "default")
            if method(call) != "add_argument" or default is None or const(default) is None:
                continue
            names = [value for arg in call.args if isinstance(value := const(arg), str)]
            long = next(
                (name for name in names if name.startswith("--")), names[0] if names else ""
            )
            dest = const(argument(call, "dest")) or long.lstrip("-").replace("-", "_")
            options[dest] = default
        return options

    def const(self, node: Any) -> Any:
        """Return the number, string or truth value of an expression; None if it is not constant."""
        value = const(node)
        if value is not None or not isinstance(node, ast.AST):
            return value
        resolved = self.resolved(node) if name_of(node) else node
        if isinstance(resolved, ast.BinOp) and type(resolved.op) in _INTEGER:
            left, right = self.const(resolved.left), self.const(resolved.right)
            if type(left) is type(right) is int and max(abs(left), abs(right)) < 1 << 31:
                return _INTEGER[type(resolved.op)](left, right)
        return const(resolved) if resolved is not node else None

    def resolved(self, node: ast.AST) -> ast.AST | Part | None:
        """Return an expression with names resolved to their values, repeatedly.

        Returns None for a variable that the file does not assign, and the node itself for an
        attribute or item that it does not assign.
        """
        for _ in range(2 * _CHAIN):
            if isinstance(node, ast.Name):
                value = self._unpacked(self.value(node))
                if not isinstance(value, _FOLLOWED_NODES):
                    return value
            elif isinstance(node, ast.Attribute | ast.Subscript) and name_of(node):
                value = self._unpacked(self.value(node))
            elif isinstance(node, ast.Call):
                value = self.returned(node)
            else:
                return node
            if not isinstance(value, ast.AST) or value is node:
                return node
            node = value
        return node

    def origin(self, node: ast.AST) -> ast.AST:
        """Return the name or attribute that is a name's value, `loss` of `out["loss"]`."""
        for _ in range(_CHAIN):
            value = self._unpacked(self.value(node)) if name_of(node) else None
            if not isinstance(value, ast.AST) or name_of(value) is None:
                break
            node = value
        return node

    def _unpacked(self, value: ast.AST | Part | None) -> ast.AST | Part | None:
        """Return the expression assigned to one name of an unpacked tuple, else the value."""
        element = self.element(value) if isinstance(value, Part) else None
        return value if element is None else element

    def element(self, part: Part) -> ast.AST | None:
        """Return the expression of `return model, optimizer` that is assigned to one name."""
        if part.index is None or part in self._open:
            return None
        self._open.add(part)
        try:
            container = self.resolved(part.value)
        finally:
            self._open.discard(part)
        same = isinstance(container, ast.Tuple | ast.List) and container is not part.value
        return entry_of(container, part.index) if same else None

    def returned(self, call: ast.Call) -> ast.AST | None:
        """Return the result of a local function for a call, if one `return` has a value."""
        if call not in self._returned:
            self._returned[call] = None  # a function that calls itself
            values = self.returns(call)
            self._returned[call] = values[0] if len(values) == 1 else None
        return self._returned[call]

    def returns(self, call: ast.Call) -> list[ast.AST]:
        """Return the values of the `return` statements of the function that a call runs."""
        targets = self.targets(call)
        unique = len(targets) == 1 and targets[0] not in self._generators
        return self.return_values(targets[0]) if unique else []

    def return_values(self, function: ast.AST | None) -> list[ast.AST]:
        """Return the values of the `return` statements of a function, except of bare ones."""
        if function is None:
            return []
        if function not in self._returns:
            nodes = self.walk(function)
            values = [node.value for node in nodes if isinstance(node, ast.Return)]
            self._returns[function] = [value for value in values if value is not None]
        return self._returns[function]

    @cached_property
    def _generators(self) -> set[ast.AST]:
        """Functions that contain `yield`."""
        return {node.scope for node in self.nodes_of(ast.Yield, ast.YieldFrom)}

    @cached_property
    def changed_names(self) -> set[tuple[ast.AST, str]]:
        """Names that `+=` and similar statements change, with their scope or class."""
        return {
            ((statement.owner if name.startswith("self.") else statement.scope), name)
            for statement in self.nodes_of(ast.AugAssign)
            if (name := name_of(statement.target))
        }

    def assignment_before(self, scope: ast.AST, name: str, node: ast.AST) -> Assignment | None:
        """Return the assignment that gives a name its value at a node, None if it is unknown."""
        values = scope.assigned.get(name)
        if not values:
            return None
        if scope is not node.scope:
            return values[-1]
        position = bisect_right(values, place(node), key=lambda assignment: assignment.end)
        for assignment in reversed(values[max(0, position - 20) : position]):
            if not exclusive(assignment.statement, node):
                return assignment
        return self._later_in_loop(values[position : position + 20], node)

    def assigned_before(self, scope: ast.AST, name: str, node: ast.AST) -> list[Assignment]:
        """Return the assignments to a name in a scope that end before a node."""
        values = scope.assigned.get(name, ())
        return [assignment for assignment in values if assignment.end < place(node)]

    def _later_in_loop(self, values: list[Assignment], node: ast.AST) -> Assignment | None:
        """Return an assignment below the node in the same loop, made by an earlier iteration."""
        ancestor = node.parent
        while ancestor is not None and not isinstance(ancestor, (*FUNCTIONS, ast.Module)):
            if isinstance(ancestor, LOOPS):
                for assignment in values:
                    if is_inside(assignment.statement, ancestor) and not is_inside(
                        node, assignment.statement
                    ):
                        return assignment
            ancestor = ancestor.parent
        return None

    def _attribute(self, node: ast.AST, name: str) -> ast.AST | Part | None:
        for owner in self.bases(node.owner.name):
            assignments = [
                assignment
                for assignment in owner.attributes.get(name, ())
                if not (
                    assignment.statement.lineno <= node.lineno <= assignment.statement.end_lineno
                )
            ]
            if assignments:
                first = [assignment for assignment in assignments if _in_constructor(assignment)]
                return (first or assignments)[-1].value
        return None

    def arguments(self, function: ast.AST, name: str) -> list[ast.AST]:
        """Return the arguments that the calls of a local function pass for one of its parameters.

        A call that leaves it out passes its default, unless that is None.
        """
        if not isinstance(function, FUNCTIONS):
            return []
        if (function, name) not in self._arguments:
            self._arguments[function, name] = self._passed_arguments(function, name)
        return self._arguments[function, name]

    def _passed_arguments(self, function: ast.AST, name: str) -> list[ast.AST]:
        decorators = {
            last_name(getattr(decorator, "func", decorator))
            for decorator in function.decorator_list
        }
        if not decorators <= {"staticmethod", "classmethod", "no_grad", "inference_mode"}:
            return []
        names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
        bound = isinstance(function.parent, ast.ClassDef) and "staticmethod" not in decorators
        passed_arguments = []
        for call in self.callers.get(function, ()):
            position = names.index(name) - bound if name in names else None
            passed = [k.value for k in call.keywords if k.arg == name]
            if passed:
                passed_arguments += passed
            elif position is not None and 0 <= position < len(call.args):
                before = call.args[: position + 1]
                if not any(isinstance(arg, ast.Starred) for arg in before):
                    passed_arguments.append(call.args[position])
            elif not is_open(call):
                default = default_of(function, name)
                passed_arguments += (
                    [default] if default is not None and const(default) is not None else []
                )
        return passed_arguments

    @cached_property
    def callers(self) -> dict[ast.AST, list[ast.Call]]:
        """All calls of each local function and method."""
        callers = defaultdict(list)
        forwards = any(owner and name in _RUN for owner, name in self.functions)
        for call in self.calls:
            targets = self._targets_by_name(call)
            if not targets and forwards and not self.dotted(call.func):
                targets = self._forward_of(call.func)
            for target in targets:
                callers[target].append(call)
        return callers

    def _forward_of(self, module: ast.AST) -> list[ast.AST]:
        """Return the `forward` methods that a call of a local module may run."""
        if not isinstance(module, ast.Name | ast.Attribute):
            return []
        if isinstance(module, ast.Attribute) and name_of(module.value) != "self":
            return []
        key = module.scope if isinstance(module, ast.Name) else module.owner, last_name(module)
        if key not in self._forwards:
            self._forwards[key] = self._constructed_forwards(module)
        return self._forwards[key]

    def _constructed_forwards(self, module: ast.AST) -> list[ast.AST]:
        call = self._construction(module)
        name = call.func.id if call is not None and isinstance(call.func, ast.Name) else ""
        keys = [(owner.name, m) for owner in self.bases(name) for m in _RUN]
        return [self.functions[key] for key in keys if key in self.functions][:1]

    def _construction(self, node: ast.AST | Part) -> ast.Call | None:
        """Return the constructor of a module, the first one of a `nn.Sequential`."""
        for _ in range(2 * _CHAIN):
            if isinstance(node, ast.Name | ast.Attribute) and (name := name_of(node)):
                node = self._assigned_to(node, name)
            elif not isinstance(node, ast.Call):
                return None
            elif self.called(node) in _HOLDERS:
                node = node.args[0] if node.args else None
            elif isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPERS:
                node = node.func.value
            else:
                return node
        return None

    def _assigned_to(self, node: ast.AST, name: str) -> ast.AST | Part | None:
        """Return the value of a name or attribute if it is assigned only once."""
        if name.startswith("self."):
            classes = self.bases(node.owner.name) if node.owner is not None else []
            assignments = next(
                (owner.attributes[name] for owner in classes if name in owner.attributes), []
            )
        else:
            scope = node.scope
            while scope is not None and name not in scope.assigned:
                scope = None if has_parameter(scope, name) else scope.scope
            assignments = scope.assigned[name] if scope is not None else []
        values = [
            assignment.value for assignment in assignments if not is_moved(assignment.value, name)
        ]
        return values[0] if len(values) == 1 else None

    def _targets_by_name(self, call: ast.Call) -> list[ast.AST]:
        if isinstance(call.func, ast.Name):
            if call.func.id in self.classes:
                keys = [(owner.name, "__init__") for owner in self.bases(call.func.id)]
                keys = [key for key in keys if key in self.functions][:1]
            else:
                keys = [(None, call.func.id)]
        elif isinstance(call.func, ast.Attribute) and len(call.func.attr) > 3:
            on_self = name_of(call.func.value) == "self" or method(call.func.value) == "super"
            if not on_self or call.owner is None:
                return self.methods_by_name.get(call.func.attr, [])
            owners = self.bases(call.owner.name)
            owners = owners if name_of(call.func.value) else owners[1:]
            keys = [(owner.name, call.func.attr) for owner in owners]
            keys = [key for key in keys if key in self.functions][:1]
        else:
            keys = []
        return [self.functions[key] for key in keys if key in self.functions]

    @cached_property
    def methods_by_name(self) -> dict[str, list[ast.AST]]:
        """Methods of all local classes by name; at most five for each name."""
        methods = defaultdict(list)
        for (owner, name), node in self.functions.items():
            if owner and len(methods[name]) < 5:
                methods[name].append(node)
        return methods

    def bases(self, name: str) -> list[ast.ClassDef]:
        """Return a local class and its local base classes, the class itself first."""
        classes, names = [], [name]
        while names:
            node = self.classes.get(names.pop(0))
            if node is not None and node not in classes:
                classes.append(node)
                names += [base.id for base in node.bases if isinstance(base, ast.Name)]
        return classes

    @cached_property
    def main_class(self) -> str | None:
        """Name of the class with `forward` that no other class instantiates, if it is unique."""
        submodules = {
            call.func.id
            for call in self.calls
            if isinstance(call.func, ast.Name) and call.owner is not None
        }
        names = [name for name in self.classes if (name, "forward") in self.functions]
        inherited = {
            base.id for n in names for base in self.classes[n].bases if hasattr(base, "id")
        }
        names = [name for name in names if name not in submodules | inherited]
        return names[0] if len(names) == 1 else None

    # ------------------------------------------------------------ traversal

    def targets(self, call: ast.Call) -> list[ast.AST]:
        """Return the local functions that a call may run."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in _COMMON:
            if name_of(call.func.value) != "self":
                return []
        if isinstance(call.func, ast.Name) and call.func.id in self.classes:
            return []
        return self._targets_by_name(call) or self._call_methods(call.func)

    def runs(self, call: ast.Call) -> list[ast.AST]:
        """Return the local functions that a call may run, including `forward` of a module."""
        return self.targets(call) or self._forward_of(call.func)

    def _call_methods(self, func: ast.AST) -> list[ast.AST]:
        """Return the `__call__` that a call of an object of this file runs."""
        if not isinstance(func, ast.Name) or not self._has_call or self.dotted(func):
            return []
        return [forward for forward in self._forward_of(func) if forward.name == "__call__"]

    @cached_property
    def _has_call(self) -> bool:
        return any(owner and name == "__call__" for owner, name in self.functions)

    def walk(
        self, node: ast.AST, follow: int = 0, seen: set[ast.AST] | None = None
    ) -> Iterator[ast.AST]:
        """Yield the nodes below a node in its scope, and the bodies of called local functions."""
        seen = set() if seen is None else seen
        stack = [node]
        while stack:
            inner = stack.pop()
            yield inner
            if follow and isinstance(inner, ast.Call):
                for target in self.targets(inner):
                    if target not in seen:
                        seen.add(target)
                        for statement in target.body:
                            yield from self.walk(statement, follow - 1, seen)
            if inner is node or type(inner) not in _OWN_SCOPE:
                stack.extend(reversed(inner.children))

    @cached_property
    def _calls_of(self) -> dict[ast.AST, tuple[list[tuple[int, int]], list[ast.Call]]]:
        """Start positions and calls of each scope in source order."""
        index = defaultdict(lambda: ([], []))
        for call in sorted(self.calls, key=place):
            places, calls = index[call.scope]
            places.append(place(call))
            calls.append(call)
        return index

    def calls_under(
        self, node: ast.AST, follow: int = 0, seen: set[ast.AST] | None = None
    ) -> Iterator[ast.Call]:
        """Yield the calls below a node in its scope, and those in called local functions."""
        seen = set() if seen is None else seen
        scope = node if isinstance(node, SCOPES) else node.scope
        places, calls = self._calls_of[scope]
        first, end = 0, len(calls)
        if node is not scope:
            first = bisect_left(places, place(node))
            end = bisect_left(places, (node.end_lineno, node.end_col_offset))
        for call in calls[first:end]:
            yield call
            for target in self.targets(call) if follow else ():
                if target not in seen:
                    seen.add(target)
                    yield from self.calls_under(target, follow - 1, seen)

    def methods(self, node: ast.AST, *names: str, follow: int = 0) -> list[ast.Call]:
        """Return the calls `x.name()` below a node for the given method names."""
        return [
            call
            for call in self.calls_under(node, follow)
            if isinstance(call.func, ast.Attribute) and call.func.attr in names
        ]

    def function_of(self, node: ast.AST) -> ast.AST:
        """Return the enclosing function of a node, or the module."""
        while not isinstance(node, (*FUNCTIONS, ast.Module)):
            node = node.parent
        return node

    def loops_around(self, node: ast.AST, follow: int = 2) -> list[ast.AST]:
        """Return the loops in which a node runs, innermost first, including loops of callers."""
        loops = [*ancestors(node, *LOOPS)]
        function = self.function_of(node)
        callers = self.callers.get(function, ()) if follow else ()
        if callers and function.parent is not None:
            outer = [self.loops_around(caller, follow - 1) for caller in callers[:4]]
            loops += max(outer, key=len)
        return loops

    @cached_property
    def loops(self) -> list[ast.AST]:
        """All loops in the file."""
        return sorted(self.nodes_of(*LOOPS), key=place)

    @cached_property
    def outer_loops(self) -> list[ast.AST]:
        """The outermost loops of each function."""
        return [loop for loop in self.loops if not any(ancestors(loop, *LOOPS))]

    def is_display(self, node: ast.AST) -> bool:
        """Return True if a statement is the last of a notebook cell, which displays its value."""
        if not isinstance(node.parent, ast.Module):
            return False
        for line in self.lines[node.end_lineno :]:
            if line.strip() and (line == CELL or not line.strip().startswith("#")):
                return line == CELL
            if line.startswith(("# %%", "####")):
                return True
        return CELL in self.source


_CHAIN = 4  # maximum number of names resolved one after another
_FOLLOWED = ("F.", "nn.", "torch.", "optim.", "sched.", "data.", "models.")
_FOLLOWED_NODES = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
_INTEGER = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_OWN_SCOPE = {*FUNCTIONS, ast.Lambda, ast.ClassDef}
_RUN = ("forward", "__call__")  # the methods that a call of an object runs
_KEEPERS = {"to", "cuda", "cpu", "float", "half", "double", "bfloat16", "eval", "train"}
_HOLDERS = {"nn.Sequential", "nn.DataParallel", "torch.compile"}  # call their first argument
_COMMON = {"step", "train", "eval", "backward", "zero_grad", "forward", "update", "load_state_dict"}


def _in_constructor(assignment: Assignment) -> bool:
    return getattr(assignment.statement.scope, "name", "") == "__init__"


def is_moved(value: ast.AST | Part, name: str) -> bool:
    """Return True if a value is `name.to(device)` or a wrapper of `name`, assigned to `name`."""
    if not isinstance(value, ast.Call):
        return False
    receiver_node = value.func.value if isinstance(value.func, ast.Attribute) else None
    return name in (name_of(receiver_node), name_of(value.args[0]) if value.args else None)


def _reassigns(node: ast.AST, name: str) -> bool:
    """Return True if a node is part of a value that is assigned to `name` itself."""
    while not isinstance(node, ast.stmt):
        node = node.parent
        if node is None:
            return False
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return isinstance(node, ast.Assign | ast.AugAssign) and [
        name_of(target) for target in targets
    ] == [name]


def has_parameter(scope: ast.AST, name: str) -> bool:
    """Return True if a function has a parameter called `name`."""
    if isinstance(scope, ast.Module):
        return False
    if not hasattr(scope, "parameters"):
        scope.parameters = {
            parameter.arg for parameter in descendants(scope.args) if isinstance(parameter, ast.arg)
        }
    return name in scope.parameters


def entry_of(container: object, key: object) -> ast.AST | None:
    """Return the entry of a literal, or of `dict(key=…)`, at a key or a position."""
    if isinstance(container, ast.Dict):
        pairs = zip(container.keys, container.values, strict=True)
        entries = [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == key]
        return entries[-1] if entries else None
    if isinstance(container, ast.List | ast.Tuple) and type(key) is int:
        starred = any(isinstance(element, ast.Starred) for element in container.elts)
        return (
            container.elts[key]
            if not starred and -len(container.elts) <= key < len(container.elts)
            else None
        )
    if method(container) in ("ModuleDict", "ModuleList") and len(container.args) == 1:
        return entry_of(container.args[0], key)
    if method(container) in ("dict", "Namespace", "SimpleNamespace") and isinstance(key, str):
        return argument(container, key)
    return None


def _long(name: str) -> str:
    return next((long[:-1] for long, short in _SHORT if short[:-1] == name), name)


def _shortened(name: str) -> str:
    if name.startswith("torch.autocast") or name in (
        "torch.amp.autocast",
        "torch.cuda.amp.autocast",
    ):
        return "amp.autocast"
    for long, short in _SHORT:
        if name.startswith(long):
            return short + name.rpartition(".")[2]
    return name
