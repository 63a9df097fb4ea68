// Find words in the passages: all places are marked, and one after the other is shown.
// Places are ranges over the text as it stands; nothing is written into it.
"use strict";
(() => {
  const box = document.getElementById("search"), place = document.getElementById("passages"), found = document.getElementById("found");
  if (!box || !place || !window.annotate) return;
  const marks = typeof Highlight === "function" && CSS.highlights ? { found: new Highlight(), here: new Highlight() } : null;
  if (marks) for (const [name, one] of Object.entries(marks)) CSS.highlights.set(name, one);
  const COMMON = new Set("about after also because been before both from have into more most only other over same says said some such than that their them then there these they this those through under very were what when where which while whose will with would passage passages question asks therefore according appears".split(" "));
  let texts = null, hits = [], now = -1;

  /** Letters without accents and capitals, blanks as one; and where each came from. */
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
  /** The passages, read once. */
  function read() {
    texts ??= [...place.querySelectorAll(".words")].map((holder) => ({ node: holder.firstChild, passage: holder.closest(".passage"), ...fold(holder.textContent) })).filter((one) => one.node);
    return texts;
  }
  function places(wanted, whole) {
    const all = [];
    for (const text of read()) {
      for (let at = text.folded.indexOf(wanted); at >= 0; at = text.folded.indexOf(wanted, at + wanted.length)) {
        const end = at + wanted.length;
        if (whole && /[\p{L}\p{N}]/u.test((text.folded[at - 1] ?? " "))) continue;
        const range = new Range();
        range.setStart(text.node, text.from[at]);
        range.setEnd(text.node, Math.max(text.from[end - 1] + 1, text.from[at]));
        all.push({ range, passage: text.passage, word: wanted, order: read().indexOf(text) * 1e6 + at });
      }
    }
    return all;
  }
  /** Names, numbers and longer words of a text, for when the text as it is stands nowhere. */
  function telling(text) {
    const all = text.match(/[\p{L}\p{N}][\p{L}\p{N}'’-]*/gu) ?? [];
    const names = all.filter((word, at) => /\d/.test(word) || (at > 0 && /^\p{Lu}/u.test(word)));
    const chosen = names.length ? names : all;
    return [...new Set(chosen.map((word) => fold(word).folded))].filter((word) => /\d/.test(word) || (word.length > 2 && !COMMON.has(word)));
  }

  function search(text) {
    const wanted = fold(text.trim()).folded;
    hits = wanted ? places(wanted, false) : [];
    let apart = false;
    if (wanted && !hits.length) {
      hits = telling(text).flatMap((word) => places(word, true)).sort((one, other) => one.order - other.order);
      apart = hits.length > 0;
    }
    if (marks) { marks.found.clear(); for (const hit of hits) marks.found.add(hit.range); }
    show(hits.length ? best(apart) : -1, apart);
  }
  /** The first place; of single words, that in the passage with most of them. */
  function best(apart) {
    if (!apart) return 0;
    const words = new Map();
    for (const hit of hits) words.set(hit.passage, (words.get(hit.passage) ?? new Set()).add(hit.word));
    const most = Math.max(...[...words.values()].map((one) => one.size));
    return hits.findIndex((hit) => words.get(hit.passage).size === most);
  }
  function show(at, apart = found.dataset.apart === "true") {
    now = at;
    found.dataset.apart = String(apart);
    for (const passage of place.querySelectorAll(".hit")) passage.classList.remove("hit");
    marks?.here.clear();
    found.textContent = !box.value.trim() ? "" : !hits.length ? "nowhere" : `${now + 1} of ${hits.length}${apart ? ", single words" : ""}`;
    if (now < 0) return;
    const { range, passage } = hits[now];
    marks?.here.add(range);
    passage.classList.add("hit");
    const seen = place.getBoundingClientRect(), here = range.getBoundingClientRect();
    if (here.top < seen.top + 24 || here.bottom > seen.bottom - 24) place.scrollTop += here.top - seen.top - seen.height / 3;
  }
  const step = (by) => { if (hits.length) show((now + by + hits.length) % hits.length); };
  function find(text) {
    box.value = text.replace(/\s+/g, " ").trim().slice(0, 300);
    search(box.value);
  }

  const { onKey } = window.annotate;
  onKey.set("/", () => { box.focus(); box.select(); });
  onKey.set("f", () => find(String(getSelection()) || window.annotate.atHand()));
  onKey.set(".", () => step(1));
  onKey.set(",", () => step(-1));
  document.getElementById("after").addEventListener("click", () => step(1));
  document.getElementById("before").addEventListener("click", () => step(-1));
  box.addEventListener("input", () => search(box.value));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); step(event.shiftKey ? -1 : 1); }
    if (event.key === "Escape") {
      event.preventDefault();
      if (box.value) find(""); else window.annotate.back();
    }
  });
})();
