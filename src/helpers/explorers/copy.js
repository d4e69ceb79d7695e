(() => {
  const { BookExplorer } = globalThis;
  const { quote } = BookExplorer;

  const words = {
    en: {
      because:
        "<code>.data</code> shares the storage and hides the write from autograd, so no error is raised.",
      title: "y.zero_(): an error, or a wrong gradient?",
      task: "find the one of the five that gives a wrong gradient and no error.",
      heads: ["y =", "s after<br><code>y.zero_()</code>", "gradient of x<br>(right: 0.25)"],
      run: "run",
      raises: "error",
      shares: (own) => (own ? "shares its storage with s" : "has a storage of its own"),
      grad: (tracked) => (tracked ? "and is part of the graph" : "and is cut off from the graph"),
      row: (y, shares, grad) => `${y} ${shares} ${grad}.`,
      ask: " What will zeroing y do to s and to the gradient? Press to run it.",
      right: " So s keeps its 0.5, and the gradient is right.",
      error:
        " Zeroing y zeroes s, which the backward pass of sigmoid needs: autograd raises " +
        "RuntimeError.",
      wrong:
        " Zeroing y zeroes s, autograd does not detect it, and the gradient is 0 instead of 0.25.",
    },
    zh: {
      because: "<code>.data</code> 共享存储，又不让 autograd 知道这次写入，所以不会报错。",
      title: "y.zero_()：报错，还是梯度出错？",
      task: "五种写法里有一种梯度错了却不报错，把它找出来。",
      heads: ["y =", "<code>y.zero_()</code><br>之后的 s", "x 的梯度<br>（正确值 0.25）"],
      run: "运行",
      raises: "报错",
      shares: (own) => (own ? "与 s 共享存储" : "有自己的存储"),
      grad: (tracked) => (tracked ? "并且在计算图里" : "并且与计算图断开"),
      row: (y, shares, grad) => `${y} ${shares}，${grad}。`,
      ask: "把 y 清零，s 和梯度会怎样？按一下运行。",
      right: "所以 s 仍是 0.5，梯度正确。",
      error: "y 清零，s 也成了零，而 sigmoid 的反向传播要用 s：autograd 报 RuntimeError。",
      wrong: "y 清零，s 也成了零，autograd 却检测不到，梯度是 0，而不是 0.25。",
    },
  };

  const style = `
    .ways { display: grid; gap: .2rem }
    .ways > * { display: grid; grid-template-columns: 1fr 4.8rem 5.4rem; gap: .3rem; width: 100%;
      padding: .2rem .5rem; align-items: center; text-align: center }
    .ways > * > :first-child { text-align: left }
    .heads { font-size: .8rem; color: var(--muted) }
    .heads code { font-size: 1em }
    .ways b { padding: .1rem; border-radius: .2rem }`;

  class CopyExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { at: 0, ran: 1 };
    }

    view({ at, ran }, rows, t) {
      const verdict = ({ outcome }) =>
        typeof outcome === "string" ? "error" : outcome === 0.25 ? "right" : "wrong";
      const look = { error: "hold", right: "good", wrong: "bad" };
      const line = (row, i) => {
        const known = (ran >> i) & 1;
        const shown = verdict(row);
        const result = shown === "error" ? t.raises : row.outcome;
        return `<button data-point="at=${i}" data-set="ran=${ran | (1 << i)}" data-part="way${i}">
          <code>${quote(row.code.slice(4)).replaceAll(".", "<wbr>.")}</code>
          <span>${known ? row.s : "?"}</span>
          ${known ? `<b class="${look[shown]}">${result}</b>` : `<span>${t.run} ▸</span>`}
          </button>`;
      };
      const row = rows[at];
      const name = `<code data-part="way${at}">${quote(row.code)}</code>`;
      const heads = t.heads.map((head) => `<span>${head}</span>`).join("");
      return {
        drawing: `<div class="ways"><div class="heads">${heads}</div>
          ${rows.map(line).join("")}</div>`,
        say:
          t.row(name, t.shares(row.shares), t.grad(row.requires_grad)) +
          ((ran >> at) & 1 ? t[verdict(row)] : t.ask),
        done: verdict(row) === "wrong" && (ran >> at) & 1,
      };
    }
  }

  BookExplorer.define("copy-explorer", CopyExplorer);
})();
