(() => {
  const { BookExplorer } = globalThis;
  const { quote, select, times } = BookExplorer;

  const words = {
    en: {
      because:
        "A tensor without dimensions does not widen a tensor with dimensions of the same category.",
      title: "Which shape, which dtype?",
      task: "keep b a float64 tensor, and get a float32 sum of shape (3,).",
      shape: (name) => `${name}: shape`,
      dtype: (name) => `${name}: dtype`,
      number: "Python number",
      repeated: (name, d) => ` ${name} is repeated along dimension ${d}.`,
      none: "no sum",
      stop: ".",
      same: () => " Both have this dtype.",
      category: (dtype) => ` A float is a higher category than an integer: ${dtype}.`,
      default: (dtype) =>
        ` A Python float is a higher category than an integer, and has the default dtype: ${dtype}.`,
      a: (dtype) => ` a has no dimensions, so it cannot widen b: ${dtype}.`,
      b: (dtype) => ` b has no dimensions, so it cannot widen a: ${dtype}.`,
      wider: (dtype) => ` The smallest dtype that contains both: ${dtype}.`,
    },
    zh: {
      because: "零维张量不会拓宽同一类别里有维度的张量。",
      title: "结果是什么形状、什么类型？",
      task: "b 保持 float64 张量，让和的形状为 (3,)，类型为 float32。",
      shape: (name) => `${name} 的形状`,
      dtype: (name) => `${name} 的类型`,
      number: "Python 数",
      repeated: (name, d) => `${name} 沿维度 ${d} 重复。`,
      none: "不能相加",
      stop: "。",
      same: () => "两边本来就是这个类型。",
      category: (dtype) => `浮点的类别高于整数：${dtype}。`,
      default: (dtype) => `Python 的 float 类别高于整数，取默认类型：${dtype}。`,
      a: (dtype) => `a 没有维度，不会让 b 变宽：${dtype}。`,
      b: (dtype) => `b 没有维度，不会让 a 变宽：${dtype}。`,
      wider: (dtype) => `包含两者的最小类型：${dtype}。`,
    },
  };

  const style = `
    .drawing { min-height: 13rem }
    .shapes { display: grid; grid-template-columns: auto 2.2rem 2.2rem auto; gap: 2px;
      justify-content: start; align-items: center; font: .875rem/1.5 var(--mono) }
    .shapes > * { padding: 0 .3rem; text-align: center; border-radius: .2rem }
    .shapes > :nth-child(4n + 1), .shapes > :nth-child(4n) { text-align: left }
    .sum { display: grid; grid-template-columns: 1fr auto 1fr auto 1fr; gap: .3rem;
      max-width: 30rem; margin-top: .6rem }
    .cells { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 2px }
    .cells > * { min-height: 2rem; padding: 0; display: grid; place-items: center;
      border: 1px solid var(--muted); border-radius: .2rem }
    .cells .again { border-style: dotted; color: var(--muted) }
    .cells .on { font-weight: 700; color: var(--paper); background: var(--held) }
    .controls { display: grid; grid-template-columns: 1fr 1fr }
    .select select { width: 100% }
    @container (min-width: 34rem) { .controls { grid-template-columns: repeat(4, 1fr) } }`;

  const tuple = (n) => `(${n.join(", ")}${n.length === 1 ? "," : ""})`;

  class BroadcastExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start({ start, numbers }) {
      return { ...start, number: numbers[1], k: 5 };
    }

    view({ a, b, da, db, number, k }, data, t) {
      const { shapes, dtypes, numbers, pairs, promoted, start } = data;
      const plain = b === shapes.length;
      const mine = [shapes[a], plain ? [] : shapes[b]];
      const { shape, at, error } = pairs[a][plain ? 0 : b];
      const level = (s) => Math.min(1, s.length);
      const kind = plain ? numbers.indexOf(number) : db;
      const [dtype, why] = promoted[level(mine[0])][plain ? 2 : level(mine[1])][da][kind];
      const chosen = at ? Math.min(k, at[0].length - 1) : -1;

      const value = (side, i) => (i + 1) * (side ? 10 : 1);
      const element = (name, own, i) => {
        const index =
          own.length === 2 ? [Math.floor(i / own[1]), i % own[1]] : own.length ? [i] : [];
        return index.length ? `${name}[${index.join(", ")}]` : name;
      };
      const missing = (own, d) => own.length < 2 - d;
      const size = (own, d) => own[own.length - 2 + d];
      const repeats = (side, d) =>
        shape && size(shape, d) > 1 && size(mine[side], d) !== size(shape, d);
      const row = (name, own, type, side) =>
        `<b>${name}</b>${times(2, (d) => {
          const mark = side < 2 && repeats(side, d) ? "hold" : "";
          return `<span class="${mark}" data-part="${name}${d - 2}">${
            missing(own, d) ? "·" : size(own, d)
          }</span>`;
        })}<span>${type}</span>`;
      const types = [dtypes[da], plain ? `Python ${number}` : dtypes[db]];
      const rows =
        row("a", mine[0], types[0], 0) +
        row("b", mine[1], types[1], 1) +
        (shape ? row("a+b", shape, dtype, 2) : `<b>a+b</b><span>×</span><span></span>${t.none}`);

      const across = (own) => `style="grid-template-columns: repeat(${own.at(-1) ?? 1},
        minmax(0, ${own.length ? "1fr" : "33%"}))"`;
      const operand = (side) => {
        const from = at?.[side] ?? [...Array(mine[side].reduce((n, m) => n * m, 1)).keys()];
        const one = (i) => {
          const mark = i === chosen ? "on" : from.indexOf(from[i]) < i ? "again" : "";
          const part = `data-part="${"ab"[side]}${from[i]}"`;
          return `<span class="${mark}" ${part}>${value(side, from[i])}</span>`;
        };
        return `<div class="cells" ${across(shape ?? mine[side])}>${times(from.length, one)}</div>`;
      };
      const met = (i) => at.map((from, side) => value(side, from[i]));
      const sums = (i) => {
        const [one, other] = met(i);
        return `<button class="${i === chosen ? "on" : ""}" data-point="k=${i}"
          aria-label="${one} + ${other} = ${one + other}">${one + other}</button>`;
      };
      const result = shape
        ? `<div class="cells" ${across(shape)}>${times(at[0].length, sums)}</div>`
        : `<div>${t.none}</div>`;

      const names = shape
        ? at.map((from, side) => element("ab"[side], mine[side], from[chosen]))
        : [];
      const parts = names.map(
        (name, side) => `<span data-part="${"ab"[side]}${at[side][chosen]}">${name}</span>`,
      );
      const along = [0, 1].flatMap((side) =>
        [0, 1].filter((d) => repeats(side, d)).map((d) => [side, d]),
      );
      const again = along.map(([side, d]) => {
        const name = "ab"[side];
        return t.repeated(`<span data-part="${name}${d - 2}">${name}</span>`, d + shape.length - 2);
      });
      const options = shapes.map(tuple);
      const dtypeOf = (key, name, v) => select(key, t.dtype(name), v, dtypes);
      return {
        drawing: `<div class="shapes">${rows}</div><div class="sum">
          ${operand(0)}<span>+</span>${operand(1)}<span>=</span>${result}</div>`,
        controls:
          select("a", t.shape("a"), a, options) +
          dtypeOf("da", "a", da) +
          select("b", t.shape("b"), b, [...options, t.number]) +
          (plain
            ? select("number", t.dtype("b"), number, { int: "int", float: "float" })
            : dtypeOf("db", "b", db)),
        say: shape
          ? `${parts.join(" + ")} = ${met(chosen).join(" + ")}${t.stop}` +
            again.join("") +
            t[why](dtype)
          : quote(error),
        done: !plain && db === start.db && tuple(shape ?? []) === "(3,)" && dtype === "float32",
      };
    }
  }

  BookExplorer.define("broadcast-explorer", BroadcastExplorer);
})();
