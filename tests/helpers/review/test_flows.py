"""A value is followed through functions, attributes, configurations, datasets and loaders."""

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
def test_a_mistake_between_functions_is_named_and_the_corrected_code_is_not(rule, text):
    wrong, right = ARMS.sub(r"\1", text), ARMS.sub(r"\2", text)
    marked = [n for n, line in enumerate(wrong.split("\n"), 1) if line.endswith("# <-")]
    assert marked
    assert [(one.rule, one.line) for one in review(wrong)] == [(rule, n) for n in marked]
    assert review(right) == []


def copied(text: str) -> str | None:
    made = inlined(Code(text))
    return made and made[0]


def body(text: str) -> str:
    made = copied(f"import torch\n{text}")
    return "" if made is None else made.removeprefix("import torch\n")


def test_a_body_comes_to_its_call_under_the_names_of_the_caller():
    text = "def step(net, x):\n    out = net(x)\n    return out\n"
    assert body(f"{text}for x in loader:\n    y = step(model, x)\n") == (
        "for x in loader:\n    y = model(x)\n"
    )


def test_names_that_the_caller_uses_are_kept_apart():
    text = "def f(a):\n    n = a + 1\n    return n * 2\n"
    assert body(f"{text}n = 3\nm = f(n)\nprint(n)\n") == "n = 3\nn2 = n + 1\nm = n2 * 2\nprint(n)\n"


def test_a_parameter_that_the_body_assigns_is_a_name_of_its_own():
    text = "def f(a):\n    a = a + 1\n    return a\n"
    made = body(f"{text}x = 1\ny = f(x)\n")
    values: dict[str, int] = {}
    exec(made, values)  # noqa: S102
    assert (values["x"], values["y"]) == (1, 2)


def test_the_arm_of_a_constant_is_copied():
    text = "def make(name):\n    if name == 'a':\n        return one()\n    return two()\n"
    assert body(f"{text}x = make('a')\ny = make('b')\n") == "x = one()\ny = two()\n"
    assert body(f"{text}x = make(name)\n") == ""


def test_gradients_stay_off_in_a_copied_body():
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
def test_other_functions_are_not_copied(text):
    made = body(f"{text}x = f(3)\n")
    assert made == "" or "f(" in made


def test_a_name_of_the_module_that_means_something_else_in_the_caller_stays():
    text = "k = 2\ndef f(n):\n    return n * k\n"
    assert body(f"{text}def g(k):\n    return f(k)\n") == ""
    assert body(f"{text}def g(m):\n    return f(m)\n") == "k = 2\ndef g(m):\n    return m * k\n"


def test_a_function_that_is_called_often_is_not_copied_more_than_its_bound():
    text = "def f(n):\n    a = n\n    return a\n" + "".join(f"x{n} = f({n})\n" for n in range(9))
    made = body(text)
    assert made.count("= f(") == 6 and "def f" in made


def test_each_node_of_a_copy_is_where_it_is_in_the_file():
    text = "import torch\n\ndef f(n):\n    return n.backward()\n\n# note\nx = f(loss)\n"
    source, statements = inlined(Code(text))
    copy = Code(source)
    at = places(copy.tree, statements)
    call = next(one for one in copy.calls if ast.unparse(one) == "loss.backward()")
    assert at[call] == (4, 11)


def test_a_copy_that_no_source_can_express_is_left_out():
    text = "def f(s):\n    print(f'{s} {s}')\n    return s\nx = f('\\n\\'\"\"\"')\n"
    assert review(f"import torch\n{text}") == []


def test_cells_of_a_notebook_stay_apart():
    text = f"import torch\ndef f(n):\n    return n + 1\n{CELL}\nx = f(3)\n{CELL}\nx\n"
    made = copied(text)
    assert made.count(CELL) == 2


def test_the_file_itself_is_not_changed_by_the_copy():
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
def test_constants_are_followed(text, value):
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
def test_a_name_of_a_function_is_the_function(text, name):
    head = "import functools\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
    code = Code(f"{head}{text}\nprint(f(x))\n")
    call = next(one for one in code.calls if ast.unparse(one) == "f(x)")
    assert code.called(call) == name
