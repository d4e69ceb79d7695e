// Questions before a cell: the first answer counts; the output and its explanation (`.why`) are
// shown after it; answers are stored in the browser for the lists of chapters. Without this script
// the choices unfold, and nothing is hidden.
(() => {
  const words = globalThis.bookWords.questions;
  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const FOUND = "onbeforematch" in document.body ? "until-found" : ""; // so that find-in-page works
  const load = (page, what = "predict") => {
    try { return JSON.parse(localStorage.getItem(`${what}:${page}`)) || {}; } catch { return {}; }
  };
  const save = (page, kept, what = "predict") => {
    try { localStorage.setItem(`${what}:${page}`, JSON.stringify(kept)); } catch {}
  };
  const pageOf = (address) => new URL(address, location.href).pathname.split("/").pop().replace(/\.html$/, "");

  const here = pageOf(location.href);
  const cards = [...document.querySelectorAll(".predict")];
  let kept = load(here); // picks: 1 if the first answer was right; chose: its index
  if (kept.picks) { // drop questions that no longer exist
    const ids = new Set(cards.map((card) => card.dataset.cell));
    const known = (values) => Object.fromEntries(Object.entries(values ?? {}).filter(([id]) => ids.has(id)));
    kept = { all: cards.length, picks: known(kept.picks), chose: known(kept.chose) };
    save(here, kept);
  }
  const change = (edit) => {
    kept = { picks: {}, chose: {}, ...load(here), all: cards.length };
    edit(kept);
    save(here, kept);
    for (const one of asked) one.draw();
    list();
  };

  const asked = cards.map((card) => {
    const id = card.dataset.cell;
    const choices = [...card.querySelectorAll("details")];
    const cell = document.getElementById(id);
    const output = cell?.querySelector(".cell_output");
    const why = cell?.nextElementSibling?.matches(".why") ? cell.nextElementSibling : null;
    const hidden = [output, why].filter(Boolean);
    const veil = make("button", { className: "veil", type: "button", textContent: words.show });
    const again = make("button", { type: "button", textContent: words.again });
    const show = (visible) => {
      cell?.classList.toggle("veiled", !visible);
      for (const part of hidden)
        if (visible) part.removeAttribute("hidden");
        else part.setAttribute("hidden", FOUND);
      veil.hidden = visible;
    };
    const answered = () => Object.hasOwn(kept.picks ?? {}, id);
    let done; // last drawn state: output shown without an answer stays visible
    const draw = () => {
      if (done === answered()) return;
      done = answered();
      again.hidden = !done;
      show(done);
      card.querySelector(".mine")?.remove();
      const pick = done && choices[kept.chose?.[id]];
      if (pick) {
        pick.open = true;
        pick.firstElementChild.append(make("span", { className: "mine", textContent: words.mine }));
      } else if (!done) for (const choice of choices) choice.open = false;
    };
    choices.forEach((choice, i) => {
      choice.addEventListener("toggle", () => {
        if (!choice.open || answered()) return;
        change(({ picks, chose }) => {
          picks[id] = choice.className === "yes" ? 1 : 0;
          chose[id] = i;
        });
      });
    });
    const forget = (data) => {
      delete data.picks[id];
      delete data.chose[id];
    };
    const focus = () => choices[0].querySelector("summary").focus();
    again.addEventListener("click", () => {
      change(forget);
      focus();
    });
    veil.setAttribute("aria-expanded", "false");
    veil.addEventListener("click", () => {
      show(true);
      hidden[0].tabIndex = -1;
      hidden[0].focus();
    });
    for (const part of hidden) part.addEventListener("beforematch", () => show(true));
    if (output) output.before(veil);
    else if (hidden.length) cell.append(veil);
    card.append(again);
    draw();
    return { id, card, cell, output, why, hidden, choices, show, draw, answered, forget, focus };
  });

  // ---- links reveal hidden content: from another page or the search, the whole section; with
  // `?continue` (home page), the questions of the section stay unanswered.
  const reveal = (whole) => {
    const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!place) return;
    let moved = false;
    for (const { card, cell, why, show } of asked)
      if (cell?.contains(place) || why?.contains(place) || (whole && place.contains(card))) {
        show(true);
        moved = true;
      }
    if (moved) place.scrollIntoView();
  };
  let searched = false;
  document.addEventListener("click", ({ target }) => { searched = Boolean(target.closest?.("[role=option]")); }, true);
  addEventListener("hashchange", () => reveal(searched));
  const continues = location.search === "?continue";
  reveal(!continues && (!document.referrer || pageOf(document.referrer) !== here)); // not after a language switch

  // ---- end of the chapter: number of right answers, and a button to retry the others
  const tally = make("div", { className: "tally" });
  const status = make("p", {});
  const retry = make("button", { type: "button" });
  const missed = () => asked.filter(({ id }) => kept.picks?.[id] === 0);
  status.setAttribute("role", "status");
  tally.append(status, retry);
  retry.addEventListener("click", () => {
    const [first, ...others] = missed();
    change((data) => { for (const { forget } of [first, ...others]) forget(data); });
    first.focus();
  });
  if (cards.length) document.querySelector("article > section")?.append(tally);

  // ---- print questions without answers, which follow in a key
  const sheet = make("section", { className: "key" });
  const places = [];
  addEventListener("beforeprint", () => {
    if (!cards.length || places.length) return;
    sheet.replaceChildren(make("h2", { textContent: words.key }));
    asked.forEach(({ cell, choices, hidden }, i) => {
      const right = choices.findIndex(({ className }) => className === "yes");
      const answer = choices[right].querySelector("p").cloneNode(true);
      answer.prepend(make("strong", { textContent: `${i + 1}. ${"ABCDE"[right]} ` }));
      sheet.append(answer);
      const lines = [...(cell?.querySelectorAll(".hll") ?? [])].map(({ textContent }) => textContent);
      if (lines.length) sheet.append(make("pre", { textContent: lines.join("") }));
      for (const part of hidden) {
        const place = document.createComment("");
        places.push([place, part, part.getAttribute("hidden")]);
        part.replaceWith(place);
        part.removeAttribute("hidden");
        sheet.append(part);
      }
    });
    tally.before(sheet);
  });
  addEventListener("afterprint", () => {
    for (const [place, part, was] of places.splice(0)) {
      place.replaceWith(part);
      if (was !== null) part.setAttribute("hidden", was);
    }
    sheet.remove();
  });

  // ---- store completed explorer tasks by cell id
  const keep = ({ target, detail }) => {
    const id = target.closest(".cell[id]")?.id;
    if (!id) return;
    if (detail === null) {
      target.kept = Boolean(load(here, "explored")[id]);
      return target.show();
    }
    save(here, { ...load(here, "explored"), [id]: detail ? 1 : undefined }, "explored");
  };
  for (const target of document.querySelectorAll(".cell_output [data]"))
    if (target.localName.endsWith("-explorer") && target.show) keep({ target, detail: null });
  document.addEventListener("explored", keep);

  function list() {
    const values = { right: Object.values(kept.picks ?? {}).filter(Boolean).length, all: cards.length };
    const left = asked.filter(({ answered }) => !answered()).length;
    status.textContent = `${fill(words.tally, values)} ${left ? fill(words.left, { n: left }) : ""}`;
    retry.textContent = fill(words.missed, { n: missed().length });
    retry.hidden = !missed().length;
    for (const old of document.querySelectorAll(".score")) old.remove();
    let [done, solved] = [0, 0]; // totals of all chapters, for the sidebar
    for (const link of document.querySelectorAll("nav.bd-links a.internal, ul.chapters a.internal")) {
      const page = link.getAttribute("href") === "#" ? here : pageOf(link.href);
      const { picks, all } = load(page);
      const values = Object.values(picks ?? {});
      if (link.closest("nav")) {
        const [explored, exercises] = ["explored", "solved"].map((what) => Object.keys(load(page, what)).length);
        done += values.length + explored + exercises;
        solved += exercises;
      }
      if (!values.length || !all) continue;
      const counts = { right: values.filter(Boolean).length, all };
      link.append(make("span", { className: "score", title: fill(words.hint, counts), textContent: fill(words.score, counts) }));
    }
    const line = document.querySelector(".book-progress");
    if (!line) return;
    const [all, exercises] = globalThis.bookWords.tasks;
    line.hidden = !done;
    line.textContent = fill(words.progress, { done, all: all + (solved && exercises) });
  }
  list();
})();
