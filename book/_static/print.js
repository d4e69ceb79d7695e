// Prepare explorers for printing: remove controls.
(() => {
  const style = new CSSStyleSheet();
  style.replaceSync(`@media print {
    .controls, header button, .task, .unseen { display: none !important }
    section { break-inside: avoid; padding: .4rem .6rem !important }
    .said { min-height: 0 !important }
  }`);
  addEventListener("beforeprint", () => {
    for (const { shadowRoot } of document.querySelectorAll("*"))
      if (shadowRoot && !shadowRoot.adoptedStyleSheets.includes(style))
        shadowRoot.adoptedStyleSheets = [...shadowRoot.adoptedStyleSheets, style];
  });
})();
