(() => {
  const { BookExplorer } = globalThis;
  const { range, times } = BookExplorer;

  const words = {
    en: {
      because: "The temperature flattens the probabilities before top-p cuts their sum.",
      title: "“The sea is …”: which words can be sampled?",
      task: "with top-k off, keep three words, the first with a probability below 50%.",
      next: ["calm", "blue", "rough", "cold", "loud", "asleep", "early", "cheese"],
      legend: "bar: probability · line: at temperature 1 · hatched: cut",
      temperature: "temperature",
      off: "off",
      cut: "cut",
      row: (word, now) => `${word}: ${now}`,
      left: (n, all) => `${n} of ${all} words ${n === 1 ? "remains" : "remain"}. `,
      kept: (word, one, now) =>
        `${word} has a probability of ${one} at temperature 1, and is sampled with ${now}.`,
      gone: (word, one, warm, why) =>
        `${word} has a probability of ${one} at temperature 1, ${warm} at this one, and is cut by ${why}.`,
    },
    zh: {
      because: "温度先把概率拉平，top-p 再按累积概率截断。",
      title: "“大海很……”：能采样到哪些词？",
      task: "关掉 top-k，留下三个词，并且第一个词的概率不到 50%。",
      next: ["平静", "蓝", "汹涌", "冷", "吵", "困", "早", "奶酪"],
      legend: "条：采样概率 · 竖线：温度为 1 时 · 斜线：被截掉",
      temperature: "温度",
      off: "关",
      cut: "被截掉",
      row: (word, now) => `${word}：${now}`,
      left: (n, all) => `${all} 个词剩下 ${n} 个。`,
      kept: (word, one, now) => `“${word}”在温度为 1 时的概率是 ${one}，现在的采样概率是 ${now}。`,
      gone: (word, one, warm, why) =>
        `“${word}”在温度为 1 时的概率是 ${one}，现在是 ${warm}，被 ${why} 截掉。`,
    },
  };

  const style = `
    .bars { display: grid; gap: 2px }
    .bars button { display: grid; grid-template-columns: 4rem 1fr 4rem; gap: .5rem;
      align-items: center; min-height: 1.75rem; padding: 0 .3rem; font-size: .9rem;
      border-color: transparent; text-align: start }
    .bars [aria-current] { border-color: var(--muted) }
    .track { position: relative; height: 1.1rem; border-inline-start: 1px solid var(--line) }
    .track span { position: absolute; inset: 0 auto 0 0; border: 1px solid var(--held) }
    .track .free { border: 1px dashed var(--wrong) }
    .track .one { inset: -.15rem auto -.15rem 0; border: 0;
      border-inline-end: 2px solid var(--ink) }
    .bars output { text-align: end }`;

  class SamplingExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start({ chances, temperatures }) {
      return { t: temperatures.length - 1, k: chances[0].length, p: 8, at: chances[0].length - 2 };
    }

    view({ t, k, p, at }, data, w) {
      const { temperatures, chances } = data;
      const warm = chances[t];
      const plain = chances[temperatures.indexOf(1)];
      const all = warm.length;
      const kept = data.kept[t][k - 1][p];
      const sum = warm.slice(0, kept).reduce((a, b) => a + b, 0);
      const now = (i) => (i < kept ? warm[i] / sum : 0);
      const percent = (x) => `${(100 * x).toFixed(1)} %`;
      const shown = (i) => (i < kept ? percent(now(i)) : w.cut);
      const bar = (look, x) =>
        `<span class="${look}" style="width:${(100 * x).toFixed(2)}%"></span>`;
      const row = (i) => `<button data-point="at=${i}" data-part="w${i}"
        aria-label="${w.row(w.next[i], shown(i))}"><span>${w.next[i]}</span><span class="track">
        ${i < kept ? bar("hold", now(i)) : bar("free", warm[i])}${bar("one", plain[i])}</span>
        <output>${shown(i)}</output></button>`;
      const name = `<span data-part="w${at}">${w.next[at]}</span>`;
      const last = data.p.length - 1;
      return {
        drawing: `<div class="title">${w.legend}</div><div class="bars">${times(all, row)}</div>`,
        controls:
          range("t", w.temperature, t, 0, temperatures.length - 1, temperatures[t]) +
          range("k", "top-k", k, 1, all, k === all ? w.off : k) +
          range("p", "top-p", p, 0, last, p === last ? w.off : data.p[p]),
        say:
          w.left(kept, all) +
          (at < kept
            ? w.kept(name, percent(plain[at]), percent(now(at)))
            : w.gone(name, percent(plain[at]), percent(warm[at]), at < k ? "top-p" : "top-k")),
        done: k === all && kept === 3 && now(0) < 0.5,
      };
    }
  }

  BookExplorer.define("sampling-explorer", SamplingExplorer);
})();
