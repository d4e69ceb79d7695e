// What the theme leaves out: the language switch keeps the section, menus close.
(() => {
  // ---- the same section in the other language, and the choice remembered
  const link = document.querySelector("a.language-switch");
  if (link) {
    const address = link.getAttribute("href");
    link.addEventListener("click", () => {
      try { localStorage.setItem("book-language", link.dataset.language); } catch (error) {}
      const sections = [...document.querySelectorAll("main section[id]")];
      const seen = (s) => { const b = s.getBoundingClientRect(); return b.bottom > 0 && b.top < innerHeight; };
      const named = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      const reading = sections.filter((s) => s.getBoundingClientRect().top < innerHeight / 3).pop();
      const here = named && seen(named) ? named : reading;
      const lists = document.getElementById("error-search"); // the text is kept, no section is read
      const anchor = here && here !== sections[0] && !lists ? "#" + here.id : "";
      link.href = address + location.search + anchor;
    });
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

  // ---- what scrolls is reached by keys; measured once it is in sight
  const measure = new ResizeObserver((entries) => {
    for (const { target } of entries)
      if (target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
  });
  for (const e of document.querySelectorAll("article :is(pre, .cell_output > .output, .pst-scrollable-table-container)")) measure.observe(e);

  // ---- the sidebar stands where it was left, or shows the page's own line
  const sidebar = document.querySelector(".bd-sidebar-primary");
  requestAnimationFrame(() => {
    const here = sidebar?.querySelector("li.current");
    if (!here?.offsetParent) return; // closed, as on a phone
    try { sidebar.scrollTop = sessionStorage.getItem("sidebar") ?? 0; } catch {}
    const [line, box] = [here.getBoundingClientRect(), sidebar.getBoundingClientRect()];
    if (line.top < box.top || line.bottom > Math.min(box.bottom, innerHeight)) sidebar.scrollTop += line.top - box.top - box.height / 4;
    addEventListener("pagehide", () => { try { sessionStorage.setItem("sidebar", sidebar.scrollTop); } catch {} });
  });

  // ---- paper is white, whatever the theme
  const root = document.documentElement.dataset;
  let theme;
  addEventListener("beforeprint", () => { theme = root.theme; root.theme = "light"; });
  addEventListener("afterprint", () => { root.theme = theme; });

  // ---- search: a dialog, and a page of results; its scripts are loaded when they are needed
  const form = document.querySelector("form.bd-search");
  const dialog = document.getElementById("search-dialog");
  let loading;
  const load = () => {
    loading ||= Promise.all(form.dataset.scripts.split(" ").map((src) => new Promise((done, failed) => {
      const script = Object.assign(document.createElement("script"), { src, async: false, onload: done, onerror: failed });
      document.head.append(script);
    }))).catch(() => {
      const told = document.querySelector(".search-told");
      told.textContent = told.dataset.failed;
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
  dialog?.addEventListener("keydown", (event) => { // of itself Escape would only empty the field
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
