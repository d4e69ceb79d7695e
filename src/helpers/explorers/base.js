// Base element of all explorers, with instructions for writing one.
//
// `<name>.py` computes the numbers and returns Explorer("<name>", payload, fallback, lang).
// `<name>.js` draws them. The element's state determines everything that it shows:
//
//   (() => {
//     const { BookExplorer } = globalThis;
//     const { check, choice, range, steps } = BookExplorer; // controls, as HTML
//     const words = { en: { title: "…", task: "…", said: (n) => `…` }, zh: { … } };
//     class NameExplorer extends BookExplorer {
//       static words = words; // the frame shows title and task, and `because` once it is done
//       static style = "";    // CSS of the drawing
//       start(data) { return { n: 3 }; } // initial state; choose a surprising one
//       view({ n }, data, t) {           // called after each change; t: words of the language
//         return {
//           drawing: "…", // HTML or inline SVG
//           controls: range("n", t.samples, n, 1, 9),
//           say: t.said(n), // HTML sentence on the drawing; screen readers announce changes
//           done: n === 7,  // true while the state solves the task
//           task: "…",      // only if it depends on the data, like `because`
//         };
//       }
//     }
//     BookExplorer.define("name-explorer", NameExplorer);
//   })();
//
// Attributes define the behaviour of elements in this HTML:
//   data-key="n"     on <input> and <select>: its value (or checked) becomes state n
//   data-set="n=3"   on <button>: a click sets state n, or several: "n=3&m=2"
//   data-point="n=3" on a <button>, or an SVG <g role="button">: hover, touch, focus set state n;
//                    Tab reaches one of a drawing's, arrows, Home and End go to the others;
//                    it needs a name (text or aria-label); on other elements, pointer only
//   data-part="w"    links words to the drawing: pointing at one lights up all that have this part
//                    (several: "w v"); words in the sentence can be reached by Tab
// A task that stays solved for a second is stored by the book's page until the reset.
// Numbers in the state have type number; escape all text from the data with `quote`.
// Colours: --ink --muted --line --paper --held (what is chosen) --wrong --right --lit; classes:
// `hold`, `bad`, `good` fill with them, `free` is hatched, `title` is a small heading, `row` wraps.
// Order: title, task, drawing, sentence, controls. With two rows of controls the drawing may be
// 18rem high on a phone of 375 × 667; give it a min-height, so that controls do not jump.
globalThis.BookExplorer ??= class BookExplorer extends HTMLElement {
  static frame = `
    :host { display: block; max-width: 44rem; margin: 1rem 0;
      --ink: var(--pst-color-text-base, light-dark(#1f2530, #d5dae3));
      --muted: var(--pst-color-text-muted, light-dark(#4d586a, #a5aebd));
      --line: var(--pst-color-border, light-dark(#c4cad4, #4a5364));
      --paper: var(--pst-color-background, light-dark(#fff, #12151c));
      --held: var(--pst-color-primary, light-dark(#2856c8, #8fb3ff));
      --wrong: light-dark(#b3360b, #ff9d6b); --right: light-dark(#1a7437, #63d08b);
      --lit: light-dark(#8a3ffc, #d4a8ff);
      --mono: var(--pst-font-family-monospace, ui-monospace, Menlo, monospace) }
    * { box-sizing: border-box; margin: 0 }
    section { container-type: inline-size; padding: .7rem .8rem .8rem; line-height: 1.4;
      color: var(--ink); background: var(--paper); border: 1px solid var(--line);
      border-radius: .5rem; font-variant-numeric: tabular-nums }
    header { display: flex; gap: .5rem; align-items: center; justify-content: space-between;
      font-weight: 650 }
    .task b { color: var(--held) } .task:not(.open) b { color: var(--right) }
    .because { padding: .3rem .6rem; border-left: 3px solid var(--right) }
    .drawing, .controls, .said, .because { margin-top: .5rem }
    .controls:empty, .because:empty { display: none }
    .drawing svg { display: block; width: 100%; overflow: visible; font-size: .8rem }
    .controls { display: flex; flex-wrap: wrap; gap: .6rem .8rem; align-items: end }
    .said { min-height: 4.2em }
    .said [data-part] { font-weight: 650; cursor: default; border-radius: .2rem;
      text-decoration: underline dotted; text-underline-offset: .2em }
    .title { margin: .3rem 0 .15rem }
    .row, .choice { display: flex; flex-wrap: wrap; gap: .3rem }
    .row { align-items: center }
    .hold { --kind: var(--held) } .bad { --kind: var(--wrong) } .good { --kind: var(--right) }
    .hold, .bad, .good { background: color-mix(in srgb, var(--kind) 25%, var(--paper));
      box-shadow: inset 0 0 0 1px var(--kind) }
    .free { background: repeating-linear-gradient(135deg, transparent 0 6px,
      color-mix(in srgb, var(--ink) 16%, transparent) 6px 7px) }
    svg :is(.hold, .bad, .good) { fill: var(--kind); fill-opacity: .25; stroke: var(--kind) }
    svg text { fill: currentColor }
    small { font-size: max(.75rem, .83em) }
    code, pre { font: max(.75rem, .875em)/1.4 var(--mono); overflow-wrap: anywhere; white-space: pre-wrap;
      padding: 0; color: inherit; background: none }
    button, select, .choice span { min-height: 2.75rem; padding: .2rem .7rem; font: inherit;
      color: inherit; background: none; border: 1px solid var(--muted); border-radius: .3rem }
    button, .choice input { cursor: pointer; touch-action: manipulation }
    button[aria-disabled=true] { opacity: .5; cursor: default }
    select { max-width: 100%; background: var(--paper) }
    button:hover, .choice label:hover span { border-color: var(--held) }
    :focus-visible, input:focus-visible + span { outline: 3px solid var(--held);
      outline-offset: 2px }
    input, label, fieldset { min-width: 0 } input { accent-color: var(--held) }
    .range { flex: 1 1 8rem }
    .range input { display: block; width: 100%; height: 2.75rem }
    .check { display: flex; gap: .5rem; align-items: center; min-height: 2.75rem }
    .check input { flex: none; width: 1.25rem; height: 1.25rem }
    .choice, .choice legend { padding: 0; border: 0 }
    .title, .select, .choice legend { font-size: .85rem; color: var(--muted) }
    .select select { display: block; font-size: 1rem; color: var(--ink) }
    .choice label { position: relative; max-width: 100% }
    .choice input { position: absolute; z-index: 1; inset: 0; opacity: 0; width: 100%;
      height: 100% }
    .choice span { display: flex; align-items: center; justify-content: center }
    .choice :checked + span { color: var(--paper); background: var(--held);
      border-color: var(--held) }
    .steps { display: flex; flex: 1 1 100%; gap: .5rem; align-items: end }
    .steps button { min-width: 2.75rem }
    .unseen { position: absolute; width: 1px; height: 1px; overflow: hidden;
      clip-path: inset(50%); white-space: nowrap }`;
  static style = "";
  static common = {
    en: {
      reset: "Reset",
      open: "Task: ",
      stored: "✓ Task: ",
      done: "✓ Done: ",
      back: "Back",
      next: "Next",
    },
    zh: {
      reset: "重置",
      open: "任务：",
      stored: "✓ 任务：",
      done: "✓ 完成：",
      back: "上一步",
      next: "下一步",
    },
  };

  static define(name, element) {
    if (!customElements.get(name)) customElements.define(name, element);
  }

  // Parse "n=3&m=a" to [["n", 3], ["m", "a"]].
  static pairs(text) {
    return [...new URLSearchParams(text)].map(([key, value]) => [key, BookExplorer.number(value)]);
  }

  static number(text) {
    return text === "" || Number.isNaN(+text) ? text : +text;
  }

  static quote(text) {
    return String(text).replace(/[&<>"]/g, (character) => `&#${character.charCodeAt()};`);
  }

  // Return f(0) … f(n - 1), joined to one string.
  static times(n, f) {
    return Array.from({ length: n }, (_, i) => f(i)).join("");
  }

  // Return a control as HTML, from state key, label, current value and possible values.
  static range(key, label, value, low, high, text = value) {
    return `<label class="range">${label} <b>${text}</b><input type="range" data-key="${key}"
      min="${low}" max="${high}" value="${value}" aria-valuetext="${text}"></label>`;
  }

  static check(key, label, on) {
    return `<label class="check"><input type="checkbox" data-key="${key}"${on ? " checked" : ""}>
      <span>${label}</span></label>`;
  }

  // `options`: label of each value, as an object or an array.
  static choice(key, label, value, options) {
    const one = ([v, text]) => `<label><input type="radio" name="${key}" data-key="${key}"
      value="${v}"${v === String(value) ? " checked" : ""}><span>${text}</span></label>`;
    const all = Object.entries(options).map(one).join("");
    return `<fieldset class="choice"><legend>${label}</legend>${all}</fieldset>`;
  }

  static select(key, label, value, options) {
    const one = ([v, text]) =>
      `<option value="${v}"${v === String(value) ? " selected" : ""}>${text}</option>`;
    return `<label class="select">${label}<select data-key="${key}">${Object.entries(options)
      .map(one)
      .join("")}</select></label>`;
  }

  // Return a back button, a slider from 0 to `last`, and a next button; `text` labels the value.
  static steps(key, value, last, text, t) {
    const go = (to, name, sign) =>
      `<button data-set="${key}=${Math.min(last, Math.max(0, to))}" aria-label="${name}"` +
      ` aria-disabled="${to < 0 || to > last}">${sign}</button>`;
    const slider = BookExplorer.range(key, "", value, 0, last, text);
    const [back, next] = [go(value - 1, t.back, "◀"), go(value + 1, t.next, "▶")];
    return `<div class="steps">${back}${slider}${next}</div>`;
  }

  // Update `now` to equal `want` node by node, so that focus and hover are preserved.
  static morph(now, want) {
    if (now.nodeName !== want.nodeName) return now.replaceWith(want);
    if (now.nodeType !== 1) {
      if (now.data !== want.data) now.data = want.data;
      return;
    }
    for (const { name } of [...now.attributes])
      if (!want.hasAttribute(name)) now.removeAttribute(name);
    for (const { name, value } of want.attributes)
      if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    const [old, kids] = [[...now.childNodes], [...want.childNodes]];
    old.forEach((kid, i) => {
      if (kids[i]) BookExplorer.morph(kid, kids[i]);
      else kid.remove();
    });
    now.append(...kids.slice(old.length));
    if (now.localName === "input") now.checked = want.checked;
    if (now.value !== want.value) now.value = want.value;
  }

  connectedCallback() {
    if (this.shadowRoot) return;
    const language = this.lang || document.documentElement.lang || navigator.language;
    const { common, frame, style, words } = this.constructor;
    const lang = /^zh/i.test(language) ? "zh" : "en";
    this.words = { ...common[lang], ...words[lang] };
    this.lang ||= lang;
    const look = getComputedStyle(this);
    if (!look.getPropertyValue("--pst-color-primary")) {
      // Outside the book's site: use the dark theme if the surrounding text is light.
      const bright = (look.color.match(/[\d.]+/g) ?? []).slice(0, 3).reduce((a, b) => a + +b, 0);
      this.style.colorScheme = bright > 380 ? "dark" : "light";
    }
    this.attachShadow({
      mode: "open",
    }).innerHTML = `<style>${frame}${style}</style><style></style><section></section>`;
    this.data = JSON.parse(this.getAttribute("data"));
    this.listen();
    this.reset();
    this.tell();
  }

  // Tell the page to store `kept`; the page sets it when the element is new (detail: undefined).
  tell(detail) {
    this.kept = detail;
    this.dispatchEvent(new CustomEvent("explored", { bubbles: true, detail }));
  }

  reset() {
    this.state = this.start(this.data);
    this.show();
  }

  set(change) {
    if (Object.entries(change).every(([key, value]) => this.state[key] === value)) return;
    Object.assign(this.state, change);
    this.show();
  }

  show() {
    const { words: t, shadowRoot: root } = this;
    const {
      drawing,
      controls = "",
      say,
      done,
      task = t.task,
      because: why = t.because ?? "",
      title = t.title,
    } = this.view(this.state, this.data, t);
    clearTimeout(this.pause);
    if (done) this.pause = setTimeout(() => this.tell(true), 1000); // a slider passes through
    const look = done ? "done" : this.kept ? "stored" : "open";
    const page = document.createElement("template");
    const html =
      `<section role="group" aria-labelledby="name">` +
      `<header><span id="name">${title}</span>` +
      `<button data-reset title="${t.reset}" aria-label="${t.reset}">↺</button></header>` +
      `<p class="task ${look}"><b>${t[look]}</b>${task}</p>` +
      `<div class="drawing">${drawing}</div>` +
      `<p class="said" aria-live="polite" aria-atomic="true">${say}` +
      `<span class="unseen">${done ? ` ${t.done}${task} ${why}` : ""}</span></p>` +
      `<div class="controls">${controls}</div><p class="because">${done ? why : ""}</p></section>`;
    // Keep a number and its unit on one line.
    page.innerHTML = html.replace(/(\d(?:<\/\w+>)?) (?=%|[KMG]i?B\b)/g, "$1\u00a0");
    // For each key, choose the element with its value, or the last one if there are fewer.
    const chosen = {};
    for (const node of page.content.querySelectorAll(":is(button, [role=button])[data-point]")) {
      const [[key, value]] = BookExplorer.pairs(node.dataset.point);
      node.setAttribute("tabindex", -1);
      if (chosen[key]?.[0] !== this.state[key]) chosen[key] = [value, node];
    }
    for (const [, node] of Object.values(chosen)) {
      node.setAttribute("tabindex", 0);
      node.setAttribute("aria-current", "true");
    }
    for (const word of page.content.querySelectorAll(".said [data-part]")) {
      word.tabIndex = 0;
      word.setAttribute("role", "note"); // of the part that it lights up
    }
    BookExplorer.morph(root.querySelector("section"), page.content.firstChild);
  }

  listen() {
    const { shadowRoot: root } = this;
    const on = (event, act) => root.addEventListener(event, act);
    const near = (event, name) => event.target.closest?.(`[data-${name}]`);
    const change = (text) => this.set(Object.fromEntries(BookExplorer.pairs(text)));
    const point = (event) => {
      const node = near(event, "point");
      if (node) change(node.dataset.point);
    };
    on("input", ({ target: { dataset, type, checked, value } }) => {
      if (dataset.key)
        this.set({ [dataset.key]: type === "checkbox" ? checked : BookExplorer.number(value) });
    });
    on("keydown", (event) => {
      const node = near(event, "point");
      const next = node && this.neighbour(node, event.key);
      if (!next) return;
      event.preventDefault();
      next.focus();
    });

    // Highlight words and drawing by a CSS rule, which persists when the drawing changes.
    const rule = root.querySelectorAll("style")[1];
    const light = (node) => {
      const parts = (node?.dataset.part ?? "").split(" ").filter(Boolean);
      const all = parts.map((part) => `[data-part~="${CSS.escape(part)}"]`).join();
      rule.textContent =
        all &&
        `:is(${all}) { outline: 3px solid var(--lit); outline-offset: 1px }
        svg :is(${all}), svg :is(${all}) :is(rect, circle, path) { stroke: var(--lit);
          stroke-width: 4px; outline: none }
        svg text:is(${all}) { stroke: none; fill: var(--lit); font-weight: 700 }`;
    };
    const focused = () => root.activeElement?.closest("[data-part]");
    on("click", (event) => {
      point(event);
      const [part, button] = [near(event, "part"), near(event, "set")];
      const control = button ?? near(event, "point");
      // After a tap, only words stay highlighted.
      if (part) light(control && event.pointerType === "touch" ? null : part);
      if (button && button.getAttribute("aria-disabled") !== "true") change(button.dataset.set);
      if (!near(event, "reset")) return;
      this.tell(false);
      this.reset();
    });
    on("pointerover", (event) => {
      point(event);
      light(near(event, "part") ?? focused());
    });
    on("focusin", (event) => {
      point(event);
      light(near(event, "part"));
    });
    on("focusout", () => light(null));
    this.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") light(focused());
    });
  }

  // Return the target of an arrow key: the next element of the same state key, or the nearest
  // element above or below.
  neighbour(node, key) {
    const [[name]] = BookExplorer.pairs(node.dataset.point);
    const all = [...this.shadowRoot.querySelectorAll(`[tabindex][data-point^="${name}="]`)];
    const i = all.indexOf(node);
    const along = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: all.length - 1 }[key];
    if (along !== undefined) return all[along] ?? node;
    const sign = { ArrowUp: -1, ArrowDown: 1 }[key];
    if (!sign) return null;
    const place = (one) => {
      const { x, y, width, height } = one.getBoundingClientRect();
      return [x + width / 2, (y + height / 2) * sign, height / 2];
    };
    const [x, y, half] = place(node);
    const far = (one) => Math.abs(place(one)[0] - x) + 1000 * place(one)[1];
    const beyond = all.filter((one) => place(one)[1] > y + half);
    return beyond.sort((a, b) => far(a) - far(b))[0] ?? node;
  }
};
