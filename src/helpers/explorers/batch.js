(() => {
  const { BookExplorer } = globalThis;

  const words = {
    en: {
      batch: "Batch size",
      replicas: "Replicas",
      replica: "Replica",
      idle: "idle: no shard was left for it",
      samples: (n) => `${n} sample${n > 1 ? "s" : ""}`,
      share: "share of the batch",
      weight: "weight in a mean of means",
      exact: "Gradient of the full batch, and of a loss on the gathered output",
      averaged: "Gradient of the mean of the shards’ means",
      same: "the same",
      wrong: "not the same",
      idlers: (n) => (n ? ` ${n} replica${n > 1 ? "s" : ""} idle.` : ""),
      split: (n, sizes) => `${n} sample${n > 1 ? "s" : ""} split as ${sizes.join(" + ")}.`,
    },
    zh: {
      batch: "批量大小",
      replicas: "副本数",
      replica: "副本",
      idle: "空闲：没有分到数据",
      samples: (n) => `${n} 个样本`,
      share: "在整批中的占比",
      weight: "在均值的均值里的权重",
      exact: "整批的梯度，也是在汇集后的输出上算损失的梯度",
      averaged: "各分片均值再取均值的梯度",
      same: "相同",
      wrong: "不相同",
      idlers: (n) => (n ? `${n} 个副本空闲。` : ""),
      split: (n, sizes) => `${n} 个样本分成 ${sizes.join(" + ")}。`,
    },
  };

  const style = `
    label, .replica { display: flex; flex-wrap: wrap; gap: .25rem .75rem; align-items: center }
    label > :first-child, .replica > :first-child { flex: 0 0 6rem }
    input, .samples { flex: 1 1 8rem }
    output { flex: 0 0 2rem; text-align: right; font-weight: 600 }
    ul { margin: .8rem 0; padding: 0; list-style: none }
    li { margin: 0 0 .5rem; padding-bottom: .35rem; border-bottom: 1px solid var(--line) }
    i { display: inline-block; width: .8rem; height: .8rem; margin-right: 2px;
      background: var(--held); border: 1px solid currentColor }
    p { margin: .3rem 0 }
    dl { display: block; margin: 0 }
    dd { margin: 0 0 .3rem }`;

  class BatchExplorer extends BookExplorer {
    static words = words;
    static style = style;

    build(rows) {
      const t = this.words;
      const slider = (text, max, value) =>
        `<label><span>${text}</span>` +
        `<input type="range" min="1" max="${max}" value="${value}"><output></output></label>`;
      const find = this.fill(
        slider(t.batch, rows.length, 10) +
          slider(t.replicas, rows[0].splits.length, 4) +
          `<ul></ul><div aria-live="polite"><p></p><dl></dl></div>`,
      );
      const [batch, replicas] = this.shadowRoot.querySelectorAll("input");
      const show = () => {
        const [n, k] = [+batch.value, +replicas.value];
        const { exact, splits } = rows[n - 1];
        const [sizes, averaged] = splits[k - 1];
        for (const input of [batch, replicas]) input.nextElementSibling.value = input.value;
        find("ul").innerHTML = Array.from({ length: k }, (_, i) => {
          const name = `<span>${t.replica} ${i}</span>`;
          if (i >= sizes.length) return `<li class="replica">${name}<em>${t.idle}</em></li>`;
          const squares = `<span class="samples" aria-hidden="true">${"<i></i>".repeat(sizes[i])}`;
          const weighs = `${t.share} ${sizes[i]}/${n} · ${t.weight} 1/${sizes.length}`;
          return (
            `<li><div class="replica">${name}${squares}</span></div>` +
            `<small>${t.samples(sizes[i])} · ${weighs}</small></li>`
          );
        }).join("");
        find("p").textContent = t.split(n, sizes) + t.idlers(k - sizes.length);
        find("dl").innerHTML = BookExplorer.facts([
          [t.exact, exact],
          [t.averaged, `${averaged} — ${averaged === exact ? t.same : t.wrong}`],
        ]);
      };
      this.addEventListener("input", show);
      show();
    }
  }

  BookExplorer.define("batch-explorer", BatchExplorer);
})();
