(() => {
  if (customElements.get("conv-explorer")) return;
  const API = { o: "output_size", k: "kernel_size", s: "stride", p: "padding", d: "dilation", op: "output_padding", ceil: "ceil_mode" };
  const WORDS = {
    en: {
      kind: "Layer", kinds: { conv: "convolution", transposed: "transposed convolution", max: "max pooling", adaptive: "adaptive pooling" },
      n: "input size", j: "output cell", input: "input", output: "output", size: "Output size", window: "Window",
      counts: "Input cells read, by output cell", unread: "Input cells never read", none: "none", and: ", ",
      cut: "; less 1, as the last window would start beyond the input: ",
      said: (m, j, cells, pad) => `Output size ${m}. Output cell ${j} reads ${cells ? "input " + cells : "no input"}${pad ? `; padding: ${pad}` : ""}.`,
      kernel: (m, span, n) => `Impossible: the kernel spans ${span} cells, the padded input has ${n}.`,
      half: () => "Impossible: padding may be at most half of kernel_size.",
      extra: () => "Impossible: output_padding must be smaller than stride or dilation.",
      small: (m) => `Impossible: the output size would be ${m}.`,
    },
    zh: {
      kind: "层", kinds: { conv: "卷积", transposed: "转置卷积", max: "最大池化", adaptive: "自适应池化" },
      n: "输入尺寸", j: "输出单元", input: "输入", output: "输出", size: "输出尺寸", window: "窗口",
      counts: "各输出单元读到的输入个数", unread: "从未被读到的输入", none: "无", and: "、",
      cut: "；最后一个窗口的起点会越过输入，再减 1：",
      said: (m, j, cells, pad) => `输出尺寸 ${m}。输出单元 ${j} ${cells ? "读取输入 " + cells : "没有读到输入"}${pad ? `；填充：${pad}` : ""}。`,
      kernel: (m, span, n) => `不可能：卷积核跨 ${span} 个单元，填充后的输入只有 ${n} 个。`,
      half: () => "不可能：padding 最多是 kernel_size 的一半。",
      extra: () => "不可能：output_padding 必须小于 stride 或 dilation。",
      small: (m) => `不可能：输出尺寸会是 ${m}。`,
    },
  };
  const list = (m, f = (i) => i) => Array.from({ length: Math.max(m, 0) }, (_, i) => f(i));
  // What torch would say: the size or why there is none, the formula, the cells of each window.
  const plan = ({ kind, n, k, s, p, d, op, ceil, o }) => {
    const span = d * (k - 1) + 1, { floor, max } = Math;
    let size = o, why = "", text = "", cut = false;
    if (kind === "transposed") {
      size = (n - 1) * s - 2 * p + span + op;
      text = `(${n} − 1)·${s} − 2·${p} + ${d}·(${k} − 1) + ${op} + 1`;
      why = op >= max(s, d) ? "extra" : size < 1 ? "small" : "";
    } else if (kind !== "adaptive") {
      const pool = kind === "max", up = pool && ceil;
      size = floor((n + 2 * p - span + (up ? s - 1 : 0)) / s) + 1;
      text = `${up ? "ceil" : "floor"}((${n} + 2·${p} − ${d}·(${k} − 1) − 1) / ${s}) + 1`;
      if ((cut = !!up && (size - 1) * s >= n + p)) size--;
      why = pool && 2 * p > k ? "half" : size > 0 ? "" : pool ? "small" : "kernel";
    }
    const taps = list(why ? 0 : size, (j) => kind === "transposed"
      ? list(n).filter((i) => list(k).some((t) => i * s - p + t * d === j))
      : kind === "adaptive" ? list(n).filter((i) => i >= floor(j * n / o) && i < (j + 1) * n / o)
        : list(k, (t) => j * s - p + t * d));
    const reads = taps.map((w) => w.filter((i) => i >= 0 && i < n));
    return { size, why, text, cut, span, taps, reads, unread: list(n).filter((i) => !reads.flat().includes(i)) };
  };
  // One row lies on a grid of cells, each cell of the other at the middle of its window. For a
  // transposed convolution the output is on the grid: the same picture, upside down.
  const draw = ({ kind, n, s, p, o }, { size, span, taps, reads, unread }, j) => {
    const up = kind === "transposed", flat = kind === "adaptive", [wide, count] = up ? [size, n] : [n, size];
    const last = Math.max(wide - 1 + (up || flat ? 0 : p), ...(up ? [(n - 1) * s - p + span - 1] : taps.flat()));
    const first = flat ? 0 : -p, at = (i) => flat ? (i + .5) * n / o - .5 : i * s - p + (span - 1) / 2;
    const cell = (x, y, w, mark, name) => `<rect class="${mark}" x="${x - w / 2}" y="${y}" width="${w}" height=".9"/><text x="${x}" y="${y + .6}">${name}</text>`;
    const mark = (i, output) => (output ? i === j : taps[j].includes(i)) ? "on" : !output && unread.includes(i) ? "lost" : "";
    const [grid, row] = up ? [3, 0] : [0, 3], left = Math.min(first, at(0)) - .6, width = Math.max(last, at(count - 1)) + .6 - left;
    return `<svg viewBox="${left} -.1 ${width} 4.1" style="max-width:${width * 2}rem">`
      + taps[j].map((i) => `<line x1="${up ? at(i) : i}" y1=".9" x2="${up ? j : at(j)}" y2="3"/>`).join("")
      + list(last - first + 1, (i) => i + first).map((i) => cell(i, grid, .9, mark(i, up) + (i < 0 || i >= wide ? " pad" : ""), i < 0 || i >= wide ? "" : i)).join("")
      + list(count).map((i) => cell(at(i), row, flat ? .9 * Math.min(1, n / o) : .9, mark(i, !up), i)).join("") + "</svg>";
  };
  customElements.define("conv-explorer", class extends HTMLElement {
    static plan = plan;
    connectedCallback() {
      if (this.shadowRoot) return;
      const lang = (this.getAttribute("lang") || document.documentElement.lang || navigator.language || "en").slice(0, 2);
      const t = { ...API, ...(WORDS[lang] || WORDS.en) }, { ranges, start } = JSON.parse(this.getAttribute("data"));
      const slider = (key) => `<label data-key="${key}"><span>${t[key]} <b></b></span><input type="range" min="0" value="${start[key] || 0}"></label>`;
      const root = this.attachShadow({ mode: "open" }), find = (q) => root.querySelector(q), fields = {};
      root.innerHTML = `<style>
        :host { display: block; max-width: 44rem; margin: 1rem 0; padding: 1rem; border: 1px solid var(--line); border-radius: .5rem; --line: var(--pst-color-border, #8a8a8a); --held: var(--pst-color-primary, #0a7d91) }
        .bar { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .5rem 1rem; margin-bottom: .8rem }
        label { display: flex; flex-direction: column } select { font: inherit } input { accent-color: var(--held); min-width: 0 }
        :focus-visible { outline: 3px solid var(--held); outline-offset: 2px }
        [type=checkbox] { align-self: start } p { min-height: 2.8em } dd { margin: 0 0 .4rem; font-weight: 600 }
        svg { display: block } .tight text { display: none } text { font: .42px sans-serif; fill: currentColor; text-anchor: middle }
        rect, line { fill: none; stroke: currentColor; vector-effect: non-scaling-stroke } line, .on { stroke: var(--held); stroke-width: 2px }
        .on { fill: color-mix(in srgb, var(--held) 25%, transparent) } .pad { stroke-dasharray: 3 } .lost { fill: color-mix(in srgb, currentColor 30%, transparent) }
      </style><div class="bar"><label style="grid-column: 1 / -1">${t.kind} <select>${Object.keys(ranges).map((kind) => `<option value="${kind}">${t.kinds[kind]}</option>`).join("")}</select></label>
        ${["n", "k", "s", "p", "d", "op", "o"].map(slider).join("")}<label data-key="ceil"><span>ceil_mode</span><input type="checkbox"></label></div>
        <div>${slider("j")}${t.input}<div aria-hidden="true"></div>${t.output}</div><p aria-live="polite"></p><dl></dl>`;
      const select = find("select"), picture = find("[aria-hidden]"), said = find("p");
      root.querySelectorAll("[data-key]").forEach((label) => (fields[label.dataset.key] = label.lastChild));
      const tight = () => { const svg = find("svg"); svg?.classList.toggle("tight", svg.clientWidth < 17 * svg.viewBox.baseVal.width); };
      const show = () => {
        const kind = select.value, now = { kind, ceil: +fields.ceil.checked };
        for (const [key, field] of Object.entries(fields)) {
          const limits = ranges[kind][key];
          if (key !== "j") field.parentNode.style.display = limits ? "" : "none";
          if (limits && key !== "ceil") [field.min, field.max] = limits, now[key] = +field.value;
        }
        const r = plan(now), { size, why } = r, facts = [];
        fields.j.max = Math.max(size, 1) - 1;
        root.querySelectorAll("b").forEach((b) => (b.textContent = b.closest("label").lastChild.value));
        const j = +fields.j.value, { n, p } = now;
        picture.parentNode.hidden = !!why;
        if (why) said.textContent = t[why](size, r.span, n + 2 * p);
        else {
          said.textContent = t.said(size, j, r.reads[j].join(t.and), r.taps[j].length - r.reads[j].length);
          picture.innerHTML = draw(now, r, j);
          tight();
        }
        if (r.text) facts.push([t.size, r.text + " = " + (r.cut ? size + 1 + t.cut + size : size)]);
        else facts.push([t.window, `floor(${j}·${n} / ${size}) … ceil(${j + 1}·${n} / ${size}) − 1`]);
        if (!why) facts.push([t.counts, r.reads.map((w) => w.length).join(" ")], [t.unread, r.unread.join(t.and) || t.none]);
        find("dl").innerHTML = facts.map(([a, b]) => `<dt>${a}</dt><dd>${b}</dd>`).join("");
      };
      this.addEventListener("input", show);
      new ResizeObserver(tight).observe(this);
      show();
    }
  });
})();
