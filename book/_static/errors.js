// The page of errors: a reader pastes a message or a whole traceback, the nearest errors remain.

// What differs from one reader to the next is taken out: numbers, shapes, dtypes, devices, names.
function plainError(text) {
  return text
    .replace(/\x1b\[[0-9;]*m/g, "")
    .replace(/[“”„]/g, '"').replace(/[‘’]/g, "'")
    .replace(/Traceback \(most recent call last\):?|\bFile "[^"]*", line \d+(?:, in \S+)?/g, " ")
    .toLowerCase()
    .replace(/\b(?:[a-z_]\w*\.)+(\w*(?:error|exception|warning|interrupt))\b/g, "$1")
    .replace(/\s+/g, " ")
    .trim();
}

function generalError(text) {
  return plainError(text)
    .replace(/(^|[^\w])(["'`])(?:(?!\2).){1,120}?\2(?!\w)/g, "$1§name")
    .replace(/\b0x[0-9a-f]+\b/g, "#")
    .replace(/\b(?:torch\.)?(?:cuda\.)?(?:b?float|double|half|long|u?int|short|byte|char|bool|complex)\d*(?:tensor|storage)?\b/g, "§dtype")
    .replace(/\b(?:cuda|cpu|mps|xpu|meta)(?::\d+)?\b/g, "§device")
    .replace(/\b(?:[kmgt]i?b|bytes?)\b/g, "§unit")
    .replace(/[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?/g, "#")
    .replace(/#(?:\s*[x×,]\s*#)*,?/g, "#")
    .replace(/\[\s*\]/g, "[#]").replace(/\(\s*\)/g, "(#)");
}

// They are in every message, so that two messages share them says nothing.
const SMALL_WORDS = new Set("an and as at be but by for from has in is it not of on or than that the to was were with".split(" "));

// [[index, score], …] of the messages ("Type: text") that a pasted text may be, best first.
// Where no message is near, an error counts whose explanation quotes a part of the pasted text.
function rankErrors(pasted, messages, explained = []) {
  const query = pasted.trim();
  if (!query) return [];
  const words = (text) => new Set(text.match(/§?[a-z_]{2,}/g) || []);
  const kind = (text) => (/^\w+(?=:|$)/.exec(plainError(text)) || [""])[0];
  const known = messages.map((text) => {
    const general = generalError(text);
    return { plain: plainError(text), general, kind: kind(text), words: words(general), raw: words(plainError(text)) };
  });
  const seen = new Map();
  for (const error of known) for (const word of error.words) seen.set(word, (seen.get(word) || 0) + 1);
  const weight = (word) => word.startsWith("§") ? 0.2 : Math.log(1 + (messages.length + 1) / (seen.get(word) || 0.5));
  const sum = (set, among) => [...set].reduce((total, word) => total + (!among || among.has(word) ? weight(word) : 0), 0);

  // A traceback is cut where exceptions are named; pasting into one line may have eaten its line ends.
  const named = [...query.matchAll(/[A-Z][A-Za-z]{0,60}?(?:Error|Exception|Warning|Interrupt)(?=:|\s*$)/gm)]
    .map((match) => match.index);
  const ends = [...named.slice(1), query.length];
  const parts = named.map((start, n) => query.slice(start, ends[n])).reverse();
  const pieces = (parts.length ? parts : [query]).map((text, age) => ({ text, trust: 0.8 ** Math.min(age, 5) }));
  if (parts.length) pieces.push({ text: query.slice(named[0]), trust: 0.9 }, { text: query, trust: 0.7, whole: true });

  const best = known.map(() => 0);
  for (const { text, trust, whole } of pieces) {
    const plain = plainError(text), general = generalError(text);
    const mine = words(general), raw = words(plain), all = sum(mine);
    known.forEach((error, n) => {
      const size = (a, b) => Math.min(a.length, b.length) / Math.max(a.length, b.length);
      const within = (a, b) => b.length > 3 && a.includes(b);
      let score = 0;
      if (error.plain === error.kind && plain !== error.plain) score = within(plain, error.plain) ? 0.5 : 0;
      else if (within(plain, error.plain) || (!whole && error.plain.includes(plain))) score = 4 + size(plain, error.plain);
      else if (mine.size > 1 && error.words.size > 1
               && (within(general, error.general) || (!whole && error.general.includes(general))))
        score = 3 + size(general, error.general);
      else if (!whole && error.words.size) {
        const both = sum(mine, error.words), other = sum(error.words);
        const share = both / Math.min(all, other), alike = both / (all + other - both);
        const telling = (set) => [...set].filter((word) => !/^§|(?:error|exception|warning|interrupt)$/.test(word)
          && !SMALL_WORDS.has(word));
        const ours = telling(mine), shared = ours.filter((word) => error.words.has(word)).length;
        const told = shared > 0 && shared >= Math.min(2, ours.length, telling(error.words).length);
        if (told && share >= 0.5 && both / Math.max(all, other) >= 0.12) score = 0.6 * share + 0.6 * alike;
      }
      if (score) score += 0.2 * sum(raw, error.raw) / (sum(error.raw) || 1);
      best[n] = Math.max(best[n], score * trust);
    });
  }
  if (!best.some(Boolean)) {
    const quotable = query.split(/[:.!?] |\n/).map(plainError).filter((part) => part.includes(" ") && part.length > 15);
    explained.forEach((text, n) => { if (quotable.some((part) => plainError(text).includes(part))) best[n] = 0.5; });
  }
  const top = Math.max(...best);
  return best.map((score, n) => [n, score])
    .filter(([, score]) => score > 0 && score >= 0.55 * top)
    .sort((a, b) => b[1] - a[1] || a[0] - b[0]);
}

if (typeof document !== "undefined") (() => {
  const start = () => {
    const field = document.getElementById("error-search");
    const list = document.getElementById("error-list");
    const told = document.getElementById("error-count");
    if (!field || !list || !told) return;
    const items = [...list.querySelectorAll("li[data-error]")];
    const messages = items.map((item) => item.dataset.error);
    const explained = items.map((item) => item.textContent);
    const search = () => {
      const asked = field.value.trim();
      const found = asked ? rankErrors(asked, messages, explained) : items.map((item, n) => [n, 1]);
      for (const item of items) item.hidden = true;
      for (const [n] of found) { items[n].hidden = false; list.append(items[n]); }
      told.textContent = !asked ? "" : !found.length ? told.dataset.none
        : found.length === 1 ? told.dataset.one : told.dataset.many.replace("{n}", found.length);
    };
    field.addEventListener("input", search);
    const given = new URLSearchParams(location.search).get("q");
    if (given && !field.value) field.value = given;
    search();
  };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
