(() => {
  const { BookExplorer } = globalThis;
  const { check, times } = BookExplorer;

  const code = (text) => `<code>${text}</code>`;
  const call = code("load_state_dict");
  const words = {
    en: {
      because:
        "A key is loaded if name and size agree; <code>strict=False</code> does not excuse another size, so the head is left out.",
      title: "No error, and nothing is loaded",
      task: "load everything that fits, without an error.",
      file: "keys of the file",
      model: "keys of the model",
      out: "left out",
      strip: (prefix) => `strip ${code(prefix)}`,
      rename: `${code("fc1")} → ${code("body")}`,
      drop: `drop ${code("head")}`,
      strict: code("strict=True"),
      states: { l: "loaded", m: "missing", s: "another size" },
      row: (name, state) => `${name}: ${state}`,
      call: (raised, some) =>
        `${call} ${raised ? "raises RuntimeError" : "returns without an error"}, ` +
        `${raised && some ? "but" : "and"} `,
      sum: (n, all, word) => `${word("l", `${n} of ${all} values`)} are loaded: `,
      missing: (n, word) => word("m", `${n} missing`),
      extra: (n, word) => word("extra", `${n} unexpected`),
      size: (n, word) => word("s", `${n} of another size`),
      none: "all keys fit",
      comma: ", ",
      stop: ". ",
      l: (name, raised) =>
        raised ? `${name} was overwritten before the error.` : `${name} has the file's values.`,
      m: (name) => `The file has no key ${name}: the model's entry is unchanged.`,
      s: (name, mine, its) =>
        `${name} is ${mine} in the model and ${its} in the file: it is unchanged.`,
      front: `No key begins with ${code("module.")}, so nothing was stripped. `,
    },
    zh: {
      because:
        "名字和大小都对得上的键才会加载；大小不同时，<code>strict=False</code> 也会报错，所以要去掉 head。",
      title: "没有报错，却什么也没加载",
      task: "加载对得上的全部内容，并且不报错。",
      file: "文件里的名字",
      model: "模型里的名字",
      out: "已去掉",
      strip: (prefix) => `去掉前缀 ${code(prefix)}`,
      rename: `${code("fc1")} → ${code("body")}`,
      drop: `去掉 ${code("head")}`,
      strict: code("strict=True"),
      states: { l: "已加载", m: "缺少", s: "大小不同" },
      row: (name, state) => `${name}：${state}`,
      call: (raised, some) =>
        `${call} ${raised ? "抛出 RuntimeError" : "正常返回，没有报错"}，` +
        `${raised && some ? "但" : ""}`,
      sum: (n, all, word) => `${all} 个值加载了 ${word("l", `${n} 个`)}：`,
      missing: (n, word) => word("m", `缺少 ${n} 项`),
      extra: (n, word) => word("extra", `多余 ${n} 项`),
      size: (n, word) => word("s", `${n} 项大小不同`),
      none: "名字全部对上",
      comma: "，",
      stop: "。",
      l: (name, raised) => (raised ? `${name} 在报错之前已被覆盖。` : `${name} 换成了文件里的值。`),
      m: (name) => `文件里没有 ${name}，模型的这一项不变。`,
      s: (name, mine, its) => `${name} 在模型里是 ${mine}，在文件里是 ${its}，保持不变。`,
      front: `没有以 ${code("module.")} 开头的名字，所以没有去掉任何前缀。`,
    },
  };

  const style = `
    .keys { display: grid; gap: 3px; min-height: 15.5rem }
    .keys button, .heads { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr);
      gap: .2rem .5rem }
    .keys button { min-height: 2.3rem; padding: .1rem .3rem; align-items: center;
      text-align: start; border-color: var(--line); font-size: .85rem; line-height: 1.15 }
    .keys code { font-size: .78rem; line-height: 1.15 }
    .keys small { color: var(--muted); white-space: nowrap }
    .keys [aria-current] { border: 2px solid var(--ink) }
    .keys span { padding: .1rem .3rem; border-radius: .2rem }
    .controls { gap: .4rem .6rem }
    .check { gap: .35rem; font-size: .85rem }`;

  class KeysExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { outer: false, inner: false, rename: false, drop: false, strict: false, at: 0 };
    }

    view({ outer, inner, rename, drop, strict, at }, { model, file, keys, rows }, t) {
      const bits = [outer, inner, rename, drop].map(Number).join("");
      const { raised, state } = rows[Number(strict) + bits];
      const there = keys[bits];
      const own = model.map(([name]) => name);
      const extra = there.filter((key) => !own.includes(key)).length;
      const many = (kind) => [...state].filter((one) => one === kind).length;
      const size = ([, shape]) => shape.reduce((a, b) => a * b, 1);
      const sum = (list) => list.reduce((a, one) => a + size(one), 0);
      const full = sum(model.filter((_, i) => state[i] === "l"));
      const shape = (one) => `(${one[1].join(", ")}${one[1].length === 1 ? "," : ""})`;
      const broken = (name) => code(name.replaceAll(".", ".<wbr>"));
      const cell = (look, part, name, one) =>
        `<span class="${look}" data-part="${part}">${broken(name)} <small>${shape(one)}
          ${{ good: "✓", bad: "✗" }[look] ?? ""}</small></span>`;
      const row = (i) => {
        const part = own.includes(there[i]) ? state[own.indexOf(there[i])] : "extra";
        const left = there[i] ? cell("", part, there[i], file[i]) : `<span>${t.out}</span>`;
        const right = cell(state[i] === "l" ? "good" : "bad", state[i], own[i], model[i]);
        return `<button data-point="at=${i}" aria-label="${t.row(own[i], t.states[state[i]])}">
          ${left}${right}</button>`;
      };
      const word = (part, text) => `<span data-part="${part}">${text}</span>`;
      const wrong = [
        many("m") && t.missing(many("m"), word),
        extra && t.extra(extra, word),
        many("s") && t.size(many("s"), word),
      ].filter(Boolean);
      const one = state[at];
      return {
        drawing: `<div class="title heads"><span>${t.file}</span><span>${t.model}</span></div>
          <div class="keys">${times(own.length, row)}</div>`,
        controls:
          check("outer", t.strip("_orig_mod."), outer) +
          check("inner", t.strip("module."), inner) +
          check("rename", t.rename, rename) +
          check("drop", t.drop, drop) +
          check("strict", t.strict, strict),
        say:
          t.call(raised, full) +
          t.sum(full, sum(model), word) +
          (wrong.join(t.comma) || t.none) +
          t.stop +
          (inner && !outer
            ? t.front
            : t[one](code(own[at]), one === "s" ? shape(model[at]) : raised, shape(file[at]))),
        done: !raised && full === sum(model.filter((one, i) => size(one) === size(file[i]))),
      };
    }
  }

  BookExplorer.define("keys-explorer", KeysExplorer);
})();
