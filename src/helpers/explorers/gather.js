(() => {
  const { BookExplorer } = globalThis;
  const { choice, quote, select } = BookExplorer;

  const words = {
    en: {
      because:
        "The index of shape (3, 1) has one column per row: <code>out[i, 0] = x[i, y[i]]</code>.",
      title: "Which element is it?",
      task: "with <code>gather</code>, take from each row i of x the entry y[i]; y = [1, 2, 0].",
      operation: "operation",
      index: "index",
      out: "out: point at an element",
      none: "no result",
      gather: (out, x, formula, value) => `${out} = ${formula} = ${x} = ${value}.`,
      left: (n, d) =>
        ` The index has size ${n} along dimension ${d}, so the other positions are ignored.`,
      scatter: (out, src) => `${out} = ${src}: its index selects this position.`,
      empty: (out) => `${out} = 0: no index selects this position.`,
      several: (out, src) =>
        `${src} are all written to ${out}, and <b>one of them is kept</b>; which one is not specified.`,
      add: (out, src, value) =>
        `${out} = ${src} = ${value}: the sum of all elements whose index selects this position.`,
    },
    zh: {
      because: "索引的形状是 (3, 1)，每行对应一列：<code>out[i, 0] = x[i, y[i]]</code>。",
      title: "到底是哪个元素？",
      task: "用 <code>gather</code> 从 x 的第 i 行取出第 y[i] 个元素，y = [1, 2, 0]。",
      operation: "操作",
      index: "索引",
      out: "out：选择一个元素",
      none: "没有结果",
      gather: (out, x, formula, value) => `${out} = ${formula} = ${x} = ${value}。`,
      left: (n, d) => `索引沿第 ${d} 维的大小是 ${n}，其余的位置会被忽略。`,
      scatter: (out, src) => `${out} = ${src}：它的索引指向这里。`,
      empty: (out) => `${out} = 0：没有索引指向这里。`,
      several: (out, src) => `${src} 都写到 ${out}，<b>只留下一个</b>，留下哪一个没有规定。`,
      add: (out, src, value) => `${out} = ${src} = ${value}：索引指向这里的元素全部相加。`,
    },
  };

  const style = `
    .grids { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; min-height: 15.5rem;
      align-content: flex-start }
    @container (min-width: 34rem) { .grids { min-height: 8rem } }
    .cells { display: grid; gap: 2px }
    .cells > * { min-height: 2rem; padding: 0; display: grid; place-items: center;
      border: 1px solid var(--muted); border-radius: .2rem }
    .cells .idle { border-style: dotted; color: var(--muted) }
    .cells .on { font-weight: 700; color: var(--paper); background: var(--held) }
    .choice span { min-width: 2.75rem }
    .select { flex: 1 1 6.5rem }
    .select select { width: 100%; padding: .2rem .4rem; font: .8rem var(--mono) }`;

  class GatherExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { operation: "gather", dim: 1, index: 0, k: 2, cell: 0 };
    }

    view({ operation, dim, index: which, k, cell }, { x, names, indices, found }, t) {
      const index = indices[which];
      const { cells, error, [operation]: out } = found[which][dim];
      const gathers = operation === "gather";
      const [wide, across] = [x[0].length, index[0].length];
      const flat = index.flat();
      const at = Math.min(k, flat.length - 1);
      const touched = error ? "" : gathers ? cells[at] : cell; // in x, or in out of its shape
      const pairs = (cells ?? []).map((one, i) => [one, i]);
      const chosen = gathers ? [at] : pairs.filter(([one]) => one === cell).map(([, i]) => i);

      const place = (name, i, columns) => `${name}[${Math.floor(i / columns)}, ${i % columns}]`;
      const grid = (name, title, values, columns, mark, point) => {
        const one = (value, i) => {
          const shown = value ?? "?";
          const facts = `class="${mark(i)}" data-part="${name}${i}"`;
          return point
            ? `<button ${facts} data-point="${point}=${i}"
              aria-label="${place(name, i, columns)} = ${shown}">${shown}</button>`
            : `<span ${facts}>${shown}</span>`;
        };
        return `<div><div class="title">${title}</div><div class="cells"
          style="grid-template-columns: repeat(${columns}, 2.1rem)">${values
            .map(one)
            .join("")}</div></div>`;
      };
      const used = (i) => (error ? "" : chosen.includes(i) ? "on" : "");
      const big = (i) => (i === touched ? "on" : error || cells.includes(i) ? "" : "idle");
      const sources = flat.map((_, i) => i + 1);
      const first = gathers
        ? grid("x", "x", x.flat(), wide, big)
        : grid("src", "src", sources, across, used);
      const result = error
        ? `<div><div class="title">${t.none}</div></div>`
        : gathers
          ? grid("out", t.out, out, across, used, "k")
          : grid("out", t.out, out, wide, big, "cell");

      const link = (name, i, columns) =>
        `<span data-part="${name}${i}">${place(name, i, columns)}</span>`;
      const said = () => {
        if (gathers) {
          const inner = link("index", at, across);
          const other = dim ? Math.floor(at / across) : at % across;
          const formula = dim ? `x[${other}, ${inner}]` : `x[${inner}, ${other}]`;
          return t.gather(link("out", at, across), link("x", touched, wide), formula, out[at]);
        }
        const target = link("out", cell, wide);
        const from = chosen.map((i) => link("src", i, across));
        if (!from.length) return t.empty(target);
        if (operation === "scatter_add") return t.add(target, from.join(" + "), out[cell]);
        return (from.length > 1 ? t.several : t.scatter)(target, from.join(", "));
      };
      const sizes = [index.length, across];
      const short = sizes[1 - dim] < [x.length, wide][1 - dim];
      const operations = Object.fromEntries(
        ["gather", "scatter", "scatter_add"].map((one) => [one, one]),
      );
      return {
        drawing: `<div class="grids">${first}
          ${grid("index", "index", flat, across, used)}${result}</div>`,
        controls:
          select("operation", t.operation, operation, operations) +
          choice("dim", "dim", dim, [0, 1]) +
          select("index", t.index, which, names.map(quote)),
        say: error ? quote(error) : said() + (short ? t.left(sizes[1 - dim], 1 - dim) : ""),
        done: gathers && dim === 1 && names[which] === "y[:, None]",
      };
    }
  }

  BookExplorer.define("gather-explorer", GatherExplorer);
})();
