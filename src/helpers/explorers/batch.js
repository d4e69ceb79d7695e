(() => {
  const { BookExplorer } = globalThis;
  const { range } = BookExplorer;

  const words = {
    en: {
      because: "The mean of means is the mean of the batch if all shards have the same size.",
      title: "Does a mean of means give the right gradient?",
      task: "keep the 10 samples and get the right gradient on more than one replica.",
      batch: "batch size",
      replicas: "replicas",
      share: "share of the batch",
      weight: "weight in the mean of the shards’ means",
      exact: "gradient of the batch",
      averaged: "of the mean of means",
      replica: (r) => `replica ${r}`,
      part: (r, n, of, weighs) =>
        `${r} has ${n} of ${of} sample${of > 1 ? "s" : ""} and weighs ${weighs}.`,
      idle: (n) => ` ${n} replica${n > 1 ? "s" : ""} idle: no shard was left.`,
      same: " Shares and weights agree, so the gradient is right.",
      wrong: " Shares and weights differ, so the gradient is wrong.",
    },
    zh: {
      because: "各片大小相同，均值的均值才等于整个批的均值。",
      title: "均值的均值，梯度对吗？",
      task: "保持 10 个样本，用不止一个副本，让梯度正确。",
      batch: "批量大小",
      replicas: "副本数",
      share: "在整批中的占比",
      weight: "在各分片均值的均值里的权重",
      exact: "整批的梯度",
      averaged: "均值的均值的梯度",
      replica: (r) => `副本 ${r}`,
      part: (r, n, of, weighs) => `${r} 分到 ${of} 个样本中的 ${n} 个，权重是 ${weighs}。`,
      idle: (n) => `${n} 个副本空闲：没有分到数据。`,
      same: "占比与权重一致，所以梯度正确。",
      wrong: "占比与权重不一致，所以梯度错了。",
    },
  };

  const style = `
    .shares { display: flex; gap: 2px; height: 2.75rem }
    .shares > * { display: flex; min-width: 0; min-height: 0; padding: 0; align-items: center;
      justify-content: center; font-size: .8rem; line-height: 1.2; border: 1px solid var(--held);
      border-radius: .2rem }
    .shares .odd { background: none }
    dl { display: grid; grid-template-columns: 1fr auto; margin-top: .5rem }
    dd { text-align: right; font-weight: 650 }
    dd.wrong { color: var(--wrong) } dd.right { color: var(--right) }`;

  const minus = (n) => String(n).replace("-", "−");

  class BatchExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { n: 10, replicas: 4, at: 3 };
    }

    view({ n, replicas, at }, rows, t) {
      const { exact, splits } = rows[n - 1];
      const [sizes, averaged] = splits[replicas - 1];
      const k = sizes.length;
      const chosen = Math.min(at, k - 1);
      const right = averaged === exact;
      const look = (i) => `class="${i % 2 ? "odd" : "hold"}" data-part="r${i}"`;
      const bar = (one) => `<div class="shares">${sizes.map(one).join("")}</div>`;
      const share = (size, i) =>
        `<button ${look(i)} data-point="at=${i}" style="flex: ${size}"
          aria-label="${t.replica(i)}: ${size}/${n}, 1/${k}">
          <span>${size}/<wbr>${n}</span></button>`;
      const weight = (_, i) => `<span ${look(i)} style="flex: 1" aria-hidden="true">1/${k}</span>`;
      const name = `<span data-part="r${chosen}">${t.replica(chosen)}</span>`;
      return {
        drawing: `<div class="title">${t.share}</div>${bar(share)}
          <div class="title">${t.weight}</div>${bar(weight)}
          <dl><dt>${t.exact}</dt><dd>${minus(exact)}</dd><dt>${t.averaged}</dt>
          <dd class="${right ? "right" : "wrong"}">${minus(averaged)}</dd></dl>`,
        controls:
          range("n", t.batch, n, 1, rows.length) +
          range("replicas", t.replicas, replicas, 1, rows[0].splits.length),
        say:
          t.part(name, sizes[chosen], n, `1/${k}`) +
          (right ? t.same : t.wrong) +
          (replicas > k ? t.idle(replicas - k) : ""),
        done: n === 10 && replicas > 1 && right,
      };
    }
  }

  BookExplorer.define("batch-explorer", BatchExplorer);
})();
