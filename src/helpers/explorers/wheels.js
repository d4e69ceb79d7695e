(() => {
  const { BookExplorer } = globalThis;
  const { choice, quote, select } = BookExplorer;
  const code = (text) => `<code>${quote(text)}</code>`;

  const words = {
    en: {
      because:
        "A build contains kernels for a list of architectures, and only one list contains this one.",
      title: "Which build runs on which GPU?",
      task: "find the GPU that only one of the builds supports.",
      gpu: "GPU",
      driver: "driver",
      runs: "runs",
      fails: "no kernel",
      old: "driver too old",
      build: (name, verdict) => `${name}: ${verdict}`,
      gap: " ",
      no: (gpu, name) =>
        `${code(name)} has no kernel for ${gpu}: <i>no kernel image</i>, if the driver is new enough.`,
      late: (driver, needs, name) =>
        `${code(name)} requires driver ${needs} or newer, and ${driver} is older: PyTorch finds no GPU.`,
      serves: (gpu, kernel, name) =>
        `${code(name)} runs on ${gpu} with its kernels for ${code(kernel)}.`,
    },
    zh: {
      because: "每个安装包只含一组架构的核函数，只有一个包含这块 GPU 的架构。",
      title: "哪个安装包能在哪块 GPU 上运行？",
      task: "找出只有一个安装包支持的那块 GPU。",
      gpu: "GPU",
      driver: "驱动",
      runs: "能运行",
      fails: "没有核函数",
      old: "驱动太旧",
      build: (name, verdict) => `${name}：${verdict}`,
      gap: "",
      no: (gpu, name) =>
        `${code(name)} 里没有 ${gpu} 能用的核函数；如果驱动足够新，会报 <i>no kernel image</i>。`,
      late: (driver, needs, name) =>
        `${code(name)} 要求驱动不低于 ${needs}，而 ${driver} 更旧，PyTorch 就找不到 GPU。`,
      serves: (gpu, kernel, name) =>
        `${code(name)} 用为 ${code(kernel)} 编译的核函数在 ${gpu} 上运行。`,
    },
  };

  const style = `
    .builds { display: grid; gap: .4rem }
    .builds button { display: grid; gap: .2rem; text-align: left; border-color: var(--line) }
    .builds [aria-current] { border: 2px solid var(--ink) }
    .builds .row { justify-content: space-between }
    .builds .archs { gap: .2rem; justify-content: start }
    .archs code { padding: 0 .25rem; border: 1px solid var(--line);
      border-radius: .2rem; font-size: .75rem }
    .archs .serves { border: 2px solid var(--held); font-weight: 700 }
    .select { flex: 1 1 12rem } .select select { width: 100% }`;

  class WheelsExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start(data) {
      return { gpu: data.gpus.length - 1, driver: data.drivers.length - 1, at: 0 };
    }

    view({ gpu, driver, at }, { wheels, gpus, drivers, rows }, t) {
      const found = rows[gpu][driver];
      const works = ({ kernel, driver: enough }) => Boolean(kernel && enough);
      const verdict = (one) => (works(one) ? t.runs : one.kernel ? t.old : t.fails);
      const build = ({ name, cuda, archs }, i) =>
        `<button class="${works(found[i]) ? "good" : "bad"}" data-point="at=${i}"
          data-part="w${i}" aria-label="${t.build(name, verdict(found[i]))}">
          <span class="row"><b>${quote(name)} · CUDA ${cuda}</b>
          <span>${verdict(found[i])}</span></span>
          <span class="row archs">${archs
            .map((a) => `<code${a === found[i].kernel ? ' class="serves"' : ""}>${quote(a)}</code>`)
            .join("")}</span></button>`;
      const { name, needs } = wheels[at];
      const { kernel, driver: enough } = found[at];
      const card = gpus[gpu];
      return {
        drawing: `<div class="builds">${wheels.map(build).join("")}</div>`,
        controls:
          select("gpu", t.gpu, gpu, gpus.map(quote)) + choice("driver", t.driver, driver, drivers),
        say: works(found[at])
          ? t.serves(card, kernel, name)
          : [!enough && t.late(drivers[driver], needs, name), !kernel && t.no(card, name)]
              .filter(Boolean)
              .join(t.gap),
        done: found.filter(({ kernel: one }) => one).length === 1,
      };
    }
  }

  BookExplorer.define("wheels-explorer", WheelsExplorer);
})();
