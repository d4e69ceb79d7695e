// Extend the theme: language switch to the same section, menus, wrapped code, search dialog.
(() => {
  const root = document.documentElement.dataset;
  const words = globalThis.bookWords.book;
  const store = (key, value) => { try { localStorage.setItem(key, value); } catch {} };
  const sections = () => [...document.querySelectorAll("main section[id]")];
  const reading = () => sections().filter((s) => s.getBoundingClientRect().top < innerHeight / 3).pop();

  // ---- language switch: open the same section, and store the choice
  const link = document.querySelector("a.language-switch");
  if (link) {
    const address = link.getAttribute("href");
    link.addEventListener("click", () => {
      store("book-language", link.dataset.language);
      const seen = (s) => { const b = s.getBoundingClientRect(); return b.bottom > 0 && b.top < innerHeight; };
      const named = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      const here = named && seen(named) ? named : reading();
      const lists = document.getElementById("error-search"); // keep the text, not the section
      const anchor = here && here !== sections()[0] && !lists ? "#" + here.id : "";
      link.href = address + location.search + anchor;
    });
  }

  // ---- store the reading position in a chapter, for the home page
  if (document.querySelector(".chapter-cards")) {
    const stop = () => {
      const here = reading() ?? sections()[0];
      const below = here !== sections()[0];
      const page = location.pathname.split("/").pop().replace(/\.html$/, "");
      const heading = below ? here.querySelector("h2, h3, h4").textContent.replace(/#$/, "") : "";
      store("stopped", JSON.stringify({ page, section: below ? here.id : "", heading, lang: document.documentElement.lang }));
    };
    addEventListener("pagehide", stop);
    document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); });
  }

  // ---- menus of the header
  const menus = [...document.querySelectorAll("details.menu")];
  document.addEventListener("click", (event) => {
    for (const menu of menus) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of menus.filter((m) => m.open)) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });

  // ---- optional wrapping of long code lines on phones, with hanging indentation
  const CODE = "article .highlight pre:not(.cell_output *, #cheat-sheet *, [contenteditable])";
  const split = (pre) => {
    if (pre.querySelector(".line")) return;
    const rows = [[]];
    for (const node of [...pre.childNodes])
      for (const part of node.data?.split(/(?<=\n)/) ?? [node]) {
        rows.at(-1).push(part);
        if ((part.textContent ?? part).endsWith("\n")) rows.push([]);
      }
    pre.replaceChildren(...rows.filter((row) => row.length).map((row) => {
      const line = Object.assign(document.createElement("span"), { className: "line" });
      line.append(...row);
      line.style.setProperty("--in", line.textContent.search(/\S|$/));
      return line;
    }));
  };
  const wrap = (on) => {
    if (on) for (const pre of document.querySelectorAll(CODE)) split(pre);
    if (on) root.wrap = 1;
    else delete root.wrap;
    for (const button of document.querySelectorAll("button.wrap")) button.ariaPressed = Boolean(on);
  };
  const offer = (pre) => {
    if (pre.parentElement.querySelector(".wrap")) return;
    const button = Object.assign(document.createElement("button"), { type: "button", className: "wrap", title: words.wrap, ariaLabel: words.wrap, ariaPressed: Boolean(root.wrap), textContent: "↵" });
    button.addEventListener("click", () => {
      const { top } = pre.getBoundingClientRect();
      wrap(!root.wrap);
      store("wrap", root.wrap ?? "");
      scrollBy({ top: pre.getBoundingClientRect().top - top, behavior: "instant" });
    });
    pre.after(button);
  };
  try { wrap(localStorage.getItem("wrap")); } catch {}

  // ---- make scrollable blocks focusable, measured when they scroll into view
  const measure = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const wide = target.scrollWidth > target.clientWidth;
      if (wide || target.scrollHeight > target.clientHeight) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
      if (target.matches(CODE) && (wide || root.wrap)) offer(target);
    }
  });
  for (const e of document.querySelectorAll("article :is(pre, .cell_output > .output, .pst-scrollable-table-container)")) measure.observe(e);

  // ---- restore the scroll position of the sidebar, and show the current page's line
  const sidebar = document.querySelector(".bd-sidebar-primary");
  requestAnimationFrame(() => {
    const here = sidebar?.querySelector("li.current");
    if (!here?.offsetParent) return; // the sidebar is closed, as on a phone
    try { sidebar.scrollTop = sessionStorage.getItem("sidebar") ?? 0; } catch {}
    const [line, box] = [here.getBoundingClientRect(), sidebar.getBoundingClientRect()];
    if (line.top < box.top || line.bottom > Math.min(box.bottom, innerHeight)) sidebar.scrollTop += line.top - box.top - box.height / 4;
    addEventListener("pagehide", () => { try { sessionStorage.setItem("sidebar", sidebar.scrollTop); } catch {} });
  });

  // ---- print with the light theme
  let theme;
  addEventListener("beforeprint", () => { theme = root.theme; root.theme = "light"; });
  addEventListener("afterprint", () => { root.theme = theme; });

  // ---- search: a dialog and a page of results; the scripts are loaded on demand
  const form = document.querySelector("form.bd-search");
  const dialog = document.getElementById("search-dialog");
  let loading;
  const load = () => {
    loading ||= Promise.all(form.dataset.scripts.split(" ").map((src) => new Promise((done, failed) => {
      const script = Object.assign(document.createElement("script"), { src, async: false, onload: done, onerror: failed });
      document.head.append(script);
    }))).catch(() => {
      const status = document.querySelector(".search-status");
      status.textContent = status.dataset.failed;
    });
  };
  globalThis.bookLoadSearch = () => { load(); return loading; };
  const openSearch = () => {
    if (dialog && !dialog.open) dialog.showModal();
    form.q.focus();
    form.q.select();
    load();
  };
  if (/Mac|iPhone|iPad/.test(navigator.platform)) for (const key of document.querySelectorAll(".book-search kbd")) key.textContent = "⌘ K";
  for (const button of document.querySelectorAll(".search-button, .book-search")) button.addEventListener("click", openSearch);
  document.addEventListener("keydown", (event) => {
    const typing = event.composedPath()[0].closest?.("input, textarea, select, [contenteditable]");
    const command = (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k";
    if (!command && (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey)) return;
    event.preventDefault();
    if (command && dialog?.open) dialog.close();
    else openSearch();
  });
  form.addEventListener("input", load);
  dialog?.addEventListener("keydown", (event) => { // by default Escape only clears the field
    if (event.key !== "Escape" || event.isComposing) return;
    event.preventDefault();
    dialog.close();
  });
  dialog?.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("a")) dialog.close();
  });
  if (!dialog) {
    form.q.focus();
    if (new URLSearchParams(location.search).get("q")) load();
  }
})();
