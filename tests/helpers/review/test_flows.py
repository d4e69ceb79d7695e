"""Test following values through functions, attributes, configurations, datasets and loaders."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from helpers.review.code import CELL, Code
from helpers.review.inlining import inlined, places
from helpers.review.review import review

FLOWS = re.findall(
    r"^=== (\S+)\n(.*?)(?=^=== |\Z)",
    Path(__file__).with_name("flows.txt").read_text("utf8"),
    re.S | re.M,
)
ARMS = re.compile(r"\{\{(.*?)\|\|(.*?)\}\}(?!\})", re.S)  # {{wrong||right}}


@pytest.mark.parametrize(("rule", "text"), FLOWS, ids=[rule for rule, _ in FLOWS])
def test_mistake_across_functions_is_found_and_its_fix_is_not(rule, text):
    wrong, right = ARMS.sub(r"\1", text), ARMS.sub(r"\2", text)
    marked = [n for n, line in enumerate(wrong.split("\n"), 1) if line.endswith("# <-")]
    assert marked
    assert [(one.rule, one.line) for one in review(wrong)] == [(rule, n) for n in marked]
    assert review(right) == []


def copied(text: str) -> str | None:
    result = inlined(Code(text))
    return result and result[0]


def body(text: str) -> str:
    result = copied(f"import torch\n{text}")
    return "" if result is None else result.removeprefix("import torch\n")


def test_inlined_body_uses_the_names_of_the_caller():
    text = "def step(net, x):\n    out = net(x)\n    return out\n"
    assert body(f"{text}for x in loader:\n    y = step(model, x)\n") == (
        "for x in loader:\n    y = model(x)\n"
    )


def test_inlined_names_do_not_clash_with_the_caller():
    text = "def f(a):\n    n = a + 1\n    return n * 2\n"
    assert body(f"{text}n = 3\nm = f(n)\nprint(n)\n") == "n = 3\nn2 = n + 1\nm = n2 * 2\nprint(n)\n"


def test_assigned_parameter_gets_its_own_name():
    text = "def f(a):\n    a = a + 1\n    return a\n"
    result = body(f"{text}x = 1\ny = f(x)\n")
    values: dict[str, int] = {}
    exec(result, values)
    assert (values["x"], values["y"]) == (1, 2)


def test_only_the_branch_of_a_constant_is_inlined():
    text = "def make(name):\n    if name == 'a':\n        return one()\n    return two()\n"
    assert body(f"{text}x = make('a')\ny = make('b')\n") == "x = one()\ny = two()\n"
    assert body(f"{text}x = make(name)\n") == ""


def test_no_grad_applies_to_the_inlined_body():
    text = "@torch.no_grad()\ndef f(net, x):\n    return net(x)\n"
    assert "with torch.no_grad():\n" in body(f"{text}y = f(net, x)\n")


@pytest.mark.parametrize(
    "text",
    [
        "def f(n):\n    return f(n - 1)\n",
        "def f(n):\n    yield n\n",
        "def f(*n):\n    return n\n",
        "async def f(n):\n    return n\n",
        "def f(n):\n    for i in n:\n        return i\n",
        "def f(n):\n    global k\n    k = n\n",
        "@cache\ndef f(n):\n    return n + 1\n",
        "def f(n, m):\n    return n\n",
    ],
)
def test_unsupported_functions_are_not_inlined(text):
    result = body(f"{text}x = f(3)\n")
    assert result == "" or "f(" in result


def test_function_is_not_inlined_where_a_global_is_shadowed():
    text = "k = 2\ndef f(n):\n    return n * k\n"
    assert body(f"{text}def g(k):\n    return f(k)\n") == ""
    assert body(f"{text}def g(m):\n    return f(m)\n") == "k = 2\ndef g(m):\n    return m * k\n"


def test_inlining_is_bounded_per_function():
    text = "def f(n):\n    a = n\n    return a\n" + "".join(f"x{n} = f({n})\n" for n in range(9))
    result = body(text)
    assert result.count("= f(") == 6 and "def f" in result


def test_inlined_nodes_keep_their_positions():
    text = "import torch\n\ndef f(n):\n    return n.backward()\n\n# note\nx = f(loss)\n"
    source, statements = inlined(Code(text))
    copy = Code(source)
    at = places(copy.tree, statements)
    call = next(one for one in copy.calls if ast.unparse(one) == "loss.backward()")
    assert at[call] == (4, 11)


def test_inexpressible_copy_is_skipped():
    text = "def f(s):\n    print(f'{s} {s}')\n    return s\nx = f('\\n\\'\"\"\"')\n"
    assert review(f"import torch\n{text}") == []


def test_notebook_cells_stay_separate():
    text = f"import torch\ndef f(n):\n    return n + 1\n{CELL}\nx = f(3)\n{CELL}\nx\n"
    result = copied(text)
    assert result.count(CELL) == 2


def test_inlining_keeps_the_original_tree():
    text = "import torch\nclass A:\n    def added(self, n):\n        return n + 1\n"
    text += "    def g(self, n):\n        return self.added(n)\n"
    code = Code(text)
    before = ast.dump(code.tree)
    assert inlined(code) is not None and ast.dump(code.tree) == before


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cfg = {'n': 3}\nx = cfg['n']", 3),
        ("cfg = dict(n=3)\nkey = 'n'\nx = cfg[key]", 3),
        ("class C:\n    n = 3\nc = C()\nx = c.n", 3),
        ("class C:\n    n: int = 3\nc = C(n=4)\nx = c.n", 4),
        ("class C:\n    n: int = 3\nC(n=4)\nc = C(n=5)\nx = c.n", None),
        ("class C:\n    n: int = 3\nc = C()\nc.n = 5\nd = c\nx = d.n", None),
        ("class C:\n    def __init__(self, n):\n        self.n = n\nc = C(3)\nx = c.n", 3),
        ("p.add_argument('--n-x', default=3)\na = p.parse_args()\nx = a.n_x", 3),
        ("p.add_argument('--n', action='store_true')\na = p.parse_args()\nx = a.n", None),
        ("def f(n=3):\n    return n\nx = f()", 3),
        ("def f(n=3):\n    return n\nf(4)\nx = f()", None),
        ("def f():\n    return 1, 3\n_, x = f()", 3),
        ("def f():\n    return {'n': 3}\nx = f()['n']", None),
        ("def f():\n    return {'n': 3}\ny = f()\nx = y['n']", 3),
        ("def f(n):\n    if n:\n        return 1\n    return 3\nx = f(0)", None),
        ("a = 4\nx = 2 * a - 1", 7),
        ("x = x + 1", None),
        ("a = 3\nfor a in y:\n    pass\nx = a", None),
    ],
)
def test_const_follows_constants(text, value):
    code = Code(f"import torch\n{text}\nprint(x)\n")
    name = next(one for one in code.calls if ast.unparse(one) == "print(x)").args[0]
    assert code.const(name) == value


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("f = F.cross_entropy", "F.cross_entropy"),
        ("f = functools.partial(F.cross_entropy, reduction='sum')", "F.cross_entropy"),
        ("d = {'a': nn.MSELoss}\nf = d['a']", "nn.MSELoss"),
        ("f = getattr(torch.optim, 'SGD')", "optim.SGD"),
        ("f = nn.Linear(2, 2)", ""),
        ("def f(x):\n    pass", ""),
    ],
)
def test_called_resolves_names_of_functions(text, name):
    head = "import functools\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
    code = Code(f"{head}{text}\nprint(f(x))\n")
    call = next(one for one in code.calls if ast.unparse(one) == "f(x)")
    assert code.called(call) == name


def test_calls_in_one_expression_are_inlined_with_different_names():
    text = """import torch
@torch.no_grad()
def score(net, x):
    out = net(x)
    return out.mean()
loss = score(a, x) - score(b, y)
optimizer.zero_grad()
loss.backward()
"""
    copy, _ = inlined(Code(text))
    (loss,) = re.findall(r"loss = (\w+) - (\w+)", copy)
    assert loss[0] != loss[1]
    values = dict(re.findall(r"(no_grad_value\w*) = (\w+)\.mean", copy))
    assert {name: values[name] for name in loss} == dict(zip(loss, ["out", "out2"], strict=True))
