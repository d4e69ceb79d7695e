(() => {
  const { BookExplorer } = globalThis;

  const words = {
    en: {
      operation: "Operation: y =",
      mine: "Storage of x",
      fresh: "New storage of y",
      shape: "shape",
      stride: "stride",
      offset: "offset",
      itself: "y is x itself",
      view: "a view: y reads the storage of x",
      copy: "a copy: y has a storage of its own",
      yes: "contiguous",
      no: "not contiguous",
      comma: ", ",
      grid: "Elements of y: point at one, or move with the arrow keys",
      reads: (e, v, n, sum) => `${e} = ${v} reads storage cell ${n}: ${sum} = ${n}.`,
      also: (k) =>
        k > 1
          ? ` ${k} other elements read the same cell.`
          : " 1 other element reads the same cell.",
      hint: "offset + index × stride, for each axis",
    },
    zh: {
      operation: "操作：y =",
      mine: "x 的存储",
      fresh: "y 自己的新存储",
      shape: "形状",
      stride: "步幅",
      offset: "偏移量",
      itself: "y 就是 x 本身",
      view: "视图：y 读的是 x 的存储",
      copy: "复制：y 有自己的存储",
      yes: "内存连续",
      no: "内存不连续",
      comma: "，",
      grid: "y 的元素：用鼠标指向一个，或用方向键移动",
      reads: (e, v, n, sum) => `${e} = ${v}，读的是存储的第 ${n} 格：${sum} = ${n}。`,
      also: (k) => `另有 ${k} 个元素读的也是这一格。`,
      hint: "偏移量 + 各轴的下标 × 步幅",
    },
  };

  const style = `
    p { margin: .5rem 0 }
    [aria-live] { min-height: 3.2em; margin-bottom: 0 }
    select { padding: .2rem; font-family: monospace }
    .title { margin: .8rem 0 .3rem; font-size: .95rem; font-weight: 600 }
    .strip { display: grid; grid-template-columns: repeat(12, minmax(0, 2.6rem)); gap: 2px;
      text-align: center }
    .strip span, button { border: 2px solid var(--muted); border-radius: .2rem;
      font-size: .9rem; line-height: 1.7rem; font-variant-numeric: tabular-nums }
    .strip span { display: block }
    .strip .idle { color: var(--pst-color-text-muted, inherit); border: 2px dotted var(--line) }
    small { display: block; font-size: .75rem; color: var(--pst-color-text-muted, inherit) }
    .blocks { display: flex; flex-wrap: wrap; gap: .8rem }
    .block { display: grid; gap: 2px }
    button { width: 2.4rem; height: 2rem; padding: 0; font-family: inherit; color: inherit;
      background: none; cursor: pointer }
    .alias { background: var(--pst-color-primary-bg, none); border: 3px double var(--held) }
    .strip .on, .on { font-weight: 700; color: var(--pst-color-on-background, #fff);
      background: var(--held); border: 2px solid var(--held) }
    :focus-visible { outline-color: var(--pst-color-text-base, currentColor) }
    .facts { font-variant-numeric: tabular-nums }`;

  const product = (sizes) => sizes.reduce((a, b) => a * b, 1);
  const tuple = (n) => `(${n.join(", ")}${n.length === 1 ? "," : ""})`;

  class StrideExplorer extends BookExplorer {
    static words = words;
    static style = style;

    build({ storage, walks }) {
      const t = this.words;
      const codes = BookExplorer.options(walks.map((walk) => walk.code));
      const find = this.fill(`
        <label>${t.operation} <select>${codes}</select></label>
        <p class="facts"><strong></strong><br><span></span></p>
        <div class="title">${t.mine}</div><div class="strip" role="img"></div>
        <div hidden><div class="title">${t.fresh}</div><div class="strip" role="img"></div></div>
        <div class="title" id="grid">${t.grid}</div>
        <div class="blocks" role="group" aria-labelledby="grid"></div>
        <p aria-live="polite"></p><small>${t.hint}</small>`);
      const select = find("select");
      const blocks = find(".blocks");
      const strips = this.shadowRoot.querySelectorAll(".strip");
      let walk;
      let cells;
      let buttons;
      let chosen;

      const index = (k) =>
        walk.shape.map((n, d) => Math.floor(k / product(walk.shape.slice(d + 1))) % n);
      const name = (k) => `y[${index(k).join(", ")}]`;

      const choose = (k) => {
        chosen = k;
        const at = walk.at[k];
        const others = walk.at.filter((n) => n === at).length - 1;
        buttons.forEach((button, i) => {
          button.tabIndex = i === k ? 0 : -1;
          button.className = i === k ? "on" : walk.at[i] === at ? "alias" : "";
          if (i === k) button.setAttribute("aria-current", "true");
          else button.removeAttribute("aria-current");
        });
        cells.forEach((cell, n) => {
          cell.className = n === at ? "on" : walk.at.includes(n) ? "" : "idle";
        });
        const steps = index(k).map((i, d) => `${i}\u00a0×\u00a0${walk.stride[d]}`);
        const sum = [walk.offset, ...steps].join(" + ");
        const reads = t.reads(name(k), buttons[k].textContent, at, sum);
        find("[aria-live]").textContent = reads + (others ? t.also(others) : "");
      };

      const draw = () => {
        walk = walks[select.value];
        const own = walk.storage ?? storage;
        const { shape, stride, offset, at } = walk;
        find("strong").textContent = t[walk.kind] + t.comma + (walk.contiguous ? t.yes : t.no);
        find(".facts span").textContent =
          `${t.shape} ${tuple(shape)} · ${t.stride} ${tuple(stride)} · ${t.offset} ${offset}`;
        [storage, walk.storage ?? []].forEach((values, i) => {
          strips[i].setAttribute("aria-label", `${i ? t.fresh : t.mine}: ${values.join(", ")}`);
          strips[i].innerHTML = values
            .map((v, n) => `<div><span class="idle">${v}</span><small>${n}</small></div>`)
            .join("");
        });
        strips[1].parentNode.hidden = !walk.storage;
        cells = [...strips[walk.storage ? 1 : 0].querySelectorAll("span")];
        const per = product(shape.slice(-2));
        const button = (k) =>
          `<button type="button" aria-label="${name(k)} = ${own[at[k]]}">${own[at[k]]}</button>`;
        blocks.innerHTML = Array.from({ length: at.length / per }, (_, b) => {
          const inside = Array.from({ length: per }, (_, i) => button(b * per + i)).join("");
          const columns = `grid-template-columns:repeat(${shape.at(-1)},2.4rem)`;
          return `<div class="block" style="${columns}">${inside}</div>`;
        }).join("");
        buttons = [...blocks.querySelectorAll("button")];
        choose(Math.min(1, buttons.length - 1));
      };

      const pick = (event) => {
        const k = buttons.indexOf(event.target);
        if (k >= 0 && k !== chosen) choose(k);
      };
      for (const kind of ["pointerover", "focusin", "click"]) blocks.addEventListener(kind, pick);
      blocks.addEventListener("keydown", (event) => {
        const row = walk.shape.at(-1);
        const to = {
          ArrowRight: chosen + 1,
          ArrowLeft: chosen - 1,
          ArrowDown: chosen + row,
          ArrowUp: chosen - row,
          Home: 0,
          End: buttons.length - 1,
        }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        buttons[to]?.focus();
      });
      select.addEventListener("change", draw);
      draw();
    }
  }

  BookExplorer.define("stride-explorer", StrideExplorer);
})();
