// Enlarge figures: a click on a figure or on the button below it opens a dialog.
(() => {
  const zh = document.documentElement.lang.startsWith("zh");
  const button = (label, act) => {
    const element = Object.assign(document.createElement("button"), { type: "button", textContent: label });
    element.addEventListener("click", act);
    return element;
  };
  const enlarge = (figure) => {
    const dialog = Object.assign(document.createElement("dialog"), { className: "enlarged" });
    const frame = Object.assign(document.createElement("div"), { tabIndex: 0 });
    const name = figure.getAttribute("aria-label");
    if (name) dialog.setAttribute("aria-label", name);
    frame.append(figure.cloneNode(true));
    dialog.append(button(zh ? "关闭" : "Close", () => dialog.close()), frame);
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  };
  globalThis.bookFigures = (part) => {
    for (const figure of part.querySelectorAll(".book-figure")) {
      const opener = button(zh ? "放大" : "Enlarge", () => enlarge(figure));
      opener.className = "enlarge";
      figure.after(opener);
      figure.addEventListener("click", () => enlarge(figure));
    }
  };
  globalThis.bookFigures(document);
})();
