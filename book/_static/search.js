// Search by section. MiniSearch keeps the index; what is a word, what means the same, and which
// page comes first is decided here. `bookIndex` is written by `search_records.py` in
// src/bookbuild/site/extensions.
(() => {
  const CHUNK = /[\u3400-\u9fff]+|[\w\u00c0-\u024f]+(?:\.[\w\u00c0-\u024f]+)*/g;
  const LONGEST = 1000; // characters of a query that are searched
  const LONGEST_WORD = 40; // letters of a word in which a typing error is looked for
  const HAN = /^[\u3400-\u9fff]/;
  const BOOST = { title: 6, names: 3, text: 1, code: 0.5 };
  const MESSAGE = /\b\w*(?:Error|Exception|Warning|Interrupt)\b/;
  const SMALL = new Set(
    (
      "a an and are as at be by can do does doesn for from get gets has have how i if in is it its my" +
      " not of on or t that the then this to use using vs was what when where which why will with you"
    ).split(" "),
  );
  const SMALL_HAN = /怎么办|怎么样|怎么|如何|为什么|为何|什么|请问|变成|怎样|哪些|哪个|[的了吗呢]/;

  // The end of a text for an address: long ones are refused by servers, half characters by browsers.
  const inAddress = (text) =>
    encodeURIComponent(text.slice(-LONGEST).replace(/\p{Surrogate}/gu, "\ufffd"));

  // ---- words

  // A stem: loss and losses, decrease and decreasing, normalize and normalization.
  function stem(word) {
    if (/[\d_.]/.test(word)) return word;
    for (const end of [
      /ations?$/,
      /at(?:es?|ed|ing)$/,
      /ions?$/,
      /ing$|(?<!e)ed$|es$|e$/,
      /(?<!s)s$/,
    ]) {
      const rest = word.replace(end, "");
      if (rest !== word && rest.length > 2 && /[aeiouy]/.test(rest))
        return rest.replace(/([^aeiou])\1$/, "$1");
    }
    return word.replace(/([^aeiou])\1$/, "$1");
  }

  // Where a name of code has its parts: num_workers, CrossEntropyLoss, Conv2d.
  const SEAM = /_+|(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)/;

  // What a piece of text is found by: a word by its stem, a name of code whole and by its parts,
  // Chinese by its pairs.
  const PIECE = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+\w*/g;
  const known = new Map();
  function terms(chunk) {
    if (known.has(chunk)) return known.get(chunk);
    let found;
    if (HAN.test(chunk))
      found =
        chunk.length < 2
          ? [chunk]
          : Array.from({ length: chunk.length - 1 }, (_, i) => chunk.slice(i, i + 2));
    else if (/^[A-Z]?[a-z]+$|^[A-Z]+$/.test(chunk)) found = [stem(chunk.toLowerCase())];
    else {
      const names = chunk.split(".");
      const pieces = names.flatMap((name) => name.split(SEAM)).filter(Boolean);
      const whole = [chunk, ...names].map((name) => name.toLowerCase());
      found = [...new Set([...whole, ...pieces.map((piece) => stem(piece.toLowerCase()))])];
    }
    known.set(chunk, found);
    return found;
  }

  const chunks = (text) => text.match(CHUNK) || [];
  // How often a name stands in code says little, and each time costs.
  const tokenize = (text, field) => {
    const all = chunks(text);
    return field === "text" || field === "title"
      ? all.flatMap(terms)
      : [...new Set([...new Set(all)].flatMap(terms))];
  };

  // ---- the index

  const { pages, sections, synonyms } = globalThis.bookIndex;
  const [PAGE, TITLE, TEXT, CODE, NAMES] = [0, 2, 3, 4, 5]; // 1: the anchor
  const mini = new MiniSearch({
    fields: Object.keys(BOOST),
    idField: "id",
    tokenize,
    processTerm: (term) => term,
    extractField: (id, name) => {
      if (name === "id") return id;
      const section = sections[id];
      return section[{ title: TITLE, text: TEXT, code: CODE, names: NAMES }[name]];
    },
  });

  // section → [score, terms found in it, how much of what is sought it has], for one term
  const looked = new Map();
  function look(term, options) {
    const key = term + JSON.stringify(options || "");
    if (!looked.has(key)) {
      const found = mini.search(term, { boost: BOOST, tokenize: (text) => [text], ...options });
      looked.set(key, new Map(found.map(({ id, score, terms }) => [id, [score, terms, 1]])));
    }
    return looked.get(key);
  }

  // ---- what is asked for

  const quoted = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const bounded = (phrase) =>
    (HAN.test(phrase) ? "" : "(?<![\\w.])") +
    chunks(phrase).map(quoted).join("[\\s_-]*") +
    (/\w$/.test(phrase) ? "(?![\\w.]*\\w)" : "");
  const same = new Map();
  for (const group of synonyms)
    for (const phrase of group) {
      const key = phrase.toLowerCase().replace(/[\s_-]+/g, "");
      same.set(key, [...new Set([...(same.get(key) || []), ...group])]);
    }
  const PHRASES = new RegExp(
    synonyms
      .flat()
      .sort((a, b) => b.length - a.length)
      .map(bounded)
      .join("|"),
    "gi",
  );

  // The units of a query: a word, a run of Chinese, or a phrase with all that means the same.
  function units(query) {
    const found = [];
    const plain = (text) => {
      for (const chunk of chunks(text))
        for (const part of HAN.test(chunk) ? chunk.split(SMALL_HAN) : [chunk])
          if (part) found.push({ said: part, alternatives: [part] });
    };
    let end = 0;
    for (const match of query.matchAll(PHRASES)) {
      plain(query.slice(end, match.index));
      const others = same.get(match[0].toLowerCase().replace(/[\s_-]+/g, ""));
      found.push({
        said: match[0],
        alternatives: [match[0], ...others.filter((o) => o !== match[0])],
      });
      end = match.index + match[0].length;
    }
    plain(query.slice(end));
    const telling = found.filter(({ said }) => !SMALL.has(said.toLowerCase()));
    return telling.length ? telling : found;
  }

  // Take over what another way of saying it finds, and keep the best score.
  function add(found, others, weight) {
    for (const [id, [score, terms, share]] of others) {
      const [best, known, most] = found.get(id) || [0, [], 0];
      found.set(id, [Math.max(best, score * weight), [...known, ...terms], Math.max(most, share)]);
    }
    return found;
  }

  // A word of a query: by its stem, a name of code as it is written, and as a beginning while it
  // is typed; what is typed so far may be longer than the stem.
  function word(chunk, typing) {
    const lower = chunk.toLowerCase();
    const found = add(new Map(), look(lower), 1);
    if (stem(lower) !== lower) add(found, look(stem(lower)), 1);
    if (lower.includes(".")) add(found, look(lower.split(".").pop()), 0.5);
    if (typing && lower.length > 1) {
      add(found, look(lower, { prefix: true }), found.size ? 0.3 : 1);
      for (let n = lower.length - 1; !found.size && n > 4; n--)
        add(found, look(lower.slice(0, n)), 1);
    }
    return found;
  }

  // A run of Chinese: its pairs, by the share of its characters that they cover.
  function run(chunk, typing) {
    if (chunk.length === 1) return look(chunk, { prefix: true });
    const pairs = terms(chunk).map((pair) => look(pair));
    if (typing && chunk.length > 2 && !pairs.at(-1).size)
      // its last character may begin a word
      pairs[pairs.length - 1] = look(chunk.at(-1), { prefix: true });
    const found = new Map();
    for (const id of new Set(pairs.flatMap((pair) => [...pair.keys()]))) {
      const covered = new Set(pairs.flatMap((pair, n) => (pair.has(id) ? [n, n + 1] : [])));
      const share = covered.size / chunk.length;
      if (share <= (chunk.length > 3 ? 0.5 : 0.9)) continue;
      const score = pairs.reduce((sum, pair) => sum + (pair.get(id)?.[0] || 0), 0) / pairs.length;
      found.set(id, [score * share ** 2, pairs.flatMap((pair) => pair.get(id)?.[1] || []), share]);
    }
    return found;
  }

  // A phrase: sections that have all its words, first those where they stand together. What only
  // means the same must stand together, or "does not learn" would find everything that learns.
  function phrase(text, typing, own) {
    const all = chunks(text);
    const told = all.filter((part) => !SMALL.has(part.toLowerCase()));
    const parts = told.length ? told : all;
    const found = parts.map((part, n) =>
      (HAN.test(part) ? run : word)(part, typing && n === parts.length - 1),
    );
    if (all.length < 2) return found[0] || new Map();
    const both = new Map();
    const together = new RegExp(bounded(text), "i");
    for (const id of found[0].keys())
      if (found.every((other) => other.has(id))) {
        const whole = together.test(sections[id].slice(TITLE).join("\n"));
        if (!whole && !own) continue;
        const hits = found.map((other) => other.get(id));
        const score =
          (hits.reduce((sum, hit) => sum + hit[0], 0) / Math.sqrt(hits.length)) * (whole ? 1.5 : 1);
        both.set(id, [
          score,
          hits.flatMap((hit) => hit[1]),
          Math.min(...hits.map((hit) => hit[2])),
        ]);
      }
    return both;
  }

  // One letter wrong, missing, too many, or two in the wrong order.
  function mistyped(said) {
    const lower = said.toLowerCase();
    const found = new Map();
    if (HAN.test(said) || lower.length < 4 || lower.length > LONGEST_WORD) return found;
    for (let i = 1; i < lower.length; i++)
      add(found, word(lower.slice(0, i - 1) + lower[i] + lower[i - 1] + lower.slice(i + 1)), 1);
    add(found, look(lower, { fuzzy: 1 }), 1);
    return add(found, look(stem(lower), { fuzzy: 1 }), 1);
  }

  function ask({ said, alternatives }, typing) {
    const found = new Map();
    alternatives.forEach((text, n) => {
      add(found, phrase(text, typing && !n, !n), n ? 0.7 : 1);
    });
    return found.size ? found : mistyped(said);
  }

  // ---- what is found

  const first = pages.map((_, page) => sections.findIndex((section) => section[PAGE] === page));
  const names = pages.map(([, title]) => new Set(tokenize(title)));

  // Whether the title of a page says what was asked for, 1 or 0.
  const named = (answer, page) =>
    Number((answer.get(first[page])?.[1] || []).some((term) => names[page].has(term)));

  // [{ page, title, kind, sections: [{ page, anchor, title, line, code }] }], best first. What is
  // part of another page is found below its title, with its own address.
  function find(query, { most = 8, perPage = 3 } = {}) {
    const asked = units(query.slice(0, LONGEST));
    if (!asked.length) return [];
    const answers = asked.map((unit, n) => ask(unit, n === asked.length - 1 && /\S$/.test(query)));
    // the rarer a word, the more it tells
    const weights = answers.map((answer) => {
      const seen = [...answer.values()].reduce((sum, [, , share]) => sum + share, 0);
      return seen ? Math.log(1 + sections.length / seen) : 0;
    });
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    if (!total) return [];
    const weigh = (has) => has.reduce((sum, share, n) => sum + share * weights[n], 0) / total;
    const byPage = new Map();
    for (const id of new Set(answers.flatMap((answer) => [...answer.keys()]))) {
      const has = answers.map((answer) => answer.get(id)?.[2] || 0);
      const sum = answers.reduce((all, answer) => all + (answer.get(id)?.[0] || 0), 0);
      const page = pages[sections[id][PAGE]][3];
      if (!byPage.has(page)) byPage.set(page, []);
      byPage.get(page).push({ id, has, score: sum * weigh(has) });
    }
    const found = [...byPage].map(([page, hits]) => {
      hits.sort((a, b) => b.score - a.score || a.id - b.id);
      const share = weigh(answers.map((_, n) => Math.max(...hits.map(({ has }) => has[n]))));
      const rest = hits.slice(1, 5).reduce((sum, { score }) => sum + score, 0);
      const about = weigh(answers.map((answer) => named(answer, page)));
      return {
        page,
        hits,
        share,
        score: (hits[0].score + 0.2 * rest) * share ** 2 * (1 + 0.5 * about),
      };
    });
    const best = Math.max(...found.map(({ share }) => share));
    const late = ({ page }) => (pages[page][2] === "chapter" ? 0 : 1);
    return found
      .filter(({ share }) => share > 0.5 * best)
      .sort((a, b) => late(a) - late(b) || b.score - a.score || a.page - b.page)
      .slice(0, most)
      .map(({ page, hits }) => ({
        page: pages[page][0],
        title: pages[page][1],
        kind: pages[page][2],
        sections: hits
          .filter(({ score }) => score > 0.2 * hits[0].score)
          .slice(0, perPage)
          .map(({ id }) => {
            const terms = new Set(answers.flatMap((answer) => answer.get(id)?.[1] || []));
            const [, anchor, title] = sections[id];
            return {
              page: pages[sections[id][PAGE]][0],
              anchor,
              first: id === first[sections[id][PAGE]],
              title: marked(title, terms),
              ...line(id, terms),
            };
          }),
      }));
  }

  // The words of a text that were searched for: [[text, whether it is one], …]
  function marked(text, wanted) {
    const parts = [];
    let end = 0;
    const mark = (from, to) => {
      if (from > end) parts.push([text.slice(end, from), false]);
      if (from < end && parts.length) parts.at(-1)[0] += text.slice(end, to);
      else parts.push([text.slice(from, to), true]);
      end = Math.max(end, to);
    };
    for (const { 0: chunk, index } of text.matchAll(CHUNK))
      if (HAN.test(chunk))
        terms(chunk).forEach((pair, n) => {
          if (wanted.has(pair)) mark(index + n, index + n + pair.length);
        });
      else if (wanted.has(chunk.toLowerCase())) mark(index, index + chunk.length);
      else
        for (const piece of chunk.matchAll(PIECE))
          if (wanted.has(stem(piece[0].toLowerCase())) || wanted.has(piece[0].toLowerCase()))
            mark(index + piece.index, index + piece.index + piece[0].length);
    if (end < text.length) parts.push([text.slice(end), false]);
    return parts;
  }

  const LONG = 150;

  // The line of a section with most of the words, cut around them.
  function line(id, wanted) {
    let best = { count: 0, text: sections[id][TEXT].split("\n")[0], code: false };
    for (const [text, code] of [
      [sections[id][TEXT], false],
      [sections[id][CODE], true],
    ])
      for (const one of text.split("\n")) {
        const count = new Set(tokenize(one).filter((term) => wanted.has(term))).size;
        if (count > best.count) best = { count, text: one, code };
      }
    let { text } = best;
    if (text.length > LONG) {
      const first = marked(text, wanted)[0];
      const from = first[1] ? 0 : Math.max(0, first[0].length - 50);
      const start = from
        ? from + Math.max(0, text.slice(from, from + 20).search(/[\s，。；、]/) + 1)
        : 0;
      text = `${start ? "…" : ""}${text.slice(start, start + LONG)}${start + LONG < text.length ? "…" : ""}`;
    }
    return { line: marked(text, wanted), code: best.code };
  }

  const isMessage = (text) =>
    (MESSAGE.test(text) && chunks(text).length > 2) ||
    text.length > 80 ||
    /Traceback \(most/.test(text);

  const ready = mini.addAllAsync(
    sections.map((_, id) => id),
    { chunkSize: 100 },
  );
  globalThis.bookSearch = { find, isMessage, terms, stem, ready };

  // ---- what is seen: a combobox whose list follows the typing

  const form = globalThis.document?.querySelector("form.bd-search");
  if (!form) return;
  const field = form.q;
  const list = document.getElementById("search-results");
  const told = document.querySelector(".search-told");
  const dialog = form.closest("dialog");
  const root = document.documentElement.dataset.content_root || "";
  const options = () => [...list.querySelectorAll("[role=option]")];
  let active = -1;

  const make = (tag, name, parts = [], attributes = {}) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(
      ...parts.map((part) =>
        Array.isArray(part) ? (part[1] ? make("mark", "", [part[0]]) : part[0]) : part,
      ),
    );
    return element;
  };
  const option = (href, name, parts) =>
    make("a", name, parts, { href, role: "option", tabindex: "-1", "aria-selected": "false" });

  function choose(number) {
    const all = options();
    active = all.length && number !== null ? (number + all.length) % all.length : -1;
    all.forEach((one, n) => {
      one.setAttribute("aria-selected", String(n === active));
    });
    field.removeAttribute("aria-activedescendant");
    if (active < 0) return;
    field.setAttribute("aria-activedescendant", all[active].id);
    all[active].scrollIntoView({ block: "nearest" });
  }

  function show() {
    const query = field.value.trimStart();
    const words = query.trim();
    const found = words ? find(query, dialog ? {} : { most: 16, perPage: 4 }) : [];
    const groups = found.map(({ title, sections }) =>
      make(
        "div",
        "search-page",
        [
          make("div", "search-title", [title], { "aria-hidden": "true" }),
          ...sections.map((hit) =>
            option(`${root}${hit.page}.html${hit.first ? "" : `#${hit.anchor}`}`, "", [
              ...(hit.first ? [] : [make("span", "search-section", hit.title)]),
              make("span", hit.code ? "search-line search-code" : "search-line", hit.line),
            ]),
          ),
        ],
        { role: "group", "aria-label": title },
      ),
    );
    if (isMessage(words))
      groups.unshift(
        option(`${root}errors.html?q=${inAddress(words)}`, "search-message", [
          told.dataset.message,
        ]),
      );
    if (dialog && found.length)
      groups.push(option(`${form.action}?q=${inAddress(words)}`, "search-all", [told.dataset.all]));
    list.replaceChildren(...groups);
    list.hidden = !groups.length;
    field.setAttribute("aria-expanded", String(!list.hidden));
    options().forEach((one, n) => {
      one.id = `search-option-${n}`;
    });
    const count = found.reduce((sum, { sections }) => sum + sections.length, 0);
    told.textContent = !words
      ? ""
      : count
        ? told.dataset.found.replace("{n}", count)
        : told.dataset.none;
    choose(dialog ? 0 : null);
    list.scrollTop = 0;
  }

  form.addEventListener("submit", (event) => {
    if (!dialog || active >= 0) event.preventDefault();
  });
  field.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) choose(active < 0 && step < 0 ? -1 : active + step);
    else if (event.key === "Enter" && active >= 0) options()[active].click();
    else return;
    event.preventDefault();
  });

  if (field.value.trim()) told.textContent = told.dataset.loading;
  const asked = new URLSearchParams(location.search).get("q");
  if (!dialog && asked && !field.value) field.value = asked;
  ready.then(() => {
    show();
    field.addEventListener("input", () => {
      show();
      if (dialog) return;
      try {
        history.replaceState(null, "", `?q=${inAddress(field.value)}`);
      } catch {} // from disk
    });
  });
})();
