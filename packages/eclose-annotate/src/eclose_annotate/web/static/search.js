// Search in the passages: all matches are highlighted, and one after the other is scrolled into view.
// Matches are ranges over the text; the text itself is not changed.
"use strict";
(() => {
  const box = document.getElementById("search");
  const panel = document.getElementById("passages");
  const status = document.getElementById("found");
  if (!box || !panel || !window.annotate) return;
  const hasHighlights = typeof Highlight === "function" && CSS.highlights;
  const marks = hasHighlights ? { found: new Highlight(), here: new Highlight() } : null;
  if (marks) for (const [name, highlight] of Object.entries(marks)) CSS.highlights.set(name, highlight);
  // Words that are too common to be searched for by themselves.
  const COMMON = new Set("about after also because been before both from have into more most only other over same says said some such than that their them then there these they this those through under very were what when where which while whose will with would passage passages question asks therefore according appears".split(" "));
  let texts = null;
  let hits = [];
  let now = -1;
  const { memory } = window.annotate;

  /** Fold a text: no accents, lower case, single blanks; with the source index of each character. */
  function fold(text) {
    let folded = "";
    const from = [];
    for (let at = 0; at < text.length; at += 1) {
      let sign = /\s/.test(text[at]) ? " " : text[at].normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
      sign = sign.replace(/[‘’]/g, "'").replace(/[‐‑–—]/g, "-").replace(/[“”]/g, '"');
      if (sign === " " && folded.endsWith(" ")) continue;
      for (const letter of sign) { folded += letter; from.push(at); }
    }
    from.push(text.length);
    return { folded, from };
  }
  /** Read the passages once. */
  function read() {
    texts ??= [...panel.querySelectorAll(".words")]
      .map((holder) => ({ node: holder.firstChild, passage: holder.closest(".passage"), ...fold(holder.textContent) }))
      .filter((text) => text.node);
    return texts;
  }
  function matches(query, wordStart) {
    const all = [];
    for (const text of read()) {
      for (let at = text.folded.indexOf(query); at >= 0; at = text.folded.indexOf(query, at + query.length)) {
        const end = at + query.length;
        if (wordStart && /[\p{L}\p{N}]/u.test((text.folded[at - 1] ?? " "))) continue;
        const range = new Range();
        range.setStart(text.node, text.from[at]);
        range.setEnd(text.node, Math.max(text.from[end - 1] + 1, text.from[at]));
        all.push({ range, passage: text.passage, word: query, order: read().indexOf(text) * 1e6 + at });
      }
    }
    return all;
  }
  // As _CITATION of pages.py: the number of a passage is no number of its text.
  const CITATION = /\[\d{1,3}(?:\s*[,;]\s*\d{1,3})*\]|\bpassages? \d{1,3}\b/gi;
  /** Return names, numbers and longer words of a text, searched for where the whole text has no match. */
  function keywords(text) {
    // A comma or point between digits belongs to the number: 327,464 is one word.
    const all = text.replace(CITATION, " ").match(/[\p{L}\p{N}](?:[\p{L}\p{N}'’-]|[.,](?=\p{N}))*/gu) ?? [];
    const names = all.filter((word, at) => /\d/.test(word) || (at > 0 && /^\p{Lu}/u.test(word)));
    const chosen = names.length ? names : all;
    return [...new Set(chosen.map((word) => fold(word).folded))].filter((word) => /\d/.test(word) || (word.length > 2 && !COMMON.has(word)));
  }

  function search(text) {
    const query = fold(text.trim()).folded;
    memory.search = text;
    hits = query ? matches(query, false) : [];
    let apart = false;
    if (query && !hits.length) {
      hits = keywords(text).flatMap((word) => matches(word, true)).sort((first, second) => first.order - second.order);
      apart = hits.length > 0;
    }
    if (marks) { marks.found.clear(); for (const hit of hits) marks.found.add(hit.range); }
    show(hits.length ? best(apart) : -1, apart);
  }
  /** Return the first match; for single words, that in the passage with most of them. */
  function best(apart) {
    if (!apart) return 0;
    const words = new Map();
    for (const hit of hits) words.set(hit.passage, (words.get(hit.passage) ?? new Set()).add(hit.word));
    const most = Math.max(...[...words.values()].map((set) => set.size));
    return hits.findIndex((hit) => words.get(hit.passage).size === most);
  }
  function show(at, apart = status.dataset.apart === "true") {
    now = at;
    status.dataset.apart = String(apart);
    for (const passage of panel.querySelectorAll(".hit")) passage.classList.remove("hit");
    marks?.here.clear();
    status.textContent = !box.value.trim() ? "" : !hits.length ? "no match" : `${now + 1} of ${hits.length}${apart ? ", single words" : ""}`;
    if (now < 0) return;
    const { range, passage } = hits[now];
    marks?.here.add(range);
    passage.classList.add("hit");
    const view = panel.getBoundingClientRect(), here = range.getBoundingClientRect();
    if (here.top < view.top + 24 || here.bottom > view.bottom - 24) panel.scrollTop += here.top - view.top - view.height / 3;
  }
  const step = (by) => { if (hits.length) show((now + by + hits.length) % hits.length); };
  function find(text) {
    box.value = text.replace(/\s+/g, " ").trim().slice(0, 300);
    search(box.value);
  }

  const { onKey, unfold } = window.annotate;
  onKey.set("/", () => {
    unfold();
    box.focus();
    box.select();
  });
  onKey.set("f", () => {
    const words = String(getSelection()) || window.annotate.atHand();
    unfold();
    find(words);
  });
  onKey.set(".", () => step(1));
  onKey.set(",", () => step(-1));
  document.getElementById("after").addEventListener("click", () => step(1));
  document.getElementById("before").addEventListener("click", () => step(-1));
  box.addEventListener("input", () => search(box.value));
  // The search of the pass before, with its marks; the scroll position is restored by layout.js.
  if (memory.search) {
    const top = panel.scrollTop;
    find(memory.search);
    panel.scrollTop = top;
  }
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); step(event.shiftKey ? -1 : 1); }
    // One key leaves the box; the marks stay, and . and , go through them.
    if (event.key === "Escape") {
      event.preventDefault();
      window.annotate.back();
    }
  });
})();
