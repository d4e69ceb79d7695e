"""Statements that belong before a training loop, and states that it carries."""

import ast
import re
from collections import defaultdict

from helpers.review.code import Part, has_parameter
from helpers.review.flow import events
from helpers.review.kinds import is_model, kind, no_graph
from helpers.review.registry import rule
from helpers.review.rules.parameters import optimizers
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    ancestors,
    argument,
    const,
    descendants,
    method,
    name_of,
    names_in,
    place,
    receiver,
    stored_names,
)
from helpers.review.tracing import construction


@rule("training-optimizer-in-loop", "wrong")
def optimizer_in_loop(code):
    """A new optimizer in each iteration: momentum and Adam's averages start again."""
    yield from _in_each_call(code)
    for _, name, assignment, model in optimizers(code):
        loop = next(ancestors(assignment.statement, *LOOPS), None)
        if loop is None or not model or assignment.statement not in loop.body:
            continue
        used = {
            event.kind
            for event in events(code, loop, 0)
            if event.name == name or event.kind == "backward"
            if next(ancestors(event.call, *LOOPS), None) is loop
        }
        values = loop.scope.assigned.get(model, ())
        fresh = any(
            loop.lineno <= earlier.statement.lineno <= loop.end_lineno for earlier in values
        )
        if {"backward", "step"} <= used and not fresh:
            yield assignment.statement


_ONE_STEP = re.compile(
    r"(fit|train|learn|update|optimi[sz]e)_?(on_)?(batch|step|model|agent|network|q)?$"
)


def _in_each_call(code):
    """Yield an optimizer that a training step creates for the model that it receives."""
    for scope, name, assignment, model in optimizers(code):
        if not isinstance(scope, FUNCTIONS) or not _ONE_STEP.fullmatch(scope.name):
            continue
        takes_model = assignment.statement in scope.body and model and has_parameter(scope, model)
        calls = [call for call in code.calls_under(scope) if method(call) in ("backward", "step")]
        stepped = [
            call for call in calls if method(call) == "step" and name_of(receiver(call)) == name
        ]
        looped = any(any(ancestors(call, *LOOPS)) for call in calls)
        if takes_model and len(calls) == 2 and stepped and not looped:
            yield assignment.statement


@rule("training-in-eval", "wrong")
def training_in_eval(code):
    """`model.eval()` before the training loop, and no `model.train()`."""
    trained = {model for _, _, _, model in optimizers(code) if model}
    for loop in code.loops:
        if any(ancestors(loop, *LOOPS)) or not trained:
            continue
        inner = {event.kind for event in events(code, loop, 3)}
        if "train" in inner or not {"backward", "step"} <= inner:
            continue
        function = code.function_of(loop)
        modes = [
            event
            for event in events(code, function, 0)
            if event.kind in ("train", "eval") and event.name in trained
            if place(event.call) < place(loop)
        ]
        if modes and modes[-1].kind == "eval" and _is_called_in(code, loop, modes[-1].name):
            assignments = loop.scope.assigned.get(modes[-1].name, ())
            if not any(
                place(modes[-1].call) < assignment.end < place(loop) for assignment in assignments
            ):
                yield modes[-1].call


def _is_called_in(code, loop, name):
    return any(name_of(call.func) == name for call in code.calls_under(loop))


@rule("detach-state-error", "raises")
def state_carried(code):
    """`out, h = rnn(x, h)` in a training loop without `h.detach()`."""
    for loop in code.loops:
        backward_calls = [
            c for c in code.methods(loop, "backward") if next(ancestors(c, *LOOPS), None) is loop
        ]
        if not backward_calls or any(
            argument(call, "retain_graph") is not None for call in backward_calls
        ):
            continue
        for node in loop.body:
            name = _carried(code, node)
            if name and not _is_renewed(code, loop, name, node):
                yield node
    yield from _kept_in_attribute(code)


def _kept_in_attribute(code):
    """`out, self.hidden = self.lstm(x, self.hidden)` in `forward`, and nothing resets it."""
    for node in code.nodes_of(ast.Assign):
        if getattr(node.scope, "name", "") != "forward" or node.owner is None:
            continue
        name = _carried(code, node) or ""
        if not name.startswith("self.") or "backward()" not in code.source:
            continue
        places = {
            getattr(assignment.statement.scope, "name", "")
            for assignment in node.owner.attributes[name]
        }
        attribute = re.escape(name.removeprefix("self."))
        outside = code.source.replace(code.source_of(node.owner), "")
        reset = re.search(rf"\.{attribute}\b|\.(init|reset)_?\w*\(", outside)
        once = len(node.scope.assigned.get(name, ())) == 1 and places <= {"__init__", "forward"}
        if once and not reset and not re.search(r"detach|\.data\b", code.source_of(node.owner)):
            yield node


def _carried(code, node):
    """Return the name of a state that a model receives and returns in one statement."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return None
    target = node.targets[0]
    if (
        not isinstance(target, ast.Tuple)
        or len(target.elts) != 2
        or not is_model_or_rnn(code, node.value.func)
    ):
        return None
    passed_names = {
        name_of(arg) for arg in (*node.value.args[1:], *(k.value for k in node.value.keywords))
    }
    name = name_of(target.elts[1])
    return (
        name
        if name in passed_names
        and re.search(r"(?i)^(self\.)?(h|hidden|state|hx|hc|h_n|hn)\w*$", name or "")
        else None
    )


def is_model_or_rnn(code, node):
    """Return whether a call goes to a model or to a recurrent layer."""
    return is_model(code, node) or bool(re.search(r"(?i)rnn|lstm|gru", name_of(node) or ""))


def _is_renewed(code, loop, name, node):
    """Return whether the state is detached or created again in the loop."""
    others = [
        assignment
        for assignment in loop.scope.assigned.get(name, ())
        if assignment.statement is not node
        if loop.lineno < assignment.statement.lineno <= loop.end_lineno
    ]
    return others or re.search(r"detach|repackage|\.data\b|torch\.no_grad", code.source_of(loop))


@rule("loading-split-epoch", "wrong")
def split_in_loop(code):
    """`random_split` in the loop over epochs: the model is trained on samples of the test part."""
    for call in code.calls:
        name = code.called(call)
        if name not in ("data.random_split", "sklearn.model_selection.train_test_split"):
            continue
        loop = next(ancestors(call, *LOOPS), None)
        if isinstance(loop, ast.For) and re.search(r"(?i)epoch", ast.unparse(loop.target)):
            fixed = argument(call, "generator") or argument(call, "random_state")
            if fixed is None and code.methods(loop, "backward", follow=3):
                yield call


@rule("evaluation-scaler-leak", "wrong")
def scaled_before_split(code):
    """`scaler.fit_transform(x)` before `train_test_split`: the scale depends on the test data."""
    for call in code.calls_to("sklearn.model_selection.train_test_split"):
        if not call.args:
            continue
        value = code.resolved(call.args[0])
        if method(value) == "fit_transform":
            constructor = receiver(value)
            constructor = code.value(constructor) if name_of(constructor) else constructor
            if re.search(
                r"sklearn\.preprocessing\.\w*(Scaler|Transformer)$", code.called(constructor)
            ):
                yield value
    yield from _scaled_before_slices(code)
    yield from _standardized_before_slices(code)


def _standardized_before_slices(code):
    """`x = (x - x.mean()) / x.std()`, and then `train, test = x[:n], x[n:]`."""
    for node in code.nodes_of(ast.Assign):
        target = node.targets[0]
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        name = name_of(first.value if isinstance(first, ast.Subscript) else first)
        if re.search(r"(?i)label|target|class|(^|_)(y|ids?|idx|index)$", name or "y"):
            continue  # numbers that begin at 0
        if _standardized(code, node.value) or _by_function(code, node.value, name):
            if _split_later(code, node, _names_computed_from(node, name)):
                yield node


def _standardized(code, value):
    """Return True for `(x - x.mean()) / x.std()`, `x - x.min(0)[0]`, and the same in `apply`."""
    if method(value) == "apply" and value.args and isinstance(value.args[0], ast.Lambda):
        value = value.args[0].body
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        value = value.left
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Sub):
        return False
    data = value.left if isinstance(value.left, ast.Name) else None
    statistic = value.right.value if isinstance(value.right, ast.Subscript) else value.right
    return data is not None and _statistic_of(code, statistic, data)


def _by_function(code, value, name):
    """Return True for `x = normalize(x)` of a local function with the statistics of `x`."""
    targets = code.targets(value) if isinstance(value, ast.Call) else []
    if len(targets) != 1 or not re.search(r"(?i)normali[sz]e|standardi[sz]e|scale", method(value)):
        return False
    places = [n for n, arg in enumerate(value.args) if name_of(arg) == name]
    names = [parameter.arg for parameter in targets[0].args.args]
    if len(places) != 1 or places[0] >= len(names):
        return False
    parameter_name = names[places[0]]
    return any(
        method(call) in ("mean", "min", "std", "max") and name_of(receiver(call)) == parameter_name
        for call in code.calls_under(targets[0])
    )


def _split_later(code, node, names):
    """Return whether the names are sliced into two parts, or passed to `train_test_split`."""
    for call in code.calls:
        if code.called(call) == "sklearn.model_selection.train_test_split" and call.args:
            if call.scope is node.scope and place(call) > place(node):
                if name_of(call.args[0]) in names:
                    return True
        parted = re.match(r"(?i)split|train_val_test", method(call)) and call.args
        if parted and call.scope is node.scope and place(call) > place(node):
            targets = getattr(getattr(call.parent, "targets", [None])[0], "elts", [])
            if name_of(call.args[0]) in names and "train" in {
                _part_or_test(name_of(target) or "") for target in targets
            }:
                return True
    return any(_complementary(code, node.scope, name) for name in names)


def _statistic_of(code, node, data):
    """Return True for `data.mean()` or `np.mean(data)` of all data, even through a name."""
    value = code.resolved(node)
    value = value if method(value) in ("mean", "min") else None
    operand = value.args[0] if value is not None and code.called(value) and value.args else None
    operand = receiver(value) if value is not None and not code.called(value) else operand
    return isinstance(operand, ast.Name) and operand.id == data.id


def _names_computed_from(node, name):
    """Return the name and the names computed from it in its scope, as windows and tensors."""
    names = {name}
    for _ in range(3):
        for other, values in node.scope.assigned.items():
            sources = [
                _expression_of(assignment.value)
                for assignment in values
                if assignment.end > place(node)
            ]
            after = [value for value in sources if value is not None]
            if any(names & names_in(value) and _keeps_all(value) for value in after):
                names.add(other)
    return names


def _expression_of(value):
    """Return the expression that a name is assigned, including one of the results of a call."""
    if isinstance(value, Part):
        return value.value if value.index is not None else None
    return value


def _keeps_all(node):
    """Return whether no index takes a part, except in a comprehension over all positions."""
    parts = [subscript for subscript in descendants(node) if isinstance(subscript, ast.Subscript)]
    return not parts or any(isinstance(child, ast.comprehension) for child in descendants(node))


def _slice_of(code, part):
    """Return `x[:n]` of `torch.tensor(x[:n].values)` and `x[:n].contiguous()`."""
    for _ in range(4):
        if re.match(r"torch\.|numpy\.", code.called(part)) and part.args:
            part = part.args[0]
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            part = part.func.value
        elif isinstance(part, ast.Attribute) and part.attr == "values":
            part = part.value
    return part if isinstance(part, ast.Subscript) else None


def _complementary(code, scope, name):
    """Return True if `train = name[:n]` and `test = name[n:]` are in the scope."""
    bounds = {}
    for target, values in scope.assigned.items():
        for assignment in values:
            part = _slice_of(code, assignment.value)
            if part is not None and name_of(part.value) == name:
                rows = next(iter(getattr(part.slice, "elts", [part.slice])), None)
                if isinstance(rows, ast.Slice) and rows.step is None:
                    bounds[_part_or_test(target)] = rows
    first, second = bounds.get("train"), bounds.get("test")
    if first is None or second is None or not first.upper or not second.lower or first.lower:
        return False
    return ast.dump(first.upper) == ast.dump(second.lower)


def _scaled_before_slices(code):
    """`data = scaler.fit_transform(data)`, and then `train = data[:n]`, `test = data[n:]`."""
    for call in code.calls_named("fit_transform"):
        if not isinstance(call.parent, ast.Assign):
            continue
        constructor = construction(code, receiver(call))
        name = name_of(call.parent.targets[0])
        if not re.search(r"sklearn\.preprocessing\.\w*Scaler$", code.called(constructor)):
            continue
        parts = [
            subscript
            for subscript in code.nodes_of(ast.Subscript)
            if name_of(subscript.value) == name
        ]
        parts = [part for part in parts if code.value(part.value) is call]
        bounds = {}
        for part in parts:
            target = part.parent.targets[0] if isinstance(part.parent, ast.Assign) else None
            if isinstance(part.slice, ast.Slice) and part.slice.step is None:
                bounds[_part_or_test(name_of(target) or "")] = part.slice
        later = name and _split_later(code, call.parent, _names_computed_from(call.parent, name))
        if later or _parts_by_share(code, parts, name):
            yield call
            continue
        if {"train", "test"} <= {*bounds}:
            first, second = bounds["train"], bounds["test"]
            same = first.upper and second.lower and not first.lower
            if same and ast.dump(first.upper) == ast.dump(second.lower):
                yield call


def _parts_by_share(code, parts, name):
    """Return True if slices `data[begin:end]` for train and test end at shares of the length."""
    length_pattern = rf"len\({re.escape(name or '?')}\)"
    halves = set()
    for part in parts:
        target = part.parent.targets[0] if isinstance(part.parent, ast.Assign) else None
        ends = [part.slice.lower, part.slice.upper] if isinstance(part.slice, ast.Slice) else []
        values = [ast.unparse(v) for e in ends if e and isinstance(v := code.resolved(e), ast.AST)]
        shares = [v for v in values if re.search(r"(?i)train|split|ratio|0\.\d", v)]
        half = _part_in_name(name_of(target) or "")
        if half and shares and re.search(length_pattern, code.source_of(code.function_of(part))):
            halves.add(half)
    return halves == {"train", "test"}


def _part_in_name(name):
    match = re.search(r"(?i)(^|[_.])(train|test|val|valid)", name)
    return None if not match else "train" if match[2].lower() == "train" else "test"


def _part_or_test(name):
    match = re.search(r"(?i)(^|_)(train|test|val|valid)", name)
    return "train" if match and match[2].lower() == "train" else "test" if match else None


@rule("evaluation-scaler-refit", "wrong", "fit_transform")
def fitted_again(code):
    """`scaler.fit_transform(x_train)`, and then `scaler.fit_transform(x_test)`."""
    fitted = defaultdict(list)
    for call in code.calls:
        name = _data_name(call.args[0]) if call.args else None
        if method(call) in ("fit", "fit_transform") and name and _is_scaler(code, receiver(call)):
            fitted[call.scope].append((call, name))
    for calls in fitted.values():
        for n, (call, name) in enumerate(calls):
            if method(call) != "fit_transform" or not _HELD_OUT.search(name):
                continue
            scaler = code.value(receiver(call)) if name_of(receiver(call)) else None
            for before, other in calls[:n]:
                same = scaler is not None and scaler is code.value(receiver(before))
                same = (
                    same or name_of(receiver(call)) == name_of(receiver(before)) and scaler is None
                )
                pair = _HELD_OUT.sub("", name) == _TRAINED.sub("", other)
                if not _HELD_OUT.search(other) and (same or pair and _TRAINED.search(other)):
                    yield call
                    break


_HELD_OUT = re.compile(
    r"(?i)(?<![a-z])(test(ing)?|val(id(ation)?)?|dev|holdout)(?![a-z])|(?<=[xy])test"
)
_TRAINED = re.compile(r"(?i)(?<![a-z])train(ing)?(?![a-z])|(?<=[xy])train")
_FITTED = re.compile(r"sklearn\.(preprocessing|impute|feature_extraction\.text)\.[A-Z]\w*$")


def _data_name(node):
    """Return `x_test` of `x_test.values.reshape(-1, 1)` and of `x_test[columns]`."""
    while isinstance(node, ast.Call | ast.Subscript | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_scaler(code, node):
    """Return True for a scaler of scikit-learn, by its constructor or else by its name."""
    value = code.resolved(node) if isinstance(node, ast.AST) else None
    if isinstance(value, ast.Call):
        return bool(_FITTED.match(code.called(value)))
    return bool(re.search(r"(?i)(scaler|^sc|^ss|^mms?)(_?[xy\d])?$", name_of(node) or ""))


@rule("language-labels-padding", "wrong", "labels=|\"labels\"|'labels'")
def padding_in_labels(code):
    """`model(input_ids=ids, attention_mask=mask, labels=ids)` of padded texts."""
    cut = (
        r"-100|DataCollatorFor(LanguageModeling|Seq2Seq|CompletionOnly)|(?i:ignore_?index)|packing"
    )
    padded = (
        r"padding=(True|['\"](max_length|longest))|pad_to_max_length=True|pad_sequence\(|\.pad\("
    )
    if not re.search(padded, code.source) or re.search(cut, code.source):
        return
    for call in code.calls:
        labels, ids = argument(call, "labels"), argument(call, "input_ids")
        mask = argument(call, "attention_mask")
        if labels is None or ids is None or mask is None or code.called(call):
            continue
        if _copied_ids(code, labels, ast.unparse(ids)) and not no_graph(code, call):
            yield labels
    for node in code.nodes_of(ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and const(target.slice) == "labels":
            input_ids = f"{ast.unparse(target.value)}['input_ids']"
            if _copied_ids(code, node.value, input_ids):
                yield node


def _copied_ids(code, node, ids):
    """Return True for `ids`, `ids.clone()` or `ids.copy()`, even through an unchanged name."""
    name = node.id if isinstance(node, ast.Name) and node.id != ids else None
    if name is not None:
        changed = rf"\b{name}\[|\b{name}\.(masked|index|fill)|\b{name} = .*(where|masked|torch\.)"
        if re.search(changed, code.source):
            return False
        node = code.value(node)
    while method(node) in ("clone", "copy", "detach", "to", "cuda", "contiguous"):
        node = receiver(node)
    if method(node) == "deepcopy" and node.args:
        node = node.args[0]
    return isinstance(node, ast.AST) and ast.unparse(node) == ids


@rule("language-twice", "wrong")
def shifted_twice(code):
    """`model(ids[:, :-1], labels=ids[:, 1:])`: the model shifts the labels itself."""
    for call in code.calls:
        labels = argument(call, "labels")
        first = argument(call, "input_ids", 0)
        if labels is None or first is None or code.called(call):
            continue
        if _is_slice(code, first, None, -1) and _is_slice(code, labels, 1, None):
            if (
                not (kind(code, call.func) or "").startswith("module:")
                or "transformers" in code.source
            ):
                yield call


def _is_slice(code, node, lower, upper):
    """Return True for `x[:, lower:upper]`, even through a name and `contiguous()`."""
    for _ in range(3):
        if isinstance(node, ast.Name):
            node = code.value(node)
        elif isinstance(node, ast.Call) and receiver(node) is not None:
            node = receiver(node)
    if not isinstance(node, ast.Subscript):
        return False
    last = (
        node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
    )
    if not isinstance(last, ast.Slice) or last.step is not None:
        return False
    return [ast.unparse(bound) if bound else None for bound in (last.lower, last.upper)] == [
        None if lower is None else str(lower),
        None if upper is None else str(upper),
    ]


_DONE = re.compile(
    r"(?i)(not_?|non_?)?(dones?|terminals?|terminated|dones?_?masks?)(_(batch|b|t|tensor|flags?))?|"
    r"batch_(dones?|terminals?)"
)


@rule("rl-done-unused", "wrong")
def done_unused(code):
    """`target = reward + gamma * next_q` in a function that has `done` and does not use it."""
    for function in code.nodes_of(*FUNCTIONS):
        source = code.source_of(function)
        trains = re.search(r"backward\(|(?i:loss|criterion)\w*\(", source)
        if not re.search(r"(?i)gamma|discount", source) or not trains:
            continue
        stored = stored_names(function)
        stored |= {parameter.arg for parameter in function.args.args}
        unused = {n for n in stored if _DONE.fullmatch(n) if not code.uses(function, n)}
        for node in descendants(function):
            if unused and isinstance(node, ast.Assign) and _bellman(node.value):
                yield node
                break


def _bellman(value):
    """Return True for `reward + gamma * next`."""
    return (
        isinstance(value, ast.BinOp)
        and isinstance(value.op, ast.Add)
        and re.search(r"(?i)reward|^r\b", ast.unparse(value.left))
        and re.search(r"(?i)gamma|discount", ast.unparse(value.right))
        and not re.search(r"(?i)mask|done|term|final", ast.unparse(value))
    )


@rule("training-epochs-number", "raises")
def over_a_number(code):
    """`for epoch in epochs:` with `epochs = 10`: a number cannot be iterated."""
    for loop in code.nodes_of(ast.For):
        value = code.resolved(loop.iter)
        if isinstance(const(value), int) and not isinstance(const(value), bool):
            yield loop
