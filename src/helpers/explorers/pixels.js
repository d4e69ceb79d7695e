(() => {
  const { BookExplorer } = globalThis;
  const { check, quote, select, times } = BookExplorer;

  const code = (text) => `<code>${text}</code>`;
  const words = {
    en: {
      because: "Channel order, layout, scale and normalization are those of the training.",
      title: "What input does the model receive?",
      task: (all) => `let the model classify all ${all} test images correctly.`,
      legend: ["as the model interprets the input", "the input"],
      names: ["petals", "leaves", "sky", "trees"],
      rgb: `${code("cvtColor")} to RGB`,
      layout: "layout",
      layouts: ["as read", "permute", "reshape"],
      scale: "scale",
      scales: ["uint8", ".float()", "/ 255", "/ 255 twice"],
      norm: "Normalize",
      norms: ["none", "ImageNet's", "its own"],
      none: "no prediction",
      said: (name, answer) => `${name}: ${answer}`,
      right: (n, all) =>
        `No error; of ${all} test images ${n} ${n === 1 ? "is" : "are"} classified correctly. `,
      good: (word, p) => `Correct: ${word}, with a confidence of ${p} %.`,
      bad: (word, other, p) =>
        `The model classifies the ${word} as ${other}, with a confidence of ${p} %.`,
    },
    zh: {
      because: "通道顺序、布局、取值范围和归一化，都与训练时一致。",
      title: "模型收到的是什么？",
      task: (all) => `让模型把 ${all} 张测试图像全部分类正确。`,
      legend: ["按模型的理解画出", "输入"],
      names: ["花瓣", "叶子", "天空", "树木"],
      rgb: `${code("cvtColor")} 转 RGB`,
      layout: "布局",
      layouts: ["不变", "permute", "reshape"],
      scale: "尺度",
      scales: ["uint8", ".float()", "/ 255", "除两次 255"],
      norm: "Normalize",
      norms: ["不做", "ImageNet 的", "模型自己的"],
      none: "没有预测",
      said: (name, answer) => `${name}：${answer}`,
      right: (n, all) => `没有报错；${all} 张测试图像分类正确 ${n} 张。`,
      good: (word, p) => `${word}分类正确，置信度 ${p}%。`,
      bad: (word, other, p) => `${word}被分成${other}，置信度 ${p}%。`,
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

  // Return a data URL of an image of SIZE x SIZE; `colour` gives red, green and blue (0 to 255).
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

    // Return the input of picture i at a position and channel as a byte: the model's own
    // normalization inverted.
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
