// Map of the home page: stored progress in questions, explorers and exercises, and the last reading
// position. No data is sent.
(() => {
  const map = document.getElementById("progress");
  if (!map) return;
  const [minutes, sure, ...kinds] = map.dataset.words.split("|");
  const load = (key) => {
    try {
      return JSON.parse(localStorage.getItem(key)) ?? {};
    } catch {
      return {};
    }
  };
  const sum = (values) => values.reduce((a, b) => a + b, 0);

  // ---- each chapter: minutes, tasks, and number of completed tasks
  const links = document.querySelectorAll("ul.chapters a"); // the first links are the chapters
  const chapters = map.dataset.chapters.split(" ").map((numbers, i) => {
    const [time, ...all] = numbers.split(",").map(Number);
    const page = links[i].getAttribute("href").replace(".html", "");
    const kept = ["predict", "explored", "solved"].map((kind) => load(`${kind}:${page}`));
    kept[0] = kept[0].picks ?? {};
    const done = all.map((most, kind) => Math.min(Object.keys(kept[kind]).length, most));
    return { link: links[i], page, time, all, done };
  });
  const solves = chapters.some(({ done }) => done[2]); // exercises can be solved only on live pages
  const show = (place, { all, done }) => {
    const count = (i) => (i < 2 || solves ? `${done[i]}/${all[i]}` : all[i]);
    const texts = kinds.flatMap((kind, i) => (all[i] ? `${kind}\u00a0${count(i)}` : []));
    place.append(texts.join(" · "));
    const share = sum(done) / sum(all.slice(0, solves ? 3 : 2));
    if (!share) return;
    const bar = document.createElement("i");
    bar.style.setProperty("--done", `${100 * share}%`);
    place.append(bar);
    place.classList.toggle("whole", share === 1);
  };
  for (const chapter of chapters) {
    const line = document.createElement("span");
    line.className = "tasks";
    line.append(`${minutes.replace("{}", chapter.time)} · `);
    show(line, chapter);
    chapter.link.closest("li").append(line);
  }

  // ---- total of all chapters, and last reading position
  const [go, total] = map.querySelectorAll("[hidden]");
  const each = (key) => kinds.map((_, i) => sum(chapters.map((chapter) => chapter[key][i])));
  const done = each("done");
  show(total.querySelector("span"), { all: each("all"), done });
  const { page, section, heading, lang } = load("stopped");
  const last = chapters.find((chapter) => chapter.page === page);
  total.hidden = !last && !sum(done);
  if (last) {
    const to = go.querySelector("a");
    to.href = `${page}.html?continue${section && `#${section}`}`;
    to.textContent = last.link.firstChild.textContent;
    if (heading && lang === document.documentElement.lang) to.append(` › ${heading}`);
    go.hidden = false;
  }
  total.querySelector("button").addEventListener("click", () => {
    if (!confirm(sure)) return;
    for (const key of Object.keys(localStorage))
      if (/^(predict|explored|solved):|^stopped$/.test(key)) localStorage.removeItem(key);
    location.reload();
  });
})();
