(() => {
  if (customElements.get("move-explorer")) return;
  const WORDS = {
    en: {
      object: "What you have", move: "What you call on it", run: "Run", seen: "Looked at", before: "before", after: "after", returned: "The call returns", fix: "Write instead",
      kinds: { tensor: "a tensor", parameter: "a bare parameter", module: "a module", buffer: "a module with a buffer", attribute: "a module with a plain tensor attribute", list: "a module with a Python list of layers", optimizer: "an optimizer after its first step" },
      moves: { ".float()": ".float() (nothing to do)" },
      back: { same: "the same object", new: "a new object" },
      says: {
        "nothing": "Nothing to do: it is float32 on the CPU already. No copy is made.",
        "assign": "Not moved. The result is a new tensor; the name still means the old one. Assign the result.",
        "leaf": "Not moved, and the result is no parameter: an optimizer refuses it. Convert first, then wrap.",
        "in place": "Moved in place: the parameter is the same object as before, only its data changed.",
        "rebound": "Moved. The module holds a new tensor under the same name; a reference taken earlier still means the old one.",
        "replaced": "Moved, but meta gives the module new parameters; a move to a GPU keeps them. Build the optimizer afterwards.",
        "missed": "Left behind: the module does not know about it.",
        "missed optimizer": "Left behind: the module does not know its optimizer. Move first, then build the optimizer.",
      },
    },
    zh: {
      object: "手里的对象", move: "调用什么", run: "运行", seen: "观察", before: "之前", after: "之后", returned: "调用返回", fix: "应该这样写",
      kinds: { tensor: "张量", parameter: "单独的参数", module: "模块", buffer: "带缓冲区的模块", attribute: "以普通张量为属性的模块", list: "用 Python 列表存层的模块", optimizer: "走过一步的优化器" },
      moves: { ".float()": ".float()（无事可做）" },
      back: { same: "同一个对象", new: "新的对象" },
      says: {
        "nothing": "无事可做：它本来就是 CPU 上的 float32。没有复制。",
        "assign": "没有移动。结果是新的张量，原来的名字仍指旧张量。要把结果赋值回去。",
        "leaf": "没有移动，而且结果不再是参数，优化器不接受它。先转换，再包成参数。",
        "in place": "原地移动：参数还是原来那个对象，只是换了数据。",
        "rebound": "移动了。模块在同一个名字下换了新的张量；之前取走的引用仍指旧张量。",
        "replaced": "移动了，但 meta 会给模块换上新的参数；移到 GPU 则不会。优化器要在移动之后构造。",
        "missed": "留在原处：模块不知道有它。",
        "missed optimizer": "留在原处：模块不认识自己的优化器。先移动，再构造优化器。",
      },
    },
  };
  const escape = (s) => s.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);
  customElements.define("move-explorer", class extends HTMLElement {
    connectedCallback() {
      if (this.shadowRoot) return;
      const root = this.attachShadow({ mode: "open" });
      const lang = (this.getAttribute("lang") || document.documentElement.lang || navigator.language || "en").slice(0, 2);
      const t = WORDS[lang] || WORDS.en, rows = JSON.parse(this.getAttribute("data"));
      const id = "move-" + Math.random().toString(36).slice(2);
      const pick = (key) => [...new Set(rows.map((r) => r[key]))];
      const select = (key, label, words) => `<div style="flex:1 1 13rem;min-width:0"><label for="${id}-${key}" style="display:block">${label}</label><select id="${id}-${key}" style="font-size:1rem;width:100%">${pick(key).map((v) => `<option value="${escape(v).replace(/"/g, "&quot;")}">${escape(words[v] || v)}</option>`).join("")}</select></div>`;
      this.style.cssText = "display:block;max-width:40rem;margin:1rem 0;padding:1rem;border:1px solid var(--pst-color-border,#999);border-radius:.5rem";
      root.innerHTML = `<div style="display:flex;flex-wrap:wrap;gap:.6rem 1rem">${select("kind", t.object, t.kinds)}${select("move", t.move, t.moves)}</div><div aria-live="polite"></div>`;
      const [kind, move] = root.querySelectorAll("select"), out = root.lastElementChild;
      const code = (label, text) => `<div style="margin:.8rem 0 .2rem">${label}</div><div style="font-family:monospace;font-size:.875rem;white-space:pre-wrap;overflow-wrap:anywhere;padding-left:.7rem;border-left:3px solid var(--pst-color-primary,#0a7d91)">${escape(text)}</div>`;
      const show = () => {
        const r = rows.find((row) => row.kind === kind.value && row.move === move.value);
        const say = t.says[`${r.outcome} ${r.kind}`] || t.says[r.outcome];
        const facts = [[t.seen, r.watch], [t.before, r.before], [t.after, r.after], [t.returned, t.back[r.returned]]];
        out.innerHTML = code(t.run, r.code) +
          `<dl style="display:grid;grid-template-columns:minmax(6rem,auto) 1fr;gap:.25rem 1rem;margin:.8rem 0">${facts.map(([k, v]) => `<dt style="font-weight:normal;margin:0">${k}</dt><dd style="margin:0;font-weight:600;overflow-wrap:anywhere">${escape(v)}</dd>`).join("")}</dl>` +
          `<strong>${escape(say)}</strong>` + (r.fix ? code(t.fix, r.fix) : "");
      };
      kind.addEventListener("input", show);
      move.addEventListener("input", show);
      show();
    }
  });
})();
