// Print layout: title and address on each sheet; hints and solutions after the text.
(() => {
  const { paper } = globalThis.bookWords;
  const canonical = document.querySelector("link[rel=canonical]")?.href;
  const address =
    canonical ?? (location.protocol === "file:" ? "" : location.href.replace(/[?#].*/, ""));
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const [head, foot] = [document.title, address].map((text) => JSON.stringify(text));
  document.head.append(
    make("style", {
      textContent: `@page { @top-left { content: ${head} } @bottom-left { content: ${foot} } }`,
    }),
  );

  const sheet = make("div", { className: "solutions" });
  const moved = [];
  const move = (part, place) => {
    const mark = document.createComment("");
    part.replaceWith(mark);
    place.append(part);
    const folds = [part, ...part.querySelectorAll("details")].filter(
      (e) => e.localName === "details",
    );
    moved.push([mark, part, folds.map((fold) => [fold, fold.open])]);
    for (const fold of folds) fold.open = true;
  };
  addEventListener("beforeprint", () => {
    const sections = new Set(
      [...document.querySelectorAll("article .tag_exercise")].map((e) => e.closest("section")),
    );
    if (!sections.size || moved.length) return;
    sheet.replaceChildren(make("h2", { textContent: paper.title }));
    for (const section of sections) {
      const parts = section.querySelectorAll(":scope > :is(details:not(.hide), .tag_solution)");
      if (!parts.length) continue;
      sheet.append(
        make("h3", { textContent: section.querySelector("h2, h3").textContent.replace(/#$/, "") }),
      );
      for (const part of parts) {
        if (part.matches(".tag_solution")) sheet.append(make("p", { textContent: paper.solution }));
        move(part, sheet);
      }
    }
    document.querySelector("article > section").append(sheet);
  });
  addEventListener("afterprint", () => {
    for (const [mark, part, folds] of moved.splice(0)) {
      for (const [fold, open] of folds) fold.open = open;
      mark.replaceWith(part);
    }
    sheet.remove();
  });
})();
