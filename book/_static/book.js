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
      const anchor = here && here !== sections[0] ? "#" + here.id : "";
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

  // ---- paper is white, whatever the theme
  const root = document.documentElement.dataset;
  let theme;
  addEventListener("beforeprint", () => { theme = root.theme; root.theme = "light"; });
  addEventListener("afterprint", () => { root.theme = theme; });

  // ---- the page of results; a page opened from disk cannot read the others for a summary
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  const results = document.getElementById("search-results");
  if (results && !new URLSearchParams(location.search).get("q"))
    document.querySelector("main form.bd-search input").focus();
})();
