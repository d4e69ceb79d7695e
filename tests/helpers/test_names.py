"""Test `undefined_names` against the names that are missing when the code runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helpers import names


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("", []),
        ("import os\nos.getcwd()", []),
        ("import numpy as np\nnumpy.ones(1)", ["numpy"]),
        ("from torch import nn\nprint(nn, len, __name__)", []),
        ("x = y + 1", ["y"]),
        ("def f(a):\n    b = a\n    return b + c", ["c"]),
        ("def f():\n    return later\nlater = 1", []),
        ("def f():\n    global g\n    g = 1\ng", []),
        ("[i for i in items if i]", ["items"]),
        (
            "import a.b as c, d\nfor e in range(3):\n    pass\nwith f as g:\n    pass\n"
            "def h(i):\n    global j\n    j = k = i\n    return c, k\nx = [m for m in g]",
            ["f"],
        ),
        (
            "class A(Base):\n    x = 1\n    def m(self):\n        return self.x, lost",
            ["Base", "lost"],
        ),
    ],
)
def test_undefined_names_returns_the_missing_names(source, missing):
    assert names.undefined_names(source) == missing


def test_undefined_names_skips_ipython_lines():
    cell = "%matplotlib inline\nif ready:\n    !ls {folder}\nx = 7\ny = (x\n     % z)"
    assert names.undefined_names(cell.replace("\n     % z", "")) == ["ready"]
    assert names.undefined_names("y = (x\n     % z)") == ["x", "z"]


def test_undefined_names_raises_on_invalid_python():
    with pytest.raises(SyntaxError):
        names.undefined_names("for")


def test_names_does_not_import_torch():
    code = "import sys; import helpers.names; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
