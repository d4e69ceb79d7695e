(() => {
  const { BookExplorer } = globalThis;

  const words = {
    en: {
      figure: "Caching allocator, step by step",
      previous: "Previous",
      next: "Next",
      step: "Step",
      of: (i, n) => `Step ${i} of ${n}`,
      now: "now",
      peak: "peak",
      allocated: "Allocated",
      reserved: "Reserved",
      capacity: (c) => `device: ${c}`,
      segment: (i, small, size) => `Segment ${i}: ${small ? "small" : "large"} pool, ${size}`,
      free: "free",
      none: "No segment: nothing is reserved.",
      keys: ["held by a tensor", "free, still reserved"],
      lines: "Allocated and reserved memory over the steps",
      malloc: (name, size) => `Allocate ${name}, ${size}`,
      release: (name) => `Free ${name}`,
      empty_cache: "Empty the cache",
      reset_peak: "Reset the peaks",
      did: {
        segment_free: ([n, size]) =>
          `${n > 1 ? `${n} free segments go` : "a free segment goes"} back to the device, ${size}`,
        segment_alloc: ([, size]) => `no free block fits, so a new segment of ${size} is reserved`,
        reuse: "a free block of the cache is used again",
        alloc: ([, size]) => `the block takes ${size}`,
        split: ([, size]) => `the remaining ${size} stay free`,
        free: ([, size]) => `the block of ${size} stays reserved`,
        merge: ([n]) => `it merges with ${n > 1 ? "both free neighbours" : "its free neighbour"}`,
        oom: ([, size]) => `out of memory: there is no room for a segment of ${size}`,
        nothing: "nothing changes",
      },
      sentence: (place, head, parts) => `${place}. ${head}: ${parts.join("; ")}.`,
    },
    zh: {
      figure: "缓存分配器逐步演示",
      previous: "上一步",
      next: "下一步",
      step: "步骤",
      of: (i, n) => `第 ${i} 步，共 ${n} 步`,
      now: "当前",
      peak: "峰值",
      allocated: "已分配显存",
      reserved: "已保留显存",
      capacity: (c) => `设备：${c}`,
      segment: (i, small, size) => `段 ${i}：${small ? "小" : "大"}块池，${size}`,
      free: "空闲",
      none: "没有段：没有保留任何显存。",
      keys: ["由张量占有", "空闲，仍被保留"],
      lines: "各步的已分配显存与已保留显存",
      malloc: (name, size) => `分配 ${name}，${size}`,
      release: (name) => `释放 ${name}`,
      empty_cache: "清空缓存",
      reset_peak: "重置峰值",
      did: {
        segment_free: ([n, size]) => `${n} 个空闲段归还给设备，共 ${size}`,
        segment_alloc: ([, size]) => `没有合适的空闲块，于是保留一个 ${size} 的新段`,
        reuse: "重新使用缓存中的空闲块",
        alloc: ([, size]) => `该块占 ${size}`,
        split: ([, size]) => `剩余 ${size} 仍空闲`,
        free: ([, size]) => `${size} 的块仍被保留`,
        merge: ([n]) => (n > 1 ? "与前后两个空闲块合并" : "与相邻的空闲块合并"),
        oom: ([, size]) => `显存不足：放不下 ${size} 的段`,
        nothing: "没有变化",
      },
      sentence: (place, head, parts) => `${place}。${head}：${parts.join("；")}。`,
    },
  };

  const style = `
    .bar { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; }
    button { font: inherit; color: inherit; background: transparent; border: 1px solid currentColor;
      border-radius: .3rem; padding: .25rem .75rem; min-height: 2.25rem; cursor: pointer; }
    button[aria-disabled=true] { opacity: .5; cursor: default; }
    label { display: flex; flex: 1 1 12rem; gap: .5rem; align-items: center; white-space: nowrap; }
    input { flex: 1; min-width: 5rem; min-height: 2.25rem; }
    p { margin: .6rem 0; min-height: 3.2em; }
    table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
    th, td { padding: .1rem .9rem .1rem 0; text-align: left; font-weight: normal; }
    tbody th::before { content: ""; display: inline-block; width: 1.2em; margin-right: .4em;
      vertical-align: .25em; border-top: 3px solid var(--held); }
    tbody tr + tr th::before { border-top: 3px dashed currentColor; }
    .facts { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; align-items: center; }
    svg { flex: 1 1 14rem; height: 5rem; min-width: 0; overflow: visible; }
    svg * { fill: none; vector-effect: non-scaling-stroke; }
    .heap { min-height: var(--rows); }
    .segment { margin-top: .6rem; }
    .segment > span { font-size: .85em; }
    .blocks { display: flex; height: 2.4rem; min-width: 4px; }
    .block { flex: 0 1 auto; min-width: 3px; overflow: hidden; border: 1px solid;
      font-size: .8em; line-height: 1.15rem; white-space: nowrap; }
    /* a line that does not fit whole wraps below the edge: no number is shown cut off */
    .block div { display: flex; flex-wrap: wrap; height: 1.15rem; overflow: hidden; }
    .block div::before { content: ""; height: 1.15rem; }
    .block span { padding: 0 .2rem; }
    .held { border-color: var(--held); border-width: 2px 1px;
      background: color-mix(in srgb, var(--held) 25%, transparent); }
    .free { border: 1px dashed color-mix(in srgb, currentColor 60%, transparent);
      background: repeating-linear-gradient(135deg, transparent 0 7px,
        color-mix(in srgb, currentColor 14%, transparent) 7px 8px); }
    .keys { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin-top: .6rem;
      font-size: .85em; }
    .keys i { display: inline-block; width: 1.6em; height: 1em; margin-right: .4em;
      vertical-align: -.1em; }
  `;

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  class AllocatorExplorer extends BookExplorer {
    static words = words;
    static style = style;

    build(data) {
      this.data = data;
      const { words: w } = this;
      const count = data.steps.length;
      this.previous = make("button", { type: "button" }, w.previous);
      this.next = make("button", { type: "button" }, w.next);
      this.slider = make("input", { type: "range", min: 1, max: count, value: 1 });
      this.status = make("p", { "aria-live": "polite" });
      this.counters = make("tbody");
      this.heap = make("div", { class: "heap" });
      this.previous.onclick = () => this.show(this.index - 1);
      this.next.onclick = () => this.show(this.index + 1);
      this.slider.oninput = () => this.show(this.slider.value - 1);
      const head = make(
        "tr",
        {},
        make("td"),
        make("th", { scope: "col" }, w.now),
        make("th", { scope: "col" }, w.peak),
      );
      const keys = make("div", { class: "keys" });
      ["held", "free"].forEach((kind, i) => {
        const swatch = make("i", { class: `block ${kind}` });
        keys.append(make("span", {}, swatch, w.keys[i]));
      });
      if (data.capacity) keys.append(make("span", {}, w.capacity(data.capacity)));
      const rows = Math.max(1, ...data.steps.map((step) => step.segments.length));
      this.heap.style.setProperty("--rows", `${rows * 4.5}rem`);
      this.scale = Math.max(1, ...data.steps.flatMap((step) => step.segments.map((s) => s.size)));
      const facts = make(
        "div",
        { class: "facts" },
        make("table", {}, make("thead", {}, head), this.counters),
      );
      facts.append(this.lines(count));
      this.fill("");
      this.shadowRoot.append(
        make(
          "div",
          { role: "group", "aria-label": w.figure },
          make(
            "div",
            { class: "bar" },
            this.previous,
            this.next,
            make("label", {}, w.step, this.slider),
          ),
          this.status,
          facts,
          this.heap,
          keys,
        ),
      );
      this.show(0);
    }

    lines(count) {
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const top = Math.max(1, ...this.data.steps.map((step) => step.now[3][0]));
      // A curve of steps: one level for each step, the highest value at the upper edge.
      const path = (which) => {
        const levels = this.data.steps.map((step) => 100 - (100 * step.now[which][0]) / top);
        return levels.map((level, i) => `${i ? "V" : "M0 "}${level}H${i + 1}`).join("");
      };
      svg.setAttribute("viewBox", `0 -4 ${count} 108`);
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", this.words.lines);
      svg.innerHTML = `<rect y="-4" width="1" height="108" style="fill:currentColor;opacity:.15"/>
        <path d="M0 100H${count}" stroke="var(--line)"/>
        <path d="${path(1)}" stroke="currentColor" stroke-width="2" stroke-dasharray="5 3"/>
        <path d="${path(0)}" stroke="var(--held)" stroke-width="3"/>`;
      this.cursor = svg.querySelector("rect");
      return svg;
    }

    show(index) {
      const { words: w, data } = this;
      const last = data.steps.length - 1;
      this.index = Math.min(last, Math.max(0, index));
      const step = data.steps[this.index];
      const place = w.of(this.index + 1, last + 1);
      this.previous.setAttribute("aria-disabled", this.index === 0);
      this.next.setAttribute("aria-disabled", this.index === last);
      this.slider.value = this.index + 1;
      this.slider.setAttribute("aria-valuetext", place);
      this.cursor.setAttribute("x", this.index);
      this.status.textContent = this.sentence(step, place);
      this.counters.replaceChildren(
        ...[0, 1].map((i) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, i ? w.reserved : w.allocated),
            make("td", {}, step.now[i][1]),
            make("td", {}, step.now[i + 2][1]),
          ),
        ),
      );
      this.heap.replaceChildren(...step.segments.map((segment, i) => this.segment(segment, i + 1)));
      if (!step.segments.length) this.heap.append(w.none);
    }

    sentence(step, place) {
      const { words: w } = this;
      const { did } = step;
      const head =
        step.op === "malloc"
          ? w.malloc(step.name, step.asked)
          : step.op === "free"
            ? w.release(step.name)
            : w[step.op];
      const parts = ["segment_free", "segment_alloc", "alloc", "split", "free", "merge", "oom"]
        .filter((key) => did[key])
        .map((key) => w.did[key](did[key]));
      if (did.alloc && !did.segment_alloc) parts.unshift(w.did.reuse);
      return w.sentence(place, head, parts.length ? parts : [w.did.nothing]);
    }

    segment(segment, number) {
      const { words: w } = this;
      const title = w.segment(number, segment.small, segment.text);
      const names = segment.blocks.map(([, text, held, name]) => `${held ? name : w.free} ${text}`);
      const row = make("div", { class: "blocks", role: "img", "aria-label": names.join(", ") });
      row.style.width = `${(100 * segment.size) / this.scale}%`;
      segment.blocks.forEach(([size, text, held, name], i) => {
        const block = make(
          "div",
          { class: `block ${held ? "held" : "free"}`, title: names[i] },
          ...[held ? name : w.free, text].map((line) => make("div", {}, make("span", {}, line))),
        );
        block.style.width = `${(100 * size) / segment.size}%`;
        row.append(block);
      });
      return make("div", { class: "segment" }, make("span", {}, title), row);
    }
  }

  BookExplorer.define("allocator-explorer", AllocatorExplorer);
})();
