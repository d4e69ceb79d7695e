(() => {
  const { BookExplorer } = globalThis;

  const words = {
    en: {
      object: "What you have",
      move: "What you call on it",
      run: "Run",
      seen: "Looked at",
      before: "before",
      after: "after",
      returned: "The call returns",
      fix: "Write instead",
      kinds: {
        tensor: "a tensor",
        parameter: "a bare parameter",
        module: "a module",
        buffer: "a module with a buffer",
        attribute: "a module with a plain tensor attribute",
        list: "a module with a Python list of layers",
        optimizer: "an optimizer after its first step",
      },
      moves: { ".float()": ".float() (nothing to do)" },
      back: { same: "the same object", new: "a new object" },
      says: {
        nothing: "Nothing to do: it is float32 on the CPU already. No copy is made.",
        assign:
          "Not moved. The result is a new tensor; the name still means the old one. " +
          "Assign the result.",
        leaf:
          "Not moved, and the result is no parameter: an optimizer refuses it. " +
          "Convert first, then wrap.",
        "in place":
          "Moved in place: the parameter is the same object as before, only its data changed.",
        rebound:
          "Moved. The module holds a new tensor under the same name; " +
          "a reference taken earlier still means the old one.",
        replaced:
          "Moved, but meta gives the module new parameters; a move to a GPU keeps them. " +
          "Build the optimizer afterwards.",
        missed: "Left behind: the module does not know about it.",
        "missed optimizer":
          "Left behind: the module does not know its optimizer. " +
          "Move first, then build the optimizer.",
      },
    },
    zh: {
      object: "手里的对象",
      move: "调用什么",
      run: "运行",
      seen: "观察",
      before: "之前",
      after: "之后",
      returned: "调用返回",
      fix: "应该这样写",
      kinds: {
        tensor: "张量",
        parameter: "单独的参数",
        module: "模块",
        buffer: "带缓冲区的模块",
        attribute: "以普通张量为属性的模块",
        list: "用 Python 列表存层的模块",
        optimizer: "走过一步的优化器",
      },
      moves: { ".float()": ".float()（无事可做）" },
      back: { same: "同一个对象", new: "新的对象" },
      says: {
        nothing: "无事可做：它本来就是 CPU 上的 float32。没有复制。",
        assign: "没有移动。结果是新的张量，原来的名字仍指旧张量。要把结果赋值回去。",
        leaf: "没有移动，而且结果不再是参数，优化器不接受它。先转换，再包成参数。",
        "in place": "原地移动：参数还是原来那个对象，只是换了数据。",
        rebound: "移动了。模块在同一个名字下换了新的张量；之前取走的引用仍指旧张量。",
        replaced: "移动了，但 meta 会给模块换上新的参数；移到 GPU 则不会。优化器要在移动之后构造。",
        missed: "留在原处：模块不知道有它。",
        "missed optimizer": "留在原处：模块不认识自己的优化器。先移动，再构造优化器。",
      },
    },
  };

  const style = `
    .bar { display: flex; flex-wrap: wrap; gap: .6rem 1rem }
    label { flex: 1 1 13rem; min-width: 0 }
    select { width: 100% }
    .title { margin: .8rem 0 .2rem }
    pre { margin: 0; padding-left: .7rem; font: .875rem monospace; white-space: pre-wrap;
      overflow-wrap: anywhere; border-left: 3px solid var(--held) }
    dl { margin: .8rem 0 }`;

  class MoveExplorer extends BookExplorer {
    static words = words;
    static style = style;

    build(rows) {
      const t = this.words;
      const { quote } = BookExplorer;
      const select = (key, label, named) => {
        const values = [...new Set(rows.map((row) => row[key]))];
        const options = values.map(
          (value) => `<option value="${quote(value)}">${quote(named[value] ?? value)}</option>`,
        );
        return `<label>${label}<select>${options.join("")}</select></label>`;
      };
      const pickers = select("kind", t.object, t.kinds) + select("move", t.move, t.moves);
      const find = this.fill(`<div class="bar">${pickers}</div><div aria-live="polite"></div>`);
      const [kind, move] = this.shadowRoot.querySelectorAll("select");
      const code = (label, text) => `<div class="title">${label}</div><pre>${quote(text)}</pre>`;
      const show = () => {
        const row = rows.find((r) => r.kind === kind.value && r.move === move.value);
        const verdict = t.says[`${row.outcome} ${row.kind}`] ?? t.says[row.outcome];
        const facts = BookExplorer.facts([
          [t.seen, row.watch],
          [t.before, row.before],
          [t.after, row.after],
          [t.returned, t.back[row.returned]],
        ]);
        find("[aria-live]").innerHTML =
          `${code(t.run, row.code)}<dl>${facts}</dl><strong>${quote(verdict)}</strong>` +
          (row.fix ? code(t.fix, row.fix) : "");
      };
      this.addEventListener("input", show);
      show();
    }
  }

  BookExplorer.define("move-explorer", MoveExplorer);
})();
