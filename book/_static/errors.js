// The page of errors: a reader pastes a message or a whole log, and what it is stands on top.
// The same rules as in helpers/explain.py; a test holds both to the same answers.

// What the matcher needs of `bookMessages.matcher` (src/bookbuild/pages/matcher.yml).
class Rules {
  constructor({ limits, patterns, in_every_traceback: ignored, quotes }) {
    this.limits = limits;
    this.ignored = new Set(ignored);
    this.quotes = quotes;
    this.patterns = patterns;
    this.compiled = new Map();
  }
  // A pattern with flags: it is made once.
  get(name, flags = "") {
    const key = `${name} ${flags}`;
    if (!this.compiled.has(key)) this.compiled.set(key, new RegExp(this.patterns[name], flags));
    return this.compiled.get(key);
  }
  heads(text) {
    return [...text.matchAll(this.get("head", "gm"))];
  }
  straight(text) {
    return [...text].map((c) => (this.quotes.includes(c) ? "'" : c)).join("");
  }
  // A message as it is compared: one line, without colours, ranks and kinds of quotes.
  plain(text) {
    const normal = text.replace(this.get("colour", "g"), "").normalize("NFKC");
    const lines = normal
      .slice(-this.limits.longest)
      .replace(this.get("line_break", "g"), "\n")
      .replace(this.get("escaped_quote", "g"), "")
      .replace(this.get("rank", "gm"), "");
    return this.straight(lines).replace(/\s+/g, " ").trim();
  }
  words(text) {
    return text.toLowerCase().match(this.get("word", "g")) || [];
  }
  squeezed(text) {
    return text.toLowerCase().replace(this.get("other", "g"), "");
  }
  // What may decide on a special case of a message: no lines of a log far above it.
  about(text, start) {
    return text.slice(Math.max(0, start - this.limits.before));
  }
}
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");

// A constant piece of a wording as a pattern: spaces may be lost, quotes may differ.
function loosePiece(rules, piece, first, last) {
  let text = rules.straight(piece.normalize("NFKC")).replace(/\s+/g, " ");
  if (first) text = text.trimStart();
  const quote = /\w/.test(text) ? "'?" : "'"; // alone it is all that there is
  let found = [...text].map((c) => (c === " " ? " ?" : c === "'" ? quote : escaped(c))).join("");
  if (first && /^'?\w/.test(text)) found = `(?<!\\w)${found}`;
  if (first && text === "'") found += "(?=\\S)"; // it opens a quotation
  if (last && /\w'?$/.test(text)) found += "(?!\\w)";
  return found;
}

class Wording {
  constructor(rules, text, entry) {
    const kind = rules.get("type").exec(text);
    this.rules = rules;
    this.entry = entry;
    this.text = text;
    this.kind = kind ? kind[1] : "";
    const body = (kind ? text.slice(kind[0].length) : text).replace(/[ .!]+$/, "");
    const pieces = body.split(rules.get("variable"));
    this.names = pieces.filter((_, n) => n % 2);
    this.constant = pieces.filter((_, n) => n % 2 === 0);
    this.literal = rules.words(rules.plain(this.constant.join(" ")));
    this.numbers = this.constant.join(" ").match(rules.get("number", "g")) || []; // exit code 139 is not 1
    // the type alone tells: KeyError: {n}
    if (!this.literal.length)
      this.constant[0] = `${this.kind.split(".").pop()}: ${this.constant[0]}`;
    this.anchor = this.constant.map((piece) => rules.squeezed(piece)).reduce((a, b) => (b.length > a.length ? b : a));
  }
  // The wording's type stands before this place of a plain text.
  typed(text, start) {
    const before = text.slice(Math.max(0, start - 80), start);
    const own = this.kind.split(".").pop();
    return Boolean(own) && before.slice(-this.kind.length - 4).includes(own);
  }
  // Where a plain text has the whole wording last: [start, end, what its variable parts hold].
  // With `typed`, only places behind the wording's type count.
  // Each constant part must follow the one before within a gap; there is no way back, so that no
  // text takes long.
  match(text, typed) {
    const { rules } = this;
    const { gap } = rules.limits;
    this.parts ||= this.constant.map((piece, n) =>
      piece.trim()
        ? new RegExp(loosePiece(rules, piece, n === 0, n === this.constant.length - 1), "gi")
        : null,
    );
    const first = this.parts[0] || this.parts.length === 1 ? 0 : 1;
    if (!this.parts[first]) return null;
    for (const start of [...text.matchAll(this.parts[first])].reverse()) {
      const values = [];
      let begin = start.index;
      let end = begin + start[0].length;
      if (first) {
        values.push(rules.get("before").exec(text.slice(Math.max(0, begin - gap), begin))[0]);
        begin -= values[0].length;
      }
      const met = this.parts.slice(first + 1).every((part) => {
        if (!part) {
          const pattern = rules.get("last", "y");
          pattern.lastIndex = end;
          const [last] = pattern.exec(text);
          values.push(last);
          end += last.length;
          return this.literal.length || `${this.names}` !== "n" || /^\d+$/.test(last);
        }
        part.lastIndex = end;
        const here = part.exec(text.slice(0, end + gap + 2 * part.source.length));
        if (!here || here.index - end > gap) return false;
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
  constructor(entries, matcher) {
    const rules = new Rules(matcher);
    this.rules = rules;
    this.entries = entries;
    // people paste the first sentence, and leave out what stands in brackets
    const parts = (text) =>
      new Set([
        text,
        text.split(rules.get("sentence"))[0],
        text.replace(rules.get("aside"), ""),
      ]);
    this.wordings = entries.flatMap((e, n) =>
      e.says.flatMap((text) => [...parts(text)].map((part) => new Wording(rules, part, n))),
    );
    const seen = new Map();
    for (const { literal, entry } of this.wordings)
      for (const word of literal) {
        if (rules.ignored.has(word)) continue;
        if (!seen.has(word)) seen.set(word, new Set());
        seen.get(word).add(entry);
      }
    this.rare = new Map();
    for (const [word, where] of seen) this.rare.set(word, Math.log(1 + entries.length / where.size));
    // what is cut from a wording must still tell something
    this.wordings = this.wordings.filter(
      (w) => entries[w.entry].says.includes(w.text) || this.weight(w.literal) >= rules.limits.telling,
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
    const { rules } = this;
    const { longest, telling, wraps, kept, shown } = rules.limits;
    const text = rules.plain(pasted.slice(-longest));
    if (!text) return [];
    const best = this.whole(text);
    const keep = (answer) => {
      if (!best.has(answer.entry) || best.get(answer.entry).score < answer.score)
        best.set(answer.entry, answer);
    };
    if (![...best.values()].some((a) => a.score >= telling && !this.entries[a.entry].wraps)) {
      const last = rules.heads(text).at(-1)?.index || 0;
      const whole = new Set(best.keys());
      for (const [wording, found, sure] of this.parts(text)) {
        const { entry } = wording;
        const score = found * (this.entries[entry].wraps ? wraps : 1);
        if (!whole.has(entry))
          keep(this.cased({ entry, score, sure }, wording, rules.about(text, last), []));
      }
    }
    if (rules.get("foreign").test(text) && !text.toLowerCase().includes("torch"))
      for (const answer of best.values()) answer.sure = false;
    const rank = (a) => Math.round(a.score * 1e6);
    const wrapper = (a) => Boolean(this.entries[a.entry].wraps);
    const found = [...best.values()].sort(
      (a, b) =>
        b.sure - a.sure || wrapper(a) - wrapper(b) || rank(b) - rank(a) || a.entry - b.entry,
    );
    return found
      .filter((a) => a.sure === found[0].sure && a.score >= kept * found[0].score)
      .slice(0, shown);
  }
  // The entries of which the text has a whole wording.
  whole(text) {
    const best = new Map();
    const letters = this.rules.squeezed(text);
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
    const short = wording.literal.length && wording.kind && weight < this.rules.limits.telling;
    const here = wording.match(text, short);
    if (!here) return null;
    const [start, end, values] = here;
    const typed = !wording.literal.length || wording.typed(text, start);
    const later = this.rules.heads(text).filter((head) => head.index >= end).length;
    if (!wording.literal.length && `${wording.names}` === "n") weight += 1;
    let score = (weight + 3 * typed) * 0.9 ** Math.min(later, 4);
    if (this.entries[wording.entry].wraps) score *= this.rules.limits.wraps;
    const answer = { entry: wording.entry, score, sure: true };
    return this.cased(answer, wording, this.rules.about(text, start), values);
  }
  // Wordings of which the text has only a part: cut short, worded anew, typed from memory.
  parts(text) {
    const { rules } = this;
    const { limits } = rules;
    const heads = rules.heads(text);
    const kind = heads.length ? heads.at(-1)[0].split(".").pop() : "";
    const last = heads.length ? text.slice(heads.at(-1).index).replace("('", ": ") : text;
    const told = last.replace(rules.get("type"), "").slice(0, limits.told);
    const mine = rules.words(told);
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
      const least = limits.telling * (other ? 1.5 : 1); // another type of error: more must agree
      const lacking = literal.filter((word) => !both.has(word));
      const telling = this.rarest(lacking) < this.rarest([...both]) + 1;
      const numbered = !digits || wording.numbers.every((number) => text.includes(number));
      const sure =
        numbered && score >= least && ((share >= limits.sure && telling) || covered >= limits.covered);
      if (sure || (met >= limits.telling / 2 && Math.max(share, covered) >= limits.related))
        found.push([wording, score, sure]);
    }
    return found;
  }
  // With the first special case whose conditions hold.
  cased(answer, wording, text, groups) {
    const values = {};
    wording.names.forEach((name, n) => {
      if (n < groups.length) values[name] = (groups[n] || "").replace(this.rules.get("edges", "g"), "");
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

// What an answer shows, made of its text: `code` in backticks, {variable} parts as var elements.
const element = (name, className, ...children) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
};
const inline = (markdown) =>
  markdown.split(/`([^`]+)`/).map((part, n) => (n % 2 ? element("code", "", part) : part));
const wordingOf = (text) =>
  element("code", "", ...text.split(/\{(\w+)\}/).map((part, n) => (n % 2 ? element("var", "", part) : part)));

class Answers {
  // words: those of the page, from data attributes
  constructor(words) {
    this.words = words;
  }
  // The text of an answer. advice: {cause, cure, section, cases, seen, until} of the message.
  text(answer, entry, advice) {
    const { cases = {}, seen = [], until = [] } = advice;
    const others = Object.keys(cases).filter((id) => id !== answer.case?.id);
    const own = answer.case && cases[answer.case.id];
    return [
      ...(own ? [element("div", "case holds", ...this.advice(own, answer.values))] : []),
      ...this.advice(advice, answer.values),
      ...this.fold("cases", others.map((id) =>
        element("div", "case", ...this.advice(cases[id], answer.values)))),
      ...this.list("seen", seen.map(({ cause, href, title }) =>
        [this.link(href, title), cause ? this.words.colon : "", ...inline(cause)])),
      ...this.list("older", entry.says.slice(1).map((says, n) =>
        [wordingOf(says), until[n] ? this.words.until.replace("{}", until[n]) : ""])),
    ];
  }
  // Cause, cure and section.
  advice({ cause, cure, section }, values) {
    const filled = cause.replace(/\{(\w+)\}/g, (_, name) => values[name] || name);
    const parts = [element("p", "cause", ...inline(filled))];
    if (cure) parts.push(element("div", "cure", element("pre", "", element("code", "", cure))));
    if (section) parts.push(element("p", "", "→ ", this.link(section.href, section.title)));
    return parts;
  }
  link(href, title) {
    const made = element("a", "", ...inline(title));
    made.href = href;
    return made;
  }
  fold(name, children) {
    const summary = element("summary", "", this.words[name]);
    return children.length ? [element("details", name, summary, ...children)] : [];
  }
  list(name, rows) {
    const items = rows.map((row) => element("li", "", ...row));
    return this.fold(name, items.length ? [element("ul", "", ...items)] : []);
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
      const answers = new Answers(told.dataset);
      let messages = null;
      // The wording and its address at once, the text as soon as it is there.
      const shownFor = (answer) => {
        const line = items[answer.entry];
        const link = line.querySelector("a").cloneNode(true);
        const item = element("li", "", element("p", "message", link));
        item.dataset.id = answer.case?.id || line.id;
        adviceOf(/(\w+)\.html/.exec(link.getAttribute("href"))[1]).then(() => {
          const entry = messages.entries[answer.entry];
          item.append(...answers.text(answer, entry, globalThis.bookAdvice[entry.id]));
          copyButtons(item, told.dataset.copy);
        });
        return item;
      };
      const heading = (text) => element("li", "note", text);
      const search = () => {
        if (!globalThis.bookMessages) return;
        const { bookMessages } = globalThis;
        const asked = field.value.trim();
        messages ||= new Messages(bookMessages.messages, bookMessages.matcher);
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
      const ready = () => field.value && search();
      if (globalThis.bookMessages) ready();
      else addEventListener("load", ready); // the script with the messages follows this one
    };
    // The advice of a family, from the script that the build writes beside its page.
    const families = {};
    const adviceOf = (page) => {
      families[page] ||= new Promise((done) => {
        const script = document.createElement("script");
        script.src = `${page}.js`;
        script.addEventListener("load", done);
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
