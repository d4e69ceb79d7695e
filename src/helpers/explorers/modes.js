(() => {
  const { BookExplorer } = globalThis;
  const { check, choice, quote } = BookExplorer;

  const EFFECTS = ["differ", "moved", "kept", "weights", "error"];
  const code = (text) => `<code>${text}</code>`;
  const words = {
    en: {
      because:
        "In <code>eval()</code> Dropout and BatchNorm do not depend on the pass; without a graph nothing is saved and no weight of the network gets a gradient.",
      title: "Three switches, five effects",
      task: "compute features to train a new layer on, without an effect that is wrong for this.",
      mode: "around the pass",
      training: "train()",
      frozen: "requires_grad_(False)",
      colon: ": ",
      stop: ". ",
      head: "new layer",
      names: {
        differ: "two passes",
        moved: "statistics",
        kept: "saved for backward",
        weights: "weights with a gradient",
        error: "training the new layer",
      },
      values: {
        differ: (yes) => (yes ? "differ" : "are equal"),
        moved: (yes) => (yes ? "are updated" : "are unchanged"),
        kept: (n) => `${n.toLocaleString("en")} bytes`,
        weights: (n) => `${n} of 4`,
        error: (text) => (text ? "RuntimeError" : "works"),
      },
      differ: (yes) =>
        yes
          ? `In ${code("train()")} Dropout draws a new mask in each pass, with or without a graph.`
          : `In ${code("eval()")} Dropout returns its input; BatchNorm uses running statistics.`,
      moved: (yes) =>
        yes
          ? `In ${code("train()")} BatchNorm's forward pass updates them, without any gradient.`
          : `In ${code("eval()")} BatchNorm uses its running statistics and does not update them.`,
      kept: (n, { mode, frozen }) =>
        n
          ? "Recording is on and the weights require gradients, so the graph saves activations."
          : mode
            ? `Under ${code(`${mode}()`)} nothing is recorded.`
            : frozen && "Recording is on, but nothing in this pass requires a gradient.",
      weights: (n, { mode }) =>
        n
          ? "The new layer's gradient flows through the features into the network."
          : mode
            ? "The features have no graph, so no gradient flows into the network."
            : "Frozen weights require no gradient, so none is computed.",
      error: (text) =>
        text
          ? `${code(quote(text.split(". ")[0]))}: the new layer has to save the features.`
          : "The new layer saves the features for its own backward pass.",
    },
    zh: {
      because:
        "在 <code>eval()</code> 下，Dropout 和 BatchNorm 每次的结果都一样；不建图就不保存激活值，网络的权重也不会得到梯度。",
      title: "三个开关，五种效果",
      task: "提取用来训练新层的特征，并且没有一种效果是错的。",
      mode: "前向传播所处的模式",
      training: "train()",
      frozen: "requires_grad_(False)",
      colon: "：",
      stop: "。",
      head: "新的层",
      names: {
        differ: "两次前向传播",
        moved: "统计量",
        kept: "为反向传播保存",
        weights: "得到梯度的权重",
        error: "训练新的层",
      },
      values: {
        differ: (yes) => (yes ? "不同" : "相同"),
        moved: (yes) => (yes ? "变了" : "没变"),
        kept: (n) => `${n.toLocaleString("en")} 字节`,
        weights: (n) => `4 个中 ${n} 个`,
        error: (text) => (text ? "RuntimeError" : "可以"),
      },
      differ: (yes) =>
        yes
          ? `在 ${code("train()")} 下，dropout 每次都抽取新的掩码，与记不记录计算图无关。`
          : `在 ${code("eval()")} 下，dropout 原样返回输入，批归一化用滑动统计量。`,
      moved: (yes) =>
        yes
          ? `在 ${code("train()")} 下，批归一化的前向传播就会更新统计量，与梯度、优化器都无关。`
          : `在 ${code("eval()")} 下，批归一化使用滑动统计量，不更新。`,
      kept: (n, { mode, frozen }) =>
        n
          ? "记录开着，权重又需要梯度，所以计算图保存了激活值。"
          : mode
            ? `在 ${code(`${mode}()`)} 下，什么也不记录。`
            : frozen && "记录开着，但这次前向传播里没有张量需要梯度。",
      weights: (n, { mode }) =>
        n
          ? "新层的梯度会穿过特征，流进网络。"
          : mode
            ? "特征没有计算图，梯度流不进网络。"
            : "冻结的权重不需要梯度，也就不计算梯度。",
      error: (text) =>
        text
          ? `${code(quote(text.split(". ")[0]))}：新的层要为反向传播保存这些特征，而推理张量不允许。`
          : "新的层为自己的反向传播保存这些特征。",
    },
  };

  const style = `
    .path { gap: .2rem; margin-bottom: .5rem; font: .75rem var(--mono) }
    .path span { padding: .15rem .3rem; border: 1px solid var(--line); border-radius: .3rem }
    .effects { display: grid; gap: .3rem }
    .effects button { display: flex; flex-wrap: wrap; gap: 0 1rem; align-items: center;
      justify-content: space-between; text-align: left; border-color: var(--line) }
    .effects [aria-current] { border: 2px solid var(--ink) }
    .choice span, .check span { font: .8rem var(--mono) }`;

  const PATH = {
    Linear: "weights kept",
    BatchNorm1d: "moved weights kept differ",
    Dropout: "differ kept",
  };

  class ModesExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { mode: 1, training: true, frozen: false, at: 0 };
    }

    view({ mode, training, frozen, at }, { modes, rows }, t) {
      const found = rows[mode][Number(training)][Number(frozen)];
      const wrong = { ...found, weights: false };
      const shown = (effect) => t.values[effect](found[effect]);
      const effect = EFFECTS[at];
      const mark = (one) => (one === "weights" ? "" : wrong[one] ? "bad" : "good");
      const part = (parts, text) => `<span data-part="${parts}">${text}</span>`;
      return {
        drawing: `<div class="row path">${Object.entries(PATH)
          .map(([name, parts]) => part(parts, name))
          .join(" → ")} → ${part("error weights", t.head)}</div>
          <div class="effects">${EFFECTS.map(
            (one, i) => `<button class="${mark(one)}" data-part="${one}"
              data-point="at=${i}"><span>${t.names[one]}</span><b>${shown(one)}</b></button>`,
          ).join("")}</div>`,
        controls:
          choice("mode", t.mode, mode, modes) +
          check("training", t.training, training) +
          check("frozen", t.frozen, frozen),
        say: `${part(effect, `${t.names[effect]}${t.colon}${shown(effect)}`)}${t.stop}${t[effect](
          found[effect],
          {
            mode: mode && modes[mode],
            frozen,
          },
        )}`,
        done: !EFFECTS.some((one) => wrong[one]),
      };
    }
  }

  BookExplorer.define("modes-explorer", ModesExplorer);
})();
