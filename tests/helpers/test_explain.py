"""Test `helpers.explain` on the command line, in IPython, and with arbitrary input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.testing.globalipapp import start_ipython
from torch import nn

from helpers import explain
from helpers.explain.__main__ import decoded
from helpers.explain.conditions import related
from helpers.explain.data import DATA, VARIABLE
from helpers.explain.logs import own_line
from helpers.explain.notebook import _LIBRARY, _installed, _own_frame, operands, traceback_of
from helpers.explain.report import WORDS, paragraph, questions, report
from helpers.explain.similar import similar
from helpers.explain.text import value_of
from helpers.explain.unknown import unknown

ROOT = Path(__file__).resolve().parents[2]
SHAPES = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 10x5)"
SECOND = (
    "RuntimeError: Trying to backward through the graph a second time (or directly access saved "
    "tensors after they have already been freed)."
)


def own(answer):
    """Return the values of an answer's message, without those of the text around it."""
    around = ("object", "package", "importer", "owner", "caller", "inside", "similar")
    return {n: v for n, v in answer.values.items() if n not in around}


def best(pasted):
    return explain.messages().find(pasted)[0]


# ---------------------------------------------------------------- finding


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m,
        lambda m: m.partition(": ")[2],
        lambda m: f"[rank0]: {m}",
        lambda m: f"\x1b[31m{m}\x1b[0m",
        lambda m: m.replace(" ", "\n"),
        lambda m: f"raise RuntimeError({m.partition(': ')[2]!r})",
        lambda m: m.replace("(", "（").replace(")", "）").replace(": ", "："),
        lambda m: f"  File 'train.py', line 3, in <module>\n    run()\n{m}\n\nDuring handling …",
        lambda m: m.upper(),
    ],
)
@pytest.mark.parametrize(("message", "entry"), [(SHAPES, "mat1-mat2-shapes"), (SECOND, "backward")])
def test_message_is_found_in_every_pasted_form(change, message, entry):
    answer = best(change(message))
    assert answer.sure and answer.entry["id"].startswith(entry)


def test_every_wording_finds_its_entry_with_any_values():
    search, lost = explain.messages(), []
    for entry in search.entries:
        for wording in entry["wordings"]:
            pasted = VARIABLE.sub("7", wording)
            found = search.find(f"Traceback (most recent call last):\n  …\n{pasted}")
            if not any(a.sure and a.entry is entry for a in found):
                lost.append(wording)
    assert not lost


@pytest.mark.parametrize(
    ("kind", "name"), [("ModuleNotFoundError: No module named ", "torch"), ("KeyError: ", "epoch")]
)
@pytest.mark.parametrize("form", ["{0}_geometric", "n{0}", "{0}X"])
def test_quoted_name_matches_only_the_whole_name(kind, name, form):
    search = explain.Messages([{"id": "named", "wordings": [f"{kind}'{name}'"]}])
    other = form.format(name)
    for quote in ("'", '"', "`", ""):
        assert search.find(f"{kind}{quote}{name}{quote}")[0].whole
        assert not any(a.whole for a in search.find(f"{kind}{quote}{other}{quote}"))


@pytest.mark.parametrize("quote", ["'", '"', "`"])
def test_first_slot_takes_the_quoted_name(quote):
    search = explain.Messages(
        [{"id": "call", "wordings": ["TypeError: '{type}' object is not callable"]}]
    )
    message = f"TypeError: {quote}str{quote} object is not callable"
    assert own(search.find(message)[0]) == {"type": "str"}


@pytest.mark.parametrize(
    "name",
    [
        'it\'s "x"',
        'module name can\'t contain "."',
        "filename 'storages' not found",
        "['a', 'b'] not in index",
        " a b ",
        "no 'x'.",
    ],
)
@pytest.mark.parametrize("after", ["", "\n", " ，请问怎么解决", "\n  File 'a.py', line 3"])
def test_quoted_name_contains_its_quotes(name, after):
    search = explain.Messages([{"id": "named", "wordings": ["KeyError: '{name}'"]}])
    answer = search.find(f"KeyError: {name!r}{after}")[0]
    assert own(answer) == {"name": name.replace('"', "'").strip(" .'")}


def test_last_exception_of_a_chain_ranks_first():
    both = f"{SHAPES}\n\nDuring handling of the above exception, another one occurred:\n\n{SECOND}"
    assert best(both).entry["id"] == best(SECOND).entry["id"]
    assert best(both.replace("\n\n", " ")).entry["id"] == best(SECOND).entry["id"]


@pytest.mark.parametrize(
    "warning",
    [
        "FutureWarning: `torch.jit.script` is deprecated. Please switch to `torch.compile` or "
        "`torch.export`.",
        "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`. "
        "In PyTorch 1.1.0 and later, you should call them in the opposite order",
    ],
)
def test_error_ranks_before_a_warning(warning):
    alone = best(warning).entry["id"]
    for text in (f"a.py:12: {warning}\n  x()\n{SHAPES}", f"{SHAPES}\na.py:12: {warning}"):
        found = [answer.entry["id"] for answer in explain.messages().find(text)]
        assert found == [best(SHAPES).entry["id"], alone]


@pytest.mark.parametrize(
    ("relation", "values", "expected"),
    [
        ("m multiple of n", {"m": "32", "n": "8"}, True),
        ("m multiple of n", {"m": "8", "n": "32"}, False),
        ("m multiple of n", {"m": "8", "n": "0"}, False),
        ("m close to n", {"m": "245", "n": "244"}, True),
        ("m close to n", {"m": "245", "n": "245"}, False),
        ("m close to n", {"m": "6", "n": "8"}, False),
        ("product(shape) > n", {"shape": "[16, 34, 34, 512]", "n": "8921088"}, True),
        ("n multiple of leading(shape)", {"shape": "[32, 128, 9, 9]", "n": "802816"}, True),
        ("n multiple of leading(shape)", {"shape": "[32, 128, 9, 9]", "n": "802817"}, False),
        ("n == leading(shape)", {"shape": "[32]", "n": "1"}, True),
        ("n == leading(shape)", {"shape": "none", "n": "1"}, False),
        ("free > 10 * asked", {"free": "37.12 GiB", "asked": "128.00 MiB"}, True),
        ("free > 10 * asked", {"free": "1.12 GiB", "asked": "128.00 MiB"}, False),
        ("m == n + 2", {"m": "6", "n": "4"}, True),
        ("m == n + 2", {"m": "6", "n": "3"}, False),
        ("m == 2 * n + 1", {"m": "7", "n": "3"}, True),
        ("n == 3", {"n": "3"}, True),
        ("n != 3", {"n": "four"}, False),
        ("n != 3", {}, False),
    ],
)
def test_related_evaluates_relations_of_numbers(relation, values, expected):
    assert related(relation, values) is expected


def test_numbers_select_a_case():
    cases = [{"id": "multiple", "numbers": ["m multiple of n"]}, {"id": "rest", "near": "."}]
    search = explain.Messages([{"id": "one", "wordings": ["rows {m} and {n}"], "cases": cases}])
    assert [search.find(f"rows {m} and 8")[0].id for m in (32, 33)] == ["multiple", "rest"]


TRACE = """Traceback (most recent call last):
  File "/home/jo/project/train.py", line 61, in <module>
    loss = step(batch)
  File "/home/jo/project/lib/steps.py", line 7, in step
    out = net(x)
  File "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 125, in forward
RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x92 and 103x64)"""


@pytest.mark.parametrize(
    ("pasted", "line"),
    [
        (TRACE, ("steps.py", "7")),
        (TRACE.replace("/", "\\"), ("steps.py", "7")),
        ('File "C:\\Python311\\Lib\\runpy.py", line 9, in f', None),
        ('File "<frozen runpy>", line 198, in f', None),
        ("Cell In[5], line 3\n----> 3 f(x)", ("", "5:3")),
        ("Input In [12], in <cell line: 2>()", ("", "12:2")),
        ("File ~/net.py:8, in Net.forward(self, x)", ("net.py", "8")),
        ("KeyError: 'epoch'", None),
    ],
)
def test_own_line_returns_the_line_of_the_user_code(pasted, line):
    assert own_line(pasted) == line


def test_explanation_begins_with_the_message_and_the_line():
    first, second = explain.explain(TRACE).splitlines()[:2]
    assert first == TRACE.splitlines()[-1] and second == "Raised in steps.py, line 7."
    assert "出错的是 steps.py 第 7 行。" in explain.explain(TRACE, "zh")
    assert "Raised in cell 5, line 3." in explain.explain(f"Cell In[5], line 3\n{SHAPES}")


def test_second_answer_requires_another_message():
    says = ["RuntimeError: mat1 {a} and mat2 {b}", "ValueError: mat1 {a}", "mat2 and nothing else"]
    entries = [{"id": f"e{n}", "wordings": [text]} for n, text in enumerate(says)]
    search = explain.Messages(entries)

    def ids(text):
        return [a.id for a in search.find(text)]

    first = "RuntimeError: mat1 7 and mat2 8"
    assert ids(first) == ["e0"]
    assert ids(f"{first} mat2 and nothing else") == ["e0"]  # without an exception type
    assert sorted(ids(f"ValueError: mat1 9\n{first}")) == ["e0", "e1"]


def test_wrapped_error_ranks_before_its_wrapper():
    wrapped = (
        "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\n"
        f"Original Traceback (most recent call last):\n{SHAPES}"
    )
    assert best(wrapped).entry["id"] == "mat1-mat2-shapes"
    alone = "RuntimeError: Caught RuntimeError in DataLoader worker process 0."
    assert best(alone).entry.get("wraps")


@pytest.mark.parametrize(
    ("before", "case"),
    [
        (
            "ERROR: Unexpected bus error encountered in worker.\n",
            "worker-exited-shm",
        ),
        (
            "AttributeError: Can't get attribute 'Squares' on <module '__main__'>\n",
            "worker-exited-import",
        ),
        ("", "worker-exited"),
    ],
)
def test_lines_above_select_the_case_of_an_exited_worker(before, case):
    exited = "RuntimeError: DataLoader worker (pid(s) 123) exited unexpectedly"
    found = explain.messages().find(before + exited)
    assert case in [answer.id for answer in found]


def test_wrapper_never_ranks_before_the_wrapped_error():
    wraps = {"id": "wraps", "wordings": ["Error: process {n} terminated with this"], "wraps": True}
    others = [{"id": f"n{n}", "wordings": [f"word{n}"]} for n in range(999)]
    search = explain.Messages([wraps, {"id": "key", "wordings": ["KeyError: '{name}'"]}, *others])
    found = search.find("Error: process 3 terminated with this\nKeyError: 'lr'")
    assert [a.id for a in found] == ["key", "wraps"]


OWN = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 7, in f\n'
REPORTS = {
    "watchdog": "[rank1]:[E1129 11:02:13.551 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=14, OpType=ALLREDUCE, NumelIn=7, NumelOut=7, "
    "Timeout(ms)=600000) ran for 600014 milliseconds before timing out.",
    "process-group": "[rank0]:[W1129 11:02:13.2 ProcessGroupNCCL.cpp:1250] Warning: WARNING: "
    "process group has NOT been destroyed before we destruct ProcessGroupNCCL.",
    "launcher": "E1129 11:02:14.500000 80 torch/distributed/elastic/multiprocessing/api.py:869] "
    "failed (exitcode: 1) local_rank: 1 (pid: 82) of binary: /usr/bin/python3\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "command": "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero "
    "exit status 1.",
    "pipe": "BrokenPipeError: [Errno 32] Broken pipe",
    "spawned": "EOFError: Ran out of input",
    "ignored": "Exception ignored in: <function Pool.__del__ at 0x7f>\n"
    "Traceback (most recent call last):\nAttributeError: 'Pool' object has no attribute 'fc'",
    "cpp": "terminate called after throwing an instance of 'c10::Error'\n"
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57",
    "tokenizers": "huggingface/tokenizers: The current process just got forked, after parallelism "
    "has already been used. Disabling parallelism to avoid deadlocks...",
    "warning": "UserWarning: resource_tracker: There appear to be 6 leaked semaphore objects to "
    "clean up at shutdown",
}


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("later", [True, False])
def test_error_of_a_log_ranks_before_reports_of_it(report, later):
    lines = [f"{OWN}{SHAPES.splitlines()[-1]}", REPORTS[report]]
    log = "\n".join(lines if later or report in ("ignored", "watchdog") else lines[::-1])
    found = explain.messages().find(log)
    assert found[0].sure and found[0].entry["id"] == "mat1-mat2-shapes"
    assert own_line(log) == ("train.py", "7")


@pytest.mark.parametrize("report", REPORTS)
def test_reports_are_only_related_to_an_unknown_error(report):
    log = f"{OWN}brewery.YeastError: no hops in the wort\n{REPORTS[report]}"
    assert not any(answer.sure for answer in explain.messages().find(log))
    assert unknown(log) == {"type": "YeastError", "file": "train.py", "line": "7"}


def test_error_of_another_rank_ranks_before_a_lost_connection():
    lost = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:3120"
    second = OWN.replace("line 7", "line 9") + lost
    found = explain.messages().find(f"{OWN}{SHAPES}\n{second}")
    assert found[0].entry["id"] == "mat1-mat2-shapes"
    log = f"{OWN}brewery.YeastError: no hops in the wort\n{second}"
    assert unknown(log) == {"type": "YeastError", "file": "train.py", "line": "7"}
    log = f"{OWN}RuntimeError: no hops in the wort\n{second}"
    assert own_line(log) == ("train.py", "7")


def test_crash_ranks_before_a_warning():
    log = f"{REPORTS['warning']}\nSegmentation fault (core dumped)"
    assert [a.id for a in explain.messages().find(log)][0] == "segmentation-fault"


def test_report_alone_is_explained():
    assert best(REPORTS["launcher"]).id == "child-failed"
    assert best(REPORTS["watchdog"]).id.startswith("nccl-")
    assert best(REPORTS["spawned"]).sure


def test_partial_wording_requires_distinctive_words():
    says = ["RuntimeError: [{path}] {check}. Unable to find address"]
    search = explain.Messages([{"id": "address", "wordings": says}])
    assert not search.find("RuntimeError: [enforce fail at CPUAllocator.cpp] . No memory")
    assert search.find("RuntimeError: [a.cc] rv. Unable to find address")[0].sure


@pytest.mark.parametrize("aside", ["{path}", "required by {lib}"])
def test_text_in_parentheses_is_optional(aside):
    says = [f"ImportError: cannot import name '{{name}}' from package '{{module}}' ({aside})"]
    others = [{"id": f"n{n}", "wordings": [f"word{n}"]} for n in range(99)]
    search = explain.Messages([{"id": "name", "wordings": says}, *others])
    answer = search.find("ImportError: cannot import name 'a' from package 'b'")[0]
    assert answer.whole and own(answer) == {"name": "a", "module": "b"}


def test_short_wording_does_not_hide_a_longer_partial_match():
    wordings = ["KeyError: '{name}'", "ValueError: unusual combination of several telling words"]
    search = explain.Messages([{"id": f"n{n}", "wordings": [w]} for n, w in enumerate(wordings)])
    search._rare = dict.fromkeys(search._rare, 4.0)
    found = search.find("KeyError: 'a'\nValueError: unusual combination of several telling things")
    assert found[0].id == "n1" and found[0].sure


def test_distant_log_lines_do_not_select_a_case():
    says = ["RuntimeError: the unusual widget could not be frobnicated"]
    case = {"id": "case", "near": "num_workers"}
    others = [{"id": f"n{n}", "wordings": [f"word{n}"]} for n in range(99)]
    search = explain.Messages([{"id": "widget", "wordings": says, "cases": [case]}, *others])
    line = "step 100 of the training, all is well\n"
    for whole in (says[0], says[0].removesuffix(" frobnicated")):
        assert search.find(f"num_workers=4\n{line * 20}{whole}")[0].id == "case"
        assert search.find(f"num_workers=4\n{line * 200}{whole}")[0].id == "widget"


def test_exact_number_ranks_before_a_slot():
    entries = [
        {"id": "segfault", "wordings": ["Process finished with exit code 139"]},
        {"id": "code", "wordings": ["Process finished with exit code {n}"], "wraps": True},
        *({"id": f"n{n}", "wordings": [f"word{n}"]} for n in range(999)),
    ]
    for code, expected in {"139": "segfault", "1": "code", "-1073740940": "code"}.items():
        answer = explain.Messages(entries).find(f"Process finished with exit code {code}")[0]
        assert answer.id == expected and answer.sure
    assert own(answer) == {"n": code}


def test_value_at_the_end_includes_its_brackets():
    says = ["TypeError: default_collate: batch must contain tensors; found {type}"]
    search = explain.Messages([{"id": "collate", "wordings": says}])
    text = "TypeError: default_collate: batch must contain tensors; found <class 'NoneType'>"
    assert own(search.find(text)[0]) == {"type": "<class 'NoneType'>"}


@pytest.mark.parametrize("lib", ["libnccl-net.so", "libstdc++.so.6", "_C.cpython-311-x86_64.so"])
@pytest.mark.parametrize("before", ["", "ImportError: ", "could not load /opt/my-env/lib/"])
def test_value_at_the_beginning_is_a_whole_file_name(lib, before):
    search = explain.Messages([{"id": "lib", "wordings": ["{lib}: cannot open shared object"]}])
    assert own(search.find(f"{before}{lib}: cannot open shared object")[0]) == {"lib": lib}


def test_value_at_the_beginning_keeps_the_dots_of_a_relative_path():
    says = ["FileNotFoundError: [Errno 2] No such file or directory: '{path}'"]
    search = explain.Messages([{"id": "path", "wordings": says}])
    text = "FileNotFoundError: [Errno 2] No such file or directory: '../coco/train.txt'"
    assert own(search.find(text)[0]) == {"path": "../coco/train.txt"}


def test_short_wording_matches_only_after_its_type():
    search = explain.Messages([{"id": "key", "wordings": ["KeyError: 'epoch'"]}])
    found = search.find("KeyError: 'epoch'\n  File 'run.py', line 3\n    state['epoch']")
    assert [a.id for a in found if a.whole] == ["key"]
    assert not any(a.whole for a in search.find("state['epoch'] = 3"))


def test_log_of_another_library_is_not_a_sure_answer():
    says = ["ImportError: {lib}: cannot open shared object file: No such file or directory"]
    others = [{"id": f"n{n}", "wordings": [f"word{n}"]} for n in range(999)]
    search = explain.Messages([{"id": "lib", "wordings": says}, *others])
    text = "libcudart.so.11.0: cannot open shared object file: No such file or directory"
    assert search.find(f"ImportError: {text}")[0].sure
    log = f"W tensorflow/stream_executor/platform/dso_loader.cc:60] Could not load: {text}"
    assert not any(a.sure for a in search.find(log))
    assert search.find(f"{log}\n  File 'torch/__init__.py'\nImportError: {text}")[0].sure


def test_markdown_is_excluded_from_values():
    says = ["TypeError: must be Tensor, not {type}"]
    search = explain.Messages([{"id": "tensor", "wordings": says}])
    assert own(search.find("**TypeError: must be Tensor, not tuple**")[0]) == {"type": "tuple"}


@pytest.mark.parametrize("library", ["tensorflow", "jax", "paddle"])
def test_error_in_another_library_is_not_a_sure_answer(library):
    message = "AttributeError: type object 'Tensor' has no attribute '__getitem__'"
    path = f'  File "/lib/site-packages/{library}/ops.py", line 10, in f\n'
    assert best(message).sure
    assert not best(path + message).sure
    assert best(f'  File "/lib/site-packages/torch/a.py", line 1, in g\n{path}{message}').sure


@pytest.mark.parametrize(
    "pasted", ["", "  \n", "Traceback (most recent call last):", "zymurgy", "the quick brown fox"]
)
def test_text_without_a_message_has_no_sure_answer(pasted):
    assert not any(a.sure for a in explain.messages().find(pasted))


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_text_is_explained_within_seconds(pasted):
    begun = time.process_time()  # CPU time of this process: other tests may run in parallel
    explain.explain(pasted)
    assert time.process_time() - begun < 5


def test_large_log_is_explained_within_seconds():
    log = "\n".join(f"{n}: 'tensor' size (3, 4) must match [2]" for n in range(20_000))
    begun = time.perf_counter()
    found = explain.messages().find(f"{log}\n{SHAPES}")
    assert time.perf_counter() - begun < 10 and found[0].entry["id"] == "mat1-mat2-shapes"


LONG = {
    "a word": "a" * 20_000,
    "names": "a." * 10_000,
    "hexadecimal": "f0" * 9_500 + " UNKNOWN error",
    "backslashes": "\\" * 20_000,
    "quotes": "'" * 20_000,
    "packages": "tensorflow." * 1_800,
    "folders": "xla/" * 5_000,
    "processes": "(a pid=1 \n" * 2_000,
    "ranks": "rank0" * 4_000,
    "errors": "RuntimeError: " * 1_500,
    "accents": "e" + "\u0301" * 20_000,
    "ligatures": "\ufdfa" * 20_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_search_time_is_linear_in_word_length(text):
    explain.messages().find(SHAPES)  # fills the caches
    begun = time.process_time()
    explain.messages().find(text)
    assert time.process_time() - begun < 1.5  # seconds: linear work takes 0.1, quadratic work 5-18


# ---------------------------------------------------------------- the text


def test_explanation_contains_cause_values_cure_and_section():
    english, chinese = explain.explain(SHAPES), explain.explain(SHAPES, "zh")
    for text in (english, chinese):
        assert "(3x4 and 10x5)" in text and "torch.flatten(x, 1)" in text
        assert "convolution.html#" in text and "{" not in text.split("\n")[1]
    assert "What to do:" in english and "怎么改：" in chinese
    assert explain.explain("zymurgy").startswith("Nothing in the book matches. Paste the whole")
    for pasted in (ValueError("x"), None, b"x"):
        with pytest.raises(TypeError, match=f"expects a text, got {type(pasted).__name__}"):
            explain.explain(pasted)
    with pytest.raises(ValueError, match="lang must be one of en, zh, got 'de'"):
        explain.explain(SHAPES, "de")


@pytest.mark.parametrize(
    ("path", "yours"),
    [
        ("/home/me/typing.py", True),
        (r"C:\Users\me\typing.py", True),
        ("consider renaming '/home/me/typing.py' since it has the same name as the standard "
         "library module named 'typing' and prevents importing that standard library module", True),
        ("/usr/lib/python3.9/typing.py", False),
        (r"C:\Python39\Lib\typing.py", False),
    ],
)  # fmt: skip
def test_own_file_named_like_a_stdlib_module_gets_its_own_advice(path, yours):
    text = explain.explain(f"ImportError: cannot import name 'Self' from 'typing' ({path})")
    assert ("python -P -m helpers.installation" in str(text)) == yours


PACKAGE_FRAMES = """File "/env/lib/python3.12/site-packages/safe/sample.py", line 17, in <module>
    from transformers.generation import Missing
"""


@pytest.mark.parametrize(
    ("pasted", "package", "importer"),
    [
        ("ImportError: cannot import name 'A' from 'transformers.b' (/x)", "transformers", "safe"),
        ("ModuleNotFoundError: No module named 'mmdet.core2'", "mmdet", "safe"),
        ("TypeError: f() got an unexpected keyword argument 'odd_name'", "safe", None),
        (
            'File "/env/site-packages/torch/nn/modules/module.py", line 1, in _call_impl\n'
            "TypeError: f() got an unexpected keyword argument 'odd_name'",
            "safe",
            None,
        ),
        ("ImportError: /env/site-packages/spconv/c.so: undefined symbol: _Zx", "spconv", "safe"),
    ],
)
@pytest.mark.parametrize("frames", [PACKAGE_FRAMES, ""])
def test_package_is_the_named_or_the_last_one(frames, pasted, package, importer):
    values = explain.messages().find(frames + pasted)[0].values
    if not frames:
        package, importer = package if package != "safe" else None, None
    assert (values.get("package"), values.get("importer")) == (package, importer)


@pytest.mark.parametrize(
    ("pasted", "owner"),
    [
        ("TypeError: BertModel.__init__() got an unexpected keyword argument 'a'", "transformers"),
        ("TypeError: Bert() got an unexpected keyword argument 'a'", None),
        ("TypeError: __init__() got an unexpected keyword argument 'a'", None),
        (
            'File "/a/p.py", line 5, in f\n    v = VoxelGenerator(\n'
            "TypeError: __init__() got an unexpected keyword argument 'a'",
            "spconv",
        ),
        (
            'File "/a/p.py", line 5, in f\n    v = Net(VoxelGenerator(3))\n'
            "TypeError: __init__() got an unexpected keyword argument 'a'",
            None,
        ),
        ("AttributeError: 'UNet2DConditionModel' object has no attribute 'odd'", "diffusers"),
        (
            "t = pl.Trainer(a=3)\nTypeError: __init__() got an unexpected keyword argument 'a'",
            "lightning",
        ),
        (
            "TypeError: LoRA.prepare_model.<locals>.call() got an unexpected keyword argument 'a'",
            "ms-swift",
        ),
    ],
)
def test_owner_is_the_package_of_a_known_name(pasted, owner):
    assert explain.messages().find(pasted)[0].values.get("owner") == owner


@pytest.mark.parametrize(
    ("path", "caller", "inside"),
    [
        ("/env/site-packages/vllm/engine/core.py", "vllm", "vllm"),
        ("/env/site-packages/swift/llm/infer.py", "ms-swift", None),
        ("/home/me/vllm/vllm/engine/core.py", None, "vllm"),
        ("/home/me/src/vllm/core.py", None, "vllm"),
        ("/home/me/vllm/run.py", None, None),
        ("/env/site-packages/torch/nn/modules/module.py", None, None),
        ("<stdin>", None, None),
    ],
)
def test_caller_is_the_package_of_the_last_frame(path, caller, inside):
    frame = 'File "{}", line 5, in f\n    g()\n'
    error = "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'odd_name'"
    above = frame.format("/env/site-packages/hydra/run.py")
    values = explain.messages().find(above + frame.format(path) + error)[0].values
    assert (values.get("caller"), values.get("inside")) == (caller, inside)


@pytest.mark.parametrize(
    ("line", "error", "read"),
    [
        ("tr += model.sim.pos", "AttributeError: 'Net' object has no attribute 'sim'", "model"),
        ("y = self.a.b.sim(x)", "AttributeError: 'Net' object has no attribute 'sim'", "self.a.b"),
        ("y = f(x).sim", "AttributeError: 'Net' object has no attribute 'sim'", "x"),
        ("y = a.simple", "AttributeError: 'Net' object has no attribute 'sim'", "x"),
        ("label = example['mark']", "KeyError: 'mark'", "example"),
        ("counts[item.kind] += 1", "KeyError: 1", "counts"),
        ("c = TABLE[config['kind']]", "KeyError: 'odd one'", "TABLE"),
        ("y = a[i].sim2", "AttributeError: 'Net' object has no attribute 'sim'", "x"),
    ],
)
def test_object_is_read_from_the_last_line(line, error, read):
    text = f'File "train.py", line 3, in run\n    {line}\n{error}'
    assert explain.messages().find(text)[0].values["object"] == read


def test_sentence_and_step_without_a_value_are_not_shown():
    text = explain.explain("IndexError: too many indices for array")
    assert "The array has" not in text and "Print the shape" in text
    named = explain.explain("KeyError: 'odd one'\n")
    assert "list(x)" in named and "{" not in named


def test_partial_match_is_not_presented_as_the_answer():
    near = explain.explain("the shapes of mat1 and something")
    assert near.startswith(("No message of the book matches",))


@pytest.mark.parametrize(
    ("question", "lang", "symptom", "section"),
    [
        ("loss does not go down", "en", "loss-does-not-go-down", "training_loop.html#my-loss"),
        ("freeze layers", "en", "frozen-layers-change", "fine_tuning.html#freeze-layers"),
        ("显存不足怎么办", "zh", "", "memory_caching.html#cuda-out-of-memory"),
        ("损失不下降", "en", "loss-does-not-go-down", "training_loop.html#my-loss"),
        ("test accuracy is higher than training accuracy", "en", "validation-loss-below", ""),
        ("测试集准确率比训练集高", "zh", "validation-loss-below", ""),
        ("fastgcn", "en", "", "graphs.html#large-graphs"),
        ("FastGCN 怎么采样", "zh", "", "graphs.html#large-graphs"),
        ("为什么要把padding_side设为left", "zh", "", "language_models.html#prompts-of"),
        ("mark_unbacked", "en", "", "performance.html#when-does-torch-compile-recompile"),
    ],
)
def test_question_returns_symptoms_and_sections(question, lang, symptom, section):
    text = explain.explain(question, lang)
    assert text.startswith(WORDS[lang]["places"])
    assert not symptom or f"symptoms.html#{symptom}" in text
    assert section in text


def test_few_words_of_a_message_may_be_a_question():
    text = explain.explain("early stopping")
    message, _, places = text.partition(WORDS["en"]["also"])
    assert "EarlyStopping" in message
    assert "training_loop.html#stop-early-and-keep-the-best-weights" in places


@pytest.mark.parametrize(
    ("question", "lang", "first"),
    [
        ("undo scaling", "en", "time_series.html#undo-the-scaling-of-one-feature"),
        ("反归一化", "zh", "time_series.html#undo-the-scaling-of-one-feature"),
        ("滑动窗口", "zh", "time_series.html#windows-of-several-features-without-a-copy"),
        ("loss is nan", "en", "symptoms.html#loss-nan"),  # a better matching symptom is first
        ("batched submatrix indexing", "en", "tensor_recipes.html#submatrix-indexing"),
    ],
)
def test_best_answer_to_a_question_is_first(question, lang, first):
    assert f"({first}" in explain.answers(question, lang)[0]


def test_rare_names_in_the_prose_lead_to_their_sections():
    data = DATA["places"]
    named = [place for place in data if place.get("names")]
    lost = [
        (name, place["href"])
        for place in named[::5]
        for name in place["names"].split()
        if place["href"] not in [found.href for found in questions().find(name)]
    ]
    assert len(named) > 400 and not lost


def test_unknown_text_offers_a_report_without_folders(monkeypatch):
    pasted = r'zymurgy File "/home/me/secret/a.py", line 3 C:\Users\me\b.py'
    assert "issues/new" not in explain.explain("zymurgy")
    origin = '{"url": "https://github.com/someone/notes.git"}'
    found = SimpleNamespace(read_text=lambda name: origin)
    monkeypatch.setattr("helpers.explain.report.distribution", lambda name: found)
    (link,) = report(pasted)
    assert "https://github.com/someone/notes/issues/new?title=" in link
    assert "a.py" in link and "b.py" in link
    assert not [
        name for name in ("home", "me%", "secret", "Users") if name in link.split("body")[1]
    ]
    assert "issues/new" in explain.explain("zymurgy")
    assert "issues/new" not in explain.explain("freeze layers")


@pytest.mark.parametrize(
    ("pasted", "known", "message"),
    [
        (
            'File "/opt/site-packages/zymurgy/core.py", line 3, in f\nZymurgyError: no yeast',
            {"type": "ZymurgyError", "library": "zymurgy"},
            "was raised in zymurgy: search its issues",
        ),
        (
            'File "/home/me/train.py", line 7, in f\nAssertionError: no yeast',
            {"type": "AssertionError", "file": "train.py", "line": "7"},
            "in your own code, train.py, line 7.",
        ),
        ("KeyError: 'yeast of beer'", {"type": "KeyError"}, "Print its keys"),
        ("torch.zymurgy.YeastWarning: warm", {"type": "YeastWarning"}, "python -W error"),
        (
            "YeastError: zymurgy needs hops >= 2.0, found 1.5",
            {"type": "YeastError", "kind": "version", "words": "needs hops >="},
            "`needs hops >=`: the versions of two installed packages do not match",
        ),
        (
            "ValueError: hops must be float16 or wort has another shape",
            {"type": "ValueError", "kind": "dtype", "words": "be float16"},
            "`be float16`: a tensor or array has another dtype",
        ),
        (
            'YeastError: too warm\n {"wort": {"device": "tub"}}',
            {"type": "YeastError"},
            "No message of the book matches this YeastError.",
        ),
        (
            "TypeError: yeast must be fresh\nThe vat supports `device`. I run it on CPU.",
            {"type": "TypeError"},
            "A function received an argument of another type",
        ),
        (
            "```\nTypeError: yeast must be\nfresh\n```\nI had to pip install it; out of memory?",
            {"type": "TypeError"},
            "A function received an argument of another type",
        ),
        (
            "ValueError: yeast is\nout of memory\n \nShould it be on the same device?",
            {"type": "ValueError", "kind": "memory", "words": "out of memory"},
            "more memory was requested",
        ),
        (
            "ValueError: hops and wort must be on the same device",
            {"type": "ValueError", "kind": "device", "words": "same device"},
            "a tensor is on another device",
        ),
        ("brewd: int _brew(long long int, long long int): Assertion failed", None, ""),
        ("Yeast @ step 1: expected wort 11, got 19 [00:20<5:02:45, 20.21s/it]", None, ""),
        (
            "ValueError: wort of shape (3,) and dtype=float32 is sour",
            {"type": "ValueError", "kind": "shape", "words": "shape"},
            "Print `x.shape` of every argument",
        ),
        (
            "brewd: yeast worker exited with exit code -9",
            {"type": "", "kind": "process", "words": "worker exited"},
            "No message of the book matches this line. `worker exited`: a process ended",
        ),
        (
            'File "/opt/site-packages/zymurgy/core.py", line 3, in f\nbrewd: ended by SIGKILL',
            {"type": "", "library": "zymurgy", "kind": "process", "words": "SIGKILL"},
            "No message of the book matches this line. `SIGKILL`: a process ended",
        ),
        ("yeast worker exited early", None, ""),
        ("Yeast: is the batch size that of all beers?", None, ""),
        ("Beer with 3 channels: which yeast do I use", None, ""),
        ("啤酒的 shape 是 channels: 3，怎么改", None, ""),
        (
            "brewd: error: file has shape (3,); did you mean 4?",
            {"type": "", "kind": "shape", "words": "shape"},
            "`shape`: ",
        ),
        (
            "[W] brewing: file not found\n[E] wort of shape 3 is sour",
            {"type": "", "kind": "shape", "words": "shape"},
            "`shape`: a size",
        ),
        (
            "ValueError: yeast at 2 lost its hops (cpu tensor?)，请问是什么原因？",
            {"type": "ValueError", "kind": "device", "words": "cpu tensor"},
            "`cpu tensor`: a tensor is on another device",
        ),
        ("freeze layers", None, ""),
        ("ValueError: 酵母", None, ""),
    ],
)
def test_unknown_error_explains_its_type_and_place(pasted, known, message):
    assert unknown(pasted) == known
    if known and not any(a.sure for a in explain.messages().find(pasted)):
        text = explain.explain(pasted)
        assert message in " ".join(text.split()) and "html#" not in text.split("Perhaps")[0]
        assert explain.explain(pasted, "zh").startswith("书中没有")


# ---------------------------------------------------------------- on the command line


def run(*arguments, pasted="", **environment):
    return subprocess.run(
        [sys.executable, "-m", "helpers.explain", *arguments],
        input=pasted.encode(),
        capture_output=True,
        env=os.environ | {"LC_ALL": "C.UTF-8"} | environment,
    )


def test_command_reads_a_pipe_or_a_file_and_follows_the_locale(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text(f"Traceback (most recent call last):\n…\n{SHAPES}\n", "utf8")
    piped, filed = run(pasted=SHAPES), run(str(log))
    assert piped.returncode == filed.returncode == 0
    assert piped.stdout == filed.stdout and b"What to do:" in piped.stdout
    for done in (run(str(log), LC_ALL="zh_CN.UTF-8"), run(str(log), "--lang", "zh")):
        assert "怎么改：" in done.stdout.decode()


def test_question_with_a_colon_returns_sections():
    text = explain.explain("PyG: is the batch size the number of nodes of all graphs?")
    assert text.startswith(WORDS["en"]["places"]) and "graphs.html#" in text


@pytest.mark.parametrize("question", ["loss does not go down", "损失不下降"])
def test_argument_that_is_not_a_file_is_a_question(question, tmp_path):
    done = run(question, "--lang", "en")
    assert done.returncode == 1 and b"symptoms.html#loss-does-not-go-down" in done.stdout
    assert run("my log.txt").returncode == run(str(tmp_path / "a b")).returncode == 2


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ("", 2),
        (".", 2),
        ("a folder", 2),
        ("a folder/no such file", 2),
        ("./loss is nan", 2),
        ("~/loss is nan", 2),
        ("C:\\runs\\my log", 2),
        ("the loss is nan/inf", 1),
        ("DataLoader", 1),
        ("torch.compile", 1),
        ("retain_graph", 1),
        ("zymurgy", 2),
        ("train.log", 2),
        ("runs/DataLoader", 2),
        ("损失是 nan/inf", 1),
        ('  File "/a/b.py", line 3, in f\nRuntimeError: CUDA out of memory.', 0),
    ],
)
def test_command_distinguishes_questions_from_paths(argument, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a folder").mkdir()
    done = run(argument)
    assert done.returncode == code and b"Traceback (most" not in done.stderr


def test_unknown_text_exits_with_1_and_unreadable_input_with_2(tmp_path):
    assert run(pasted="zymurgy").returncode == 1
    for done, message in (
        (run(str(tmp_path / "none.txt")), b"No such file or directory"),
        (run(pasted=" \n"), b"expected a message or a traceback, got nothing"),
        (run("--clipboard", PATH=str(tmp_path)), b"none of these programs is installed: pbpaste"),
        (run("--lang", "de"), b"invalid choice: 'de'"),
    ):
        assert done.returncode == 2 and message in done.stderr and b"Traceback" not in done.stderr
    assert run(pasted="\udcff".encode("utf8", "surrogatepass") + b"" and "x").returncode == 1


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_decoded_supports_every_unicode_encoding(tmp_path, encoding, mark):
    text = f"{mark}训练 Traceback (most recent call last):\r\n  …\r\n{SHAPES}\r\n"
    assert decoded(text.encode(encoding)) == text.removeprefix("\ufeff")
    log = tmp_path / "log.txt"
    log.write_bytes(text.encode(encoding))
    assert run(str(log)).returncode == 0


@given(st.binary(max_size=40))
def test_decoded_accepts_any_bytes(data):
    assert isinstance(decoded(data), str)


def shell_line(command):
    """Run a shell command and return its stdout, stderr and exit status."""
    done = subprocess.run(
        ["bash", "-c", command.replace("EXPLAIN", f"{sys.executable} -m helpers.explain")],
        capture_output=True,
        text=True,
    )
    return done.stdout, done.stderr, done.returncode


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("EXPLAIN <&-", "cannot read the input: it is closed"),
        ("echo 'KeyError: 1' | EXPLAIN >&-", "cannot write the explanation: the output is closed"),
        ("echo 'KeyError: 1' | EXPLAIN >/dev/full", "cannot write the explanation: No space left"),
    ],
)
def test_closed_or_full_streams_are_reported_in_one_line(command, message):
    output, error, status = shell_line(command)
    assert (output, status) == ("", 2) and message in error and error.count("\n") == 1


def test_interrupt_exits_with_one_line():
    code = (
        "import os, signal, sys, helpers.explain.__main__ as e\n"
        "read = lambda *a: os.kill(os.getpid(), signal.SIGINT)\n"
        "e._pasted = read\nsys.exit(e.main([]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "helpers.explain: interrupted\n")


def test_clipboard_option_reads_the_clipboard(tmp_path):
    program = tmp_path / "pbpaste"
    program.write_text(f"#!/bin/sh\necho '{SHAPES}'\n")
    program.chmod(0o755)
    done = run("--clipboard", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 0 and b"(3x4 and 10x5)" in done.stdout


def test_import_loads_neither_torch_nor_numpy():
    code = "import helpers.explain as e, sys; e.explain('x'); print([*sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "'helpers.explain'" in loaded and "'torch'" not in loaded and "'numpy'" not in loaded


# ---------------------------------------------------------------- in a notebook


@pytest.fixture(scope="module")
def shell():
    return start_ipython()


@pytest.fixture
def ask(shell, capsys, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    shell.run_line_magic("load_ext", "helpers.explain")

    def asked(code):
        capsys.readouterr()
        result = shell.run_cell(code)
        return result, capsys.readouterr().out

    yield asked
    shell.run_line_magic("unload_ext", "helpers.explain")


def test_extension_prints_cause_and_operands_below_an_exception(ask):
    ask("import torch\nfrom torch import nn\nnet, x = nn.Linear(10, 5), torch.ones(3, 4)")
    result, out = ask("def step(batch):\n    return net(batch)\n\nstep(x)")
    assert isinstance(result.error_in_exec, RuntimeError)
    assert "What to do:" in out
    message = out[out.rindex("In `return net(batch)`") :]
    assert "net: Linear, float32 cpu" in message and "batch: (3, 4) float32 cpu" in message


@pytest.mark.parametrize(
    "code", ["1 + 1", "raise KeyboardInterrupt", "raise Exception('zymurgy')", "def ("]
)
def test_extension_prints_nothing_for_other_cells(ask, code):
    assert "What to do:" not in ask(code)[1]


def test_magic_answers_a_question(ask):
    assert "symptoms.html#loss-does-not-go-down" in ask("%explain loss does not go down")[1]
    assert "What to do:" in ask(f"%%explain\n{SHAPES}")[1]


def test_extension_keeps_the_original_error(ask, monkeypatch):
    monkeypatch.setattr("helpers.explain.notebook.messages", lambda: 1 / 0)
    result, out = ask("[][3]")
    assert isinstance(result.error_in_exec, IndexError) and "ZeroDivisionError" not in out
    monkeypatch.undo()
    result, _ = ask("class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd")
    assert type(result.error_in_exec).__name__ == "Odd"


def test_unloaded_extension_prints_nothing(ask, shell):
    shell.run_line_magic("unload_ext", "helpers.explain")
    try:
        assert "What to do" not in ask("[][3]")[1]
        assert "explain" not in shell.magics_manager.magics["line"]
    finally:
        shell.run_line_magic("load_ext", "helpers.explain")


def test_operands_describes_the_tensors_of_the_user_line():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(10, 5).half()
            self.register_buffer("scale", torch.ones(2, dtype=torch.int64))

        def forward(self, x):
            return self.fc(x) * self.scale

    with pytest.raises(RuntimeError) as raised:
        Net()(torch.ones(2, 10))
    message = operands(raised.value)
    assert message.splitlines() == [
        "In `return self.fc(x) * self.scale`:",
        "    self.fc: Linear, float16 cpu",
        "    x: (2, 10) float32 cpu",
        "    self.scale: (2,) int64 cpu",
    ]
    with pytest.raises(ZeroDivisionError) as raised:
        print(1 / 0)
    assert operands(raised.value) == ""
    assert operands(ValueError("never raised")) == ""


def test_own_frame_of_an_import_error_is_the_user_line():
    tensor = torch.ones(2)
    with pytest.raises(ImportError) as raised:
        assert len(tensor) == 2 and __import__("importlib").import_module("torch_that_is_not")
    frame, line = _own_frame(raised.value)
    assert frame.f_code.co_filename == __file__ and frame.f_locals["tensor"] is tensor
    assert "tensor: (2,) float32 cpu" in operands(raised.value) and line > 1


@pytest.mark.parametrize(
    ("file", "installed"),
    [
        ("<frozen importlib._bootstrap>", True),
        (r"C:\Python311\Lib\json\decoder.py", True),
        (r"c:\python311\lib\json\decoder.py", True),
        (r"C:\Work\.venv\Lib\site-packages\torch\nn\modules\module.py", True),
        (r"C:\Work\lib\train.py", False),
        ("/usr/lib/python3/dist-packages/torch/nn/functional.py", True),
        ("/home/me/lib/python/train.py", False),
        ("/tmp/ipykernel_7/123.py", False),
    ],
)
def test_installed_detects_files_of_python_and_packages(file, installed):
    assert _installed(file, (*_LIBRARY, "c:/python311/lib/")) == installed


def test_operands_evaluates_no_property():
    class Trap:
        @property
        def value(self):
            raise SystemExit

    trap = Trap()
    with pytest.raises(TypeError) as raised:
        assert (trap is None or len(3)) and trap.value
    assert operands(raised.value) == ""


def test_traceback_begins_with_the_line_of_the_user_code():
    def user():
        try:
            {}["a"]
        except KeyError as error:
            raise ValueError("b") from error

    try:
        user()
    except ValueError as error:
        inner, outer = traceback_of(error).split("direct cause")
        assert "KeyError: 'a'" in inner and outer.endswith("ValueError: b\n")
        assert "in user" in outer and outer.index("test_explain.py") < outer.index("in user")
    try:
        json.loads("{")
    except ValueError as error:
        error = error.with_traceback(error.__traceback__.tb_next)  # as IPython adds its frames
        assert traceback_of(error).startswith("Traceback") and "decoder.py" in traceback_of(error)


def test_explanation_says_that_a_message_has_several_causes():
    case = {"id": "c", "near": "cat", "cause": {"en": "A cat.", "zh": "猫。"}}
    cause = {"en": "A dog, or a cow.", "zh": "狗或牛。"}
    entry = {"id": "e", "wordings": ["animals {a} collide"], "several": True, "cause": cause}
    search = explain.Messages([entry | {"cases": [case]}])

    def label(text, **options):
        (found,) = search.find(text)
        return found.several, paragraph(found, "en", **options).splitlines()[1]

    text = "RuntimeError: animals 3 collide"
    assert label(text) == (True, WORDS["en"]["several"])
    assert label(text, traceback=False) == (True, WORDS["en"]["alone"])
    assert label(f"with a cat\n{text}", traceback=False) == (False, "A cat.")
    search = explain.Messages([entry])
    assert label(text, traceback=False) == (True, WORDS["en"]["several"])


# ---------------------------------------------------------------- ten complete tracebacks


@pytest.mark.parametrize("path", sorted((ROOT / "tests/messages/tracebacks").glob("*.txt")))
def test_public_tracebacks_are_explained(path):
    expected = json.loads((path.parent / "expected.json").read_text("utf8"))[path.name]
    found = [a for a in explain.messages().find(path.read_text("utf8")) if a.sure]
    assert found and {found[0].id, found[0].entry["id"]} & set(expected)


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        ("torch", "atrutograd", "autograd"),
        ("torch", "vamp", "vmap"),
        ("torch.nn", "CrossEntrophyLoss", "CrossEntropyLoss"),
        ("torch", "compile", ""),  # it exists: the installed version is older
        ("torch.nn", "Conv4d", ""),  # another digit is no slip
        ("torch.nn", "LayerNorm2d", ""),  # nor are more letters at the end
        ("torch.optim", "Adm", ""),  # too short
        ("numpy", "atrutograd", ""),
    ],
)
def test_similar_returns_the_name_of_a_typing_slip(module, name, expected):
    assert similar(module, name) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64 3 7 7", "[64, 3, 7, 7]"),
        ("128 1 5 15 188978561140", "[128, 1, 5, 15]"),
        ("[-1 x 400]", "[-1, 400]"),
        ("[1,3]", "[1, 3]"),
        ("'a', 'b', and 'c'", "a, b, and c"),
        ("1,024", "1,024"),
    ],
)
def test_value_of_has_one_form_for_shapes_and_names(text, expected):
    assert value_of(text) == expected
