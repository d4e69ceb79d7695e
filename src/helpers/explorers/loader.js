(() => {
  const { BookExplorer } = globalThis;
  const { check, range, times } = BookExplorer;

  const words = {
    en: {
      because: "The batches that are prefetched cover the time that a slow batch takes.",
      title: "Do more workers help?",
      task: "with loading time 3 and the slow batches, let the training wait for the first batch only.",
      load: "time to load",
      workers: "num_workers",
      ahead: "prefetch_factor",
      slow: "every fourth batch is slow (× 3)",
      worker: (n) => `worker ${n}`,
      train: "training",
      alone: "loading",
      batch: (k) => `Batch ${k}`,
      total: (n, all, fewer) =>
        `${n === 1 ? "1 worker needs" : `${n} workers need`} ${all} units of time` +
        (fewer ? `, <b>${fewer.join(" need ").replace(/^1 need/, "1 needs")}</b>. ` : ". "),
      none: (all) => `Without workers the training waits for each batch: ${all} units of time. `,
      way: (batch, from, taken, worker, a, b) =>
        `${batch} is requested at ${from}${taken === null ? "" : `, when ${taken} is used`}, ` +
        `${worker} loads it from ${a} to ${b}, `,
      here: (batch, a, b) => `${batch} is loaded from ${a} to ${b}.`,
      waits: (n) => `and the training <b>waits ${n}</b> for it.`,
      lies: (n) => `and it is ready ${n} early.`,
      just: "just in time.",
    },
    zh: {
      because: "预取好的批，足以撑过加载慢批所需的时间。",
      title: "多开几个工作进程有用吗？",
      task: "加载时间为 3，并且有慢的批：让训练除了第一批以外都不用等。",
      load: "加载时间",
      workers: "num_workers",
      ahead: "prefetch_factor",
      slow: "每第四批慢（× 3）",
      worker: (n) => `工作进程 ${n}`,
      train: "训练",
      alone: "加载",
      batch: (k) => `第 ${k} 批`,
      total: (n, all, fewer) =>
        `${n} 个工作进程要 ${all} 个时间单位${fewer ? `，<b>${fewer.join(" 个要 ")}</b>` : ""}。`,
      none: (all) => `没有工作进程时，训练每一批都要等：共 ${all} 个时间单位。`,
      way: (batch, from, taken, worker, a, b) =>
        `${batch}在时刻 ${from} 请求${taken === null ? "" : `（第 ${taken} 批此时开始使用）`}，` +
        `由${worker} 从 ${a} 加载到 ${b}，`,
      here: (batch, a, b) => `${batch}从 ${a} 加载到 ${b}。`,
      waits: (n) => `训练要<b>等它 ${n}</b>。`,
      lies: (n) => `提前 ${n} 就绪。`,
      just: "刚好赶上。",
    },
  };

  const style = `
    .lines { display: grid; grid-template-columns: auto 1fr; gap: 2px .4rem; min-height: 11.5rem;
      align-content: start; align-items: center; font-size: .75rem }
    .lines > div { position: relative; height: 1.6rem }
    /* a number that does not fit wraps below the edge: none is shown cut off */
    .lines > div > * { position: absolute; inset-block: 0; display: flex; flex-wrap: wrap;
      justify-content: center; min-height: 0; padding: 0; overflow: hidden;
      line-height: 1.5rem; font-size: .75rem; letter-spacing: -.07em;
      border: 1px solid var(--muted); border-radius: .15rem }
    .lines > div > ::before { content: ""; height: 100% }
    .lines .mine { border-width: 2px; border-color: var(--held); font-weight: 700 }
    .lines .good, .lines .late { color: var(--ink) }
    .controls { align-items: start }`;

  class LoaderExplorer extends BookExplorer {
    static words = words;
    static style = style;

    // Compute the times when each batch is requested, loaded (by which worker) and used. Batches
    // are assigned in turn; `ahead` × `workers` are requested initially, then one per used batch.
    static plan(loads, train, workers, ahead) {
      const free = Array(Math.max(1, workers)).fill(0);
      const plan = [];
      let now = 0;
      loads.forEach((load, batch) => {
        const worker = batch % free.length;
        const from = workers ? (plan[batch - workers * ahead]?.taken ?? 0) : now;
        const begin = Math.max(free[worker], from);
        const end = begin + load;
        free[worker] = end;
        const taken = Math.max(now, end);
        plan.push({ worker, from, begin, end, taken, wait: taken - now });
        now = taken + train;
      });
      return plan;
    }

    start({ start }) {
      return { ...start };
    }

    view({ load, workers, ahead, slow, at }, { batches, train }, t) {
      const loads = Array.from({ length: batches }, (_, i) => load * (slow && i % 4 === 3 ? 3 : 1));
      const run = (n) => LoaderExplorer.plan(loads, train, n, ahead);
      const plan = run(workers);
      const total = (one) => one.at(-1).taken + train;
      const all = total(plan);
      const fewer = workers > 1 && total(run(workers - 1));
      const place = (a, b) => `left: ${(100 * a) / all}%; width: ${(100 * (b - a)) / all}%`;
      const mine = (k) => (k === at ? " mine" : "");
      const loading = ({ begin, end }, k) =>
        `<span class="hold${mine(k)}" style="${place(begin, end)}"
        data-point="at=${k}">${k}</span>`;
      const training = ({ taken, wait }, k) =>
        (wait ? `<i class="bad" style="${place(taken - wait, taken)}"></i>` : "") +
        `<button class="good${mine(k)}" style="${place(taken, taken + train)}" data-point="at=${k}"
          aria-label="${t.batch(k)}">${k}</button>`;
      const line = (name, boxes) => `<span>${name}</span><div>${boxes.join("")}</div>`;
      const by = (n) => plan.map((one, k) => (one.worker === n ? loading(one, k) : ""));
      const { worker, from, begin, end, wait, taken } = plan[at];
      const first = at - workers * ahead;
      const way = t.way(t.batch(at), from, first < 0 ? null : first, t.worker(worker), begin, end);
      const result = wait ? t.waits(wait) : taken > end ? t.lies(taken - end) : t.just;
      return {
        drawing: `<div class="lines">${line(t.train, plan.map(training))}
          ${times(workers || 1, (n) => line(workers ? t.worker(n) : t.alone, by(n)))}</div>`,
        controls:
          range("workers", t.workers, workers, 0, 6) +
          range("ahead", t.ahead, ahead, 1, 4) +
          range("load", t.load, load, 1, 8) +
          check("slow", t.slow, slow),
        say: workers
          ? t.total(workers, all, fewer && fewer <= all && [workers - 1, fewer]) + way + result
          : t.none(all) + t.here(t.batch(at), begin, end),
        done: slow && load === 3 && plan.slice(1).every((one) => !one.wait),
      };
    }
  }

  BookExplorer.define("loader-explorer", LoaderExplorer);
})();
