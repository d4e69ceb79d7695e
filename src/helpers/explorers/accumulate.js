(() => {
  const { BookExplorer } = globalThis;
  const { check, range, select, times } = BookExplorer;

  const words = {
    en: {
      because:
        "Each sample has the same weight, and the only all-reduce is after the last micro-batch.",
      title: "Is it the gradient of the whole batch?",
      task: "keep a last micro-batch of 1, correct the gradient, and average only once per step.",
      ranks: "ranks",
      parts: "micro-batches per rank",
      last: "last micro-batch",
      divide: "loss of a micro-batch",
      ways: ["mean / micro-batches per rank", "sum × ranks / all samples"],
      sync: "no_sync",
      rank: (r) => `rank ${r}`,
      reduce: "all-reduce",
      pair: "samples → weight",
      exact: "gradient of all samples",
      found: "accumulated gradient",
      piece: (k, r) => `Micro-batch ${k} of rank ${r}`,
      has: (name, size, n, weight) => `${name} has ${size} of ${n} samples and weighs ${weight}. `,
      meets: (k) => `The ranks average their gradients ${k === 1 ? "once" : `${k} times`} a step`,
      once: (k) => (k > 1 ? ", but once, after the last one, is enough." : "."),
    },
    zh: {
      because: "每个样本的权重相同，唯一一次 all-reduce 在最后一个微批之后。",
      title: "累积出来的，就是整批的梯度吗？",
      task: "最后一个微批保持 1 个样本，让梯度正确，并且每步只求一次平均。",
      ranks: "rank 数",
      parts: "每个 rank 的微批数",
      last: "最后一个微批",
      divide: "每个微批的损失",
      ways: ["平均 / 每个 rank 的微批数", "总和 × rank 数 / 样本总数"],
      sync: "no_sync",
      rank: (r) => `rank ${r}`,
      reduce: "all-reduce",
      pair: "样本数 → 权重",
      exact: "全部样本的梯度",
      found: "累积出来的梯度",
      piece: (k, r) => `rank ${r} 的第 ${k} 个微批`,
      has: (name, size, n, weight) => `${name}有 ${n} 个样本中的 ${size} 个，权重是 ${weight}。`,
      meets: (k) => `各个 rank 每步求 ${k} 次平均`,
      once: (k) => (k > 1 ? "，其实只要最后求一次。" : "。"),
    },
  };

  const style = `
    .time { display: grid; gap: 2px; align-items: stretch; min-height: 6.5rem;
      align-content: start; font-size: .8rem }
    .time > span { align-self: center }
    .time button { min-height: 2rem; padding: 0; overflow: hidden; font-size: .8rem }
    .time [aria-current] { border: 2px solid var(--held); font-weight: 700 }
    .time i { width: .5rem; border-radius: .2rem }
    .time .meet { background: var(--lit) }
    .legend::before { content: ""; display: inline-block; width: .5rem; height: .8rem;
      margin-inline-end: .3rem; background: var(--lit); border-radius: .2rem }
    dl { display: grid; grid-template-columns: 1fr auto }
    dd { text-align: right; font-weight: 650 }
    dd.wrong { color: var(--wrong) } dd.right { color: var(--right) }`;

  const minus = (n) => String(n).replace("-", "−");

  class AccumulateExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { ranks: 2, parts: 3, last: 1, way: 0, sync: false, at: 5 };
    }

    view({ ranks, parts, last, way, sync, at }, { most, rows }, t) {
      const [mostRanks, mostParts, size] = most;
      const found = rows[((ranks - 1) * mostParts + parts - 1) * size + last - 1];
      const pieces = ranks * parts;
      const n = size * (pieces - 1) + last;
      const sizes = Array.from({ length: pieces }, (_, k) => (k === pieces - 1 ? last : size));
      const weight = (k) => (way ? `${sizes[k]}/${n}` : `1/${pieces}`);
      const fair = (k) => way || sizes[k] * pieces === n;
      const chosen = Math.min(at, pieces - 1);
      const name = (k) => t.piece((k % parts) + 1, Math.floor(k / parts));
      const box = (k) => `<button class="${fair(k) ? "good" : "bad"}" data-point="at=${k}"
        aria-label="${name(k)}: ${sizes[k]}/${n}, ${weight(k)}">
        ${sizes[k]} → ${weight(k)}</button>`;
      const meets = (j) => ranks > 1 && (!sync || j === parts - 1);
      const row = (r) =>
        `<span>${t.rank(r)}</span>` +
        times(parts, (j) => `${box(r * parts + j)}<i class="${meets(j) ? "meet" : ""}"></i>`);
      const averages = ranks > 1 ? (sync ? 1 : parts) : 0;
      const right = found[1 + way] === found[0];
      const columns = `auto repeat(${parts}, minmax(0, 1fr) auto)`;
      return {
        drawing: `<div class="title"><span class="legend">${t.reduce}</span> · ${t.pair}</div>
          <div class="time" style="grid-template-columns: ${columns}">${times(ranks, row)}</div>
          <dl><dt>${t.exact}</dt><dd>${minus(found[0])}</dd><dt>${t.found}</dt>
          <dd class="${right ? "right" : "wrong"}">${minus(found[1 + way])}</dd></dl>`,
        controls:
          range("ranks", t.ranks, ranks, 1, mostRanks) +
          range("parts", t.parts, parts, 1, mostParts) +
          range("last", t.last, last, 1, size) +
          check("sync", t.sync, sync) +
          select("way", t.divide, way, t.ways),
        say:
          t.has(name(chosen), sizes[chosen], n, weight(chosen)) +
          (averages ? t.meets(averages) + t.once(averages) : ""),
        done: last === 1 && pieces > 1 && right && averages === 1,
      };
    }
  }

  BookExplorer.define("accumulate-explorer", AccumulateExplorer);
})();
