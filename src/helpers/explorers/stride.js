(() => {
  const { BookExplorer } = globalThis;
  const { choice, quote, select, times } = BookExplorer;

  const words = {
    en: {
      because: "A view needs strides that describe the new order; contiguity is not required.",
      title: "Which cell is read?",
      task: "find a non-contiguous tensor that <code>reshape</code> does not copy.",
      tensor: "start from",
      after: "then",
      as_is: "as it is",
      mine: "storage of x",
      fresh: "new storage of y",
      y: "y: point at an element",
      stride: (s, o) => `stride ${s}, offset ${o}`,
      itself: "x itself",
      view: "a view of x",
      copy: "a copy",
      error: "RuntimeError",
      none: "there is no y",
      yes: ", contiguous",
      no: ", not contiguous",
      reads: (e, v, cell, sum) => `${e} = ${v} reads cell ${cell} = ${sum}.`,
      also: (k) => ` ${k} other element${k > 1 ? "s read" : " reads"} the same cell.`,
      steps: (cells) =>
        `<code>view</code> does not copy, so it raises an error: in this order the elements are in ` +
        `the cells ${cells}, and the steps between them differ.`,
    },
    zh: {
      because: "只要步幅能描述新的次序，就能得到视图，不要求内存连续。",
      title: "每个元素读的是哪一格？",
      task: "找一个内存不连续，但 <code>reshape</code> 不需要复制的张量。",
      tensor: "起点",
      after: "然后",
      as_is: "不变",
      mine: "x 的存储",
      fresh: "y 自己的新存储",
      y: "y：选择一个元素",
      stride: (s, o) => `步幅 ${s}，偏移量 ${o}`,
      itself: "x 本身",
      view: "x 的视图",
      copy: "副本",
      error: "RuntimeError",
      none: "得不到 y",
      yes: "，内存连续",
      no: "，内存不连续",
      reads: (e, v, cell, sum) => `${e} = ${v}，读的是第 ${cell} 格 = ${sum}。`,
      also: (k) => `另有 ${k} 个元素读的也是这一格。`,
      steps: (cells) =>
        `<code>view</code> 不复制，所以报错：按这个次序，元素依次在第 ${cells} 格，` +
        "相邻两格的间隔不相等。",
    },
  };

  const style = `
    .cells { display: grid; grid-template-columns: repeat(12, minmax(0, 2.6rem)); gap: 2px;
      text-align: center; line-height: 1.7rem }
    .cells > div > * { display: block }
    .cells span { border: 1px solid var(--muted); border-radius: .2rem }
    .cells .idle { border-style: dotted; color: var(--muted) }
    .cells small { font-size: .75rem; line-height: 1.2; color: var(--muted) }
    .drawing { min-height: 18rem }
    .y { display: grid; gap: 2px }
    .y button { min-height: 2.25rem; padding: 0; font-variant-numeric: tabular-nums }
    .y .same { border: 3px double var(--held); background: none }
    .drawing .on { font-weight: 700; color: var(--paper); background: var(--held);
      border: 1px solid var(--held) }
    select, .choice span { padding: .2rem .5rem; font: .8rem var(--mono) }`;

  const tuple = (n) => `(${n.join(", ")}${n.length === 1 ? "," : ""})`;

  class StrideExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start({ start }) {
      return { ...start };
    }

    view({ first, then, k }, { storage, firsts, thens, walks }, t) {
      const walk = walks[first][then];
      const { shape, stride, offset, at, kind } = walk;
      const own = walk.storage;
      const chosen = Math.min(k, at.length - 1);
      const cell = at[chosen];
      const strip = (title, values, used) =>
        `<div class="title">${title}</div><div class="cells">${times(values.length, (n) => {
          const mark = !used || !at.includes(n) ? "idle" : n === cell && shape ? "on" : "";
          const part = used ? ` data-part="c${n}"` : "";
          return `<div><span class="${mark}"${part}>${values[n]}</span><small>${n}</small></div>`;
        })}</div>`;
      const controls =
        select("first", t.tensor, first, firsts.map(quote)) +
        choice("then", t.after, then, [t.as_is, ...thens.slice(1).map(quote)]);
      if (!shape) {
        return {
          drawing: `<div>${t.error}</div><div>${t.none}</div>${strip(t.mine, storage, true)}`,
          controls,
          say: t.steps(at.join(", ")),
        };
      }
      const index = (i) => {
        let rest = i;
        return shape.reduceRight((all, n) => {
          all.unshift(rest % n);
          rest = Math.floor(rest / n);
          return all;
        }, []);
      };
      const name = (i) => `y[${index(i).join(", ")}]`;
      const values = own ?? storage;
      const element = (i) => {
        const mark = i === chosen ? "on" : at[i] === cell ? "same" : "";
        return `<button class="${mark}" data-point="k=${i}" data-part="c${at[i]}"
          aria-label="${name(i)} = ${values[at[i]]}">${values[at[i]]}</button>`;
      };
      const axis = (numbers) => numbers.map((n, d) => `<span data-part="axis${d}">${n}</span>`);
      const start = `<span data-part="offset">${offset}</span>`;
      const steps = index(chosen).map(
        (i, d) => `<span data-part="axis${d}">${i}\u00a0×\u00a0${stride[d]}</span>`,
      );
      const others = at.filter((n) => n === cell).length - 1;
      const columns = `repeat(${shape.at(-1)}, minmax(0, 2.75rem))`;
      return {
        drawing: `<div>y = ${t[kind]}${walk.contiguous ? t.yes : t.no}</div>
          <div class="facts">${t.stride(tuple(axis(stride)), start)}</div>
          ${strip(t.mine, storage, !own)}${own ? strip(t.fresh, own, true) : ""}
          <div class="title">${t.y}</div>
          <div class="y" style="grid-template-columns: ${columns}">
          ${times(at.length, element)}</div>`,
        controls,
        say:
          t.reads(
            `<span data-part="c${cell}">${name(chosen)}</span>`,
            values[cell],
            `<span data-part="c${cell}">${cell}</span>`,
            [start, ...steps].join(" + "),
          ) + (others ? t.also(others) : ""),
        done: then === 2 && kind === "view" && !walks[first][0].contiguous,
      };
    }
  }

  BookExplorer.define("stride-explorer", StrideExplorer);
})();
