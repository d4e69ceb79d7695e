(() => {
  if (customElements.get("mean-explorer")) return;
  const WORDS = {
    en: {
      weights: (w) => `class weights ${w.join(", ")}`, legend: "Samples that count, and their losses",
      sample: (i, c) => `sample ${i}, class ${c}`, times: (w) => `, weight ${w}`,
      sum: "sum", by: "divided by", mean: 'reduction="mean"', plain: "loss.mean() of the vector",
      samples: (n) => `samples that count: ${n}`, added: (w) => `sum of their weights: ${w}`,
      because: (n, how) => `${n} (${how})`,
      said: (mean, remark) => `reduction="mean": ${mean}. ${remark}`,
      none: "Nothing is left to divide by: 0 / 0 is nan.",
      same: "Both numbers agree.",
      other: "Two different numbers: loss.mean() divides by all 4 samples.",
    },
    zh: {
      weights: (w) => `类别权重 ${w.join("、")}`, legend: "计入的样本，以及它们的损失",
      sample: (i, c) => `样本 ${i}，类别 ${c}`, times: (w) => `，权重 ${w}`,
      sum: "总和", by: "除以", mean: 'reduction="mean"', plain: "对向量取 loss.mean()",
      samples: (n) => `计入的样本数：${n}`, added: (w) => `它们的权重之和：${w}`,
      because: (n, how) => `${n}（${how}）`,
      said: (mean, remark) => `reduction="mean"：${mean}。${remark}`,
      none: "分母里什么都不剩：0 / 0 得 nan。",
      same: "两个数一致。",
      other: "两个数不一样：loss.mean() 除以全部 4 个样本。",
    },
  };
  customElements.define("mean-explorer", class extends HTMLElement {
    connectedCallback() {
      if (this.ready) return;
      this.ready = true;
      const lang = (this.getAttribute("lang") || document.documentElement.lang || navigator.language || "en").slice(0, 2);
      const t = WORDS[lang] || WORDS.en, { labels, weights, rows } = JSON.parse(this.getAttribute("data"));
      const longest = Math.max(...rows.flat().flatMap((row) => row.each.map(Number)));
      this.style.cssText = "display:block;max-width:36rem;margin:1rem 0;padding:1rem;border:1px solid var(--pst-color-border,#999);border-radius:.5rem;background:var(--pst-color-background,transparent);color:var(--pst-color-text-base,inherit)";
      const root = this.attachShadow({ mode: "open" });
      root.innerHTML = `<label><input type="checkbox" data-weights> ${t.weights(weights)}</label>
        <fieldset style="margin:.8rem 0;padding:0;border:0;min-width:0"><legend style="font-size:1rem;padding:0;margin-bottom:.4rem">${t.legend}</legend>${labels.map((c, i) => `
          <div style="margin:.35rem 0"><div style="display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 1rem"><label><input type="checkbox" checked data-sample="${i}"> ${t.sample(i + 1, c)}<span></span></label><b style="font-weight:600;font-variant-numeric:tabular-nums"></b></div>
          <div aria-hidden="true" style="height:.5rem;border-radius:.25rem;background:var(--pst-color-primary,#0a7d91)"></div></div>`).join("")}</fieldset>
        <dl style="display:grid;grid-template-columns:minmax(7rem,auto) 1fr;gap:.3rem 1rem;margin:0"></dl><p aria-live="polite" style="margin:.6rem 0 0"></p>`;
      const heavy = root.querySelector("[data-weights]"), list = root.querySelector("dl"), said = root.querySelector("p");
      const samples = [...root.querySelectorAll("[data-sample]")].map((box) => ({ box, row: box.closest("label").parentNode }));
      const show = () => {
        const kept = samples.reduce((n, { box }, i) => n + (box.checked << i), 0);
        const row = rows[+heavy.checked][kept], counted = labels.filter((_, i) => samples[i].box.checked);
        samples.forEach(({ row: line }, i) => {
          line.querySelector("span").textContent = heavy.checked ? t.times(weights[labels[i]]) : "";
          line.querySelector("b").textContent = row.each[i];
          line.nextElementSibling.style.width = `${100 * row.each[i] / longest}%`;
        });
        const how = heavy.checked ? t.added(counted.map((c) => weights[c]).join(" + ") || 0) : t.samples(counted.length);
        const pairs = [[t.sum, row.sum], [t.by, t.because(row.divisor, how)], [t.mean, row.mean], [t.plain, row.plain]];
        list.innerHTML = pairs.map(([k, v]) => `<dt style="font-weight:normal;margin:0">${k}</dt><dd style="margin:0;font-weight:600">${v}</dd>`).join("");
        said.textContent = t.said(row.mean, row.mean === "nan" ? t.none : row.mean === row.plain ? t.same : t.other);
      };
      this.addEventListener("input", show);
      show();
    }
  });
})();
