"""Test the page of the review: its rules, its code, and its report on a script."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from html import unescape
from pathlib import Path

import pytest
import yaml

from bookbuild import pages
from bookbuild.pages import review_list
from bookbuild.source import reviews
from bookbuild.source.checkout import LANGUAGES, Book, BookError
from bookbuild.source.words import table, words
from helpers.review.__main__ import main
from helpers.review.registry import RULES
from helpers.review.report import WORDS
from helpers.review.review import review

ROOT = Path(__file__).resolve().parents[2]
BOOK = Book(ROOT)
# Imports that the page omits above code without other imports.
IMPORTS = ["import torch", "from torch import nn", "import torch.nn.functional as F"]


@pytest.fixture(scope="module", params=LANGUAGES)
def page(request):
    return request.param, review_list.render(BOOK, request.param)


def plain(html: str) -> str:
    """Return the text of HTML."""
    return unescape(re.sub(r"<[^>]+>", "", html))


def code(html: str) -> list[str]:
    """Return the texts of an entry's code blocks."""
    return [plain(block) for block in re.findall(r"<pre>(.*?)</pre>", html, re.S)]


def entries(page: str) -> dict[str, str]:
    """Return the HTML of each rule by its id."""
    found = re.findall(r'<li id="([^"]+)">(.*?)</li>', page, re.S)
    assert max(Counter(name for name, _ in found).values()) == 1
    return dict(found)


def test_every_rule_has_one_complete_entry(page):
    lang, text = page
    rules = {rule.id: rule for rule in reviews.load(BOOK)}
    found = entries(text)
    assert found.keys() == RULES.keys() == rules.keys()
    for name, html in found.items():
        rule = rules[name]
        effect = plain(html.partition("<small>")[0]).strip()
        assert effect == rule.effect[lang].replace("`", "")
        assert f"<code>{name}</code> · {WORDS[lang][RULES[name].severity]}</small>" in html
        assert code(html)[1] == rule.fix
        assert f'<a href="{rule.href}">' in html
        assert "\n\n" not in html  # an empty line would end the HTML


def test_marked_lines_of_an_entry_are_the_findings(page):
    for name, html in entries(page[1]).items():
        wrong, _ = re.findall(r"<pre>(.*?)</pre>", html, re.S)
        marked = [n for n, line in enumerate(wrong.split("\n"), 1) if "<mark>" in line]
        found = [
            [
                (one.rule, one.line - len(above))
                for one in review("\n".join([*above, code(html)[0]]))
            ]
            for above in ([], IMPORTS)
        ]
        assert [(name, line) for line in marked] in found


def test_each_family_has_a_heading_in_both_languages(page):
    lang, text = page
    families = {rule.family for rule in reviews.load(BOOK)}
    assert families == words(lang, "review_families").keys() - table()["punctuation"].keys()
    for family in families:
        assert f"### {words(lang, 'review_families')[family]}\n" in text


def test_shown_report_matches_the_command(page, tmp_path):
    lang, text = page
    (html,) = re.findall(r'<pre class="review-report">(.*?)</pre>', text, re.S)
    shutil.copy(ROOT / review_list.WRONG, tmp_path / "train.py")
    command = [sys.executable, "-m", "helpers.review", "train.py", "--lang", lang]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, encoding="utf8")
    assert done.returncode == 1 and not done.stderr
    assert plain(html) == done.stdout
    assert html.count('<a href="') == 7  # one link per finding
    assert (ROOT / review_list.WRONG).read_text("utf8").rstrip() in text


def accuracy(name: str) -> float:
    """Return the test accuracy that a script prints; warnings and errors fail."""
    command = [sys.executable, "-W", "error", ROOT / name]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return int(re.fullmatch(r"test accuracy (\d+)%\n", done.stdout)[1]) / 100


def test_wrong_script_has_seven_findings_and_its_fix_trains():
    wrong, right = (
        (ROOT / name).read_text("utf8") for name in (review_list.WRONG, review_list.RIGHT)
    )
    assert len({one.rule for one in review(wrong)}) == len(review(wrong)) == 7
    assert review(right) == []
    assert accuracy(review_list.WRONG) < 0.6
    assert accuracy(review_list.RIGHT) > 0.9


def test_diff_turns_the_wrong_script_into_the_right_one(page, tmp_path):
    (diff,) = re.findall(r"```diff\n(.*?)\n```", page[1], re.S)
    shutil.copy(ROOT / review_list.WRONG, tmp_path / "train.py")
    (tmp_path / "diff").write_text(f"--- train.py\n+++ train.py\n{diff}\n", "utf8")
    subprocess.run(["git", "apply", "-p0", "diff"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "train.py").read_text("utf8") == (ROOT / review_list.RIGHT).read_text("utf8")


def test_statements_about_the_command_hold(page, tmp_path, capsys):
    _, text = page
    assert f" {len(RULES)} " in text and "SGD(model.parameters(), lr=1000)" in text
    unseen = "import torch\noptimizer = torch.optim.SGD(model.parameters(), lr=1000)\n"
    assert review(unseen) == []
    clean, unread = tmp_path / "clean.py", tmp_path / "unread.py"
    clean.write_text(unseen)
    unread.write_text("x = (")
    assert main([str(clean)]) == 0 and main([str(unread)]) == 2
    leak = (ROOT / review_list.WRONG).read_text("utf8")
    (kept,) = re.findall(r"^losses\.append\(loss\)  # noqa: .*$", text, re.M)
    assert len(review(leak.replace("losses.append(loss)", kept))) == 6
    capsys.readouterr()


def test_shown_hook_matches_the_repository(page):
    (snippet,) = re.findall(r"```yaml\n(.*?)```", page[1], re.S)
    (hook,) = yaml.safe_load(snippet)["repos"][0]["hooks"]
    (own,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf8"))
    assert hook == {name: value for name, value in own.items() if name in hook}
    assert {"id", "entry", "language"} <= hook.keys()


def test_rule_without_a_case_raises(monkeypatch):
    cases = reviews.cases(BOOK)
    del cases["backward-adds"]
    monkeypatch.setattr(reviews, "cases", lambda book: cases)
    with pytest.raises(BookError, match=r"review.yml:\d+: backward-adds: expected a rule"):
        review_list.render(BOOK, "en")


def test_review_page_requires_an_entry_in_the_toc(book, quick):
    pages.write(book)
    assert not (book.root / "book/en/review.md").exists()


@pytest.mark.parametrize(
    ("code", "case"),
    [
        ("import torch\nx = 1\ny = 2  # <-\n", ("x = 1\ny = 2", (2,))),
        ("from torch import nn\nx  # <-\n\ny  # <-\n", ("x\n\ny", (1, 3))),
        ("import torch\nimport copy\nx  # <-\n", ("import torch\nimport copy\nx", (3,))),
    ],
)
def test_cases_drop_usual_imports_and_marks(book, code, case):
    path = book.root / reviews.CASES
    path.parent.mkdir(parents=True)
    path.write_text(f"=== one-two\n{code}--- right\nx = 2\n", "utf8")
    (found,) = reviews.cases(book).items()
    assert found == ("one-two", reviews.Case(*case))
