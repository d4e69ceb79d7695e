// What all explorers share: the language, the frame, the shadow tree. A subclass has `static words`
// ({ en, zh }), `static style` (CSS) and `build(data)`, which is called once with the data.
globalThis.BookExplorer ??= class extends HTMLElement {
  static frame = `
    :host { display: block; max-width: 44rem; margin: 1rem 0; padding: 1rem;
      --line: var(--pst-color-border, #8a8a8a); --held: var(--pst-color-primary, #0a7d91);
      --muted: var(--pst-color-text-muted, #767676);
      color: var(--pst-color-text-base, inherit);
      background: var(--pst-color-background, transparent);
      border: 1px solid var(--line); border-radius: .5rem }
    * { box-sizing: border-box }
    :focus-visible { outline: 3px solid var(--held); outline-offset: 2px }
    input { min-width: 0; accent-color: var(--held) }
    [type=range] { min-height: 2rem }
    select { max-width: 100%; min-height: 2rem; font: inherit; color: inherit;
      background: var(--pst-color-background, Canvas);
      border: 1px solid var(--muted); border-radius: .25rem }
    dl { display: grid; grid-template-columns: minmax(7rem, auto) 1fr; gap: .3rem 1rem;
      margin: .8rem 0 0 }
    dt { font-weight: normal }
    dd { margin: 0; font-weight: 600; overflow-wrap: anywhere;
      font-variant-numeric: tabular-nums }`;
  static style = "";

  static define(name, element) {
    if (!customElements.get(name)) customElements.define(name, element);
  }

  static quote(text) {
    const named = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
    return String(text).replace(/[&<>"]/g, (character) => named[character]);
  }

  // The <option>s of a <select>; the value of each is its place in the list.
  static options(texts) {
    return texts
      .map((text, i) => `<option value="${i}">${BookExplorer.quote(text)}</option>`)
      .join("");
  }

  // The content of a <dl>: pairs of a term and its value.
  static facts(pairs) {
    const { quote } = BookExplorer;
    return pairs.map(([k, v]) => `<dt>${quote(k)}</dt><dd>${quote(v)}</dd>`).join("");
  }

  connectedCallback() {
    if (this.shadowRoot) return;
    const language = this.lang || document.documentElement.lang || navigator.language;
    const { words } = this.constructor;
    this.words = /^zh/i.test(language) ? words.zh : words.en;
    this.attachShadow({ mode: "open" });
    this.build(JSON.parse(this.getAttribute("data")));
  }

  // Put `html` into the frame; the function returned finds its elements.
  fill(html) {
    const { frame, style } = this.constructor;
    this.shadowRoot.innerHTML = `<style>${frame}${style}</style>${html}`;
    return (selector) => this.shadowRoot.querySelector(selector);
  }
};
