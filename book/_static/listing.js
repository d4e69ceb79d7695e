// Pages with a long list: filter it while typing, and open a linked entry.
(() => {
  // "loss nan" → each word; "损失不降" → each pair of characters
  const pieces = (text) => (text.toLowerCase().match(/[\u3400-\u9fff]+|[^\s\u3400-\u9fff，。、：；（）]+/g) || [])
    .flatMap((part) => /[\u3400-\u9fff]/.test(part) && part.length > 2
      ? [...part.slice(1)].map((_, n) => part.slice(n, n + 2)) : [part]);

  // Return the texts with all pieces, else those with the most pieces, at least half of them.
  const fitting = (query, texts) => {
    const words = pieces(query);
    const begins = words.map((piece) => /^\w/.test(piece)
      ? new RegExp("(?<!\\w)" + piece.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
      : { test: (text) => text.includes(piece) });
    const shares = texts.map((text) => begins.filter((b) => b.test(text)).length / (words.length || 1));
    const most = shares.reduce((a, b) => Math.max(a, b), 0);
    return shares.map((share) => !words.length || (share === most && share >= 0.5));
  };

  const start = () => {
    const open = () => {
      const named = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      const fold = named && named.querySelector(":scope > details");
      if (fold) fold.open = true;
    };
    addEventListener("hashchange", open);
    open();
    for (const field of document.querySelectorAll("input[data-filter]")) {
      const list = document.getElementById(field.dataset.filter);
      const status = field.parentElement.querySelector("[role=status]");
      const items = [...list.querySelectorAll(":scope ul > li[id]")];
      const texts = items.map((item) => item.textContent.toLowerCase());
      const filter = () => {
        const fits = fitting(field.value, texts);
        items.forEach((item, n) => { item.hidden = !fits[n]; });
        for (const part of list.querySelectorAll("section"))
          part.hidden = !part.querySelector("li[id]:not([hidden])");
        status.textContent = fits.includes(true) ? "" : field.dataset.none;
      };
      field.addEventListener("input", filter);
      const given = new URLSearchParams(location.search).get("q");
      if (given && !field.value) field.value = given;
      filter();
    }
  };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
