(() => {
  const { BookExplorer } = globalThis;
  const { check, choice, times } = BookExplorer;

  const words = {
    en: {
      because:
        "A self-loop gives every node a degree of at least 1 and includes its own feature: nothing is divided by 0.",
      title: "A graph convolution by hand",
      task: "leave node 4 isolated, and let it keep its feature 5.",
      graph: "next features",
      matrix: "matrix: select cells to change edges",
      norm: "normalization",
      norms: ["sum", "mean", "GCN"],
      loops: "self-loops",
      cell: (i, j, w) => `from ${j} to ${i}: ${w}`,
      next: (i, terms, value) => `Next feature of node ${i}: ${terms} = <b>${value}</b>. `,
      none: "0",
      isolated: (nodes) => `Degree 0: node ${nodes}. `,
      spread: "Its row and its column are nan, so all results are.",
    },
    zh: {
      because: "有了自环，每个节点的度至少为 1，也包含自己的特征，不会再除以 0。",
      title: "手算图卷积",
      task: "让节点 4 保持孤立，并保住它的特征 5。",
      graph: "下一层特征",
      matrix: "矩阵：点格子增删边",
      norm: "归一化",
      norms: ["求和", "平均", "GCN"],
      loops: "自环",
      cell: (i, j, w) => `从 ${j} 到 ${i}：${w}`,
      next: (i, terms, value) => `节点 ${i} 的下一层特征：${terms} = <b>${value}</b>。`,
      none: "0",
      isolated: (nodes) => `度为 0 的节点：${nodes}。`,
      spread: "它的行和列都是 nan，所以结果全是 nan。",
    },
  };

  const style = `
.both { display: grid; grid-template-columns: minmax(0, 11rem) minmax(0, 19rem);
      gap: .3rem 1rem }
    .matrix { display: grid; grid-template-columns: .8rem repeat(6, minmax(0, 1fr)); gap: 2px;
      text-align: center; align-items: center; font-size: .75rem }
    .matrix span { color: var(--muted) }
    .matrix button { min-height: 1.9rem; padding: 0; border-color: var(--line); font-size: .75rem }
    .drawing svg { font-size: 12px; max-height: 12rem }
    .edge { stroke: var(--muted); stroke-width: 2px; fill: none }
    .node { fill: var(--paper); stroke: var(--muted); stroke-width: 2px }
    .node.now { stroke: var(--held); stroke-width: 3px }
    @container (max-width: 30rem) { .both { grid-template-columns: 7.75rem minmax(0, 1fr);
      gap: .3rem .5rem } }`;

  const places = [
    [58, 20],
    [98, 49],
    [83, 96],
    [33, 96],
    [18, 49],
  ];

  class ConvolveExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start({ edges, features }) {
      const bits = edges.reduce((sum, [i, j]) => sum | (1 << (i * features.length + j)), 0);
      return { bits, norm: 2, loops: false, row: 0 };
    }

    view({ bits, norm, loops, row }, { features, tables }, t) {
      const n = features.length;
      const bit = (i, j) => 1 << (Math.min(i, j) * n + Math.max(i, j));
      const linked = (i, j) => (i === j ? Number(loops) : Number((bits & bit(i, j)) !== 0));
      const all = features.map((_, i) => i);
      const degrees = all.map((i) => all.reduce((sum, j) => sum + linked(i, j), 0));
      const weight = (i, j) => {
        const w = tables[norm][linked(i, j)][degrees[i]][degrees[j]];
        return w ?? Number.NaN;
      };
      const next = all.map((i) => all.reduce((sum, j) => sum + weight(i, j) * features[j], 0));
      const text = (w) => (Number.isNaN(w) ? "nan" : String(Number(w.toFixed(2))));
      const cell = (i, j) => {
        const w = weight(i, j);
        const mark = Number.isNaN(w) ? "bad" : linked(i, j) ? "hold" : "";
        const change = i === j ? `loops=${loops ? "" : 1}` : `bits=${bits ^ bit(i, j)}`;
        return `<button class="${mark}" data-set="${change}&row=${i}"
          data-part="n${i}" aria-label="${t.cell(i, j, text(w))}">${text(w)}</button>`;
      };
      const edge = (i, j) => {
        const [[x1, y1], [x2, y2]] = [places[i], places[j]];
        return j > i && linked(i, j)
          ? `<line class="edge" x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}"/>`
          : "";
      };
      const node = (i) => {
        const [x, y] = places[i];
        const [dx, dy] = [(x - 58) / 42, (y - 62) / 42];
        const loop = loops
          ? `<circle class="edge" cx="${x + 21 * dx}" cy="${y + 21 * dy}" r="6"/>`
          : "";
        return `${loop}<g data-part="n${i}"><circle class="node${i === row ? " now" : ""}"
          cx="${x}" cy="${y}" r="18"/><text x="${x}" y="${y - 3}" text-anchor="middle"
          font-weight="700">${i}</text><text x="${x}" y="${y + 10}"
          text-anchor="middle">${text(next[i])}</text></g>`;
      };
      const terms = all
        .filter((j) => linked(row, j) || Number.isNaN(weight(row, j)))
        .map((j) => `${text(weight(row, j))} · ${features[j]}`);
      const zero = all.filter((i) => !degrees[i]);
      const lost = next.every(Number.isNaN);
      return {
        drawing: `<div class="both"><div><div class="title">${t.graph}</div>
          <svg viewBox="-4 -8 124 130" aria-hidden="true">
          ${times(n, (i) => times(n, (j) => edge(i, j)))}${times(n, node)}</svg></div>
          <div><div class="title">${t.matrix}</div><div class="matrix"><span></span>
          ${times(n, (j) => `<span>${j}</span>`)}<span>x</span>
          ${times(n, (i) => `<span>${i}</span>${times(n, (j) => cell(i, j))}<span>${features[i]}</span>`)}</div></div></div>`,
        controls: choice("norm", t.norm, norm, t.norms) + check("loops", t.loops, loops),
        say:
          t.next(
            `<span data-part="n${row}">${row}</span>`,
            terms.join(" + ") || t.none,
            text(next[row]),
          ) +
          (zero.length ? t.isolated(zero.join(", ")) : "") +
          (lost ? t.spread : ""),
        done: degrees[4] === Number(loops) && text(next[4]) === "5",
      };
    }
  }

  BookExplorer.define("convolve-explorer", ConvolveExplorer);
})();
