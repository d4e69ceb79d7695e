(() => {
  const { BookExplorer } = globalThis;
  const { check, quote, select, times } = BookExplorer;

  const code = (text) => `<code>${text}</code>`;
  const words = {
    en: {
      title: "What does the model see?",
      task: (all) => `let the model name all ${all} test pictures right.`,
      legend: ["as the model takes the numbers", "what goes in"],
      names: ["petals", "leaves", "sky", "trees"],
      rgb: `${code("cvtColor")} to RGB`,
      layout: "layout",
      layouts: ["as read", "permute", "reshape"],
      scale: "scale",
      scales: ["uint8", ".float()", "/ 255", "/ 255 twice"],
      norm: "Normalize",
      norms: ["none", "ImageNet's", "its own"],
      none: "no answer",
      said: (name, answer) => `${name}: ${answer}`,
      right: (n, all) => `No error; of ${all} test pictures ${n} ${n === 1 ? "is" : "are"} right. `,
      good: (word, p) => `It recognizes the ${word}, with ${p} %.`,
      bad: (word, other, p) => `It takes the ${word} for ${other}, with ${p} %.`,
    },
    zh: {
      title: "模型看到的是什么？",
      task: (all) => `让模型把 ${all} 张测试图全认对。`,
      legend: ["按模型的理解画出来", "送进去的图"],
      names: ["花瓣", "叶子", "天空", "树木"],
      rgb: `${code("cvtColor")} 转 RGB`,
      layout: "布局",
      layouts: ["不变", "permute", "reshape"],
      scale: "尺度",
      scales: ["uint8", ".float()", "/ 255", "除两次 255"],
      norm: "Normalize",
      norms: ["不做", "ImageNet 的", "模型自己的"],
      none: "没有答案",
      said: (name, answer) => `${name}：${answer}`,
      right: (n, all) => `没有报错；${all} 张测试图认对了 ${n} 张。`,
      good: (word, p) => `${word}认出来了，把握 ${p}%。`,
      bad: (word, other, p) => `${word}被当成${other}，把握 ${p}%。`,
    },
  };

  const style = `
    .four { display: grid; grid-template-columns: repeat(4, minmax(0, 7rem)); gap: .4rem }
    .four button { display: grid; gap: .1rem; justify-items: center; padding: .25rem;
      border: 2px solid transparent; font-size: .85rem; line-height: 1.25 }
    .four [aria-current] { border-color: var(--ink) }
    .four img { display: block; width: 100%; aspect-ratio: 1; image-rendering: pixelated;
      border: 1px solid var(--line) }
    .four b { align-self: stretch; justify-self: stretch; border-radius: .2rem; font-weight: 400 }
    .facts { margin-top: .3rem; font: .8rem var(--mono) }
    .said { min-height: 5.6em }
    .select { flex: 1 1 8.5rem } .select select { width: 100% }`;

  const SIZE = 16;
  const AREA = SIZE * SIZE;

  // A picture of SIZE x SIZE as an address: what red, green, blue (0 to 255) are at each place.
  const bitmap = (colour) => {
    const head = [0x42, 0x4d, 54 + 3 * AREA, 0, 54, 0, 40, 0, SIZE, 0, SIZE, 0];
    const bytes = new Uint8Array(54 + 3 * AREA);
    const view = new DataView(bytes.buffer);
    bytes.set(head.slice(0, 2));
    [2, 10, 14, 18, 22].forEach((at, i) => {
      view.setUint32(at, head[2 + 2 * i], true);
    });
    view.setUint16(26, 1, true);
    view.setUint16(28, 24, true);
    for (let k = 0; k < AREA; k++) {
      const [y, x] = [SIZE - 1 - Math.floor(k / SIZE), k % SIZE]; // a bitmap begins below
      for (let c = 0; c < 3; c++) bytes[54 + 3 * k + 2 - c] = colour(y * SIZE + x, c);
    }
    return `data:image/bmp;base64,${btoa(String.fromCharCode(...bytes))}`;
  };

  class PixelsExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start({ pixels }) {
      this.bytes = Uint8Array.from(atob(pixels), (character) => character.charCodeAt(0));
      return { rgb: false, layout: 1, scale: 2, norm: 1, at: 1 };
    }

    // What the model is given of picture i at a place and channel, as the byte that it stood for in
    // training: its own normalization undone.
    colour(i, { rgb, layout, scale, norm }, { own, imagenet }, error) {
      const [mean, std] = norm === 1 ? imagenet : own;
      const read = (k) => this.bytes[3 * AREA * i + (rgb ? k : k + 2 - 2 * (k % 3))];
      return (place, c) => {
        const value = read(layout === 2 ? c * AREA + place : 3 * place + c);
        if (error) return value;
        const scaled = value / [1, 1, 255, 255 * 255][scale];
        const given = norm ? (scaled - mean[c]) / std[c] : scaled;
        return Math.round(255 * Math.min(1, Math.max(0, given * own[1][c] + own[0][c])));
      };
    }

    view(state, data, t) {
      const { rgb, layout, scale, norm, at } = state;
      const row = data.rows[((Number(rgb) * 3 + layout) * 4 + scale) * 3 + norm];
      const error = data.errors[row];
      const [low, high, right, said, percents] = error ? [] : row;
      const answer = (i) => (error ? t.none : t.names[said[i]]);
      const picture = (i) => `<button data-point="at=${i}" data-part="p${i}"
        aria-label="${t.said(t.names[i], answer(i))}"><img alt=""
        src="${bitmap(this.colour(i, state, data, error))}"><span>${t.names[i]}</span>
        <b class="${error || said[i] !== i ? "bad" : "good"}">→ ${answer(i)}</b></button>`;
      const minus = (v) => v.toFixed(2).replace("-", "−");
      const shape = layout ? `3, ${SIZE}, ${SIZE}` : `${SIZE}, ${SIZE}, 3`;
      const facts = [`(${shape})`, scale ? "float32" : "uint8"];
      if (!error) facts.push(`${minus(low)} … ${minus(high)}`);
      const word = `<span data-part="p${at}">${t.names[at]}</span>`;
      const one = (word, p) =>
        said[at] === at ? t.good(word, p) : t.bad(word, t.names[said[at]], p);
      return {
        task: t.task(data.all),
        drawing: `<div class="title">${t.legend[error ? 1 : 0]}</div>
          <div class="four">${times(4, picture)}</div>
          <div class="facts">${facts.join(" · ")}</div>`,
        controls:
          select("layout", t.layout, layout, t.layouts) +
          select("scale", t.scale, scale, t.scales) +
          select("norm", t.norm, norm, t.norms) +
          check("rgb", t.rgb, rgb),
        say: error ? code(quote(error)) : t.right(right, data.all) + one(word, percents[at]),
        done: right === data.all,
      };
    }
  }

  BookExplorer.define("pixels-explorer", PixelsExplorer);
})();
