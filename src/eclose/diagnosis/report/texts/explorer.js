"use strict";
/* The explorer: a list of all responses and the details of one. Texts become text nodes and nothing else. */
(async () => {
  const ROW = 68;
  const byId = (id) => document.getElementById(id);
  const list = byId("list"), rows = byId("rows"), detail = byId("detail"), status = byId("status");
  const search = byId("search"), inPassages = byId("in-passages"), sort = byId("sort");
  const fail = (text) => { const told = byId("explorer-problem"); told.hidden = false; told.textContent = text; status.textContent = ""; };

  /* ---- a link to a table unfolds it; paper has no folds ---- */
  function unfold() { const found = byId(location.hash.slice(1)); if (found && found.matches("details.table")) found.open = true; }
  addEventListener("hashchange", unfold);
  unfold();
  let folded = [];
  addEventListener("beforeprint", () => { folded = [...document.querySelectorAll("details.table:not([open])")]; folded.forEach((one) => { one.open = true; }); });
  addEventListener("afterprint", () => folded.forEach((one) => { one.open = false; }));

  /* ---- texts ---- */
  const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\u{e0000}-\u{e007f}\u{d800}-\u{dfff}]/gu;
  const name = (found) => "U+" + found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  /* Adds a text; what acts without being seen (direction marks, zero-width characters) is shown by its name. */
  function write(parent, text) {
    let at = 0;
    for (const found of text.matchAll(UNSEEN)) {
      if (found[0] === "\r" && text[found.index + 1] === "\n") continue;
      parent.append(text.slice(at, found.index), make("span", "unseen", name(found[0])));
      at = found.index + found[0].length;
    }
    parent.append(text.slice(at));
    return parent;
  }
  function make(tag, kind, text) {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined && text !== null) made.textContent = text;
    return made;
  }
  const words = (tag, kind, text) => { const made = write(make(tag, (kind + " words").trim()), text); made.dir = "auto"; return made; };
  const flat = (text) => text.replace(UNSEEN, (found) => "\u27e8" + name(found) + "\u27e9").replace(/\s+/g, " ");
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
  async function stored(kind, place) {
    const size = data.chunks[kind];
    return (await chunk(kind, Math.floor(place / size)))[place % size];
  }
  if (typeof DecompressionStream === "undefined") {
    fail("This browser is too old to unpack the responses. Everything above can be read; for the list, open the file in a newer browser.");
    return;
  }
  let data;
  try { data = await unpack("index"); } catch (error) {
    fail("The responses in this file cannot be unpacked: it was cut short or changed. Make the report again.");
    return;
  }
  const total = data.ids.length;
  const place = new Map();
  for (let i = total - 1; i >= 0; i--) place.set(data.ids[i], i);

  /* ---- filters: every facet is a column of numbers; an option is the bits it asks for ---- */
  const named = (name, label, names, column) => ({ name, label, column, main: 1, options: names.map((one, n) => [one, flat(one), n]), test: (value, wanted) => value === wanted });
  const facets = [
    ...data.facets.map((facet) => ({ ...facet, test: (value, wanted) => (value & wanted) !== 0 })),
    named("dataset", "Dataset", data.benchmarks, data.benchmark),
    named("model", "Model", data.models, data.model),
  ];
  for (const facet of facets) {
    const label = make("label", "", facet.label + " ");
    facet.select = make("select");
    facet.select.name = facet.name;
    facet.select.append(new Option("any", ""));
    for (const [value, text] of facet.options) facet.select.append(new Option(text, value));
    facet.select.addEventListener("change", changed);
    label.append(facet.select);
    label.hidden = facet.options.length < 2;
    byId(facet.main ? "facets" : "others").append(label);
  }
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
    const head = make("button", "", name);
    head.type = "button"; head.dataset.key = key;
    head.addEventListener("click", () => { sort.value = (sort.value === "low-" + key ? "high-" : "low-") + key; scoreBy.value = key; changed(); });
    heads.append(head);
  }
  if (scores.length) {
    byId("score-range").hidden = heads.hidden = false;
    byId("panes").classList.add("scored");
    byId("panes").style.setProperty("--columns", scores.length);
  }
  for (const field of [scoreBy, lowest, highest]) field.addEventListener("change", changed);
  const chosenScore = () => scores.find(({ key }) => key === scoreBy.value);
  const bound = (field) => (field.value.trim() === "" || !Number.isFinite(field.valueAsNumber) ? null : field.valueAsNumber);
  /* A test of the chosen score; null where no bound is set. A response without a score is within no bounds. */
  function scoreTest() {
    const from = bound(lowest), to = bound(highest), chosen = chosenScore();
    if (!chosen || (from === null && to === null)) return null;
    return (i) => isScore(chosen.column[i]) && (from === null || chosen.column[i] >= from) && (to === null || chosen.column[i] <= to);
  }
  const scoreText = (value) => (isScore(value) ? value.toFixed(2).replace(/^0\./, ".") : value);

  for (const [value, [text]] of Object.entries(SORTS)) sort.append(new Option(text, value));
  sort.addEventListener("change", changed);

  /* ---- search: what the index holds at once, the rest as it is unpacked ---- */
  const low = (parts) => parts.filter(Boolean).join("\n").toLowerCase();
  const asked = data.questions.map(([question, reference, aliases, id]) => low([question, reference, ...aliases, id]));
  const quick = data.ids.map((id, i) => low([id, data.answers[i]]));
  const told = new Array(total), passages = [];
  let reading = null, readingPassages = null;
  async function readAll(kind, size, target, line) {
    const chunks = Math.ceil(size / data.chunks[kind]);
    let shown = performance.now();
    for (let n = 0; n < chunks; n++) {
      const texts = await unpack(kind + "-" + n);
      texts.forEach((one, i) => { target[n * data.chunks[kind] + i] = line(one); });
      if (performance.now() - shown > 400) { shown = performance.now(); refresh(`reading ${Math.round((100 * n) / chunks)}\u00a0%`); }
    }
  }
  const detailLine = (one) => low([one.broken, one.pursued, one.established, one.missing, ...Object.values(one.reasons || {}), ...Object.values(one.unjudged || {}), ...one.steps.flatMap((step) => [step[0], step[4]])]);
  function startReading() {
    reading ??= readAll("details", total, told, detailLine).then(() => { reading = true; refresh(); });
    if (inPassages.checked) {
      const sets = 1 + data.questions.reduce((most, one) => Math.max(most, one[4]), -1);
      readingPassages ??= readAll("evidence", sets, passages, (one) => low(one.flat())).then(() => { readingPassages = true; refresh(); });
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
      return terms.every((term) => quick[i].includes(term) || asked[q].includes(term) || (told[i] || "").includes(term) || (deep && (passages[data.questions[q][4]] || "").includes(term)));
    };
  }

  /* ---- the list ---- */
  /* active: the highlighted row. moved: whether the reader chose it. open: the response in the address, or -1. */
  let shown = [], active = -1, moved = false, open = -1, viewed = -1;
  const wide = matchMedia("(min-width: 60.01rem)");
  function refresh(progress) {
    const kept = moved && active >= 0 ? shown[active] : -1;
    const wanted = facets.map(chosenOption);
    const found = matcher(), within = scoreTest();
    let unscored = 0;
    const counts = facets.map((facet) => new Array(facet.options.length).fill(0));
    shown = [];
    for (let i = 0; i < total; i++) {
      let missed = -1, misses = 0;
      for (let f = 0; f < facets.length && misses < 2; f++) {
        if (wanted[f] && !facets[f].test(facets[f].column[i], wanted[f][2])) { missed = f; misses++; }
      }
      if (misses > 1 || (found && !found(i))) continue;
      if (within && !within(i)) { if (!misses && !isScore(chosenScore().column[i])) unscored++; continue; }
      if (!misses) shown.push(i);
      /* An option's number says what choosing it would show: all other filters hold. */
      for (let f = misses ? missed : 0; f < (misses ? missed + 1 : facets.length); f++) {
        const facet = facets[f], value = facet.column[i];
        for (let o = 0; o < facet.options.length; o++) if (facet.test(value, facet.options[o][2])) counts[f][o]++;
      }
    }
    facets.forEach((facet, f) => {
      facet.select.classList.toggle("set", facet.select.value !== "");
      facet.options.forEach(([, text], o) => { facet.select.options[o + 1].textContent = `${text} (${count(counts[f][o])})`; });
    });
    if (within || inPassages.checked || facets.some((facet) => !facet.main && facet.select.value)) byId("more").open = true;
    for (const field of [lowest, highest]) field.classList.toggle("set", bound(field) !== null);
    for (const head of heads.children) {
      head.dataset.sorted = sort.value === "low-" + head.dataset.key ? "low" : sort.value === "high-" + head.dataset.key ? "high" : "";
      head.setAttribute("aria-pressed", head.dataset.sorted !== "");
      head.title = `sort by ${head.textContent}: ${head.dataset.sorted === "low" ? "highest" : "lowest"} first`;
      head.classList.toggle("chosen", head.dataset.key === scoreBy.value);
    }
    const by = SORTS[sort.value][1];
    if (by) shown.sort(by);
    active = shown.indexOf(kept);
    if (active < 0) { moved = false; active = shown.length ? 0 : -1; }
    status.textContent = `${count(shown.length)} of ${count(total)} responses` + (unscored ? ` · ${count(unscored)} without this score not shown` : "") + (busy() ? ` · ${typeof progress === "string" ? progress : "reading all texts …"}` : "");
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
      detail.replaceChildren(make("p", "empty", "No response is chosen: none fits the filters and the search."));
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
    const made = [];
    for (let n = first; n < last; n++) made.push(line(n));
    if (!shown.length) made.push(make("p", "empty", "No response fits. Clear a filter or search for less."));
    rows.replaceChildren(...made);
    if (active >= first && active < last) list.setAttribute("aria-activedescendant", "row-" + active);
    else list.removeAttribute("aria-activedescendant");
  }
  function line(n) {
    const i = shown[n];
    const [outcome, label] = data.outcomes[data.outcome[i]];
    const made = make("div", "row k-" + outcome);
    made.id = "row-" + n;
    made.style.top = n * ROW + "px";
    made.dataset.n = n;
    for (const [key, value] of [["role", "option"], ["aria-selected", n === active], ["aria-setsize", shown.length], ["aria-posinset", n + 1]]) made.setAttribute(key, value);
    const answer = data.answers[i] === null ? "no answer" : "\u201c" + flat(data.answers[i]) + "\u201d";
    made.append(make("p", "question", flat(data.questions[data.question[i]][0])), make("p", "meta", label + " \u00b7 " + answer), make("p", "meta", flat(data.benchmarks[data.benchmark[i]]) + " \u00b7 " + flat(data.models[data.model[i]])));
    made.querySelectorAll("p").forEach((p) => { p.dir = "auto"; });
    scores.forEach(({ key, name, column }, n) => {
      const value = column[i], cell = make("span", "score" + (key === scoreBy.value ? " chosen" : "") + (isScore(value) ? "" : " none"));
      /* Read aloud with its detector: the heads above are not part of the list. */
      cell.append(make("span", "spoken", `${name}: `), isScore(value) ? scoreText(value) : flat(value));
      cell.title = `${name}: ${isScore(value) ? value : "no score, " + value}`;
      if (isScore(value)) cell.style.setProperty("--score", value);
      cell.style.setProperty("--at", n + 2);
      made.append(cell);
    });
    return made;
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
    let one, texts;
    try { [one, texts] = await Promise.all([stored("details", i), stored("evidence", q[4])]); }
    catch (error) { fail("This response cannot be unpacked: the file was cut short or changed. Make the report again."); return; }
    if (viewed !== i) return;
    const [outcome] = data.outcomes[data.outcome[i]];
    detail.className = "k-" + outcome;
    detail.hidden = false;
    detail.replaceChildren(top(i), words("p", "broken", one.broken), facts(i, q, one), columns(i, q, one, texts), criteria(i, one), ...scoreTable(i), ...rawText(one));
    detail.scrollTop = 0;
  }
  function top(i) {
    const made = make("div", "top");
    const back = make("button", "", "\u2190 list");
    back.id = "back"; back.type = "button";
    back.addEventListener("click", close);
    const push = make("span", "push");
    for (const [text, label, by] of [["\u2191", "previous response", -1], ["\u2193", "next response", 1]]) {
      const button = make("button", "", text);
      button.type = "button"; button.title = label; button.setAttribute("aria-label", label);
      button.addEventListener("click", () => go(active + by, { show: true }));
      push.append(button);
    }
    const link = make("a", "", "link");
    link.href = "#" + new URLSearchParams({ r: data.ids[i] });
    link.title = "a link to this response";
    push.append(link);
    made.append(back, make("span", "badge k-" + data.outcomes[data.outcome[i]][0], data.outcomes[data.outcome[i]][1]), words("span", "", data.benchmarks[data.benchmark[i]]), words("span", "", data.models[data.model[i]]), words("span", "id", data.ids[i]), push);
    return made;
  }
  function facts(i, q, one) {
    const made = make("dl", "facts");
    const add = (term, text, kind = "") => { if (text !== null && text !== undefined && text !== "") { const dd = make("dd"); dd.append(words("span", kind, text)); made.append(make("dt", "", term), dd); } };
    add("Question", q[0], "asked-question");
    add("Pursued instead", one.pursued);
    add("Submitted answer", data.answers[i] === null ? `none (${one.incomplete || "missing"})` : data.answers[i]);
    add("Really established", one.established);
    add("Reference", q[1] === null ? null : [q[1], ...q[2]].join(" \u00b7 "));
    add("Missing evidence", one.missing);
    return made;
  }
  function columns(i, q, one, texts) {
    const made = make("div", "columns"), left = make("section"), right = make("section", "sources");
    const steps = make("ol", "steps");
    one.steps.forEach((step, n) => { const item = make("li"); item.append(stepBox(step, n, texts)); steps.append(item); });
    if (!one.steps.length) steps.append(make("li", "empty", "There is no trace."));
    const answer = make("p", "answer-line");
    answer.append(make("small", "", "submitted: "), words("strong", "", data.answers[i] === null ? "\u2013" : data.answers[i]));
    left.append(make("h3", "", "Reasoning"), steps, answer);
    const all = texts.map((text, p) => passage(text, p, one.steps, q[5]));
    const first = all.filter((box) => box.dataset.first), rest = all.filter((box) => !box.dataset.first);
    right.append(make("h3", "", "Evidence"), ...first);
    if (rest.length) { if (first.length) right.append(make("h3", "", "Passages no step rests on")); right.append(...rest); }
    made.append(left, right);
    return made;
  }
  function tone([, substantive, sound, code]) {
    if (substantive === 0) return ["t-aside", "not substantive"];
    if (sound === 1) return ["t-holds", "\u2713 holds"];
    if (sound === 0) return ["t-fails", "\u2717 does not hold" + (code ? ` \u00b7 ${code} ${data.codes[code] || ""}` : "")];
    return ["t-open", "? not judged"];
  }
  function stepBox(step, n, texts) {
    const [text, , , , reason, quote] = step;
    const found = quote && quote.length === 3;
    const [kind, label] = tone(step);
    const made = make(found ? "button" : "div", "step " + kind);
    const head = make("span", "head");
    head.append("step " + (n + 1) + " ", make("b", "", label));
    if (quote) head.append(" rests on [" + quote[0] + "]" + (texts[quote[0]] ? " " + flat(texts[quote[0]][0]).slice(0, 60) : ""));
    made.append(head, words("span", "", text));
    if (reason) made.append(words("span", "why", reason));
    if (quote && !found) made.append(words("span", "why", "quoted, but not in the passage: \u201c" + quote[1] + "\u201d"));
    if (found) { made.type = "button"; made.title = "show what it rests on"; made.addEventListener("click", () => choose(made, n)); }
    return made;
  }
  function choose(box, n) {
    detail.querySelectorAll(".chosen").forEach((one) => one.classList.remove("chosen"));
    box.classList.add("chosen");
    const marks = [...detail.querySelectorAll("mark")].filter((one) => one.dataset.steps.split(" ").includes(String(n)));
    marks.forEach((one) => one.classList.add("chosen"));
    if (!marks.length) return;
    /* Beside the steps the passages scroll by themselves, so that the step stays in sight. */
    const pane = detail.querySelector(".sources");
    if (getComputedStyle(pane).position === "sticky") pane.scrollTop += marks[0].getBoundingClientRect().top - Math.max(box.getBoundingClientRect().top, pane.getBoundingClientRect().top);
    marks[0].scrollIntoView({ block: pane.clientHeight < pane.scrollHeight ? "nearest" : "center" });
  }
  function passage([title, text], p, steps, supporting) {
    const quotes = [];
    steps.forEach((step, n) => { if (step[5] && step[5].length === 3 && step[5][0] === p) quotes.push([step[5][1], step[5][2], n]); });
    const made = make("div", "passage" + (quotes.length ? " quoted" : ""));
    const head = words("h4", "", title);
    head.prepend("[" + p + "] ");
    if (supporting && supporting.includes(p)) head.append(make("small", "", " \u00b7 marked as supporting"));
    if (quotes.length || (supporting && supporting.includes(p))) made.dataset.first = "1";
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
    made.append(head, body);
    return made;
  }
  function criteria(i, one) {
    const made = make("section"), table = make("table", "criteria"), scroll = make("div", "scroll");
    data.criteria.forEach(([key, label, saw, hidden], c) => {
      const row = table.insertRow();
      const [kind, text] = LABEL[one.labels[c]];
      row.insertCell().append((key === "evidence" ? "" : key + ": ") + label);
      const judged = row.insertCell(), votes = (one.votes || {})[key];
      judged.append(make("span", kind, text));
      /* Of a judge that was asked again and did not say the same. */
      if (votes) judged.append(make("small", "votes", "said " + votes.map((vote) => LABEL[vote][1]).join(", ")));
      const why = (one.reasons || {})[key] || (one.unjudged || {})[key] || (key === "evidence" && one.missing) || "";
      row.insertCell().append(words("span", "", why));
      const seen = row.insertCell();
      seen.append(make("small", "", saw.join(", ") + " "), make("small", "hidden-fields", hidden.join(", ")));
    });
    const head = table.createTHead().insertRow();
    for (const text of ["criterion", "judged", "in the judge's words", "what the judge saw, and did not"]) { const th = make("th", "", text); th.scope = "col"; head.append(th); }
    scroll.append(table);
    const judge = data.judges[data.judge[i]];
    made.append(words("h3", "", "What " + judge + " said, and what it saw"), scroll);
    return made;
  }
  function scoreTable(i) {
    if (!scores.length) return [];
    const made = make("section"), table = make("table", "criteria"), scroll = make("div", "scroll");
    for (const { name, model, column } of scores) {
      const row = table.insertRow();
      row.insertCell().append(name);
      row.insertCell().append(isScore(column[i]) ? column[i].toFixed(3) : make("span", "open", "no score: " + flat(column[i])));
      row.insertCell().append(words("span", "", model));
    }
    const head = table.createTHead().insertRow();
    for (const text of ["detector", "score (low means failure)", "model"]) { const th = make("th", "", text); th.scope = "col"; head.append(th); }
    scroll.append(table);
    made.append(make("h3", "", "What detectors gave it"), scroll);
    return [made];
  }
  function rawText(one) {
    if (!one.raw) return [];
    const made = make("details");
    made.append(make("summary", "", "The raw completion"), words("div", "raw", one.raw));
    return [made];
  }
  function close() { if (!wide.matches) { open = -1; settle(); remember(); } list.focus(); }

  /* ---- the address: #r=id for a response, #outcome=gap&model=x for a filter ---- */
  function remember() {
    const params = new URLSearchParams();
    for (const facet of facets) if (facet.select.value) params.set(facet.name, facet.select.value);
    if (search.value.trim()) params.set("q", search.value.trim());
    if (inPassages.checked) params.set("passages", "1");
    if (sort.value !== "worst") params.set("sort", sort.value);
    if (scores.length && scoreBy.value !== scores[0].key) params.set("score", scoreBy.value);
    if (bound(lowest) !== null) params.set("min", lowest.value);
    if (bound(highest) !== null) params.set("max", highest.value);
    if (open >= 0) params.set("r", data.ids[open]);
    const hash = params.toString();
    if (hash || touched) try { history.replaceState(null, "", "#" + hash); } catch (error) { /* some viewers keep the address to themselves */ }
    touched = touched || hash !== "";
  }
  let touched = false;
  const KEYS = new Set(["r", "q", "passages", "sort", "score", "min", "max", ...facets.map((facet) => facet.name)]);
  function follow() {
    const params = new URLSearchParams(location.hash.slice(1));
    if (![...params.keys()].some((key) => KEYS.has(key))) return false;
    for (const facet of facets) {
      facet.select.value = params.get(facet.name) || "";
      if (facet.select.selectedIndex < 0) facet.select.value = "";
    }
    search.value = params.get("q") || "";
    inPassages.checked = params.has("passages");
    sort.value = Object.hasOwn(SORTS, params.get("sort")) ? params.get("sort") : "worst";
    scoreBy.value = scores.some(({ key }) => key === params.get("score")) ? params.get("score") : (scores[0] || {}).key || "";
    lowest.value = params.get("min") || "";
    highest.value = params.get("max") || "";
    const wanted = place.get(params.get("r"));
    moved = false;
    list.scrollTop = 0;
    byId("explorer-problem").hidden = true;
    refresh();
    byId("explorer").scrollIntoView();
    if (wanted !== undefined) {
      /* What was asked for by its id is shown, whatever the filters say. */
      if (!shown.includes(wanted)) { reset(); refresh(); }
      go(shown.indexOf(wanted), { show: true });
    } else if (params.has("r")) fail("This report has no response of that id.");
    return true;
  }
  addEventListener("hashchange", follow);

  /* ---- keys ---- */
  let typing = 0;
  search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(changed, 150); });
  inPassages.addEventListener("change", changed);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  function reset() {
    for (const facet of facets) facet.select.value = "";
    search.value = ""; inPassages.checked = false; sort.value = "worst";
    lowest.value = ""; highest.value = ""; if (scores.length) scoreBy.value = scores[0].key;
  }
  byId("clear").addEventListener("click", () => { reset(); moved = false; changed(); });
  const PAGE = () => Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
  const MOVES = { j: () => active + 1, k: () => active - 1, ArrowDown: () => active + 1, ArrowUp: () => active - 1, PageDown: () => active + PAGE(), PageUp: () => active - PAGE(), Home: () => 0, End: () => shown.length - 1 };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest("input, select, textarea");
    const inList = document.activeElement === list;
    if (event.key === "Escape") {
      if (field === search && search.value) { search.value = ""; changed(); } else if (field || detail.contains(document.activeElement)) close();
      else return;
    } else if (field) {
      if (field !== search || (event.key !== "Enter" && event.key !== "ArrowDown")) return;
      clearTimeout(typing); moved = false; refresh(); list.focus(); go(0);
    } else if (event.key === "/") { byId("explorer").scrollIntoView(); search.focus(); search.select(); }
    else if (event.key in MOVES && (inList || event.key === "j" || event.key === "k")) {
      const onDetail = detail.contains(document.activeElement);
      if (!inList && !onDetail) { byId("panes").scrollIntoView({ block: "nearest" }); list.focus({ preventScroll: true }); }
      go(MOVES[event.key](), onDetail ? { show: true } : {});
      if (onDetail) detail.focus({ preventScroll: true });
    } else if (event.key === "Enter" && inList && active >= 0) { view(shown[active]).then(() => detail.focus()); }
    else return;
    event.preventDefault();
  });

  if (!follow()) refresh();
  document.documentElement.dataset.ready = "1";
  performance.mark("explorer-ready");
})();
