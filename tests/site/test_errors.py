"""Test the pages of errors: pasted messages, and addresses of messages."""

from __future__ import annotations

import csv
import json
import re
from urllib.parse import parse_qs, quote

import pytest
from book_pages import LANGUAGES, ROOT

from helpers import explain
from helpers.explain.report import WORDS

ENTRIES = json.loads((ROOT / "src/helpers/explain/messages.json").read_text("utf8"))["messages"]
SHAPES = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 10x5)"
EMPTY = "The size of tensor a (0) must match the size of tensor b (4) at non-singleton dimension 1"
GROUND = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
# Return for each text the ids of the results and the text of `#error-count`.
PASTE = """async texts => {
  const field = document.getElementById("error-search");
  const found = [];
  for (const text of texts) {
    field.value = text;
    field.dispatchEvent(new Event("input"));
    if (text.length > 2000) await new Promise(done => setTimeout(done, 1));
    found.push([[...document.querySelectorAll("#error-found > li[data-id]")].map(e => e.dataset.id),
                document.getElementById("error-count").textContent]);
  }
  return found;
}"""


def filled(entry):
    """Return an entry's wording with 7 for each variable."""
    return re.sub(r"\{\w+\}", "7", entry["wordings"][0])


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_entry_is_listed_and_found_by_its_message(page, url, lang):
    page.goto(f"{url}/{lang}/errors.html")
    ids = page.locator(".error-lines > li").evaluate_all("all => all.map(e => e.id)")
    assert sorted(ids) == sorted(entry["id"] for entry in ENTRIES)
    entries = ENTRIES[::16]  # tests/bookbuild/test_messages.py runs the same script on all
    pasted = [f'Traceback (most recent call last):\n  File "a"\n{filled(e)}' for e in entries]
    lost = []
    for entry, (found, message) in zip(entries, page.evaluate(PASTE, pasted), strict=True):
        own = {entry["id"], *(case["id"] for case in entry.get("cases", ()))}
        if not own & set(found) or not message:
            lost.append(entry["id"])
    assert not lost


def test_page_search_matches_helpers_explain(page, url):
    with (ROOT / "tests/messages/pasted.tsv").open(encoding="utf8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        pasted = [row["message"].replace("\\n", "\n") for row in rows][::16]
    search = explain.Messages(ENTRIES)
    page.goto(f"{url}/en/errors.html")
    answers = zip(pasted, page.evaluate(PASTE, pasted), strict=True)

    def expected(text):
        found = search.find(text)
        return [a.id for a in found if a.sure] or [a.id for a in found[:3]]

    assert not [text for text, (ids, _) in answers if ids != expected(text)]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_answer_fills_in_values_and_clearing_restores_the_list(page, url, lang):
    page.goto(f"{url}/{lang}/errors.html")
    field, found = page.locator("#error-search"), page.locator("#error-found > li").first
    field.fill(SHAPES)
    found.locator(".cure").first.wait_for()
    assert "10" in found.locator(".cause").first.inner_text()
    assert not found.locator(".cause var").count()
    assert not page.locator("#error-list").is_visible()
    assert found.locator("p > a[href*='convolution.html#']").count()
    assert found.locator(".message").count() == 1
    whole = found.locator(".message a").get_attribute("href")
    assert whole == "errors_tensors.html#mat1-mat2-shapes"
    field.fill("zymurgy")
    message = page.locator("#error-count")
    page.wait_for_function(
        "() => { const status = document.getElementById('error-count');"
        " return status.textContent === status.dataset.none; }"
    )
    assert message.inner_text().strip() and page.locator("#error-list").is_visible()
    assert not page.locator("#error-found > li").count()
    field.fill("")
    assert page.locator("#error-list").is_visible()
    assert page.locator("#error-count").inner_text() == ""


@pytest.mark.parametrize("lang", LANGUAGES)
def test_unknown_message_offers_a_report_without_paths(page, url, lang):
    page.goto(f"{url}/{lang}/errors.html")
    issues = "https://github.com/someone/notes/issues/new"
    page.evaluate(
        "address => Object.assign(document.getElementById('error-count').dataset,"
        " {issues: address, report: 'Report it'})",
        issues,
    )
    page.fill("#error-search", "/xqzv/jjq/zymurgy.qzx")
    link = page.locator("#error-found > li.note a")
    link.wait_for()
    address, _, query = link.get_attribute("href").partition("?")
    (body,) = parse_qs(query)["body"]
    assert address == issues and body == "```text\nzymurgy.qzx\n```"
    page.fill("#error-search", "nan")
    page.locator("#error-found > li.section").first.wait_for()
    assert not link.count()


QUESTIONS = {
    "en": [
        "PyG: is the batch size that of all graphs?",
        "loss does not go down",
        "how do I freeze layers",
        "cuda oom",
        "nan",
    ],
    "zh": [
        "图像的 channels: 3，怎么选损失？",
        "显存不足怎么办",
        "为什么 loss 一直不下降",
        "怎么冻结某些层",
        "多卡训练卡住",
    ],
}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_questions_return_sections(page, url, lang):
    page.goto(f"{url}/{lang}/errors.html")
    first, message = page.locator("#error-found > li.section").first, page.locator("#error-count")
    for asked in QUESTIONS[lang]:
        page.fill("#error-search", "")
        first.wait_for(state="detached")
        page.fill("#error-search", asked)
        first.wait_for()
        assert message.inner_text() == message.get_attribute("data-sections")
        assert not page.locator("#error-list").is_visible()
    first.locator("a").click()
    page.wait_for_url(f"{url}/{lang}/*.html*")
    page.go_back()
    assert page.input_value("#error-search") == asked
    first.wait_for()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_pasted_message_survives_reload_and_language_switch(page, url, lang):
    other = {"en": "zh", "zh": "en"}[lang]
    page.goto(f"{url}/{lang}/errors.html")
    page.fill("#error-search", SHAPES)
    page.wait_for_url(f"{url}/{lang}/errors.html?e=mat1-mat2-shapes")
    page.reload()
    found = page.locator("#error-found > li[data-id]").first
    assert found.get_attribute("data-id") == "mat1-mat2-shapes"
    assert page.input_value("#error-search") == SHAPES
    page.locator("a.language-switch").first.click()
    page.wait_for_url(f"{url}/{other}/errors.html?e=mat1-mat2-shapes")
    assert page.input_value("#error-search") == SHAPES
    assert found.locator(".pasted, .message").first.inner_text() == SHAPES
    assert page.locator("#error-clear").inner_text() in ("Clear", "清空")
    page.locator("#error-clear").click()
    assert (
        page.locator("#error-list").is_visible() and not page.locator("#error-clear").is_visible()
    )
    page.wait_for_url(f"{url}/{other}/errors.html")


def test_entry_id_in_the_address_opens_its_answer(browser, url):
    for name in ("mat1-mat2-shapes", "size-of-tensor-empty"):
        opened = browser.new_page()
        opened.goto(f"{url}/en/errors.html?e={name}")
        answer = opened.locator("#error-found > li").first
        assert answer.get_attribute("data-id") == name
        assert opened.input_value("#error-search") == ""
        opened.close()


TRACE = f"""Traceback (most recent call last):
  File "/home/jo/secret/train.py", line 61, in <module>
    out = net(x)
  File "/opt/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 125, in forward
    return F.linear(input, self.weight, self.bias)
{SHAPES}"""


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("how", ["button", "Enter", "paste"])
def test_home_page_answers_a_traceback_without_sending_it(browser, url, lang, how):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    asked = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(f"{url}/{lang}/index.html")
    long = '  File "x.py", line 3, in f\n' * 4000 + TRACE
    if how == "paste":
        opened.evaluate("text => navigator.clipboard.writeText(text)", long)
        opened.locator("#pasted-error").press("Control+v")
    else:
        opened.locator("#pasted-error").evaluate("(field, text) => field.value = text", long)
        if how == "button":
            opened.locator(".paste-error button").click()
        else:
            opened.locator("#pasted-error").press("Enter")
    answer = opened.locator("#error-found > li").first
    answer.locator(".own-line").wait_for()
    assert "train.py" in answer.locator(".own-line").inner_text()
    assert "61" in answer.locator(".own-line").inner_text()
    assert answer.locator(".message mark").all_inner_texts() == ["3", "4", "10", "5"]
    assert opened.input_value("#error-search") == long
    assert not [one for one in asked if "secret" in one or "?q" in one or len(one) > 300]
    context.close()


def test_search_field_grows_with_its_text(page, url):
    page.goto(f"{url}/en/errors.html")
    height = page.locator("#error-search").bounding_box()["height"]
    page.fill("#error-search", "a\n" * 3)
    grown = page.locator("#error-search").bounding_box()["height"]
    page.fill("#error-search", TRACE * 100)
    most = page.locator("#error-search").bounding_box()["height"]
    assert height < grown < most <= 0.21 * page.viewport_size["height"]


def test_home_page_opened_from_disk_passes_the_message_on(page, site):
    page.goto((site / "en/index.html").as_uri())
    page.fill("#pasted-error", TRACE)
    page.locator(".paste-error button").click()
    page.locator("#error-found .own-line").wait_for()
    assert page.input_value("#error-search") == TRACE


@pytest.mark.parametrize("screen", ["page", "phone"])
def test_a_message_in_the_address_is_answered_above_the_fold(request, url, screen):
    opened = request.getfixturevalue(screen)
    opened.goto(f"{url}/en/errors.html?q={quote(GROUND)}")
    answer = opened.locator("#error-found > li").first
    assert answer.get_attribute("data-id") == "no-grad-fn"
    assert opened.input_value("#error-search") == GROUND
    assert answer.bounding_box()["y"] < opened.viewport_size["height"]


@pytest.mark.parametrize("screen", ["page", "phone"])
def test_first_screen_after_a_pasted_traceback_shows_the_cure(request, url, screen):
    opened = request.getfixturevalue(screen)
    opened.goto(f"{url}/en/index.html")
    opened.fill("#pasted-error", '  File "x.py", line 3, in f\n' * 60 + TRACE)
    opened.locator(".paste-error button").click()
    cure = opened.locator("#error-found .cure").first
    cure.wait_for()
    box = cure.bounding_box()
    assert box["y"] >= 0 and box["y"] + box["height"] <= opened.viewport_size["height"]
    at_end = "field => field.scrollTop + field.clientHeight >= field.scrollHeight - 1"
    assert opened.locator("#error-search").evaluate(at_end)
    opened.evaluate("scrollTo(0, 0)")
    opened.reload()
    cure.wait_for()
    assert opened.evaluate("scrollY") == 0


def test_matching_case_is_shown_first_and_only_once(page, url):
    page.goto(f"{url}/en/errors.html?q={quote(EMPTY)}")
    answer = page.locator("#error-found > li").first
    assert answer.get_attribute("data-id") == "size-of-tensor-empty"
    answer.locator(".cure").first.wait_for()
    assert answer.locator(":scope > :nth-child(2)").get_attribute("class") == "case holds"
    assert answer.locator(".case.holds").count() == 1
    assert answer.locator(".case > .cause").count() == answer.locator(".case strong").count() > 1
    assert not answer.locator(".cases .holds, .cases:not(:has(.case)), [id]").count()
    assert answer.locator(":scope > .cause").count() == 0
    assert answer.locator(":scope > .general > .cause").count() == 1
    texts = answer.locator(".case").all_text_contents()
    assert len(texts) == len({*texts}) > 10


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("frame", ["", '  File "train.py", line 61, in step\n'])
def test_a_list_of_possible_causes_is_announced(page, url, lang, frame):
    message = "RuntimeError: The size of tensor a (10) must match the size of tensor b (30) at "
    page.goto(f"{url}/{lang}/errors.html")
    page.fill("#error-search", f"{frame}{message}non-singleton dimension 1")
    note = page.locator("#error-found > li > .several")
    words = page.locator("#error-count").evaluate("count => ({...count.dataset})")
    assert note.inner_text() == words["several" if frame else "alone"]
    assert words["several"] == WORDS[lang]["several"] and words["alone"] == WORDS[lang]["alone"]
    page.fill("#error-search", EMPTY)
    page.locator("#error-found .case.holds").wait_for()
    assert note.count() == 0


def test_answer_without_loaded_text_links_to_it(page, url):
    page.route("**/errors_*.js", lambda route: route.abort())
    errors = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto(f"{url}/en/errors.html?q={quote(SHAPES)}")
    answer = page.locator("#error-found > li").first
    assert answer.inner_text().startswith("RuntimeError: mat1 and mat2") and not errors
    page.unroute("**/errors_*.js")
    page.fill("#error-search", f"{SHAPES} ")
    answer.locator(".cure").first.wait_for()
    answer.locator(".message a").click()
    page.wait_for_url("**/errors_tensors.html#mat1-mat2-shapes")


def test_every_entry_and_case_has_an_address(page, url):
    case = next(c["id"] for e in ENTRIES for c in e.get("cases", ()))
    for name in (ENTRIES[-1]["id"], case):
        page.goto("about:blank")
        page.goto(f"{url}/en/errors.html#{name}")
        page.wait_for_url(f"{url}/en/errors_*.html#{name}")
        target = page.locator(f"[id='{name}']")
        assert target.count() == 1 and target.is_visible()
        page.wait_for_function(
            "name => Math.abs(document.getElementById(name).getBoundingClientRect().top) < 400",
            arg=name,
        )


def test_error_page_works_from_disk(page, site):
    page.goto(f"{(site / 'en/errors.html').as_uri()}?q={quote(SHAPES)}")
    answer = page.locator("#error-found > li").first
    assert answer.get_attribute("data-id") == "mat1-mat2-shapes"
    answer.locator(".cure").first.wait_for()
    page.goto(f"{(site / 'zh/errors.html').as_uri()}#size-of-tensor-empty")
    page.wait_for_url("**/zh/errors_tensors.html#size-of-tensor-empty")
    assert page.locator("#size-of-tensor-empty").is_visible()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_list_without_scripts_is_complete_and_links_to_the_texts(browser, url, site, lang):
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    case = "size-of-tensor-empty"
    opened.goto(f"{url}/{lang}/errors.html#{case}")
    line = opened.locator(f".error-lines > li:has([id='{case}'])")
    assert 0 <= line.bounding_box()["y"] < 720
    links = opened.locator(".error-lines a").evaluate_all("all => all.map(a => a.href)")
    assert len(links) == len(ENTRIES)
    line.locator("a").click()
    opened.wait_for_url("**/errors_tensors.html#size-of-tensor")
    assert opened.locator("#size-of-tensor > .cause").is_visible()
    opened.locator("#size-of-tensor > .cases summary").click()
    assert opened.locator(f"[id='{case}'] .cause > strong").is_visible()
    context.close()
    texts = {p.name: p.read_text("utf8") for p in (site / lang).glob("errors_*.html")}
    every = [(e["id"], c["id"]) for e in ENTRIES for c in (e, *e.get("cases", ()))]
    pages = {link.partition("#")[2]: link.split("/")[-1].partition("#")[0] for link in links}
    assert not [one for entry, one in every if texts[pages[entry]].count(f' id="{one}"') != 1]


@pytest.mark.parametrize("place", ["errors.html?q=" + quote(SHAPES), "errors_tensors.html"])
@pytest.mark.parametrize("lang", LANGUAGES)
def test_copy_button_copies_the_cure(browser, url, lang, place):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    opened.goto(f"{url}/{lang}/{place}")
    entry = opened.locator("#error-found > li, #mat1-mat2-shapes").first
    entry.locator(".cure > button").first.click()
    entry.locator(".copy").first.get_by_text("✓").wait_for()
    copied = opened.evaluate("navigator.clipboard.readText()")
    expected = next(e for e in ENTRIES if e["id"] == "mat1-mat2-shapes")
    cure = lang == "zh" and expected.get("cure_zh") or expected["cure"]
    values = {"b": "4", "c": "10"} if "?q" in place else {"b": "b", "c": "c"}
    assert copied == re.sub(r"\{(\w+)\}", lambda m: values[m[1]], cure)
    context.close()
