(() => {
  if (customElements.get("stride-explorer")) return;
  const WORDS = {
    en: {
      operation: "Operation: y =", mine: "Storage of x", fresh: "New storage of y",
      shape: "shape", stride: "stride", offset: "offset",
      itself: "y is x itself", view: "a view: y reads the storage of x", copy: "a copy: y has a storage of its own",
      yes: "contiguous", no: "not contiguous", comma: ", ",
      grid: "Elements of y: point at one, or move with the arrow keys",
      reads: (e, v, n, sum) => `${e} = ${v} reads storage cell ${n}: ${sum} = ${n}.`,
      also: (k) => k > 1 ? ` ${k} other elements read the same cell.` : " 1 other element reads the same cell.",
      hint: "offset + index × stride, for each axis",
    },
    zh: {
      operation: "操作：y =", mine: "x 的存储", fresh: "y 自己的新存储",
      shape: "形状", stride: "步幅", offset: "偏移量",
      itself: "y 就是 x 本身", view: "视图：y 读的是 x 的存储", copy: "复制：y 有自己的存储",
      yes: "内存连续", no: "内存不连续", comma: "，",
      grid: "y 的元素：用鼠标指向一个，或用方向键移动",
      reads: (e, v, n, sum) => `${e} = ${v}，读的是存储的第 ${n} 格：${sum} = ${n}。`,
      also: (k) => `另有 ${k} 个元素读的也是这一格。`,
      hint: "偏移量 + 各轴的下标 × 步幅",
    },
  };
  const STYLE = `
    * { box-sizing: border-box; }
    p { margin: .5rem 0; }
    select { font: inherit; font-family: monospace; max-width: 100%; padding: .2rem; color: inherit;
      background: var(--pst-color-background, Canvas); border: 1px solid var(--pst-color-text-muted, #767676); border-radius: .25rem; }
    .title { font-size: .95rem; font-weight: 600; margin: .8rem 0 .3rem; }
    .strip { display: grid; grid-template-columns: repeat(12, minmax(0, 2.6rem)); gap: 2px; text-align: center; }
    .strip span, button { border: 2px solid var(--pst-color-text-muted, #767676); border-radius: .2rem;
      font-variant-numeric: tabular-nums; font-size: .9rem; line-height: 1.7rem; }
    .strip span { display: block; }
    .strip .idle { border: 2px dotted var(--pst-color-border, #999); color: var(--pst-color-text-muted, inherit); }
    small { display: block; font-size: .75rem; color: var(--pst-color-text-muted, inherit); }
    .blocks { display: flex; flex-wrap: wrap; gap: .8rem; }
    .block { display: grid; gap: 2px; }
    button { width: 2.4rem; height: 2rem; padding: 0; color: inherit; background: none; cursor: pointer;
      font-family: inherit; }
    .alias { background: var(--pst-color-primary-bg, none); border: 3px double var(--pst-color-primary, #0a7d91); }
    .strip .on, .on { background: var(--pst-color-primary, #0a7d91); color: var(--pst-color-on-background, #fff);
      border: 2px solid var(--pst-color-primary, #0a7d91); font-weight: 700; }
    :focus-visible { outline: 3px solid var(--pst-color-text-base, currentColor); outline-offset: 2px; }
    .facts { font-variant-numeric: tabular-nums; }`;
  const tuple = (n) => `(${n.join(", ")}${n.length === 1 ? "," : ""})`;
  customElements.define("stride-explorer", class extends HTMLElement {
    connectedCallback() {
      if (this.ready) return;
      this.ready = true;
      const lang = (this.getAttribute("lang") || document.documentElement.lang || navigator.language || "en").slice(0, 2);
      const t = WORDS[lang] || WORDS.en, { storage, walks } = JSON.parse(this.getAttribute("data"));
      this.style.cssText = "display:block;max-width:38rem;margin:1rem 0;padding:1rem;border:1px solid var(--pst-color-border,#999);border-radius:.5rem;background:var(--pst-color-background,transparent);color:var(--pst-color-text-base,inherit)";
      const root = this.attachShadow({ mode: "open" });
      root.innerHTML = `<style>${STYLE}</style>
        <label>${t.operation} <select>${walks.map((w, i) => `<option value="${i}">${w.code}</option>`).join("")}</select></label>
        <p class="facts"><strong></strong><br><span></span></p>
        <div class="title">${t.mine}</div><div class="strip" role="img"></div>
        <div hidden><div class="title">${t.fresh}</div><div class="strip" role="img"></div></div>
        <div class="title" id="grid">${t.grid}</div><div class="blocks" role="group" aria-labelledby="grid"></div>
        <p aria-live="polite" style="min-height:3.2em;margin-bottom:0"></p><small>${t.hint}</small>`;
      const $ = (s) => root.querySelector(s), select = $("select"), blocks = $(".blocks"), said = $("[aria-live]");
      const strips = root.querySelectorAll(".strip");
      let walk, cells, buttons, chosen;
      const index = (k) => walk.shape.map((n, d) => Math.floor(k / walk.shape.slice(d + 1).reduce((a, b) => a * b, 1)) % n);
      const name = (k) => `y[${index(k).join(", ")}]`;
      const choose = (k) => {
        chosen = k;
        const at = walk.at[k], others = walk.at.filter((n) => n === at).length - 1;
        buttons.forEach((b, i) => {
          b.tabIndex = i === k ? 0 : -1;
          b.className = i === k ? "on" : walk.at[i] === at ? "alias" : "";
          i === k ? b.setAttribute("aria-current", "true") : b.removeAttribute("aria-current");
        });
        cells.forEach((c, n) => { c.className = n === at ? "on" : walk.at.includes(n) ? "" : "idle"; });
        const sum = [walk.offset, ...index(k).map((i, d) => `${i}\u00a0×\u00a0${walk.stride[d]}`)].join(" + ");
        said.textContent = t.reads(name(k), buttons[k].textContent, at, sum) + (others ? t.also(others) : "");
      };
      const draw = () => {
        walk = walks[select.value];
        const own = walk.storage || storage, last = walk.shape[walk.shape.length - 1], fresh = +!!walk.storage;
        $(".facts strong").textContent = t[walk.kind] + t.comma + (walk.contiguous ? t.yes : t.no);
        $(".facts span").textContent = `${t.shape} ${tuple(walk.shape)} · ${t.stride} ${tuple(walk.stride)} · ${t.offset} ${walk.offset}`;
        [storage, walk.storage || []].forEach((values, i) => {
          strips[i].setAttribute("aria-label", `${i ? t.fresh : t.mine}: ${values.join(", ")}`);
          strips[i].innerHTML = values.map((v, n) => `<div><span class="idle">${v}</span><small>${n}</small></div>`).join("");
        });
        strips[1].parentNode.hidden = !fresh;
        cells = [...strips[fresh].querySelectorAll("span")];
        const per = walk.shape.slice(-2).reduce((a, b) => a * b, 1);
        blocks.innerHTML = Array.from({ length: walk.at.length / per }, (_, b) =>
          `<div class="block" style="grid-template-columns:repeat(${last},2.4rem)">${walk.at.slice(b * per, (b + 1) * per).map((n, i) =>
            `<button type="button" aria-label="${name(b * per + i)} = ${own[n]}">${own[n]}</button>`).join("")}</div>`).join("");
        buttons = [...blocks.querySelectorAll("button")];
        choose(Math.min(1, buttons.length - 1));
      };
      const pick = (event) => { const k = buttons.indexOf(event.target); if (k >= 0 && k !== chosen) choose(k); };
      ["pointerover", "focusin", "click"].forEach((kind) => blocks.addEventListener(kind, pick));
      blocks.addEventListener("keydown", (event) => {
        const row = walk.shape[walk.shape.length - 1], end = buttons.length - 1;
        const to = { ArrowRight: chosen + 1, ArrowLeft: chosen - 1, ArrowDown: chosen + row, ArrowUp: chosen - row, Home: 0, End: end }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        if (to >= 0 && to <= end) buttons[to].focus();
      });
      select.addEventListener("change", draw);
      draw();
    }
  });
})();
