"""Inline the functions of a source at their calls, so that rules read one straight script.

A mistake is often spread over functions: one creates the optimizer, one computes the loss, one
updates. `inlined` copies the body of a local function to its call, substitutes the arguments for
the parameters, and keeps the original position of each copied node.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from helpers.review.code import CELL, Code
from helpers.review.kinds import kind
from helpers.review.syntax import (
    FUNCTIONS,
    default_of,
    descendants,
    is_open,
    method,
    name_of,
    receiver,
)

_DEEPEST = 4  # nested calls
_LONGEST = 60  # statements of a function
_MOST = 3  # copies of one function
_GROWTH = 2  # copied statements per statement of the file
_NOT_COPIED = (
    *FUNCTIONS,
    ast.ClassDef,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.Global,
    ast.Nonlocal,
)
_LATER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp)
_TRAINS = re.compile(r"backward\(|def training_step|DataLoader\(")
_LONGEST_FILE, _SHORT_FILE = 600, 120  # maximum lines of a file with training code, of other files
_GRADIENTS = {"no_grad", "inference_mode"}


def inlined(code: Code) -> tuple[str, list[ast.stmt]] | None:
    """Return the source with local functions inlined, and the statements that it was written from.

    The nodes of these statements have the positions of the file. The result is None if no call can
    be replaced or the file is too long.
    """
    if not may_be_copied(code):
        return None
    inliner = _Inliner(code)
    body = inliner.module() if inliner.functions else []
    return (written(code, body), body) if inliner.copied else None


def may_be_copied(code: Code) -> bool:
    """Return whether a file is short enough for further passes: longer if it trains a model."""
    trains = _TRAINS.search(code.source)
    return len(code.lines) <= (_LONGEST_FILE if trains else _SHORT_FILE)


def written(code: Code, body: list[ast.stmt]) -> str:
    """Return the source of changed statements, with the cells of the file."""
    pieces, cells = [], [n for n, line in enumerate(code.lines, 1) if line == CELL]
    for statement in body:
        while cells and cells[0] < statement.lineno:
            pieces.append(f"{CELL}\n")
            cells.pop(0)
        pieces.append(ast.unparse(statement) + "\n")
    pieces += [f"{CELL}\n"] * bool(cells)
    return "".join(pieces)


def places(tree: ast.Module, body: list[ast.stmt]) -> dict[ast.AST, tuple[int, int]]:
    """Return the line and column in the file for each node of a parsed copy."""
    positions = {}
    stack = [*zip(tree.body, body, strict=False)]
    while stack:
        new, old = stack.pop()
        if type(new) is not type(old):
            continue
        if hasattr(new, "lineno"):
            positions[new] = old.lineno, old.col_offset
        for field in new._fields:
            a, b = getattr(new, field, None), getattr(old, field, None)
            if isinstance(a, list) and isinstance(b, list):
                pairs = zip(a, b, strict=False)
                stack += [(x, y) for x, y in pairs if isinstance(x, ast.AST)]
            elif isinstance(a, ast.AST) and isinstance(b, ast.AST):
                stack.append((a, b))
    return positions


class _Inliner:
    """Copy the tree of a file with its local functions inlined."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.copied: Counter[ast.AST] = Counter()
        self.left = 0  # statements that may still be added
        self.with_calls: set[ast.AST] = set()  # nodes around a call that may be replaced
        self.functions = {}
        called = {call.func.id for call in code.calls if isinstance(call.func, ast.Name)}
        called |= {call.func.attr for call in code.calls if isinstance(call.func, ast.Attribute)}
        for (owner, name), node in code.functions.items():
            if name in called and self._can_be_copied(owner, name, node):
                self.functions[node] = _Callee(node)

    def _can_be_copied(self, owner: str | None, name: str, node: ast.AST) -> bool:
        signature = getattr(node, "args", None)
        if not isinstance(node, ast.FunctionDef) or signature.vararg or signature.kwarg:
            return False
        if name.startswith("__") or name in ("forward", "main", "training_step", "backward"):
            return False
        if not isinstance(node.parent, ast.Module | ast.ClassDef):
            return False
        if owner is not None and (not signature.args or signature.args[0].arg != "self"):
            return False
        decorators = {_decorator(decorator) for decorator in node.decorator_list}
        return decorators <= _GRADIENTS and len(node.body) <= _LONGEST

    # ------------------------------------------------------------ the file

    def module(self) -> list[ast.stmt]:
        """Return the statements of the file, without functions whose every call was inlined."""
        self.left = _GROWTH * sum(isinstance(n, ast.stmt) for n in self.code.nodes)
        for call in self.code.calls:
            if self._callee(call, ()) is not None:
                ancestor = call
                while ancestor is not None and ancestor not in self.with_calls:
                    self.with_calls.add(ancestor)
                    ancestor = ancestor.parent
        if not self.with_calls:
            return []
        body = self._scope(self.code.tree)
        names = Counter(n.id for n in self.code.nodes_of(ast.Name) if isinstance(n.ctx, ast.Load))
        fields = Counter(n.attr for n in self.code.nodes_of(ast.Attribute))
        reads = {True: fields, False: names}
        gone = {
            id(function)
            for function, copies in self.copied.items()
            if copies >= reads[isinstance(function.parent, ast.ClassDef)][function.name]
        }
        return [*self._without(body, gone)]

    def _without(self, body: list[ast.stmt], gone: set[int]) -> Iterator[ast.stmt]:
        for statement in body:
            if getattr(statement, "original", id(statement)) in gone:
                continue
            if isinstance(statement, ast.ClassDef):
                statement = _Renaming(set()).copied(statement, skip=("body",), body=statement.body)
                statement.body = [*self._without(statement.body, gone)] or [
                    ast.copy_location(ast.Pass(), statement)
                ]
            yield statement

    def _scope(self, scope: ast.AST) -> list[ast.stmt]:
        names = {n.id for n in self.code.walk(scope) if isinstance(n, ast.Name)}
        names |= {n.arg for n in self.code.walk(scope) if isinstance(n, ast.arg)}
        self.local = {*scope.assigned} if not isinstance(scope, ast.Module) else set()
        if isinstance(scope, FUNCTIONS):
            self.local |= {n.arg for n in descendants(scope.args) if isinstance(n, ast.arg)}
        return self._block(scope.body, _Renaming(names), 0, ())

    def _block(self, body, names, depth, callers) -> list[ast.stmt]:
        return [
            copy for statement in body for copy in self._statement(statement, names, depth, callers)
        ]

    def _statement(self, node, names, depth, callers) -> list[ast.stmt]:
        if not depth and node not in self.with_calls:
            return [node]
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return [self._definition(node, names, depth, callers)]
        before: list[ast.stmt] = []
        copy = names.copied(node, skip=_BODIES)
        if depth < _DEEPEST:
            self._expressions(node, copy, names, depth, callers, before)
        for field in _BODIES:
            inner = getattr(node, field, None)
            if isinstance(inner, list) and not isinstance(node, ast.IfExp | ast.Lambda):
                done = []
                for child in inner:
                    if isinstance(child, ast.ExceptHandler | ast.match_case):
                        part = names.copied(child, skip=_BODIES)
                        part.body = self._block(child.body, names, depth, callers)
                        done.append(part)
                    else:
                        done += self._statement(child, names, depth, callers)
                setattr(copy, field, done)
        same = isinstance(copy, ast.Assign) and len(copy.targets) == 1
        if before and same and ast.unparse(copy.targets[0]) == ast.unparse(copy.value):
            return before
        empty = isinstance(copy, ast.Expr) and isinstance(copy.value, ast.Constant | ast.Name)
        if (
            before
            and isinstance(copy, ast.Expr)
            and not empty
            and _replaced(node.value, copy.value)
        ):
            goal = ast.copy_location(ast.Name("_", ast.Store()), copy)
            copy = ast.copy_location(ast.Assign([goal], copy.value), copy)  # the result is unused
        return before if before and empty else [*before, copy]

    def _definition(self, node, names, depth, callers) -> ast.stmt:
        copy = names.copied(node, skip=("body",))
        copy.original = id(node)
        if isinstance(node, ast.ClassDef):
            copy.body = self._block(node.body, names, depth, callers)
        elif callers or depth:
            copy.body = [names.copied(statement) for statement in node.body]
        else:
            kept = self.local
            copy.body = self._scope(node)
            self.local = kept
        return copy

    # ------------------------------------------------------------ calls

    def _expressions(self, node, copy, names, depth, callers, before) -> None:
        """Replace the calls in the expressions of a statement; append their bodies to `before`."""
        if isinstance(node, ast.While | ast.With | ast.AsyncWith | ast.Assert | ast.Try):
            return
        for field in ("iter",) if isinstance(node, ast.For) else node._fields:
            if field not in _BODIES and field not in ("targets", "target"):
                inner, inner_copy = getattr(node, field, None), getattr(copy, field, None)
                if isinstance(inner, ast.AST):
                    target = copy.targets[0] if _is_plain(node, inner) else None
                    replaced = self._expression(
                        inner, inner_copy, names, depth, callers, before, target
                    )
                    setattr(copy, field, replaced)

    def _expression(self, node, copy, names, depth, callers, before, target=None) -> ast.AST:
        if type(node) is not type(copy) or isinstance(node, (*_LATER, ast.expr_context)):
            return copy
        late = isinstance(node, ast.BoolOp)
        for field in node._fields:
            inner, inner_copy = getattr(node, field, None), getattr(copy, field, None)
            if isinstance(inner, list):
                for n, child in enumerate(inner):
                    if isinstance(child, ast.AST) and not (late and n):
                        inner_copy[n] = self._expression(
                            child, inner_copy[n], names, depth, callers, before
                        )
            elif isinstance(inner, ast.AST):
                replaced = self._expression(inner, inner_copy, names, depth, callers, before)
                setattr(copy, field, replaced)
        if isinstance(node, ast.Call):
            done = self._call(node, copy, names, depth, callers, before, target)
            return copy if done is None else done
        return copy

    def _callee(self, node: ast.Call, callers) -> tuple[ast.AST, ast.AST | None] | None:
        """Return the function that a call runs, and the object if it is a method."""
        targets = self.code.targets(node)
        if len(targets) != 1 or targets[0] not in self.functions or targets[0] in callers:
            return None
        function, instance = targets[0], receiver(node)
        if instance is None:
            return function, None
        if not isinstance(function.parent, ast.ClassDef) or name_of(instance) is None:
            return None
        if name_of(instance) != "self":
            cls = (kind(self.code, instance) or "").partition(":")[2]
            if cls not in self.code.classes or function.parent not in self.code.bases(cls):
                return None
        return function, instance

    def _call(self, node, copy, names, depth, callers, before, target) -> ast.AST | None:
        target_function = self._callee(node, callers)
        if target_function is None or is_open(node):
            return None
        function, callee = target_function[0], self.functions[target_function[0]]
        alone = isinstance(node.parent, ast.Expr) and not node.args and not node.keywords
        if self.copied[function] >= _MOST or callee.size > self.left:
            return None
        if alone and isinstance(node.parent.parent, ast.Module | ast.If):
            return None  # `main()`
        bindings = callee.bound(copy, target_function[1])
        if bindings is None:
            return None
        if not callee.fits:
            callee = callee.pruned(bindings)
        if not callee.fits or callee.free & self.local:
            return None  # a local variable hides the name of the module
        self.copied[function] += 1
        self.left -= callee.size
        inner, first = self._named(callee, bindings, names, target)
        before += first
        depth += 1
        body = callee.body
        done = self._block(body[:-1] if callee.result else body, inner, depth, (*callers, function))
        value = None
        if callee.result is not None:
            value = inner.copied(callee.result)
            late: list[ast.stmt] = []
            value = self._expression(callee.result, value, inner, depth, (*callers, function), late)
            done += late
        if callee.without_gradients:
            name = names.unused("no_grad_value")
            if value is not None:
                result = callee.result
                target = ast.copy_location(ast.Name(name, ast.Store()), result)
                done.append(ast.copy_location(ast.Assign([target], value), result))
                value = ast.copy_location(ast.Name(name, ast.Load()), result)
            done = [_no_grad(node, done)] if done else []
        before += done
        return ast.copy_location(ast.Constant(None), node) if value is None else value

    def _named(self, callee, bindings, names, target):
        """Return the renaming of a copied body, and assignments for its parameters."""
        inner, first = _Renaming(names.used), []
        for name, value in bindings.items():
            simple = name_of(value) is not None and "[" not in name_of(value)
            simple = simple or isinstance(value, ast.Constant)
            once = callee.single and callee.reads[name] <= 1
            if name not in callee.assigned and (simple or once):
                inner.renamed[name] = value
            else:
                new = names.unused(name)
                inner.renamed[name] = ast.copy_location(ast.Name(new, ast.Load()), value)
                goal = ast.copy_location(ast.Name(new, ast.Store()), value)
                first.append(ast.copy_location(ast.Assign([goal], value), value))
        results = callee.results(target)
        passed = {
            name_of(n) for argument_node in bindings.values() for n in descendants(argument_node)
        } | callee.free
        for name in callee.assigned - bindings.keys():
            new = results.get(name)
            if new is None or name_of(new) in passed:
                new = ast.Name(names.unused(name), ast.Load())
            inner.renamed[name] = new
        return inner, first


_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def _replaced(node: ast.AST, copy: ast.AST) -> bool:
    """Return True if a call was replaced by the result of its function."""
    return (node.lineno, node.col_offset) != (copy.lineno, copy.col_offset)


def _is_plain(node: ast.AST, value: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and node.value is value and len(node.targets) == 1


def _no_grad(node: ast.AST, body: list[ast.stmt]) -> ast.stmt:
    item = ast.parse("with torch.no_grad(): pass").body[0]
    for child in descendants(item):
        if hasattr(child, "lineno"):
            ast.copy_location(child, node)
    item.body = body
    return item


def _decorator(node: ast.AST) -> str:
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    return method(call)


class _Renaming:
    """The renaming of the variables of a copied body."""

    def __init__(self, used: set[str]) -> None:
        self.used = used
        self.renamed: dict[str, ast.AST] = {}

    def unused(self, name: str) -> str:
        """Return a name that is unused in the scope, such as `loss2` for `loss`."""
        new = name
        for n in range(2, 100):
            if new not in self.used:
                break
            new = f"{name}{n}"
        self.used.add(new)
        return new

    def copied(
        self, node: ast.AST, skip: tuple[str, ...] = (), body: list[ast.stmt] | None = None
    ) -> ast.AST:
        """Copy a node with renamed variables; list fields in `skip` are replaced by `body`."""
        if isinstance(node, ast.Name) and node.id in self.renamed:
            return self._substituted(node)
        is_forward = (
            isinstance(node, ast.Attribute) and node.attr == "forward" and "self" in self.renamed
        )
        if is_forward and name_of(node.value) == "self":  # the copied body runs outside the class
            return self.copied(node.value)
        copy = node.__class__.__new__(node.__class__)
        for name in node._attributes:
            if hasattr(node, name):
                setattr(copy, name, getattr(node, name))
        for name in node._fields:
            value = getattr(node, name, None)
            if name in skip and isinstance(value, list):
                value = body or []
            elif isinstance(value, list):
                value = [self.copied(v) if isinstance(v, ast.AST) else v for v in value]
            elif isinstance(value, ast.AST):
                value = self.copied(value)
            setattr(copy, name, value)
        return copy

    def _substituted(self, node: ast.Name) -> ast.AST:
        new = self.renamed[node.id]
        stored = not isinstance(node.ctx, ast.Load)
        if stored and not isinstance(new, ast.Name | ast.Attribute):
            return ast.copy_location(ast.Name(node.id, node.ctx), node)
        copy = _Renaming(set()).copied(new)
        if isinstance(copy, ast.Name | ast.Attribute):
            copy.ctx = node.ctx
        if not isinstance(copy, ast.Call):
            ast.copy_location(copy, node)
        return copy


class _Callee:
    """A local function that may be inlined."""

    def __init__(self, node: ast.FunctionDef, body: list[ast.stmt] | None = None) -> None:
        body = node.body if body is None else body
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]
        self.node, self.body = node, body
        nodes = [child for part in body for child in descendants(part)]
        self.size = sum(isinstance(child, ast.stmt) for child in nodes)
        returned = [statement for statement in nodes if isinstance(statement, ast.Return)]
        ends = bool(body) and [body[-1]] == returned and body[-1].value is not None
        self.result = body[-1].value if ends else None
        self.single = ends and len(body) == 1
        strange = any(isinstance(child, _NOT_COPIED) for child in nodes)
        self.fits = bool(body) and (ends or not returned) and not strange and self.size <= _LONGEST
        names = [child for child in nodes if isinstance(child, ast.Name)]
        self.assigned = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
        self.reads = Counter(name.id for name in names if isinstance(name.ctx, ast.Load))
        signature = node.args
        self.parameters = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]
        names_given = {parameter.arg for parameter in self.parameters}
        self.free = {*self.reads} - self.assigned - names_given
        self.without_gradients = bool(node.decorator_list)

    def bound(self, copy: ast.Call, instance: ast.AST | None):
        """Return the argument of each parameter, or None if the call does not determine them."""
        names = [parameter.arg for parameter in self.parameters]
        bindings = {}
        if instance is not None:
            bindings[names[0]] = copy.func.value
        positional = names[
            len(bindings) : len(self.node.args.posonlyargs) + len(self.node.args.args)
        ]
        if len(copy.args) > len(positional):
            return None
        bindings |= dict(zip(positional, copy.args, strict=False))
        for keyword in copy.keywords:
            if keyword.arg in bindings or keyword.arg not in names:
                return None
            bindings[keyword.arg] = keyword.value
        for name in names:
            if name not in bindings:
                default = default_of(self.node, name)
                if default is None:
                    return None
                bindings[name] = _Renaming(set()).copied(default)
        return bindings

    def pruned(self, bindings: dict[str, ast.AST]) -> _Callee:
        """Return the function without the branches of `if name == "sgd":` that the call skips."""
        known = {
            name: value.value for name, value in bindings.items() if isinstance(value, ast.Constant)
        }
        for name in self.assigned:
            known.pop(name, None)
        return _Callee(self.node, _executed_statements(self.body, known)) if known else self

    def results(self, target: ast.AST | None) -> dict[str, ast.AST]:
        """Return the caller's names for the returned variables."""
        pairs = [(self.result, target)]
        if isinstance(self.result, ast.Tuple) and isinstance(target, ast.Tuple):
            pairs = [*zip(self.result.elts, target.elts, strict=False)]
        renamed_pairs = [
            (a, b) for a, b in pairs if isinstance(a, ast.Name) and a.id in self.assigned
        ]
        return {
            a.id: b
            for a, b in renamed_pairs
            if isinstance(b, ast.Name) or (name_of(b) or "")[:5] == "self."
        }


def _executed_statements(body: list[ast.stmt], known: dict[str, object]) -> list[ast.stmt]:
    """Return the statements that run with the known values, up to a `return`."""
    run: list[ast.stmt] = []
    for statement in body:
        arm = _truth_value(statement.test, known) if isinstance(statement, ast.If) else None
        if arm is None:
            run.append(statement)
        else:
            run += _executed_statements(statement.body if arm else statement.orelse, known)
        if run and isinstance(run[-1], ast.Return | ast.Raise):
            break
    return run


def _truth_value(test: ast.AST, known: dict[str, object]) -> bool | None:
    """Return the truth value of a condition on known values, None for other conditions."""
    if isinstance(test, ast.Name) and test.id in known:
        return bool(known[test.id])
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _truth_value(test.operand, known)
        return None if inner is None else not inner
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or name_of(test.left) not in known:
        return None
    left, right = known[test.left.id], test.comparators[0]
    if isinstance(test.ops[0], ast.In) and isinstance(right, ast.List | ast.Tuple | ast.Set):
        values = [getattr(element, "value", ...) for element in right.elts]
        return None if ... in values else left in values
    if not isinstance(right, ast.Constant):
        return None
    if isinstance(test.ops[0], ast.Eq | ast.Is):
        return left == right.value
    return left != right.value if isinstance(test.ops[0], ast.NotEq | ast.IsNot) else None
