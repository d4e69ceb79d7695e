(() => {
  const { BookExplorer } = globalThis;
  const { quote, select } = BookExplorer;

  const words = {
    en: {
      because:
        "The edited tensor is not the one that the node saved, so the version of the saved tensor is unchanged.",
      title: "What does backward need?",
      task: "let a node save a tensor, edit a tensor in line 3, and make line 4 run without an error.",
      code: "point at a line",
      graph: "the graph, from the output",
      line: (n) => `line ${n}`,
      version: (n) => `version ${n}`,
      function: "line 2",
      edit: "line 3",
      none: "# no edit",
      empty: "saves nothing",
      kept: (name, v) => `saved ${name}, version ${v}`,
      edited: (name, v) => `saved ${name}, version ${v}: overwritten`,
      freed: (name) => `saved ${name}: freed`,
      first: (node) => `${node} saves nothing: the gradient of a sum needs no values.`,
      saves: (node, name, v) => `To compute a gradient later, ${node} saves ${name}, version ${v}.`,
      unedited: "No tensor is edited.",
      stale: (node, name, v, now) =>
        `${name} is now at version ${now}; ${node} saved version ${v}. No error is raised yet.`,
      safe: (name, other) => `${name} has a new version. The saved tensor is ${other}, not edited.`,
      loose: "No node saved a tensor, so the edit is allowed.",
      grad: (value, name) => `w.grad is ${value}, and the saved ${name} is freed.`,
      wrong: (node, name, v, now) =>
        `RuntimeError: ${node} requires ${name} at version ${v}, but it is at version ${now}.`,
      lost: (node, name) =>
        `RuntimeError: ${node} needs the saved ${name} again, but it was freed.`,
      again: (value) => `w.grad is ${value}. No tensor was saved, so none was freed.`,
    },
    zh: {
      because: "被修改的不是节点保存的那个张量，所以保存的张量版本不变。",
      title: "反向传播需要什么？",
      task: "让某个节点保存张量，在第 3 行修改一个张量，并且第 4 行不报错。",
      code: "把鼠标移到某一行上",
      graph: "计算图，从输出往回",
      line: (n) => `第 ${n} 行`,
      version: (n) => `版本 ${n}`,
      function: "第 2 行",
      edit: "第 3 行",
      none: "# 不修改",
      empty: "什么也不保存",
      kept: (name, v) => `保存了 ${name}，版本 ${v}`,
      edited: (name, v) => `保存了 ${name}，版本 ${v}，已被改写`,
      freed: (name) => `保存的 ${name} 已释放`,
      first: (node) => `${node} 什么也不保存：加法的梯度不需要任何数值。`,
      saves: (node, name, v) => `为了以后求梯度，${node} 保存了 ${name}，版本 ${v}。`,
      unedited: "没有修改。",
      stale: (node, name, v, now) =>
        `${name} 现在是版本 ${now}，而 ${node} 保存的是版本 ${v}。这时还不会报错。`,
      safe: (name, other) => `${name} 的版本变了，但保存的是 ${other}，没有修改。`,
      loose: "没有节点保存张量，所以可以修改。",
      grad: (value, name) => `w.grad 是 ${value}，保存的 ${name} 已经释放。`,
      wrong: (node, name, v, now) =>
        `RuntimeError：${node} 需要版本 ${v} 的 ${name}，现在却是版本 ${now}。`,
      lost: (node, name) => `RuntimeError：${node} 还要用保存的 ${name}，但它已经释放。`,
      again: (value) => `w.grad 是 ${value}。没有保存张量，所以也没有释放。`,
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
