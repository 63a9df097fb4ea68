"use strict";
/* The explorer: a list of all responses and the details of the chosen response. Texts become text nodes and nothing else. */
(async () => {
  const ROW = 68;
  const byId = (id) => document.getElementById(id);
  const list = byId("list"), rows = byId("rows"), detail = byId("detail"), status = byId("status");
  const search = byId("search"), inPassages = byId("in-passages"), sort = byId("sort");
  const fail = (text) => { const problem = byId("explorer-problem"); problem.hidden = false; problem.textContent = text; status.textContent = ""; };

  /* ---- a link to a table unfolds it; paper has no folds ---- */
  function unfold() { const table = byId(location.hash.slice(1)); if (table?.matches("details.table")) table.open = true; }
  addEventListener("hashchange", unfold);
  unfold();
  let folded = [];
  addEventListener("beforeprint", () => { folded = [...document.querySelectorAll("details.table:not([open])")]; folded.forEach((table) => { table.open = true; }); });
  addEventListener("afterprint", () => folded.forEach((table) => { table.open = false; }));

  /* ---- texts ---- */
  const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\u{e0000}-\u{e007f}\u{d800}-\u{dfff}]/gu;
  const name = (match) => "U+" + match.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  /* Adds a text; invisible characters, such as direction marks, are shown by their names. */
  function write(parent, text) {
    let at = 0;
    for (const match of text.matchAll(UNSEEN)) {
      if (match[0] === "\r" && text[match.index + 1] === "\n") continue;
      parent.append(text.slice(at, match.index), make("span", "unseen", name(match[0])));
      at = match.index + match[0].length;
    }
    parent.append(text.slice(at));
    return parent;
  }
  function make(tag, kind, text) {
    const node = document.createElement(tag);
    if (kind) node.className = kind;
    node.textContent = text ?? "";
    return node;
  }
  function button(text, label, act) {
    const node = make("button", "", text);
    node.type = "button"; node.title = label;
    node.addEventListener("click", act);
    return node;
  }
  const words = (tag, kind, text) => { const node = write(make(tag, (kind + " words").trim()), text); node.dir = "auto"; return node; };
  const flat = (text) => text.replace(UNSEEN, (match) => "\u27e8" + name(match) + "\u27e9").replace(/\s+/g, " ");
  const count = (number) => number.toLocaleString("en");

  /* ---- data: JSON, deflated, in base 64 ---- */
  async function unpack(id) {
    const packed = atob(byId(id).textContent.trim());
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }
  const recent = new Map();
  async function chunk(kind, number) {
    const key = kind + "-" + number;
    if (!recent.has(key)) {
      if (recent.size > 23) recent.delete(recent.keys().next().value);
      recent.set(key, unpack(key));
    }
    return recent.get(key);
  }
  async function stored(kind, index) {
    const size = data.chunks[kind];
    return (await chunk(kind, Math.floor(index / size)))[index % size];
  }
  if (typeof DecompressionStream === "undefined") {
    fail("This browser is too old to unpack the list of responses; open the file in a newer one.");
    return;
  }
  const DAMAGED = " cannot be unpacked: the file was cut short or changed. Make the report again.";
  const data = await unpack("index").catch(() => fail("The responses" + DAMAGED));
  if (!data) return;
  const total = data.ids.length;
  const positions = new Map();
  for (let i = total - 1; i >= 0; i--) positions.set(data.ids[i], i);

  /* ---- filters: every facet is a column of numbers; an option is the bits it asks for ---- */
  const named = (name, label, names, column) => ({ name, label, column, main: 1, options: names.map((text, n) => [text, flat(text), n]), test: (value, option) => value === option });
  const facets = [
    ...data.facets.map((facet) => ({ ...facet, test: (value, option) => (value & option) !== 0 })),
    named("dataset", "Dataset", data.benchmarks, data.benchmark),
    named("model", "Model", data.models, data.model),
  ];
  for (const facet of facets) {
    const label = make("label", "", facet.label + " ");
    facet.select = make("select");
    facet.select.name = facet.name;
    facet.select.append(new Option("any", ""));
    for (const [value, text] of facet.options) facet.select.append(new Option(text, value));
    label.append(facet.select);
    label.hidden = facet.options.length < 2;
    byId(facet.main ? "facets" : "others").append(label);
  }
  const outcomeOf = (i) => data.outcomes[data.outcome[i]];
  const chosenOption = (facet) => facet.options.find(([value]) => value === facet.select.value);

  const order = (key) => (a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a - b);
  const SORTS = {
    worst: ["failures first", order((i) => (i === data.worst ? -1 : data.outcome[i] || 99))],
    given: ["as given", null],
    question: ["question", order((i) => data.questions[data.question[i]][0])],
    model: ["dataset and model", order((i) => data.benchmark[i] * data.models.length + data.model[i])],
    long: ["most steps", order((i) => -data.steps[i])],
  };
  /* ---- scores of detectors: a number for each response, or the reason why there is none as a text ---- */
  const scores = data.scores, scoreBy = byId("score-by"), lowest = byId("score-min"), highest = byId("score-max"), heads = byId("heads");
  const isScore = (value) => typeof value === "number";
  const byScore = (column, sign) => order((i) => (isScore(column[i]) ? sign * column[i] : 9));
  for (const { key, name, column } of scores) {
    SORTS["low-" + key] = [`lowest ${name} first`, byScore(column, 1)];
    SORTS["high-" + key] = [`highest ${name} first`, byScore(column, -1)];
    scoreBy.append(new Option(name, key));
    const head = button(name, "", () => { sort.value = (sort.value === "low-" + key ? "high-" : "low-") + key; scoreBy.value = key; changed(); });
    head.dataset.key = key;
    heads.append(head);
  }
  if (scores.length) {
    byId("score-range").hidden = heads.hidden = false;
    byId("panes").classList.add("scored");
    byId("panes").style.setProperty("--columns", scores.length);
  }
  const chosenScore = () => scores.find(({ key }) => key === scoreBy.value);
  /* A test of the chosen score; null where no bound is set. A response without a score is within no bounds. */
  function scoreTest() {
    const chosen = chosenScore();
    if (!chosen || !(lowest.value || highest.value)) return null;
    /* An empty field is NaN, and no score is below or above that. */
    const from = lowest.valueAsNumber, to = highest.valueAsNumber;
    return (i) => isScore(chosen.column[i]) && !(chosen.column[i] < from || chosen.column[i] > to);
  }

  for (const [value, [text]] of Object.entries(SORTS)) sort.append(new Option(text, value));

  /* Every field with its name in the address and its value at first. */
  const fields = [...facets.map(({ name, select }) => [name, select, ""]), ["q", search, ""], ["passages", inPassages, ""], ["sort", sort, "worst"], ["score", scoreBy, scoreBy.value], ["min", lowest, ""], ["max", highest, ""]];
  const read = (field) => (field.type === "checkbox" ? (field.checked ? "1" : "") : field.value.trim());
  function fill(values) {
    for (const [key, field, first] of fields) {
      const value = values[key] ?? first;
      if (field.type === "checkbox") field.checked = value !== "";
      else field.value = value;
      if (field.selectedIndex < 0) field.value = first;
    }
  }
  for (const [, field] of fields) if (field !== search) field.addEventListener("change", changed);

  /* ---- search: what the index holds at once, the rest as it is unpacked ---- */
  const low = (parts) => parts.filter(Boolean).join("\n").toLowerCase();
  const questionTexts = data.questions.map(([question, reference, aliases, id]) => low([question, reference, ...aliases, id]));
  const quick = data.ids.map((id, i) => low([id, data.answers[i]]));
  const detailTexts = new Array(total), passages = [];
  let reading = null, readingPassages = null;
  async function readAll(kind, size, target, line) {
    const chunks = Math.ceil(size / data.chunks[kind]);
    let shown = performance.now();
    for (let n = 0; n < chunks; n++) {
      const texts = await unpack(kind + "-" + n);
      texts.forEach((text, i) => { target[n * data.chunks[kind] + i] = line(text); });
      if (performance.now() - shown > 400) { shown = performance.now(); refresh(`reading ${Math.round((100 * n) / chunks)}\u00a0%`); }
    }
  }
  const detailLine = (entry) => low([entry.broken, entry.pursued, entry.established, entry.missing, ...Object.values(entry.reasons ?? {}), ...Object.values(entry.unjudged ?? {}), ...entry.steps.flatMap((step) => [step[0], step[4]])]);
  function startReading() {
    reading ??= readAll("details", total, detailTexts, detailLine).then(() => { reading = true; refresh(); });
    if (inPassages.checked) {
      const sets = 1 + data.questions.reduce((most, question) => Math.max(most, question[4]), -1);
      readingPassages ??= readAll("evidence", sets, passages, (texts) => low(texts.flat())).then(() => { readingPassages = true; refresh(); });
    }
  }
  const busy = () => search.value.trim() && (reading !== true || (inPassages.checked && readingPassages !== true));
  function matcher() {
    const terms = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!terms.length) return null;
    startReading();
    const deep = inPassages.checked;
    return (i) => {
      const q = data.question[i];
      return terms.every((term) => quick[i].includes(term) || questionTexts[q].includes(term) || (detailTexts[i] || "").includes(term) || (deep && (passages[data.questions[q][4]] || "").includes(term)));
    };
  }

  /* ---- the list ---- */
  /* active: the highlighted row. moved: whether the reader chose it. open: the response in the address, or -1. */
  let shown = [], active = -1, moved = false, open = -1, viewed = -1;
  const wide = matchMedia("(min-width: 60.01rem)");
  /* Fills the list. Returns the number of each option, and of responses without the chosen score. */
  function select() {
    const choices = facets.map(chosenOption);
    const fits = matcher(), within = scoreTest();
    let unscored = 0;
    const counts = facets.map((facet) => new Array(facet.options.length).fill(0));
    shown = [];
    for (let i = 0; i < total; i++) {
      let missed = -1, misses = 0;
      for (let f = 0; f < facets.length && misses < 2; f++) {
        if (choices[f] && !facets[f].test(facets[f].column[i], choices[f][2])) { missed = f; misses++; }
      }
      if (misses > 1 || (fits && !fits(i))) continue;
      if (within && !within(i)) { if (!misses && !isScore(chosenScore().column[i])) unscored++; continue; }
      if (!misses) shown.push(i);
      /* An option's number says what choosing it would show: all other filters hold. */
      for (let f = misses ? missed : 0; f < (misses ? missed + 1 : facets.length); f++) {
        const facet = facets[f], value = facet.column[i];
        for (let o = 0; o < facet.options.length; o++) if (facet.test(value, facet.options[o][2])) counts[f][o]++;
      }
    }
    const by = SORTS[sort.value][1];
    if (by) shown.sort(by);
    return { counts, unscored };
  }
  function refresh(progress) {
    const selected = moved && active >= 0 ? shown[active] : -1;
    const { counts, unscored } = select(), within = scoreTest();
    facets.forEach((facet, f) => {
      facet.select.classList.toggle("set", facet.select.value !== "");
      facet.options.forEach(([, text], o) => { facet.select.options[o + 1].textContent = `${text} (${count(counts[f][o])})`; });
    });
    if (within || inPassages.checked || facets.some((facet) => !facet.main && facet.select.value)) byId("more").open = true;
    for (const field of [lowest, highest]) field.classList.toggle("set", field.value !== "");
    for (const head of heads.children) {
      head.dataset.sorted = ["low", "high"].find((way) => sort.value === `${way}-${head.dataset.key}`) || "";
      head.setAttribute("aria-pressed", head.dataset.sorted !== "");
      head.title = `sort by ${head.textContent}: ${head.dataset.sorted === "low" ? "highest" : "lowest"} first`;
      head.classList.toggle("chosen", head.dataset.key === scoreBy.value);
    }
    active = shown.indexOf(selected);
    if (active < 0) { moved = false; active = shown.length ? 0 : -1; }
    status.textContent = `${count(shown.length)} of ${count(total)} responses` + (unscored ? ` · ${count(unscored)} without this score not shown` : "") + (busy() ? ` · ${progress || "reading all texts …"}` : "");
    list.ariaBusy = Boolean(busy());
    rows.style.height = shown.length * ROW + "px";
    if (list.scrollTop > shown.length * ROW) list.scrollTop = 0;
    draw();
    settle();
    remember();
  }
  /* The pane shows the highlighted response, and none when there is none. On a narrow screen it opens on demand. */
  function settle() {
    const i = active >= 0 ? shown[active] : -1;
    if (open !== i) open = -1;
    if (i < 0) {
      viewed = -1;
      detail.className = "";
      detail.replaceChildren(make("p", "empty", "No response fits the filters and the search."));
      detail.hidden = !wide.matches;
    } else if (!wide.matches && open < 0) { viewed = -1; detail.hidden = true; }
    else if (viewed !== i) view(i, true);
  }
  /* After a filter, the search or the order was changed by the reader. */
  function changed() { refresh(); reveal(); }
  function reveal() {
    const top = Math.max(active, 0) * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    draw();
  }
  function draw() {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 5);
    const last = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 5);
    const node = [];
    for (let n = first; n < last; n++) node.push(line(n));
    if (!shown.length) node.push(make("p", "empty", "No response fits. Clear a filter or search for less."));
    rows.replaceChildren(...node);
    if (active >= first && active < last) list.setAttribute("aria-activedescendant", "row-" + active);
    else list.removeAttribute("aria-activedescendant");
  }
  function line(n) {
    const i = shown[n];
    const [outcome, label] = outcomeOf(i);
    const node = make("div", "row k-" + outcome);
    node.id = "row-" + n;
    node.style.top = n * ROW + "px";
    node.dataset.n = n;
    for (const [key, value] of Object.entries({ role: "option", "aria-selected": n === active, "aria-setsize": shown.length, "aria-posinset": n + 1 })) node.setAttribute(key, value);
    const answer = data.answers[i] === null ? "no answer" : "\u201c" + flat(data.answers[i]) + "\u201d";
    node.append(make("p", "question", flat(data.questions[data.question[i]][0])), make("p", "meta", label + " \u00b7 " + answer), make("p", "meta", flat(data.benchmarks[data.benchmark[i]]) + " \u00b7 " + flat(data.models[data.model[i]])));
    node.querySelectorAll("p").forEach((p) => { p.dir = "auto"; });
    scores.forEach(({ key, name, column }, n) => {
      const value = column[i], cell = make("span", "score" + (key === scoreBy.value ? " chosen" : "") + (isScore(value) ? "" : " none"));
      /* Read aloud with its detector: the heads above are not part of the list. */
      cell.append(make("span", "spoken", `${name}: `), isScore(value) ? value.toFixed(2).replace(/^0\./, ".") : flat(value));
      cell.title = `${name}: ${isScore(value) ? value : "no score, " + value}`;
      if (isScore(value)) cell.style.setProperty("--score", value);
      cell.style.setProperty("--at", n + 2);
      node.append(cell);
    });
    return node;
  }
  function go(n, { show = wide.matches, scroll = true } = {}) {
    if (!shown.length) return;
    active = Math.min(Math.max(n, 0), shown.length - 1);
    moved = true;
    if (scroll) reveal(); else draw();
    if (show) view(shown[active]);
  }
  let waiting = false;
  list.addEventListener("scroll", () => { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); } }, { passive: true });
  addEventListener("resize", draw);
  wide.addEventListener("change", settle);
  rows.addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (row) { go(Number(row.dataset.n), { show: true, scroll: false }); if (!wide.matches) detail.focus(); }
  });

  /* ---- one response ---- */
  const LABEL = [["no", "no"], ["yes", "yes"], ["open", "not judged"]];
  async function view(i, quietly) {
    viewed = i;
    if (!quietly) { open = i; remember(); }
    const q = data.questions[data.question[i]];
    const [entry, texts] = await Promise.all([stored("details", i), stored("evidence", q[4])]).catch(() => [fail("This response" + DAMAGED)]);
    if (viewed !== i || !entry) return;
    detail.className = "k-" + outcomeOf(i)[0];
    detail.hidden = false;
    detail.replaceChildren(top(i), words("p", "broken", entry.broken), facts(i, q, entry), columns(i, q, entry, texts), criteria(i, entry), ...scoreTable(i), ...rawText(entry));
    detail.scrollTop = 0;
  }
  function top(i) {
    const node = make("div", "top");
    const back = button("\u2190 list", "", close);
    back.id = "back";
    const push = make("span", "push");
    for (const [text, label, by] of [["\u2191", "previous response", -1], ["\u2193", "next response", 1]]) {
      const arrow = button(text, label, () => go(active + by, { show: true }));
      arrow.setAttribute("aria-label", label);
      push.append(arrow);
    }
    const link = make("a", "", "link");
    link.href = "#" + new URLSearchParams({ r: data.ids[i] });
    link.title = "a link to this response";
    push.append(link);
    node.append(back, make("span", "badge k-" + outcomeOf(i)[0], outcomeOf(i)[1]), words("span", "", data.benchmarks[data.benchmark[i]]), words("span", "", data.models[data.model[i]]), words("span", "id", data.ids[i]), push);
    return node;
  }
  function facts(i, q, entry) {
    const node = make("dl", "facts");
    const add = (term, text, kind = "") => { if (text) { const dd = make("dd"); dd.append(words("span", kind, text)); node.append(make("dt", "", term), dd); } };
    add("Question", q[0], "asked-question");
    add("Pursued instead", entry.pursued);
    add("Submitted answer", data.answers[i] ?? `none (${entry.incomplete || "missing"})`);
    add("Really established", entry.established);
    add("Reference", q[1] === null ? null : [q[1], ...q[2]].join(" \u00b7 "));
    add("Missing evidence", entry.missing);
    return node;
  }
  function columns(i, q, entry, texts) {
    const node = make("div", "columns"), left = make("section"), right = make("section", "sources");
    const steps = make("ol", "steps");
    entry.steps.forEach((step, n) => { const item = make("li"); item.append(stepBox(step, n, texts)); steps.append(item); });
    if (!entry.steps.length) steps.append(make("li", "empty", "There is no trace."));
    const answer = make("p", "answer-line");
    answer.append(make("small", "", "submitted: "), words("strong", "", data.answers[i] ?? "\u2013"));
    left.append(make("h3", "", "Reasoning"), steps, answer);
    const all = texts.map((text, p) => passage(text, p, entry.steps, q[5]));
    const first = all.filter((box) => box.dataset.first), rest = all.filter((box) => !box.dataset.first);
    right.append(make("h3", "", "Evidence"), ...first);
    if (first.length && rest.length) right.append(make("h3", "", "Passages no step rests on"));
    right.append(...rest);
    node.append(left, right);
    return node;
  }
  function tone([, substantive, sound, code]) {
    if (substantive === 0) return ["t-aside", "not substantive"];
    if (sound === 1) return ["t-holds", "\u2713 holds"];
    if (sound === 0) return ["t-fails", "\u2717 does not hold" + (code ? ` \u00b7 ${code} ${data.codes[code] || ""}` : "")];
    return ["t-open", "? not judged"];
  }
  function stepBox(step, n, texts) {
    const [text, , , , reason, quote] = step;
    const located = quote?.length === 3;
    const [kind, label] = tone(step);
    const node = located ? button(null, "show what it rests on", () => choose(node, n)) : make("div");
    node.className = "step " + kind;
    const head = make("span", "head");
    head.append("step " + (n + 1) + " ", make("b", "", label));
    if (quote) head.append(" rests on [" + quote[0] + "]" + (texts[quote[0]] ? " " + flat(texts[quote[0]][0]).slice(0, 60) : ""));
    node.append(head, words("span", "", text));
    if (reason) node.append(words("span", "why", reason));
    if (quote && !located) node.append(words("span", "why", "quoted, but not in the passage: \u201c" + quote[1] + "\u201d"));
    return node;
  }
  function choose(box, n) {
    detail.querySelectorAll(".chosen").forEach((box) => box.classList.remove("chosen"));
    box.classList.add("chosen");
    const marks = [...detail.querySelectorAll("mark")].filter((mark) => mark.dataset.steps.split(" ").includes(String(n)));
    marks.forEach((mark) => mark.classList.add("chosen"));
    if (!marks.length) return;
    /* Beside the steps the passages scroll by themselves, so that the step stays in sight. */
    const pane = detail.querySelector(".sources");
    const top = (part) => part.getBoundingClientRect().top;
    if (getComputedStyle(pane).position === "sticky") pane.scrollTop += top(marks[0]) - Math.max(top(box), top(pane));
    marks[0].scrollIntoView({ block: pane.clientHeight < pane.scrollHeight ? "nearest" : "center" });
  }
  function passage([title, text], p, steps, supporting) {
    const quotes = [];
    steps.forEach(([, , , , , quote], n) => { if (quote?.length === 3 && quote[0] === p) quotes.push([quote[1], quote[2], n]); });
    const node = make("div", "passage" + (quotes.length ? " quoted" : ""));
    const head = words("h4", "", title);
    head.prepend("[" + p + "] ");
    const supports = supporting?.includes(p);
    if (supports) head.append(make("small", "", " \u00b7 marked as supporting"));
    if (quotes.length || supports) node.dataset.first = "1";
    const body = words("p", "", "");
    const cuts = [...new Set([0, text.length, ...quotes.flatMap(([from, to]) => [from, to])])].sort((a, b) => a - b);
    for (let c = 0; c + 1 < cuts.length; c++) {
      const part = text.slice(cuts[c], cuts[c + 1]);
      const by = quotes.filter(([from, to]) => from <= cuts[c] && to >= cuts[c + 1]).map(([, , n]) => n);
      if (!by.length) { write(body, part); continue; }
      const mark = write(make("mark"), part);
      mark.dataset.steps = by.join(" ");
      mark.append(make("sup", "", by.map((n) => n + 1).join(",")));
      body.append(mark);
    }
    node.append(head, body);
    return node;
  }
  /* A section with a table: its rows are lists of what the cells hold. */
  function tableSection(title, heads, rows) {
    const node = make("section"), table = make("table", "criteria"), scroll = make("div", "scroll");
    for (const cells of rows) { const row = table.insertRow(); for (const parts of cells) row.insertCell().append(...[parts].flat()); }
    const head = table.createTHead().insertRow();
    for (const text of heads) { const th = make("th", "", text); th.scope = "col"; head.append(th); }
    scroll.append(table);
    node.append(words("h3", "", title), scroll);
    return node;
  }
  function criteria(i, entry) {
    const rows = data.criteria.map(([key, label, saw, hidden], c) => {
      const [kind, text] = LABEL[entry.labels[c]], votes = entry.votes?.[key];
      const judged = [make("span", kind, text)];
      /* Of a judge that was asked again and did not say the same. */
      if (votes) judged.push(make("small", "votes", "said " + votes.map((vote) => LABEL[vote][1]).join(", ")));
      const why = entry.reasons?.[key] || entry.unjudged?.[key] || (key === "evidence" && entry.missing) || "";
      return [(key === "evidence" ? "" : key + ": ") + label, judged, words("span", "", why), [make("small", "", saw.join(", ") + " "), make("small", "hidden-fields", hidden.join(", "))]];
    });
    return tableSection(`What ${data.judges[data.judge[i]]} said, and what it saw`, ["criterion", "judged", "in the judge's words", "what the judge saw, and did not"], rows);
  }
  function scoreTable(i) {
    if (!scores.length) return [];
    const rows = scores.map(({ name, model, column }) => [name, isScore(column[i]) ? column[i].toFixed(3) : make("span", "open", "no score: " + flat(column[i])), words("span", "", model)]);
    return [tableSection("What detectors gave it", ["detector", "score (low means failure)", "model"], rows)];
  }
  function rawText(entry) {
    if (!entry.raw) return [];
    const node = make("details");
    node.append(make("summary", "", "The raw completion"), words("div", "raw", entry.raw));
    return [node];
  }
  function close() { if (!wide.matches) { open = -1; settle(); remember(); } list.focus(); }

  /* ---- the address: #r=id for a response, #outcome=gap&model=x for a filter ---- */
  function remember() {
    const params = new URLSearchParams();
    for (const [key, field, first] of fields) if (read(field) !== first) params.set(key, read(field));
    if (open >= 0) params.set("r", data.ids[open]);
    const hash = params.toString();
    if (hash || touched) try { history.replaceState(null, "", "#" + hash); } catch (error) { /* some viewers do not allow it */ }
    touched = touched || hash !== "";
  }
  let touched = false;
  const KEYS = new Set(["r", ...fields.map(([key]) => key)]);
  function follow() {
    const params = new URLSearchParams(location.hash.slice(1)), wanted = params.get("r");
    if (![...params.keys()].some((key) => KEYS.has(key))) return false;
    fill(Object.fromEntries(params));
    moved = false;
    list.scrollTop = 0;
    byId("explorer-problem").hidden = true;
    refresh();
    byId("explorer").scrollIntoView();
    const position = positions.get(wanted);
    if (position !== undefined) {
      /* What was asked for by its id is shown, whatever the filters say. */
      if (!shown.includes(position)) { fill({}); refresh(); }
      go(shown.indexOf(position), { show: true });
    } else if (wanted !== null) fail("This report has no response of that id.");
    return true;
  }
  addEventListener("hashchange", follow);

  /* ---- keys ---- */
  let typing = 0;
  search.addEventListener("input", () => { list.ariaBusy = true; clearTimeout(typing); typing = setTimeout(changed, 150); });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", () => { fill({}); moved = false; changed(); });
  /* Rows that a key moves by; the ends of the list stop every move. */
  function rowsOf(key) {
    const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
    return { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -total, End: total }[key];
  }
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest("input, select, textarea");
    const inList = document.activeElement === list;
    if (event.key === "Escape") {
      if (field === search && search.value) { search.value = ""; changed(); } else if (field || detail.contains(document.activeElement)) close();
      else return;
    } else if (field) {
      if (field !== search || (event.key !== "Enter" && event.key !== "ArrowDown")) return;
      clearTimeout(typing); moved = false;
      refresh(); list.focus(); go(0);
    } else if (event.key === "/") { byId("explorer").scrollIntoView(); search.focus(); search.select(); }
    else if (rowsOf(event.key) && (inList || event.key === "j" || event.key === "k")) {
      const onDetail = detail.contains(document.activeElement);
      if (!inList && !onDetail) { byId("panes").scrollIntoView({ block: "nearest" }); list.focus({ preventScroll: true }); }
      go(active + rowsOf(event.key), onDetail ? { show: true } : {});
      if (onDetail) detail.focus({ preventScroll: true });
    } else if (event.key === "Enter" && inList && active >= 0) { view(shown[active]).then(() => detail.focus()); }
    else return;
    event.preventDefault();
  });

  if (!follow()) refresh();
  document.documentElement.dataset.ready = "1";
  performance.mark("explorer-ready");
})();
