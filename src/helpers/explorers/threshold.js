(() => {
  const { BookExplorer } = globalThis;
  const { steps, times } = BookExplorer;

  const words = {
    en: {
      because:
        "Recall rises as the threshold falls, so the highest such threshold has the fewest false positives.",
      title: "97 % accuracy: how many positives are found?",
      task: "find the highest threshold that finds at least 9 of 10 positives.",
      negatives: (n, most) => `${n} negatives ▲, up to ${most} in a bar`,
      positives: (n, most) => `${n} positives ▼, up to ${most}; height: √ of the number`,
      threshold: (v) => `threshold ${v}`,
      no: "predicted negative",
      yes: "predicted positive",
      truth: ["negative", "positive"],
      scores: ["accuracy", "precision", "recall", "F1"],
      none: "0 / 0",
      said: (right, all, found, positives, alarms) =>
        `${right} of ${all} are correct; of the ${positives} positives ${found} ` +
        `${found === 1 ? "is" : "are"} found, with ${alarms} false ${
          alarms === 1 ? "positive" : "positives"
        }.`,
      never: " A model that never predicts positive also has an accuracy of 97 %.",
    },
    zh: {
      because: "阈值越低，召回率越高；满足要求的最高阈值，误报最少。",
      title: "准确率 97%，找到了多少正样本？",
      task: "找出能找到至少九成正样本的最高阈值。",
      negatives: (n, most) => `${n} 个负样本 ▲，每条最多 ${most} 个`,
      positives: (n, most) => `${n} 个正样本 ▼，最多 ${most} 个；条高：个数的平方根`,
      threshold: (v) => `阈值 ${v}`,
      no: "预测为负",
      yes: "预测为正",
      truth: ["负样本", "正样本"],
      scores: ["准确率", "精确率", "召回率", "F1"],
      none: "0 / 0",
      said: (right, all, found, positives, alarms) =>
        `${all} 个里预测对了 ${right} 个；${positives} 个正样本找到 ${found} 个，误报 ${alarms} 个。`,
      never: "从不预测正类的模型，准确率也有 97%。",
    },
  };

  const style = `
    .drawing > svg { height: 8.5rem }
    .drawing g[role] { cursor: ew-resize; outline: none }
    .drawing g[role] > path { fill: transparent }
    .drawing g[role]:focus-visible > path { fill: var(--lit); fill-opacity: .4 }
    .ends { display: flex; justify-content: space-between }
    .axis, .limit { vector-effect: non-scaling-stroke; stroke: var(--muted) }
    .limit { stroke: var(--held); stroke-width: 2 }
    .drawing .bad, .drawing .good { stroke: var(--paper); fill-opacity: 1 }
    table { width: 100%; margin-top: .4rem; border-collapse: collapse; font-size: .9rem }
    th { font-weight: 400; color: var(--muted); text-align: start }
    td[data-part] { padding: .15rem .4rem; border: 1px solid var(--line); text-align: end }
    .scores { display: flex; flex-wrap: wrap; gap: 0 1rem; margin-top: .4rem; font-size: .9rem }`;

  class ThresholdExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start({ start }) {
      return { at: start };
    }

    view({ at }, { bins, rows }, t) {
      const [tn, fp, fn, tp, ...rest] = rows[at];
      const [negatives, positives] = [tn + fp, fn + tp];
      const last = bins[0].length;
      const accuracy = (tn + tp) / (negatives + positives);
      const [wide, high, middle] = [600 / last, 115, 120];
      const most = bins.map((counts) => Math.max(...counts));
      const value = (k) => (k / last).toFixed(2);
      // Negatives go up and positives down, on a square-root scale that keeps small counts visible.
      const bar = (kind, k) => {
        const size = high * Math.sqrt(bins[kind][k] / most[0]);
        const right = k >= at === (kind === 1);
        const part = [
          ["tn", "fp"],
          ["fn", "tp"],
        ][kind][+(k >= at)];
        return bins[kind][k]
          ? `<rect class="${right ? "good" : "bad"}" data-part="${part}" x="${k * wide}"
          y="${kind ? middle : middle - size}" width="${wide}" height="${size}"/>`
          : "";
      };
      const place = (k) => `<g role="button" data-point="at=${k}"
        aria-label="${t.threshold(value(k))}"><path
        d="M${(k - 0.5) * wide} 0h${wide}V170h${-wide}z"/></g>`;
      const cell = (part, n, look) => `<td class="${look}" data-part="${part}">${n}</td>`;
      const percent = (v) => (v === null ? t.none : `${(100 * v).toFixed(1)} %`);
      const row = (kind, cells) => `<tr><th scope="row">${t.truth[kind]}</th>${cells}</tr>`;
      const word = (part, n) => `<span data-part="${part}">${n}</span>`;
      return {
        drawing: `<div class="title">${t.negatives(negatives, most[0])}</div>
          <svg viewBox="0 0 600 170" preserveAspectRatio="none">
          ${times(last, (k) => bar(0, k) + bar(1, k))}
          <path class="axis" d="M0 ${middle}H600"/>
          <path class="limit" d="M${at * wide} 0V170"/>
          ${times(last + 1, place)}</svg>
          <div class="title ends"><span>0</span><span>${t.positives(positives, most[1])}</span>
          <span>1</span></div>
          <table><tr><td></td><th scope="col">${t.no}</th><th scope="col">${t.yes}</th></tr>
          ${row(0, cell("tn", tn, "good") + cell("fp", fp, "bad"))}
          ${row(1, cell("fn", fn, "bad") + cell("tp", tp, "good"))}</table>
          <div class="scores">${[accuracy, ...rest]
            .map((v, i) => `<span>${t.scores[i]} <b>${percent(v)}</b></span>`)
            .join("")}</div>`,
        controls: steps("at", at, last, t.threshold(value(at)), t),
        say:
          t.said(tn + tp, negatives + positives, word("tp", tp), positives, word("fp", fp)) +
          (tp + fp ? "" : t.never),
        done: tp >= 0.9 * positives && rows[at + 1][3] < 0.9 * positives,
      };
    }
  }

  BookExplorer.define("threshold-explorer", ThresholdExplorer);
})();
