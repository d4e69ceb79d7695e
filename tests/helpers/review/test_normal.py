"""Test the normal form: it keeps what a script computes, and the positions of its nodes."""

from __future__ import annotations

import ast
import textwrap

import pytest

from helpers.review.normal import normalized
from helpers.review.review import review


def normal(source: str) -> str:
    body = normalized(ast.parse(source).body)
    return "" if body is None else ast.unparse(ast.Module(body, []))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = f(x)\nb = g(a)", "b = g(f(x))"),
        ("a = f(x)\nb = h(y)\nc = g(a, b)", "c = g(f(x), h(y))"),
        ("a = f(x)\nfor y in g(a):\n    use(y)", "for y in g(f(x)):\n    use(y)"),
        ("y = torch.softmax(x, 1)", "y = x.softmax(1)"),
        ("y = torch.softmax(input=x, dim=1)", "y = x.softmax(1)"),
        ("l = F.mse_loss(target=y, input=p)", "l = F.mse_loss(p, y)"),
        (
            "l = DataLoader(batch_size=4, dataset=d, shuffle=True)",
            "l = DataLoader(d, 4, shuffle=True)",
        ),
        (
            "p = {}\np['net'] = make()\np['net'](x)\np['net'](y)",
            "p = {}\nnet = make()\nnet(x)\nnet(y)",
        ),
    ],
)
def test_normal_form(source, expected):
    assert normal(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "a = f(x)\nb = g(a)\nc = g(a)",  # read twice
        "a = f(x)\na = g(a)\nuse(a, a)",  # assigned twice
        "a = f(x)\nother()\nb = g(a)",  # not the next statement
        "a = f(x)\nb = [g(a) for _ in y]",  # evaluated later or several times
        "a = f(x)\nb = lambda: a",
        "a = f(x)\nb = y and a",
        "a = f(x)\nwhile g(a):\n    pass",
        "a = f(x)\ndef g():\n    return a",
        "def f():\n    global a\n    a = f(x)\n    b = g(a)\n    return b, b",
        "loss = f(x)\nloss.backward()",
        "y = x.softmax(1)",
        "y = F.softmax(x, 1)",
        "y = torch.mul(2, x)",
        "l = F.mse_loss(target=y, reduction='sum')",
        "y = nn.Linear(*sizes, out_features=3)",
        "y = torch.cat([a, b])",
        "y = nn.Linear(*sizes, bias=False)",
        "p = {}\np['net'] = make()\nuse(p)",  # other code sees the dict
        "p = {}\nnet = 1\np['net'] = make()\np['net'](net)",  # the name exists
    ],
)
def test_source_in_normal_form_stays(source):
    assert normal(source) == ""


def test_normal_form_computes_the_same():
    source = textwrap.dedent("""
        parts = {}
        parts["scale"] = float("2")
        shifted = torch.add(x, 1)
        rows = torch.softmax(input=shifted * parts["scale"], dim=1)
        best = torch.argmax(rows, dim=1)
        result = torch.gather(x, 1, index=best.unsqueeze(1))
    """)
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0).reshape(2, 3).flip(1)
    results = []
    for text in (source, normal(source)):
        names = {"torch": torch, "x": x}
        exec(text, names)
        results.append(names["result"].tolist())
    assert results[0] == results[1] == [[2.0], [5.0]]


def test_finding_of_the_normal_form_has_the_place_in_the_file():
    source = "import torch\nfrom torch import nn\nlogits = model(x)\nparts = {}\n"
    source += "parts['loss'] = nn.CrossEntropyLoss()\nprobs = torch.softmax(logits, dim=1)\n"
    source += "loss = parts['loss'](input=probs, target=y)\nloss.backward()\n"
    assert [(one.line, one.rule) for one in review(source)] == [(7, "losses-double-softmax")]


def test_line_with_a_finding_has_no_second_one_from_the_normal_form():
    source = "def advantages(rewards, values):\n    gae, result = 0.0, []\n"
    source += "    for t in range(len(rewards)):\n"
    source += "        delta = rewards[t] + gamma * values[t + 1] - values[t]\n"
    source += "        gae = delta + gamma * lam * gae\n        result.append(gae)\n"
    source = "import torch\n" + source + "    return torch.tensor(result)\n"
    assert [one.rule for one in review(source)] == ["rl-gae-order"]
