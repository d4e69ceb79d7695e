(() => {
  const { BookExplorer } = globalThis;
  const { check, select, times } = BookExplorer;

  const code = (text) => `<code>${text}</code>`;
  const words = {
    en: {
      because: "The added line advances no stream from which one of the six is drawn after it.",
      title: "One extra draw changes all later ones",
      task: "keep the added line without changing any of the six items.",
      global: "global stream, from manual_seed(0) on",
      own: "the loader's own generator",
      unused: "none",
      lines: ["torch.rand(1)", "nn.Linear(2, 2)", "a pass over val"],
      added: "added line",
      place: "position",
      places: ["before layers", "after layers", "between epochs"],
      generator: "own generator",
      fork: `line in ${code("fork_rng()")}`,
      names: {
        added: "added",
        fc1: "Layer fc1",
        fc2: "Layer fc2",
        order1: "Order, epoch 1",
        noise1: "Noise, epoch 1",
        order2: "Order, epoch 2",
        noise2: "Noise, epoch 2",
      },
      short: { fc1: "fc1", fc2: "fc2", order: "order", noise: "noise" },
      row: (name, same) => `${name}: ${same ? "as before" : "changed"}`,
      draws: (n, word) =>
        `The ${word("added", "added line")} draws ${n} number${n > 1 ? "s" : ""}; `,
      sum: (n) => (n ? `${n} of 6 change. ` : "none of the six changes. "),
      moved: (name, now, was) =>
        `${name} begins at number ${now} instead of ${was} of the stream, so its values differ.`,
      apart: (name) =>
        `${name} comes from the loader's generator, which the added line does not advance.`,
      put: (name, now) =>
        `${name} begins at number ${now}, because the state of the stream was restored.`,
      before: (name) => `${name} was drawn before the added line.`,
    },
    zh: {
      because: "多出的一行，没有推进后面各项所用的随机数流。",
      title: "多抽一次，后面的全部错位",
      task: "保留多出的一行，同时六项都不变。",
      global: "全局流，从 manual_seed(0) 开始",
      own: "加载器自己的生成器",
      unused: "没有",
      lines: ["torch.rand(1)", "nn.Linear(2, 2)", "遍历一次 val"],
      added: "多出的一行",
      place: "位置",
      places: ["建层之前", "建层之后", "两轮之间"],
      generator: "自己的生成器",
      fork: `放进 ${code("fork_rng()")}`,
      names: {
        added: "多出的",
        fc1: "fc1 的权重",
        fc2: "fc2 的权重",
        order1: "第 1 轮次序",
        noise1: "第 1 轮噪声",
        order2: "第 2 轮次序",
        noise2: "第 2 轮噪声",
      },
      short: { fc1: "fc1", fc2: "fc2", order: "次序", noise: "噪声" },
      row: (name, same) => `${name}：${same ? "不变" : "变了"}`,
      draws: (n, word) => `${word("added", "多出的一行")}抽了 ${n} 个数，`,
      sum: (n) => (n ? `6 项变了 ${n} 项。` : "六项都没变。"),
      moved: (name, now, was) =>
        `${name}从第 ${now} 个数开始，原来从第 ${was} 个开始，所以数值不同。`,
      apart: (name) => `${name}由加载器自己的生成器抽取，多出的一行不影响它。`,
      put: (name, now) => `${name}仍从第 ${now} 个数开始，因为流的状态已恢复。`,
      before: (name) => `${name}在多出的一行之前就抽好了。`,
    },
  };

  const style = `
    .drawing svg { max-width: 27rem }
    svg rect { stroke: var(--line); fill: none }
    svg .fork { stroke: var(--held); stroke-dasharray: 3 2 }
    svg text { font-size: 12.5px }
    .rows { display: grid; gap: 2px; margin-top: .3rem }
    .rows button { display: grid; grid-template-columns: 7rem 1fr 1rem; gap: .3rem;
      min-height: 1.65rem; padding: 0 .4rem; align-items: center; text-align: start;
      font-size: .85rem; border-color: transparent }
    .rows code { white-space: nowrap; font-size: .75rem }
    .rows [aria-current] { border-color: var(--ink) }
    .select { flex: 1 1 9rem } .select select { width: 100% }
    .check { gap: .35rem; font-size: .85rem }`;

  class StreamsExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { line: 0, place: 0, own: false, fork: false, at: 2 };
    }

    view({ line, place, own, fork, at }, { plain, runs, values }, t) {
      const draws = runs[line][place][Number(own)][Number(fork)];
      const drawn = draws.findIndex(([name]) => name === "added");
      const mine = draws.filter((_, i) => i !== drawn);
      const before = plain[Number(own)];
      const same = (i) => mine[i][4] === before[i][4];
      const changed = mine.filter((_, i) => !same(i)).length;
      const wide = 11.9;
      const box = ([name, apart, start, count], i) => {
        const added = i < 0;
        const [x, y] = [1 + start * wide, apart ? 68 : added && fork ? 1 : 24];
        const look = added ? (fork ? "fork" : "hold") : same(i) ? "good" : "bad";
        const point = added ? "" : ` data-point="at=${i}"`;
        const text = t.short[name.replace(/(order|noise)\d/, "$1")] ?? "+";
        return `<g data-part="${added ? "added" : `d${i}`}"${point}><rect class="${look}" x="${x}"
          y="${y}" width="${count * wide}" height="22"/><text x="${x + (count * wide) / 2}"
          y="${y + 15}" text-anchor="middle">${text}</text></g>`;
      };
      const number = (v, i) => v.toFixed(mine[i][0].startsWith("order") ? 0 : 2).replace("-", "−");
      const shown = (i) => values[mine[i][4]].map((v) => number(v, i)).join(" ");
      const row = (i) => `<button class="${same(i) ? "good" : "bad"}" data-point="at=${i}"
        data-part="d${i}" aria-label="${t.row(t.names[mine[i][0]], same(i))}"><span>
        ${t.names[mine[i][0]]}</span>${code(shown(i))}<span>${same(i) ? "=" : "≠"}</span></button>`;
      const [name, apart, start] = mine[at];
      const word = (part, text) => `<span data-part="${part}">${text}</span>`;
      const spoken = word(`d${at}`, t.names[name]);
      const why = !same(at)
        ? t.moved(spoken, start + 1, before[at][2] + 1)
        : at < drawn
          ? t.before(spoken)
          : apart
            ? t.apart(spoken)
            : t.put(spoken, start + 1);
      return {
        drawing: `<div class="title">${t.global}</div><svg viewBox="0 0 360 91">
          ${mine.map(box).join("")}${box(draws[drawn], -1)}
          <text x="1" y="62">${t.own}${own ? "" : ` · ${t.unused}`}</text></svg>
          <div class="rows">${times(mine.length, row)}</div>`,
        controls:
          select("line", t.added, line, t.lines) +
          select("place", t.place, place, t.places) +
          check("own", t.generator, own) +
          check("fork", t.fork, fork),
        say: t.draws(draws[drawn][3], word) + t.sum(changed) + why,
        done: changed === 0,
      };
    }
  }

  BookExplorer.define("streams-explorer", StreamsExplorer);
})();
