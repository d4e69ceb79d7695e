(() => {
  const { BookExplorer } = globalThis;

  const words = {
    en: {
      schedule: "Schedule",
      warm: "warm-up: LinearLR over the first 10 epochs, joined by SequentialLR",
      own: "This schedule brings its own warm-up.",
      refused: "SequentialLR refuses a plateau scheduler, so no warm-up here.",
      epoch: "Epoch",
      rates: "learning rate",
      losses: "validation loss it is told",
      curve: (n, a, b, c) =>
        `Learning rate over ${n} epochs: it begins at ${a}, its highest value is ${b}, ` +
        `it ends at ${c}.`,
      said: (t, r) => `Epoch ${t} trains with a learning rate of ${r}.`,
      told: (v) => ` After it the validation loss is ${v}.`,
      zero: " It learns nothing.",
      first: "epoch 0",
      highest: "highest",
      last: (n) => `epoch ${n}`,
      at: (r, t) => `${r} (epoch ${t})`,
    },
    zh: {
      schedule: "调度器",
      warm: "预热：前 10 轮用 LinearLR，由 SequentialLR 接起来",
      own: "这个调度器自带预热。",
      refused: "SequentialLR 不接受 plateau 调度器，所以这里没有预热。",
      epoch: "轮",
      rates: "学习率",
      losses: "告诉它的验证损失",
      curve: (n, a, b, c) => `${n} 轮的学习率：从 ${a} 开始，最高 ${b}，最后是 ${c}。`,
      said: (t, r) => `第 ${t} 轮用的学习率是 ${r}。`,
      told: (v) => `这一轮之后的验证损失是 ${v}。`,
      zero: "这一轮什么也学不到。",
      first: "第 0 轮",
      highest: "最高",
      last: (n) => `第 ${n} 轮`,
      at: (r, t) => `${r}（第 ${t} 轮）`,
    },
  };

  const style = `
    .bar { display: flex; flex-wrap: wrap; gap: .5rem 1.2rem; margin-bottom: .5rem }
    .bar label { display: flex; flex-wrap: wrap; gap: 0 .4rem; align-items: center;
      max-width: 100% }
    .bar .box { flex-wrap: nowrap }
    [type=range] { flex: 1 1 8rem }
    code { display: block; min-height: 4.5em; margin: .6rem 0; font-size: .85rem;
      overflow-wrap: anywhere }
    .row { display: flex; gap: .6rem; align-items: center }
    p { margin: .4rem 0; min-height: 3em }
    svg { display: block; width: 100%; height: 10rem; border: solid var(--line);
      border-width: 0 0 1px 1px }
    svg * { fill: none; stroke: none; vector-effect: non-scaling-stroke }
    .rate { stroke: var(--held); stroke-width: 3 }
    .loss { stroke: currentColor; stroke-width: 1.5; stroke-dasharray: 5 4 }
    .now { fill: currentColor; opacity: .18 }
    .keys { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .85rem }
    .keys i { display: inline-block; width: 1.6em; margin-right: .4em; vertical-align: .25em;
      border-top: 3px solid var(--held) }
    .keys .dash { border-top: 2px dashed }
    dl { grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 0 1rem; margin: 0 }
    dt { grid-row: 1; font-size: .85rem }
    dd { grid-row: 2 }`;

  // The path of a curve of steps; `top` is drawn at the upper edge.
  const path = (values, top) =>
    values.map((v, i) => `${i ? "V" : "M0 "}${100 - (100 * v) / top}H${i + 1}`).join("");

  class ScheduleExplorer extends BookExplorer {
    static words = words;
    static style = style;

    build({ epochs, schedules, warmed }) {
      const t = this.words;
      const last = epochs - 1;
      const names = BookExplorer.options(schedules.map((schedule) => schedule.name));
      const find = this.fill(`
        <div class="bar"><label>${t.schedule} <select data-schedule>${names}</select></label></div>
        <div class="bar" data-parameters></div>
        <div class="bar"><label class="box"><input type="checkbox"><span>${t.warm}</span></label>
          <small hidden></small></div>
        <code></code>
        <svg role="img" viewBox="0 -3 ${epochs} 106" preserveAspectRatio="none">
          <rect class="now" y="-3" width="1" height="106"/>
          <path class="loss"/><path class="rate"/></svg>
        <div class="keys"><span><i></i>${t.rates}</span>
          <span><i class="dash"></i>${t.losses}</span></div>
        <label class="row">${t.epoch} <input type="range" min="0" max="${last}" value="0"></label>
        <p aria-live="polite"></p><dl></dl>`);
      const kind = find("[data-schedule]");
      const box = find("[type=checkbox]");
      const slider = find("[type=range]");
      const note = find("small");
      const pickers = () => [...find("[data-parameters]").querySelectorAll("select")];
      let one;
      let rates;

      const show = () => {
        const at = +slider.value;
        find(".now").setAttribute("x", at);
        slider.setAttribute("aria-valuetext", `${t.epoch} ${at}: ${rates[at]}`);
        const nothing = rates[at] ? "" : t.zero;
        const told = one.losses ? t.told(one.losses[at]) : "";
        find("p").textContent = t.said(at, rates[at]) + nothing + told;
      };
      const draw = () => {
        const row = one.rows[pickers().reduce((n, s) => n * s.length + +s.value, 0)];
        rates = (box.checked && row.warm) || row.rates;
        const top = Math.max(...rates);
        find("code").textContent = rates === row.rates ? row.code : warmed.replace("{}", row.code);
        find(".rate").setAttribute("d", path(rates, top || 1));
        find(".loss").setAttribute("d", one.losses ? path(one.losses, 1) : "");
        find("svg").setAttribute("aria-label", t.curve(epochs, rates[0], top, rates[last]));
        find("dl").innerHTML = BookExplorer.facts([
          [t.first, rates[0]],
          [t.highest, t.at(top, rates.indexOf(top))],
          [t.last(last), rates[last]],
        ]);
        show();
      };
      const choose = () => {
        one = schedules[kind.value];
        const able = Boolean(one.rows[0].warm);
        find("[data-parameters]").innerHTML = Object.entries(one.parameters)
          .map(
            ([k, values]) => `<label>${k} <select>${BookExplorer.options(values)}</select></label>`,
          )
          .join("");
        box.disabled = !able;
        if (!able) box.checked = false;
        note.hidden = able;
        note.textContent = able ? "" : one.losses ? t.refused : t.own;
        find(".dash").parentNode.hidden = !one.losses;
        draw();
      };
      this.shadowRoot.addEventListener("input", ({ target }) => {
        if (target === kind) choose();
        else if (target === slider) show();
        else draw();
      });
      choose();
    }
  }

  BookExplorer.define("schedule-explorer", ScheduleExplorer);
})();
