(() => {
  const { BookExplorer } = globalThis;
  const { check, quote, range, select, times } = BookExplorer;

  const words = {
    en: {
      because: "After 10 epochs of warm-up 40 remain, and the cosine needs exactly these.",
      title: "Does it fit the length of the training?",
      task: "keep the warm-up, and let the cosine come down to its end.",
      schedule: "schedule",
      warm: "10 epochs of warm-up",
      own: "has its own warm-up",
      refused: "SequentialLR does not support it: no warm-up",
      epoch: "epoch",
      rate: "learning rate",
      losses: "dashed: the validation loss passed to it, from 0 to 1",
      said: (e, r) => `The learning rate of epoch ${e} is ${r}.`,
      told: (v) => ` After epoch ${v[0]} the validation loss is ${v[1]}.`,
      zero: " With a learning rate of 0 the weights do not change.",
      cut: " Epochs 10 to 49 are 40 steps: a T_max of 50 is cut off.",
      up: (epoch) => ` The cosine ends at epoch ${epoch}, and rises again.`,
      fits: " The cosine ends with the training.",
    },
    zh: {
      because: "10 轮预热之后还剩 40 轮，余弦正好用完它们。",
      title: "调度器与训练的长度合得上吗？",
      task: "保留预热，让余弦降到底。",
      schedule: "调度器",
      warm: "先预热 10 轮",
      own: "这个调度器自带预热",
      refused: "SequentialLR 不支持它，没有预热",
      epoch: "轮",
      rate: "学习率",
      losses: "虚线：传给它的验证损失，从 0 到 1",
      said: (e, r) => `第 ${e} 轮用的学习率是 ${r}。`,
      told: (v) => `第 ${v[0]} 轮之后的验证损失是 ${v[1]}。`,
      zero: "学习率为 0 的一轮，权重不会变。",
      cut: "第 10 到 49 轮只有 40 步，T_max=50 走不完。",
      up: (epoch) => `余弦到第 ${epoch} 轮就走完了，随后又升上去。`,
      fits: "余弦正好随训练走完。",
    },
  };

  const style = `
    .code { min-height: 5.2rem; font-size: .82rem }
    .plot { display: grid; grid-template-columns: auto 1fr; gap: 0 .4rem; font-size: .75rem;
      color: var(--muted) }
    .y { display: flex; flex-direction: column; justify-content: space-between;
      text-align: right; line-height: 1 }
    .x { grid-column: 2; display: flex; justify-content: space-between; line-height: 1.3 }
    .plot svg { height: 7rem; border: solid var(--muted); border-width: 0 0 1px 1px }
    svg * { fill: none; stroke: none; vector-effect: non-scaling-stroke }
    .curve { stroke: var(--held); stroke-width: 3 }
    .loss { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 5 4 }
    svg .now { fill: var(--lit); opacity: .35 }
    .grid { stroke: var(--line) }
    svg .spot { fill: transparent }
    .two { display: flex; flex: 1 1 18rem; flex-wrap: wrap; gap: .4rem .8rem; align-items: end;
      min-width: 0 }
    select { padding: .2rem .4rem }
    .range { display: flex; gap: .6rem; align-items: center }
    .said { min-height: 2.8em }`;

  // Return the SVG path of a step curve; the value `top` is at the upper edge.
  const path = (values, top) =>
    values.map((v, i) => `${i ? "V" : "M0 "}${100 - (100 * v) / top}H${i + 1}`).join("");

  class ScheduleExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start({ start }) {
      return { ...start };
    }

    view({ one, p, q, r, warm, at }, { epochs, schedules, warmed }, t) {
      const { name, parameters, rows, losses } = schedules[one];
      const lists = Object.values(parameters);
      const picks = [p, q, r]
        .slice(0, lists.length)
        .map((i, d) => Math.min(i, lists[d].length - 1));
      const row = rows[picks.reduce((n, i, d) => n * lists[d].length + i, 0)];
      const able = Boolean(row.warm);
      const rates = (warm && row.warm) || row.rates;
      const top = Math.max(...rates) || 1;
      const last = epochs - 1;
      const code = rates === row.rates ? row.code : warmed.replace("{}", row.code);
      const spots = times(
        epochs,
        (i) => `<rect class="spot" data-point="at=${i}" x="${i}" y="-3" width="1" height="106"/>`,
      );
      const choices = Object.entries(parameters).map(([key, values], d) =>
        select("pqr"[d], key, picks[d], values.map(quote)),
      );
      const cosine = warm && name === "CosineAnnealingLR";
      const length = Number(parameters.T_max?.[picks[0]]);
      const judged = length > 40 ? t.cut : length < 40 ? t.up(10 + length) : t.fits;
      return {
        drawing: `<div class="code"><code>${quote(code)}</code></div>
          <div class="title">${t.rate}${losses ? ` · ${t.losses}` : ""}</div>
          <div class="plot"><div class="y"><span>${top}</span>
          <span>${+(top / 2).toPrecision(4)}</span
          ><span>0</span></div><svg aria-hidden="true" viewBox="0 -3 ${epochs} 106"
          preserveAspectRatio="none"><path class="grid" d="M0 0H${epochs}M0 50H${epochs}"/>
          <rect class="now" x="${at}" y="-3" width="1" height="106"/>
          <path class="loss" d="${losses ? path(losses, 1) : ""}"/>
          <path class="curve" d="${path(rates, top)}"/>${spots}</svg>
          <div class="x">${times(6, (i) => `<span>${(i * epochs) / 5}</span>`)}</div></div>`,
        controls:
          select(
            "one",
            t.schedule,
            one,
            schedules.map((s) => s.name),
          ) +
          `<div class="two">${choices.join("")}${
            able
              ? check("warm", t.warm, warm)
              : `<span class="check">${losses ? t.refused : t.own}</span>`
          }</div>` +
          range("at", t.epoch, at, 0, last),
        say:
          t.said(at, rates[at]) +
          (losses ? t.told([at, losses[at]]) : "") +
          (rates[at] ? "" : t.zero) +
          (cosine ? judged : ""),
        done: cosine && length === 40,
      };
    }
  }

  BookExplorer.define("schedule-explorer", ScheduleExplorer);
})();
