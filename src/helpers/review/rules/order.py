"""Orders and seeds that differ or repeat: workers, lists of files, sets, names of files."""

import ast
import re

from helpers.review.registry import rule
from helpers.review.rules.data import datasets
from helpers.review.rules.passes import SEEDS
from helpers.review.syntax import (
    FUNCTIONS,
    ancestors,
    argument,
    const,
    descendants,
    method,
    name_of,
)

_FRESH = re.compile(r"initial_seed|get_worker_info|urandom|SeedSequence|time\(|getpid|rank")


@rule("loading-worker-seed", "wrong", "worker_init_fn")
def one_seed(code):
    """`def seed_worker(worker_id): np.random.seed(42)`: all workers draw the same numbers."""
    for call in code.calls:
        worker_init_fn = argument(call, "worker_init_fn")
        function = _function(code, worker_init_fn)
        if function is None or call.owner is not None and _FRESH.search(code.source_of(call)):
            continue
        body = function.body if isinstance(function.body, list) else [function.body]
        function_source = "\n".join(map(ast.unparse, body))
        names = [parameter.arg for parameter in function.args.args]
        if _FRESH.search(function_source) or any(
            re.search(rf"\b{name}\b", function_source) for name in names[:1]
        ):
            continue
        seeds = [
            other_call
            for statement in body
            for other_call in descendants(statement)
            if isinstance(other_call, ast.Call)
            and code.dotted(other_call.func) in SEEDS
            and other_call.args
        ]
        if seeds:
            yield seeds[0]


def _function(code, node):
    """Return the function or lambda that a name, or `partial(f, …)`, is in this file."""
    if method(node) == "partial" and node.args:
        if any(k.arg in ("worker_id", None) for k in node.keywords) or len(node.args) > 1:
            return None  # the worker's number is another argument
        node = node.args[0]
    if isinstance(node, ast.Lambda):
        return node
    if isinstance(node, ast.Name):
        value = code.functions.get((None, node.id)) or code.value(node)
        inner = [
            f for f in code.nodes_of(*FUNCTIONS) if f.name == node.id and f.scope is node.scope
        ]
        value = inner[0] if value is None and inner else value
        return value if isinstance(value, (*FUNCTIONS, ast.Lambda)) else None
    return None


_LISTED = {"os.listdir", "glob.glob", "glob.iglob"}


@rule("loading-files-unsorted", "wrong", "listdir|glob")
def lists_of_two_folders(code):
    """`os.listdir(images)` and `os.listdir(masks)`, and both are read at one index."""
    for name, node in datasets(code):
        get = code.functions.get((name, "__getitem__"))
        lists = [
            assignment
            for values in node.attributes.values()
            for assignment in values
            if _in_any_order(code, assignment.value) and len(values) == 1
        ]
        if get is None or len(lists) < 2:
            continue
        index = get.args.args[1].arg if len(get.args.args) > 1 else None
        read = [
            assignment
            for assignment in lists
            if _reads_at(get, name_of(assignment.statement.targets[0]), index)
            and not _sorted_later(code, name_of(assignment.statement.targets[0]))
        ]
        if len({ast.unparse(assignment.value) for assignment in read}) > 1:
            yield read[1].statement
    yield from _zipped_folders(code)


def _in_any_order(code, node):
    """Return True for files in arbitrary order: `os.listdir(…)`, `list(path.glob(…))`."""
    if isinstance(node, ast.ListComp) and len(node.generators) == 1:
        return _in_any_order(code, node.generators[0].iter)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name) and node.func.id == "list" and len(node.args) == 1:
        return _in_any_order(code, node.args[0])
    if code.dotted(node.func) in _LISTED:
        return True
    return method(node) in ("iterdir", "rglob", "glob") and not code.called(node)


def _reads_at(get, name, index):
    return any(
        isinstance(node, ast.Subscript)
        and name_of(node.value) == name
        and name_of(node.slice) == index
        for node in descendants(get)
    )


def _sorted_later(code, name):
    quoted = re.escape(name)
    return re.search(rf"{quoted}\.sort\(|sorted\({quoted}", code.source)


def _zipped_folders(code):
    """`zip(os.listdir(images), os.listdir(masks))`."""
    for call in code.calls:
        if name_of(call.func) != "zip" or len(call.args) != 2:
            continue
        values = [code.resolved(arg) for arg in call.args]
        if all(isinstance(value, ast.AST) and _in_any_order(code, value) for value in values):
            names = [name_of(arg) for arg in call.args]
            if not any(name and _sorted_later(code, name) for name in names):
                if ast.unparse(values[0]) != ast.unparse(values[1]):
                    yield call


@rule("language-vocabulary-set", "wrong", "enumerate(")
def vocabulary_of_set(code):
    """`{w: i for i, w in enumerate(set(words))}`, and only the weights are saved."""
    saves = [
        other_call
        for other_call in code.calls_to("torch.save")
        if "state_dict" in ast.unparse(other_call)
    ]
    loads = list(code.calls_named("load_state_dict"))
    if not saves and not loads:
        return
    if re.search(r"json\.|pickle\.|joblib|yaml|PYTHONHASHSEED|write\(|savetxt", code.source):
        return
    for call in code.calls:
        if name_of(call.func) != "enumerate" or not call.args:
            continue
        value = code.resolved(call.args[0])
        if name_of(getattr(value, "func", None)) == "list" and value.args:
            value = code.resolved(value.args[0])
        from_set = isinstance(value, ast.Call) and name_of(value.func) == "set" and value.args
        if not from_set and not isinstance(value, ast.SetComp):
            continue
        written = ast.unparse(value)
        if re.search(r"\b(int|range|ids?|idx|indices|numbers?)\b", written):
            continue
        comprehension = next(ancestors(call, ast.DictComp), None)
        statement = next(ancestors(call, ast.Assign), None)
        name = name_of(statement.targets[0]) if statement is not None else None
        if (
            comprehension is None
            or not name
            or any(name.removeprefix("self.") in ast.unparse(save) for save in saves)
        ):
            continue
        if re.search(r"(?i)word|token|vocab|char|stoi|text|tag|label|class", f"{name} {written}"):
            yield call


@rule("checkpoints-last-wrong", "wrong", "sorted(|max(|.sort()")
def latest_by_name(code):
    """`sorted(glob("model_*.pt"))[-1]` of `f"model_{epoch}.pt"`: 9 is sorted after 10."""
    saved = [
        ast.unparse(child)
        for call in code.calls_to("torch.save")
        for child in descendants(call)
        if isinstance(child, ast.JoinedStr) and _unpadded(child)
    ]
    saved += [
        ast.unparse(value)
        for call in code.calls_to("torch.save")
        if len(call.args) > 1
        if isinstance(value := code.resolved(call.args[1]), ast.AST)
        for child in descendants(value)
        if isinstance(child, ast.JoinedStr) and _unpadded(child)
    ]
    if not saved or re.search(r"\{\w+( \+ 1)?:0\d+d?\}", code.source):
        return
    for node in code.nodes_of(ast.Call, ast.Subscript):
        if isinstance(node, ast.Subscript):
            index = node.slice  # `[-1]`, and `[:-3]` of the files to delete
            newest = (
                const(index) == -1 or isinstance(index, ast.Slice) and "-" in ast.unparse(index)
            )
            value = code.resolved(node.value) if newest else None
            chosen = isinstance(value, ast.Call) and name_of(value.func) == "sorted" and value
        else:
            chosen = name_of(node.func) == "max" and node
        if not chosen or len(chosen.args) != 1 or chosen.keywords:
            continue
        files = code.resolved(chosen.args[0])
        if isinstance(files, ast.Call | ast.ListComp) and _in_any_order(code, files):
            if re.search(r"\.(pth?|ckpt|tar|bin)\b", ast.unparse(files)):
                yield node


def _unpadded(string):
    """Return True for a file name with the number of an epoch or step, without a width."""
    for value in string.values:
        if isinstance(value, ast.FormattedValue) and value.format_spec is None:
            if re.search(
                r"(?i)^(epoch|step|i|it|iteration|global_step|e)( \+ 1)?$", ast.unparse(value.value)
            ):
                return True
    return False
