(() => {
  if (customElements.get("copy-explorer")) return;
  const WORDS = {
    en: { choose: "How y is made", shares: "y shares its storage with s", grad: "y requires grad", s: "s after y.zero_()", out: "gradient of x (right: 0.25)", yes: "yes", no: "no", right: "right", wrong: "wrong, and no error", error: "error: autograd noticed the edit" },
    zh: { choose: "y 的来历", shares: "y 与 s 共享存储", grad: "y 需要梯度", s: "y.zero_() 之后的 s", out: "x 的梯度（正确值 0.25）", yes: "是", no: "否", right: "正确", wrong: "错了，而且不报错", error: "报错：autograd 发现了改动" },
  };
  customElements.define("copy-explorer", class extends HTMLElement {
    connectedCallback() {
      if (this.ready) return;
      this.ready = true;
      const lang = (this.getAttribute("lang") || document.documentElement.lang || navigator.language || "en").slice(0, 2);
      const t = WORDS[lang] || WORDS.en, rows = JSON.parse(this.getAttribute("data"));
      const id = "copy-" + Math.random().toString(36).slice(2);
      this.style.cssText = "display:block;max-width:34rem;margin:1rem 0;padding:1rem;border:1px solid var(--pst-color-border,#999);border-radius:.5rem";
      const root = this.attachShadow({ mode: "open" });
      root.innerHTML = `<label for="${id}">${t.choose}</label> <select id="${id}" style="font-family:monospace;font-size:1rem;max-width:100%">${rows.map((r, i) => `<option value="${i}">${r.code}</option>`).join("")}</select><dl aria-live="polite" style="display:grid;grid-template-columns:minmax(8rem,auto) 1fr;gap:.35rem 1rem;margin:.8rem 0 0"></dl>`;
      const select = root.querySelector("select"), list = root.querySelector("dl");
      const show = () => {
        const r = rows[select.value], verdict = typeof r.outcome === "string" ? t.error : r.outcome === 0.25 ? t.right : t.wrong;
        const pairs = [[t.shares, r.shares ? t.yes : t.no], [t.grad, r.requires_grad ? t.yes : t.no], [t.s, r.s], [t.out, `${r.outcome} — ${verdict}`]];
        list.innerHTML = pairs.map(([k, v]) => `<dt style="font-weight:normal;margin:0">${k}</dt><dd style="margin:0;font-weight:600">${v}</dd>`).join("");
      };
      select.addEventListener("input", show);
      select.value = 1;
      show();
    }
  });
})();
