(() => {
  const { BookExplorer } = globalThis;
  const { choice, range, times } = BookExplorer;

  const words = {
    en: {
      because:
        "In <code>eval()</code> the output does not depend on the batch, and after enough steps the running statistics are those of the data.",
      title: "Same sample, different batches",
      task: "give the sample one output in all batches, within 0.2 of the dashed line.",
      batch: "batch, the sample in blue",
      out: "its output",
      mode: "mode",
      size: "batch size",
      steps: "training steps before",
      row: (i) => `batch ${i}`,
      train: (i, m, v, out, low, high) =>
        `Batch ${i} has mean ${m} and variance ${v}, so the output is ${out}. ` +
        `In the seven batches, the output of the same sample is between ${low} and ${high}.`,
      eval: (k, m, v, out) =>
        `After ${k} ${k === 1 ? "step" : "steps"} the running mean is ${m}, ` +
        `the running variance ${v}: the output is ${out} in every batch. `,
      far: (all) => `With the mean and variance of all data it would be ${all}.`,
      near: (all) => `With all data it would be ${all}.`,
    },
    zh: {
      because:
        "在 <code>eval()</code> 下输出与批无关；步数足够多之后，滑动统计量就接近全部数据的统计量。",
      title: "样本没变，换了同批的其他样本",
      task: "让样本在每一批里输出都相同，与虚线相差不超过 0.2。",
      batch: "小批量，蓝点是这个样本",
      out: "它的输出",
      mode: "模式",
      size: "批量大小",
      steps: "此前训练的步数",
      row: (i) => `第 ${i} 批`,
      train: (i, m, v, out, low, high) =>
        `第 ${i} 批的均值是 ${m}，方差是 ${v}，输出是 ${out}。` +
        `在这七批里，同一个样本的输出在 ${low} 到 ${high} 之间。`,
      eval: (k, m, v, out) =>
        `训练 ${k} 步后，滑动均值是 ${m}，滑动方差是 ${v}：在每一批里输出都是 ${out}。`,
      far: (all) => `如果用全部数据的均值和方差，输出应是 ${all}。`,
      near: (all) => `用全部数据，输出是 ${all}。`,
    },
  };

  const style = `
    .drawing svg { max-height: 18rem; max-width: 28rem; margin: auto }
    .axis { stroke: var(--line) } .goal { stroke: var(--right); stroke-width: 2px;
      stroke-dasharray: 5 4 }
    .near { fill: var(--muted); fill-opacity: .55 } .sample { fill: var(--held) }
    .mean { stroke: var(--wrong); stroke-width: 2px }
    [role=button] { cursor: pointer; outline: none }
    [role=button] rect { fill: transparent }
    [aria-current] rect { fill: color-mix(in srgb, var(--held) 15%, transparent) }
    [role=button]:focus-visible rect { stroke: var(--held); stroke-width: 3px }`;

  const minus = (n) => String(n).replace("-", "−");
  const HIGH = 30;

  class NormExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { mode: "train", size: 1, step: 0, draw: 0 };
    }

    view({ mode, size, step, draw }, { sizes, steps, rows, all }, t) {
      const { batches, train, eval: running } = rows[size];
      const training = mode === "train";
      const found = (i) => (training ? train[i] : running[step]);
      const left = (x) => 30 + Math.max(0, Math.min(11, x)) * 15;
      const right = (y) => 254 + y * 15;
      const bottom = 24 + HIGH * batches.length;
      const line = (x, name) => `<path class="${name}" d="M${x} 22V${bottom}"/>`;
      const label = (x, text) =>
        `<text x="${x}" y="${bottom + 14}" text-anchor="middle">${text}</text>`;
      const row = (batch, i) => {
        const y = 24 + HIGH * (i + 0.5);
        const { mean, out } = found(i);
        const near = batch
          .slice(1)
          .map((x) => `<circle class="near" cx="${left(x)}" cy="${y}" r="4"/>`);
        return `<g role="button" data-point="draw=${i}" aria-label="${t.row(i + 1)}: ${minus(out)}">
          <rect x="1" y="${y - HIGH / 2}" width="358" height="${HIGH}"/>
          <text x="6" y="${y + 4}">${i + 1}</text>${near.join("")}
          <path class="mean" data-part="mean" d="M${left(mean)} ${y - 9}v18"/>
          <circle class="sample" cx="${left(batch[0])}" cy="${y}" r="5"/>
          <g data-part="out"><circle class="sample" cx="${right(out)}" cy="${y}" r="5"/></g></g>`;
      };
      const { mean, var: v, out } = found(draw);
      const outs = train.map((one) => one.out);
      const part = (name, value) => `<span data-part="${name}">${minus(value)}</span>`;
      const near = Math.abs(out - all) <= 0.2;
      return {
        drawing: `<svg viewBox="0 0 360 ${bottom + 18}" role="group" aria-label="${t.title}">
          <text x="24" y="14">${t.batch}</text>
          <text x="350" y="14" text-anchor="end">${t.out}</text>
          ${[0, 5, 10].map((x) => line(left(x), "axis") + label(left(x), x)).join("")}
          ${[0, 3, 6].map((y) => line(right(y), "axis") + label(right(y), y)).join("")}
          ${line(right(all), "goal")}${times(batches.length, (i) => row(batches[i], i))}</svg>`,
        controls:
          choice("mode", t.mode, mode, { train: "train()", eval: "eval()" }) +
          range("size", t.size, size, 0, sizes.length - 1, sizes[size]) +
          range("step", t.steps, step, 0, steps.length - 1, steps[step]),
        say: training
          ? t.train(
              draw + 1,
              part("mean", mean),
              v,
              part("out", out),
              minus(Math.min(...outs)),
              minus(Math.max(...outs)),
            )
          : t.eval(steps[step], part("mean", mean), v, part("out", out)) +
            (near ? t.near : t.far)(all),
        done: !training && near,
      };
    }
  }

  BookExplorer.define("norm-explorer", NormExplorer);
})();
