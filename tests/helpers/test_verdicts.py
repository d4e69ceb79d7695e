"""Test that every checker's sentence has a Chinese entry, and that no entry is unused."""

import json
import re
import subprocess
import sys
from collections import Counter
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentences import HOLE, SOURCES, UNSEEN, english_in, sentences, shape, shapes, texts

from bookbuild.source import typography
from helpers import verdicts
from helpers.exercises import Verdict, verdict
from helpers.verdicts import SENTENCES, chinese

MODULES = json.loads(SENTENCES.read_text("utf8"))
ENTRIES = {english: zh for module in MODULES.values() for english, zh in module.items()}
PLURAL = re.compile(r"'\w+' \*")  # the ending of an English word


# ---------------------------------------------------------------- the entries


@pytest.mark.parametrize("module", SOURCES)
def test_every_checker_sentence_has_a_chinese_translation(module):
    translated = set(map(shape, ENTRIES))
    missing = [t for t in sorted(sentences(SOURCES[module])) if shape(t) not in translated]
    assert not missing, f"untranslated: {missing}, add it to {SENTENCES.name} under {module!r}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_entry_is_used_in_its_module(module):
    own = shapes(module) if module in SOURCES else set().union(*map(shapes, SOURCES))
    dead = [english for english in MODULES[module] if shape(english) not in own]
    assert module in {*SOURCES, "parts"}
    assert not dead, f"no checker contains: {dead}, remove it from {module!r} of {SENTENCES.name}"


def test_every_sentence_has_one_entry():
    entries = Counter(shape(english) for module in MODULES.values() for english in module)
    assert [english for english, count in entries.items() if count > 1] == []


def test_unseen_sentences_are_still_used_in_a_checker():
    assert set().union(*map(texts, SOURCES.values())) >= UNSEEN


def test_both_languages_contain_the_same_placeholders():
    for english, zh in ENTRIES.items():
        values = {hole for hole in HOLE.findall(english) if not PLURAL.match(hole)}
        assert set(HOLE.findall(zh)) == values, english


def test_chinese_sentences_pass_the_typography_lint():
    han = f"[{typography.HAN}]"
    beside = re.compile(rf"(?<={han})\{{[^}}]*\}}|\{{[^}}]*\}}(?={han})")
    for zh in ENTRIES.values():
        plain = beside.sub("某", zh.replace("}{", ""))  # the value may be Chinese
        assert typography.lint(HOLE.sub("x", plain)) == [], zh


def test_every_filled_sentence_is_translated():
    for english, zh in ENTRIES.items():
        values = {hole: str(number) for number, hole in enumerate(HOLE.findall(english))}
        if "}{" not in english:  # otherwise the end of the first value is ambiguous
            shown = HOLE.sub(lambda hole, values=values: values[hole[1]], english)
            assert verdicts._translated(shown, 2) == verdicts._filled(zh, values), english


# ---------------------------------------------------------------- a verdict


@pytest.mark.parametrize(
    ("shown", "zh"),
    [
        ("✓ correct: 1 check passed", "✓ 正确：1 项检查全部通过"),
        ("✓ correct: 12 checks passed", "✓ 正确：12 项检查全部通过"),
        ("✗ not yet: expected a tensor, got list", "✗ 还不对：应为张量，得到 list"),
        ("✗ not yet: row 0: expected a tensor, got list", "✗ 还不对：row 0：应为张量，得到 list"),
        (
            "✗ not yet: with float64 inputs: expected shape (1,), got (2,)",
            "✗ 还不对：输入为 float64 时：形状应为 (1,)，得到 (2,)",
        ),
        (
            "✗ not yet: 0.weight of the model[1] was changed: work on a copy",
            "✗ 还不对：模型[1] 的 0.weight 变了：请在副本上操作",
        ),
        (
            "✗ not yet: your code raised TypeError: the image was changed: work on a copy",
            "✗ 还不对：你的代码抛出 TypeError：the image was changed: work on a copy",
        ),
        ("✗ not yet: your code raised E: ", "✗ 还不对：你的代码抛出 E："),
        ("✗ not yet: a sentence of the reader", "✗ 还不对：a sentence of the reader"),
        ("✗ line 5: the image was changed", "✗ line 5: the image was changed"),
        ("✓ the step would run", "✓ the step would run"),
        ("the image was changed: work on a copy", "the image was changed: work on a copy"),
    ],
)
def test_chinese_translates_verdicts_and_no_other_text(shown, zh):
    assert chinese(shown) == zh


def test_verdict_repr_is_english():
    assert repr(Verdict(True, "correct: 1 check passed")) == "✓ correct: 1 check passed"
    failed = verdict(lambda: None, [lambda answer: answer(1)])
    assert repr(failed).startswith("✗ not yet: your code raised TypeError: ")
    assert chinese(repr(failed)).startswith("✗ 还不对：你的代码抛出 TypeError：")


def test_chinese_does_not_import_torch():
    code = "import sys; from helpers.verdicts import chinese; "
    code += "chinese('✗ not yet: x'); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


PIECES = sorted({part for english in ENTRIES for part in HOLE.split(english)[::2]})
SHOWN = st.lists(st.sampled_from(PIECES) | st.text(max_size=5)).map("".join)


@given(st.text() | SHOWN)
def test_chinese_accepts_any_text(text):
    if not text.startswith(verdicts.MARKS):
        assert chinese(text) == text
    assert chinese(f"✗ not yet: {text}").startswith("✗ 还不对：")


@given(SHOWN, st.integers(1, 50))
def test_chinese_runs_in_linear_time(text, times):
    """Each entry scans the text a bounded number of times per level."""
    length = 0
    values = verdicts._Entry.values

    def counting(entry, piece):
        nonlocal length
        length += len(piece) + 1
        return values(entry, piece)

    text = f"✗ not yet: {text * times}"
    with mock.patch.object(verdicts._Entry, "values", counting):
        chinese(text)
    most = 12  # placeholders of an entry, each possibly empty
    assert length <= len(ENTRIES) * verdicts._DEPTH * (len(text) + 1) * most


# ---------------------------------------------------------------- translation of recorded messages


@pytest.mark.parametrize(
    ("message", "english"),
    [
        ("the labels are not smoothed", []),
        ("the labels are too smooth", ["the labels are too smooth"]),
        ("x[0] was changed: work on a copy", []),
        ("x[0] was changed: work in a copy", [": work in a copy"]),
        ("the order is not shuffled", ["the order is not shuffled"]),  # of another chapter
        ("your code raised ValueError: no such thing", []),
    ],
)
def test_english_in_returns_untranslated_parts(message, english):
    assert english_in(f"not yet: {message}", "losses") == english
