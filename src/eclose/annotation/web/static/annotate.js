// The page of work: current field, keys, undo, missing decisions, and saving of drafts.
// Texts of the material never become markup: everything is written through textContent.
"use strict";
(() => {
  const root = document.documentElement;
  const stored = (name) => { try { return localStorage.getItem("eclose." + name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem("eclose." + name, value); } catch { /* storage is blocked: the setting lasts until the page closes */ } };
  // Before the first paint, so that colours and layout do not change visibly.
  root.classList.add("js");
  if (stored("theme")) root.dataset.theme = stored("theme");
  // The interface between this script and search.js.
  const page = window.annotate = { onKey: new Map(), atHand: () => "", back };
  document.addEventListener("DOMContentLoaded", start);

  /** Return the focus to the current field. */
  function back() {
    document.querySelector(".step.current, .field.at-hand")?.focus({ preventScroll: true });
  }
  /** Return whether keys are text input of the target. */
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

  /** Read the fields in order. Fields whose condition is not met are cleared, disabled and hidden. */
  function readSheet(form) {
    const fields = [...form.querySelectorAll("fieldset.field")].map((box) => ({
      box, n: box.dataset.n, name: box.dataset.field, when: box.dataset.when, is: box.dataset.is,
      inputs: [...box.querySelectorAll("input[type=radio]")], step: box.closest(".step"),
    }));
    const chosen = (field) => field.inputs.find((input) => input.checked);
    const value = (field) => chosen(field)?.value ?? null;
    const sibling = (field, name) => fields.find((other) => other.n === field.n && other.name === name);
    const asked = (field) => {
      if (!field.when) return true;
      const other = sibling(field, field.when);
      return asked(other) && value(other) === field.is;
    };
    function settle() {
      for (const field of fields) {
        const applies = asked(field);
        if (!applies) for (const input of field.inputs) input.checked = false;
        field.box.disabled = !applies;
        field.box.classList.toggle("unasked", !applies);
      }
      for (const step of form.querySelectorAll(".step")) mark(step, fields.filter((field) => field.step === step));
    }
    function mark(step, own) {
      const open = own.some((field) => asked(field) && value(field) === null);
      const last = own.filter((field) => value(field) !== null).at(-1);
      const label = open ? (last ? "…" : "") : chosen(last).dataset.short.replace("not substantive", "aside");
      step.querySelector("[data-mark]").textContent = label;
      step.classList.toggle("holds", label === "sound");
      step.classList.toggle("fails", /^L\d/.test(label));
      step.classList.toggle("aside", label === "aside");
    }
    return {
      fields, value, asked, settle,
      missing: () => fields.filter((field) => asked(field) && value(field) === null),
      take: () => fields.map(value),
      put: (values) => fields.forEach((field, at) => field.inputs.forEach((input) => { input.checked = input.value === values[at]; })),
    };
  }

  /** Keep earlier states of the form for undo. */
  function history(sheet) {
    const past = [];
    let now = sheet.take();
    return {
      get empty() { return past.length === 0; },
      note() { past.push(now); now = sheet.take(); },
      /** Restore the state before the last choice; return the index of the changed field. */
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
      write(still, summarise(missing));
      undoing.disabled = trail.empty;
      page.atHand = () => (at.step ?? document.querySelector(".question")).querySelector(".words").textContent;
    }
    const ownOf = (field) => sheet.fields.filter((other) => other.n === field.n && sheet.asked(other));
    function summarise(missing) {
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
    /** Choose by key, and move to the next field. */
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
    /** Move to the next or previous step, or to a field where there are no steps. */
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
      // Chosen by mouse or arrow keys: show the next dependent field, but leave the focus.
      go(own.slice(own.indexOf(at) + 1).find((field) => sheet.value(field) === null) ?? at, { focus: false });
    });
    form.addEventListener("focusin", (event) => {
      const field = sheet.fields.find((other) => other.box.contains(event.target));
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

  /** Write to a live region only if the text changes: screen readers announce every write. */
  function write(place, text, bad = false) {
    if (place.textContent !== text) place.textContent = text;
    place.classList.toggle("bad", bad);
  }

  // Drafts -----------------------------------------------------------------------------------------------------------

  /** Show whether the entries are saved. htmx sends the drafts and reports by events. */
  function watchSaving(form) {
    const status = document.getElementById("saved");
    let changes = 0, sent = 0, saved = 0, leaving = false, failed = 0, timer = null, warned = false;
    const address = new URL(form.getAttribute("hx-post"), location.href).pathname;
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(() => form.dispatchEvent(new Event("again")), Math.min(30, 2 ** failed) * 1000);
    };
    form.addEventListener("change", () => { changes += 1; warned = false; if (!failed) write(status, "…"); });
    form.addEventListener("htmx:beforeRequest", () => { sent = changes; });
    const lost = (message, again = true) => {
      if (leaving) return;
      failed += 1;
      write(status, `not saved: ${message}`, true);
      if (again) later();
    };
    form.addEventListener("htmx:afterRequest", ({ detail: { xhr } }) => {
      // After a logout the request may be redirected to the login page, which is not a saved draft.
      const away = xhr.responseURL && new URL(xhr.responseURL).pathname !== address;
      if (!xhr.status) return;
      if (away || [401, 403].includes(xhr.status)) return lost("you are logged out. Reload the page", false);
      if ([404, 409, 422].includes(xhr.status)) return lost("this pass is closed. Go to the overview", false);
      if (xhr.status >= 300) return lost("the server has a problem. Trying again");
      saved = sent;
      failed = 0;
      // Later choices are still being sent.
      if (saved === changes) write(status, "saved");
    });
    for (const name of ["htmx:sendError", "htmx:timeout"]) form.addEventListener(name, () => lost("no connection. Trying again"));
    addEventListener("offline", () => write(status, "no connection: continue, entries are saved when it is back", true));
    addEventListener("online", () => { if (saved < changes) form.dispatchEvent(new Event("again")); else write(status, ""); });
    addEventListener("beforeunload", (event) => { if (saved < changes && !leaving) event.preventDefault(); });
    return {
      /** Return whether a submission can succeed; a second press tries in any case. */
      settled() {
        if (navigator.onLine && !failed || warned) return true;
        warned = true;
        write(status, "no connection: your entries are kept here. Press again to try", true);
        return false;
      },
      leave() { leaving = true; clearTimeout(timer); },
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
      if ((event.ctrlKey || event.metaKey) && key === "z" && !event.shiftKey) return handle(event, desk.undo);
      if (event.ctrlKey || event.metaKey || event.altKey || stored("keys") === "off") return;
      if (key === "escape" && document.querySelector(".whole[open]")) return handle(event, () => fold(".whole"));
      // Controls and scrollable texts keep their own keys.
      const free = target === document.body || target.matches?.(".step, .field, .steps");
      if (!free && (key === " " || key.startsWith("arrow"))) return;
      if (key === "enter" && target.closest?.("button, a, summary")) return;
      // A key held down moves through steps and matches, but decides nothing.
      if (event.repeat && !/^(arrow.*|[jk., ])$/.test(key)) return event.preventDefault();
      const act = key === " " ? () => scroll(event.shiftKey ? -1 : 1) : page.onKey.get(key) ?? acts[key];
      if (act) handle(event, act);
    });
  }
  function handle(event, act) { event.preventDefault(); act(); }

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
    excerpts.open = stored("excerpts") !== "folded";
    excerpts.addEventListener("toggle", () => keep("excerpts", excerpts.open ? "open" : "folded"));
    document.getElementById("show-keys").addEventListener("click", showKeys);
    document.getElementById("keys").addEventListener("keydown", (event) => { if (event.key === "?") handle(event, () => event.currentTarget.close()); });
    theme.value = stored("theme") ?? "";
    theme.addEventListener("change", () => {
      keep("theme", theme.value);
      if (theme.value) root.dataset.theme = theme.value; else delete root.dataset.theme;
    });
    single.checked = stored("keys") !== "off";
    single.addEventListener("change", () => keep("keys", single.checked ? "on" : "off"));
  }
})();
