(() => {
  const { BookExplorer } = globalThis;
  const { check, range, times } = BookExplorer;

  const words = {
    en: {
      because:
        "Less smoothing means less delay, and the division removes the pull of the first values.",
      title: "Smoothing of a validation loss",
      task: "bring the lowest point of the line within 3 steps of the true minimum.",
      legend: "grey: logged · dashed: no noise · blue: line",
      weight: "smoothing",
      debias: "divide by 1 − wⁿ, as TensorBoard does",
      step: (i, x, y) => `step ${i}: ${x}, line ${y}`,
      said: (i, x, y) => `Step ${i}: logged ${x}, the line is at ${y}. `,
      low: (k, turn, word) =>
        `${word("low", `The line is lowest at step ${k}`)}, ` +
        `${word("turn", `the loss without noise at ${turn}`)}. `,
      spike: (x, y, rise, word) =>
        `${word("spike", `The spike of ${x}`)} lifts the line by ${rise}, to ${y}.`,
    },
    zh: {
      because: "平滑越弱，滞后越小；相除则消除了最初几个值的拖累。",
      title: "验证损失的平滑",
      task: "让曲线的最低点落在真正的最低点前后 3 步之内。",
      legend: "灰：记录的值 · 虚线：没有噪声 · 蓝：平滑后的曲线",
      weight: "平滑（smoothing）",
      debias: "除以 1 − wⁿ，与 TensorBoard 一样",
      step: (i, x, y) => `第 ${i} 步：${x}，曲线 ${y}`,
      said: (i, x, y) => `第 ${i} 步记录的是 ${x}，曲线在 ${y}。`,
      low: (k, turn, word) =>
        `${word("low", `曲线的最低点在第 ${k} 步`)}，` +
        `${word("turn", `没有噪声的损失在第 ${turn} 步最低`)}。`,
      spike: (x, y, rise, word) =>
        `${word("spike", `高达 ${x} 的尖峰`)}把曲线抬高 ${rise}，到 ${y}。`,
    },
  };

  const style = `
    .drawing svg { max-width: 27rem }
    path { fill: none; stroke-linejoin: round }
    .grid { stroke: var(--line) }
    .logged { stroke: var(--muted); stroke-opacity: .65 }
    .whole { stroke: var(--right); stroke-width: 1.5px; stroke-dasharray: 4 3 }
    .line { stroke: var(--held); stroke-width: 2.5px }
    .turn { stroke: var(--right); stroke-width: 1.5px }
    circle { fill: var(--paper); stroke: var(--held); stroke-width: 2px }
    circle.spike { stroke: var(--wrong) }
    [role=button] { cursor: ew-resize; outline: none }
    [role=button] rect { fill: transparent }
    [aria-current] rect { fill: color-mix(in srgb, var(--held) 30%, transparent) }
    [role=button]:focus-visible rect { stroke: var(--held); stroke-width: 2px }`;

  const lowest = (values) => values.indexOf(Math.min(...values));

  // Return TensorBoard's moving average; without debiasing it starts near zero.
  const smooth = (values, w, debias) => {
    let average = 0;
    return values.map((value, i) => {
      average = w * average + (1 - w) * value;
      return debias ? average / (1 - w ** (i + 1)) : average;
    });
  };

  class SmoothExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start({ start, spike }) {
      return { w: start, debias: true, at: spike };
    }

    view({ w, debias, at }, { whole, logged, spike, turn }, t) {
      const line = smooth(logged, w / 100, debias);
      const low = lowest(line);
      const [wide, high, bottom] = [3.35, 50, 168];
      const x = (i) => (20 + wide * (i + 0.5)).toFixed(1);
      const y = (v) => (bottom - high * v).toFixed(1);
      const path = (values, name) =>
        `<path class="${name}" d="M${values.map((v, i) => `${x(i)} ${y(v)}`).join("L")}"/>`;
      const grid = (v) => `<path class="grid" d="M20 ${y(v)}h335"/>
        <text x="14" y="${+y(v) + 4}" text-anchor="end">${v}</text>`;
      const label = (i) => `<text x="${x(i)}" y="${bottom + 14}" text-anchor="middle">${i}</text>`;
      const dot = (i, v, name) =>
        `<g data-part="${name}"><circle class="${name}" cx="${x(i)}" cy="${y(v)}" r="4"/></g>`;
      const two = (v) => v.toFixed(2);
      const step = (i) => `<g role="button" data-point="at=${i}"
        aria-label="${t.step(i, two(logged[i]), two(line[i]))}"><rect x="${x(i - 0.5)}" y="12"
        width="${wide}" height="${bottom - 12}"/></g>`;
      const word = (name, text) => `<span data-part="${name}">${text}</span>`;
      const last = logged.length - 1;
      return {
        drawing: `<div class="title">${t.legend}</div><svg viewBox="0 0 360 186">
          ${[0, 1, 2, 3].map(grid).join("")}${[0, turn, spike, last].map(label).join("")}
          <g data-part="turn"><path class="turn" d="M${x(turn)} 60V${bottom}"/></g>
          ${path(logged, "logged")}${path(whole, "whole")}${path(line, "line")}
          ${dot(spike, logged[spike], "spike")}${dot(low, line[low], "low")}
          ${times(logged.length, step)}</svg>`,
        controls: range("w", t.weight, w, 0, 99, two(w / 100)) + check("debias", t.debias, debias),
        say:
          (at === spike ? "" : t.said(at, two(logged[at]), two(line[at]))) +
          t.low(low, turn, word) +
          t.spike(two(logged[spike]), two(line[spike]), two(line[spike] - line[spike - 1]), word),
        done: debias && Math.abs(low - turn) <= 3,
      };
    }
  }

  BookExplorer.define("smooth-explorer", SmoothExplorer);
})();
