(() => {
  const { BookExplorer } = globalThis;
  const { check, range, select } = BookExplorer;

  const words = {
    en: {
      because: "The windows leave no gap, and the last one reaches the last input position.",
      title: "Which input cells are read?",
      task: "keep stride 2 and the 8 input positions of a convolution, and leave none unread.",
      kind: "layer",
      kinds: {
        conv: "convolution",
        transposed: "transposed convolution",
        max: "max pooling",
        adaptive: "adaptive pooling",
      },
      n: "input size",
      cell: (j) => `output position ${j}`,
      input: "input",
      output: "output: point at a position",
      size: "output size: ",
      window: "window: ",
      cut: "; less 1, as the last window would start beyond the input: ",
      and: ", ",
      said: (j, cells, pad) =>
        `Output position ${j} reads ${cells ? `input ${cells}` : "no input"}` +
        `${pad ? `; padding: ${pad}` : ""}.`,
      unread: (cells) => ` Never read: <span data-part="lost">input ${cells}</span>.`,
      kernel: (_m, span, n) =>
        `Impossible: the kernel spans ${span} positions, the padded input has ${n}.`,
      half: () => "Impossible: padding may be at most half of kernel_size.",
      extra: () => "Impossible: output_padding must be smaller than stride or dilation.",
      small: (m) => `Impossible: the output size would be ${m}.`,
    },
    zh: {
      because: "窗口之间没有空隙，最后一个窗口也到达了输入的末尾。",
      title: "哪些输入被读取？",
      task: "保持卷积的步幅 2 和输入尺寸 8，让每个输入位置都被读取。",
      kind: "层",
      kinds: { conv: "卷积", transposed: "转置卷积", max: "最大池化", adaptive: "自适应池化" },
      n: "输入尺寸",
      cell: (j) => `输出位置 ${j}`,
      input: "输入",
      output: "输出：把鼠标移到一个位置上",
      size: "输出尺寸：",
      window: "窗口：",
      cut: "；最后一个窗口的起点会越过输入，再减 1：",
      and: "、",
      said: (j, cells, pad) =>
        `输出位置 ${j} ${cells ? `读取输入 ${cells}` : "没有读取输入"}` +
        `${pad ? `；填充：${pad}` : ""}。`,
      unread: (cells) => `从未被读取：<span data-part="lost">输入 ${cells}</span>。`,
      kernel: (_m, span, n) => `不可能：卷积核横跨 ${span} 个位置，填充后的输入只有 ${n} 个。`,
      half: () => "不可能：padding 最多是 kernel_size 的一半。",
      extra: () => "不可能：output_padding 必须小于 stride 或 dilation。",
      small: (m) => `不可能：输出尺寸会是 ${m}。`,
    },
  };

  // Settings of each layer, with PyTorch's argument names.
  const api = {
    o: "output_size",
    k: "kernel_size",
    s: "stride",
    p: "padding",
    d: "dilation",
    op: "output_padding",
    ceil: "ceil_mode",
  };

  const style = `
    .picture { min-height: 12rem }
    .picture svg { max-height: 9.5rem; margin: 0 auto }
    .drawing text { font: .42px sans-serif; text-anchor: middle; pointer-events: none }
    svg :is(rect, line) { fill: transparent; stroke: var(--ink); vector-effect: non-scaling-stroke }
    svg line { stroke: var(--held); stroke-width: 2px }
    svg .hold { fill: var(--held); stroke: var(--held); stroke-width: 2px }
    .pad { stroke-dasharray: 3 }
    svg .lost { fill: var(--wrong); fill-opacity: .35 }
    [role=button] { cursor: pointer; outline: none }
    [role=button]:focus-visible rect { stroke-width: 4px; stroke: var(--held) }
    .formula { min-height: 2.8em }
    .controls { display: grid; grid-template-columns: repeat(auto-fill, minmax(8rem, 1fr));
      gap: 0 .8rem }
    .controls select { width: 100%; min-height: 2rem }
    .range input { height: 2rem; min-height: 2rem }
    .title { margin: 0 }
    .said { min-height: 2.8em }`;

  const { floor, max, min } = Math;
  const list = (m, f = (i) => i) => Array.from({ length: max(m, 0) }, (_, i) => f(i));

  // Return the output size with its formula, or `why` the settings are invalid.
  const sized = ({ kind, n, k, s, p, d, op, ceil, o }, span) => {
    if (kind === "adaptive") return { size: o, why: "", text: "", cut: false };
    if (kind === "transposed") {
      const size = (n - 1) * s - 2 * p + span + op;
      const text = `(${n} − 1)·${s} − 2·${p} + ${d}·(${k} − 1) + ${op} + 1`;
      return { size, text, why: op >= max(s, d) ? "extra" : size < 1 ? "small" : "", cut: false };
    }
    const pool = kind === "max";
    const up = pool && Boolean(ceil);
    let size = floor((n + 2 * p - span + (up ? s - 1 : 0)) / s) + 1;
    const text = `${up ? "ceil" : "floor"}((${n} + 2·${p} − ${d}·(${k} − 1) − 1) / ${s}) + 1`;
    const cut = up && (size - 1) * s >= n + p;
    if (cut) size--;
    const none = pool ? "small" : "kernel";
    return { size, text, cut, why: pool && 2 * p > k ? "half" : size > 0 ? "" : none };
  };

  // Return the output size and, for each output cell, the input cells in its window, as in PyTorch.
  const plan = (settings) => {
    const { kind, n, k, s, p, d, o } = settings;
    const span = d * (k - 1) + 1;
    const found = sized(settings, span);
    const windows = {
      conv: (j) => list(k, (t) => j * s - p + t * d),
      max: (j) => list(k, (t) => j * s - p + t * d),
      transposed: (j) => list(n).filter((i) => list(k).some((t) => i * s - p + t * d === j)),
      adaptive: (j) => list(n).filter((i) => i >= floor((j * n) / o) && i < ((j + 1) * n) / o),
    };
    const taps = list(found.why ? 0 : found.size, windows[kind]);
    const reads = taps.map((window) => window.filter((i) => i >= 0 && i < n));
    const unread = list(n).filter((i) => !reads.flat().includes(i));
    return { ...found, span, taps, reads, unread };
  };

  // One row is drawn on a grid; each cell of the other row is centred on its window. For a
  // transposed convolution the output is on the grid, so the drawing is upside down.
  const draw = ({ kind, n, s, p, o }, { size, span, taps, unread }, j, t) => {
    const up = kind === "transposed";
    const flat = kind === "adaptive";
    const [wide, count] = up ? [size, n] : [n, size];
    const [grid, row] = up ? [3, 0] : [0, 3];
    const at = (i) => (flat ? ((i + 0.5) * n) / o - 0.5 : i * s - p + (span - 1) / 2);
    const first = flat ? 0 : -p;
    const reached = up ? [(n - 1) * s - p + span - 1] : taps.flat();
    const last = max(wide - 1 + (up || flat ? 0 : p), ...reached);
    const left = min(first, at(0)) - 0.6;
    const width = max(last, at(count - 1)) + 0.6 - left;

    const cell = (x, y, w, mark, name, part) =>
      `<rect class="${mark}" x="${x - w / 2}" y="${y}" width="${w}" height=".9"${part}/>` +
      (width > 17 && w < 1 ? "" : `<text x="${x}" y="${y + 0.6}">${name}</text>`);
    const input = (i, x, y, padding) => {
      const lost = !padding && unread.includes(i);
      const mark = taps[j].includes(i) ? "hold" : lost ? "lost" : "";
      const part = padding ? "" : ` data-part="i${i}${lost ? " lost" : ""}"`;
      return cell(x, y, 0.9, mark + (padding ? " pad" : ""), padding ? "" : i, part);
    };
    const output = (i, x, y, w, padding) =>
      padding
        ? cell(x, y, w, "pad", "", "")
        : `<g role="button" data-point="j=${i}" aria-label="${t.cell(i)}" data-part="j${i}">
          ${cell(x, y, w, i === j ? "hold" : "", i, "")}</g>`;
    const line = (i) => `<line x1="${up ? at(i) : i}" y1=".9" x2="${up ? j : at(j)}" y2="3"/>`;
    const onGrid = (i) => {
      const padding = i < 0 || i >= wide;
      return up ? output(i, i, grid, 0.9, padding) : input(i, i, grid, padding);
    };
    const thin = flat ? 0.9 * min(1, n / o) : 0.9;
    const between = (i) => (up ? input(i, at(i), row, false) : output(i, at(i), row, thin, false));
    return (
      `<svg role="group" aria-label="${t.output}" viewBox="${left} -.1 ${width} 4.1">` +
      taps[j].map(line).join("") +
      list(last - first + 1, (i) => onGrid(i + first)).join("") +
      `${list(count, between).join("")}</svg>`
    );
  };

  class ConvExplorer extends BookExplorer {
    static words = words;
    static style = style;
    static plan = plan;

    start({ start }) {
      return { ...start };
    }

    view(state, { ranges }, words) {
      const t = { ...api, ...words };
      const now = { ...state };
      const limits = ranges[state.kind];
      for (const [key, [low, high]] of Object.entries(limits)) {
        now[key] = min(high, max(low, now[key]));
      }
      const found = plan(now);
      const { size, why, reads, taps, text, cut, unread } = found;
      const control = (key) =>
        key === "ceil"
          ? check("ceil", t.ceil, now.ceil)
          : range(key, t[key], now[key], ...limits[key]);
      const controls =
        select("kind", t.kind, now.kind, t.kinds) + Object.keys(limits).map(control).join("");
      const computed = `${text} = ${cut ? size + 1 + t.cut + size : size}`;
      if (why) {
        const said = t[why](size, found.span, now.n + 2 * now.p);
        const shown = why === "extra" ? "" : `${t.size}<code>${computed}</code>`;
        const drawing = `<div class="picture"></div><div class="formula">${shown}</div>`;
        return { drawing, controls, say: said };
      }
      const j = min(now.j, size - 1);
      const window = `floor(${j}·${now.n} / ${size}) … ceil(${j + 1}·${now.n} / ${size}) − 1`;
      const cells = reads[j].map((i) => `<span data-part="i${i}">${i}</span>`).join(t.and);
      const output = `<span data-part="j${j}">${j}</span>`;
      return {
        drawing: `<div class="picture"><div class="title">${t.input}</div>${draw(now, found, j, t)}
          <div class="title">${t.output}</div></div>
          <div class="formula">${text ? t.size : t.window}
          <code>${text ? computed : window}</code></div>`,
        controls,
        say:
          t.said(output, cells, taps[j].length - reads[j].length) +
          (unread.length ? t.unread(unread.join(t.and)) : ""),
        done: now.kind === "conv" && now.n === 8 && now.s === 2 && !unread.length,
      };
    }
  }

  BookExplorer.define("conv-explorer", ConvExplorer);
})();
