(() => {
  const { BookExplorer } = globalThis;

  const words = {
    en: {
      kind: "Layer",
      kinds: {
        conv: "convolution",
        transposed: "transposed convolution",
        max: "max pooling",
        adaptive: "adaptive pooling",
      },
      n: "input size",
      j: "output cell",
      input: "input",
      output: "output",
      size: "Output size",
      window: "Window",
      counts: "Input cells read, by output cell",
      unread: "Input cells never read",
      none: "none",
      and: ", ",
      cut: "; less 1, as the last window would start beyond the input: ",
      said: (m, j, cells, pad) =>
        `Output size ${m}. Output cell ${j} reads ${cells ? `input ${cells}` : "no input"}` +
        `${pad ? `; padding: ${pad}` : ""}.`,
      kernel: (_m, span, n) =>
        `Impossible: the kernel spans ${span} cells, the padded input has ${n}.`,
      half: () => "Impossible: padding may be at most half of kernel_size.",
      extra: () => "Impossible: output_padding must be smaller than stride or dilation.",
      small: (m) => `Impossible: the output size would be ${m}.`,
    },
    zh: {
      kind: "层",
      kinds: { conv: "卷积", transposed: "转置卷积", max: "最大池化", adaptive: "自适应池化" },
      n: "输入尺寸",
      j: "输出单元",
      input: "输入",
      output: "输出",
      size: "输出尺寸",
      window: "窗口",
      counts: "各输出单元读到的输入个数",
      unread: "从未被读到的输入",
      none: "无",
      and: "、",
      cut: "；最后一个窗口的起点会越过输入，再减 1：",
      said: (m, j, cells, pad) =>
        `输出尺寸 ${m}。输出单元 ${j} ${cells ? `读取输入 ${cells}` : "没有读到输入"}` +
        `${pad ? `；填充：${pad}` : ""}。`,
      kernel: (_m, span, n) => `不可能：卷积核跨 ${span} 个单元，填充后的输入只有 ${n} 个。`,
      half: () => "不可能：padding 最多是 kernel_size 的一半。",
      extra: () => "不可能：output_padding 必须小于 stride 或 dilation。",
      small: (m) => `不可能：输出尺寸会是 ${m}。`,
    },
  };

  // The settings that a layer takes, under torch's names.
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
    .bar { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr));
      gap: .5rem 1rem; margin-bottom: .8rem }
    .bar > :first-child { grid-column: 1 / -1 }
    label { display: flex; flex-direction: column }
    [type=checkbox] { align-self: start }
    p { min-height: 2.8em }
    dl { display: block }
    dd { margin: 0 0 .4rem }
    svg { display: block }
    .tight text { display: none }
    text { font: .42px sans-serif; fill: currentColor; text-anchor: middle }
    rect, line { fill: none; stroke: currentColor; vector-effect: non-scaling-stroke }
    line, .on { stroke: var(--held); stroke-width: 2px }
    .on { fill: color-mix(in srgb, var(--held) 25%, transparent) }
    .pad { stroke-dasharray: 3 }
    .lost { fill: color-mix(in srgb, currentColor 30%, transparent) }`;

  const { floor, max, min } = Math;
  const list = (m, f = (i) => i) => Array.from({ length: max(m, 0) }, (_, i) => f(i));

  // The output size and the formula that gives it, or `why` there is none.
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

  // What torch would say: the size, and the input cells in the window of each output cell.
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

  // One row lies on a grid of cells, each cell of the other at the middle of its window. For a
  // transposed convolution the output is on the grid: the same picture, upside down.
  const draw = ({ kind, n, s, p, o }, { size, span, taps, unread }, j) => {
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

    const cell = (x, y, w, mark, name) =>
      `<rect class="${mark}" x="${x - w / 2}" y="${y}" width="${w}" height=".9"/>` +
      `<text x="${x}" y="${y + 0.6}">${name}</text>`;
    const mark = (i, output) => {
      if (output ? i === j : taps[j].includes(i)) return "on";
      return !output && unread.includes(i) ? "lost" : "";
    };
    const line = (i) => `<line x1="${up ? at(i) : i}" y1=".9" x2="${up ? j : at(j)}" y2="3"/>`;
    const onGrid = (i) => {
      const padding = i < 0 || i >= wide;
      return cell(i, grid, 0.9, mark(i, up) + (padding ? " pad" : ""), padding ? "" : i);
    };
    const between = (i) => cell(at(i), row, flat ? 0.9 * min(1, n / o) : 0.9, mark(i, !up), i);
    return (
      `<svg viewBox="${left} -.1 ${width} 4.1" style="max-width:${width * 2}rem">` +
      taps[j].map(line).join("") +
      list(last - first + 1, (i) => onGrid(i + first)).join("") +
      `${list(count, between).join("")}</svg>`
    );
  };

  class ConvExplorer extends BookExplorer {
    static words = words;
    static style = style;
    static plan = plan;

    build({ ranges, start }) {
      const t = { ...api, ...this.words };
      const slider = (key) =>
        `<label data-key="${key}"><span>${t[key]} <b></b></span>` +
        `<input type="range" min="0" value="${start[key] ?? 0}"></label>`;
      const kinds = Object.keys(ranges).map((k) => `<option value="${k}">${t.kinds[k]}</option>`);
      const find = this.fill(`
        <div class="bar"><label>${t.kind} <select>${kinds.join("")}</select></label>
          ${["n", "k", "s", "p", "d", "op", "o"].map(slider).join("")}
          <label data-key="ceil"><span>${t.ceil}</span><input type="checkbox"></label></div>
        <div>${slider("j")}${t.input}<div aria-hidden="true"></div>${t.output}</div>
        <p aria-live="polite"></p><dl></dl>`);
      const picture = find("[aria-hidden]");
      const fields = {};
      for (const label of this.shadowRoot.querySelectorAll("[data-key]")) {
        fields[label.dataset.key] = label.lastChild;
      }

      // Numbers in cells that have become too small to read are left out.
      const tight = () => {
        const svg = find("svg");
        svg?.classList.toggle("tight", svg.clientWidth < 17 * svg.viewBox.baseVal.width);
      };
      const settings = () => {
        const kind = find("select").value;
        const now = { kind, ceil: +fields.ceil.checked };
        for (const [key, field] of Object.entries(fields)) {
          const limits = ranges[kind][key];
          if (key !== "j") field.parentNode.style.display = limits ? "" : "none";
          if (!limits || key === "ceil") continue;
          [field.min, field.max] = limits;
          now[key] = +field.value;
        }
        return now;
      };
      const show = () => {
        const now = settings();
        const found = plan(now);
        const { size, why, reads, taps, text, cut } = found;
        fields.j.max = max(size, 1) - 1;
        for (const b of this.shadowRoot.querySelectorAll("b")) {
          b.textContent = b.closest("label").lastChild.value;
        }
        const j = +fields.j.value;
        const { n, p } = now;
        picture.parentNode.hidden = Boolean(why);
        if (why) {
          find("p").textContent = t[why](size, found.span, n + 2 * p);
        } else {
          const padding = taps[j].length - reads[j].length;
          find("p").textContent = t.said(size, j, reads[j].join(t.and), padding);
          picture.innerHTML = draw(now, found, j);
          tight();
        }
        const window = `floor(${j}·${n} / ${size}) … ceil(${j + 1}·${n} / ${size}) − 1`;
        const computed = `${text} = ${cut ? size + 1 + t.cut + size : size}`;
        const facts = [text ? [t.size, computed] : [t.window, window]];
        if (!why) {
          facts.push([t.counts, reads.map((w) => w.length).join(" ")]);
          facts.push([t.unread, found.unread.join(t.and) || t.none]);
        }
        find("dl").innerHTML = BookExplorer.facts(facts);
      };
      this.addEventListener("input", show);
      new ResizeObserver(tight).observe(this);
      show();
    }
  }

  BookExplorer.define("conv-explorer", ConvExplorer);
})();
