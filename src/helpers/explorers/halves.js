(() => {
  const { BookExplorer } = globalThis;
  const { choice, range, times } = BookExplorer;

  const words = {
    en: {
      because:
        "The scale moves all gradients into the range of float16, whose smallest and largest numbers are far enough apart here.",
      title: "Which gradients can the dtype represent?",
      task: "find a scale at which no gradient becomes 0 or infinite in float16.",
      type: "dtype",
      scale: "scale",
      legend: "number of gradients of each size after scaling",
      zones: { zero: "0", few: "fewer digits", inf: "inf" },
      bar: (n, value) => `${n} gradients of ${value}`,
      sum: (zero, few, inf, all) =>
        `Of ${all} gradients ${zero} become 0, ${inf} become infinite, ${few} lose digits. `,
      fates: {
        zero: "stored as 0",
        inf: "stored as inf",
        few: (off) => `stored with an error of ${off} %`,
        normal: (off) => `stored with an error of ${off} %`,
      },
      one: (value, scaled, fate) =>
        `The marked gradients are ${value}, and ${scaled} after scaling: ${fate}.`,
    },
    zh: {
      because: "缩放把所有梯度移进了 float16 的范围；这里的梯度跨度没有超过这个范围。",
      title: "这种类型能表示哪些梯度？",
      task: "找一个缩放因子，让 float16 里没有梯度变成 0 或无穷大。",
      type: "类型",
      scale: "缩放因子",
      legend: "缩放之后，各种大小的梯度各有多少个",
      zones: { zero: "0", few: "精度降低", inf: "inf" },
      bar: (n, value) => `${n} 个 ${value} 的梯度`,
      sum: (zero, few, inf, all) =>
        `${all} 个梯度里，${zero} 个变成 0，${inf} 个变成无穷大，${few} 个精度降低。`,
      fates: {
        zero: "存成 0",
        inf: "存成 inf",
        few: (off) => `存储的误差是 ${off}%`,
        normal: (off) => `存储的误差是 ${off}%`,
      },
      one: (value, scaled, fate) => `标出的梯度是 ${value}，缩放之后是 ${scaled}：${fate}。`,
    },
  };

  const style = `
    .drawing { min-height: 11.5rem }
    svg { max-height: 13rem }
    svg .zone { opacity: .5 }
    svg rect.free { fill: var(--muted); fill-opacity: .35 }
    svg rect.tap { fill: transparent }
    svg [aria-current] .mark { fill: var(--ink) }
    svg .mark { fill: transparent }
    svg .edge { stroke: var(--muted); stroke-dasharray: 3 3 }`;

  const looks = { zero: "bad", inf: "bad", few: "free", normal: "hold" };
  const [WIDE, HIGH, TOP] = [340, 130, 22];

  class HalvesExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start({ counts }) {
      return { type: 0, scale: 0, at: Math.floor(counts.length / 2) - 4 };
    }

    view({ type, scale, at }, data, w) {
      const { counts, first, step, mantissa, scales } = data;
      const stored = data.stored[type];
      const exponent = (i) => first + i * step;
      const kept = (i) => stored[exponent(i) + scale - first];
      const all = counts.reduce((a, b) => a + b, 0);
      const total = (name) => counts.reduce((sum, n, i) => sum + (kept(i)[0] === name ? n : 0), 0);
      const value = (e) => (mantissa * 2 ** e).toExponential(1);
      const last = first + stored.length - 1;
      const x = (e) => ((e - first) / (last + 1 - first)) * WIDE;
      const y = (n) => (n / Math.max(...counts)) * HIGH;
      const wide = (step * WIDE) / (last + 1 - first);
      const bar = (i) => {
        const e = exponent(i) + scale;
        const high = y(counts[i]);
        const [name] = kept(i);
        return `<g role="button" data-point="at=${i}" data-part="g${i}"
          aria-label="${w.bar(counts[i], value(exponent(i)))}">
          <rect class="tap" x="${x(e)}" y="${TOP}" width="${wide}" height="${HIGH + 12}"/>
          <rect class="${looks[name]}" data-fate="${name}" x="${x(e) + 1}"
            y="${TOP + HIGH - high}" width="${wide - 2}" height="${high}"/>
          <rect class="mark" x="${x(e) + 1}" y="${TOP + HIGH + 4}" width="${wide - 2}"
            height="5"/></g>`;
      };
      const zone = (name) => {
        const places = stored.flatMap(([fate], k) => (fate === name ? [first + k] : []));
        if (!places.length) return "";
        const [from, to] = [x(places[0]), x(places[places.length - 1] + 1)];
        return `<rect class="zone ${name === "few" ? "free" : "bad"}" x="${from}" y="0"
          width="${to - from}" height="16"/><line class="edge"
          x1="${name === "inf" ? from : to}" x2="${name === "inf" ? from : to}" y1="0"
          y2="${TOP + HIGH}"/><text x="${(from + to) / 2}" y="12"
          font-size=".75rem" text-anchor="middle">${w.zones[name]}</text>`;
      };
      const tick = (e) => `<text x="${x(e)}" y="${TOP + HIGH + 24}"
        text-anchor="middle">2<tspan dy="-4" font-size=".75rem">${e}</tspan></text>`;
      const [fate, off] = kept(at);
      const said = w.fates[fate];
      const power = (k) => (k < 17 ? String(2 ** k) : `2^${k}`);
      return {
        drawing: `<div class="title">${w.legend}</div>
          <svg viewBox="0 0 ${WIDE} ${TOP + HIGH + 30}">${["zero", "few", "inf"].map(zone).join("")}
          ${times(counts.length, bar)}${[-32, -16, 0, 16].map(tick).join("")}</svg>`,
        controls:
          choice("type", w.type, type, data.types) +
          range("scale", w.scale, scale, 0, scales, power(scale)),
        say:
          w.sum(total("zero"), total("few"), total("inf"), all) +
          w.one(
            `<span data-part="g${at}">${value(exponent(at))}</span>`,
            value(exponent(at) + scale),
            typeof said === "string" ? said : said(off),
          ),
        done: type === 0 && total("zero") === 0 && total("inf") === 0,
      };
    }
  }

  BookExplorer.define("halves-explorer", HalvesExplorer);
})();
