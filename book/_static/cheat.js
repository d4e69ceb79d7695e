// Cheat sheet: filter lines while typing, print button, mark wrong lines.
(() => {
  const sheet = document.getElementById("cheat-sheet");
  if (!sheet) return;
  const chinese = document.documentElement.lang.startsWith("zh");
  const localized = (english, other) => (chinese ? other : english);

  // ---- statements: the nodes of a line and of the lines that continue it
  const continues = /^(?:[\s)\]}]|#(?! \$)|except\b|else\b|elif\b|finally\b)/;
  const statements = (pre) => {
    const lines = [[]];
    for (const node of [...pre.childNodes]) {
      if (node.nodeType !== Node.TEXT_NODE) {
        lines.at(-1).push(node);
        continue;
      }
      for (const text of node.data.split(/(?<=\n)/)) {
        lines.at(-1).push(document.createTextNode(text));
        if (text.endsWith("\n")) lines.push([]);
      }
    }
    const parts = [];
    for (const nodes of lines) {
      const text = nodes.map((node) => node.textContent).join("");
      const last = parts.at(-1);
      if (last && (continues.test(text) || !text || last.text.startsWith("@", last.begins))) {
        last.begins = last.text.length;
        last.text += text;
        last.nodes.push(...nodes);
      } else parts.push({ text, nodes, begins: 0 });
    }
    return parts;
  };

  // Search text of a link: its anchor is English on the Chinese page, too.
  const words = (link) => `${link.textContent} ${link.hash.replaceAll("-", " ")}`;
  const groups = [...sheet.querySelectorAll("div.cell")].map((cell) => {
    const chapter = cell.closest("section");
    const heading = cell.previousElementSibling;
    const pre = cell.querySelector("pre");
    for (const comment of pre.querySelectorAll(".c1"))
      comment.classList.toggle("wrong-line", comment.textContent.startsWith("# ✗"));
    const about = [chapter.querySelector("h2 > a"), heading.querySelector("a")];
    const title = about.map(words).join(" ").toLowerCase();
    return { cell, chapter, heading, pre, title, parts: statements(pre) };
  });

  // ---- the filter
  const tools = document.createElement("form");
  tools.className = "cheat-tools";
  const field = document.createElement("input");
  field.type = "search";
  field.id = "cheat-filter";
  field.autocomplete = "off";
  field.placeholder = localized("gather, nan, DDP", "gather、nan、学习率");
  const label = document.createElement("label");
  label.htmlFor = field.id;
  label.textContent = localized("Filter", "筛选");
  const print = document.createElement("button");
  print.type = "button";
  print.textContent = localized("Print", "打印");
  print.addEventListener("click", () => window.print());
  const count = document.createElement("output");
  count.htmlFor = field.id;
  tools.append(label, field, print, count);
  tools.addEventListener("submit", (event) => event.preventDefault());
  sheet.querySelector("h1").after(tools);

  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { cell, heading, pre, title, parts } of groups) {
      const left = words.filter((word) => !title.includes(word));
      const fits = ({ text }) => left.every((word) => text.toLowerCase().includes(word));
      const kept = parts.filter(fits);
      cell.hidden = heading.hidden = !kept.length;
      shown += kept.length > 0;
      pre.replaceChildren(...kept.flatMap(({ nodes }) => nodes));
    }
    for (const chapter of new Set(groups.map((group) => group.chapter)))
      chapter.hidden = groups.every((g) => g.chapter !== chapter || g.cell.hidden);
    count.textContent = !words.length
      ? ""
      : shown
        ? localized(`${shown} of ${groups.length}`, `${groups.length} 组中的 ${shown} 组`)
        : localized("Nothing matches.", "没有匹配的内容。");
  };
  field.addEventListener("input", filter);
  field.value = new URLSearchParams(location.search).get("q") || "";
  filter();
})();
