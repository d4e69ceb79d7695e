(() => {
  const { BookExplorer } = globalThis;
  const { check, quote, select, times } = BookExplorer;

  const words = {
    en: {
      because:
        "Packing ends each sentence at its own length, and the final states of both directions have read all of it.",
      title: "Which words does the vector of a sentence depend on?",
      task: "make each vector depend on its own sentence in both directions, and on nothing else.",
      texts: [
        ["what", "a", "film"],
        ["it", "was", "not", "so", "bad"],
        ["well", "done"],
      ],
      pad: "pad",
      both: "bidirectional=True",
      packed: "packed",
      way: "vector",
      legend: "→ forward · ← backward · orange: wrong, or missing",
      row: (n, good) => `vector of sentence ${n}: ${good ? "right" : "wrong"}`,
      half: (name, own, length, pads, others) => {
        const extra = [
          pads ? `${pads} of padding` : "",
          others ? `${others} of the other sentences` : "",
        ];
        const more = extra.filter(Boolean).join(" and ");
        return `${name} ${own} of ${length} words${more ? `, and ${more}` : ""}`;
      },
      names: ["→ depends on", "← depends on"],
      single: "It depends on",
      between: "; ",
      end: ".",
      of: (n) => `Vector of sentence ${n}: `,
      error: "IndexError: one direction and one layer have a single state, so there is no h[-2].",
    },
    zh: {
      because: "打包之后，每个句子在自己的长度处结束；两个方向的最终状态都读完了整句。",
      title: "句子的向量依赖哪些词？",
      task: "让每个向量从两个方向依赖自己的整个句子，不依赖别的。",
      texts: [
        ["真", "好", "看"],
        ["其", "实", "还", "不", "错"],
        ["佳", "作"],
      ],
      pad: "填充",
      both: "bidirectional=True",
      packed: "打包",
      way: "向量",
      legend: "→ 正向 · ← 反向 · 橙色：不该有的，或缺少的",
      row: (n, good) => `句子 ${n} 的向量：${good ? "对" : "不对"}`,
      half: (name, own, length, pads, others) => {
        const extra = [pads ? ` ${pads} 步填充` : "", others ? `别的句子的 ${others} 个词` : ""];
        const more = extra.filter(Boolean).join("和");
        return `${name} ${length} 个词中的 ${own} 个${more ? `，还有${more}` : ""}`;
      },
      names: ["→ 依赖", "← 依赖"],
      single: "依赖",
      between: "；",
      end: "。",
      of: (n) => `句子 ${n} 的向量：`,
      error: "IndexError：只有一个方向、一层时，状态只有一个，没有 h[-2]。",
    },
  };

  const style = `
    .batch { display: grid; grid-template-columns: 3.4rem repeat(5, minmax(0, 1fr)); gap: 3px;
      max-width: 34rem }
    .batch button { min-height: 2.75rem; padding: 0; font-size: .9rem }
    .batch [aria-current] { border: 2px solid var(--held); font-weight: 650 }
    .word { display: flex; flex-direction: column; align-items: center; justify-content: center;
      min-height: 2.75rem; border: 1px solid var(--line); border-radius: .3rem; line-height: 1.15;
      font-size: clamp(.72rem, 3.6cqi, .9rem) }
    .word.pad { color: var(--muted); font-style: italic }
    .word b { font-size: .8rem; min-height: 1em }
    .select { flex: 1 1 14rem } .select select { width: 100%; font: .85rem var(--mono) }
    .check span { font: .85rem var(--mono) }`;

  class ReadsExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { both: true, packed: false, way: 0, row: 0 };
    }

    view({ both, packed, way, row }, { lengths, ways, read }, t) {
      const size = Math.max(...lengths);
      const table = read[2 * Number(both) + Number(packed)][way];
      const halves = both ? [0, 1] : [0];
      // In a bidirectional LSTM, the last state h[-1] is the backward one.
      const part = (n, half) => table?.[n][half - (halves.length - table[n].length)];
      const seen = (n, half, m, l) => part(n, half)?.[m * size + l] === "1";
      const own = (n, m, l) => n === m && l < lengths[m];
      const wrong = (n, m, l) => halves.some((half) => seen(n, half, m, l) !== own(n, m, l));
      const steps = lengths.flatMap((_, m) => [...Array(size).keys()].map((l) => [m, l]));
      const good = lengths.map((_, n) => table !== null && !steps.some((at) => wrong(n, ...at)));
      const arrows = (m, l) =>
        halves
          .filter((half) => seen(row, half, m, l))
          .map((half) => "→←"[half])
          .join(" ");
      const cell = (m) => (l) => {
        const inside = l < lengths[m];
        const mark = table && wrong(row, m, l) ? " bad" : arrows(m, l) ? " hold" : "";
        return `<div data-point="row=${m}" class="word${inside ? "" : " pad"}${mark}"><span>${
          inside ? t.texts[m][l] : t.pad
        }</span><b>${table ? arrows(m, l) : ""}</b></div>`;
      };
      const line = (n) =>
        `<button data-point="row=${n}" aria-label="${t.row(n, good[n])}">${n} ${
          good[n] ? "✓" : "✗"
        }</button>${times(size, cell(n))}`;
      const count = (half) => {
        const all = steps.filter((at) => seen(row, half, ...at));
        const mine = all.filter(([m, l]) => own(row, m, l)).length;
        const pads = all.filter(([m, l]) => l >= lengths[m]).length;
        const name = halves.length > 1 ? t.names[half] : t.single;
        return t.half(name, mine, lengths[row], pads, all.length - mine - pads);
      };
      const parts = halves.map((half) => `<b>${count(half)}</b>`);
      return {
        drawing: `<div class="batch">${lengths.map((_, n) => line(n)).join("")}</div>
          <div class="title">${t.legend}</div>`,
        controls:
          check("both", t.both, both) +
          check("packed", t.packed, packed) +
          select("way", t.way, way, ways.map(quote)),
        say: table ? `${t.of(row)}${parts.join(t.between)}${t.end}` : t.error,
        done: both && good.every(Boolean),
      };
    }
  }

  BookExplorer.define("reads-explorer", ReadsExplorer);
})();
