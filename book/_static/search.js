// Search by section. MiniSearch stores the index; this script defines tokenization, synonyms and
// ranking. `bookIndex` is written by `search_records.py` in
// src/bookbuild/site/extensions.
(() => {
  const CHUNK = /[\u3400-\u9fff]+|[\w\u00c0-\u024f]+(?:\.[\w\u00c0-\u024f]+)*/g;
  const LONGEST = 1000; // maximum length of a query, in characters
  const SHORT_NOT = /\b(is|are|was|were|do|does|did|has|have)n['’]t\b/gi; // isn't → is not
  const LONGEST_WORD = 40; // maximum length of a word for typo correction
  const HAN = /^[\u3400-\u9fff]/;
  const FEW = 5; // a Chinese word in fewer sections is rare
  const PART = 0.15; // or in a smaller part of the sections with its first two characters
  const NAME = /[_.A-Z]/; // a name in code, in an English query
  const BOOST = { title: 6, names: 3, queries: 3, text: 1, code: 0.5 };
  const MESSAGE = /\b\w*(?:Error|Exception|Warning|Interrupt)\b/;
  const LONG_QUESTION = 80; // in characters; a longer text may be a message
  const VALUES = /[([<'"`][^)\]>'"`]*\d|::|\w\.\w+\(/; // numbers in brackets, calls
  // Return the end of a text for a URL: servers reject long ones, browsers half surrogate pairs.
  const inAddress = (text) =>
    encodeURIComponent(text.slice(-LONGEST).replace(/\p{Surrogate}/gu, "\ufffd"));

  // ---- words

  // Return the stem: loss for losses, one stem for decrease and decreasing.
  function stem(word) {
    if (/[\d_.]/.test(word) || word === "windows") return word; // the operating system
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

  // Boundaries of the parts of a name: num_workers, CrossEntropyLoss, Conv2d.
  const SEAM = /_+|(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)/;

  // Return the index terms of a text: stems of words, full names and parts of names in code,
  // pairs of Chinese characters.
  // Modules of PyTorch's dotted names, which do not tell what a name is.
  const MODULES = new Set("torch nn f functional init linalg optim transforms utils v2".split(" "));
  const parts = (name) =>
    name
      .split(".")
      .filter((part, n, all) => n + 1 === all.length || !MODULES.has(part.toLowerCase()));
  const PIECE = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+\w*/g;
  const known = new Map();
  function terms(chunk) {
    if (known.has(chunk)) return known.get(chunk);
    let result;
    if (HAN.test(chunk))
      result =
        chunk.length < 2
          ? [chunk]
          : Array.from({ length: chunk.length - 1 }, (_, i) => chunk.slice(i, i + 2));
    else if (/^[A-Z]?[a-z]+$|^[A-Z]+$/.test(chunk)) result = [stem(chunk.toLowerCase())];
    else {
      const names = parts(chunk);
      const pieces = names.flatMap((name) => name.split(SEAM)).filter(Boolean);
      const whole = [chunk, ...names].map((name) => name.toLowerCase());
      result = [...new Set([...whole, ...pieces.map((piece) => stem(piece.toLowerCase()))])];
    }
    known.set(chunk, result);
    return result;
  }

  const chunks = (text) => text.match(CHUNK) || [];
  // Ignore repetitions in code and names: they add little to the relevance.
  const tokenize = (text, field) => {
    const all = chunks(text);
    return field === "text" || field === "title"
      ? all.flatMap(terms)
      : [...new Set([...new Set(all)].flatMap(terms))];
  };

  // ---- the index

  const { pages, columns, words, name_form } = globalThis.bookIndex;
  const sections = columns[0].map((_, row) => columns.map((column) => column[row]));
  const SMALL = new Set(words.small.split(" "));
  const SMALL_HAN = new RegExp(words.small_han);
  const SMALL_HAN_ALL = new RegExp(words.small_han, "g");
  const PARTICLES = new Set(words.particles_han);
  const WEAK = new Set(words.weak.split(" ").map(stem));
  const isWeak = ({ text }) => WEAK.has(stem(text.toLowerCase()));
  const SUBJECT = new Set(["title", "queries"]); // fields that name the subject of a section
  const [PAGE, ANCHOR, TITLE, TEXT, CODE, NAMES, EXPLAINED] = [0, 1, 2, 3, 4, 5, 6];
  const NAMED = new RegExp(name_form, "g"); // words in the form of a name
  // Return the words of a query without small ones and modules, in any order: two queries that
  // have the same words ask the same.
  const core = (query) => {
    const all = chunks(query.toLowerCase().replace(SMALL_HAN_ALL, " "));
    const telling = all.filter((chunk) => !SMALL.has(chunk));
    return (telling.length ? telling : all)
      .flatMap((chunk) =>
        HAN.test(chunk)
          ? [...chunk].filter((c) => !PARTICLES.has(c))
          : stem(parts(chunk).join(".")),
      )
      .sort()
      .join(" ");
  };
  const stored = new Map(); // words of a stored query → its sections
  const mini = new MiniSearch({
    fields: Object.keys(BOOST),
    idField: "id",
    tokenize,
    processTerm: (term) => term,
    extractField: (id, name) => {
      if (name === "id") return id;
      const section = sections[id];
      const [names, ...queries] = section[NAMES].split("\n"); // queries follow the names
      if (name === "names")
        return pages[section[PAGE]][2] === "chapter"
          ? [names, ...(section[TEXT].match(NAMED) || [])].join(" ")
          : names;
      if (name === "queries") {
        if (pages[section[PAGE]][2] !== "message")
          for (const query of queries)
            stored.set(core(query), [...(stored.get(core(query)) || []), id]);
        return queries.join("\n");
      }
      return section[{ title: TITLE, text: TEXT, code: CODE }[name]];
    },
  });

  // Matches of one term: section → [score, matched terms, share of the query term matched, 1 if the
  // term is in the title or in a query of the section, else 0]
  const looked = new Map();
  function look(term, options) {
    const key = term + JSON.stringify(options || "");
    if (!looked.has(key)) {
      const hits = mini.search(term, { boost: BOOST, tokenize: (text) => [text], ...options });
      const titled = (match) => Object.values(match).some((in_) => in_.some((f) => SUBJECT.has(f)));
      looked.set(
        key,
        new Map(
          hits.map(({ id, score, terms, match }) => [id, [score, terms, 1, Number(titled(match))]]),
        ),
      );
    }
    return looked.get(key);
  }

  // ---- the query

  const quoted = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const bounded = (phrase) =>
    (HAN.test(phrase) ? "" : "(?<![\\w.])") +
    chunks(phrase).map(quoted).join("[\\s_+-]*") +
    (/\w$/.test(phrase) ? "(?![\\w.]*\\w)" : "");
  const squeezed = (text) => text.toLowerCase().replace(/[\s_+-]+/g, "");
  const same = new Map();
  for (const group of words.same)
    for (const phrase of group) {
      for (const key of new Set([squeezed(phrase), stem(phrase.toLowerCase())]))
        same.set(key, [...new Set([...(same.get(key) || []), ...group])]);
    }
  const PHRASES = new RegExp(
    words.same
      .flat()
      .sort((a, b) => b.length - a.length)
      .map(bounded)
      .join("|"),
    "gi",
  );

  // Return the units of a query: a word, a run of Chinese, or a phrase with its synonyms.
  function units(query) {
    const result = [];
    const plain = (text) => {
      for (const chunk of chunks(text))
        for (const part of HAN.test(chunk) ? chunk.split(SMALL_HAN).flatMap(pairs) : [chunk])
          if (part) {
            const others = same.get(stem(parts(part).join(".").toLowerCase())) || [];
            result.push({ text: part, alternatives: [...new Set([part, ...others])] });
          }
    };
    let end = 0;
    PHRASES.lastIndex = 0;
    // Avoid `matchAll`: it copies the expression, and compiling it dominates the time of a query.
    for (let match = PHRASES.exec(query); match; match = PHRASES.exec(query)) {
      plain(query.slice(end, match.index));
      const others = same.get(squeezed(match[0])) || [];
      result.push({
        text: match[0],
        alternatives: [match[0], ...others.filter((o) => o !== match[0])],
      });
      end = match.index + match[0].length;
    }
    plain(query.slice(end));
    const telling = result.filter(
      ({ text }) => !SMALL.has(text.toLowerCase()) && !/^[\u3400-\u9fff]$/.test(text),
    );
    return telling.length ? telling : result;
  }

  // Split a run of Chinese into pairs of characters that are frequent in the index. A particle
  // separates words; another single character is appended to the preceding word, unless it
  // makes the word rare.
  function pairs(chunk) {
    const best = [[0, []]];
    for (let end = 1; end <= chunk.length; end++) {
      const [score, words] = best[end - 1];
      const particle = PARTICLES.has(chunk[end - 1]);
      const joined = !particle && words.at(-1) && words.at(-1).length < 3;
      const last = particle ? "" : chunk[end - 1];
      best[end] = [score, joined ? [...words.slice(0, -1), words.at(-1) + last] : [...words, last]];
      if (end < 2 || particle || PARTICLES.has(chunk[end - 2])) continue;
      const pair = chunk.slice(end - 2, end);
      const with_ = best[end - 2][0] + Math.log(1 + look(pair).size) - 2;
      if (with_ > best[end][0]) best[end] = [with_, [...best[end - 2][1], pair]];
    }
    return best[chunk.length][1].map((word) => {
      const pair = word.slice(0, 2);
      const least = Math.max(FEW, PART * look(pair).size);
      return word.length === 3 && look(pair).size >= FEW && run(word).size < least ? pair : word;
    });
  }

  // Merge the results of a synonym, keeping the best score of each section.
  function add(scores, others, weight) {
    for (const [id, [score, terms, share, titled]] of others) {
      const [best, known, most, named] = scores.get(id) || [0, [], 0, 0];
      scores.set(id, [
        Math.max(best, score * weight),
        [...known, ...terms],
        Math.max(most, share),
        Math.max(named, titled),
      ]);
    }
    return scores;
  }

  // Look up a word by its stem, a name in code as written, and, while it is typed, as a prefix;
  // the typed prefix may be longer than the stem.
  function word(chunk, typing) {
    const lower = chunk.toLowerCase();
    const scores = add(new Map(), look(lower), 1);
    if (stem(lower) !== lower) add(scores, look(stem(lower)), 1);
    if (lower.includes(".")) add(scores, look(lower.split(".").pop()), 0.5);
    if (typing && lower.length > 1) {
      add(scores, look(lower, { prefix: true }), scores.size ? 0.3 : 1);
      for (let n = lower.length - 1; !scores.size && n > Math.max(4, lower.length - 4); n--)
        add(scores, look(lower.slice(0, n)), 1);
    }
    return scores;
  }

  // Look up a run of Chinese by its pairs; the score depends on the share of characters covered.
  function run(chunk, typing) {
    if (chunk.length === 1) return look(chunk, { prefix: true });
    const pairs = terms(chunk).map((pair) => look(pair));
    if (typing && chunk.length > 2 && !pairs.at(-1).size)
      // The last character may begin a word.
      pairs[pairs.length - 1] = look(chunk.at(-1), { prefix: true });
    const scores = new Map();
    for (const id of new Set(pairs.flatMap((pair) => [...pair.keys()]))) {
      const covered = new Set(pairs.flatMap((pair, n) => (pair.has(id) ? [n, n + 1] : [])));
      const share = covered.size / chunk.length;
      if (share < (chunk.length > 3 ? 0.5 : 0.9)) continue;
      const hits = pairs.flatMap((pair) => (pair.has(id) ? [pair.get(id)] : []));
      const score = hits.reduce((sum, hit) => sum + hit[0], 0) / pairs.length;
      scores.set(id, [
        score * share ** 2,
        hits.flatMap((hit) => hit[1]),
        share,
        share < 1 ? 0 : Math.min(...hits.map((hit) => hit[3])),
      ]);
    }
    return scores;
  }

  // Look up a phrase: sections that contain all its words, adjacent ones first. The words of a
  // synonym must be adjacent, or "does not learn" would match every section on learning.
  function phrase(text, typing, own) {
    const all = chunks(text);
    const contentWords = all.filter((part) => !SMALL.has(part.toLowerCase()));
    const parts = contentWords.length ? contentWords : all;
    const scores = parts.map((part, n) =>
      (HAN.test(part) ? run : word)(part, typing && n === parts.length - 1),
    );
    if (all.length < 2) return scores[0] || new Map();
    const both = new Map();
    const together = new RegExp(bounded(text), "i");
    for (const id of scores[0].keys())
      if (scores.every((other) => other.has(id))) {
        const whole = together.test(sections[id].slice(TITLE).join("\n"));
        if (!whole && !own) continue;
        const hits = scores.map((other) => other.get(id));
        const score =
          (hits.reduce((sum, hit) => sum + hit[0], 0) / Math.sqrt(hits.length)) * (whole ? 1.5 : 1);
        both.set(id, [
          score,
          hits.flatMap((hit) => hit[1]),
          Math.min(...hits.map((hit) => hit[2])),
          Math.min(...hits.map((hit) => hit[3])),
        ]);
      }
    return both;
  }

  // Correct a typo: one wrong, missing or additional letter, or two transposed letters.
  function mistyped(text) {
    const lower = text.toLowerCase();
    const scores = new Map();
    if (HAN.test(text) || lower.length < 4 || lower.length > LONGEST_WORD) return scores;
    for (let i = 1; i < lower.length; i++)
      add(scores, word(lower.slice(0, i - 1) + lower[i] + lower[i - 1] + lower.slice(i + 1)), 1);
    add(scores, look(lower, { fuzzy: 1 }), 1);
    return add(scores, look(stem(lower), { fuzzy: 1 }), 1);
  }

  function ask({ text, alternatives }, typing) {
    const scores = new Map();
    alternatives.forEach((alternative, n) => {
      add(scores, phrase(alternative, typing && !n, !n), n ? 0.7 : 1);
    });
    if (scores.size) return scores;
    const name = text.split(".").pop(); // of torch.nn.CTCLoss
    const pieces = name.split(SEAM).filter(Boolean);
    if (pieces.length > 1) add(scores, phrase(pieces.join(" "), typing, true), 0.7);
    return scores.size ? scores : mistyped(name);
  }

  // Return the weight of a query word by the share of its sections that name it in their title or
  // queries: other words say little about the subject. Names in code have the full weight; in a
  // Chinese query, each word in Latin letters is a name.
  function weightOf(unit, scores, isChinese) {
    const isName = isChinese ? !HAN.test(unit.text) : NAME.test(unit.text);
    const titled = [...scores.values()].filter((hit) => hit[3]).length / (scores.size || 1);
    return (isWeak(unit) ? 0.4 : 1) * (isName ? 1 : Math.min(1, 0.5 + 3 * titled));
  }

  // ---- the results

  const KIND = { chapter: 1, message: 0.75, symptom: 0.85, card: 0.8, reference: 0.22 };
  const EXERCISES = /^(\d+\. |(Exercises|Recap|练习|小结)$)/; // also recaps; they rank lower
  const first = pages.map((_, page) => sections.findIndex((section) => section[PAGE] === page));
  const names = pages.map(([, title]) => new Set(tokenize(title)));
  const address = (id) => `${pages[sections[id][PAGE]][0]}#${sections[id][ANCHOR]}`;
  const cards = new Map(sections.map((section, id) => [section[EXPLAINED], id]).reverse());
  const titles = sections.map((section) => squeezed(section[TITLE]));
  const exercises = sections.map((section) => EXERCISES.test(section[TITLE]));
  const isFirst = (id) => id === first[sections[id][PAGE]];

  // Return 1 if the title of a page contains a matched term, else 0.
  const named = (answer, page) =>
    Number((answer.get(first[page])?.[1] || []).some((term) => names[page].has(term)));

  // Return sections, messages, symptoms and cards of the cheat sheet, best first, as
  // [{ page, anchor, title, line, code, first, name, kind }]; `name` is the title of the page.
  function find(query, { most = 12, perPage = 3 } = {}) {
    const asked = units(query.slice(0, LONGEST).replace(SHORT_NOT, "$1 not"));
    if (!asked.length) return [];
    const isChinese = asked.some((unit) => HAN.test(unit.text));
    const factors = [];
    const answers = asked.map((unit, n) => {
      const scores = ask(unit, n === asked.length - 1 && /\S$/.test(query));
      factors[n] = weightOf(unit, scores, isChinese);
      return new Map(
        [...scores].map(([id, [score, ...rest]]) => [id, [score * factors[n], ...rest]]),
      );
    });
    // Rare words weigh more.
    const weights = answers.map((answer, n) => {
      const seen = [...answer.values()].reduce((sum, [, , share]) => sum + share, 0);
      return seen ? factors[n] * Math.log(1 + sections.length / seen) : 0;
    });
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    if (!total) return [];
    const weigh = (has) => has.reduce((sum, share, n) => sum + share * weights[n], 0) / total;
    const whole = squeezed(query.replace(SMALL_HAN, ""));
    const known = stored.get(core(query)) || []; // the sections of this query
    const onPage = new Map(); // share of each query unit that a page matches
    const hits = [...new Set(answers.flatMap((answer) => [...answer.keys()]))].map((id) => {
      const has = answers.map((answer) => answer.get(id)?.[2] || 0);
      const page = pages[sections[id][PAGE]][3];
      const before = onPage.get(page) || has;
      onPage.set(
        page,
        has.map((share, n) => Math.max(share, before[n])),
      );
      const sum = answers.reduce((all, answer) => all + (answer.get(id)?.[0] || 0), 0);
      const titled = weigh(answers.map((answer, n) => has[n] * (answer.get(id)?.[3] || 0)));
      return { id, page, share: weigh(has), titled, sum };
    });
    const pageShares = new Map(
      [...onPage].map(([page, has]) => [
        page,
        [weigh(has), weigh(answers.map((answer) => named(answer, page)))],
      ]),
    );
    for (const hit of hits) {
      const [, , kind] = pages[hit.page];
      const [pageShare, about] = pageShares.get(hit.page);
      const intro = isFirst(hit.id) && about < 0.9;
      hit.score =
        hit.sum *
        hit.share ** 1.5 *
        (kind === "reference" && !isFirst(hit.id) ? 1 : 1 + 2 * hit.titled) *
        (0.5 + 0.5 * pageShare) *
        (1 + 0.5 * about) *
        KIND[kind] *
        (whole.length > 2 && titles[hit.id].includes(whole) ? 1.5 : 1) *
        (known.includes(hit.id) ? 20 : 1) *
        (intro || exercises[hit.id] ? 0.5 : 1);
    }
    hits.sort((a, b) => b.score - a.score || a.id - b.id);
    const least = 0.35 * Math.max(...hits.map(({ share }) => share));
    const used = new Map();
    const shown = hits
      .filter(({ page, share }) => {
        if (share <= least) return false;
        used.set(page, (used.get(page) || 0) + 1);
        return used.get(page) <= perPage;
      })
      .slice(0, most);
    // A card of the cheat sheet is listed before the section that explains it. For a short query
    // about a chapter, choose the chapter's card with a query word in its title, or the only
    // matching card. Without a word in its title, a card must match nearly as well as the section.
    const chapters = shown.filter(({ page }) => pages[page][2] === "chapter");
    const near = new Set(chapters.slice(0, 2).map(({ page }) => pages[page][0]));
    const few =
      pages[shown[0].page][2] === "chapter" && asked.filter((unit) => !isWeak(unit)).length < 4;
    const own = hits.filter(
      ({ id, share }) => near.has(sections[id][EXPLAINED]?.split("#")[0]) && share > 1.7 * least,
    );
    const titled = own.find((hit) => hit.titled);
    const lines = few && (titled || (own.length < 3 && own[0]));
    const card = lines ? lines.id : cards.get(address(shown[0].id));
    const best = hits.find(({ id }) => id === shown[0].id).share;
    const enough = lines && lines === titled ? least : Math.max(least, 0.9 * best);
    if (hits.some(({ id, share }) => id === card && share > enough)) {
      const listed = shown.findIndex(({ id }) => id === card);
      if (listed > 0) shown.splice(listed, 1);
      if (listed) shown.unshift({ id: card, page: pages[sections[card][PAGE]][3] });
    }
    return shown.map(({ id, page }) => {
      const terms = new Set(answers.flatMap((answer) => answer.get(id)?.[1] || []));
      const section = sections[id];
      const kind = pages[page][2];
      return {
        page: pages[section[PAGE]][0],
        anchor: section[ANCHOR],
        first: isFirst(id),
        name: pages[page][1],
        kind,
        title: marked(section[TITLE], terms),
        ...(kind === "card" && section[EXPLAINED]
          ? { line: marked(snippet(section[CODE], terms), terms), code: true }
          : line(id, terms)),
      };
    });
  }

  // Split a text at the query's words: [[text, true if it is a match], …]
  function marked(text, matched) {
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
          if (matched.has(pair)) mark(index + n, index + n + pair.length);
        });
      else if (matched.has(chunk.toLowerCase())) mark(index, index + chunk.length);
      else if (matched.has(chunk.toLowerCase().split(".").at(-1)))
        mark(index + chunk.lastIndexOf(".") + 1, index + chunk.length);
      else
        for (const piece of chunk.matchAll(PIECE))
          if (matched.has(stem(piece[0].toLowerCase())) || matched.has(piece[0].toLowerCase()))
            mark(index + piece.index, index + piece.index + piece[0].length);
    if (end < text.length) parts.push([text.slice(end), false]);
    return parts;
  }

  // Return the code of a card from the line with the most query words; of the first lines, all.
  function snippet(code, matched) {
    const lines = code.split("\n");
    const counts = lines.map(
      (one) => new Set(tokenize(one).filter((term) => matched.has(term))).size,
    );
    const best = counts.indexOf(Math.max(...counts));
    const indent = lines[best].search(/\S|$/);
    const rest = lines.slice(best).map((one) => one.slice(Math.min(indent, one.search(/\S|$/))));
    return best < 3 ? code : ["…", ...rest].join("\n");
  }

  const LONG = 150;

  // Return the line of a section with the most query words, shortened around them.
  function line(id, matched) {
    const lines = sections[id][TEXT].split("\n");
    const counts = lines.map(
      (one) => new Set(tokenize(one).filter((term) => matched.has(term))).size,
    );
    let text = lines[counts.indexOf(Math.max(...counts))];
    if (text.length > LONG) {
      const first = marked(text, matched)[0];
      const from = first[1] ? 0 : Math.max(0, first[0].length - 50);
      const start = from
        ? from + Math.max(0, text.slice(from, from + 20).search(/[\s，。；、]/) + 1)
        : 0;
      text = `${start ? "…" : ""}${text.slice(start, start + LONG)}${start + LONG < text.length ? "…" : ""}`;
    }
    return { line: marked(text, matched), code: false };
  }

  const isMessage = (text) =>
    (MESSAGE.test(text) && chunks(text).length > 2) ||
    (text.length > LONG_QUESTION && VALUES.test(text)) ||
    /Traceback \(most/.test(text);

  const ready = mini.addAllAsync(
    sections.map((_, id) => id),
    { chunkSize: 100 },
  );
  globalThis.bookSearch = { find, isMessage, terms, stem, ready };

  // ---- user interface: a combobox whose list is updated while typing

  const form = globalThis.document?.querySelector("form.bd-search");
  if (!form) return;
  const field = form.q;
  const list = document.getElementById("search-results");
  const status = document.querySelector(".search-status");
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
  const option = (href, name, parts, act) => {
    const link = make("a", name, parts, {
      href,
      role: "option",
      tabindex: "-1",
      "aria-selected": "false",
    });
    if (act) link.addEventListener("click", act);
    return link;
  };

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
    const hits = words ? find(query, dialog ? {} : { most: 40, perPage: 8 }) : [];
    const groups = hits.map((hit) =>
      option(`${root}${hit.page}.html${hit.first ? "" : `#${hit.anchor}`}`, "", [
        make("span", "search-head", [
          make("span", "search-section", hit.first ? [hit.name] : hit.title),
          ...(hit.first ? [] : [make("span", "search-title", [hit.name])]),
        ]),
        make("span", hit.code ? "search-line search-code" : "search-line", hit.line),
      ]),
    );
    const message = isMessage(words);
    if (message || words.length > LONG_QUESTION)
      groups.splice(
        message ? 0 : groups.length,
        0,
        option(
          `${root}errors.html${globalThis.bookPasted?.address(words) ?? ""}`,
          "search-message",
          [status.dataset.message],
          () => {
            globalThis.bookPasted.text = words;
          },
        ),
      );
    if (dialog && hits.length)
      groups.push(
        option(`${form.action}?q=${inAddress(words)}`, "search-all", [status.dataset.all]),
      );
    list.replaceChildren(...groups);
    list.hidden = !groups.length;
    field.setAttribute("aria-expanded", String(!list.hidden));
    options().forEach((one, n) => {
      one.id = `search-option-${n}`;
    });
    status.textContent = !words
      ? status.dataset.hint
      : hits.length
        ? status.dataset.found.replace("{n}", hits.length)
        : status.dataset.none;
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

  if (field.value.trim()) status.textContent = status.dataset.loading;
  const asked = new URLSearchParams(location.search).get("q");
  if (!dialog && asked && !field.value) field.value = asked;
  ready.then(() => {
    show();
    field.addEventListener("input", () => {
      show();
      if (dialog) return;
      try {
        history.replaceState(null, "", `?q=${inAddress(field.value)}`);
      } catch {} // may fail on `file://` pages
    });
  });
})();
