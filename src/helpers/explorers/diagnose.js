(() => {
  const { BookExplorer } = globalThis;
  const { quote, select, times } = BookExplorer;

  const words = {
    en: {
      because: "Each test excludes the causes that would give another result; one cause is left.",
      title: "Nine training runs, one bug each",
      task: "find the cause with at most three tests, so that no other cause fits.",
      patient: (n) => `Run ${n}`,
      tests: [
        "initial loss",
        "one batch, 200 steps",
        "one step",
        "first nan or inf",
        "output 0 depends on",
        "validation, 5 epochs",
      ],
      look: "Test",
      lookAt: (test) => `Test: ${test}`,
      sound: (value) => `· correct run: ${value}`,
      cause: "the cause",
      causes: [
        "optimizer of another model",
        "a second softmax",
        "learning rate 3",
        "learning rate 1e-7",
        "labels of other images",
        "a detach after layer 1",
        "dead ReLUs",
        "softmax over the batch",
        "root of a distance of 0",
      ],
      choose: "choose",
      begin: "Which test rules out the most causes? Open it, then choose a cause.",
      left: (n) => `${n} of 9 causes fit the results so far.`,
      refuted: (cause, test, would, is) =>
        `With <b>${cause}</b>, “${test}” would give ${would}, not ${is}.`,
      also: (cause, other) =>
        `<b>${cause}</b> fits the results so far, but so does <b>${other}</b>. Open another test.`,
      many: (cause, n) =>
        `Correct: <b>${cause}</b>, with ${n} tests. Three tests are enough: try another run.`,
      found: (cause, n) => `Correct: <b>${cause}</b>, and no other cause fits. Tests: ${n}.`,
    },
    zh: {
      because: "每项检查都排除了结果对不上的原因，最后只剩一个。",
      title: "九次训练，各有一个错误",
      task: "最多做三项检查就找出原因，并且没有别的原因也符合。",
      patient: (n) => `训练 ${n}`,
      tests: [
        "初始损失",
        "一个小批量，200 步",
        "一步更新",
        "第一个 nan 或 inf",
        "输出 0 取决于",
        "验证集，5 轮",
      ],
      look: "检查",
      lookAt: (test) => `检查：${test}`,
      sound: (value) => `· 正常：${value}`,
      cause: "原因",
      causes: [
        "优化器是别的模型的",
        "多了一个 softmax",
        "学习率为 3",
        "学习率为 1e-7",
        "标签属于别的图像",
        "第 1 层后面有 detach",
        "ReLU 失活（dead ReLU）",
        "softmax 做在了批量维上",
        "距离为 0 时开方",
      ],
      choose: "请选择",
      begin: "哪项检查能排除最多的原因？先做检查，再选原因。",
      left: (n) => `9 个原因里，有 ${n} 个符合目前的结果。`,
      refuted: (cause, test, would, is) =>
        `如果是<b>${cause}</b>，“${test}”应为 ${would}，而不是 ${is}。`,
      also: (cause, other) =>
        `<b>${cause}</b>符合目前的结果，但<b>${other}</b>也符合。请再查一项。`,
      many: (cause, n) => `正是<b>${cause}</b>，用了 ${n} 项检查。其实三项就够，换一次训练再试试。`,
      found: (cause, n) => `正是<b>${cause}</b>，没有别的原因符合。检查了 ${n} 项。`,
    },
  };

  const style = `
    .patients { display: grid; grid-template-columns: repeat(9, minmax(0, 1fr)); gap: 3px }
    .patients button { padding: 0 }
    .patients [aria-pressed=true] { border: 2px solid var(--ink) }
    .tests { margin-top: .4rem; font-size: .85rem }
    .tests > div { display: grid; grid-template-columns: minmax(0, 9.5rem) minmax(0, 1fr);
      gap: .5rem; align-items: center; min-height: 2.75rem; padding: 0 .3rem;
      border-top: 1px solid var(--line) }
    .tests button { justify-self: start; min-height: 2.25rem }
    .tests small { color: var(--muted) }
    .select { flex: 1 1 12rem } .select select { width: 100% }`;

  class DiagnoseExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start() {
      return { patient: 0, t0: 0, t1: 1, t2: 0, t3: 0, t4: 0, t5: 0, guess: 0 };
    }

    view(state, { causes, found, kinds, sound }, t) {
      const { patient } = state;
      const guess = state.guess - 1; // 0: none
      const cause = causes[patient];
      const seen = t.tests.map((_, n) => n).filter((n) => state[`t${n}`]);
      const differs = (other) => seen.find((n) => kinds[other][n] !== kinds[cause][n]);
      const fitting = found.map((_, n) => n).filter((n) => differs(n) === undefined);
      const code = (text) => `<code>${quote(text)}</code>`;
      const fresh = `${times(6, (n) => `&t${n}=0`)}&guess=0`;
      const patients = times(
        causes.length,
        (n) => `<button data-set="patient=${n}${fresh}" aria-pressed="${n === patient}"
          aria-label="${t.patient(n + 1)}">${n + 1}</button>`,
      );
      const refuting = guess < 0 || guess === cause ? undefined : differs(guess);
      const row = (n) => {
        const name = `<span>${t.tests[n]}</span>`;
        if (!state[`t${n}`])
          return `<div>${name}<button data-set="t${n}=1"
            aria-label="${t.lookAt(t.tests[n])}">${t.look}</button></div>`;
        const odd = n === refuting ? ' class="bad"' : "";
        return `<div${odd}>${name}<span>${code(found[cause][n])}
          <small>${t.sound(quote(sound[n]))}</small></span></div>`;
      };
      const name = (n) => t.causes[n];
      let say = seen.length ? t.left(fitting.length) : t.begin;
      if (refuting !== undefined)
        say = t.refuted(
          name(guess),
          t.tests[refuting],
          code(found[guess][refuting]),
          code(found[cause][refuting]),
        );
      else if (guess >= 0 && fitting.length > 1)
        say = t.also(name(guess), name(fitting.find((n) => n !== guess)));
      else if (guess >= 0) say = (seen.length > 3 ? t.many : t.found)(name(guess), seen.length);
      return {
        drawing: `<div class="patients">${patients}</div>
          <div class="tests">${times(t.tests.length, row)}</div>`,
        controls: select("guess", t.cause, state.guess, [t.choose, ...t.causes]),
        say,
        done: guess === cause && fitting.length === 1 && seen.length <= 3,
      };
    }
  }

  BookExplorer.define("diagnose-explorer", DiagnoseExplorer);
})();
