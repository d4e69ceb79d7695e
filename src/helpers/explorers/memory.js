(() => {
  const { BookExplorer } = globalThis;
  const { check, choice, times } = BookExplorer;

  const words = {
    en: {
      because:
        "Activations are most of the memory here, and only activations shrink with the batch.",
      title: "How much does half the batch save?",
      task: "find a setting where half the batch needs less than 55 % of the memory.",
      parts: ["weights", "gradients", "optimizer", "activations"],
      batch: "batch",
      optimizer: "optimizer",
      half: "bfloat16 autocast",
      again: "checkpoints",
      bar: (batch, peak) => `batch ${batch}: ${peak} MiB`,
      takes: (batch, peak) => `Batch ${batch} has a peak of ${peak} MiB. `,
      saves: (batch, peak, share) =>
        `Batch ${batch} still takes ${peak}, <b>${share} %</b> of it. `,
      least: "A batch cannot be smaller. ",
      follow: (word, n) => `Only ${word} can shrink with the batch: here ${n} MiB.`,
    },
    zh: {
      because: "这里大部分显存是激活值，而只有激活值会随批量减小。",
      title: "批量减半，能省多少？",
      task: "找一种设置，让批量减半后的显存不到原来的 55%。",
      parts: ["权重", "梯度", "优化器", "激活值"],
      batch: "批量",
      optimizer: "优化器",
      half: "bfloat16 autocast",
      again: "激活检查点",
      bar: (batch, peak) => `批量 ${batch}：${peak} MiB`,
      takes: (batch, peak) => `批量为 ${batch} 时，峰值是 ${peak} MiB。`,
      saves: (batch, peak, share) => `减到 ${batch}，还要 ${peak} MiB，是原来的 <b>${share}%</b>。`,
      least: "批量不能再小了。",
      follow: (word, n) => `会随批量变小的只有${word}，这里是 ${n} MiB。`,
    },
  };

  const style = `
    .bars { display: grid; gap: 3px }
    .bars button { display: flex; align-items: center; gap: .4rem; min-height: 2rem;
      padding: 0 .3rem; text-align: start; font-variant-numeric: tabular-nums }
    .bars button > b { flex: 0 0 1.4rem; text-align: end }
    .bars button[aria-current] { border: 2px solid var(--held); padding: 0 calc(.3rem - 1px) }
    .bar { display: flex; flex: 1; gap: 1px }
    .bar i { height: 1.2rem }
    .bars small { flex: 0 0 2.3rem; text-align: end }
    .p0 { background: var(--held) }
    .p1 { background: var(--right) }
    .p2 { background: var(--wrong) }
    .p3 { outline: 1px solid var(--muted); outline-offset: -1px }
    .key { gap: .1rem .8rem; margin-bottom: .4rem; font-size: .85rem }
    .key i { display: inline-block; width: .8rem; height: .8rem; margin-inline-end: .3rem }`;

  class MemoryExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { at: 1, adam: 1, half: false, again: false };
    }

    view({ at, adam, half, again }, { batches, counted }, t) {
      const rows = counted[4 * adam + 2 * half + again];
      const most = Math.max(...counted.flat().map((row) => row[4]));
      const look = (part) => `class="p${part}${part === 3 ? " free" : ""}" data-part="p${part}"`;
      const piece = (n, part) =>
        n ? `<i ${look(part)} style="width: ${(100 * n) / most}%"></i>` : "";
      const bar = (row, i) =>
        `<button data-point="at=${i}" aria-label="${t.bar(batches[i], row[4])}">
        <b>${batches[i]}</b><span class="bar">${row.slice(0, 4).map(piece).join("")}</span>
        <small>${row[4]}</small></button>`;
      const key = t.parts.map(
        (word, p) => `<span data-part="p${p}"><i ${look(p)}></i>${word} ${rows[at][p]}</span>`,
      );
      const peak = rows[at][4];
      const share = at && Math.round((100 * rows[at - 1][4]) / peak);
      const word = `<span data-part="p3">${t.parts[3]}</span>`;
      return {
        drawing: `<div class="row key">${key.join("")}</div>
          <div class="title">${t.batch} → MiB</div>
          <div class="bars">${times(batches.length, (i) => bar(rows[i], i))}</div>`,
        controls:
          choice("adam", t.optimizer, adam, ["SGD", "Adam"]) +
          check("half", t.half, half) +
          check("again", t.again, again),
        say:
          t.takes(batches[at], peak) +
          (at ? t.saves(batches[at - 1], rows[at - 1][4], share) : t.least) +
          t.follow(word, rows[at][3]),
        done: at > 0 && rows[at - 1][4] < 0.55 * peak,
      };
    }
  }

  BookExplorer.define("memory-explorer", MemoryExplorer);
})();
