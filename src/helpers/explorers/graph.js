(() => {
  const { BookExplorer } = globalThis;
  const { quote, select } = BookExplorer;

  const words = {
    en: {
      title: "What does backward need?",
      task: "let a node save a tensor, edit one in line 3, and make line 4 work all the same.",
      code: "point at a line",
      graph: "the graph, from the end",
      line: (n) => `line ${n}`,
      version: (n) => `version ${n}`,
      function: "line 2",
      edit: "line 3",
      none: "# no edit",
      empty: "saves nothing",
      kept: (name, v) => `saved ${name}, version ${v}`,
      edited: (name, v) => `saved ${name}, version ${v}: gone`,
      freed: (name) => `saved ${name}: freed`,
      first: (node) => `${node} saves nothing: the gradient of a sum needs no values.`,
      saves: (node, name, v) => `To compute a gradient later, ${node} saves ${name}, version ${v}.`,
      unedited: "Nothing is edited.",
      stale: (node, name, v, now) =>
        `${name} is now at version ${now}; ${node} has saved version ${v}. Nobody complains yet.`,
      safe: (name, other) => `${name} has a new version; but ${other} was saved, which has not.`,
      loose: "No node has saved anything, so the edit does no harm.",
      grad: (value, name) => `w.grad is ${value}, and the saved ${name} is freed.`,
      wrong: (node, name, v, now) =>
        `RuntimeError: ${node} needs ${name} at version ${v}, and finds version ${now}.`,
      lost: (node, name) => `RuntimeError: ${node} needs the saved ${name} again, and it is freed.`,
      again: (value) => `w.grad is ${value}. Nothing was saved, so nothing was freed.`,
    },
    zh: {
      title: "反向传播需要什么？",
      task: "要有节点保存张量，第 3 行也要修改一个，而第 4 行照样不报错。",
      code: "指向一行",
      graph: "计算图，从末尾往回",
      line: (n) => `第 ${n} 行`,
      version: (n) => `版本 ${n}`,
      function: "第 2 行",
      edit: "第 3 行",
      none: "# 不修改",
      empty: "什么也不保存",
      kept: (name, v) => `存有 ${name}，版本 ${v}`,
      edited: (name, v) => `存有 ${name}，版本 ${v}，已被改掉`,
      freed: (name) => `存过 ${name}，已释放`,
      first: (node) => `${node} 什么也不保存：加法的梯度不需要任何数值。`,
      saves: (node, name, v) => `为了以后求梯度，${node} 保存了 ${name}，版本 ${v}。`,
      unedited: "没有修改。",
      stale: (node, name, v, now) =>
        `${name} 的版本成了 ${now}，而 ${node} 存的是版本 ${v}。这时还没有谁报错。`,
      safe: (name, other) => `${name} 换了版本；可保存下来的是 ${other}，它没有变。`,
      loose: "没有节点保存过张量，所以修改无妨。",
      grad: (value, name) => `w.grad 是 ${value}，保存的 ${name} 已经释放。`,
      wrong: (node, name, v, now) =>
        `RuntimeError：${node} 要的是 ${name} 的版本 ${v}，却遇到版本 ${now}。`,
      lost: (node, name) => `RuntimeError：${node} 还要用保存的 ${name}，可它已经释放了。`,
      again: (value) => `w.grad 是 ${value}。什么也没有保存，也就没有释放。`,
    },
  };

  const style = `
    .top { display: grid; grid-template-columns: auto 1fr; gap: 0 1.2rem }
    .lines, .nodes { display: grid; gap: 2px }
    .lines button { min-height: 1.9rem; padding: 0 .5rem; text-align: left }
    .lines button, .tensors, .nodes { font: .8rem/1.6 var(--mono) }
    .lines .later { border-style: dotted; color: var(--muted) }
    .lines .on { color: var(--paper); background: var(--held); border: 1px solid var(--held) }
    .lines .on.error { background: var(--wrong); border-color: var(--wrong) }
    .nodes > div { display: flex; flex-wrap: wrap; gap: 0 .6rem; padding: 0 .4rem;
      justify-content: space-between; border: 1px solid var(--line); border-radius: .2rem }
    .nodes { min-height: 6.8rem; max-width: 30rem; align-content: start }
    .select { flex: 1 1 7rem } .select select { width: 100%; font: .8rem var(--mono) }`;

  class GraphExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { f: 0, edit: 1, step: 3 };
    }

    view({ f, edit, step }, { functions, edits, runs }, t) {
      const run = runs[f][edit];
      const { tensors, nodes, grad, error } = run[step];
      const part = (name) => `<span data-part="${name}">${name}</span>`;
      const code = ({ line, error: wrong }, i) => {
        const mark = i === step ? "on" : i > step ? "later" : "";
        return `<button class="${mark}${wrong ? " error" : ""}" data-point="step=${i}"
          aria-label="${t.line(i + 1)}: ${line || t.none}">${line || t.none}</button>`;
      };
      const tensor = ([name, [value, version]]) =>
        `<div data-part="${name}">${name} = ${value}, ${t.version(version)}</div>`;
      const marks = { kept: "good", edited: "bad", freed: "free" };
      const node = ([name, saved]) => {
        const [what, version, fate] = saved ?? [];
        const facts = name === "AccumulateGrad" ? `w.grad = ${grad ?? "None"}` : t.empty;
        return `<div class="${marks[fate] ?? ""}"${saved ? ` data-part="${what}"` : ""}>
          <b>${name}</b><span>${saved ? t[fate](what, version) : facts}</span></div>`;
      };
      const [keeper, saved] = nodes.find(([, one]) => one) ?? [nodes[0][0], null];
      const said = () => {
        if (step === 0) return t.first(keeper);
        const [name, version, fate] = saved ?? [];
        if (error)
          return fate === "edited"
            ? t.wrong(keeper, part(name), version, tensors[name][1])
            : t.lost(keeper, part(name));
        if (step === 1) return saved ? t.saves(keeper, part(name), version) : t.first(keeper);
        if (step === 2) {
          if (!edit) return t.unedited;
          if (!saved) return t.loose;
          const touched = part(edits[edit][0]);
          if (fate === "edited") return t.stale(keeper, touched, version, tensors[name][1]);
          return t.safe(touched, part(name));
        }
        return saved ? t.grad(grad, part(name)) : t.again(grad);
      };
      return {
        drawing: `<div class="top"><div><div class="title">${t.code}</div>
          <div class="lines">${run.map(code).join("")}</div></div>
          <div class="tensors"><div class="title">&nbsp;</div>
          ${Object.entries(tensors).map(tensor).join("")}</div></div>
          <div class="title">${t.graph}</div><div class="nodes">${nodes.map(node).join("")}</div>`,
        controls:
          select("f", t.function, f, functions.map(quote)) +
          select("edit", t.edit, edit, [t.none, ...edits.slice(1)]),
        say: said(),
        done: step === 3 && edit > 0 && saved && !error,
      };
    }
  }

  BookExplorer.define("graph-explorer", GraphExplorer);
})();
