"""Test `python -m helpers.review`, `# noqa`, and the IPython extension."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from helpers.review import cells
from helpers.review.__main__ import main
from helpers.review.registry import RULES
from helpers.review.review import review

ROOT = Path(__file__).resolve().parents[3]
WRONG = """import torch
from torch import nn

net = nn.LSTM(8, 16, dropout=0.5)
torch.save(net, "net.pt")
"""


@pytest.fixture
def wrong(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(WRONG)
    return str(path)


def test_report_contains_place_line_effect_fix_and_section(wrong, capsys):
    assert main([wrong, "--lang", "en"]) == 1
    out = capsys.readouterr().out
    assert f"{wrong}:4: net = nn.LSTM(8, 16, dropout=0.5)\n    `dropout=` acts between" in out
    assert "wasted]\n    Write:\n        nn.LSTM(8, 16, num_layers=2, dropout=0.5)\n    → " in out
    assert "(sequences.html#" in out
    assert out.endswith(
        f"2 findings in 1 file. {len(RULES)} kinds of mistakes were looked for; "
        "a file without a finding may have others.\n"
    )


def test_report_in_chinese_is_translated(wrong, capsys):
    assert main([wrong, "--lang", "zh"]) == 1
    out = capsys.readouterr().out
    assert "只有一层时没有作用。（sequences-dropout，白费）\n    改为：\n" in out
    assert out.endswith(f"共检查 {len(RULES)} 类错误；没有发现问题的文件也可能有其他错误。\n")


def test_json_report_contains_the_same_findings(wrong, capsys):
    assert main([wrong, "--json", "--lang", "en"]) == 1
    report = json.loads(capsys.readouterr().out)
    first = report["findings"][0]
    assert (first["file"], first["line"], first["rule"]) == (wrong, 4, "sequences-dropout")
    assert (first["severity"], first["code"]) == ("wasted", WRONG.split("\n")[3])
    assert first["section"]["href"].startswith("sequences.html#") and first["why"] and first["fix"]
    assert report["files"] == 1 and report["unread"] == [] and len(report["rules"]) == len(RULES)


def test_only_and_skip_select_rules(wrong, capsys):
    assert main([wrong, "--only", "sequences-dropout"]) == 1
    assert main([wrong, "--skip", "sequences-dropout, checkpoints-whole-error"]) == 0
    with pytest.raises(SystemExit):
        main([wrong, "--only", "no-such-rule"])
    assert "no rule 'no-such-rule'" in capsys.readouterr().err


def test_list_prints_every_rule(capsys):
    assert main(["--list", "--lang", "en"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(RULES) and all(line.partition(" ")[0] in RULES for line in lines)


@pytest.mark.parametrize(
    ("comment", "count"),
    [
        ("# noqa", 1),
        ("# noqa: sequences-dropout", 1),
        ("# noqa: E501, sequences-dropout", 1),
        ("# noqa: E501", 2),
        ("#noqa:modules-made", 2),
    ],
)
def test_noqa_silences_its_line(comment, count):
    assert len(review(WRONG.replace("0.5)", f"0.5)  {comment}"))) == count


def test_dash_reads_standard_input(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(WRONG.encode())))
    assert main(["-", "--lang", "en"]) == 1
    assert "<stdin>:4: " in capsys.readouterr().out


def test_unreadable_file_is_reported_and_the_rest_is_reviewed(wrong, tmp_path, capsys):
    (tmp_path / "broken.py").write_text("x = (")
    assert main([str(tmp_path), "--lang", "en"]) == 1
    assert "broken.py: not read: line 1: " in capsys.readouterr().err
    assert main([str(tmp_path / "broken.py")]) == 2
    with pytest.raises(SystemExit):
        main([])


def test_code_without_torch_has_no_finding():
    assert review("import keras\nmodel.eval\n") == []
    assert review("x = 1\n") == []


def test_pasted_snippet_requires_no_imports():
    assert [one.rule for one in review("net = nn.LSTM(8, 16, dropout=0.5)\n")] == [
        "sequences-dropout"
    ]


def test_command_requires_no_other_package(wrong):
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['torch', 'numpy', 'matplotlib', 'yaml'], None))\n"
        f"from helpers.review.__main__ import main\nsys.exit(main([{wrong!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and not done.stderr


def test_hook_runs_the_review_command():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf8"))
    assert hook["entry"] == "python -m helpers.review" and hook["types_or"] == ["python", "jupyter"]


class Shell:
    def __init__(self):
        self.hooks = []
        self.events = SimpleNamespace(
            register=lambda name, hook: self.hooks.append(hook),
            unregister=lambda name, hook: self.hooks.remove(hook),
        )

    def run(self, text):
        for hook in self.hooks:
            hook(SimpleNamespace(raw_cell=text))


def test_cells_are_reviewed_as_they_run(capsys, monkeypatch):
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    shell = Shell()
    cells.load_ipython_extension(shell)
    shell.run("import torch\nfrom torch import nn")
    shell.run("x = (")
    shell.run("%%time\nnet = nn.Linear(2, 2)")
    assert capsys.readouterr().out == ""
    shell.run("# save it\ntorch.save(net, 'net.pt')")
    out = capsys.readouterr().out
    assert out.startswith("Line 2: torch.save(net, 'net.pt')\n") and out.count("Line") == 1
    shell.run("y = 1")
    assert capsys.readouterr().out == ""
    cells.unload_ipython_extension(shell)
    assert shell.hooks == []
