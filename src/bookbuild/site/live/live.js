// Run a chapter's cells on the page: kernel connection, cells with buttons, toolbar.
// The server (`live_server.py`) provides the notebook, rendered outputs and highlighted code.
// No library is needed: the browser edits plain text, and a kernel request is one message and its
// replies; thebe and CodeMirror would bring more than a megabyte for the same.
const [, base, lang, chapter] = location.pathname.match(/^(.*)\/(en|zh)\/(\w+)\.html$/);
const root = base.replace(/\/book$/, "");
const ask = `${base}/_live/${lang}/${chapter}`;
const xsrf = () => decodeURIComponent(document.cookie.match(/_xsrf=([^;]+)/)?.[1] ?? "");

async function request(address, method = "GET", body = undefined, options = {}) {
  const answer = await fetch(address, {
    method,
    headers: { "X-XSRFToken": xsrf(), "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
    ...options,
  });
  if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
  return answer.status === 204 ? null : answer.json();
}

const element = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};
const stored = (key) => {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? {};
  } catch {
    return {};
  }
};
const store = (key, value) => {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {} // without storage, edits last as long as the page
};

// Return the code in an element; browsers represent some typed line ends as elements.
function written(pre) {
  const copy = pre.cloneNode(true);
  for (const line of copy.querySelectorAll("br")) line.replaceWith("\n");
  for (const line of copy.querySelectorAll("div, p")) line.prepend("\n");
  return copy.textContent.replace(/\n$/, "");
}

// ---- kernel: a session of Jupyter Server; its name sets the language of figures

class Kernel {
  #socket;
  #running = new Map();
  #session = crypto.randomUUID();

  constructor(lost) {
    this.lost = lost;
  }

  async start() {
    const path = `${lang}/${chapter}.ipynb-${this.#session}`;
    const session = await request(`${root}/api/sessions`, "POST", {
      path,
      name: `${chapter}.ipynb`,
      type: "notebook",
      kernel: { name: "python3" },
    });
    this.session = session.id;
    this.id = session.kernel.id;
    await this.#connect();
  }

  #connect() {
    const address = new URL(`${root}/api/kernels/${this.id}/channels`, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.searchParams.set("session_id", this.#session);
    const socket = new WebSocket(address);
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => this.#receive(JSON.parse(data)));
    socket.addEventListener("close", () => {
      if (this.#socket !== socket) return;
      this.#connect().catch(() => this.#end()); // reconnect after sleep or a proxy timeout
    });
    return new Promise((open, failed) => {
      socket.addEventListener("open", open);
      socket.addEventListener("error", () => failed(new Error("WebSocket")));
    });
  }

  // The server restarts a kernel that died, with the same id.
  #fail() {
    for (const { done } of this.#running.values()) done("lost");
    this.#running.clear();
    this.lost();
  }

  #end() {
    this.#socket = this.id = this.session = null;
    this.#fail();
  }

  // Run code; `show` is called with the outputs so far. Returns "ok", "error" or "lost".
  execute(code, show) {
    const id = crypto.randomUUID();
    const header = {
      msg_id: id,
      msg_type: "execute_request",
      session: this.#session,
      username: "",
      version: "5.3",
      date: new Date().toISOString(),
    };
    const content = {
      code,
      silent: false,
      store_history: true,
      user_expressions: {},
      allow_stdin: false,
      stop_on_error: true,
    };
    return new Promise((done) => {
      this.#running.set(id, { outputs: [], show, done, reply: "ok", clear: false });
      const message = { header, parent_header: {}, metadata: {}, content, channel: "shell" };
      this.#socket.send(JSON.stringify({ ...message, buffers: [] }));
    });
  }

  #receive({ header: { msg_type: type }, parent_header: parent, content }) {
    if (type === "status" && content.execution_state === "dead") return this.#end();
    if (type === "status" && content.execution_state === "restarting") return this.#fail();
    const run = this.#running.get(parent?.msg_id);
    if (!run) return;
    const add = (output) => {
      if (run.clear) run.outputs.length = 0;
      run.clear = false;
      run.outputs.push(output);
      run.show(run.outputs);
    };
    if (type === "stream") add({ output_type: type, ...content });
    else if (type === "display_data" || type === "execute_result") {
      const { transient, ...output } = content;
      add({ output_type: type, ...output });
      run.outputs.at(-1).id = transient?.display_id;
    } else if (type === "update_display_data") {
      for (const output of run.outputs)
        if (output.id && output.id === content.transient?.display_id) output.data = content.data;
      run.show(run.outputs);
    } else if (type === "clear_output") {
      run.clear = true;
      if (!content.wait) run.outputs.length = 0;
    } else if (type === "error") {
      run.reply = "error";
      add({ output_type: type, ...content });
    } else if (type === "status" && content.execution_state === "idle") {
      this.#running.delete(parent.msg_id);
      run.done(run.reply);
    }
  }

  interrupt() {
    return request(`${root}/api/kernels/${this.id}/interrupt`, "POST");
  }

  // Shut down the kernel and its session, also when the page is closed.
  stop() {
    const session = this.session;
    this.#socket = this.id = this.session = null;
    for (const { done } of this.#running.values()) done("lost");
    this.#running.clear();
    return session
      ? request(`${root}/api/sessions/${session}`, "DELETE", undefined, { keepalive: true })
      : null;
  }
}

// ---- the page

const { cells: notebook, words, gpu } = await request(ask);
const EDITS = `live:${lang}/${chapter}`;
const SOLVED = `solved:${chapter}`;

const button = (name, act, title = "") => {
  const button = element("button", { type: "button", textContent: words[name], title });
  button.addEventListener("click", act);
  return button;
};

const kernel = new Kernel(() => {
  for (const cell of cells) cell.ran = false;
  bar.say("lost");
});
let pending = Promise.resolve(); // serializes runs
let stopped = false;

async function started() {
  if (kernel.id) return;
  bar.say("starting");
  await kernel.start();
  for (const cell of cells) cell.forget();
}

// Run cells in order until one raises an unexpected error or Stop is pressed.
function run(chosen) {
  stopped = false;
  pending = pending.then(async () => {
    try {
      await started();
      bar.say("busy");
      for (const cell of chosen) cell.wait();
      for (const cell of chosen) {
        if (stopped || !(await cell.execute())) break;
      }
      if (bar.status.dataset.state === "busy") bar.say("idle");
    } catch {
      bar.say("unreachable");
    }
    for (const cell of chosen) cell.wait(false);
  });
  return pending;
}

class Cell {
  constructor({ id, source, tags }, index) {
    Object.assign(this, { id, source, tags, index, ran: false });
    this.box = document.getElementById(id);
    this.pre = this.box?.querySelector(".cell_input pre");
    if (this.pre) this.#build();
  }

  get code() {
    return this.pre && this.edited ? written(this.pre) : this.source;
  }

  get edited() {
    return this.pre?.dataset.edited === "true";
  }

  #build() {
    const { pre } = this;
    this.original = pre.innerHTML;
    pre.contentEditable = "plaintext-only";
    pre.spellcheck = false;
    pre.setAttribute("role", "textbox");
    pre.setAttribute("aria-multiline", "true");
    pre.setAttribute("aria-label", words.code);
    pre.addEventListener("input", () => this.#changed());
    pre.addEventListener("blur", () => {
      this.#colour();
      this.review();
    });
    pre.addEventListener("keydown", (event) => this.#key(event));

    this.status = element("span", { className: "live-state", role: "status" });
    this.reset = button("reset", () => this.#reset());
    this.toggle = button("stored", () => this.#show(!this.showsStored));
    this.reset.hidden = this.toggle.hidden = true;
    const row = element("div", { className: "live-row" });
    row.append(
      button("run", () => this.run(), "Shift+Enter"),
      button("run_to_here", () => run(cells.slice(0, this.index + 1))),
    );
    const solution = notebook[this.index + 1];
    if (this.tags.includes("exercise") && solution?.tags.includes("solution")) {
      this.lines = element("pre", { className: "live-difference", hidden: true, tabIndex: 0 });
      row.append(button("compare", () => this.#compare(solution.source)));
    }
    row.append(this.reset, this.toggle, this.status);
    const input = this.box.querySelector(".cell_input");
    this.output = this.box.querySelector(".cell_output");
    this.now = element("div", { className: "cell_output live-output", hidden: true });
    input.after(row);
    this.findings = element("div", { className: "live-findings", role: "status", hidden: true });
    this.findings.setAttribute("aria-label", words.review);
    row.after(this.findings);
    (this.output ?? row).after(this.now);
    if (this.lines) row.after(this.lines);

    const edit = stored(EDITS)[this.id];
    if (typeof edit === "string" && edit !== this.source) {
      pre.textContent = edit;
      this.#mark(true);
      this.#colour();
    }
    if (stored(SOLVED)[this.id]) this.#solved();
  }

  // ---- editing

  #key(event) {
    const { pre } = this;
    if (event.isComposing) return;
    if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.run();
      if (event.shiftKey)
        cells
          .slice(this.index + 1)
          .find((cell) => cell.visible)
          ?.pre.focus();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      this.leaving = true; // Tab then moves to the buttons
    } else if (event.key === "Tab" && !event.shiftKey && !this.leaving) {
      event.preventDefault();
      document.execCommand("insertText", false, "    ");
    } else if (event.key === "Enter") {
      event.preventDefault();
      const before = this.#before();
      const indent = before.match(/[^\n]*$/)[0].match(/^ */)[0];
      document.execCommand("insertText", false, `\n${indent}${/:\s*$/.test(before) ? "    " : ""}`);
    }
    if (!["Escape", "Tab", "Shift"].includes(event.key)) this.leaving = false;
    if (pre !== document.activeElement) this.leaving = false;
  }

  #before() {
    const caret = getSelection().getRangeAt(0);
    const range = document.createRange();
    range.selectNodeContents(this.pre);
    range.setEnd(caret.startContainer, caret.startOffset);
    return range.toString();
  }

  #changed() {
    const text = written(this.pre);
    this.#mark(text !== this.source);
    if (this.lines) this.lines.hidden = true;
    const edits = stored(EDITS);
    if (text === this.source) delete edits[this.id];
    else edits[this.id] = text;
    store(EDITS, edits);
  }

  #mark(edited) {
    this.pre.dataset.edited = edited;
    this.box.classList.toggle("live-edited", edited);
    this.reset.hidden = !edited;
  }

  async #colour() {
    if (!this.edited) return;
    const text = written(this.pre);
    const answer = await request(ask, "POST", { source: text }).catch(() => null);
    if (answer && written(this.pre) === text && document.activeElement !== this.pre)
      this.pre.innerHTML = answer.html;
  }

  // Show the findings of `helpers.review` below edited code; the server does not run it.
  // Skip exercises, because a finding may reveal the solution.
  async review() {
    if (!this.pre) return;
    const text = this.code.trimEnd(); // highlighting changes trailing line ends
    const asked = this.edited && !this.tags.includes("exercise");
    if (text === this.reviewed) return;
    this.reviewed = asked && text;
    if (!asked) this.findings.hidden = true;
    if (!asked) return;
    const before = cells.slice(0, this.index).map((cell) => cell.code);
    const answer = await request(ask, "POST", { review: text, before }).catch(() => null);
    if (!answer || this.reviewed !== text) return;
    this.findings.innerHTML = answer.html;
    this.findings.hidden = !answer.html.trim();
  }

  #reset() {
    this.pre.innerHTML = this.original;
    this.#changed();
    this.review();
    this.#show(true);
  }

  // ---- running

  get visible() {
    return Boolean(this.pre?.offsetParent);
  }

  // Run this cell; in a new kernel, first run the cells that it requires: hidden cells and
  // cells above the first section.
  async run() {
    await run(
      cells
        .slice(0, this.index)
        .filter((cell) => cell.needed && !cell.ran)
        .concat(this),
    );
  }

  get needed() {
    return !this.pre || !this.box.closest("section section");
  }

  forget() {
    this.ran = false;
    this.#report("");
  }

  wait(waits = true) {
    if (this.status && (waits || this.state === "waiting")) this.#report(waits ? "waiting" : "");
  }

  async execute() {
    const begin = performance.now();
    this.#report("busy");
    this.review();
    const result = await kernel.execute(this.code, (outputs) => this.#draw(outputs));
    this.ran = true;
    if (!this.pre) return result === "ok";
    const outputs = this.outputs ?? [];
    const { same } = (await this.#draw(outputs, true)) ?? {};
    this.outputs = null;
    const expected = this.tags.includes("raises-exception");
    const seconds = ((performance.now() - begin) / 1000).toFixed(1);
    if (result === "lost") this.#report("failed");
    else if (result === "error" && !(expected && same))
      this.#report(this.#needsOthers(outputs) ? "names" : "failed");
    else if (same || this.edited) this.#report("done", { seconds });
    else this.#report("differs", { seconds });
    if (this.lines && this.now.textContent.trim().startsWith("✓")) {
      store(SOLVED, { ...stored(SOLVED), [this.id]: true });
      this.#solved();
    }
    return result === "ok" || (result === "error" && expected);
  }

  #needsOthers(outputs) {
    const name = outputs.at(-1)?.ename === "NameError";
    return name && cells.slice(0, this.index).some((cell) => !cell.ran);
  }

  // Show the outputs so far, at most seven times per second, and always the final ones.
  async #draw(outputs, last = false) {
    this.outputs = outputs;
    if (!this.pre || (this.drawing && !last)) return null;
    this.turn = (this.turn ?? 0) + 1;
    const { turn } = this;
    this.drawing = true;
    if (!last) await new Promise((next) => setTimeout(next, 150));
    if (turn !== this.turn) return null;
    const shown = this.outputs.map(({ id, ...output }) => output);
    const answer = await request(ask, "POST", { cell: this.id, outputs: shown });
    if (turn !== this.turn) return null;
    this.drawing = false;
    this.now.innerHTML = answer.html;
    for (const script of this.now.querySelectorAll("script"))
      script.replaceWith(element("script", { textContent: script.textContent }));
    globalThis.bookFigures?.(this.now);
    this.#show(false);
    return answer;
  }

  #show(old) {
    this.showsStored = old;
    this.now.hidden = old;
    if (this.output) this.output.classList.toggle("live-hidden", !old);
    this.toggle.hidden = !this.now.innerHTML && !this.output;
    this.toggle.textContent = old ? words.new : words.stored;
    if (old && !this.edited) this.#report("");
  }

  #report(state, { seconds = "" } = {}) {
    this.state = state;
    if (!this.status) return;
    this.status.dataset.state = state;
    const text = state ? words[state] : "";
    this.status.textContent = text.replace("{seconds}", seconds);
  }

  // ---- exercises

  #solved() {
    this.box.classList.add("live-solved");
    this.box.dataset.solved = words.solved;
  }

  async #compare(solution) {
    if (!this.lines.hidden) {
      this.lines.hidden = true;
      return;
    }
    const { lines } = await request(ask, "POST", { source: this.code, solution });
    this.lines.replaceChildren(
      ...lines.flatMap(([sign, text]) => [
        element(sign === "+" ? "ins" : sign === "-" ? "del" : "span", {
          textContent: `${sign} ${text}`,
        }),
        "\n",
      ]),
    );
    this.lines.hidden = false;
  }
}

const cells = notebook.map((cell, index) => new Cell(cell, index));
for (const cell of cells) cell.review();

// ---- the bar

const bar = {
  status: element("span", { className: "live-kernel", role: "status" }),
  say(state) {
    this.status.dataset.state = state;
    this.status.textContent = words[state].replace("{device}", gpu ? "GPU" : "CPU");
  },
};
bar.say("ready");
const bottom = element("div", { className: "live-bar", role: "region" });
bottom.setAttribute("aria-label", words.bar);
bottom.append(
  bar.status,
  button("run_all", () => run(cells)),
  button("stop", () => {
    stopped = true;
    if (kernel.id) kernel.interrupt().catch(() => bar.say("unreachable"));
  }),
  button("restart", () => {
    stopped = true;
    bar.say("starting");
    const ended = kernel.stop();
    pending = pending.then(async () => {
      try {
        await ended;
        await started();
        bar.say("idle");
      } catch {
        bar.say("unreachable");
      }
    });
  }),
);
document.body.append(bottom);
addEventListener("pagehide", () => kernel.stop());
addEventListener("pageshow", ({ persisted }) => {
  if (!persisted) return;
  for (const cell of cells) cell.forget();
  bar.say("ready");
});
document.documentElement.dataset.live = "ready";
