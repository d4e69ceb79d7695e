(() => {
  const { BookExplorer } = globalThis;
  const { choice, quote, range, select } = BookExplorer;

  const code = (text) => `<code>${quote(text)}</code>`;
  const words = {
    en: {
      because:
        "A trace repeats the operations of its one example; the exported program computes this result from the new input.",
      title: "Trace and export of the same code",
      task: "find a case in which the trace is silently wrong and an exported program is right.",
      rows: ["Python", "trace", "export", "export, any length"],
      made: (x) => `trace and export used one example: ${code(x)}`,
      code: "code",
      length: "length of x",
      sign: "sign",
      signs: ["positive", "negative"],
      python: (x, y) => `For ${x} the code returns ${y}.`,
      right: (name, y) => `${name} returns ${y}, as the code does.`,
      wrong: (name, y, want) =>
        `${name} returns ${y} without an error; the correct result is ${want}.`,
      raises: (name, text) => `${name} raises: ${text}`,
    },
    zh: {
      because: "追踪只会重复那一个示例的运算；导出的程序则根据新的输入来计算结果。",
      title: "同一段代码：追踪与导出",
      task: "找一种情形：追踪结果悄悄出错，而某个导出的程序正确。",
      rows: ["Python", "trace", "export", "export，任意长度"],
      made: (x) => `追踪和导出用的是同一个示例：${code(x)}`,
      code: "代码",
      length: "x 的长度",
      sign: "符号",
      signs: ["正", "负"],
      python: (x, y) => `输入 ${x}，代码的结果是 ${y}。`,
      right: (name, y) => `${name} 的结果是 ${y}，与代码一致。`,
      wrong: (name, y, want) => `${name} 的结果是 ${y}，不报错，而正确的结果是 ${want}。`,
      raises: (name, text) => `${name} 报错：${text}`,
    },
  };

  const style = `
    .answers { display: grid; gap: .2rem }
    .answers button { display: grid; grid-template-columns: 6.5rem 1fr; gap: .5rem;
      align-items: center; text-align: start; border-color: var(--line) }
    .answers [aria-current] { border: 2px solid var(--ink) }
    .answers code { font-size: .78rem }
    .drawing { min-height: 15rem }
    .select, .select select { width: 100% }`;

  const list = (values) => `[${values.join(", ")}]`;
  const same = (a, b) => typeof a !== "string" && list(a) === list(b);

  class TraceExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { f: 0, n: 2, s: 1, at: 1 };
    }

    view({ f, n, s, at }, data, t) {
      const x = data.inputs[n - 1][s];
      const answers = data.rows[f][n - 1][s];
      const [want] = answers;
      const look = (y) => (typeof y === "string" ? "free" : same(y, want) ? "good" : "bad");
      const shown = (y) => (typeof y === "string" ? quote(y) : list(y));
      const row = (y, i) => `<button class="${look(y)}" data-point="at=${i}" data-part="r${i}">
        <span>${t.rows[i]}</span>${code(typeof y === "string" ? y : list(y))}</button>`;
      const name = `<span data-part="r${at}">${t.rows[at]}</span>`;
      const now = answers[at];
      const right = (y) => same(y, want);
      const say = () => {
        if (at === 0) return t.python(list(x), list(want));
        if (typeof now === "string") return t.raises(name, code(now));
        return right(now) ? t.right(name, shown(now)) : t.wrong(name, shown(now), shown(want));
      };
      const wrong = typeof answers[1] !== "string" && !right(answers[1]);
      return {
        drawing: `<div class="title">${t.made("x = [1, 2]")}</div>
          <div class="answers">${answers.map(row).join("")}</div>`,
        controls:
          select("f", t.code, f, data.code) +
          range("n", t.length, n, 1, data.lengths.length, `x = ${list(x)}`) +
          choice("s", t.sign, s, t.signs),
        say: say(),
        done: wrong && (right(answers[2]) || right(answers[3])),
      };
    }
  }

  BookExplorer.define("trace-explorer", TraceExplorer);
})();
