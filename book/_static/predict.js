// Questions before a cell: the first answer counts, the cell's output shows after it, and this
// browser remembers, for the lists of chapters. Without this script they unfold all the same.
(() => {
  const zh = document.documentElement.lang.startsWith("zh");
  const words = zh
    ? { show: "先作答，或直接显示输出", again: "重新作答", score: (right, all) => `${right} / ${all}`,
        hint: (right, all) => `${all} 道预测题，首次答对 ${right} 道` }
    : { show: "Answer first, or show the output", again: "Ask me again", score: (right, all) => `${right} of ${all}`,
        hint: (right, all) => `${right} of ${all} questions answered right at once` };
  const key = (page) => `predict:${page}`;
  const load = (page) => {
    try { return JSON.parse(localStorage.getItem(key(page))) || {}; } catch { return {}; }
  };
  const save = (page, kept) => { try { localStorage.setItem(key(page), JSON.stringify(kept)); } catch {} };
  const pageOf = (address) => new URL(address, location.href).pathname.split("/").pop().replace(/\.html$/, "");

  const here = pageOf(location.href);
  const cards = [...document.querySelectorAll(".predict")];
  let kept = load(here);
  if (kept.picks) { // a question may be gone since
    const ids = new Set(cards.map((card) => card.dataset.cell));
    kept = { all: cards.length, picks: Object.fromEntries(Object.entries(kept.picks).filter(([id]) => ids.has(id))) };
    save(here, kept);
  }
  for (const card of cards) {
    const id = card.dataset.cell;
    const choices = [...card.querySelectorAll("details")];
    const cell = document.getElementById(id);
    const output = cell?.querySelector(".cell_output");
    const veil = Object.assign(document.createElement("button"), { className: "veil", type: "button", textContent: words.show });
    const again = Object.assign(document.createElement("button"), { type: "button", textContent: words.again });
    const show = (visible) => {
      cell?.classList.toggle("veiled", !visible);
      if (!output) return;
      if (visible) output.removeAttribute("hidden");
      else output.setAttribute("hidden", "until-found"); // the browser's own search still finds it
      veil.hidden = visible;
    };
    const answered = () => Object.hasOwn(kept.picks ?? {}, id);
    const draw = () => {
      const done = answered();
      again.hidden = !done;
      // Who follows a link to a place on the page wants to read, not to be asked.
      show(done || Boolean(location.hash));
    };
    choices.forEach((choice, i) => {
      choice.addEventListener("toggle", () => {
        if (!choice.open || answered()) return;
        kept = load(here);
        kept.picks = { ...kept.picks, [id]: choices[i].className === "yes" ? 1 : 0 };
        kept.all = cards.length;
        save(here, kept);
        draw();
        list();
      });
    });
    again.addEventListener("click", () => {
      kept = load(here);
      delete kept.picks?.[id];
      save(here, kept);
      for (const choice of choices) choice.open = false;
      draw();
      list();
      choices[0].querySelector("summary").focus();
    });
    veil.addEventListener("click", () => {
      show(true);
      output.tabIndex = -1;
      output.focus();
    });
    output?.addEventListener("beforematch", () => show(true));
    output?.before(veil);
    addEventListener("hashchange", draw);
    card.append(again);
    draw();
  }

  function list() {
    for (const old of document.querySelectorAll(".score")) old.remove();
    for (const link of document.querySelectorAll("nav.bd-links a.internal, ul.chapters a.internal")) {
      const page = link.getAttribute("href") === "#" ? here : pageOf(link.href);
      const { picks, all } = load(page);
      const values = Object.values(picks ?? {});
      if (!values.length || !all) continue;
      const right = values.filter(Boolean).length;
      const score = Object.assign(document.createElement("span"), { className: "score", title: words.hint(right, all), textContent: words.score(right, all) });
      link.append(score);
    }
  }
  list();
})();
