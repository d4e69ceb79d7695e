(() => {
  const { BookExplorer } = globalThis;
  const { quote, steps } = BookExplorer;

  const words = {
    en: {
      fits: "A request needs a free block of its size, or room on the device for a new segment.",
      whole: "Only whole segments return to the device, and only if all their blocks are free.",
      title: "What does the cache contain?",
      full: "Why does the request fail?",
      failed: (size) => `here ${size} do not fit. Go to the step where they do.`,
      returned: "find the step at which reserved memory falls.",
      of: (i, n) => `Step ${i} of ${n}`,
      wanted: (name, size) => `${name} asks for ${size}`,
      largest: ([free, size]) =>
        ` ${free} are <span data-part="free">free</span>, but the largest piece has ${size}.`,
      now: "now",
      peak: "peak",
      allocated: "Allocated",
      reserved: "Reserved",
      capacity: (c) => `device: ${c}`,
      segment: (i, small, size) => `Segment ${i}: ${small ? "small" : "large"} pool, ${size}`,
      free: "free",
      none: "No segment: nothing is reserved.",
      keys: ["held by a tensor", "free, still reserved"],
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
      sentence: (head, parts) => `${head}: ${parts.join("; ")}.`,
    },
    zh: {
      fits: "申请显存时，要么有够大的空闲块，要么设备上还放得下一个新的段。",
      whole: "归还给设备的只能是整个段，而且段里的每一块都得是空闲的。",
      title: "缓存里有什么？",
      full: "为什么分配失败？",
      failed: (size) => `这里放不下 ${size}。走到放得下的那一步。`,
      returned: "找出已保留显存下降的那一步。",
      of: (i, n) => `第 ${i} 步，共 ${n} 步`,
      wanted: (name, size) => `${name} 要 ${size}`,
      largest: ([free, size]) =>
        `<span data-part="free">空闲</span>的共有 ${free}，但最大的一块只有 ${size}。`,
      now: "当前",
      peak: "峰值",
      allocated: "已分配显存",
      reserved: "已保留显存",
      capacity: (c) => `设备：${c}`,
      segment: (i, small, size) => `段 ${i}：${small ? "小" : "大"}块池，${size}`,
      free: "空闲",
      none: "没有段：没有保留任何显存。",
      keys: ["由张量占有", "空闲，仍被保留"],
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
      sentence: (head, parts) => `${head}：${parts.join("；")}。`,
    },
  };

  const style = `
    .facts { display: flex; gap: .3rem 1rem; align-items: center }
    table { flex: none; border-collapse: collapse; font-size: .8rem }
    th, td { padding: 0 .6rem 0 0; text-align: left; font-weight: normal }
    td { min-width: 4.6rem; white-space: nowrap }
    tbody th::before { content: ""; display: inline-block; width: 1em; margin-right: .4em;
      vertical-align: .25em; border-top: 3px solid var(--held) }
    tbody tr + tr th::before { border-top: 3px dashed var(--ink) }
    .drawing .facts svg { flex: 1 1 6rem; min-width: 0; height: 4rem }
    svg * { fill: none; vector-effect: non-scaling-stroke }
    svg .now { fill: var(--lit); opacity: .35 }
    svg .spot { fill: transparent }
    .segment, .wanted { margin-top: .3rem }
    .blocks { display: flex; height: 2.4rem; min-width: 4px }
    .block { flex: 0 1 auto; min-width: 3px; overflow: hidden; border: 1px solid var(--held);
      font-size: .75rem; line-height: 1.15rem; white-space: nowrap }
    .block.free { border: 1px dashed var(--muted) }
    .block.bad { border: 2px solid var(--wrong) }
    .block.new { border-width: 3px }
    /* a line that does not fit whole wraps below the edge: no number is shown cut off */
    .block div { display: flex; flex-wrap: wrap; height: 1.15rem; overflow: hidden }
    .block div::before { content: ""; height: 1.15rem }
    .block span { padding: 0 .15rem }
    .keys { display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin-top: .3rem; font-size: .8rem }
    .keys i { display: inline-block; width: 1.6em; height: 1em; margin-right: .4em;
      vertical-align: -.1em }
    .title { margin: 0 }`;

  // Return the SVG path of a step curve; the value `top` is at the upper edge.
  const path = (levels, top) =>
    levels.map((n, i) => `${i ? "V" : "M0 "}${100 - (100 * n) / top}H${i + 1}`).join("");

  class AllocatorExplorer extends BookExplorer {
    static words = words;
    static style = style;

    start({ start }) {
      return { at: start };
    }

    view({ at }, { capacity, steps: all, start }, t) {
      const step = all[at];
      const count = all.length;
      const goal = all[start].did.oom ? all[start].asked : null;
      const heap = all.flatMap((one) => one.segments.map((segment) => segment.size));
      const scale = Math.max(1, ...heap, ...all.map((one) => one.wanted ?? 0));
      const top = Math.max(1, ...all.map((one) => one.now[3][0]));
      const curve = (which) =>
        path(
          all.map((one) => one.now[which][0]),
          top,
        );
      const spots = all.map(
        (_, i) =>
          `<rect class="spot" data-point="at=${i}" x="${i}" y="-4" width="1" height="108"/>`,
      );
      const counter = (i) =>
        `<tr><th scope="row">${i ? t.reserved : t.allocated}</th><td>${step.now[i][1]}</td>
        <td>${step.now[i + 2][1]}</td></tr>`;
      const lines = (texts) =>
        texts.map((text) => `<div><span>${quote(text)}</span></div>`).join("");
      const block = ([size, text, held, name], whole) =>
        `<div class="block ${held ? "hold" : "free"}${held && name === step.name ? " new" : ""}"
        data-part="${held ? "held" : "free"}" style="width: ${(100 * size) / whole}%">
        ${lines([held ? name : t.free, text])}</div>`;
      const segment = ({ size, text, small, blocks }, i) => {
        const names = blocks.map(([, had, held, name]) => `${held ? name : t.free} ${had}`);
        return `<div class="segment"><div class="title">${t.segment(i + 1, small, text)}</div>
          <div class="blocks" role="img" aria-label="${quote(names.join(", "))}"
          style="width: ${(100 * size) / scale}%">${blocks.map((b) => block(b, size)).join("")}</div
          ></div>`;
      };
      const wanted = step.wanted
        ? `<div class="wanted"><div class="title">${t.wanted(quote(step.name), step.asked)}</div>
          <div class="blocks"><div class="block bad" style="width: ${(100 * step.wanted) / scale}%"
          ></div></div></div>`
        : "";
      const most = Math.max(1, ...all.map((one) => one.segments.length + (one.wanted ? 1 : 0)));
      const key = (kind, i) =>
        `<span data-part="${i ? "free" : "held"}"><i class="block ${kind}"></i>${t.keys[i]}</span>`;
      const place = t.of(at + 1, count);
      const before = all[Math.max(0, at - 1)].now[1][0];
      return {
        title: goal ? t.full : t.title,
        task: goal ? t.failed(goal) : t.returned,
        because: goal ? t.fits : t.whole,
        drawing: `<div class="facts"><table><thead><tr><td></td><th scope="col">${t.now}</th>
          <th scope="col">${t.peak}</th></tr></thead>
          <tbody>${counter(0)}${counter(1)}</tbody></table>
          <svg aria-hidden="true" viewBox="0 -4 ${count} 108" preserveAspectRatio="none">
          <rect class="now" x="${at}" y="-4" width="1" height="108"/>
          <path d="M0 100H${count}" stroke="var(--line)"/>
          <path d="${curve(1)}" stroke="currentColor" stroke-width="2" stroke-dasharray="5 3"/>
          <path d="${curve(0)}" stroke="var(--held)" stroke-width="3"/>${spots.join("")}</svg></div>
          <div class="heap" style="min-height: ${most * 4}rem">
          ${wanted}${step.segments.map(segment).join("") || t.none}</div>
          <div class="keys">${["hold", "free"].map(key).join("")}
          <span>${capacity ? t.capacity(capacity) : ""}</span></div>`,
        controls: steps("at", at, count - 1, place, t),
        say: this.sentence(step, t) + (step.pieces ? t.largest(step.pieces) : ""),
        done: goal ? at > start && step.asked === goal && !step.did.oom : step.now[1][0] < before,
      };
    }

    sentence({ op, name, asked, did }, t) {
      const head = { malloc: t.malloc, free: t.release }[op]?.(quote(name), asked) ?? t[op];
      const parts = ["segment_free", "segment_alloc", "alloc", "split", "free", "merge", "oom"]
        .filter((key) => did[key])
        .map((key) => t.did[key](did[key]));
      if (did.alloc && !did.segment_alloc) parts.unshift(t.did.reuse);
      return t.sentence(head, parts.length ? parts : [t.did.nothing]);
    }
  }

  BookExplorer.define("allocator-explorer", AllocatorExplorer);
})();
