(() => {
  const { BookExplorer } = globalThis;
  const { choice, range, times } = BookExplorer;

  const words = {
    en: {
      title: "Which training windows leak?",
      task: "with 3 targets or more, let no training window contain a target of the test.",
      because:
        "The series was cut first: a training window ends before the split, and the windows across it are not used.",
      legend: "one row per window: inputs filled, targets outlined",
      train: "training",
      leak: "training, leaks",
      test: "test",
      unused: "not used",
      method: "split",
      methods: ["random", "list of windows", "series"],
      horizon: "targets",
      split: "test from step",
      picture: (n) => `${n} windows on a time axis`,
      said: (train, leaks, test) =>
        `${train} training and ${test} test windows. <b>${leaks}</b> training ${leaks === 1 ? "window contains" : "windows contain"} a target of the test.`,
      random: " Neighbouring windows have all but one step in common.",
      windows: (n) =>
        [" With 1 target, no window crosses the split.", " It is the last one before the split."][
          n
        ] ?? " They are the last ones before the split.",
      series:
        " Inputs of test windows before the split are no leak: they are known when the forecast is made.",
    },
    zh: {
      title: "哪些训练窗口泄漏了？",
      task: "目标有 3 步或更多时，让任何训练窗口都不含测试的目标。",
      because: "先切开了序列：训练窗口在划分点之前就结束，跨过划分点的窗口不使用。",
      legend: "每行一个窗口：输入是实心格，目标是空心格",
      train: "训练",
      leak: "训练，有泄漏",
      test: "测试",
      unused: "不使用",
      method: "怎么划分",
      methods: ["随机", "切窗口列表", "切序列"],
      horizon: "目标步数",
      split: "测试从第几步开始",
      picture: (n) => `时间轴上的 ${n} 个窗口`,
      said: (train, leaks, test) =>
        `${train} 个训练窗口，${test} 个测试窗口。<b>${leaks}</b> 个训练窗口含有测试的目标。`,
      random: "相邻的窗口只差一步，其余全部重叠。",
      windows: (n) =>
        n ? `就是划分点之前的最后 ${n} 个。` : "只有 1 步目标时，没有窗口跨过划分点。",
      series: "测试窗口的输入早于划分点，这不是泄漏：做预测时已经知道了。",
    },
  };

  const style = `
    .drawing svg { max-height: 17rem }
    .t { --kind: var(--held) } .l { --kind: var(--wrong) } .e { --kind: var(--right) }
    .x { --kind: var(--muted) }
    rect { fill: var(--kind); stroke: var(--kind); stroke-width: .07 }
    .target { fill: var(--paper) } .x rect { opacity: .45 }
    .split { stroke: var(--ink); stroke-width: .1; stroke-dasharray: .3 .25 }
    .key { margin-right: .8rem; white-space: nowrap }
    .key i { display: inline-block; width: .75rem; height: .75rem; margin-right: .3rem;
      background: var(--kind); vertical-align: baseline }
    .x i { opacity: .45 }`;

  const count = (text, letters) => [...text].filter((one) => letters.includes(one)).length;

  class LeakExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { method: 0, horizon: 2, split: 5 };
    }

    view({ method, horizon, split }, data, t) {
      const kinds = data.kinds[method][horizon][split];
      const [inputs, targets] = [data.length, data.horizons[horizon]];
      const cell = (row) => (i) =>
        `<rect x="${row + i + 0.1}" y="${(0.85 * row + 0.1).toFixed(2)}" width=".8" height=".65"` +
        `${i < inputs ? "" : ' class="target"'}/>`;
      const rows = [...kinds].map(
        (kind, row) => `<g class="${kind}">${times(inputs + targets, cell(row))}</g>`,
      );
      const at = data.splits[split];
      const line =
        method === 0 ? "" : `<path class="split" d="M${at} -.3V${0.85 * kinds.length + 0.3}"/>`;
      const keys = [
        ["t", t.train],
        ["l", t.leak],
        ["e", t.test],
        ["x", t.unused],
      ].filter(([kind]) => kinds.includes(kind));
      const key = keys.map(([kind, name]) => `<span class="key ${kind}"><i></i>${name}</span>`);
      const leaks = count(kinds, "l");
      return {
        drawing: `<div class="title">${t.legend}</div>
          <svg viewBox="0 -.4 ${data.steps} ${0.85 * (data.steps - inputs) + 0.8}" role="img"
          aria-label="${t.picture(kinds.length)}">${rows.join("")}${line}</svg>
          <div class="row">${key.join("")}</div>`,
        controls:
          choice("method", t.method, method, { ...t.methods }) +
          range("horizon", t.horizon, horizon, 0, data.horizons.length - 1, targets) +
          range("split", t.split, split, 0, data.splits.length - 1, at),
        say:
          t.said(count(kinds, "tl"), leaks, count(kinds, "e")) +
          [t.random, t.windows(leaks), t.series][method],
        done: targets >= 3 && leaks === 0,
      };
    }
  }

  BookExplorer.define("leak-explorer", LeakExplorer);
})();
