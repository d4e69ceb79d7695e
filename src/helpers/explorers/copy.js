(() => {
  const { BookExplorer } = globalThis;

  const words = {
    en: {
      choose: "How y is made",
      shares: "y shares its storage with s",
      grad: "y requires grad",
      s: "s after y.zero_()",
      out: "gradient of x (right: 0.25)",
      yes: "yes",
      no: "no",
      right: "right",
      wrong: "wrong, and no error",
      error: "error: autograd noticed the edit",
    },
    zh: {
      choose: "y 的来历",
      shares: "y 与 s 共享存储",
      grad: "y 需要梯度",
      s: "y.zero_() 之后的 s",
      out: "x 的梯度（正确值 0.25）",
      yes: "是",
      no: "否",
      right: "正确",
      wrong: "错了，而且不报错",
      error: "报错：autograd 发现了改动",
    },
  };

  class CopyExplorer extends BookExplorer {
    static words = words;
    static style = "select { font-family: monospace }";

    build(rows) {
      const t = this.words;
      const options = BookExplorer.options(rows.map((row) => row.code));
      const find = this.fill(
        `<label>${t.choose} <select>${options}</select></label><dl aria-live="polite"></dl>`,
      );
      const select = find("select");
      const show = () => {
        const row = rows[select.value];
        const raised = typeof row.outcome === "string";
        const verdict = raised ? t.error : row.outcome === 0.25 ? t.right : t.wrong;
        find("dl").innerHTML = BookExplorer.facts([
          [t.shares, row.shares ? t.yes : t.no],
          [t.grad, row.requires_grad ? t.yes : t.no],
          [t.s, row.s],
          [t.out, `${row.outcome} — ${verdict}`],
        ]);
      };
      select.value = 1;
      select.addEventListener("input", show);
      show();
    }
  }

  BookExplorer.define("copy-explorer", CopyExplorer);
})();
