(() => {
  const { BookExplorer } = globalThis;
  const { range, times } = BookExplorer;

  const words = {
    en: {
      because:
        "The norm of (8, 2) is 8.25, and its largest value is 8: a limit from 8 to 8.24 changes the norm only.",
      title: "Does clipping keep the direction?",
      task: "find a limit that clips (8, 2) by norm, and by value not at all.",
      gradient: "choose a gradient",
      limit: "limit (max_norm, clip_value)",
      said: (g, length) => `The gradient ${g} has norm ${length}. `,
      loose: "The limit is not exceeded: neither method changes it.",
      zero: "There is nothing to clip.",
      keeps: (v) => `By norm it becomes ${v}, shorter in the same direction`,
      same: (v) => `; by value it stays ${v}.`,
      aligned: (v) => `; by value ${v}, in the same direction, too.`,
      turns: (v) => `; by value ${v}, in <b>another direction</b>.`,
    },
    zh: {
      because: "(8, 2) 的范数是 8.25，最大的分量是 8；上限从 8 到 8.24，就只按范数裁剪。",
      title: "裁剪之后，方向还在吗？",
      task: "找一个上限，使 (8, 2) 按范数会被裁剪，按值却原样不动。",
      gradient: "选择一个梯度",
      limit: "上限（max_norm、clip_value）",
      said: (g, length) => `梯度 ${g} 的范数是 ${length}。`,
      loose: "没有超过上限，两种裁剪都不会改变它。",
      zero: "没有可以裁剪的梯度。",
      keeps: (v) => `按范数裁成 ${v}，短了，方向不变`,
      same: (v) => `；按值仍是 ${v}。`,
      aligned: (v) => `；按值裁成 ${v}，方向也不变。`,
      turns: (v) => `；按值裁成 ${v}，<b>方向变了</b>。`,
    },
  };

  const style = `
    .drawing { max-width: 22rem; margin-inline: auto }
    .drawing svg { font-size: .5px; max-height: 19rem }
    svg * { vector-effect: non-scaling-stroke }
    .grid { stroke: var(--line) }
    .arc, .box { fill: none; stroke-width: 2px; stroke-dasharray: 6 4 }
    .arrow { stroke: var(--muted); stroke-width: 2px; stroke-linecap: round }
    .norm { stroke: var(--right) } .value { stroke: var(--wrong) }
    .arrow.norm, .arrow.value { stroke-width: 5px }
    circle { stroke: none } circle.norm { fill: var(--right) } circle.value { fill: var(--wrong) }
    [role=button] { cursor: pointer; outline: none }
    [role=button] circle { fill: var(--muted) } [role=button] rect { fill: transparent }
    [role=button]:focus-visible rect { stroke: var(--held); stroke-width: 3px }
    [aria-current] circle { fill: var(--held); r: .25px }
    .said i { font-style: normal } .said .norm { color: var(--right) }
    .said .value { color: var(--wrong) }`;

  const minus = (n) => String(n).replace("-", "−");
  const pair = (v) => `(${v.map(minus).join(", ")})`;

  class ClipExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start(data) {
      return { at: (data.length - 1) * data.length + 2, limit: 2 };
    }

    view({ at, limit }, data, t) {
      const n = data.length;
      const g = [Math.floor(at / n), at % n];
      const [norm, returned, value] = data[g[0]][g[1]][limit - 1];
      const most = n - 1;
      const up = (y) => most - y;
      const arrow = (v, name) =>
        `<g data-part="${name}"><path class="arrow ${name}" d="M0 ${most}L${v[0]} ${up(v[1])}"/>
        <circle class="${name}" cx="${v[0]}" cy="${up(v[1])}" r=".18"/></g>`;
      const target = (row, x) => {
        const y = up(row);
        const name = pair([x, y]);
        return `<g role="button" data-point="at=${x * n + y}" aria-label="${name}">
          <rect x="${x - 0.5}" y="${row - 0.5}" width="1" height="1"/>
          <circle cx="${x}" cy="${row}" r=".07"/></g>`;
      };
      const lines = times(n, (i) => `M${i} 0V${most}M0 ${i}H${most}`);
      const ticks = times(n, (i) =>
        i % 2
          ? ""
          : `<text x="${i}" y="${most + 0.9}" text-anchor="middle">${i}</text>` +
            `<text x="-.55" y="${up(i) + 0.17}" text-anchor="end">${i}</text>`,
      );
      const same = (v) => v[0] === g[0] && v[1] === g[1];
      const clipped = returned > limit;
      const straight = value[0] * g[1] === value[1] * g[0];
      const words = (v, name) => `<i class="${name}" data-part="${name}">${pair(v)}</i>`;
      const how = same(value) ? t.same : straight ? t.aligned : t.turns;
      return {
        drawing: `<div class="title">${t.gradient}</div>
          <svg viewBox="-1.3 -.6 ${n + 0.9} ${n + 0.8}" role="group" aria-label="${t.gradient}">
          <path class="grid" d="${lines}"/>${ticks}
          <g data-part="norm"><path class="arc norm"
            d="M0 ${up(limit)}A${limit} ${limit} 0 0 1 ${limit} ${most}"/></g>
          <g data-part="value"><path class="box value" d="M0 ${up(limit)}H${limit}V${most}"/></g>
          <path class="arrow" d="M0 ${most}L${g[0]} ${up(g[1])}"/>
          ${arrow(value, "value")}${arrow(norm, "norm")}
          ${times(n, (row) => times(n, (x) => target(row, x)))}</svg>`,
        controls: range("limit", t.limit, limit, 1, most),
        say:
          t.said(pair(g), returned) +
          (returned === 0
            ? t.zero
            : clipped
              ? t.keeps(words(norm, "norm")) + how(words(value, "value"))
              : t.loose),
        done: pair(g) === "(8, 2)" && clipped && same(value),
      };
    }
  }

  BookExplorer.define("clip-explorer", ClipExplorer);
})();
