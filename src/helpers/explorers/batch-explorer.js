(() => {
  if (customElements.get("batch-explorer")) return;
  const WORDS = {
    en: {
      batch: "Batch size", replicas: "Replicas", replica: "Replica", idle: "idle: no shard was left for it",
      samples: n => `${n} sample${n > 1 ? "s" : ""}`, share: "share of the batch", weight: "weight in a mean of means",
      exact: "Gradient of the full batch, and of a loss on the gathered output", averaged: "Gradient of the mean of the shards’ means",
      same: "the same", wrong: "not the same",
      idlers: n => n ? ` ${n} replica${n > 1 ? "s" : ""} idle.` : "",
      split: (n, sizes) => `${n} sample${n > 1 ? "s" : ""} split as ${sizes.join(" + ")}.`,
    },
    zh: {
      batch: "批量大小", replicas: "副本数", replica: "副本", idle: "空闲：没有分到数据",
      samples: n => `${n} 个样本`, share: "在整批中的占比", weight: "在均值的均值里的权重",
      exact: "整批的梯度，也是在汇集后的输出上算损失的梯度", averaged: "各分片均值再取均值的梯度",
      same: "相同", wrong: "不相同",
      idlers: n => n ? `${n} 个副本空闲。` : "",
      split: (n, sizes) => `${n} 个样本分成 ${sizes.join(" + ")}。`,
    },
  };
  customElements.define("batch-explorer", class extends HTMLElement {
    connectedCallback() {
      if (this.ready) return;
      this.ready = true;
      const lang = (this.getAttribute("lang") || document.documentElement.lang || navigator.language || "en").slice(0, 2);
      const t = WORDS[lang] || WORDS.en, rows = JSON.parse(this.getAttribute("data"));
      const id = "batch-" + Math.random().toString(36).slice(2), most = rows[0].splits.length;
      this.style.cssText = "display:block;max-width:36rem;margin:1rem 0;padding:1rem;border:1px solid var(--pst-color-border,#999);border-radius:.5rem";
      const slider = (key, max, value) => `<label for="${id}${key}" style="flex:0 0 6rem">${t[key]}</label><input type="range" id="${id}${key}" min="1" max="${max}" value="${value}" style="flex:1 1 8rem;min-width:0;accent-color:var(--pst-color-primary,#0a7d91)"><output for="${id}${key}" style="flex:0 0 2rem;text-align:right;font-weight:600"></output>`;
      const line = "display:flex;flex-wrap:wrap;gap:.25rem .75rem;align-items:center";
      const root = this.attachShadow({ mode: "open" });
      root.innerHTML = `<div style="${line}">${slider("batch", rows.length, 10)}</div><div style="${line}">${slider("replicas", most, 4)}</div><ul style="list-style:none;margin:.8rem 0;padding:0"></ul><div aria-live="polite"></div>`;
      const [batch, replicas] = root.querySelectorAll("input"), [b, r] = root.querySelectorAll("output");
      const list = root.querySelector("ul"), status = root.querySelector("[aria-live]");
      const square = '<span style="display:inline-block;width:.8rem;height:.8rem;margin-right:2px;border:1px solid currentColor;background:var(--pst-color-primary,#0a7d91)"></span>';
      const show = () => {
        const n = +batch.value, k = +replicas.value, row = rows[n - 1], [sizes, averaged] = row.splits[k - 1];
        b.value = n;
        r.value = k;
        list.innerHTML = Array.from({ length: k }, (_, i) => `<li style="margin:0 0 .5rem;border-bottom:1px solid var(--pst-color-border,#999);padding-bottom:.35rem"><div style="${line}"><span style="flex:0 0 6rem">${t.replica} ${i}</span>${i < sizes.length ? `<span aria-hidden="true" style="flex:1 1 8rem">${square.repeat(sizes[i])}</span>` : `<em>${t.idle}</em>`}</div>${i < sizes.length ? `<small>${t.samples(sizes[i])} · ${t.share} ${sizes[i]}/${n} · ${t.weight} 1/${sizes.length}</small>` : ""}</li>`).join("");
        const same = averaged === row.exact;
        status.innerHTML = `<p style="margin:.3rem 0">${t.split(n, sizes)}${t.idlers(k - sizes.length)}</p><dl style="margin:0"><dt style="font-weight:normal">${t.exact}</dt><dd style="margin:0 0 .3rem;font-weight:600">${row.exact}</dd><dt style="font-weight:normal">${t.averaged}</dt><dd style="margin:0;font-weight:600">${averaged} — ${same ? t.same : t.wrong}</dd></dl>`;
      };
      batch.addEventListener("input", show);
      replicas.addEventListener("input", show);
      show();
    }
  });
})();
