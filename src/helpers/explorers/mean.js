(() => {
  const { BookExplorer } = globalThis;

  const words = {
    en: {
      weights: (w) => `class weights ${w.join(", ")}`,
      legend: "Samples that count, and their losses",
      sample: (i, c) => `sample ${i}, class ${c}`,
      times: (w) => `, weight ${w}`,
      sum: "sum",
      by: "divided by",
      mean: 'reduction="mean"',
      plain: "loss.mean() of the vector",
      samples: (n) => `samples that count: ${n}`,
      added: (w) => `sum of their weights: ${w}`,
      because: (n, how) => `${n} (${how})`,
      said: (mean, remark) => `reduction="mean": ${mean}. ${remark}`,
      none: "Nothing is left to divide by: 0 / 0 is nan.",
      same: "Both numbers agree.",
      other: "Two different numbers: loss.mean() divides by all 4 samples.",
    },
    zh: {
      weights: (w) => `类别权重 ${w.join("、")}`,
      legend: "计入的样本，以及它们的损失",
      sample: (i, c) => `样本 ${i}，类别 ${c}`,
      times: (w) => `，权重 ${w}`,
      sum: "总和",
      by: "除以",
      mean: 'reduction="mean"',
      plain: "对向量取 loss.mean()",
      samples: (n) => `计入的样本数：${n}`,
      added: (w) => `它们的权重之和：${w}`,
      because: (n, how) => `${n}（${how}）`,
      said: (mean, remark) => `reduction="mean"：${mean}。${remark}`,
      none: "分母里什么都不剩：0 / 0 得 nan。",
      same: "两个数一致。",
      other: "两个数不一样：loss.mean() 除以全部 4 个样本。",
    },
  };

  const style = `
    fieldset { min-width: 0; margin: .8rem 0; padding: 0; border: 0 }
    legend { margin-bottom: .4rem; padding: 0; font-size: 1rem }
    .sample { margin: .35rem 0 }
    .sample > :first-child { display: flex; flex-wrap: wrap; justify-content: space-between;
      gap: 0 1rem }
    .sample > :last-child { height: .5rem; background: var(--held); border-radius: .25rem }
    b { font-weight: 600; font-variant-numeric: tabular-nums }
    p { margin: .6rem 0 0 }`;

  class MeanExplorer extends BookExplorer {
    static words = words;
    static style = style;

    build({ labels, weights, rows }) {
      const t = this.words;
      const longest = Math.max(...rows.flat().flatMap((row) => row.each.map(Number)));
      const sample = (label, i) =>
        `<div class="sample"><div><label><input type="checkbox" checked data-sample="${i}">` +
        ` ${t.sample(i + 1, label)}<span></span></label><b></b></div>` +
        `<div aria-hidden="true"></div></div>`;
      const find = this.fill(
        `<label><input type="checkbox" data-weights> ${t.weights(weights)}</label>` +
          `<fieldset><legend>${t.legend}</legend>${labels.map(sample).join("")}</fieldset>` +
          `<dl></dl><p aria-live="polite"></p>`,
      );
      const samples = [...this.shadowRoot.querySelectorAll(".sample")];
      const checked = (i) => samples[i].querySelector("input").checked;
      const show = () => {
        const heavy = find("[data-weights]").checked;
        const kept = samples.reduce((bits, _, i) => bits + (checked(i) << i), 0);
        const row = rows[+heavy][kept];
        const counted = labels.filter((_, i) => checked(i));
        samples.forEach((line, i) => {
          line.querySelector("span").textContent = heavy ? t.times(weights[labels[i]]) : "";
          line.querySelector("b").textContent = row.each[i];
          line.lastElementChild.style.width = `${(100 * row.each[i]) / longest}%`;
        });
        const added = counted.map((label) => weights[label]).join(" + ") || 0;
        const how = heavy ? t.added(added) : t.samples(counted.length);
        find("dl").innerHTML = BookExplorer.facts([
          [t.sum, row.sum],
          [t.by, t.because(row.divisor, how)],
          [t.mean, row.mean],
          [t.plain, row.plain],
        ]);
        const remark = row.mean === "nan" ? t.none : row.mean === row.plain ? t.same : t.other;
        find("p").textContent = t.said(row.mean, remark);
      };
      this.addEventListener("input", show);
      show();
    }
  }

  BookExplorer.define("mean-explorer", MeanExplorer);
})();
