// Page of errors: match a pasted message or log, or a question, and show the explanation on top.
// The rules are the same as in helpers/explain; a test compares the results.

// Rules of the matcher, from `bookMessages.matcher` (src/bookbuild/source/matcher.yml).
class Rules {
  constructor({ limits, patterns, owners, directories, names, in_every_traceback: ignored, quotes, entities, unknown }) {
    this.limits = limits;
    this.owners = Object.entries(owners).map(([name, known]) => [name, new RegExp(`^(?:${known})(?:\\.[\\w<>]+)*$`)]);
    this.directories = directories;
    this.names = Object.fromEntries(Object.entries(names).map(([module, all]) => [module, all.split(" ")]));
    this.unknown = unknown;
    this.ignored = new Set(ignored);
    this.quotes = quotes;
    this.entities = entities;
    this.known = ""; // the words of all messages, in order
    this.patterns = patterns;
    this.compiled = new Map();
  }
  // Return a pattern with flags, compiled once.
  get(name, flags = "") {
    const key = `${name} ${flags}`;
    if (!this.compiled.has(key)) this.compiled.set(key, new RegExp(this.patterns[name], flags));
    return this.compiled.get(key);
  }
  heads(text) {
    return [...text.matchAll(this.get("head", "gm"))];
  }
  // Return the heads of errors, without reports of other errors and exceptions that Python ignores,
  // unless the text contains nothing else.
  errors(text) {
    if (this.last?.text === text) return this.last.errors;
    const heads = this.heads(text);
    const marks = [...text.matchAll(/Exception ignored in|Traceback \(most recent/g)].reverse();
    let tracebacks = 2; // since the last ignored exception
    const reports = ({ index }, n) => {
      while (marks.length && marks.at(-1).index < index)
        tracebacks = marks.pop()[0].startsWith("E") ? 0 : tracebacks + 1;
      const end = Math.min(heads[n + 1]?.index ?? text.length, index + this.limits.length);
      const [message] = text.slice(index, end).split("Traceback (most recent");
      return tracebacks < 2 || this.get("report").test(message);
    };
    let errors = heads.filter((head, n) => !reports(head, n));
    if (!errors.length) errors = heads.slice(-1);
    this.last = { text, errors, main: this.message(text, errors.at(-1)) };
    return errors;
  }
  // Return the error that ended the program: {type, start, end} of its message, or null.
  main(text) {
    this.errors(text);
    return this.last.main;
  }
  // Return type, start and end of the message that a head begins, or null.
  message(text, head) {
    if (!head) return null;
    const next = ["head", "next_line"].map((name) => {
      const pattern = this.get(name, "gm");
      pattern.lastIndex = head.index + head[0].length;
      const found = pattern.exec(text);
      pattern.lastIndex = 0; // matchAll begins there
      return found ? found.index : text.length;
    });
    const end = Math.min(head.index + this.limits.length, ...next);
    return { type: head[0].split(".").pop(), start: head.index, end };
  }
  // Return the lines of a log without exceptions: their start, and true for a marked error. The list
  // is empty if the text has an exception, or no line is marked as an error ([E]).
  levels(text) {
    if (this.heads(text).length) return [];
    const lines = [...text.matchAll(this.get("level", "g"))].map((m) => [m.index, "EF".includes(m[1])]);
    return lines.some(([, error]) => error) ? lines : [];
  }
  // Return where the first line marked as an error begins in a normalized text, or 0.
  firstError(text) {
    return this.levels(text).find(([, error]) => error)?.[0] ?? 0;
  }
  // Return a normalized text up to the last link of a chain of exceptions, below which there is at
  // most one traceback, or an empty text.
  causeOf(text) {
    const link = [...text.matchAll(this.get("chain", "g"))].at(-1);
    if (!link || text.slice(link.index).split("Traceback (most recent").length > 2) return "";
    return text.slice(0, link.index);
  }
  straight(text) {
    return [...text].map((c) => (this.quotes.includes(c) ? "'" : c)).join("");
  }
  // Return a pasted text as the program printed it, with one kind of quotes and of spaces: colours,
  // HTML entities, escapes of Markdown, quote marks, boxes, indents and hard line ends are undone.
  printed(text) {
    const { longest } = this.limits;
    const normal = text
      .slice(-3 * longest)
      .replace(this.get("colour", "g"), "")
      .replace(this.get("entity", "g"), (all, name) => this.entities[name.toLowerCase()] ?? all)
      .normalize("NFKC")
      .slice(-longest)
      .replaceAll("\r\n", "\n")
      .replace(this.get("space", "g"), " ");
    const straight = this.straight(normal);
    const lines = this.get("windows").test(straight)
      ? straight
      : straight.replace(this.get("escape", "g"), "");
    const rows = lines.replace(this.get("margin", "gm"), "").split("\n");
    const indents = rows.slice(1).filter(Boolean).map((row) => row.search(/[^ ]|$/));
    const indent = indents.reduce((a, b) => Math.min(a, b), indents[0] ?? 0);
    return this.unwrapped(rows.map((row) => row.replace(new RegExp(`^ {0,${indent}}`), "")));
  }
  // Join rows that were cut at the width of a window or page. Rows of exactly the largest width were
  // cut. If only one has this width, its end and the beginning of the next row must show it.
  unwrapped(rows) {
    const widths = rows.map((row) => [...row].length);
    const width = widths.reduce((a, b) => Math.max(a, b));
    const several = new Set(rows.filter((_, n) => n < rows.length - 1 && widths[n] === width)).size > 1;
    return rows
      .map((row, n) => {
        if (!n) return row;
        const full = widths[n - 1] === width && width >= this.limits.narrowest;
        const whole = !full || this.get("new_line").test(row) || !this.cut(rows[n - 1], row, several);
        return (whole ? "\n" : "") + row;
      })
      .join("");
  }
  // Return true if a word, path, number or pair of brackets was cut between two rows; `several` is
  // returned for halves of unknown words.
  cut(row, after, several) {
    const ends = `${row.slice(-80)}\n${after.slice(0, 80)}`;
    if (this.get("cut").test(ends)) return true;
    const [, left, right] = this.get("halves").exec(ends.toLowerCase()) || [];
    if (left === undefined) return several;
    if (this.known.includes(` ${left} ${right} `)) return false;
    return several || this.known.includes(` ${left}${right} `);
  }
  // Normalize a message: one line, as it was printed, without ranks.
  plain(text) {
    return this.printed(text)
      .replace(this.get("line_break", "g"), "\n")
      .replace(this.get("escaped_quote", "g"), "")
      .replace(this.get("rank", "gm"), "")
      .replace(/[ \n]+/g, " ")
      .replace(/^ | $/g, "")
      .replace(this.get("open_quote"), "$&'");
  }
  words(text) {
    return text.toLowerCase().match(this.get("word", "g")) || [];
  }
  squeezed(text) {
    return text.toLowerCase().replace(this.get("other", "g"), "");
  }
  // Return the query string of a report form with the text, without folder paths.
  report(text) {
    const body = text.replace(this.get("folders", "g"), "").slice(-this.limits.length);
    return new URLSearchParams({ title: "errors: ", body: `\`\`\`text\n${body}\n\`\`\`` });
  }
  // Return a value of a message without the marks around it, a list of names without quotes, and
  // the sizes of older versions of PyTorch (64 3 7 7) as [64, 3, 7, 7].
  value(text) {
    const value = text.replace(this.get("edges", "g"), "");
    if (this.get("sizes").test(value)) return `[${value.match(this.get("one_size", "g")).join(", ")}]`;
    return this.get("list").test(value) ? value.replace(this.get("listed", "g"), "$1") : value;
  }
  // Fill in the values of a cause (part: "sentences") or of a cure ("steps").
  shown(part, text, values) {
    return known(text.match(this.get(part, "g")) || [], values).join("").trimEnd();
  }
  // Return the text that special cases are matched with: no log lines far above the message.
  about(text, start) {
    return text.slice(Math.max(0, start - this.limits.before));
  }
}
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");

// Return a pattern of a constant part: spaces may be missing, quotes and punctuation may differ.
function loosePiece(rules, piece, first, last) {
  let text = rules.straight(piece.normalize("NFKC")).replace(/\s+/g, " ");
  if (first) text = text.trimStart();
  const quote = /\w/.test(text) ? "'?" : "'"; // required if the part has no other text
  let pattern = [...text].map((c) => (c === " " ? " ?" : c === "'" ? quote : escaped(c))).join("");
  if (/\w/.test(text)) pattern = pattern.replace(/(?:,|\\\.|;)(?= \?)/g, "[,.;]?");
  // ` on ` is no part of `DetectionModel`
  if (/^'? \w{1,4} '?$/.test(text)) pattern = pattern.replace(/\w+/, "\\b$&\\b");
  else if (!last && /[a-z] $/i.test(text)) pattern = `${pattern.slice(0, -2)}(?: |(?![a-z_]))`; // `assert ` does not begin `Assertion`
  if (first && /^'?\w/.test(text)) pattern = `(?<!\\w)${pattern}`;
  if (first && text === "'") pattern += "(?=\\S)"; // an opening quote is followed by text
  if (last && /\w'?$/.test(text)) pattern += "(?!_*[^\\W_])"; // `use_` of Markdown ends with `use`
  return pattern;
}

// Return how many letters must be removed, added, replaced or exchanged to get b from a.
function distance(a, b) {
  let [earlier, before, row] = [[], [], Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    [earlier, before, row] = [before, row, [i]];
    for (let j = 1; j <= b.length; j++) {
      row[j] = Math.min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a[i - 1] !== b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        row[j] = Math.min(row[j], earlier[j - 2] + 1);
    }
  }
  return row.at(-1);
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
    // Only the type identifies the message, as in KeyError: {n}.
    if (!this.literal.length)
      this.constant[0] = `${this.kind.split(".").pop()}: ${this.constant[0]}`;
    this.anchor = this.constant.map((piece) => rules.squeezed(piece)).reduce((a, b) => (b.length > a.length ? b : a));
  }
  // Return true if the wording's type precedes this position of a normalized text.
  typed(text, start) {
    const before = text.slice(Math.max(0, start - 80), start).toLowerCase();
    const own = this.kind.split(".").pop().toLowerCase();
    return Boolean(own) && before.slice(-this.kind.length - 4).includes(own);
  }
  // Return true if a value contains the wording's type, so the message begins inside it.
  typeIn(values) {
    const own = this.kind.split(".").pop();
    return Boolean(own) && values.some((value) => value.includes(`${own}:`));
  }
  // Return [start, end, values] of the last full match in a normalized text.
  // With `typed`, only matches after the wording's type count.
  // Each constant part must follow the preceding one within a gap and before the next traceback;
  // there is no backtracking, so the time is bounded.
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
        if (part.source === "'" && text[end - 1] === "'") {
          const quoted = rules.get("quoted", "y");
          quoted.lastIndex = end;
          const own = quoted.exec(text);
          if (own) {
            values.push(own[1]);
            end += own[0].length;
            return true;
          }
        }
        part.lastIndex = end;
        const here = part.exec(text.slice(0, end + gap + 2 * part.source.length));
        if (!here || here.index - end > gap) return false;
        values.push(text.slice(end, here.index));
        end = here.index + here[0].length;
        return true;
      });
      const apart = values.some((value) => value.includes("Traceback (most recent"));
      if (met && !apart && (this.typed(text, begin) || !(typed || this.typeIn(values)))) return [begin, end, values];
    }
    return null;
  }
}

// Return rows from their columns, in which 0 stands for a missing value.
function rowsOf(columns) {
  const names = Object.keys(columns);
  const row = (n) => names.filter((name) => columns[name][n]).map((name) => [name, columns[name][n]]);
  return columns[names[0]].map((_, n) => Object.fromEntries(row(n)));
}
// Return the messages with their special cases. The lines of the page have the ids and the first
// wordings.
function entriesOf({ columns, cases }, lines) {
  const every = rowsOf(cases);
  return rowsOf(columns).map((entry, n) => ({
    ...entry,
    id: lines[n].id,
    wordings: [wordingOnPage(lines[n]), ...(entry.wordings || [])],
    ...(entry.cases && { cases: every.splice(0, entry.cases) }),
  }));
}
// Return the wording that a line of the page shows, with {variable} parts.
function wordingOnPage(line) {
  const parts = [...line.querySelector("code").childNodes];
  return parts
    .map(({ nodeName, textContent }) => (nodeName === "VAR" ? `{${textContent}}` : textContent))
    .join("");
}

class Messages {
  // entries: [{wordings: [wording…], wraps, cases: [{when: {name: pattern}, near}]}]
  constructor(entries, matcher) {
    const rules = new Rules(matcher);
    this.rules = rules;
    this.entries = entries;
    // Readers often paste only the first sentence, or omit parentheses.
    const parts = (text) =>
      new Set([
        text,
        text.split(rules.get("sentence"))[0],
        text.replace(rules.get("aside"), ""),
      ]);
    this.wordings = entries.flatMap((e, n) =>
      e.wordings.flatMap((text) => [...parts(text)].map((part) => new Wording(rules, part, n))),
    );
    const all = rules.words(entries.flatMap((e) => e.wordings).join(" "));
    rules.known = ["", ...all, ""].join(" ");
    const seen = new Map();
    for (const { literal, entry } of this.wordings)
      for (const word of literal) {
        if (rules.ignored.has(word)) continue;
        if (!seen.has(word)) seen.set(word, new Set());
        seen.get(word).add(entry);
      }
    this.rare = new Map();
    for (const [word, where] of seen) this.rare.set(word, Math.log(1 + entries.length / where.size));
    // Keep a shortened wording only if its words are specific enough.
    this.wordings = this.wordings.filter(
      (w) => entries[w.entry].wordings.includes(w.text) || this.weight(w.literal) >= rules.limits.telling,
    );
  }
  weight(several) {
    return several.reduce((sum, word) => sum + (this.rare.get(word) || 0), 0);
  }
  rarest(several) {
    return Math.max(0, ...several.map((word) => this.rare.get(word) || 0));
  }
  // Return the matching entries, best first: [{entry, score, sure, case}]. If any match is sure,
  // only sure ones are returned, else possibly related entries. If no match of a chain of exceptions
  // is sure, the exceptions before the last one decide.
  find(pasted) {
    const text = this.rules.plain(pasted);
    const found = text ? this.found(text) : [];
    const above = found[0]?.sure ? "" : this.rules.causeOf(text);
    const causes = above ? this.found(above) : [];
    return causes[0]?.sure ? causes : found;
  }
  // Return the entries that match a normalized text, as `find` does.
  found(text) {
    const { rules } = this;
    const { telling, wraps, kept, shown, perhaps } = rules.limits;
    const best = this.whole(text);
    const keep = (answer) => {
      if (!best.has(answer.entry) || best.get(answer.entry).score < answer.score)
        best.set(answer.entry, answer);
    };
    if (![...best.values()].some((a) => a.score >= telling && !this.entries[a.entry].wraps)) {
      const main = rules.main(text);
      const place = main ? [main.start, main.end] : [0, text.length];
      const whole = new Set(best.keys());
      for (const [wording, share, sure] of this.parts(text)) {
        const { entry } = wording;
        const score = share * (this.entries[entry].wraps ? wraps : 1);
        if (!whole.has(entry))
          keep(this.cased({ entry, score, sure }, wording, text, place, []));
      }
    }
    this.demote([...best.values()], text);
    if (rules.get("foreign").test(text) && !text.toLowerCase().includes("torch"))
      for (const answer of best.values()) answer.sure = false;
    const rank = (a) => Math.round(a.score * 1e6);
    // A match with more constant text is more specific.
    const constant = ({ head = [] }) =>
      head.reduce((sum, part, n) => sum + (n % 2 ? 0 : [...part].length), 0);
    const wrapper = (a) => Boolean(this.entries[a.entry].wraps);
    const answers = [...best.values()].sort(
      (a, b) =>
        b.sure - a.sure ||
        wrapper(a) - wrapper(b) ||
        Boolean(a.beside) - Boolean(b.beside) ||
        rank(b) - rank(a) ||
        constant(b) - constant(a) ||
        a.entry - b.entry,
    );
    const least = Math.max(
      kept * (answers[0]?.score || 0),
      answers[0]?.sure || !rules.heads(text).length ? 0 : perhaps,
    );
    const close = answers.filter((a) => a.sure === answers[0].sure && a.score >= least);
    return this.apart(close).slice(0, shown);
  }
  // Make answers to other lines of a log secondary to the error that ended the program. If it, or a
  // line between it and its traceback, has an answer, those to later lines are `beside` it, else
  // lines that are no errors are only related. In a log without exceptions, the lines marked as
  // errors decide.
  demote(answers, text) {
    const levels = this.rules.levels(text);
    if (levels.length) this.demoteLevels(answers.filter(({ span }) => span), levels);
    const main = this.rules.main(text);
    if (!main || this.rules.get("report").test(main.type)) return;
    const wraps = (a) => this.entries[a.entry].wraps;
    const about = ({ span }) => {
      const between = span ? text.slice(span[1], main.start) : "";
      const near = between.length < this.rules.limits.length && !between.includes("Traceback (most recent");
      return !span || (span[0] < main.end && near);
    };
    const met = answers.filter((a) => a.sure && about(a));
    const answered = met.some((a) => !a.beside && !wraps(a));
    for (const a of answers) {
      const later = Boolean(a.span) && a.span[0] >= main.end;
      if (answered) a.beside ||= later;
      else if (!met.length && (a.beside || wraps(a) || !a.typed || later)) a.sure = false;
    }
  }
  // Make whole matches in lines that are not marked as errors secondary to those that are.
  demoteLevels(answers, levels) {
    const aboutError = ({ span: [first, last] }) => {
      const before = levels.filter(([start]) => start <= first).slice(-1);
      const inside = levels.filter(([start]) => first < start && start < last);
      return !before.length || [...before, ...inside].some(([, error]) => error);
    };
    const answered = answers.some(aboutError);
    for (const answer of answers)
      if (!aboutError(answer)) answer.beside = answer.sure = answered;
  }
  // Keep the best answer, and answers to other messages in the text. Another message follows its
  // own type and does not overlap with a better answer.
  apart(answers) {
    if (!answers[0]?.sure) return answers;
    const kept = answers.slice(0, 1);
    for (const answer of answers.slice(1)) {
      const [begin, end] = answer.span || [0, 0];
      const separate = kept.every(({ span: [first, last] = [0, 0] }) => end <= first || last <= begin);
      if (answer.span && answer.typed && separate) kept.push(answer);
    }
    return kept;
  }
  // Return the entries whose whole wording the text contains.
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
    // A short wording needs its type: `'model'` is not specific, `KeyError: 'model'` is.
    const short = wording.literal.length && wording.kind && weight < this.rules.limits.telling;
    let here = wording.match(text, short);
    if (!here) return null;
    const main = this.rules.main(text);
    if (main && here[0] >= main.end) {
      const before = wording.match(text.slice(0, main.end), short); // the same message in the main error
      if (before && before[1] > main.start) here = before;
    }
    const [start, end, values] = here;
    const typed = !wording.literal.length || wording.typed(text, start);
    const later = this.rules.errors(text).filter((head) => head.index >= end).length;
    if (!wording.literal.length && `${wording.names}` === "n") weight += 1;
    let score = (weight + 3 * typed) * 0.9 ** Math.min(later, 4);
    if (this.entries[wording.entry].wraps) score *= this.rules.limits.wraps;
    const own = typed ? wording.text : wording.text.replace(this.rules.get("type"), "");
    const head = own
      .split(this.rules.get("variable"))
      .map((part, n) =>
        n % 2 ? this.rules.value(values[(n - 1) / 2] || "") || "…" : part,
      );
    // A warning in a text that contains other messages.
    const others =
      this.rules.heads(text).length > typed || this.rules.get("crash").test(text.slice(end));
    const beside = wording.kind.endsWith("Warning") && others;
    const answer = { entry: wording.entry, score, sure: true, typed, span: [start, end], head, beside };
    return this.cased(answer, wording, text, [start, end], values);
  }
  // Return partial matches: truncated or reworded messages.
  parts(text) {
    const { rules } = this;
    const { limits } = rules;
    const main = rules.main(text);
    const kind = main ? main.type : "";
    const last = main
      ? text.slice(main.start, main.end).replace("('", ": ")
      : text.slice(rules.firstError(text));
    const message = last.replace(rules.get("type"), "").slice(0, limits.length);
    const own = rules.words(message);
    const digits = /\d/.test(message);
    const set = new Set(own);
    const pairs = new Set(own.slice(1).map((word, n) => `${own[n]} ${word}`));
    const whole = this.weight([...set]);
    const unknown = own.filter((word) => !this.rare.has(word)).length;
    const matches = [];
    for (const wording of this.wordings) {
      const { literal } = wording;
      const both = new Set();
      literal.slice(1).forEach((word, n) => {
        if (pairs.has(`${literal[n]} ${word}`)) both.add(literal[n]).add(word);
      });
      if (!both.size && !(own.length <= 3 && literal.some((word) => set.has(word)))) continue;
      const met = this.weight([...both]);
      const share = met / (this.weight([...new Set(literal)]) || 1);
      const covered = ((met / (whole || 1)) * own.length) / (own.length + unknown);
      const score = (met * (share + covered)) / 2;
      const other = kind && wording.kind && !kind.includes(wording.kind.split(".").pop());
      const least = limits.telling * (other ? 1.5 : 1); // a different type requires more
      const lacking = literal.filter((word) => !both.has(word));
      const telling = this.rarest(lacking) < this.rarest([...both]) + 1;
      const numbered = !digits || wording.numbers.every((number) => text.includes(number));
      const sure =
        numbered && score >= least && ((share >= limits.sure && telling) || covered >= limits.covered);
      if (sure || (met >= limits.telling / 2 && Math.max(share, covered) >= limits.related))
        matches.push([wording, score, sure]);
    }
    return matches;
  }
  // Add the values of the message and the first special case whose conditions are met.
  // place: start and end of the message in the text.
  cased(answer, wording, all, [start, end], groups) {
    const { limits } = this.rules;
    const text = this.rules.about(all, start);
    const values = {};
    wording.names.forEach((name, n) => {
      if (n < groups.length) values[name] = this.rules.value(groups[n] || "");
    });
    const above = all.slice(Math.max(0, start - limits.length), start);
    values.object ??= this.object(values.name || "", wording.kind, above);
    const around = this.around(values, all.slice(Math.max(0, start - limits.before), end));
    for (const [name, value] of Object.entries(around)) values[name] ??= value;
    for (const one of this.entries[answer.entry].cases || []) {
      const holds = ([name, pattern]) =>
        name in values && new RegExp(`^(?:${pattern})$`, "i").test(values[name]);
      if (!Object.entries(one.when || {}).every(holds)) continue;
      if (!(one.numbers || []).every((relation) => this.related(relation, values))) continue;
      if (one.near && !new RegExp(one.near, "i").test(text)) continue;
      answer.case = one;
      answer.score += 1;
      break;
    }
    answer.values = values;
    return answer;
  }
  // Return the installed package that a message is about, the one that uses it, the one whose line
  // of code raised it, the one that defines the named function or class, `inside` if these two are
  // the same, and the public name that a name is a typing slip of.
  around(values, text) {
    const named = (folder) =>
      Object.entries(this.rules.directories).find(([, known]) => known === folder)?.[0] || folder; // as pip names it
    const frames = [...text.matchAll(this.rules.get("package", "g"))].map(([, name]) => named(name));
    const module = this.rules.get("module").exec(values.module || "");
    const found = { package: module ? module[1] : frames.at(-1) };
    found.importer = frames.findLast((name) => name !== found.package);
    found.owner = this.owner(values, text);
    const last = [...text.matchAll(this.rules.get("place", "g"))].at(-1)?.[0] || "";
    found.caller = named(this.rules.get("package").exec(last)?.[1]);
    if (found.owner) {
      const folder = this.rules.directories[found.owner] || found.owner.replaceAll("-", "_");
      const within = new RegExp(this.rules.patterns.within.replaceAll("NAME", folder));
      found.inside = within.test(last) && found.owner;
    }
    found.similar = this.similar(values.module || "", values.name || "");
    return Object.fromEntries(Object.entries(found).filter(([, value]) => value));
  }
  // Return the package that defines the function or class of a message, as `_owner` in
  // helpers/explain/matching.py.
  owner(values, text) {
    let name = values.function || values.type || "";
    if (name === "__init__") {
      const line = text.split("File ").at(-1);
      const made = new Set([...line.matchAll(this.rules.get("made", "g"))].map(([, one]) => one));
      name = made.size === 1 ? [...made][0] : "";
    }
    return this.rules.owners.find(([, known]) => known.test(name))?.[0];
  }
  // Return the public name of a module of PyTorch that a name is a typing slip of, as `similar` in
  // helpers/explain/similar.py, or an empty text.
  similar(module, name) {
    const { names } = this.rules;
    const known = Object.hasOwn(names, module) ? names[module] : [];
    let most = name.length >= 7 ? 2 : 1;
    let best = "";
    if (name.length < 4 || known.includes(name)) return best;
    for (const other of known) {
      if (Math.abs(other.length - name.length) > most || name.startsWith(other)) continue;
      if (other.replace(/[0-9]/g, "") === name.replace(/[0-9]/g, "")) continue;
      const steps = distance(name, other);
      if (steps <= most) [best, most] = [other, steps - 1];
    }
    return best;
  }
  // Return the expression whose attribute or key the last line of code reads, or `x`.
  object(name, kind, text) {
    const read = this.rules.patterns.read.replaceAll("NAME", escaped(name));
    let found = name && name.length <= 60 ? [...text.matchAll(new RegExp(read, "g"))] : [];
    if (!found.length && kind === "KeyError") found = [...text.matchAll(this.rules.get("looked_up", "g"))];
    return found.length ? found.at(-1)[1] : "x";
  }
  // Return true if a relation between the values holds, as `related` in helpers/explain/conditions.py.
  related(relation, values) {
    const [, left, name, right] = this.rules.get("relation").exec(relation);
    const [a, b] = [left, right].map((term) => this.number(term, values));
    return a !== null && b !== null && RELATIONS[name](a, b, this.rules.limits);
  }
  number(term, values) {
    const [, factor, number, name, kind, argument, more] = this.rules.get("term").exec(term);
    let value = null;
    if (kind) {
      const sizes = (values[argument] || "").match(this.rules.get("integer", "g"));
      const used = kind === "leading" ? sizes?.slice(0, -2) : sizes;
      if (used) value = used.reduce((all, one) => all * Number(one), 1);
    } else if (number) value = Number(number);
    else {
      const quantity = this.rules.get("quantity").exec(values[name] || "");
      if (quantity) value = Number(quantity[1]) * 1024 ** " KMGT".indexOf(quantity[2] || " ");
    }
    return value === null ? null : value * Number(factor || 1) + Number(more || 0);
  }
  // Return the frames above the error that ended the program, in order.
  frames(pasted) {
    const text = this.rules.printed(pasted);
    const message = this.rules.plain(pasted);
    const main = this.rules.main(message);
    let end = -1;
    if (main) {
      // the same occurrence of the type in the text as pasted
      const parts = text.split(main.type);
      const before = message.slice(0, main.start).split(main.type).length;
      if (before < parts.length) end = parts.slice(0, before).join(main.type).length;
    }
    const frames = [...text.matchAll(this.rules.get("frame", "g"))];
    const above = frames.filter(({ index }) => index < end);
    return above.length ? above : frames;
  }
  // Return the innermost location of a traceback outside installed packages: [file, line], or
  // ["", "cell:line"]; null if there is none.
  ownLine(pasted) {
    let best = null;
    const { rules } = this;
    for (const [, file, line, cell, cellLine] of this.frames(pasted))
      if (cell) best = ["", `${cell}:${cellLine}`];
      else if (!rules.get("installed").test(file)) best = [file.split(/[\\/]/).pop(), line];
    return best;
  }
  // Return the message of the error that ended the program, up to the end of its paragraph.
  messageOf(pasted, text, main) {
    const { rules } = this;
    const parts = rules.printed(pasted).split(main.type);
    const before = text.slice(0, main.start).split(main.type).length;
    if (before >= parts.length) return text.slice(main.start, main.end);
    const after = ["", ...parts.slice(before)].join(main.type);
    return rules.plain(after.split(rules.get("paragraph"))[0]).slice(0, main.end - main.start);
  }
  // Return the type of an error without an entry and where it was raised, or null for other texts.
  unknown(pasted) {
    const { rules } = this;
    const text = rules.plain(pasted);
    const main = rules.main(text);
    const message = main ? text.slice(main.start) : "";
    const at = message.search(/[\u3400-\u9fff]/);
    // Chinese text after an English message is not a part of it.
    const chinese = at >= 0 && rules.words(message.slice(0, at)).length < rules.limits.english;
    if (main ? chinese : rules.get("asked").test(text)) return null;
    const facts = { type: main ? main.type : "" };
    const { length } = rules.limits;
    const begin = rules.firstError(text);
    const log = begin ? text.slice(begin, begin + length) : text.slice(-length);
    const line = main ? this.messageOf(pasted, text, main) : log;
    if (main || rules.get("logged").test(text)) {
      const words = (one) => new RegExp(one.words, "i").exec(line);
      const kind = this.rules.unknown.kinds.find((one) =>
        one.name ? words(one) : new RegExp(one.types).test(facts.type),
      );
      if (kind.name) [facts.kind, facts.words] = [kind.name, words(kind)[0].replaceAll("`", "")];
    }
    if (!main && !facts.kind) return null;
    const frames = this.frames(pasted);
    if (!frames.length) return facts;
    const library = rules.get("library").exec(frames.at(-1)[1] || "");
    const own = library ? null : this.ownLine(pasted);
    if (library) facts.library = library[1];
    else if (own?.[0]) [facts.file, facts.line] = own;
    return facts;
  }
  // Return the two sentences shown for such an error.
  advised(error, lang) {
    const texts = this.rules.unknown;
    const foreign = error.library && error.library !== "torch";
    const place = texts[!error.type ? "log" : foreign ? "library" : error.file ? "own" : "plain"];
    const kind = texts.kinds.find(({ name, types }) =>
      error.kind ? name === error.kind : types !== undefined && new RegExp(types).test(error.type),
    );
    return [place, kind].map((one) => one[lang].replace(/\{(\w+)\}/g, (_, name) => error[name]));
  }
}
const RELATIONS = {
  "==": (a, b) => a === b,
  "!=": (a, b) => a !== b,
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "multiple of": (a, b) => a > b && b > 0 && a % b === 0,
  "close to": (a, b, { close }) => a !== b && Math.abs(a - b) <= close * Math.max(a, b),
};

// Render an answer as HTML: `code` in backticks, {variable} parts as var elements.
const element = (name, className, ...children) => {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
};
// Fill in the values of sentences or steps of code, without those that lack a value; if all of them
// lack one, keep all, with the name in place of the value.
const known = (parts, values) => {
  const whole = (part) => [...part.matchAll(/\{(\w+)\}/g)].every(([, name]) => values[name]);
  const kept = parts.filter(whole);
  return (kept.length ? kept : parts).map((part) =>
    part.replace(/\{(\w+)\}/g, (_, name) => values[name] || name));
};
const inline = (markdown) =>
  markdown.split(/`([^`]+)`/).map((part, n) => (n % 2 ? element("code", "", part) : part));
const wordingOf = (text) =>
  element("code", "", ...text.split(/\{(\w+)\}/).map((part, n) => (n % 2 ? element("var", "", part) : part)));

class Answers {
  // words: labels of the page, from data attributes
  constructor(words) {
    this.words = words;
  }
  // Render the pasted message with its values marked, and the line of user code in the traceback.
  head(answer, line) {
    if (!answer.head) return [];
    const parts = answer.head.map((part, n) => (n % 2 ? element("mark", "", part) : part));
    const [file, number] = line || [];
    const [cell, cellLine] = (number || "").split(":");
    const place = file
      ? this.words.file.replace("{file}", file).replace("{line}", number)
      : this.words.cell.replace("{cell}", cell).replace("{line}", cellLine);
    return [
      element("p", "pasted", element("code", "", ...parts)),
      ...(line ? [element("p", "own-line", place)] : []),
    ];
  }
  // Render the note above a list of possible causes. traceback: whether the text has frames, which
  // the conditions of special cases may read.
  note({ case: own }, entry, traceback) {
    if (!(own || entry).several) return [];
    const alone = !traceback && entry.cases?.some(({ near }) => near);
    return [element("p", "several", this.words[alone ? "alone" : "several"])];
  }
  // Render an answer. advice: {cause, cure, section, cases, seen, until} of the message.
  text(answer, entry, advice) {
    const { cases = {}, seen = [], until = [] } = advice;
    const own = answer.case && cases[answer.case.id];
    // Several conditions may have the same text.
    const texts = [own, ...Object.values(cases)].map((one) => JSON.stringify(one));
    const others = Object.values(cases).filter((_, n) => !texts.slice(0, n + 1).includes(texts[n + 1]));
    const general = this.advice(advice, answer.values);
    return [
      ...(own ? [element("div", "case holds", ...this.advice(own, answer.values))] : general),
      ...this.fold("general", own ? general : []),
      ...this.fold("cases", others.map((one) =>
        element("div", "case", ...this.advice(one, answer.values)))),
      ...this.list("seen", seen.map(({ cause, href, title }) =>
        [this.link(href, title), cause ? this.words.colon : "", ...inline(cause)])),
      ...this.list("older", entry.wordings.slice(1).map((wording, n) =>
        [wordingOf(wording), until[n] ? this.words.until.replace("{}", until[n]) : ""])),
    ];
  }
  // Render cause, cure and section, with a title for a special case.
  advice({ title = "", cause, cure, section }, values) {
    const rules = new Rules(globalThis.bookMessages.matcher);
    const sentences = rules.shown("sentences", title + cause, values);
    const [own] = known([title], values);
    // A title without a value is left out with its sentence: the next sentence is the title.
    const bold = sentences.startsWith(own) ? own : sentences.match(rules.get("sentences"))[0];
    const head = bold ? [element("strong", "", ...inline(bold))] : [];
    const parts = [element("p", "cause", ...head, ...inline(sentences.slice(bold.length)))];
    const code = cure && rules.shown("steps", cure, values);
    if (code) parts.push(element("div", "cure", element("pre", "", element("code", "", code))));
    if (section) parts.push(element("p", "", "→ ", this.link(section.href, section.title)));
    return parts;
  }
  link(href, title) {
    const link = element("a", "", ...inline(title));
    link.href = href;
    return link;
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
    // The pasted text stays in this tab, also after Back, a reload or a language switch. No host
    // receives it; on `file://` pages it is passed in the fragment of the URL.
    const pasted = {
      get text() {
        try {
          return sessionStorage.getItem("pasted") || "";
        } catch {
          return "";
        }
      },
      set text(text) {
        try {
          sessionStorage.setItem("pasted", text);
        } catch {}
      },
      address: (text) =>
        location.protocol === "file:" ? `#paste=${encodeURIComponent(text.slice(-20000))}` : "",
    };
    globalThis.bookPasted = pasted;
    // Fit the height of the field to its text, up to a part of the window that leaves room for the
    // answer.
    const grow = (field) => {
      field.style.height = "auto";
      const border = field.offsetHeight - field.clientHeight;
      field.style.height = `${Math.min(field.scrollHeight + border, innerHeight * 0.2)}px`;
    };
    // Run an action once for several events: an editor may insert a long text line by line.
    const once = (act) => {
      let due = false;
      return () => {
        if (due) return;
        due = true;
        setTimeout(() => {
          due = false;
          act();
        });
      };
    };
    // Home page: a pasted text opens the page of errors with the answer.
    const forward = (form) => {
      const field = form.querySelector("textarea");
      const go = () => {
        pasted.text = field.value;
        location.href = form.getAttribute("action") + pasted.address(field.value);
      };
      field.addEventListener("input", once(() => grow(field)));
      field.addEventListener("paste", () => setTimeout(() => field.value.trim() && go()));
      field.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        go();
      });
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        go();
      });
    };
    // Find sections that answer a question; loads the search scripts on demand.
    const sections = async (asked) => {
      await globalThis.bookLoadSearch?.();
      await globalThis.bookSearch?.ready;
      return globalThis.bookSearch?.find(asked, { most: 6, perPage: 2 }) || [];
    };
    const start = () => {
      const field = document.getElementById("error-search");
      const list = document.getElementById("error-list");
      const status = document.getElementById("error-count");
      const shown = document.getElementById("error-found");
      if (!field || !list || !status || !shown) return;
      const items = [...list.querySelectorAll(".error-lines > li")];
      const answers = new Answers(status.dataset);
      let messages = null;
      // After a paste, scroll to the answer: its first cure is visible, and in the field the last
      // line of the text. A reload and Back keep the position.
      let arrived = performance.getEntriesByType("navigation")[0]?.type === "navigate";
      const reveal = (item) => {
        if (!arrived) return;
        arrived = false;
        field.scrollTop = field.scrollHeight;
        const [cause, cure] = [".cause", ".cure"].map((part) => item.querySelector(part) || item);
        const below = () => cure.getBoundingClientRect().bottom - innerHeight;
        if (below() < 0) return;
        status.scrollIntoView();
        const above = cause.getBoundingClientRect().top - status.getBoundingClientRect().top;
        scrollBy(0, Math.max(0, Math.min(below() + 8, above)));
      };
      // Show the wording and its link immediately, the text when it is loaded.
      const shownFor = (answer, ownLine, first, traceback) => {
        const line = items[answer.entry];
        const entry = messages.entries[answer.entry];
        const link = line.querySelector("a").cloneNode(true);
        const item = element("li", "", element("p", "message", link));
        if (answer.head) link.replaceChildren(...answers.head(answer)[0].childNodes);
        if (ownLine) item.append(answers.head(answer, ownLine)[1]);
        item.append(...answers.note(answer, entry, traceback));
        item.dataset.id = answer.case?.id || line.id;
        adviceOf(/(\w+)\.html/.exec(link.getAttribute("href"))[1]).then(() => {
          item.append(...answers.text(answer, entry, globalThis.bookAdvice[entry.id]));
          copyButtons(item, status.dataset.copy);
          if (first) reveal(item);
        });
        return item;
      };
      const heading = (text) => element("li", "note", text);
      // Set a shareable address with only the id of the answer.
      let waiting;
      const address = (id) => {
        clearTimeout(waiting);
        waiting = setTimeout(() => {
          try {
            history.replaceState(null, "", id ? `?e=${id}` : location.pathname);
          } catch {} // may fail on `file://` pages
        }, 300);
      };
      const reportOf = (asked) => {
        const link = element("a", "", status.dataset.report);
        link.href = `${status.dataset.issues}?${messages.rules.report(asked)}`;
        return element("li", "note", link);
      };
      // Show the result for a text without a matching message: the type of the error and where it
      // was raised; for a question, sections and symptoms.
      const searched = async (asked, candidates) => {
        const error = messages.unknown(asked);
        if (error) {
          const lang = document.documentElement.lang.startsWith("zh") ? "zh" : "en";
          const [place, advice] = messages.advised(error, lang);
          status.textContent = place;
          list.hidden = true;
          const lines = [element("li", "note", ...inline(advice))];
          if (status.dataset.issues) lines.push(reportOf(asked));
          if (candidates.length) lines.push(heading(status.dataset.related));
          shown.prepend(...lines);
          return;
        }
        const hits = await sections(asked);
        if (field.value.trim() !== asked) return; // the text has changed
        status.textContent = hits.length
          ? status.dataset.sections
          : candidates.length
            ? status.dataset.related
            : status.dataset.none;
        list.hidden = Boolean(hits.length || candidates.length);
        const marked = (parts) => parts.map(([text, met]) => (met ? element("mark", "", text) : text));
        const lines = hits.map(({ name, page, anchor, first, title, line, code }) => {
          const link = element("a", "", ...marked(first ? [[name, false]] : title));
          link.href = `${page}.html${first ? "" : `#${anchor}`}`;
          const place = first ? [] : [element("span", "page", name)];
          return element("li", "section", element("p", "", link, ...place), element("p", code ? "line code" : "line", ...marked(line)));
        });
        if (hits.length && candidates.length) lines.push(heading(status.dataset.related));
        if (!hits.length && !candidates.length && status.dataset.issues) lines.push(reportOf(asked));
        shown.prepend(...lines);
      };
      const show = (candidates, asked, sure) => {
        const { ownLine } = sure && asked ? { ownLine: messages.ownLine(asked) } : {};
        const traceback = !asked || !sure || messages.frames(asked).length > 0;
        shown.replaceChildren();
        list.hidden = Boolean(asked || candidates.length);
        clear.hidden = !field.value;
        candidates.slice(0, sure ? candidates.length : 3).forEach((answer, n) => {
          if (n === 1 && sure) shown.append(heading(status.dataset.others));
          shown.append(shownFor(answer, n === 0 && ownLine, sure && n === 0, n > 0 || traceback));
        });
      };
      const search = () => {
        if (!globalThis.bookMessages) return;
        const { bookMessages } = globalThis;
        const asked = field.value.trim();
        messages ||= new Messages(entriesOf(bookMessages, items), bookMessages.matcher);
        const candidates = asked ? messages.find(asked) : [];
        const sure = Boolean(candidates[0]?.sure);
        status.textContent = !asked ? "" : sure ? status.dataset.sure : status.dataset.searching;
        show(candidates, asked, sure);
        address(sure && (candidates[0].case?.id || messages.entries[candidates[0].entry].id));
        if (asked && !sure) searched(asked, candidates);
      };
      // Show the answer of a shared address, which contains only its id.
      const shared = (id) => {
        const { bookMessages } = globalThis;
        messages ||= new Messages(entriesOf(bookMessages, items), bookMessages.matcher);
        const entry = messages.entries.findIndex(
          (one) => one.id === id || one.cases?.some((own) => own.id === id),
        );
        if (entry < 0) return;
        const own = messages.entries[entry].cases?.find((one) => one.id === id);
        show([{ entry, case: own, values: {}, sure: true }], "", true);
      };
      const clear = document.getElementById("error-clear");
      const typed = () => {
        pasted.text = field.value;
        grow(field);
        search();
      };
      const later = once(typed);
      field.addEventListener("input", () => (field.value.length > 2000 ? later() : typed()));
      field.addEventListener("paste", () => {
        arrived = true;
      });
      clear.addEventListener("click", () => {
        field.value = "";
        typed();
        field.focus();
      });
      const parameters = new URLSearchParams(location.search);
      const fragment = /^#paste=(.*)/s.exec(location.hash);
      if (fragment) history.replaceState(null, "", location.pathname);
      const named = parameters.get("e");
      const target = location.hash && document.getElementById(location.hash.slice(1));
      field.value ||=
        parameters.get("q") || (fragment ? decodeURIComponent(fragment[1]) : target ? "" : pasted.text);
      if (field.value) grow(field);
      const ready = () => {
        if (field.value) search();
        if (named && named !== shown.querySelector("[data-id]")?.dataset.id) {
          field.value = "";
          shared(named);
        }
      };
      if (globalThis.bookMessages) ready();
      else addEventListener("load", ready); // the messages are in the next script
    };
    // Load the advice of a family from its script (errors_<family>.js).
    const families = {};
    const adviceOf = (page) => {
      families[page] ||= new Promise((done) => {
        const script = document.createElement("script");
        script.src = `${page}.js`;
        script.addEventListener("load", done);
        script.addEventListener("error", () => delete families[page]); // only the link is shown
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
    // Follow the fragment to a message's full entry, and open the parent of a special case.
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
      document.querySelectorAll("form.paste-error").forEach(forward);
      start();
    };
    if (document.readyState === "loading") addEventListener("DOMContentLoaded", begin);
    else begin();
  })();
