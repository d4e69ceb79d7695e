(() => {
  const { BookExplorer } = globalThis;
  const { choice, range, times } = BookExplorer;

  const words = {
    en: {
      because:
        "The minimum takes the unclipped term if it is smaller: a move against the advantage is corrected.",
      title: "When does PPO's clip remove the gradient?",
      task: "with a positive advantage, find a ratio outside 0.8 to 1.2 whose gradient is not 0.",
      drawing: "objective over the ratio · dashed: ratio · A · shaded: not clipped",
      advantage: "advantage A",
      ratio: "ratio",
      said: (r, a, value) =>
        `At ratio ${r} with A = ${a} the objective is <b data-part="value">${value}</b>. `,
      flat: "It is clipped: the gradient is <b>0</b>, and this sample is not trained.",
      slope: (g) => `Its gradient in the ratio is <b>${g}</b>: this sample is trained.`,
    },
    zh: {
      because: "取最小值时，如果未裁剪的一项更小，就用它：与优势方向相反的变化会得到纠正。",
      title: "PPO 的裁剪什么时候去掉梯度？",
      task: "让优势为正，找一个在 0.8 到 1.2 之外、梯度不为 0 的比值。",
      drawing: "目标函数随比值的变化 · 虚线：比值 · A · 阴影：不裁剪",
      advantage: "优势 A",
      ratio: "比值",
      said: (r, a, value) =>
        `比值为 ${r}、A = ${a} 时，目标函数是 <b data-part="value">${value}</b>。`,
      flat: "它被裁剪了：梯度是 <b>0</b>，这个样本得不到训练。",
      slope: (g) => `它对比值的梯度是 <b>${g}</b>：这个样本得到训练。`,
    },
  };

  const style = `
    .drawing svg { font-size: 1.25px; max-height: 15rem }
    svg * { vector-effect: non-scaling-stroke }
    .axis { fill: none; stroke: var(--line) }
    .band { fill: var(--right); fill-opacity: .15 }
    .line { fill: none; stroke: var(--held); stroke-width: 3px }
    .free { fill: none; stroke: var(--muted); stroke-dasharray: 5 4; background: none }
    .now { fill: var(--held) } .now.flat { fill: var(--wrong) }
    .target { fill: transparent; cursor: pointer }`;

  const minus = (n) => String(n).replace("-", "−");

  class PpoExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { at: 14, sign: 0 };
    }

    // One unit of the drawing is 0.1 of the ratio and 0.1 of the objective.
    view({ at, sign }, { clip, ratios, kinks, signs, lines }, t) {
      const [value, gradient] = signs[sign][at];
      const ratio = ratios[at];
      const side = 20;
      const top = sign ? 0 : side;
      const point = (r, v) => `${10 * r} ${(top - 10 * v).toFixed(2)}`;
      const line = `M${kinks.map((r, i) => point(r, lines[sign][i])).join("L")}`;
      const outside = ratio < 1 - clip || ratio > 1 + clip;
      const label = (i) =>
        `<text x="${i}" y="${side + 1.6}" text-anchor="middle">${i / 10}</text>
        <text x="-.5" y="${i + 0.4}" text-anchor="end">${minus((top - i) / 10)}</text>`;
      const target = (i) =>
        `<rect class="target" data-point="at=${i}" x="${i}" y="0" width="1" height="${side}"/>`;
      return {
        drawing: `<div class="title">${t.drawing}</div>
          <svg viewBox="-2.6 -.8 ${side + 3.4} ${side + 3}" aria-hidden="true">
          <rect class="band" x="${10 - 10 * clip}" y="0" width="${20 * clip}" height="${side}"/>
          <path class="axis" d="M0 0V${side}H${side}"/>${[0, 5, 10, 15, 20].map(label).join("")}
          <path class="free" d="M${point(0, 0)}L${point(2, sign ? -2 : 2)}"/>
          <path class="line" d="${line}"/>
          <circle class="now${gradient ? "" : " flat"}" data-part="value" cx="${10 * ratio}"
            cy="${top - 10 * value}" r=".5"/>${times(ratios.length, target)}</svg>`,
        controls:
          choice("sign", t.advantage, sign, { 0: "+1", 1: "−1" }) +
          range("at", t.ratio, at, 0, ratios.length - 1, ratio),
        say:
          t.said(ratio, sign ? "−1" : "+1", minus(value)) +
          (gradient ? t.slope(minus(gradient)) : t.flat),
        done: !sign && outside && gradient !== 0,
      };
    }
  }

  BookExplorer.define("ppo-explorer", PpoExplorer);
})();
