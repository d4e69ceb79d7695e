(() => {
  const { BookExplorer } = globalThis;
  const { check } = BookExplorer;

  const words = {
    en: {
      because:
        "The mean of means weighs each batch alike, so both agree if the batches count the same weight.",
      title: 'What does "mean" divide by?',
      task: "make both means agree, with a sample left out.",
      weights: (w) => `class weights ${w.join(", ")}`,
      batch: (b) => `batch ${b}`,
      sample: (i, c) => `sample ${i}, class ${c}`,
      times: (w) => `, weight ${w}`,
      ignored: "ignored",
      together: "mean of all",
      means: "mean of the batches’ means",
      plain: "loss.mean() of the vector",
      said: (n, a, b) =>
        `"mean" divides by ${n}, the samples that count; the mean of means divides by ${a} and ` +
        `by ${b}, then by 2.`,
      heavy: (n, a, b) =>
        `"mean" divides by ${n}, the weights of the samples that count; the mean of means by ` +
        `${a} and by ${b}, then by 2.`,
      none: " Where nothing counts, 0 / 0 is nan.",
    },
    zh: {
      because: "均值的均值对每个批一视同仁，所以两批计入的权重相同时，两种平均才一致。",
      title: '"mean" 除以的是什么？',
      task: "忽略至少一个样本，并让两种平均一致。",
      weights: (w) => `类别权重 ${w.join("、")}`,
      batch: (b) => `小批量 ${b}`,
      sample: (i, c) => `样本 ${i}，类别 ${c}`,
      times: (w) => `，权重 ${w}`,
      ignored: "已忽略",
      together: "全体的平均",
      means: "各批平均的平均",
      plain: "对向量取 loss.mean()",
      said: (n, a, b) =>
        `"mean" 除以 ${n}，即计入的样本数；各批平均的平均则先分别除以 ${a} 和 ${b}，再除以 2。`,
      heavy: (n, a, b) =>
        `"mean" 除以 ${n}，即计入样本的权重之和；各批平均的平均则先分别除以 ${a} 和 ${b}，再除以 2。`,
      none: "没有样本计入时，0 / 0 得 nan。",
    },
  };

  const style = `
    .batches { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr));
      gap: 0 1rem }
    .batches button { display: flex; flex-wrap: wrap; gap: 0 .5rem; width: 100%;
      margin-bottom: .2rem; padding: .2rem .5rem; justify-content: space-between }
    .batches [aria-pressed=false] { border-style: dashed; color: var(--muted) }
    .bar { flex: 0 0 100%; height: .5rem }
    .bar i { display: block; height: 100%; background: var(--held); border-radius: .25rem }
    table { width: 100%; margin-top: .2rem; border-collapse: collapse }
    th { padding: 0; font-weight: normal; text-align: left }
    td { padding: 0 0 0 .5rem; text-align: right }
    .differ td:last-child { font-weight: 700; color: var(--wrong) }
    .said { min-height: 2.8em }`;

  class MeanExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { kept: 0b1101, heavy: false };
    }

    view({ kept, heavy }, { labels, weights, rows }, t) {
      const { each, sum, divisor, mean, plain, halves, means } = rows[+heavy][kept];
      const longest = Math.max(...rows.flat().flatMap((row) => row.each.map(Number)));
      const sample = (i) => {
        const on = (kept >> i) & 1;
        const name = t.sample(i + 1, labels[i]) + (heavy ? t.times(weights[labels[i]]) : "");
        return `<button data-set="kept=${kept ^ (1 << i)}" aria-pressed="${Boolean(on)}"
          data-part="${on ? `all b${i >> 1}` : ""}"><span>${name}</span>
          <b>${on ? each[i] : t.ignored}</b><span class="bar" aria-hidden="true"><i
          style="width: ${(100 * each[i]) / longest}%"></i></span></button>`;
      };
      const batch = (b) =>
        `<div><div class="title">${t.batch("AB"[b])}</div>` +
        `${sample(2 * b)}${sample(2 * b + 1)}</div>`;
      const part = (name, text) => `<span data-part="${name}">${text}</span>`;
      const share = (b) => `${halves[b].sum} / ${part(`b${b}`, halves[b].divisor)}`;
      const row = (name, how, value) =>
        `<tr${value === mean ? "" : ' class="differ"'}><th scope="row">${name}</th>
        <td>${how}</td><td>${value}</td></tr>`;
      const told = [divisor, halves[0].divisor, halves[1].divisor].map((n, i) =>
        part(["all", "b0", "b1"][i], n),
      );
      return {
        drawing: `<div class="batches">${batch(0)}${batch(1)}</div><table>
          ${row(t.together, `${sum} / ${part("all", divisor)}`, mean)}
          ${row(t.means, `(${share(0)} + ${share(1)}) / 2`, means)}
          ${row(t.plain, `${sum} / 4`, plain)}</table>`,
        controls: check("heavy", t.weights(weights), heavy),
        say: (heavy ? t.heavy : t.said)(...told) + (means === "nan" ? t.none : ""),
        done: kept !== 15 && mean === means && mean !== "nan",
      };
    }
  }

  BookExplorer.define("mean-explorer", MeanExplorer);
})();
