(() => {
  const { BookExplorer } = globalThis;
  const { check, choice } = BookExplorer;

  const words = {
    en: {
      because: "One graph for training and one for validation serve all sizes and epochs.",
      title: "Which calls recompile?",
      task: "run both epochs with two compilations, and keep the batch of 29.",
      epoch: (n) => `epoch ${n}`,
      modes: ["training", "validation"],
      compiles: "compiles",
      runs: "runs a compiled graph",
      count: (n, calls) => `${n} of ${calls} calls compile.`,
      call: (epoch, mode, size) => `Epoch ${epoch}, ${mode}, a batch of ${size}`,
      why: {
        first: "compiles: there is no compiled graph yet.",
        size: "compiles: the graph for this mode is for another batch size.",
        grad_mode: "compiles: validation runs in eval() and under no_grad(), another graph.",
        epoch: "compiles: the graph for this mode and size contains the number of another epoch.",
      },
      colon: ": ",
      reuse: "runs an existing graph.",
      dynamic: "dynamic=",
      drop: "drop_last=True",
      numbered: "forward uses self.epoch, a number",
    },
    zh: {
      because: "训练一张图，验证一张图，适用于所有批量大小和轮次。",
      title: "哪次调用会重新编译？",
      task: "保留 29 个样本的那一批，让两轮下来只编译两次。",
      epoch: (n) => `第 ${n} 轮`,
      modes: ["训练", "验证"],
      compiles: "要编译",
      runs: "运行编译好的图",
      count: (n, calls) => `${calls} 次调用中，编译了 ${n} 次。`,
      call: (epoch, mode, size) => `第 ${epoch} 轮，${mode}，批量为 ${size}`,
      why: {
        first: "要编译：还没有编译过任何图。",
        size: "要编译：这种模式的计算图是为另一个批量大小编译的。",
        grad_mode: "要编译：验证用 eval() 和 no_grad()，是另一张计算图。",
        epoch: "要编译：这种模式和大小的计算图里，写死的是另一轮的编号。",
      },
      colon: "：",
      reuse: "运行已有的计算图。",
      dynamic: "dynamic=",
      drop: "drop_last=True",
      numbered: "forward 用到 self.epoch，一个普通的数",
    },
  };

  const style = `
    .calls { display: flex; gap: 2px }
    .calls button { flex: 1; min-width: 0; padding: 0; font-size: .8rem }
    .calls button.gap { margin-left: .6rem }
    .calls [aria-current] { border: 2px solid var(--held) }
    .key { margin-top: .4rem; font-size: .85rem }
    .key i { display: inline-block; width: 1rem; height: 1rem; border: 1px solid var(--muted);
      vertical-align: -.15rem; margin-right: .3rem }`;

  class RecompileExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { dynamic: "none", drop: false, numbered: true, at: 5 };
    }

    view({ dynamic, drop, numbered, at }, { plans, found }, t) {
      const plan = plans[+drop];
      const why = found[`${dynamic} ${+drop} ${+numbered}`];
      const chosen = Math.min(at, plan.length - 1);
      const all = Object.keys(why).length;
      const name = ([epoch, validates, size]) => t.call(epoch, t.modes[+validates], size);
      const box = (call, i) => {
        const gap = i && call[1] && !plan[i - 1][1] ? " gap" : "";
        const state = why[i] ? t.compiles : t.runs;
        return `<button class="${why[i] ? "bad" : "good"}${gap}" data-point="at=${i}"
          data-part="c${i}" aria-label="${name(call)}${t.colon}${state}">
          ${call[2]}${why[i] ? "*" : ""}</button>`;
      };
      const row = (epoch) =>
        `<div class="title">${t.epoch(epoch)}${t.colon}${t.modes.join(" · ")}</div>
        <div class="calls">${plan
          .map((call, i) => (call[0] === epoch ? box(call, i) : ""))
          .join("")}</div>`;
      return {
        drawing: `${row(1)}${row(2)}<p class="key"><i class="bad"></i>${t.compiles} *
          &nbsp; <i class="good"></i>${t.runs}</p>`,
        controls:
          choice("dynamic", t.dynamic, dynamic, { none: "None", true: "True", false: "False" }) +
          check("drop", t.drop, drop) +
          check("numbered", t.numbered, numbered),
        say: `${t.count(all, plan.length)} <span
          data-part="c${chosen}">${name(plan[chosen])}</span>${
            t.colon
          }${why[chosen] ? t.why[why[chosen]] : t.reuse}`,
        done: all === 2 && !drop,
      };
    }
  }

  BookExplorer.define("recompile-explorer", RecompileExplorer);
})();
