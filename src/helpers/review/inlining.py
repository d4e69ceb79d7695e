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
from helpers.review.syntax import FUNCTIONS, default_of, is_open, method, receiver, text

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
        pieces.append(ast.unparse(ast.fix_missing_locations(statement)) + "\n")
    pieces += [f"{CELL}\n"] * bool(cells)
    return "".join(pieces)


def places(tree: ast.Module, body: list[ast.stmt]) -> dict[ast.AST, tuple[int, int]]:
    """Return the line and column in the file for each node of a parsed copy."""
    found = {}
    stack = [*zip(tree.body, body, strict=False)]
    while stack:
        new, old = stack.pop()
        if type(new) is not type(old):
            continue
        if hasattr(new, "lineno"):
            found[new] = old.lineno, old.col_offset
        for field in new._fields:
            a, b = getattr(new, field, None), getattr(old, field, None)
            if isinstance(a, list) and isinstance(b, list):
                pairs = zip(a, b, strict=False)
                stack += [(x, y) for x, y in pairs if isinstance(x, ast.AST)]
            elif isinstance(a, ast.AST) and isinstance(b, ast.AST):
                stack.append((a, b))
    return found


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
        given = getattr(node, "args", None)
        if not isinstance(node, ast.FunctionDef) or given.vararg or given.kwarg:
            return False
        if name.startswith("__") or name in ("forward", "main", "training_step", "backward"):
            return False
        if not isinstance(node.parent, ast.Module | ast.ClassDef):
            return False
        if owner is not None and (not given.args or given.args[0].arg != "self"):
            return False
        decorators = {_decorator(one) for one in node.decorator_list}
        return decorators <= _GRADIENTS and len(node.body) <= _LONGEST

    # ------------------------------------------------------------ the file

    def module(self) -> list[ast.stmt]:
        """Return the statements of the file, without functions whose every call was inlined."""
        self.left = _GROWTH * sum(isinstance(n, ast.stmt) for n in self.code.nodes)
        for call in self.code.calls:
            if self._callee(call, ()) is not None:
                up = call
                while up is not None and up not in self.with_calls:
                    self.with_calls.add(up)
                    up = up.parent
        if not self.with_calls:
            return []
        body = self._scope(self.code.tree)
        names = Counter(n.id for n in self.code.of(ast.Name) if isinstance(n.ctx, ast.Load))
        fields = Counter(n.attr for n in self.code.of(ast.Attribute))
        reads = {True: fields, False: names}
        gone = {
            id(one)
            for one, copies in self.copied.items()
            if copies >= reads[isinstance(one.parent, ast.ClassDef)][one.name]
        }
        return [*self._without(body, gone)]

    def _without(self, body: list[ast.stmt], gone: set[int]) -> Iterator[ast.stmt]:
        for one in body:
            if getattr(one, "original", id(one)) in gone:
                continue
            if isinstance(one, ast.ClassDef):
                one = _Names(set()).copied(one, skip=("body",), body=one.body)
                one.body = [*self._without(one.body, gone)] or [ast.copy_location(ast.Pass(), one)]
            yield one

    def _scope(self, scope: ast.AST) -> list[ast.stmt]:
        names = {n.id for n in self.code.walk(scope) if isinstance(n, ast.Name)}
        names |= {n.arg for n in self.code.walk(scope) if isinstance(n, ast.arg)}
        self.local = {*scope.assigned} if not isinstance(scope, ast.Module) else set()
        if isinstance(scope, FUNCTIONS):
            self.local |= {n.arg for n in ast.walk(scope.args) if isinstance(n, ast.arg)}
        return self._block(scope.body, _Names(names), 0, ())

    def _block(self, body, names, depth, around) -> list[ast.stmt]:
        return [copy for one in body for copy in self._statement(one, names, depth, around)]

    def _statement(self, node, names, depth, around) -> list[ast.stmt]:
        if not depth and node not in self.with_calls:
            return [node]
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return [self._definition(node, names, depth, around)]
        before: list[ast.stmt] = []
        copy = names.copied(node, skip=_BODIES)
        if depth < _DEEPEST:
            self._expressions(node, copy, names, depth, around, before)
        for field in _BODIES:
            inner = getattr(node, field, None)
            if isinstance(inner, list) and not isinstance(node, ast.IfExp | ast.Lambda):
                done = []
                for one in inner:
                    if isinstance(one, ast.ExceptHandler | ast.match_case):
                        part = names.copied(one, skip=_BODIES)
                        part.body = self._block(one.body, names, depth, around)
                        done.append(part)
                    else:
                        done += self._statement(one, names, depth, around)
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

    def _definition(self, node, names, depth, around) -> ast.stmt:
        copy = names.copied(node, skip=("body",))
        copy.original = id(node)
        if isinstance(node, ast.ClassDef):
            copy.body = self._block(node.body, names, depth, around)
        elif around or depth:
            copy.body = [names.copied(one) for one in node.body]
        else:
            kept = self.local
            copy.body = self._scope(node)
            self.local = kept
        return copy

    # ------------------------------------------------------------ calls

    def _expressions(self, node, copy, names, depth, around, before) -> None:
        """Replace the calls in the expressions of a statement; append their bodies to `before`."""
        if isinstance(node, ast.While | ast.With | ast.AsyncWith | ast.Assert | ast.Try):
            return
        for field in ("iter",) if isinstance(node, ast.For) else node._fields:
            if field not in _BODIES and field not in ("targets", "target"):
                inner, mine = getattr(node, field, None), getattr(copy, field, None)
                if isinstance(inner, ast.AST):
                    target = copy.targets[0] if _is_plain(node, inner) else None
                    found = self._expression(inner, mine, names, depth, around, before, target)
                    setattr(copy, field, found)

    def _expression(self, node, copy, names, depth, around, before, target=None) -> ast.AST:
        if type(node) is not type(copy) or isinstance(node, (*_LATER, ast.expr_context)):
            return copy
        late = isinstance(node, ast.BoolOp)
        for field in node._fields:
            inner, mine = getattr(node, field, None), getattr(copy, field, None)
            if isinstance(inner, list):
                for n, one in enumerate(inner):
                    if isinstance(one, ast.AST) and not (late and n):
                        mine[n] = self._expression(one, mine[n], names, depth, around, before)
            elif isinstance(inner, ast.AST):
                found = self._expression(inner, mine, names, depth, around, before)
                setattr(copy, field, found)
        if isinstance(node, ast.Call):
            done = self._call(node, copy, names, depth, around, before, target)
            return copy if done is None else done
        return copy

    def _callee(self, node: ast.Call, around) -> tuple[ast.AST, ast.AST | None] | None:
        """Return the function that a call runs, and the object if it is a method."""
        targets = self.code.targets(node)
        if len(targets) != 1 or targets[0] not in self.functions or targets[0] in around:
            return None
        function, own = targets[0], receiver(node)
        if own is None:
            return function, None
        if not isinstance(function.parent, ast.ClassDef) or text(own) is None:
            return None
        if text(own) != "self":
            cls = (kind(self.code, own) or "").partition(":")[2]
            if cls not in self.code.classes or function.parent not in self.code.bases(cls):
                return None
        return function, own

    def _call(self, node, copy, names, depth, around, before, target) -> ast.AST | None:
        found = self._callee(node, around)
        if found is None or is_open(node):
            return None
        function, callee = found[0], self.functions[found[0]]
        alone = isinstance(node.parent, ast.Expr) and not node.args and not node.keywords
        if self.copied[function] >= _MOST or callee.size > self.left:
            return None
        if alone and isinstance(node.parent.parent, ast.Module | ast.If):
            return None  # `main()`
        given = callee.bound(node, copy, found[1])
        if given is None:
            return None
        if not callee.fits:
            callee = callee.pruned(given)
        if not callee.fits or callee.free & self.local:
            return None  # a local variable hides the name of the module
        self.copied[function] += 1
        self.left -= callee.size
        inner, first = self._named(callee, given, names, target)
        before += first
        depth += 1
        body = callee.body
        done = self._block(body[:-1] if callee.result else body, inner, depth, (*around, function))
        value = None
        if callee.result is not None:
            value = inner.copied(callee.result)
            late: list[ast.stmt] = []
            value = self._expression(callee.result, value, inner, depth, (*around, function), late)
            done += late
        if callee.without_gradients:
            name = names.unused("no_grad_value")
            if value is not None:
                at = callee.result
                done.append(ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), at))
                value = ast.copy_location(ast.Name(name, ast.Load()), at)
            done = [_no_grad(node, done)] if done else []
        before += done
        return ast.copy_location(ast.Constant(None), node) if value is None else value

    def _named(self, callee, given, names, target):
        """Return the renaming of a copied body, and assignments for its parameters."""
        inner, first = _Names(names.used), []
        for name, value in given.items():
            simple = text(value) is not None and "[" not in text(value)
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
        passed = {text(n) for one in given.values() for n in ast.walk(one)} | callee.free
        for name in callee.assigned - given.keys():
            new = results.get(name)
            if new is None or text(new) in passed:
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
    for one in ast.walk(item):
        if hasattr(one, "lineno"):
            ast.copy_location(one, node)
    item.body = body
    return item


def _decorator(node: ast.AST) -> str:
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    return method(call)


class _Names:
    """The renaming of the variables of a copied body."""

    def __init__(self, used: set[str]) -> None:
        self.used = used
        self.renamed: dict[str, ast.AST] = {}

    def unused(self, name: str) -> str:
        """Return a name that is unused in the scope, `loss2` for `loss`."""
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
        own = isinstance(node, ast.Attribute) and node.attr == "forward" and "self" in self.renamed
        if own and text(node.value) == "self":  # the copied body runs outside the class
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
        copy = _Names(set()).copied(new)
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
        nodes = [one for part in body for one in ast.walk(part)]
        self.size = sum(isinstance(one, ast.stmt) for one in nodes)
        returned = [one for one in nodes if isinstance(one, ast.Return)]
        ends = bool(body) and [body[-1]] == returned and body[-1].value is not None
        self.result = body[-1].value if ends else None
        self.single = ends and len(body) == 1
        strange = any(isinstance(one, _NOT_COPIED) for one in nodes)
        self.fits = bool(body) and (ends or not returned) and not strange and self.size <= _LONGEST
        names = [one for one in nodes if isinstance(one, ast.Name)]
        self.assigned = {one.id for one in names if not isinstance(one.ctx, ast.Load)}
        self.reads = Counter(one.id for one in names if isinstance(one.ctx, ast.Load))
        given = node.args
        self.parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        names_given = {one.arg for one in self.parameters}
        self.free = {*self.reads} - self.assigned - names_given
        self.without_gradients = bool(node.decorator_list)

    def bound(self, node: ast.Call, copy: ast.Call, own: ast.AST | None):
        """Return the argument of each parameter, or None if the call does not determine them."""
        names = [one.arg for one in self.parameters]
        given = {}
        if own is not None:
            given[names[0]] = copy.func.value
        positional = names[len(given) : len(self.node.args.posonlyargs) + len(self.node.args.args)]
        if len(copy.args) > len(positional):
            return None
        given |= dict(zip(positional, copy.args, strict=False))
        for one in copy.keywords:
            if one.arg in given or one.arg not in names:
                return None
            given[one.arg] = one.value
        for name in names:
            if name not in given:
                default = default_of(self.node, name)
                if default is None:
                    return None
                given[name] = _Names(set()).copied(default)
        return given

    def pruned(self, given: dict[str, ast.AST]) -> _Callee:
        """Return the function without the branches of `if name == "sgd":` that the call skips."""
        known = {
            name: value.value for name, value in given.items() if isinstance(value, ast.Constant)
        }
        for name in self.assigned:
            known.pop(name, None)
        return _Callee(self.node, _run(self.body, known)) if known else self

    def results(self, target: ast.AST | None) -> dict[str, ast.AST]:
        """Return the caller's names for the returned variables."""
        pairs = [(self.result, target)]
        if isinstance(self.result, ast.Tuple) and isinstance(target, ast.Tuple):
            pairs = [*zip(self.result.elts, target.elts, strict=False)]
        own = [(a, b) for a, b in pairs if isinstance(a, ast.Name) and a.id in self.assigned]
        return {
            a.id: b for a, b in own if isinstance(b, ast.Name) or (text(b) or "")[:5] == "self."
        }


def _run(body: list[ast.stmt], known: dict[str, object]) -> list[ast.stmt]:
    """Return the statements that run with the known values, up to a `return`."""
    run: list[ast.stmt] = []
    for one in body:
        arm = _holds(one.test, known) if isinstance(one, ast.If) else None
        if arm is None:
            run.append(one)
        else:
            run += _run(one.body if arm else one.orelse, known)
        if run and isinstance(run[-1], ast.Return | ast.Raise):
            break
    return run


def _holds(test: ast.AST, known: dict[str, object]) -> bool | None:
    """Return the truth value of a condition on known values, None for other conditions."""
    if isinstance(test, ast.Name) and test.id in known:
        return bool(known[test.id])
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _holds(test.operand, known)
        return None if inner is None else not inner
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or text(test.left) not in known:
        return None
    left, right = known[test.left.id], test.comparators[0]
    if isinstance(test.ops[0], ast.In) and isinstance(right, ast.List | ast.Tuple | ast.Set):
        values = [getattr(one, "value", ...) for one in right.elts]
        return None if ... in values else left in values
    if not isinstance(right, ast.Constant):
        return None
    if isinstance(test.ops[0], ast.Eq | ast.Is):
        return left == right.value
    return left != right.value if isinstance(test.ops[0], ast.NotEq | ast.IsNot) else None
