"""Create a small book with every element of a page, for tests that break one."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parents[2]

TOC = """\
format: jb-book
root: index
parts:
  - caption: Autograd
    chapters: [{file: detach}, {file: schedule}]
  - caption: Reference
    chapters: [{file: errors}, {file: pitfalls}]
"""

TEXT = """\
%%% summary
What detach cuts and what it shares.
%%% zh
detach 切断什么，共享什么。

%%% md title
# Cut the graph with detach
%%% zh
# 用 detach 切断计算图

%%% md ways
## Two ways to cut

**Clone what you <keep> of `x`.**
%%% zh
## 两种切断方法

**要保留 `x` 的<值>，就 clone。**

%%% code value tags=wrong
```python
x = torch.ones(1)
x.detach() * 2
```
%%% pitfall
x.detach() * 2
"""

SCHEDULE = """\
%%% summary
Cosine decay
%%% zh
余弦衰减

%%% md title
# Schedule the learning rate

## Cosine decay
%%% zh
# 调度学习率

## 余弦衰减
"""

MESSAGES = """\
family:
  title: {en: Gradients, zh: 梯度}
  heading: {en: "gradients and backward", zh: "梯度与反向传播"}
  description: {en: "Errors of autograd.", zh: "autograd 的报错。"}
messages:
- id: no-grad-fn
  wordings:
  - "RuntimeError: element {n} of tensors does not require <grad>"
  - "RuntimeError: no grad"
  cause:
    en: "Nothing in the loss leads back to a `tensor` that requires a gradient."
    zh: "loss 往回追溯不到任何需要梯度的 `tensor`。"
  cure: |
    x = x < 1

    loss.backward()
  section: detach#value
  cases:
  - id: no-grad-fn-zero
    when: {n: "0"}
    cause: {en: "It is the first.", zh: "它是第一个。"}
"""

QUESTION = """\
<div class="predict" role="group" data-cell="{cell}">
<p><strong>Predict.</strong> {asks}</p>
<details class="no"><summary>Nothing</summary>
<p><strong>✗ No.</strong> It is added.</p></details>
<details class="yes"><summary>Two</summary>
<p><strong>✓ Yes.</strong> One and one.</p></details></div>"""

EXPLORER = """<toy-explorer>A counter that needs scripts.</toy-explorer>
<script>
if (!customElements.get("toy-explorer")) {
  customElements.define("toy-explorer", class extends HTMLElement {
    connectedCallback() {
      this.innerHTML = '<button type="button">+1</button> <span aria-live="polite">0</span>';
      this.firstChild.onclick = () => { this.lastChild.textContent++; };
    }
  });
}
</script>"""

WORDS = {
    "en": {
        "detach": "Cut the graph with detach",
        "summary": "What detach cuts and what it shares.",
        "lead": "A tensor from `detach` shares the storage of its source.",
        "two ways": "Two ways to cut",
        "again": "Two ways to cut",
        "why": "Backpropagation follows the computational graph: $y = x^2$ gives\n\n"
        "$$\\frac{dy}{dx} = 2x$$",
        "link": "See [the second way](detach.ipynb#two-ways-to-cut-2).",
        "admonition": "Then and now",
        "learn": "You will learn to",
        "keywords": "copy, requires_grad",
        "need": "You need",
        "hint": "Hint",
        "schedule": "Schedule the learning rate",
        "cosine": "Cosine decay",
        "explains": "The mean adds both and divides.",
        "next": "The counter counts.",
        "errors": "Errors",
        "pitfalls": "Pitfalls",
        "index": "Toy book",
    },
    "zh": {
        "detach": "用 detach 切断计算图",
        "summary": "detach 切断什么，共享什么。",
        "lead": "`detach` 得到的张量与源张量共享存储。",
        "two ways": "两种切断方法",
        "again": "两种切断方法",
        "why": "反向传播沿着计算图进行：$y = x^2$ 得\n\n$$\\frac{dy}{dx} = 2x$$",
        "link": "参见[第二种方法](detach.ipynb#two-ways-to-cut-2)。",
        "admonition": "今昔对照",
        "learn": "你将学会",
        "keywords": "复制、requires_grad",
        "need": "你需要",
        "hint": "提示",
        "schedule": "调度学习率",
        "cosine": "余弦衰减",
        "explains": "均值先求和再相除。",
        "next": "计数器会计数。",
        "errors": "报错",
        "pitfalls": "陷阱",
        "index": "玩具书",
    },
}

PASSED = "✓ correct: 3 checks passed"
ERRORS = {"RuntimeError: element 0 of tensors does not require grad": "detach"}


def cards(w: dict[str, str]) -> str:
    return f"> **{w['learn']}**\n>\n> - {w['two ways']}\n\n> **{w['need']}** PyTorch 2"


def chapter(w: dict[str, str]) -> nbformat.NotebookNode:
    ran = iter(range(1, 99))

    def code(
        name: str,
        source: str,
        *outputs: nbformat.NotebookNode,
        tags: tuple[str, ...] = (),
        **metadata: str,
    ):
        return new_code_cell(
            source,
            id=name,
            execution_count=next(ran),
            outputs=list(outputs),
            metadata={"tags": list(tags)} | metadata,
        )

    def result(text: str) -> nbformat.NotebookNode:
        return new_output("execute_result", {"text/plain": text}, execution_count=2)

    value = result("tensor([2.])")
    failed, passed = result("✗ not yet: expected a tensor, got None"), result(PASSED)
    error = new_output(
        "error",
        ename="RuntimeError",
        evalue="element 0 of tensors does not require grad",
        traceback=["\x1b[31mRuntimeError\x1b[39m: element 0 of tensors does not require grad"],
    )
    explorer = new_output("display_data", {"text/html": EXPLORER, "text/plain": "<toy-explorer>"})
    wide = (
        "torch.nn.functional.cross_entropy(" + ", ".join(f"argument_{i}" for i in range(40)) + ")"
    )
    cells = [
        new_markdown_cell(
            f"# {w['detach']}\n\n*{w['keywords']}*\n\n{w['lead']}\n\n{cards(w)}", id="title"
        ),
        code("setup", "import torch", tags=("setup", "hide-input")),
        new_markdown_cell(f"## {w['two ways']}\n\n{w['why']}", id="ways"),
        code("value", "x = torch.ones(1)\nx.detach() * 2", value),
        code("fails", "x.backward()", error, tags=("raises-exception",)),
        new_markdown_cell(
            f"> **{w['admonition']}.** {w['lead']}\n\n"
            f":::{{admonition}} {w['hint']}\n:class: dropdown\n{w['lead']}\n:::",
            id="then",
        ),
        new_markdown_cell(f"## {w['again']}\n\n{w['link']}", id="again"),
        code("wide", wide),
        new_markdown_cell(QUESTION.format(cell="sum", asks="What is the sum?"), id="sum-predict"),
        code("sum", "x = x + 1\nassert x.sum() == 1", predict="What is the sum?"),
        new_markdown_cell(QUESTION.format(cell="mean", asks="And the mean?"), id="mean-predict"),
        code("mean", "x.mean()\nassert x.mean() == 2", value, predict="And the mean?"),
        new_markdown_cell(
            f"{w['explains']}\n\n> **{w['admonition']}.** {w['lead']}\n\n"
            f"- {w['explains']}\n\n$$x$$",
            id="mean-why",
        ),
        new_markdown_cell(w["next"], id="mean-next"),
        code("explorer", "explorer", explorer),
        code("starter", "def cut(x):\n    ...", failed, tags=("exercise",)),
        code(
            "answer", "def cut(x):\n    return x.detach()", passed, tags=("solution", "hide-cell")
        ),
    ]
    return notebook(cells, w["summary"])


def notebook(cells: list[nbformat.NotebookNode], summary: str) -> nbformat.NotebookNode:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}, "summary": summary}
    return new_notebook(cells=cells, metadata=metadata)


def errors_page(w: dict[str, str]) -> str:
    items = "\n".join(
        f'<li data-error="{text}"><a href="{page}.html">{text}</a></li>'
        for text, page in ERRORS.items()
    )
    return f"""\
# {w["errors"]}

<label for="error-search">{w["errors"]}</label> <input id="error-search">
<ul>
{items}
</ul>

```{{py:function}} toy.cut(x)
```
"""


def write(root: Path) -> Path:
    """Write the book to `root`, with the configuration, theme and labels of the real one."""
    root.mkdir(exist_ok=True)
    shutil.copy(ROOT / "_config.yml", root)
    for name in ("_root", "_static", "_templates", "_locale"):
        shutil.copytree(ROOT / "book" / name, root / "book" / name)
    (root / "_toc.yml").write_text(TOC, "utf8")
    result = {
        "text/detach.md": TEXT,
        "text/schedule.md": SCHEDULE,
        "messages/autograd.yml": MESSAGES,
    }
    for name, text in result.items():
        (root / "book" / name).parent.mkdir(exist_ok=True)
        (root / "book" / name).write_text(text, "utf8")
    for lang, w in WORDS.items():
        folder = root / "book" / lang
        folder.mkdir()
        nbformat.write(chapter(w), folder / "detach.ipynb")
        schedule = [new_markdown_cell(f"# {w['schedule']}\n\n## {w['cosine']}", id="title")]
        nbformat.write(notebook(schedule, w["cosine"]), folder / "schedule.ipynb")
        (folder / "errors.md").write_text(errors_page(w), "utf8")
        listed = '<ul class="pitfalls">\n<li id="value">x.detach() * 2</li>\n</ul>'
        (folder / "pitfalls.md").write_text(f"# {w['pitfalls']}\n\n{listed}\n", "utf8")
        place = '<p id="take-along" hidden></p>'
        home = f"# {w['index']}\n\n{place}\n\n```{{chapters}}\n```\n"
        (folder / "index.md").write_text(home, "utf8")
    return root
