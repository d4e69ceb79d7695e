(() => {
  const { BookExplorer } = globalThis;
  const { quote } = BookExplorer;

  const words = {
    en: {
      because:
        "An optimizer contains the parameters that existed when it was built; new ones are not updated.",
      title: "What moves, what stays behind?",
      task: "select the cell where a module gets new parameters, which its optimizer does not contain.",
      what: "you have",
      kinds: {
        tensor: "tensor",
        parameter: "bare parameter",
        module: "module",
        buffer: "its buffer",
        attribute: "its plain tensor",
        list: "its list of layers",
        optimizer: "its optimizer",
      },
      marks: {
        nothing: "there",
        assign: "a copy",
        leaf: "a copy",
        "in place": "moved",
        rebound: "new tensor",
        replaced: "new param.",
        missed: "left",
      },
      instead: "Write instead:",
      seen: (watch, before, after) => `${watch}: ${before} → ${after}. `,
      says: {
        nothing: "Already on the device, so no copy is made.",
        assign: "The result is a new tensor; the name still refers to the old one.",
        leaf: "The result is a new tensor and no leaf: an optimizer raises an error for it.",
        "in place": "Moved: the parameter is the same object, only its data changed.",
        rebound: "Moved: the module has a new tensor; an earlier reference is to the old one.",
        replaced: "Moved, but meta gives the module new parameters; a move to a GPU keeps them.",
        missed: "Not moved: the module does not register it.",
        "missed optimizer": "Not moved: the module has no reference to its optimizer.",
      },
    },
    zh: {
      because: "优化器里是构建时已有的参数，之后换上的新参数不会被更新。",
      title: "什么会移动，什么留在原处？",
      task: "点出给模块换上新参数的那一格：之前构造的优化器更新不到新参数。",
      what: "手里的对象",
      kinds: {
        tensor: "张量",
        parameter: "单独的参数",
        module: "模块",
        buffer: "模块的缓冲区",
        attribute: "模块的普通张量",
        list: "模块的层列表",
        optimizer: "模块的优化器",
      },
      marks: {
        nothing: "已在",
        assign: "副本",
        leaf: "副本",
        "in place": "移动",
        rebound: "新张量",
        replaced: "新参数",
        missed: "留下",
      },
      instead: "应该这样写：",
      seen: (watch, before, after) => `${watch}：${before} → ${after}。`,
      says: {
        nothing: "已经在目标设备上，所以不复制。",
        assign: "结果是新的张量，原来的名字仍指旧张量。",
        leaf: "结果是新的张量，不是叶子张量：传给优化器会报错。",
        "in place": "移动了：参数还是原来的对象，只是换了数据。",
        rebound: "移动了：模块换上新的张量，之前取走的引用仍指旧张量。",
        replaced: "移动了，但 meta 会给模块换上新的参数；移到 GPU 则不会。",
        missed: "留在原处：模块没有注册它。",
        "missed optimizer": "留在原处：模块没有引用自己的优化器。",
      },
    },
  };

  const style = `
    .kinds { display: grid; gap: 3px; max-width: 34rem;
      grid-template-columns: minmax(min-content, 1fr) repeat(3, minmax(3.4rem, 4.6rem));
      align-items: center; font-size: .85rem; line-height: 1.2 }
    .kinds > code { font-size: .75rem; text-align: center }
    .kinds button { min-height: 2.1rem; padding: 0 }
    .kinds [aria-current] { outline: 2px solid var(--held); font-weight: 700 }
    .fix { min-height: 6.4rem }
    pre { font-size: .8rem; line-height: 1.35; border-left: 3px solid var(--held);
      padding-left: .5rem }
    .said { min-height: 5.6em }`;

  const look = { nothing: "free", "in place": "good", rebound: "good" };

  class MoveExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start(rows) {
      return { at: rows.findIndex((row) => row.kind === "list"), pressed: -1 };
    }

    view({ at, pressed }, rows, t) {
      const moves = [...new Set(rows.map((row) => row.move))];
      const heads = moves
        .map((move) => `<code>${quote(move).replace("(", "(<wbr>")}</code>`)
        .join("");
      const cell = (row) => {
        const i = rows.indexOf(row);
        const label = `${t.kinds[row.kind]}, ${quote(row.move)}: ${t.marks[row.outcome]}`;
        return `<button class="${look[row.outcome] ?? "bad"}" data-point="at=${i}"
          data-set="pressed=${i}" aria-label="${label}">${t.marks[row.outcome]}</button>`;
      };
      const line = (kind) =>
        `<span data-part="${kind}">${t.kinds[kind]}</span>` +
        rows
          .filter((row) => row.kind === kind)
          .map(cell)
          .join("");
      const row = rows[at];
      const code = (text) => `<pre>${quote(text)}</pre>`;
      const watch = `<code data-part="${row.kind}">${quote(row.watch)}</code>`;
      return {
        drawing:
          `<div class="kinds"><span class="title">${t.what}</span>${heads}` +
          `${Object.keys(t.kinds).map(line).join("")}</div><div class="fix">` +
          `<div class="title">${row.fix ? t.instead : "\u00a0"}</div>` +
          `${code(row.fix || row.code)}</div>`,
        say:
          t.seen(watch, quote(row.before), quote(row.after)) +
          (t.says[`${row.outcome} ${row.kind}`] ?? t.says[row.outcome]),
        done: rows[pressed]?.outcome === "replaced",
      };
    }
  }

  BookExplorer.define("move-explorer", MoveExplorer);
})();
