"""Reinforcement learning: signs, returns, exploration."""

import ast
import re

from helpers.review.code import Part
from helpers.review.kinds import is_model, no_graph
from helpers.review.registry import rule
from helpers.review.rules.formulas import number
from helpers.review.rules.learning import differentiated, negated
from helpers.review.syntax import (
    LOOPS,
    ancestors,
    argument,
    const,
    descendants,
    is_inside,
    method,
    name_of,
    names_in,
    operands,
    receiver,
)
from helpers.review.tracing import construction

_LOG_PROB = re.compile(r"(?i)(^|[._])log_?(p|pi|probs?)s?(_|$)")
_RETURN = re.compile(
    r"(?i)(^|[._])(returns?|advantages?|adv|deltas?|rewards?|discounted\w*|g|r)(\.detach)?$"
)
_GAMMA = re.compile(r"(?i)gamma|discount|\b0?\.9\d*\b")
_MASK = re.compile(r"(?i)mask|done|terminal|terminated|not_|cont|alive")


def _expanded(code, node):
    """Return the value of a name, else the expression itself."""
    value = code.value(node) if isinstance(node, ast.Name | ast.Attribute) else node
    return value if isinstance(value, ast.AST) else node


def _reduced_ancestor(node):
    """Climb from an expression over `.mean()`, `torch.sum(…)` and sums; None if it is negated."""
    while True:
        parent = node.parent
        called = method(parent) in ("mean", "sum") and node in parent.args
        if (
            called
            or isinstance(parent, ast.Attribute)
            and parent.attr in ("mean", "sum", "squeeze")
        ):
            node = parent if called else parent.parent
        elif isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add):
            node = parent
        elif isinstance(parent, ast.BinOp | ast.UnaryOp):
            return None
        else:
            return node


@rule("rl-sign", "wrong", "log_p|logp|log_P|logP|actor")
def return_minimized(code):
    """`loss = (log_probs * returns).mean()` without the minus: the return is minimized."""
    yield from _value_minimized(code)
    if re.search(
        r"[(\[=,:] *-[\w.(]*(log|dist|pi\b)|maximize=True|\*= *-|-loss\b|neg_?log|nll|"
        r"(?i:\btour|\bcosts?\b)|log_?p\w* *= *[\w.]*cross_entropy",
        code.source,
    ):
        return
    for node in code.nodes_of(ast.BinOp):
        factors = operands(node, ast.Mult)
        if len(factors) < 2 or isinstance(node.parent, ast.BinOp) and _is_product(node.parent):
            continue
        names = [" ".join(names_in(factor)) for factor in factors]
        chosen = [n for n in names if any(map(_LOG_PROB.search, n.split()))]
        weights = [n for n in names if n not in chosen and any(map(_RETURN.search, n.split()))]
        if not chosen:
            chosen = [
                n for n, factor in zip(names, factors, strict=True) if _saved_log_prob(code, factor)
            ]
            weights = [n for n in weights if n not in chosen]
        signs = [
            factor
            for factor in factors
            if isinstance(factor, ast.UnaryOp) or const(factor) is not None
        ]
        if len(chosen) == 1 and weights and not signs:
            end = _collected_sum(code, node) or _reduced_ancestor(node)
            if end is not None and differentiated(code, end, 0) and not _of_pairs(code, factors):
                if not negated(code, end):
                    yield node


_CRITIC = re.compile(r"(?i)([\w.]*[._])?(critic|q(_?net(work)?|f)?)_?\d?(_local|_main|_eval)?")


def _value_minimized(code):
    """`actor_loss = critic(s, actor(s)).mean()` without the minus: the value is minimized."""
    for call in code.calls:
        if (
            not _CRITIC.fullmatch(name_of(call.func) or "")
            or code.called(call)
            or no_graph(code, call)
        ):
            continue
        arguments = [code.resolved(arg) if isinstance(arg, ast.Name) else arg for arg in call.args]
        if not any(
            re.search(r"(?i)(^|[._])actor", name_of(getattr(value, "func", None)) or "")
            for value in arguments
        ):
            continue
        end = _reduced_ancestor(call)
        is_assigned = end is not None and end is not call and isinstance(end.parent, ast.Assign)
        if is_assigned and differentiated(code, end, 0) and not negated(code, end):
            if not re.search(
                r"(?i)log_?p|entropy|alpha|maximize=True", code.source_of(code.function_of(call))
            ):
                yield end


def _saved_log_prob(code, node):
    """Return True for `lp` of `for lp, R in zip(policy.saved_log_probs, returns)`."""
    value = code.value(node) if isinstance(node, ast.Name) else None
    return isinstance(value, Part) and bool(re.search(r"(?i)log_?p", name_of(value.value) or ""))


def _collected_sum(code, node):
    """Return `torch.cat(terms).sum()` for a product that is appended to `terms`."""
    name = name_of(receiver(node.parent)) if method(node.parent) == "append" else None
    for call in code.calls_under(node.scope) if name else ():
        joined = call.args[:1] if code.called(call) in ("torch.cat", "torch.stack") else []
        if any(name_of(arg) == name for arg in joined):
            return _reduced_ancestor(call)
        if name_of(call.func) == "sum" and call.args and name_of(call.args[0]) == name:
            return call
    return None


def _is_product(node):
    return isinstance(node.op, ast.Mult | ast.Div)


def _of_pairs(code, factors):
    """Return whether a factor is negative, a loss, or a baseline minus a reward."""
    values = [_expanded(code, factor) for factor in factors]
    if any(isinstance(v, ast.UnaryOp) or "loss" in method(v) for v in values):
        return True
    differences = [v for v in values if isinstance(v, ast.BinOp) and isinstance(v.op, ast.Sub)]
    gained = re.compile(r"(?i)reward|return|\br\b")
    return any(
        gained.search(ast.unparse(v.right)) and not gained.search(ast.unparse(v.left))
        for v in differences
    )


@rule("rl-entropy", "wrong", "entropy(")
def entropy_minimized(code):
    """`policy_loss + 0.01 * dist.entropy().mean()`: the entropy is minimized."""
    if "maximize=True" in code.source or not re.search(
        r"(?i)policy|actor|advantage|reward|reinforce", code.source
    ):
        return
    for node in code.nodes_of(ast.BinOp, ast.AugAssign):
        if not isinstance(node.op, ast.Add):
            continue
        term = node.right if isinstance(node, ast.BinOp) else node.value
        rest = node.left if isinstance(node, ast.BinOp) else node.target
        factors = operands(term, ast.Mult)
        negative = any(isinstance(factor, ast.UnaryOp) for factor in factors)
        if negative or not re.search(r"(?i)loss", " ".join(names_in(rest))):
            continue
        weights = [factor for factor in factors if _is_weight(code, factor)]
        if len(factors) == len(weights) + 1 and any(
            _is_entropy(code, factor) for factor in factors
        ):
            target = name_of(node.target) if isinstance(node, ast.AugAssign) else None
            if target in node.scope.backward or not target and differentiated(code, node, 0):
                if not negated(code, node):
                    yield node


def _is_weight(code, node):
    value = const(_expanded(code, node))
    if isinstance(value, int | float) and value < 0:
        return False
    named = re.search(r"(?i)coef|beta|weight|alpha|scale|ent_?c", name_of(node) or "")
    return isinstance(value, int | float) and value > 0 or bool(named)


def _is_entropy(code, node):
    """Return whether a node is `dist.entropy()`, even through `mean`, `sum` and a name."""
    for _ in range(4):
        node = _expanded(code, node)
        if method(node) in ("mean", "sum") and receiver(node) is not None:
            node = receiver(node)
    is_method = method(node) == "entropy" and not node.args
    return is_method and name_of(receiver(node)) not in (None, "self")


def _recursion(loop, name_in):
    """Yield the assignments `total = x + gamma * total` of a loop, with the name."""
    for node in descendants(loop):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.BinOp):
            continue
        name = name_of(node.targets[0])
        if name and isinstance(node.value.op, ast.Add) and name in names_in(node.value):
            if _GAMMA.search(ast.unparse(node.value)) and name_in & names_in(node.value):
                yield node, name


def _is_reversed(node):
    return re.search(r"reversed|::-1|flip|-1, -1|\[-1:", ast.unparse(node))


_TURNS = re.compile(r"reverse|::-1|flip|insert\(0|appendleft|-1, -1")


def _turned_by_caller(code, loop):
    """Return whether a caller of the function reverses its arguments or its result."""
    name = getattr(code.function_of(loop), "name", None)
    for call in code.calls:
        if name and method(call) == name:
            statement = next(ancestors(call, ast.stmt), None)
            if statement is not None and _TURNS.search(ast.unparse(statement)):
                return True
    return False


@rule("rl-returns", "wrong", "rew|Rew")
def returns_in_wrong_order(code):
    """`for r in rewards: total = r + gamma * total`: the sum must start at the end."""
    for loop in code.nodes_of(ast.For):
        if not re.search(r"(?i)rewards?|rews?\b", ast.unparse(loop.iter)):
            continue
        targets = names_in(loop.target)
        function_source = code.source_of(code.function_of(loop))
        turns = len(_TURNS.findall(function_source))
        if _turned_by_caller(code, loop):
            continue
        for node, name in _recursion(loop, targets):
            stored = [
                call
                for call in code.methods(loop, "append")
                if len(call.args) == 1 and name_of(call.args[0]) == name
            ]
            placed = [
                child for child in descendants(loop) if _is_set_by_index(child, name, targets)
            ]
            first = [call for call in code.methods(loop, "insert") if _put_first(call, name)]
            if first and not _is_reversed(loop.iter) and turns == 1:
                if not re.search(r"- 1\b|~|\[-", function_source):
                    yield first[0]
                continue
            if placed and not stored:
                if (
                    not _is_reversed(loop.iter)
                    and not turns
                    and not re.search(r"- 1\b|~", function_source)
                ):
                    yield node
            elif _is_reversed(loop.iter):
                if stored and turns == 1 and method(loop.iter) != "zip":
                    yield stored[0]
            elif stored and not turns:
                yield node


def _put_first(call, name):
    """Return True for `returns.insert(0, total)`."""
    return len(call.args) == 2 and const(call.args[0]) == 0 and name_of(call.args[1]) == name


def _is_set_by_index(node, name, targets):
    """Return True for `returns[t] = total`, with `t` from the loop."""
    stored = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
    return stored and name_of(node.value) == name and names_in(node.targets[0].slice) & targets


@rule("rl-gae-order", "wrong", "delta|Delta")
def advantages_forward(code):
    """`for t in range(n): gae = delta + gamma * lam * gae`: the sum must start at the end."""
    for loop, node, _ in _gae(code):
        function_source = code.source_of(code.function_of(loop))
        backwards = r"reverse|::-1|flip|-1, -1|T - |- 1 - \w|- \w+ - 1\b|\[-|~"
        if not re.search(backwards, function_source) and not _turned_by_caller(code, loop):
            yield node


@rule("rl-gae-mask", "wrong", "delta|Delta")
def advantages_without_mask(code):
    """`gae = delta + gamma * lam * gae` of several episodes without `* (1 - done)`."""
    if _ONE_EPISODE.search(code.source):
        return
    for loop, node, name in _gae(code):
        resets = any(
            isinstance(child, ast.If)
            and _MASK.search(ast.unparse(child.test))
            or isinstance(child, ast.Assign | ast.AugAssign)
            and child is not node
            and name in names_in(child)
            and _MASK.search(ast.unparse(child))
            for child in descendants(loop)
        )
        product = node.value.left if name in names_in(node.value.left) else node.value.right
        if (
            _MASK.search(code.source_of(loop))
            and not resets
            and not _MASK.search(ast.unparse(product))
        ):
            if not any(
                _MASK.search(ast.unparse(_expanded(code, factor)))
                for factor in operands(product, ast.Mult)
            ):
                yield node


_ONE_EPISODE = re.compile(
    r"while not \(?\w*(done|terminal)|if \w*(done|terminal)\w*( or \w+)*:\s+break|"
    r"(?i:traj|\wepisode\()"
)


def _gae(code):
    """Yield the loops with `gae = delta + gamma * lam * gae`, the assignment and the name."""
    for loop in code.nodes_of(ast.For):
        for node in descendants(loop):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.BinOp):
                continue
            read, written = names_in(node.value), ast.unparse(node.value)
            name = next(
                (target_name for target_name in map(name_of, node.targets) if target_name in read),
                "",
            )
            recursive = isinstance(node.value.op, ast.Add) and name
            if recursive and re.search(r"(?i)gae|adv", name) and re.search(r"(?i)delta", written):
                if (
                    re.search(r"(?i)lam|lmbda|tau", written)
                    and next(ancestors(node, *LOOPS), 0) is loop
                ):
                    yield loop, node, name


_DRAWS = (
    "random.random",
    "random.uniform",
    "numpy.random.rand",
    "numpy.random.random",
    "numpy.random.uniform",
    "torch.rand",
)


@rule("rl-epsilon", "wrong", "eps|Eps|EPS")
def exploration_inverted(code):
    """`if random.random() > epsilon: action = env.action_space.sample()`: explores too often."""
    falls = r"(?i)eps\w*(_|\.)?(decay|end|final|min)|eps\w* *\*= *0?\.|decay\w*eps"
    rises = r"(?i)eps\w* *(\+=|= *(self\.)?eps\w* *\+)|increment"
    if not re.search(falls, code.source) or re.search(rises, code.source):
        return  # epsilon may be the probability of the greedy action
    for node in code.nodes_of(ast.If):
        sign = _explores_if(code, node.test)
        if sign is None:
            continue
        rest = node.orelse or _after_return(node)
        body, other = (" ".join(map(ast.unparse, part)) for part in (node.body, rest))
        explores = re.search(r"action_space\.sample|random\.(choice|rand\w*)\(", body)
        greedy = re.search(r"argmax|\.max\(", body)
        first, second = (greedy, explores) if sign else (explores, greedy)
        rest = r"\.sample\(|random\." if sign else r"argmax|\.max\("
        if first and not second and re.search(rest, other):
            yield node.test


def _after_return(node):
    """Return the statements that follow an `if` whose body returns."""
    block = getattr(node.parent, "body", None)
    ends = isinstance(node.body[-1], ast.Return) and isinstance(block, list) and node in block
    return block[block.index(node) + 1 :] if ends else []


def _explores_if(code, test):
    """Return True for `draw < epsilon`, False for `draw > epsilon`, else None."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right = test.left, test.comparators[0]
    less = isinstance(test.ops[0], ast.Lt | ast.LtE)
    if not less and not isinstance(test.ops[0], ast.Gt | ast.GtE):
        return None
    for draw, limit, sign in ((left, right, less), (right, left, not less)):
        named = re.search(r"(?i)(^|[._])eps(ilon)?(_threshold)?$", name_of(limit) or "")
        if named and code.called(_expanded(code, draw)) in _DRAWS:
            return sign
    return None


@rule("rl-ratio", "wrong", "ratio|Ratio")
def ratio_inverted(code):
    """`ratio = torch.exp(old_log_prob - log_prob)` in PPO: new and old are swapped."""
    for call in code.calls_named("exp"):
        operand = call.args[0] if code.called(call) == "torch.exp" and call.args else receiver(call)
        name = name_of(call.parent.targets[0]) if isinstance(call.parent, ast.Assign) else ""
        operand = code.resolved(operand) if operand is not None else None
        if not isinstance(operand, ast.BinOp) or not isinstance(operand.op, ast.Sub):
            continue
        sides = [" ".join(names_in(side)) for side in (operand.left, operand.right)]
        old = [bool(re.search(r"(?i)(^|[_. ])old|_old|prev", side)) for side in sides]
        clipped = re.search(r"(?i)clamp|clip", code.source_of(code.function_of(call)))
        if re.search(r"(?i)inv|recip|neg|nll", f"{name} {sides}") or re.search(_SAMPLER, sides[1]):
            continue
        if old == [True, False] and re.search(r"(?i)ratio", name or "") and clipped:
            if re.search(r"(?i)adv", code.source_of(code.function_of(call))):
                yield call


@rule("rl-ratio-log", "wrong", "ratio|Ratio")
def ratio_of_logs(code):
    """`ratio = log_prob - old_log_prob` in PPO: without `exp` it is the logarithm of the ratio."""
    for node in code.nodes_of(ast.Assign):
        name, value = name_of(node.targets[0]) or "", node.value
        if not re.search(r"(?i)(^|_)ratios?$", name) or re.search(r"(?i)log", name):
            continue
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Sub):
            continue
        logs = all(any(map(_LOG_PROB.search, names_in(side))) for side in (value.left, value.right))
        function_source = code.source_of(code.function_of(node))
        clipped = re.search(
            rf"clamp\({re.escape(name)},|{re.escape(name)}\.(clamp|clip)\(", function_source
        )
        if logs and clipped and re.search(r"(?i)adv", function_source):
            if not re.search(rf"exp\({re.escape(name)}|{re.escape(name)}\.exp", function_source):
                yield node


@rule("rl-lists-kept", "raises", "log_prob(")
def lists_never_emptied(code):
    """`self.log_probs.append(dist.log_prob(a))` to a list that is never cleared."""
    seen = set()
    for call in code.methods(code.tree, "append") + [
        other_call for other_call in code.calls_named("append") if other_call.scope is not code.tree
    ]:
        name = name_of(receiver(call))
        graph = len(call.args) == 1 and _with_graph(code, call.args[0])
        if not name or not graph or no_graph(code, call):
            continue
        backward_calls = [
            backward_call
            for backward_call in _updates_with(code, call, name)
            if not _retained(backward_call)
        ]
        if backward_calls and name not in seen and not _emptied(code, call, name):
            seen.add(name)
            yield call


def _emptied(code, call, name):
    """Return whether another statement reassigns or clears the list."""
    quoted = re.escape(name.rpartition(".")[2])
    attribute = name.startswith("self.")
    pattern = rf"\w\.{quoted}\b" if attribute else rf"(?<!\.)\b{quoted}\b"
    changed = rf"{pattern}(\[:\])?(, [\w.]+)* *=[^=]|{pattern}\.(clear|pop)\(|del [^\n]*{pattern}"
    inside = code.source_of(call.owner if attribute else code.function_of(call))
    outside = re.findall(rf"(?<!self)\.{quoted}\b *=[^=]", code.source) if attribute else ()
    alone = attribute and not any(
        getattr(assignment.statement.scope, "name", "") == "__init__"
        for assignment in call.owner.attributes[name]
    )  # the constructor is not in the file
    return alone or len(re.findall(changed, inside)) != 1 or outside or "deque(" in inside


def _with_graph(code, node):
    """Return True for `dist.log_prob(action)`, even through a name, with its graph."""
    value = code.resolved(node)
    written = ast.unparse(value) if isinstance(value, ast.AST) else ""
    return "log_prob(" in written and not re.search(r"item\(|detach|numpy|\.data\b", written)


def _updates_with(code, call, name):
    """Return the backward passes that use the list, in its loop over episodes or in a method."""
    loops = [*ancestors(call, *LOOPS)]
    if name.startswith("self."):
        methods = [function for function in code.functions.values() if function.owner is call.owner]
        readers = [function for function in methods if function is not code.function_of(call)]
        readers = [function for function in readers if name in names_in(function)]
        return [
            backward_call
            for function in readers
            for backward_call in code.methods(function, "backward")
        ]
    outer = loops[-1] if len(loops) > 1 else None
    values = call.scope.assigned.get(name, ())
    before = [
        assignment
        for assignment in values
        if outer is not None and assignment.statement.lineno < outer.lineno
    ]
    if outer is None or not before or len(values) != len(before):
        return []
    backward_calls = code.methods(outer, "backward")
    return [
        backward_call
        for backward_call in backward_calls
        if next(ancestors(backward_call, *LOOPS), None) is outer
    ]


def _retained(backward_call):
    return any(keyword.arg == "retain_graph" for keyword in backward_call.keywords)


@rule("rl-normal", "wrong", "log_prob(")
def log_prob_of_each_axis(code):
    """`Normal(mu, std).log_prob(action)` of several actions: one number per axis, not their sum."""
    if re.search(
        r"Independent\(|Multivariate|Pendulum|MountainCar|log_?p\w*\)?\.sum\(", code.source
    ):
        return
    if re.search(r"sum\([^\n]*log_?p|sum\(-1|sum\(1\b|sum\((dim|axis)=|keepdim", code.source):
        return
    for call in code.calls:
        distribution = code.resolved(receiver(call)) if method(call) == "log_prob" else None
        if not code.called(distribution).endswith("distributions.Normal") or not distribution.args:
            continue
        mean = code.resolved(distribution.args[0])
        layer = construction(code, mean.func) if isinstance(mean, ast.Call) else None
        width = argument(layer, "out_features", 1) if code.called(layer) == "nn.Linear" else None
        if re.search(
            r"(?i)(^|[._])(n_?)?act(ion)?s?(_?(dims?|size|space|num))?$", name_of(width) or ""
        ):
            yield call


_SAMPLER = r"(?i)rollout|behav|infer|vllm|sampl"  # log-probabilities of another engine


@rule("rl-done-stored", "wrong", "done|Done|terminal|terminated")
def done_not_stored(code):
    """`buffer.add((state, action, next_state, reward))` without `done`, and a target without it."""
    if re.search(r"Pendulum|non_final|is not None|= None\b", code.source):
        return
    names = r"add|push|append|store\w*|remember|put|save\w*"
    for call in code.calls:
        if not re.fullmatch(names, method(call)) or not call.args:
            continue
        argument_source = " ".join(ast.unparse(arg) for arg in call.args)
        is_transition = re.search(r"(?i)reward", argument_source) and re.search(
            r"(?i)next|new_|state_\b", argument_source
        )
        function = code.function_of(call)
        kept = _MASK.search(argument_source) or re.search(
            r"(?i)discount|gamma|1(\.0)? - |\bd\b", argument_source
        )
        if not is_transition or kept or not _has_done(function):
            continue
        yield from _unmasked(code, call)


def _has_done(function):
    """Return whether `done` is a result of `env.step(action)` in this function."""
    return any(
        method(assignment.value.value if hasattr(assignment.value, "index") else assignment.value)
        == "step"
        for name, values in getattr(function, "assigned", {}).items()
        if re.fullmatch(r"(?i)dones?|terminated|terminal", name)
        for assignment in values
    )


def _unmasked(code, stored):
    """Yield `reward + gamma * next_q` of a network, without a mask."""
    for node in code.nodes_of(ast.BinOp):
        written = ast.unparse(node)
        if not isinstance(node.op, ast.Add) or isinstance(node.parent, ast.BinOp):
            continue
        if not re.match(r"(?i)\w*(reward|rew)s?\w*(\[.*\])? \+ .*(gamma|discount)", written):
            continue
        if _MASK.search(code.source_of(code.function_of(node))) and not is_inside(
            stored, code.function_of(node)
        ):
            continue
        networks = [
            call
            for call in descendants(code.function_of(node))
            if isinstance(call, ast.Call) and is_model(code, call.func)
        ]
        if networks and not _MASK.search(written) and not re.search(r"\b1(\.0)? - ", written):
            yield node
            return


@rule("rl-soft", "wrong", "parameters()")
def target_not_averaged(code):
    """`for a, b in zip(target.parameters(), q.parameters()): a = …`, or swapped weights."""
    for loop in code.nodes_of(ast.For):
        both = getattr(loop.iter, "args", ()) if method(loop.iter) == "zip" else ()
        names = [name_of(element) for element in getattr(loop.target, "elts", ())]
        if len(both) != 2 or len(names) != 2 or {method(arg) for arg in both} != {"parameters"}:
            continue
        owners = [name_of(receiver(arg)) or "" for arg in both]
        for name, owner in zip(names, owners, strict=True):
            if name and re.search(r"(?i)target|tgt|ema|teacher|momentum", owner):
                yield from _updates(code, loop, name)


def _updates(code, loop, name):
    """Yield the statements that rebind the variable, or keep a small part of the old weights."""
    for node in descendants(loop):
        value = node.value if isinstance(node, ast.Assign) else None
        if _small_product(code, node, name):
            yield node
        if method(node) == "copy_" and len(node.args) == 1:
            value = node.args[0]
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
            continue
        assigned = isinstance(node, ast.Assign)
        written = name_of(node.targets[0] if assigned else receiver(node))
        if (written or "").removesuffix(".data") != name or name not in names_in(value):
            continue
        kept = next((side for side in (value.left, value.right) if name in names_in(side)), None)
        part = _update_share(
            code, [factor for factor in operands(kept, ast.Mult) if name not in names_in(factor)]
        )
        part = _named_share(code, kept, name) if part is None else part
        used = [use for use in code.uses(node.scope, name) if use.lineno > node.end_lineno]
        if written == name and assigned:
            if not any(is_inside(use, loop) for use in used):
                yield node
        elif part is not None and 0 < part < 0.5:
            yield node


def _small_product(code, node, name):
    """Return True for `e.mul_(1 - decay).add_(p, alpha=decay)`, which keeps little of `e`."""
    product = receiver(node) if method(node) == "add_" else None
    if method(product) != "mul_" or len(product.args) != 1:
        return False
    part = _update_share(code, product.args)
    written = (name_of(receiver(product)) or "").removesuffix(".data")
    return written == name and part is not None and 0 < part < 0.5


def _named_share(code, kept, name):
    """Return a small number for a factor `tau` of an agent, whose value the file does not set."""
    factors = [
        ast.unparse(factor) for factor in operands(kept, ast.Mult) if name not in names_in(factor)
    ]
    agent = re.search(r"(?i)reward|replay|\bgamma\b|\baction", code.source)
    return 0.01 if agent and factors in (["tau"], ["self.tau"], ["TAU"]) else None


def _update_share(code, factors):
    """Return the number of a factor `tau` or `1 - tau`."""
    if len(factors) != 1:
        return None
    node = factors[0]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        minuend, tau = number(code, node.left), number(code, node.right)
        return minuend - tau if minuend is not None and tau is not None else None
    return number(code, node)
