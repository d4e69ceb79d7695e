(() => {
  const { BookExplorer } = globalThis;
  const { check, quote, select, times } = BookExplorer;

  const APIS = { sdpa: "SDPA", mha: "MultiheadAttention" };
  const words = {
    en: {
      because:
        "True means attend in one API and ignore in the other, so one Boolean mask is the negation of the other.",
      title: "One True, two meanings",
      task: "make both attend to exactly the keys with a dot.",
      keep: "keep",
      keeps: ["causal", "padding at the end", "causal, padding in front"],
      mask: (api) => `mask for ${api}`,
      legend: "● keep is True · orange: differs from keep",
      axes: "query ↓ key →",
      cell: (api, q, k, w) => `${api}, query ${q}, key ${k}: ${w}`,
      bool: (api, at, value, means, k, w) =>
        `${at} is ${value}. In ${api}, True means <b>${means}</b>: key ${k} gets the weight ${w}. `,
      attend: "attend",
      ignore: "ignore",
      float: (at, value, k, w) =>
        `${at} is ${value}. A float mask is added to the score: key ${k} gets the weight ${w}. `,
      empty: (q, w) => `All keys of query ${q} are masked, so its whole row is ${w}.`,
    },
    zh: {
      because: "True 在一个 API 里表示关注，在另一个里表示忽略，所以两个布尔掩码互为取反。",
      title: "同一个 True，两种意思",
      task: "让两边关注的键，恰好都是带圆点的那些。",
      keep: "keep",
      keeps: ["因果", "末尾有填充", "因果，开头有填充"],
      mask: (api) => `${api} 的掩码`,
      legend: "● 处 keep 为 True · 橙色：与 keep 不符",
      axes: "查询 ↓ 键 →",
      cell: (api, q, k, w) => `${api}，查询 ${q}，键 ${k}：${w}`,
      bool: (api, at, value, means, k, w) =>
        `${at} 是 ${value}。在 ${api} 里 True 表示<b>${means}</b>，所以键 ${k} 的权重是 ${w}。`,
      attend: "关注",
      ignore: "忽略",
      float: (at, value, k, w) =>
        `${at} 是 ${value}。浮点掩码会加到得分上，于是键 ${k} 的权重是 ${w}。`,
      empty: (q, w) => `查询 ${q} 的所有键都被遮住，整行都是 ${w}。`,
    },
  };

  const style = `
    .both { display: grid; grid-template-columns: repeat(2, minmax(0, 16rem)); gap: .6rem 1rem }
    .weights { display: grid; grid-template-columns: .8rem repeat(4, minmax(0, 1fr)); gap: 2px;
      text-align: center; align-items: center; font-size: .75rem }
    .weights span { color: var(--muted) }
    .weights button { position: relative; min-height: 2.4rem; padding: 0;
      font-size: clamp(.68rem, 3.6cqi, .8rem);
      border-color: var(--line) }
    .weights .dot::before { content: "●"; position: absolute; top: 0; left: .15rem;
      font-size: .5rem; color: var(--held) }
    .weights [aria-current] { border: 2px solid var(--ink) }
    .select { flex: 1 1 9rem } .select select { width: 100%; font: .85rem var(--mono) }
    .check span { font: .8rem var(--mono) }`;

  class MasksExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { pattern: 0, sdpa: 0, mha: 0, need: true, cell: 24 };
    }

    view(state, { names, rows }, t) {
      const { pattern, need, cell } = state;
      const { keep, masks, sdpa, mha } = rows[pattern];
      const weights = { sdpa: sdpa[state.sdpa], mha: mha[state.mha][Number(need)] };
      const n = keep.length;
      const right = (w, q, k) => w !== "nan" && w > 0 === Boolean(keep[q][k]);
      const text = (w) => (w === "nan" || w === 0 ? w : w.toFixed(2));
      const grid = (api, g) => {
        const button = (q, k) => {
          const w = weights[api][q][k];
          const mark = right(w, q, k) ? (w ? "hold" : "") : "bad";
          return `<button class="${mark}${keep[q][k] ? " dot" : ""}" data-part="c${q}${k}"
            data-point="cell=${(g * n + q) * n + k}"
            aria-label="${t.cell(APIS[api], q, k, text(w))}">${text(w)}</button>`;
        };
        return `<div><div class="title">${APIS[api]}</div><div class="weights"><span></span>
          ${times(n, (k) => `<span>${k}</span>`)}
          ${times(n, (q) => `<span>${q}</span>${times(n, (k) => button(q, k))}`)}</div></div>`;
      };
      const api = cell < n * n ? "sdpa" : "mha";
      const [q, k] = [Math.floor(cell / n) % n, cell % n];
      const w = `<span data-part="c${q}${k}">${text(weights[api][q][k])}</span>`;
      const value = masks[state[api]][q][k];
      const at = `<code>mask[${q}, ${k}]</code>`;
      const number = String(value).replace("-", "−");
      const row = weights[api][q];
      const all = ["sdpa", "mha"].every((name) =>
        weights[name].every((line, i) => line.every((one, j) => right(one, i, j))),
      );
      const named = names.map(quote);
      return {
        drawing: `<div class="both">${Object.keys(APIS).map(grid).join("")}</div>
          <div class="title">${t.axes} · ${t.legend}</div>`,
        controls:
          select("pattern", t.keep, pattern, t.keeps) +
          check("need", "need_weights", need) +
          Object.keys(APIS)
            .map((name) => select(name, t.mask(APIS[name]), state[name], named))
            .join(""),
        say:
          (typeof value === "boolean"
            ? t.bool(
                APIS[api],
                at,
                value ? "True" : "False",
                api === "sdpa" ? t.attend : t.ignore,
                k,
                w,
              )
            : t.float(at, number, k, w)) +
          (row.some((one) => one > 0) ? "" : t.empty(q, text(row[0]))),
        done: all,
      };
    }
  }

  BookExplorer.define("masks-explorer", MasksExplorer);
})();
