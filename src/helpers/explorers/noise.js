(() => {
  const { BookExplorer } = globalThis;
  const { choice, range } = BookExplorer;

  const words = {
    en: {
      because:
        "Alpha-bar is about e to the power of minus the sum of the betas: 50 steps need larger betas than 1000.",
      title: "Does the schedule end in noise?",
      task: "with 50 steps, end with less than 1% of the data's variance.",
      legend: "noisy data, and the standard normal (dashed) from which sampling starts",
      picture: (percent) => `distribution of data of which ${percent} is left`,
      steps: "number of steps",
      last: "last beta",
      at: "after",
      said: (n, all, percent) =>
        `After ${n} of ${all} steps, ${percent} of the data's variance is left. `,
      end: "The noisy data are close to the standard normal, so sampling can start from it.",
      early: "Sampling would start from <b>another distribution</b> than the model was trained on.",
      more: "The forward process has not ended yet.",
    },
    zh: {
      because: "ᾱ 约等于 e 的负“β 之和”次方：50 步需要比 1000 步更大的 β。",
      title: "这个噪声表最后只剩噪声吗？",
      task: "用 50 步，最后剩下的数据方差不到 1%。",
      legend: "加噪后的数据，以及采样的起点：标准正态分布（虚线）",
      picture: (percent) => `数据的方差还剩 ${percent} 时的分布`,
      steps: "步数",
      last: "最后一个 β",
      at: "已加噪",
      said: (n, all, percent) => `${all} 步走到第 ${n} 步，数据的方差还剩 ${percent}。`,
      end: "加噪后的数据接近标准正态分布，可以从它开始采样。",
      early: "采样的起点与模型训练时见过的<b>分布不同</b>。",
      more: "前向过程还没有结束。",
    },
  };

  const style = `
    .drawing svg { max-height: 15rem }
    svg * { vector-effect: non-scaling-stroke }
    path { fill: none; stroke-width: 2px }
    .data { fill: color-mix(in srgb, var(--held) 25%, transparent); stroke: var(--held) }
    .normal { stroke: var(--ink); stroke-dasharray: 6 4 }
    .axis { stroke: var(--line) }
    svg text { font-size: .28px; text-anchor: middle }`;

  const normal = (x, mean, variance) =>
    Math.exp(-((x - mean) ** 2) / (2 * variance)) / Math.sqrt(2 * Math.PI * variance);
  const ends = 3.2;
  const curve = (density) => {
    const points = [];
    for (let i = -64; i <= 64; i++)
      points.push(
        `${((i * ends) / 64).toFixed(3)} ${(-1.8 * density((i * ends) / 64)).toFixed(4)}`,
      );
    return `M${points.join("L")}`;
  };

  class NoiseExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { steps: 0, last: 0, at: 10 };
    }

    view({ steps, last, at }, data, t) {
      const left = data.left[steps][last][at];
      const variance = left * data.std ** 2 + 1 - left;
      const noisy = (x) =>
        data.centres.reduce(
          (sum, c, i) => sum + data.weights[i] * normal(x, Math.sqrt(left) * c, variance),
          0,
        );
      const all = data.steps[steps];
      const now = (at * all) / 10;
      const small = left < 0.0001 ? "0.01" : `${+(100 * left).toPrecision(2)}`;
      const percent = `${left < 0.0001 ? "< " : ""}${small} %`;
      const ticks = [-2, -1, 0, 1, 2].map(
        (x) => `<text x="${x}" y=".35">${String(x).replace("-", "−")}</text>`,
      );
      const index = (values) => ({ ...values });
      return {
        drawing: `<div class="title">${t.legend}</div>
          <svg viewBox="${-ends} -2 ${2 * ends} 2.5" role="img"
          aria-label="${t.picture(percent)}"><path class="axis" d="M${-ends} 0H${ends}"/>
          <path class="data" d="${curve(noisy)}"/>
          <path class="normal" d="${curve((x) => normal(x, 0, 1))}"/>${ticks.join("")}</svg>`,
        controls:
          range("at", t.at, at, 0, 10, `${now} / ${all}`) +
          choice("steps", t.steps, steps, index(data.steps)) +
          choice("last", t.last, last, index(data.last)),
        say: t.said(now, all, percent) + (at < 10 ? t.more : left < 0.01 ? t.end : t.early),
        done: all === 50 && at === 10 && left < 0.01,
      };
    }
  }

  BookExplorer.define("noise-explorer", NoiseExplorer);
})();
