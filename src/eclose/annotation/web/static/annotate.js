// The page of work: which decision is at hand, keys, undo, what is missing, and whether it is saved.
// Texts of the material are never turned into markup: all that is written here goes through textContent.
"use strict";
(() => {
  const root = document.documentElement;
  const kept = (name) => { try { return localStorage.getItem("eclose." + name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem("eclose." + name, value); } catch { /* not allowed: for now only */ } };
  // Before anything is drawn, so that nothing changes its colour or place.
  root.classList.add("js");
  if (kept("theme")) root.dataset.theme = kept("theme");
  // What the search needs of this page, and this page of the search.
  const page = window.annotate = { onKey: new Map(), atHand: () => "", back };
  document.addEventListener("DOMContentLoaded", start);

  /** The focus back to the decision at hand. */
  function back() {
    document.querySelector(".step.current, .field.at-hand")?.focus({ preventScroll: true });
  }
  /** Whether keys belong to a text that is being written. */
  function typing(target) {
    return target instanceof Element && target.matches("input:not([type=radio]):not([type=checkbox]), textarea, select");
  }

  function start() {
    const form = document.getElementById("form");
    if (!form) return;
    const sheet = readSheet(form);
    const trail = history(sheet);
    const saving = form.hasAttribute("hx-post") ? watchSaving(form) : { settled: () => true, leave() {} };
    const desk = makeDesk(form, sheet, trail, saving);
    bindKeys(desk);
    bindPanels();
    desk.begin();
    root.dataset.ready = "true";
  }

  // The form as it stands --------------------------------------------------------------------------------------------

  /** The fields in their order. What is not asked is emptied, switched off and out of sight. */
  function readSheet(form) {
    const fields = [...form.querySelectorAll("fieldset.field")].map((box) => ({
      box, n: box.dataset.n, name: box.dataset.field, when: box.dataset.when, is: box.dataset.is,
      inputs: [...box.querySelectorAll("input[type=radio]")], step: box.closest(".step"),
    }));
    const chosen = (field) => field.inputs.find((input) => input.checked);
    const value = (field) => chosen(field)?.value ?? null;
    const sibling = (field, name) => fields.find((one) => one.n === field.n && one.name === name);
    const asked = (field) => {
      if (!field.when) return true;
      const other = sibling(field, field.when);
      return asked(other) && value(other) === field.is;
    };
    function settle() {
      for (const field of fields) {
        const wanted = asked(field);
        if (!wanted) for (const input of field.inputs) input.checked = false;
        field.box.disabled = !wanted;
        field.box.classList.toggle("unasked", !wanted);
      }
      for (const step of form.querySelectorAll(".step")) mark(step, fields.filter((field) => field.step === step));
    }
    function mark(step, own) {
      const open = own.some((field) => asked(field) && value(field) === null);
      const last = own.filter((field) => value(field) !== null).at(-1);
      const told = open ? (last ? "…" : "") : chosen(last).dataset.short.replace("not substantive", "aside");
      step.querySelector("[data-mark]").textContent = told;
      step.classList.toggle("holds", told === "sound");
      step.classList.toggle("fails", /^L\d/.test(told));
      step.classList.toggle("aside", told === "aside");
    }
    return {
      fields, value, asked, settle,
      missing: () => fields.filter((field) => asked(field) && value(field) === null),
      take: () => fields.map(value),
      put: (values) => fields.forEach((field, at) => field.inputs.forEach((input) => { input.checked = input.value === values[at]; })),
    };
  }

  /** What was chosen before, to go back to. */
  function history(sheet) {
    const past = [];
    let now = sheet.take();
    return {
      get empty() { return past.length === 0; },
      note() { past.push(now); now = sheet.take(); },
      /** Go back by one choice; the place of what changed. */
      back() {
        const before = past.pop();
        const place = before.findIndex((value, at) => value !== now[at]);
        sheet.put(before);
        now = before;
        return place;
      },
    };
  }

  // The decision at hand ---------------------------------------------------------------------------------------------

  function makeDesk(form, sheet, trail, saving) {
    const button = document.getElementById("submit"), undoing = document.getElementById("undo"), still = document.getElementById("missing");
    let at = sheet.fields[0], leaving = false;

    function show() {
      sheet.settle();
      if (!sheet.asked(at)) at = ownOf(at)[0];
      for (const field of sheet.fields) field.box.classList.toggle("at-hand", field === at);
      for (const step of form.querySelectorAll(".step")) {
        const current = step === at.step;
        step.classList.toggle("current", current);
        if (current) step.setAttribute("aria-current", "true"); else step.removeAttribute("aria-current");
      }
      for (const part of document.querySelectorAll(".excerpt")) part.classList.toggle("at-hand", part.dataset.of === at.name);
      const missing = sheet.missing();
      button.classList.toggle("waits", missing.length > 0);
      write(still, toldOf(missing));
      undoing.disabled = trail.empty;
      page.atHand = () => (at.step ?? document.querySelector(".question")).querySelector(".words").textContent;
    }
    const ownOf = (field) => sheet.fields.filter((one) => one.n === field.n && sheet.asked(one));
    function toldOf(missing) {
      if (!missing.length) return "all decided";
      const steps = [...new Set(missing.filter((field) => field.step).map((field) => Number(field.n)))];
      if (steps.length) return `open: ${steps.length === 1 ? "step" : "steps"} ${ranges(steps)}`;
      return missing.length === 1 ? "open: 1 question" : `open: ${missing.length} questions`;
    }
    function go(field, { focus = true } = {}) {
      if (!field) return;
      at = field;
      show();
      const place = at.step ?? at.box;
      if (focus) place.focus({ preventScroll: true });
      place.scrollIntoView({ block: "nearest" });
    }
    function changed() {
      trail.note();
      show();
      form.dispatchEvent(new Event("change", { bubbles: true }));
    }
    /** Choose by key, and go on to what is asked next. */
    function choose(key) {
      const input = at.inputs.find((one) => one.dataset.key === key);
      if (!input) return false;
      const other = !input.checked;
      input.checked = true;
      sheet.settle();
      if (other) changed();
      const own = ownOf(at), next = own[own.indexOf(at) + 1];
      if (next) go(next);
      else onwards();
      return true;
    }
    function onwards() {
      const missing = sheet.missing(), place = sheet.fields.indexOf(at);
      const next = missing.find((field) => sheet.fields.indexOf(field) > place) ?? missing[0];
      go(next ?? at);
    }
    /** To the next or previous step, or question where there are no steps. */
    function move(by) {
      if (!at.step) return turn(by);
      const step = by > 0 ? at.step.nextElementSibling : at.step.previousElementSibling;
      if (step) enter(step);
      else go(at);
    }
    function enter(step) {
      const own = sheet.fields.filter((field) => field.step === step && sheet.asked(field));
      go(own.find((field) => sheet.value(field) === null) ?? own[0]);
    }
    function turn(by) {
      const own = at.step ? ownOf(at) : sheet.fields.filter(sheet.asked);
      go(own[own.indexOf(at) + by] ?? at);
    }
    function undo() {
      if (trail.empty) return;
      const field = sheet.fields[trail.back()];
      sheet.settle();
      form.dispatchEvent(new Event("change", { bubbles: true }));
      go(field);
    }
    function submit() {
      const [first] = sheet.missing();
      if (first) go(first);
      else form.requestSubmit(button);
    }

    form.addEventListener("change", (event) => {
      if (!event.target.matches?.("input[type=radio]")) return;
      at = sheet.fields.find((field) => field.inputs.includes(event.target));
      trail.note();
      const own = (sheet.settle(), ownOf(at));
      // By mouse or arrows: on to what depends on it, and no further; the focus stays.
      go(own.slice(own.indexOf(at) + 1).find((field) => sheet.value(field) === null) ?? at, { focus: false });
    });
    form.addEventListener("focusin", (event) => {
      const field = sheet.fields.find((one) => one.box.contains(event.target));
      if (field && field !== at) go(field, { focus: false });
    });
    form.addEventListener("click", (event) => {
      const step = event.target.closest?.(".step");
      if (step && step !== at.step && !event.target.closest(".controls") && !String(getSelection())) enter(step);
    });
    form.addEventListener("submit", (event) => {
      const [first] = sheet.missing();
      if (first || leaving || !saving.settled()) event.preventDefault();
      if (first) return go(first);
      if (event.defaultPrevented) return;
      leaving = true;
      saving.leave();
      write(still, "sending …");
    });
    addEventListener("pageshow", (event) => { if (event.persisted) { leaving = false; show(); } });
    undoing.addEventListener("click", undo);
    const begin = () => go((document.querySelector(".field.wrong") && sheet.fields.find((field) => field.box.matches(".wrong"))) || sheet.missing()[0] || at);
    return { choose, move, turn, undo, submit, begin, left: () => leaving };
  }

  /** `3, 5–8` */
  function ranges(numbers) {
    const runs = [];
    for (const number of numbers) {
      if (runs.length && runs.at(-1)[1] === number - 1) runs.at(-1)[1] = number;
      else runs.push([number, number]);
    }
    return runs.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
  }

  /** A live region is read aloud whenever it is written, so only what is new is. */
  function write(place, text, bad = false) {
    if (place.textContent !== text) place.textContent = text;
    place.classList.toggle("bad", bad);
  }

  // Drafts -----------------------------------------------------------------------------------------------------------

  /** Says whether what is filled in is saved. htmx sends the drafts; here its events are heard. */
  function watchSaving(form) {
    const place = document.getElementById("saved");
    let made = 0, sent = 0, kept = 0, left = false, failed = 0, timer = null, warned = false;
    const address = new URL(form.getAttribute("hx-post"), location.href).pathname;
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(() => form.dispatchEvent(new Event("again")), Math.min(30, 2 ** failed) * 1000);
    };
    form.addEventListener("change", () => { made += 1; warned = false; if (!failed) write(place, "…"); });
    form.addEventListener("htmx:beforeRequest", () => { sent = made; });
    const lost = (told, again = true) => {
      if (left) return;
      failed += 1;
      write(place, `not saved: ${told}`, true);
      if (again) later();
    };
    form.addEventListener("htmx:afterRequest", ({ detail: { xhr } }) => {
      // Whoever was logged out may be sent to another page, which is no draft that was kept.
      const away = xhr.responseURL && new URL(xhr.responseURL).pathname !== address;
      if (!xhr.status) return;
      if (away || [401, 403].includes(xhr.status)) return lost("you are logged out. Load the page anew", false);
      if ([404, 409, 422].includes(xhr.status)) return lost("this pass is closed. Go to the overview", false);
      if (xhr.status >= 300) return lost("the server has a problem. Will try again");
      kept = sent;
      failed = 0;
      // What was chosen since is on its way.
      if (kept === made) write(place, "saved");
    });
    for (const name of ["htmx:sendError", "htmx:timeout"]) form.addEventListener(name, () => lost("no connection. Will try again"));
    addEventListener("offline", () => write(place, "no connection: go on, it is saved when it is back", true));
    addEventListener("online", () => { if (kept < made) form.dispatchEvent(new Event("again")); else write(place, ""); });
    addEventListener("beforeunload", (event) => { if (kept < made && !left) event.preventDefault(); });
    return {
      /** Whether a submission has a chance; who presses twice knows better. */
      settled() {
        if (navigator.onLine && !failed || warned) return true;
        warned = true;
        write(place, "no connection: nothing is lost here. Press again to try", true);
        return false;
      },
      leave() { left = true; clearTimeout(timer); },
    };
  }

  // Keys -------------------------------------------------------------------------------------------------------------

  function bindKeys(desk) {
    const passages = document.getElementById("passages");
    const scroll = (by) => passages?.scrollBy({ top: by * 0.85 * passages.clientHeight });
    const acts = {
      j: () => desk.move(1), k: () => desk.move(-1), arrowdown: () => desk.move(1), arrowup: () => desk.move(-1),
      l: () => desk.turn(1), h: () => desk.turn(-1), arrowright: () => desk.turn(1), arrowleft: () => desk.turn(-1),
      u: desk.undo, enter: desk.submit, g: () => fold(".whole"), e: () => fold(".excerpts"), "?": showKeys,
    };
    for (const key of ["y", "n", "1", "2", "3", "4", "5"]) acts[key] = () => desk.choose(key);
    document.addEventListener("keydown", (event) => {
      const { target } = event, key = event.key.toLowerCase();
      if (event.defaultPrevented || event.isComposing || typing(target) || document.querySelector("dialog[open]") || desk.left()) return;
      if ((event.ctrlKey || event.metaKey) && key === "z" && !event.shiftKey) return done(event, desk.undo);
      if (event.ctrlKey || event.metaKey || event.altKey || kept("keys") === "off") return;
      if (key === "escape" && document.querySelector(".whole[open]")) return done(event, () => fold(".whole"));
      // What a control or a text that scrolls does with a key by itself, it goes on doing.
      const free = target === document.body || target.matches?.(".step, .field, .steps");
      if (!free && (key === " " || key.startsWith("arrow"))) return;
      if (key === "enter" && target.closest?.("button, a, summary")) return;
      // A key held down goes on through steps and places, and decides nothing.
      if (event.repeat && !/^(arrow.*|[jk., ])$/.test(key)) return event.preventDefault();
      const act = key === " " ? () => scroll(event.shiftKey ? -1 : 1) : page.onKey.get(key) ?? acts[key];
      if (act) done(event, act);
    });
  }
  function done(event, act) { event.preventDefault(); act(); }

  // Panels -----------------------------------------------------------------------------------------------------------

  function fold(selector) {
    const panel = document.querySelector(selector);
    panel.open = !panel.open;
    if (selector !== ".whole") return;
    if (panel.open) panel.querySelector(".scroll").focus(); else back();
  }
  function showKeys() { document.getElementById("keys").showModal(); }

  function bindPanels() {
    const excerpts = document.querySelector(".excerpts"), theme = document.getElementById("theme"), single = document.getElementById("keys-on");
    excerpts.open = kept("excerpts") !== "folded";
    excerpts.addEventListener("toggle", () => keep("excerpts", excerpts.open ? "open" : "folded"));
    document.getElementById("show-keys").addEventListener("click", showKeys);
    document.getElementById("keys").addEventListener("keydown", (event) => { if (event.key === "?") done(event, () => event.currentTarget.close()); });
    theme.value = kept("theme") ?? "";
    theme.addEventListener("change", () => {
      keep("theme", theme.value);
      if (theme.value) root.dataset.theme = theme.value; else delete root.dataset.theme;
    });
    single.checked = kept("keys") !== "off";
    single.addEventListener("change", () => keep("keys", single.checked ? "on" : "off"));
  }
})();
