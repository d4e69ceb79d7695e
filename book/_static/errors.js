// The page of errors: a reader pastes a message or a whole log, and what it is stands on top.
// The same rules as in helpers/explain.py; a test holds both to the same answers.

const LONGEST = 20000; // characters of a log that are looked at, from its end
const BEFORE = 3000; // characters before a message in which its special cases are looked for
const SURE = 0.62; // share of a wording that must be met, if not all of it is
const RELATED = 0.3;
const WRAPS = 0.2; // of the weight of a message that only reports another one
const TELLING = 8; // weight of words that may stand for an answer

const RANK =
  /^[ \t]*(?:(?:\[?(?:rank ?|default|Rank ?)\d+\]?|\(\w+ pid=\d+[^)]*\)|stderr|[EWI]\d{4} [\d:.]+ \d+ \S+\]) ?[:|]? ?)+/gm;
const TYPE = /^((?:\w+\.)*\w*(?:Error|Exception|Warning|Interrupt|Exit|Failed)): ?/;
const HEAD = /(?:\w+\.)*\w*(?:Error|Exception|Warning|Interrupt|Failed|Exit)(?=:|\('| ?$)/gm;
const FOREIGN =
  /(?:site|dist)-packages[\\/]+(?:tensorflow|keras|jax|jaxlib|flax|paddle|mxnet|mindspore)[\\/]|\b(?:tensorflow|keras|jax|jaxlib|paddle|mxnet)\.[\w.]*(?:Error|Exception)\b|\b(?:tensorflow|paddle|xla|jaxlib)\/[\w/]+\.(?:cc|cu|h):\d+|_pywrap_tensorflow/;
const IN_EVERY_TRACEBACK = new Set("traceback most recent call last file line in".split(" "));
const LAST = /^(?:\[[^\]]{0,160}\]|\([^)]{0,160}\)|<[^>]{0,160}>|\S*)/; // what ends a wording
const EDGES = /^[ '.,;]+|[ '.,;]*\*\*$|[ '.,;]+$/g; // ** is Markdown
const quotes = (text) => text.replace(/[“”„‘’`"«»]/g, "'");
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");

// A message as it is compared: one line, without colours, ranks and kinds of quotes.
function plainMessage(text) {
  return quotes(
    text
      .replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "")
      .normalize("NFKC")
      .replace(/\\+n/g, "\n")
      .replace(/\\+(?=['"])/g, "")
      .replace(RANK, ""),
  )
    .replace(/\s+/g, " ")
    .trim();
}
const wordsOf = (text) => text.toLowerCase().match(/[a-z_][a-z_0-9]+|[一-鿿]/g) || [];
// What may decide on a special case of a message: no lines of a log far above it.
const about = (text, start) => text.slice(Math.max(0, start - BEFORE));
const squeezed = (text) => text.toLowerCase().replace(/[^a-z0-9一-鿿]+/g, "");

// A constant piece of a wording as a pattern: spaces may be lost, quotes may differ.
function loosePiece(piece, first, last) {
  let text = quotes(piece.normalize("NFKC")).replace(/\s+/g, " ");
  if (first) text = text.trimStart();
  const quote = /\w/.test(text) ? "'?" : "'"; // alone it is all that there is
  let found = [...text].map((c) => (c === " " ? " ?" : c === "'" ? quote : escaped(c))).join("");
  if (first && /^'?\w/.test(text)) found = `(?<!\\w)${found}`;
  if (first && text === "'") found += "(?=\\S)"; // it opens a quotation
  if (last && /\w'?$/.test(text)) found += "(?!\\w)";
  return found;
}

class Wording {
  constructor(text, entry) {
    const kind = TYPE.exec(text);
    this.entry = entry;
    this.text = text;
    this.kind = kind ? kind[1] : "";
    const body = (kind ? text.slice(kind[0].length) : text).replace(/[ .!]+$/, "");
    const pieces = body.split(/\{(\w+)\}/);
    this.names = pieces.filter((_, n) => n % 2);
    this.constant = pieces.filter((_, n) => n % 2 === 0);
    this.literal = wordsOf(plainMessage(this.constant.join(" ")));
    this.numbers = this.constant.join(" ").match(/\d{3,}/g) || []; // exit code 139 is not 1
    // the type alone tells: KeyError: {n}
    if (!this.literal.length)
      this.constant[0] = `${this.kind.split(".").pop()}: ${this.constant[0]}`;
    this.anchor = this.constant.map(squeezed).reduce((a, b) => (b.length > a.length ? b : a));
  }
  // The wording's type stands before this place of a plain text.
  typed(text, start) {
    const before = text.slice(Math.max(0, start - 80), start);
    const own = this.kind.split(".").pop();
    return Boolean(own) && before.slice(-this.kind.length - 4).includes(own);
  }
  // Where a plain text has the whole wording last: [start, end, what its variable parts hold].
  // With `typed`, only places behind the wording's type count.
  // Each constant part must follow the one before within 160 characters; there is no way back, so
  // that no text takes long.
  match(text, typed) {
    this.parts ||= this.constant.map((piece, n) =>
      piece.trim()
        ? new RegExp(loosePiece(piece, n === 0, n === this.constant.length - 1), "gi")
        : null,
    );
    const first = this.parts[0] || this.parts.length === 1 ? 0 : 1;
    if (!this.parts[first]) return null;
    for (const start of [...text.matchAll(this.parts[first])].reverse()) {
      const values = [];
      let begin = start.index;
      let end = begin + start[0].length;
      if (first) {
        values.push(/[\w.<>]*$/.exec(text.slice(Math.max(0, begin - 160), begin))[0]);
        begin -= values[0].length;
      }
      const met = this.parts.slice(first + 1).every((part) => {
        if (!part) {
          const last = LAST.exec(text.slice(end, end + 400))[0];
          values.push(last);
          end += last.length;
          return this.literal.length || `${this.names}` !== "n" || /^\d+$/.test(last);
        }
        part.lastIndex = end;
        const here = part.exec(text.slice(0, end + 160 + 2 * part.source.length));
        if (!here || here.index - end > 160) return false;
        values.push(text.slice(end, here.index));
        end = here.index + here[0].length;
        return true;
      });
      if (met && (!typed || this.typed(text, begin))) return [begin, end, values];
    }
    return null;
  }
}

class Messages {
  // entries: [{says: [wording…], wraps, cases: [{when: {name: pattern}, near}]}]
  constructor(entries) {
    this.entries = entries;
    // people paste the first sentence, and leave out what stands in brackets
    const parts = (text) =>
      new Set([
        text,
        text.split(/(?<=[a-z)'`\]}][.!]) (?=[A-Z`'{])/)[0],
        text.replace(/ \((?:\w+ ){0,2}\{\w+\}\)$/, ""),
      ]);
    this.wordings = entries.flatMap((e, n) =>
      e.says.flatMap((text) => [...parts(text)].map((part) => new Wording(part, n))),
    );
    const seen = new Map();
    for (const { literal, entry } of this.wordings)
      for (const word of literal) {
        if (IN_EVERY_TRACEBACK.has(word)) continue;
        if (!seen.has(word)) seen.set(word, new Set());
        seen.get(word).add(entry);
      }
    this.rare = new Map();
    for (const [word, where] of seen) this.rare.set(word, Math.log(1 + entries.length / where.size));
    // what is cut from a wording must still tell something
    this.wordings = this.wordings.filter(
      (w) => entries[w.entry].says.includes(w.text) || this.weight(w.literal) >= TELLING,
    );
  }
  weight(several) {
    return several.reduce((sum, word) => sum + (this.rare.get(word) || 0), 0);
  }
  rarest(several) {
    return Math.max(0, ...several.map((word) => this.rare.get(word) || 0));
  }
  // What a pasted text may be, the best first: [{entry, score, sure, case}]. Only sure ones are
  // answers; where there is none, the rest is perhaps related.
  find(pasted) {
    const text = plainMessage(pasted.slice(-LONGEST));
    if (!text) return [];
    const best = this.whole(text);
    const keep = (answer) => {
      if (!best.has(answer.entry) || best.get(answer.entry).score < answer.score)
        best.set(answer.entry, answer);
    };
    if (![...best.values()].some((a) => a.score >= TELLING && !this.entries[a.entry].wraps)) {
      const last = [...text.matchAll(HEAD)].at(-1)?.index || 0;
      const whole = new Set(best.keys());
      for (const [wording, found, sure] of this.parts(text)) {
        const { entry } = wording;
        const score = found * (this.entries[entry].wraps ? WRAPS : 1);
        if (!whole.has(entry))
          keep(this.cased({ entry, score, sure }, wording, about(text, last), []));
      }
    }
    if (FOREIGN.test(text) && !text.toLowerCase().includes("torch"))
      for (const answer of best.values()) answer.sure = false;
    const rank = (a) => Math.round(a.score * 1e6);
    const wraps = (a) => Boolean(this.entries[a.entry].wraps);
    const found = [...best.values()].sort(
      (a, b) =>
        b.sure - a.sure || wraps(a) - wraps(b) || rank(b) - rank(a) || a.entry - b.entry,
    );
    return found
      .filter((a) => a.sure === found[0].sure && a.score >= 0.45 * found[0].score)
      .slice(0, 6);
  }
  // The entries of which the text has a whole wording.
  whole(text) {
    const best = new Map();
    const letters = squeezed(text);
    for (const wording of this.wordings) {
      if (!letters.includes(wording.anchor)) continue;
      const answer = this.wholeWording(wording, text);
      if (answer && !(best.get(answer.entry)?.score >= answer.score)) best.set(answer.entry, answer);
    }
    return best;
  }
  wholeWording(wording, text) {
    let weight = this.weight(wording.literal);
    // `'model'` alone tells nothing: `KeyError: 'model'` does
    const short = wording.literal.length && wording.kind && weight < TELLING;
    const here = wording.match(text, short);
    if (!here) return null;
    const [start, end, values] = here;
    const typed = !wording.literal.length || wording.typed(text, start);
    const later = (text.slice(end).match(HEAD) || []).length;
    if (!wording.literal.length && `${wording.names}` === "n") weight += 1;
    let score = (weight + 3 * typed) * 0.9 ** Math.min(later, 4);
    if (this.entries[wording.entry].wraps) score *= WRAPS;
    const answer = { entry: wording.entry, score, sure: true };
    return this.cased(answer, wording, about(text, start), values);
  }
  // Wordings of which the text has only a part: cut short, worded anew, typed from memory.
  parts(text) {
    const heads = [...text.matchAll(HEAD)];
    const kind = heads.length ? heads.at(-1)[0].split(".").pop() : "";
    const last = heads.length ? text.slice(heads.at(-1).index).replace("('", ": ") : text;
    const told = last.replace(TYPE, "").slice(0, 600);
    const mine = wordsOf(told);
    const digits = /\d/.test(told);
    const set = new Set(mine);
    const pairs = new Set(mine.slice(1).map((word, n) => `${mine[n]} ${word}`));
    const whole = this.weight([...set]);
    const unknown = mine.filter((word) => !this.rare.has(word)).length;
    const found = [];
    for (const wording of this.wordings) {
      const { literal } = wording;
      const both = new Set();
      literal.slice(1).forEach((word, n) => {
        if (pairs.has(`${literal[n]} ${word}`)) both.add(literal[n]).add(word);
      });
      if (!both.size && !(mine.length <= 3 && literal.some((word) => set.has(word)))) continue;
      const met = this.weight([...both]);
      const share = met / (this.weight([...new Set(literal)]) || 1);
      const covered = ((met / (whole || 1)) * mine.length) / (mine.length + unknown);
      const score = (met * (share + covered)) / 2;
      const other = kind && wording.kind && !kind.includes(wording.kind.split(".").pop());
      const least = TELLING * (other ? 1.5 : 1); // another type of error: more must agree
      const lacking = literal.filter((word) => !both.has(word));
      const telling = this.rarest(lacking) < this.rarest([...both]) + 1;
      const numbered = !digits || wording.numbers.every((number) => text.includes(number));
      const sure =
        numbered && score >= least && ((share >= SURE && telling) || covered >= 0.85);
      if (sure || (met >= TELLING / 2 && Math.max(share, covered) >= RELATED))
        found.push([wording, score, sure]);
    }
    return found;
  }
  // With the first special case whose conditions hold.
  cased(answer, wording, text, groups) {
    const values = {};
    wording.names.forEach((name, n) => {
      if (n < groups.length) values[name] = (groups[n] || "").replace(EDGES, "");
    });
    for (const one of this.entries[answer.entry].cases || []) {
      const holds = ([name, wanted]) =>
        name in values && new RegExp(`^(?:${wanted})$`, "i").test(values[name]);
      if (!Object.entries(one.when || {}).every(holds)) continue;
      if (one.near && !new RegExp(one.near, "i").test(text)) continue;
      answer.case = one;
      answer.score += 1;
      break;
    }
    answer.values = values;
    return answer;
  }
}

if (typeof document !== "undefined")
  (() => {
    const start = () => {
      const field = document.getElementById("error-search");
      const list = document.getElementById("error-list");
      const told = document.getElementById("error-count");
      const shown = document.getElementById("error-found");
      if (!field || !list || !told || !shown) return;
      const items = [...list.querySelectorAll(".error-lines > li")];
      const newest = (code) =>
        [...code.childNodes]
          .map((part) => (part.localName === "var" ? `{${part.textContent}}` : part.textContent))
          .join("");
      const read = (item) => ({
        says: [newest(item.querySelector("code")), ...JSON.parse(item.dataset.says || "[]")],
        wraps: "wraps" in item.dataset,
        cases: [...item.querySelectorAll("span[id]")].map(({ id, dataset }) => ({
          id,
          when: JSON.parse(dataset.when || "{}"),
          near: dataset.near || "",
        })),
      });
      let messages = null;
      // The wording and its address at once, the text as soon as it is there.
      const shownFor = (answer) => {
        const line = items[answer.entry];
        const link = line.querySelector("a").cloneNode(true);
        const item = document.createElement("li");
        const message = document.createElement("p");
        item.dataset.id = answer.case?.id || line.id;
        message.className = "message";
        message.append(link);
        item.append(message);
        textsOf(/(\w+)\.html/.exec(link.getAttribute("href"))[1]).then((texts) => {
          const text = texts.getElementById(line.id).cloneNode(true);
          text.querySelector(".message").remove();
          if (answer.case) {
            const own = text.querySelector(`[id="${answer.case.id}"]`);
            text.prepend(own);
            own.classList.add("holds");
            if (!text.querySelector(".cases .case")) text.querySelector(".cases").remove();
          }
          for (const name of text.querySelectorAll(".cause var"))
            name.replaceWith(answer.values[name.textContent] || name.textContent);
          for (const e of text.querySelectorAll("[id]")) e.removeAttribute("id");
          copyButtons(text, told.dataset.copy);
          item.append(...text.childNodes);
        });
        return item;
      };
      const heading = (text) => {
        const item = document.createElement("li");
        item.className = "note";
        item.textContent = text;
        return item;
      };
      const search = () => {
        const asked = field.value.trim();
        messages ||= new Messages(items.map(read));
        const found = asked ? messages.find(asked) : [];
        const sure = found[0]?.sure;
        shown.replaceChildren();
        list.hidden = Boolean(found.length);
        told.textContent = !asked
          ? ""
          : !found.length
            ? told.dataset.none
            : sure
              ? told.dataset.sure
              : told.dataset.related;
        found.forEach((answer, n) => {
          if (n === 1 && sure) shown.append(heading(told.dataset.others));
          shown.append(shownFor(answer));
        });
      };
      field.addEventListener("input", search);
      const given = new URLSearchParams(location.search).get("q");
      if (given && !field.value) field.value = given;
      if (field.value) search();
    };
    // The texts of a family, from the script that the build writes beside its page.
    const families = {};
    const textsOf = (page) => {
      families[page] ||= new Promise((done) => {
        const script = document.createElement("script");
        script.src = `${page}.js`;
        script.addEventListener("load", () => {
          const template = document.createElement("template");
          template.innerHTML = globalThis.bookErrors[page];
          done(template.content);
        });
        script.addEventListener("error", () => delete families[page]); // the link stays
        document.head.append(script);
      });
      return families[page];
    };
    const copyButtons = (inside, label) => {
      for (const cure of inside.querySelectorAll(".cure")) {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "copy";
        button.textContent = label;
        button.addEventListener("click", async () => {
          await navigator.clipboard.writeText(cure.querySelector("code").textContent);
          button.textContent = "✓";
          setTimeout(() => {
            button.textContent = label;
          }, 1500);
        });
        cure.append(button);
      }
    };
    // An address leads from a message's line to its text, and opens what a special case stands in.
    const open = () => {
      const target = location.hash ? document.getElementById(location.hash.slice(1)) : null;
      const line = target?.closest(".error-lines > li");
      if (line) location.replace(line.querySelector("a").href.replace(/#.*/, location.hash));
      const fold = target?.closest(".error-list details");
      if (fold) {
        fold.open = true;
        target.scrollIntoView();
      }
    };
    const begin = () => {
      for (const list of document.querySelectorAll(".error-list"))
        copyButtons(list, list.dataset.copy);
      addEventListener("hashchange", open);
      open();
      start();
    };
    if (document.readyState === "loading") addEventListener("DOMContentLoaded", begin);
    else begin();
  })();
