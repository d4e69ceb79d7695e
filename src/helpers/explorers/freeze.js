(() => {
  const { BookExplorer } = globalThis;
  const { check } = BookExplorer;

  const words = {
    en: {
      because:
        "An optimizer skips a parameter whose gradient is <code>None</code>, and in <code>eval()</code> the statistics are not updated.",
      title: "Frozen, and it still changes",
      task: "let only the head change, with the backbone in the optimizer.",
      heads: ["backbone", "before → after", "grad"],
      head: "head",
      switches: [
        "requires_grad_(False)",
        "eval()",
        "in the optimizer",
        "weight_decay=0.1",
        "zeros left in grad",
      ],
      changed: (name) => `${name} changes. `,
      same: (name) => `${name} does not change. `,
      forward:
        "It is a buffer: the forward pass in <code>train()</code> updates it, not the optimizer.",
      held: "In <code>eval()</code> the forward pass does not change this buffer.",
      unknown: "The optimizer does not contain it, whatever its gradient is.",
      none: "Its gradient is <code>None</code>, so the optimizer skips it, including its decay.",
      pulled:
        "Its gradient is not <code>None</code> but zeros of an earlier step: the optimizer " +
        "updates it, and weight decay shrinks it.",
      zero:
        "Its gradient is zeros of an earlier step, without decay: an update of 0, in SGD " +
        "without momentum.",
      follows: "It has a gradient, and the optimizer updates it.",
    },
    zh: {
      because:
        "梯度为 <code>None</code> 的参数会被优化器跳过；在 <code>eval()</code> 下，统计量也不更新。",
      title: "冻结了，却还在变",
      task: "主干仍在优化器里，让这一步只改变分类头。",
      heads: ["主干", "之前 → 之后", "grad"],
      head: "分类头",
      switches: [
        "requires_grad_(False)",
        "eval()",
        "在优化器里",
        "weight_decay=0.1",
        "grad 里留着零",
      ],
      changed: (name) => `${name} 变了。`,
      same: (name) => `${name} 没有变。`,
      forward: "它是缓冲区，改变它的是 <code>train()</code> 下的前向传播，不是优化器。",
      held: "在 <code>eval()</code> 下，前向传播不改这个缓冲区。",
      unknown: "它不在优化器里，梯度是什么都无所谓。",
      none: "它的梯度是 <code>None</code>，优化器会跳过它，连权重衰减也不做。",
      pulled:
        "它的梯度不是 <code>None</code>，而是先前一步留下的零：优化器照样更新，权重衰减使它缩小。",
      zero: "它的梯度是先前一步留下的零，又没有权重衰减，不带动量的 SGD 这一步的更新量就是 0。",
      follows: "它有梯度，优化器就照着更新。",
    },
  };

  const style = `
    .drawing button, .heads { display: grid; width: 100%; gap: .3rem; align-items: center;
      grid-template-columns: minmax(0, 1fr) 6.9rem 2.7rem; text-align: left; padding: 0 .25rem }
    .drawing button { min-height: 1.7rem; margin-bottom: 2px; border-color: var(--line) }
    .drawing span:not(:first-child), .drawing button { font-size: .8rem; white-space: nowrap }
    .drawing code { white-space: normal; font-size: clamp(.75rem, 2cqi, .875rem) }
    .drawing [aria-current] { border: 2px solid var(--ink) }
    .controls { gap: 0 .9rem } .check span { font-size: .85rem }`;

  const minus = (n) => String(n).replaceAll("-", "−");

  class FreezeExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { frozen: true, evaluation: false, given: true, decay: true, zeros: true, at: 0 };
    }

    view(state, { switches, names, before, parameters, rows }, t) {
      const { at, given, decay } = state;
      const row = rows[switches.reduce((n, key) => 2 * n + Number(state[key]), 0)];
      const head = (name) => name.startsWith("head");
      const line = (name, i) => {
        const mark = row.changed[i] ? (head(name) ? "good" : "bad") : "";
        const arrow = row.changed[i] ? `${before[i]}→${row.after[i]}` : before[i];
        return `<button class="${mark}" data-point="at=${i}" data-part="row${i}">
          <code>${name}</code> <span>${minus(arrow)}</span>
          <span>${parameters[i] ? minus(row.grad[i]) : "–"}</span></button>`;
      };
      const heads = (first) =>
        `<div class="heads title"><span>${first}</span>
          ${t.heads
            .slice(1)
            .map((one) => `<span>${one}</span>`)
            .join("")}</div>`;
      const grad = row.grad[at];
      const why = () => {
        if (!parameters[at]) return row.changed[at] ? "forward" : "held";
        if (!given && !head(names[at])) return "unknown";
        if (grad === "None") return "none";
        if (grad) return "follows";
        return decay ? "pulled" : "zero";
      };
      const name = `<code data-part="row${at}">${names[at]}</code>`;
      const first = names.findIndex(head);
      const lines = names.map(line);
      return {
        drawing: `${heads(t.heads[0])}${lines.slice(0, first).join("")}
          <div class="title">${t.head}</div>${lines.slice(first).join("")}`,
        controls: switches.map((key, i) => check(key, t.switches[i], state[key])).join(""),
        say: (row.changed[at] ? t.changed : t.same)(name) + t[why()],
        done: given && names.every((one, i) => Boolean(row.changed[i]) === head(one)),
      };
    }
  }

  BookExplorer.define("freeze-explorer", FreezeExplorer);
})();
