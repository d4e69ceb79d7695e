"""Test `book live`: cells run on their page, and other pages cannot reach the kernels."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import pytest

from bookbuild.site.live_server import Chapter, reviewed
from bookbuild.source.words import words
from helpers.review.report import WORDS as REPORT
from helpers.review.review import words as review_words

pytestmark = pytest.mark.rest

ROOT = Path(__file__).resolve().parents[2]
# `BOOK_LIVE=all` runs every chapter in both languages, which takes many minutes.
CHAPTERS = ["en/detach", "zh/views_and_copies"]
if os.environ.get("BOOK_LIVE") == "all":
    CHAPTERS = sorted(f"{p.parent.name}/{p.stem}" for p in (ROOT / "book").glob("*/*.ipynb"))
IDLE = (
    "() => !['waiting', 'busy'].some((state) => document.querySelector(`[data-state=${state}]`))"
    " && !document.querySelector('.live-kernel[data-state=starting]')"
)


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class Live:
    """Run `book live` in a new process."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        for config in ("jupyter", "jupyter_server", "book"):  # the server must ignore them
            (folder / f"{config}_config.py").write_text("c.ServerApp.allow_origin = '*'\n")
        environment = os.environ | {"JUPYTER_CONFIG_DIR": str(folder), "BOOK_CUDA": "0"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bookbuild.cli", "live", "--no-browser", "--port"]
                + [str(free_port())],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + 60
        while not (found := re.search(r"(http://\S+?)/book/\S+token=(\w+)", self.log.read_text())):
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.1)
        self.url, self.token = found.groups()

    def ask(self, path: str, token: str | None = None, **headers: str) -> tuple[int, str]:
        """Return status and text of a response; `token` defaults to the correct one."""
        token = self.token if token is None else token
        headers = {"Authorization": f"token {token}", **headers} if token else headers
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read().decode("utf8", "replace")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode("utf8", "replace")

    def kernels(self) -> list[dict]:
        return json.loads(self.ask("/api/kernels")[1])


@pytest.fixture(scope="module")
def live(site, tmp_path_factory):
    assert site == ROOT / "_build/site"
    server = Live(tmp_path_factory.mktemp("live"))
    yield server
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(20)


@pytest.fixture(scope="module")
def reader(live, browser):
    """Yield a context that has opened the address with the token."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-US")
    page = context.new_page()
    page.goto(f"{live.url}/book/index.html?token={live.token}")
    page.close()
    yield context
    context.close()


@pytest.fixture
def tab(reader):
    page = reader.new_page()
    page.set_default_timeout(120_000)
    yield page
    page.evaluate("localStorage.clear()")
    page.close()


def opened(tab, live, name: str):
    tab.goto(f"{live.url}/book/{name}.html")
    tab.wait_for_function("() => document.documentElement.dataset.live")
    return tab


def press(tab, word: str, cell: str = "") -> None:
    """Press a button of a cell or of the toolbar, and wait until no cell is running."""
    lang = tab.url.split("/")[-2]
    box = tab.locator(f"#{cell}" if cell else ".live-bar")
    box.get_by_role("button", name=words(lang, "live")[word], exact=True).first.click()
    if word != "stop":
        tab.wait_for_function(IDLE, timeout=600_000 if word == "run_all" else 120_000)


def write(tab, cell: str, code: str) -> None:
    tab.locator(f"#{cell} .cell_input pre").fill(code)


def output(tab, cell: str) -> str:
    return tab.locator(f"#{cell} .live-output").inner_text().strip()


def state(tab, cell: str) -> str:
    return tab.locator(f"#{cell} .live-state").get_attribute("data-state")


# ---------------------------------------------------------------- cells


@pytest.mark.parametrize("name", CHAPTERS)
def test_whole_chapter_run_matches_the_stored_outputs(tab, live, name):
    errors = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    opened(tab, live, name)
    outputs = "() => [...document.querySelectorAll('.cell_output%s:not(:empty)')].map((output) => "
    outputs += "[output.closest('.cell').id, output.querySelectorAll('figure, img').length, "
    outputs += "...[...output.querySelectorAll('.highlight pre')].map((pre) => pre.textContent"
    outputs += ".replace(/#.*/g, '#'))])"  # stored tracebacks have English comments
    stored = tab.evaluate(outputs % ":not(.live-output)")
    press(tab, "run_all")
    states = tab.evaluate(
        "() => [...document.querySelectorAll('.live-state')]"
        ".map((status) => [status.closest('.cell').id, status.dataset.state])"
    )
    assert len(states) > 10 and [s for s in states if s[1] != "done"] == []
    if len(CHAPTERS) == 2:  # others print times, which this comparison does not ignore
        assert tab.evaluate(outputs % ".live-output") == stored
    lang = name.partition("/")[0]
    assert tab.locator(f".live-output figure:not([lang={lang}])").count() == 0
    explorer = tab.locator(".live-output :is([data] + style)").first
    if explorer.count():
        assert explorer.evaluate("style => style.previousElementSibling.shadowRoot !== null")
    assert not errors


def test_running_a_cell_runs_the_cells_above_the_first_section(tab, live):
    opened(tab, live, "zh/detach")
    press(tab, "run", "detach-numpy")
    assert state(tab, "detach-numpy") == "done" and state(tab, "detach-imports") == "done"
    assert state(tab, "detach-numpy-error") is None or not state(tab, "detach-numpy-error")
    write(
        tab, "detach-state", "import os\nfrom helpers.figures import language\nlanguage(), missing"
    )
    press(tab, "run", "detach-state")
    assert state(tab, "detach-state") == "names"
    write(tab, "detach-state", "os.path.basename(os.getcwd()), language()")
    press(tab, "run", "detach-state")
    assert output(tab, "detach-state") == "('zh', 'zh')"


def test_edit_survives_reload_and_can_be_reset(tab, live):
    opened(tab, live, "en/detach")
    code = tab.locator("#detach-numpy .cell_input pre")
    original = code.text_content()
    code.click()
    tab.keyboard.press("Control+End")
    tab.keyboard.type("\nif True:\nprint('mine')")
    tab.keyboard.press("Control+Enter")
    tab.wait_for_function(IDLE)
    assert output(tab, "detach-numpy") == "mine"  # the line after a colon was indented
    tab.reload()
    tab.wait_for_function("() => document.documentElement.dataset.live")
    assert code.text_content().strip().endswith("if True:\n    print('mine')")
    assert "live-edited" in tab.locator("#detach-numpy").get_attribute("class")
    tab.locator("#detach-numpy").get_by_role("button", name=words("en", "live")["reset"]).click()
    assert code.text_content() == original
    tab.reload()
    assert code.text_content() == original


def test_running_cell_can_be_interrupted_and_kernel_restarted(tab, live):
    opened(tab, live, "en/detach")
    write(
        tab, "detach-imports", "import sys\nn = 1\nfor i in range(3): print(i, end='\\r')\nprint()"
    )
    press(tab, "run", "detach-imports")
    assert output(tab, "detach-imports") == "2"
    write(tab, "detach-numpy", "import time\nprint('begun', flush=True)\ntime.sleep(600)")
    row = tab.locator("#detach-numpy")
    row.get_by_role("button", name=words("en", "live")["run"], exact=True).click()
    tab.wait_for_function("() => document.querySelector('#detach-numpy .live-output').innerText")
    press(tab, "stop")
    tab.wait_for_function(IDLE)
    assert state(tab, "detach-numpy") == "failed"
    assert "KeyboardInterrupt" in output(tab, "detach-numpy")
    press(tab, "restart")
    write(tab, "detach-imports", "'n' in globals()")
    press(tab, "run", "detach-imports")
    assert output(tab, "detach-imports") == "False"
    write(tab, "detach-imports", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    press(tab, "run", "detach-imports")
    tab.wait_for_selector(".live-kernel[data-state=lost]")
    assert state(tab, "detach-imports") == "failed"
    write(tab, "detach-imports", "6 * 7")
    press(tab, "run", "detach-imports")
    assert output(tab, "detach-imports") == "42"


def test_run_to_here_stops_at_a_failing_cell(tab, live):
    opened(tab, live, "en/detach")
    write(tab, "detach-imports", "1 / 0")
    press(tab, "run_to_here", "detach-numpy")
    assert state(tab, "detach-imports") == "failed" and not state(tab, "detach-numpy")
    assert "ZeroDivisionError" in output(tab, "detach-imports")
    tab.locator("#detach-imports").get_by_role("button", name=words("en", "live")["reset"]).click()


@pytest.mark.parametrize(("lang", "begins"), [("en", "✗ not yet: "), ("zh", "✗ 还不对：")])
def test_verdict_in_each_language_equals_the_stored_one(lang, begins):
    chapter = Chapter(ROOT / f"book/{lang}/detach.ipynb")
    cell = next(cell for cell in chapter.cells if cell.id == "detach-exercise-b")
    answer = chapter.output(cell.id, cell.outputs)
    assert answer["same"] and begins in answer["html"]
    other = json.loads(json.dumps(cell.outputs).replace("not yet: ", "not yet: B got no gradient"))
    assert not chapter.output(cell.id, other)["same"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_exercise_can_be_solved_on_the_page(tab, live, lang):
    opened(tab, live, f"{lang}/detach")
    notebook = nbformat.read(ROOT / f"book/{lang}/detach.ipynb", as_version=4)
    solution = next(cell.source for cell in notebook.cells if cell.id == "detach-solution-b")
    press(tab, "run", "detach-exercise-b")
    assert output(tab, "detach-exercise-b").startswith(
        {"en": "✗ not yet: ", "zh": "✗ 还不对："}[lang]
    )
    assert "live-solved" not in tab.locator("#detach-exercise-b").get_attribute("class")
    press(tab, "compare", "detach-exercise-b")
    lines = tab.locator("#detach-exercise-b .live-difference")
    lines.get_by_text("with torch.no_grad():").first.wait_for()
    assert "+     with torch.no_grad():" in lines.inner_text()
    assert "-     ..." in lines.inner_text()
    write(tab, "detach-exercise-b", solution)
    press(tab, "run", "detach-exercise-b")
    assert output(tab, "detach-exercise-b").startswith("✓")
    tab.reload()
    tab.wait_for_function("() => document.documentElement.dataset.live")
    assert "live-solved" in tab.locator("#detach-exercise-b").get_attribute("class")


def test_kernel_stops_when_its_page_is_left(tab, live):
    opened(tab, live, "en/detach")
    before = {kernel["id"] for kernel in live.kernels()}
    write(tab, "detach-imports", "1")
    press(tab, "run", "detach-imports")
    (mine,) = {kernel["id"] for kernel in live.kernels()} - before
    tab.goto(f"{live.url}/book/en/index.html")
    end = time.monotonic() + 20
    while mine in {kernel["id"] for kernel in live.kernels()}:
        assert time.monotonic() < end
        time.sleep(0.2)


# ---------------------------------------------------------------- the review

LEAK = """total = torch.zeros(())
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss
"""


def findings(tab, cell: str):
    return tab.locator(f"#{cell} .live-finding")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_edited_code_is_reviewed_below_the_cell(tab, live, lang):
    errors = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    opened(tab, live, f"{lang}/detach")
    kernels = {kernel["id"] for kernel in live.kernels()}
    write(tab, "detach-numpy", LEAK)
    tab.locator("h1").click()  # the field loses the focus; no cell runs
    findings(tab, "detach-numpy").wait_for()
    row = review_words()["backward-total-nodes"]
    text = findings(tab, "detach-numpy").inner_text()
    effect = row["effect"][lang].replace("`", "")
    assert REPORT[lang]["line"].format(line=7) in text and "total += loss" in text
    assert effect in text and row["fix"] in text and "backward-total-nodes" in text
    link = findings(tab, "detach-numpy").locator("a")
    assert link.get_attribute("href") == row["section"]["href"]
    assert link.inner_text() == row["section"][lang]
    assert {kernel["id"] for kernel in live.kernels()} <= kernels
    tab.reload()  # the edit is kept, and reviewed again
    findings(tab, "detach-numpy").wait_for()
    write(tab, "detach-numpy", LEAK.replace("+= loss", "+= loss.detach()"))
    tab.locator("h1").click()
    tab.locator("#detach-numpy .live-findings").wait_for(state="hidden")
    assert findings(tab, "detach-numpy").count() == 0 and not errors


def test_a_run_reviews_the_cell_and_reset_removes_the_findings(tab, live):
    opened(tab, live, "en/detach")
    assert tab.locator(".live-finding").count() == 0  # cells of the book are not reviewed
    write(tab, "detach-imports", "import torch\nnet = torch.nn.Linear(2, 2)")
    write(tab, "detach-numpy", "torch.save(net, 'never.pt') if False else 'ran'")
    press(tab, "run", "detach-numpy")
    assert output(tab, "detach-numpy") == "'ran'"
    assert findings(tab, "detach-numpy").get_attribute("data-rule") == "checkpoints-whole-error"
    press(tab, "reset", "detach-numpy")
    assert not tab.locator("#detach-numpy .live-findings").is_visible()


def test_exercises_are_not_reviewed(tab, live):
    opened(tab, live, "en/detach")
    write(tab, "detach-exercise-b", LEAK)
    with tab.expect_request(lambda request: '"review"' in (request.post_data or "")) as asked:
        tab.locator("h1").click()
        write(tab, "detach-numpy", LEAK)
        tab.locator("h1").click()
    assert json.loads(asked.value.post_data)["before"]
    findings(tab, "detach-numpy").wait_for()
    assert findings(tab, "detach-exercise-b").count() == 0


@pytest.mark.parametrize(
    ("source", "before", "html"),
    [
        ("torch.no_grad()", [], "grad-modes-bare"),
        ("%time 1\ntorch.no_grad()", ["x = (", "%%bash\nls", "\x00"], "grad-modes-bare"),
        ("net.eval", ["import torch.nn as nn\nnet = nn.Linear(1, 1)"], "training-mode-called"),
        ("torch.no_grad()  # <b>&", [], "&lt;b&gt;&amp;"),
        ("x = (", [], ""),
        ("torch.no_grad()  # noqa", [], ""),
        ("-" * 100_000 + "1", [], ""),
        ("torch.no_grad()\x00", [], ""),
    ],
)
def test_reviewed_escapes_html_and_accepts_invalid_python(source, before, html):
    found = reviewed(source, before, "en")
    assert html in found and bool(html) == bool(found)
    assert "<b>&" not in found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_reports_no_violations_on_a_page_with_outputs(tab, live, scheme):
    from axe_playwright_python.sync_playwright import Axe

    tab.emulate_media(color_scheme=scheme)
    opened(tab, live, "en/detach")
    write(tab, "detach-imports", "1 / 0")
    press(tab, "run", "detach-imports")
    press(tab, "compare", "detach-exercise-b")
    write(tab, "detach-numpy", f"import torch\n{LEAK}")
    tab.locator("h1").click()
    findings(tab, "detach-numpy").wait_for()
    found = (
        Axe()
        .run(tab, context=".live-bar, #detach-imports, #detach-exercise-b, #detach-numpy")
        .response
    )
    assert [v["id"] for v in found["violations"]] == []


def test_phone_buttons_are_large_and_nothing_overflows(live, reader, browser):
    context = browser.new_context(
        viewport={"width": 375, "height": 720}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    page.goto(f"{live.url}/book/index.html?token={live.token}")
    opened(page, live, "en/detach")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    heights = page.evaluate(
        "() => [...document.querySelectorAll('.live-bar button, .live-row button:not([hidden])')]"
        ".filter((b) => b.offsetParent).map((b) => b.getBoundingClientRect().height)"
    )
    assert len(heights) > 10 and min(heights) >= 44
    context.close()


# ---------------------------------------------------------------- access to the kernels


@pytest.mark.parametrize("token", ["", "0" * 48])
@pytest.mark.parametrize(
    "path", ["/book/en/detach.html", "/book/_live/en/detach", "/api/kernels", "/api/sessions"]
)
def test_requests_without_the_token_return_at_most_a_login_page(live, token, path):
    status, text = live.ask(path, token=token)
    assert status in (200, 403)
    assert "numpy" not in text and ("password" in text.lower() or status == 403)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8888", "169.254.1.1"])
def test_foreign_host_header_is_rejected(live, host):
    assert live.ask("/api/kernels", Host=host)[0] == 403
    assert live.ask("/book/en/detach.html", Host=host)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        *("/api/contents", "/api/contents/text", "/files/text/detach.md", "/api/terminals"),
        *("/lab", "/tree", "/view/en/detach.ipynb", "/nbconvert/html/en/detach.ipynb"),
        *("/terminals/1", "/api/config/notebook", "/book/../../README.md"),
        *("/book/%2e%2e/%2e%2e/README.md", "/book/_live/../live_server.py", "/book//etc/passwd"),
    ],
)
def test_server_rejects_paths_outside_the_site_and_kernels(live, path):
    status, text = live.ask(path)
    assert status in (403, 404), (status, text[:200])


def test_request_without_xsrf_token_is_rejected(live, reader):
    page = reader.new_page()
    page.goto(f"{live.url}/book/en/index.html")
    status = page.evaluate(
        "async () => (await fetch('/api/sessions', { method: 'POST', body: '{}' })).status"
    )
    assert status == 403
    page.close()


def test_another_origin_cannot_run_code(live, reader, url):
    own = reader.new_page()
    own.set_default_timeout(120_000)
    opened(own, live, "en/detach")
    write(own, "detach-imports", "1")
    press(own, "run", "detach-imports")
    before = {kernel["id"] for kernel in live.kernels()}
    other = reader.new_page()
    other.goto(f"{url}/en/index.html")  # another port is another origin, but cookies are sent
    attempts = """async ([to, id]) => {
      const socket = (address) => new Promise((done) => {
        const opened = new WebSocket(address);
        opened.onopen = () => done("open");
        opened.onerror = () => done("refused");
      });
      const fetched = (...given) => fetch(...given).then((a) => a.type, () => "refused");
      const kernel = { name: "python3" };
      const body = JSON.stringify({ path: "x", type: "notebook", name: "", kernel });
      const post = { method: "POST", body, credentials: "include" };
      const frame = document.createElement("iframe");
      frame.src = `${to}/book/en/detach.html`;
      document.body.append(frame);
      await new Promise((done) => { frame.onload = done; });
      let inner = "refused";
      try { inner = frame.contentDocument ? "open" : "refused"; } catch {}
      return [
        await socket(`${to.replace("http", "ws")}/api/kernels/${id}/channels`),
        await fetched(`${to}/api/kernels`, { credentials: "include" }),
        await fetched(`${to}/api/sessions`, { ...post, headers: { "X-XSRFToken": "guessed" } }),
        await fetched(`${to}/api/sessions`, { ...post, mode: "no-cors" }),
        inner,
      ];
    }"""
    answers = other.evaluate(attempts, [live.url, next(iter(before))])
    assert answers[:3] == ["refused"] * 3 and answers[4] == "refused"
    assert answers[3] in ("refused", "opaque")  # the request was sent; the response is 403
    assert {kernel["id"] for kernel in live.kernels()} == before
    other.close()
    own.close()


@pytest.mark.parametrize(
    "body",
    [
        *("", "[]", "{}", '{"outputs": 3, "cell": "detach-imports"}', '{"review": "x"}'),
        *('{"review": 3, "before": []}', '{"review": "x", "before": [3]}'),
    ],
)
def test_invalid_request_body_returns_400(live, reader, body):
    page = reader.new_page()
    page.goto(f"{live.url}/book/en/detach.html")
    status = page.evaluate(
        """async (body) => (await fetch("/book/_live/en/detach", { method: "POST", body, headers: {
          "X-XSRFToken": document.cookie.match(/_xsrf=([^;]+)/)[1] } })).status""",
        body,
    )
    assert status == 400
    page.close()


def test_page_without_a_server_reports_it_and_stays(site, browser, tmp_path):
    own = Live(tmp_path)
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(f"{own.url}/book/index.html?token={own.token}")
    opened(page, own, "zh/detach")
    own.process.kill()
    own.process.wait(20)
    press(page, "run", "detach-imports")
    page.wait_for_function(
        "() => document.querySelector('.live-kernel').dataset.state === 'unreachable'"
    )
    assert page.locator(".live-kernel").inner_text() == words("zh", "live")["unreachable"]
    assert page.locator("h1").is_visible()
    context.close()


def test_static_site_contains_no_live_scripts(site):
    assert not list(site.rglob("live*.js")) and not list(site.rglob("live*.css"))
    assert "_live" not in (site / "en/detach.html").read_text("utf8")
