"""Test pitfalls and names: parsing, the errors of the check, and their pages."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

from bookbuild import pages
from bookbuild.commands.check import check
from bookbuild.pages import name_list, status
from bookbuild.pages.torch_names import ALIASES, imports, torch_names
from bookbuild.source import pitfalls
from bookbuild.source.checkout import LANGUAGES, Book, BookError
from bookbuild.source.outline import sections
from bookbuild.source.texts import Cell, Words, dump, parse

ROOT = Path(__file__).resolve().parents[2]
WRONG = """\
%%% md adding-lost
## A `detach` is lost

**Write `y = x.detach()`, *always*, up to $2^{3}$.**
%%% zh
## `detach` 丢了

**请写 `y = x.detach()`，直到 $2^{3}$。**

%%% code adding-lost-wrong tags=wrong
```python
y = [1]  # a list; not a tensor
for x in y:
    y + [x]
```
%%% zh
列表而非张量
"""
RIGHT = """
%%% code adding-lost-right tags=right
```python
y = y + [2]
```
"""


@pytest.fixture
def put(book):
    """Return a function that inserts a section; add both pages to the table of contents."""
    toc = book.root / "_toc.yml"
    toc.write_text(toc.read_text() + "      - file: pitfalls\n      - file: by_name\n")

    def write(section):
        path = book.text("adding")
        text = path.read_text("utf8")
        path.write_text(text.replace("%%% md adding-recap", section + "\n%%% md adding-recap"))
        return Book(book.root)

    return write


def pitfall(lines: str) -> str:
    return f"{WRONG}%%% pitfall\n{lines}\n"


# ---------------------------------------------------------------- parsing


def test_pitfall_round_trips_through_dump():
    text = "%%% summary\nx\n\n" + pitfall("y + [x]\ny = y + [2]") + RIGHT
    cell = parse("adding", text).cells[1]
    assert cell.pitfall == ["y + [x]", "y = y + [2]"]
    again = parse("adding", f"%%% summary\nx\n\n{dump(cell)}\n").cells[0]
    assert (again.pitfall, again.source, again.words.zh) == (
        cell.pitfall,
        cell.source,
        cell.words.zh,
    )


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("%%% pitfall\na\nb\nc", "one or two lines"),
        ("%%% pitfall", "one or two lines"),
        ("%%% pitfall\na\n%%% pitfall\nb", "a second"),
        ("%%% pitfall\na\n%%% zh\nb", "follows nothing"),
        ("%%% pitfall x\na", "takes no words"),
    ],
)
def test_invalid_pitfall_block_raises(block, says):
    with pytest.raises(BookError, match=says):
        parse("adding", f"%%% summary\nx\n\n{WRONG}{block}\n")


def test_pitfall_requires_a_code_cell():
    with pytest.raises(BookError, match="belongs to a code cell"):
        parse("adding", "%%% summary\nx\n\n%%% md a\nb\n%%% pitfall\nc\n")


# ---------------------------------------------------------------- proofs


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (pitfall("y + [x]\ny = y + [2]") + RIGHT, None),
        (pitfall("for x in y: y + [x]") + RIGHT, None),
        (pitfall("y = [1]; for x in y:\ny = … + [2]") + RIGHT, None),
        (WRONG + RIGHT, "without a `%%% pitfall` block"),
        (pitfall("y - [x]"), "the cell has no 'y - [x]'"),
        (pitfall("# a list"), "the cell has no '# a list'"),
        (pitfall("y + [x]\ny + [x]") + RIGHT, "tagged right has 'y + [x]'"),
        (pitfall("y + [x]\ny = y + [2]"), "tagged right has 'y = y + [2]'"),
        (pitfall("y + [x]").replace("tags=wrong", "tags=right"), "not tagged wrong"),
        (re.sub(r"\*\*Write.*\*\*", "Write.", pitfall("y + [x]")), "nor an answer"),
        (re.sub(r"\*\*请写.*\*\*", "请写。", pitfall("y + [x]")), "nor an answer"),
    ],
)
def test_pitfall_patterns_must_match_the_cells(put, section, says):
    book = put(section)
    found = list(pitfalls.problems(book, book.chapters))
    if says is None:
        assert found == []
    else:
        assert len(found) == 1 and says in found[0]
        assert any(says in problem for problem in check(book))


def test_book_has_a_pitfall_for_each_wrong_cell():
    book = Book(ROOT)
    assert list(pitfalls.problems(book, book.chapters)) == []
    found = pitfalls.load(book)
    assert len(found) >= 120
    assert not [name for name, count in Counter(p.id for p in found).items() if count > 1]


def test_answer_contains_the_text_of_its_links():
    linked = WRONG.replace(
        "`y = x.detach()`, *", "[`detach`](detach.ipynb#a-b) of `f[0](x)`, [x](#y), *"
    )
    _, part = sections(parse("adding", f"%%% summary\nx\n\n%%% md adding\n# Title\n\n{linked}"))
    assert part.answer["en"] == "Write `detach` of `f[0](x)`, x, *always*, up to $2^{3}$."


def test_pitfalls_page_links_sections_and_shows_fixes(put, quick):
    book = put(pitfall("y + [x]") + RIGHT)
    pages.write(book)
    english, chinese = (
        (book.root / "book" / lang / "pitfalls.md").read_text("utf8") for lang in LANGUAGES
    )
    assert "## [Add two numbers](adding.ipynb)" in english
    assert "## [两数相加](adding.ipynb)" in chinese
    for page in (english, chinese):
        assert '<li id="adding-lost-wrong">' in page
        assert '<a href="adding.html#a-detach-is-lost">' in page
        assert "<code>y + [x]</code>" in page
    assert "Write <code>y = x.detach()</code>, <em>always</em>, up to 2<sup>3</sup>." in english
    assert "请写 <code>y = x.detach()</code>，直到 2<sup>3</sup>。" in chinese


# ---------------------------------------------------------------- names


CODE = {
    "x.detach().numpy()": [],
    "nn.Linear(2, 1).weight": ["torch.nn.Linear"],
    "loss = F.cross_entropy(F.relu(x), y)": [
        "torch.nn.functional.cross_entropy",
        "torch.nn.functional.relu",
    ],
    "nn.functional.relu": ["torch.nn.functional.relu"],
    "DataLoader(data)": ["torch.utils.data.DataLoader"],
    "torch.finfo(d).max": ["torch.finfo"],
    "Use torch.equal, or nn.Linear.": ["torch.equal", "torch.nn.Linear"],
    "self.nn.Linear; annotate; F": [],
    "torch; torch.nn": [],
    "torch._C.x": [],
    "a file torch.py": [],
    "import torch.utils.data\nfrom torch.nn import Linear": [],
}


@pytest.mark.parametrize(("code", "names"), CODE.items())
def test_torch_names_expands_aliases(code, names):
    aliases = ALIASES | {"DataLoader": "torch.utils.data.DataLoader"}
    assert list(torch_names(code, aliases)) == names


def test_imports_maps_local_names_to_full_names():
    code = (
        "import torch\nimport torch.nn.utils.prune as prune\nimport numpy as np\n"
        "from torch.utils.data import DataLoader, random_split as split  # both\n"
        "from torch.nn import (\n    Linear,  # a layer\n    ReLU,\n)\nfrom torchy import x"
    )
    assert imports(code) == {
        "prune": "torch.nn.utils.prune",
        "DataLoader": "torch.utils.data.DataLoader",
        "split": "torch.utils.data.random_split",
        "Linear": "torch.nn.Linear",
        "ReLU": "torch.nn.ReLU",
    }


def section_of(number: int, heading: str, code: str) -> str:
    cell = Cell(f"s{number}-code", "code", 0, Words("", 0), code, {"tags": ["right"]})
    return f"%%% md s{number}\n## {heading}\n%%% zh\n## {heading}\n\n{dump(cell)}\n\n"


def test_names_in_headings_come_first_and_common_names_are_limited(put):
    common = [section_of(n, f"Number {n}", "torch.ones(1)") for n in range(60)]
    book = put(
        "".join(common)
        + section_of(70, "Nothing here", "torch.diag(x)")
        + section_of(71, "`torch.diag` and `torch.ones`", "pass")
    )
    names = name_list.sections_by_name(book)
    assert [part.heading for part in names["torch.diag"]] == [
        "`torch.diag` and `torch.ones`",
        "Nothing here",
    ]
    assert len(names["torch.ones"]) == 1


def test_method_is_listed_if_prose_names_it_and_code_calls_it(put):
    code = "model.eval()\nnp.eval()\nx.flip(0)\nx.data\ny.grad\ny.append(1)\nself.a.T"
    book = put(
        section_of(
            1, "First `eval()`, then `.data`, `.T`, not `.a`, `grad`, `append` or `median`", "pass"
        )
        + section_of(2, "Other words: flip", f"import numpy as np\n{code}")
    )
    names = name_list.sections_by_name(book)
    assert [name for name in names if name.startswith(".")] == [".data", ".eval", ".T"]
    assert [part.id for part in names[".eval"]] == ["s1", "s2"]


def test_name_index_is_alphabetical_and_linked(put, quick):
    book = put(pitfall("y + [x]") + section_of(1, "A", "torch.abs(x.detach())"))
    pages.write(book)
    for lang in LANGUAGES:
        page = (book.root / "book" / lang / "by_name.md").read_text("utf8")
        assert re.findall(r'<li id="([^"]+)">', page) == ["torch.abs", ".detach"]
        assert "## A\n" in page and "## D\n" in page
        assert "adding.html#a-detach-is-lost" in page


def exists(name: str) -> bool:
    """Return whether the installed packages define `name`, as an attribute or an annotation."""
    first, *rest = name.split(".")
    here, path = importlib.import_module(first), first
    for part in rest:
        path += f".{part}"
        if hasattr(here, part):
            here = getattr(here, part)
        elif part in getattr(here, "__annotations__", {}):
            return True
        else:
            try:
                here = importlib.import_module(path)
            except ImportError:
                return False
    return True


def test_every_name_of_the_index_exists():
    names = [name for name in name_list.sections_by_name(Book(ROOT)) if not name.startswith(".")]
    assert len(names) >= 250
    # one is a removed module in a heading, the other is quoted from a warning
    assert {name for name in names if not exists(name)} == {
        "torch.optim.lr_scheduler.step",
        "torch.utils.bottleneck",
    }
    assert not exists("torch.nowhere")


def test_status_counts_pitfalls_and_names(put):
    rows = status.coverage(put(pitfall("y + [x]") + RIGHT), "en", ["torch.Tensor.detach"])
    assert [row[1] for row in rows] == ["1", "1"]
    assert rows[0][2] == "1 have a fix in words, not in code."
