"""Test the map of the home page: counts, where to continue, and the page for teachers."""

from __future__ import annotations

import json
import re
import time
from functools import cache

import pytest
from book_pages import LANGUAGES, ROOT

from bookbuild.pages import course
from bookbuild.source.checkout import Book
from bookbuild.source.words import words

BOOK = Book(ROOT)
KEPT = "localStorage.getItem('explored:detach')?.includes(':1')"


@cache
def lessons(lang):
    return course.lessons(BOOK, lang)


def tasks():
    return {name: lesson.tasks for name, lesson in lessons("en").items()}


@pytest.fixture
def fresh(browser):
    """Yield a function that opens a page in a new context and records its requests and errors."""
    contexts = []

    def open_(address="about:blank", **kind):
        contexts.append(browser.new_context(**kind))
        page = contexts[-1].new_page()
        page.errors, page.requests = [], []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()


def line(page, name: str) -> str:
    """Return the line of a chapter in the home page's list."""
    return (
        page.locator(f"ul.chapters li:has(> p > a[href='{name}.html']) .tasks")
        .inner_text()
        .replace("\xa0", " ")
    )


def counts(lang: str, *pairs: str) -> str:
    w = words(lang, "course")
    names = [w[kind] for kind in ("questions", "explorers", "exercises")]
    return " · ".join(f"{name} {pair}" for name, pair in zip(names, pairs, strict=True))


def learn(page, address: str, lang: str) -> None:
    """Answer a question and solve the explorer of `detach`, then stop in its fifth section."""
    page.goto(f"{address}/{lang}/detach.html")
    page.locator(".predict details.no > summary").first.click()
    page.wait_for_function("localStorage.getItem('predict:detach')?.includes('picks')")
    explorer = page.locator("copy-explorer")
    explorer.locator("button", has_text=".data").click()
    page.wait_for_function(KEPT)  # stored after one second in the solved state
    page.evaluate("""() => document.querySelectorAll("main section[id]")[5]
      .scrollIntoView({behavior: "instant"})""")


# ---------------------------------------------------------------- counts


@pytest.mark.parametrize("lang", LANGUAGES)
def test_progress_counts_answered_and_solved_tasks(fresh, url, lang):
    page = fresh(f"{url}/{lang}/index.html", viewport={"width": 1280, "height": 800})
    for name, lesson in lessons(lang).items():
        shown = line(page, name)
        assert shown.startswith(words(lang, "course")["minutes"].format(lesson.minutes))
        assert "/" not in shown.replace(f"0/{lesson.tasks.questions}", "").replace(
            f"0/{lesson.tasks.explorers}", ""
        )
    assert page.locator("#progress [hidden]").count() == 2  # no link to continue, no reset button
    assert not page.locator(".book-progress").is_visible()
    learn(page, url, lang)
    page.goto(f"{url}/{lang}/index.html")
    asked, moved, solved = tasks()["detach"].questions, tasks()["detach"].explorers, 3
    assert tasks()["detach"].exercises == solved
    assert counts(lang, f"1/{asked}", f"1/{moved}", str(solved)) in line(page, "detach")
    every = [sum(getattr(t, kind) for t in tasks().values()) for kind in vars(tasks()["detach"])]
    total = page.locator("#progress p:last-child")
    shown = total.inner_text().replace("\xa0", " ")
    assert counts(lang, f"1/{every[0]}", f"1/{every[1]}", str(every[2])) in shown
    side = words(lang, "script_questions")["progress"]
    assert page.locator(".book-progress").inner_text() == side.format(
        done=2, all=every[0] + every[1]
    )
    share = page.locator("ul.chapters li:has(a[href='detach.html']) i").evaluate(
        "bar => parseFloat(bar.style.getPropertyValue('--done'))"
    )
    assert share == pytest.approx(100 * 2 / (asked + moved))
    other = next(one for one in LANGUAGES if one != lang)  # both languages share the progress
    page.goto(f"{url}/{other}/index.html")
    assert counts(other, f"1/{asked}", f"1/{moved}", str(solved)) in line(page, "detach")
    assert page.errors == [] and all(r.startswith(url) for r in page.requests[1:])


def test_exercises_are_counted_after_one_is_solved_live(fresh, url):
    page = fresh(f"{url}/en/index.html")
    before = page.locator("ul.chapters li:has(a[href='modules.html'])")
    kept = {
        "predict:modules": {"picks": {str(i): 0 for i in range(tasks()["modules"].questions + 3)}},
        "solved:modules": {str(i): True for i in range(tasks()["modules"].exercises)},
        "explored:modules": {"gone": 1},  # the chapter has no explorer
        "predict:detach": "{",  # damaged
    }
    page.evaluate(
        "kept => { for (const key in kept) localStorage.setItem(key, kept[key]) }",
        {k: v if isinstance(v, str) else json.dumps(v) for k, v in kept.items()},
    )
    page.reload()
    asked, solved = tasks()["modules"].questions, tasks()["modules"].exercises
    assert f"questions {asked}/{asked} · exercises {solved}/{solved}" in line(page, "modules")
    assert before.locator(".tasks.whole").count() == 1
    assert f"exercises 0/{tasks()['detach'].exercises}" in line(page, "detach")
    every = [sum(getattr(t, kind) for t in tasks().values()) for kind in vars(tasks()["detach"])]
    assert f" of {sum(every)}" in page.locator(".book-progress").inner_text()
    assert page.errors == []


@pytest.mark.parametrize("lang", LANGUAGES)
def test_reset_button_deletes_only_the_progress(fresh, url, lang):
    page = fresh(f"{url}/{lang}/index.html")
    page.evaluate("localStorage.setItem('mode', 'dark'); localStorage.setItem('live:x', '1')")
    learn(page, url, lang)
    page.goto(f"{url}/{lang}/index.html")
    button = page.get_by_role("button", name=words(lang, "progress")["reset"])
    page.once("dialog", lambda dialog: dialog.dismiss())
    button.click()
    assert page.evaluate(KEPT)  # dismissing the dialog deletes nothing
    page.once("dialog", lambda dialog: dialog.accept())
    with page.expect_navigation():
        button.focus()
        page.keyboard.press("Enter")
    keys = page.evaluate("Object.keys(localStorage)")
    assert not [key for key in keys if re.match("predict|explored|solved|stopped", key)]
    assert {"mode", "live:x"} <= set(keys)
    assert page.locator("#progress [hidden]").count() == 2
    assert f"0/{tasks()['detach'].questions}" in line(page, "detach")
    assert page.locator(".score").count() == 0


# ---------------------------------------------------------------- continue link


@pytest.mark.parametrize("lang", LANGUAGES)
def test_continue_link_opens_the_last_read_section(fresh, url, lang):
    page = fresh(viewport={"width": 1280, "height": 800})
    learn(page, url, lang)
    section = page.locator("main section[id]").nth(5)
    anchor = section.get_attribute("id")
    heading = section.locator("h2, h3").first.inner_text().rstrip("#")
    page.goto(f"{url}/{lang}/errors.html")  # reference pages do not count as read
    page.goto(f"{url}/{lang}/index.html")
    go = page.locator("#progress a[href*=continue]")
    title = page.locator("ul.chapters a[href='detach.html']").evaluate("a => a.firstChild.data")
    assert go.inner_text() == f"{title} › {heading}"
    go.click()
    page.wait_for_url(f"{url}/{lang}/detach.html?continue#{anchor}")
    top = page.locator(f"[id='{anchor}']").bounding_box()["y"]
    assert -5 <= top <= 300
    other = next(one for one in LANGUAGES if one != lang)  # no heading of another language
    page.goto(f"{url}/{other}/index.html")
    title = page.locator("ul.chapters a[href='detach.html']").evaluate("a => a.firstChild.data")
    assert go.inner_text() == title
    assert go.get_attribute("href") == f"detach.html?continue#{anchor}"


def test_continue_link_keeps_answers_hidden(fresh, url):
    page = fresh(f"{url}/en/detach.html")
    asked = "[...document.querySelectorAll('.predict')].map(e => e.closest('section').id)"
    anchor = page.evaluate(asked)[0]
    cell = page.locator(".predict").first.get_attribute("data-cell")
    veiled = f"document.getElementById('{cell}').classList.contains('veiled')"
    page.goto(f"{url}/en/index.html")
    page.goto(f"{url}/en/detach.html?continue#{anchor}", referer=f"{url}/en/index.html")
    assert page.evaluate(veiled)
    page.goto(f"{url}/en/index.html")
    page.goto(f"{url}/en/detach.html#{anchor}", referer=f"{url}/en/index.html")
    assert not page.evaluate(veiled)


def test_progress_works_from_disk(fresh, site):
    page = fresh(viewport={"width": 1280, "height": 800})
    learn(page, site.as_uri(), "en")
    page.goto(f"{site.as_uri()}/en/index.html")
    answered = f"questions 1/{tasks()['detach'].questions}"
    deadline = time.monotonic() + 20
    while answered not in line(page, "detach") and time.monotonic() < deadline:
        page.wait_for_timeout(200)  # each file has its own process, so storage is updated late
        page.reload()
    assert answered in line(page, "detach")
    page.locator("#progress a[href*=continue]").click()
    page.wait_for_url("**/detach.html?continue#*")
    assert page.errors == []


# ---------------------------------------------------------------- scripts


@pytest.mark.parametrize("lang", LANGUAGES)
def test_home_page_without_scripts_hides_the_progress(fresh, url, lang):
    page = fresh(f"{url}/{lang}/index.html", java_script_enabled=False)
    assert not page.locator("#progress").is_visible()
    assert not page.locator(".book-progress").is_visible()
    assert page.locator(".tasks").count() == 0
    assert page.locator("ul.chapters a[href='teachers.html']").is_visible()


def test_only_home_pages_load_the_progress_script(site):
    for path in [*site.glob("en/*.html"), *site.glob("zh/*.html")]:
        there = "progress.js" in path.read_text("utf8")
        assert there == (path.name == "index.html"), path


# ---------------------------------------------------------------- beginner path, teacher page


@pytest.mark.parametrize("lang", LANGUAGES)
def test_beginner_path_shows_the_total_time_of_its_chapters(page, url, lang):
    page.goto(f"{url}/{lang}/index.html")
    names = BOOK.toc["meta"]["new_to_pytorch"]
    time = course.duration(sum(lessons(lang)[name].minutes for name in names), lang)
    assert time in page.locator("#progress p:has(+ ol)").inner_text()
    links = page.locator("#progress ol a").evaluate_all(
        "all => all.map(a => a.getAttribute('href'))"
    )
    assert links == [f"{name}.html" for name in names]


def test_teacher_page_lists_requirements_and_earlier_chapters(page, url):
    page.goto(f"{url}/en/teachers.html")
    tuning = page.locator("#lesson-fine_tuning p")
    assert "torchvision and scikit-learn" in tuning.inner_text()
    assert "minutes" not in tuning.inner_text()
    links = tuning.locator("a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    order = [BOOK.chapters.index(link.removesuffix(".html")) for link in links]
    assert order == sorted(order) and max(order) < BOOK.chapters.index("fine_tuning")
    assert "training_loop.html" in links
    cited = page.locator(".highlight-bibtex").inner_text()
    cff = (ROOT / "CITATION.cff").read_text("utf8")
    assert f"version = {{{re.search(r'^version: (.+)$', cff, re.M)[1]}}}" in cited
    assert page.locator("a[href*='creativecommons.org/licenses/by/4.0']").count() == 1
