// The page of work: the current decision, keys, undo, missing decisions, and saving of drafts.
// Texts of the material never become markup: everything is written through textContent.
"use strict";
(() => {
  const root = document.documentElement;

  /** Read a setting of this browser; null where storage is blocked or the setting is missing. */
  function stored(name) {
    try {
      return localStorage.getItem("eclose." + name);
    } catch {
      return null;
    }
  }

  /** Keep a setting in this browser. Where storage is blocked it lasts until the page closes. */
  function keep(name, value) {
    try {
      localStorage.setItem("eclose." + name, value);
    } catch {
      // Nothing to do: the page works without it.
    }
  }

  // Before the first paint, so that colours and layout do not change visibly.
  root.classList.add("js");
  if (stored("theme")) root.dataset.theme = stored("theme");

  // The interface between the three scripts of a page of work.
  const page = (window.annotate = { onKey: new Map(), atHand: () => "", back, stored, keep, write });
  document.addEventListener("DOMContentLoaded", start);

  /** Focus the current decision: its step or question, or its radio buttons where single keys are off. */
  function back() {
    const radio = stored("keys") === "off" && document.querySelector(".field.at-hand input:checked, .field.at-hand input");
    (radio || document.querySelector(".step.current, .field.at-hand"))?.focus({ preventScroll: true });
  }

  /** Return whether keys are text input of the target. */
  function isTyping(target) {
    return target instanceof Element && target.matches("input:not([type=radio]):not([type=checkbox]), textarea, select");
  }

  /** Write to a live region only if the text changes: screen readers announce every write. */
  function write(region, text, bad = false) {
    if (region.textContent !== text) region.textContent = text;
    region.classList.toggle("bad", bad);
  }

  function start() {
    showLocalTimes();
    const form = document.getElementById("form");
    if (!form) return;
    const sheet = readSheet(form);
    const history = keepHistory(sheet);
    const saving = form.hasAttribute("hx-post") ? watchSaving(form) : { settled: () => true, leave() {} };
    const desk = makeDesk(form, sheet, history, saving);
    bindKeys(desk);
    desk.begin();
    root.dataset.ready = "true";
  }

  /** Show times in the time zone of the reader; the server writes UTC. */
  function showLocalTimes() {
    const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
    for (const time of document.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.title = time.textContent;
      time.textContent = format.format(at);
    }
  }

  // The form ---------------------------------------------------------------------------------------------------------

  /** Read the fields in order. A field whose condition is not met has no choice. */
  function readSheet(form) {
    const fields = [...form.querySelectorAll("fieldset.field")].map((box) => ({
      box,
      n: box.dataset.n,
      name: box.dataset.field,
      when: box.dataset.when,
      is: box.dataset.is,
      inputs: [...box.querySelectorAll("input[type=radio]")],
      step: box.closest(".step"),
      controls: box.closest(".controls"),
    }));
    const chosen = (field) => field.inputs.find((input) => input.checked);
    const value = (field) => chosen(field)?.value ?? null;
    const condition = (field) => fields.find((other) => other.n === field.n && other.name === field.when);
    const applies = (field) => !field.when || (applies(condition(field)) && value(condition(field)) === field.is);

    /** Make the choices that a choice implies: a failure code says that the step is substantive and not sound. */
    function imply(field) {
      if (!field.when) return;
      const other = condition(field);
      for (const input of other.inputs) input.checked = input.value === field.is;
      imply(other);
    }
    function settle() {
      for (const field of fields) {
        const asked = applies(field);
        if (!asked) for (const input of field.inputs) input.checked = false;
        field.box.classList.toggle("unasked", !asked);
      }
      for (const step of form.querySelectorAll(".step")) mark(step, fields.filter((field) => field.step === step));
    }
    function mark(step, own) {
      const open = own.some((field) => applies(field) && value(field) === null);
      const last = own.filter((field) => value(field) !== null).at(-1);
      const label = open ? (last ? "…" : "") : chosen(last).dataset.short;
      step.querySelector("[data-mark]").textContent = label;
      step.classList.toggle("holds", label === "sound");
      step.classList.toggle("fails", /^L\d/.test(label));
      step.classList.toggle("aside", label === "not substantive");
    }
    return {
      fields,
      value,
      applies,
      imply,
      settle,
      missing: () => fields.filter((field) => applies(field) && value(field) === null),
      take: () => fields.map(value),
      put: (values) =>
        fields.forEach((field, at) => field.inputs.forEach((input) => { input.checked = input.value === values[at]; })),
    };
  }

  /** Keep earlier states of the form for undo. */
  function keepHistory(sheet) {
    const past = [];
    let now = sheet.take();
    return {
      get empty() { return past.length === 0; },
      note() {
        past.push(now);
        now = sheet.take();
      },
      /** Restore the state before the last choice; return the index of the first changed field. */
      back() {
        const before = past.pop();
        const at = before.findIndex((value, index) => value !== now[index]);
        sheet.put(before);
        now = before;
        return at;
      },
    };
  }

  // The current decision ---------------------------------------------------------------------------------------------

  function makeDesk(form, sheet, history, saving) {
    const button = document.getElementById("submit");
    const undoButton = document.getElementById("undo");
    const missingText = document.getElementById("missing");
    const dock = document.getElementById("dock");
    // Two columns: the controls of the current step stand in the dock, always at the same place.
    const columns = matchMedia("(min-width: 50rem) and (min-height: 30rem)");
    let at = sheet.fields[0];
    let leaving = false;
    let pointing = false;

    function show() {
      sheet.settle();
      if (!sheet.applies(at)) at = ownFields(at)[0];
      for (const field of sheet.fields) field.box.classList.toggle("at-hand", field === at);
      for (const step of form.querySelectorAll(".step")) {
        step.classList.toggle("current", step === at.step);
        if (step === at.step) step.setAttribute("aria-current", "true");
        else step.removeAttribute("aria-current");
      }
      if (dock) placeControls();
      for (const part of document.querySelectorAll(".excerpt")) part.classList.toggle("at-hand", part.dataset.of === at.name);
      const missing = sheet.missing();
      button.classList.toggle("waits", missing.length > 0);
      write(missingText, summarise(missing));
      undoButton.disabled = history.empty;
      page.atHand = () => (at.step ?? document.querySelector(".question")).querySelector(".words").textContent;
    }
    /** Move the controls of the current step to the dock, and those of the step before back to their step. */
    function placeControls() {
      for (const { step, controls } of sheet.fields) {
        const parent = columns.matches && step === at.step ? dock : step;
        if (controls.parentElement !== parent) parent.append(controls);
      }
    }
    const ownFields = (field) => sheet.fields.filter((other) => other.n === field.n && sheet.applies(other));
    function summarise(missing) {
      if (!missing.length) return "all decided";
      const steps = [...new Set(missing.filter((field) => field.step).map((field) => Number(field.n)))];
      if (steps.length) return `open: ${steps.length === 1 ? "step" : "steps"} ${formatRanges(steps)}`;
      return missing.length === 1 ? "open: 1 question" : `open: ${missing.length} questions`;
    }
    function go(field, { focus = true } = {}) {
      if (!field) return;
      at = field;
      show();
      if (focus) back();
      at.step?.scrollIntoView({ block: "nearest" });
      at.box.scrollIntoView({ block: "nearest" });
    }
    function changed() {
      history.note();
      show();
      form.dispatchEvent(new Event("change", { bubbles: true }));
    }
    /** Choose by key, and move to the next decision. */
    function choose(key) {
      const input = at.inputs.find((radio) => radio.dataset.key === key);
      if (!input) return false;
      const isNew = !input.checked;
      input.checked = true;
      sheet.settle();
      if (isNew) changed();
      goOn();
      return true;
    }
    /** Move to the next question of the step, then to the next one that is open. */
    function goOn(options) {
      const own = ownFields(at);
      const next = own[own.indexOf(at) + 1];
      const missing = sheet.missing();
      const index = sheet.fields.indexOf(at);
      go(next ?? missing.find((field) => sheet.fields.indexOf(field) > index) ?? missing[0] ?? at, options);
    }
    /** Move to the next or previous step, or to a field where there are no steps. */
    function move(by) {
      if (!at.step) return turn(by);
      const step = by > 0 ? at.step.nextElementSibling : at.step.previousElementSibling;
      if (step) enter(step);
      else go(at);
    }
    function enter(step) {
      const own = sheet.fields.filter((field) => field.step === step && sheet.applies(field));
      go(own.find((field) => sheet.value(field) === null) ?? own[0]);
    }
    function turn(by) {
      const own = at.step ? ownFields(at) : sheet.fields.filter(sheet.applies);
      go(own[own.indexOf(at) + by] ?? at);
    }
    function undo() {
      if (history.empty) return;
      const field = sheet.fields[history.back()];
      sheet.settle();
      form.dispatchEvent(new Event("change", { bubbles: true }));
      go(field);
    }
    function submit() {
      const [first] = sheet.missing();
      if (first) go(first);
      else form.requestSubmit(button);
    }

    // Arrow keys change a radio button, too; only a pointer moves on to the next step.
    form.addEventListener("pointerdown", () => { pointing = true; });
    form.addEventListener("keydown", () => { pointing = false; });
    form.addEventListener("change", (event) => {
      if (!event.target.matches?.("input[type=radio]")) return;
      at = sheet.fields.find((field) => field.inputs.includes(event.target));
      sheet.imply(at);
      sheet.settle();
      history.note();
      if (pointing) return goOn({ focus: false });
      const own = ownFields(at);
      go(own.slice(own.indexOf(at) + 1).find((field) => sheet.value(field) === null) ?? at, { focus: false });
    });
    form.addEventListener("focusin", (event) => {
      const field = sheet.fields.find((other) => other.box.contains(event.target));
      // A click on a radio button focuses it first; its change event decides what is current.
      if (field && field !== at && !pointing && sheet.applies(field)) go(field, { focus: false });
    });
    form.addEventListener("click", (event) => {
      const step = event.target.closest?.(".step");
      const inside = event.target.closest?.(".controls, a");
      if (step && step !== at.step && !inside && !String(getSelection())) enter(step);
    });
    form.addEventListener("submit", (event) => {
      const [first] = sheet.missing();
      if (first || leaving || !saving.settled()) event.preventDefault();
      if (first) return go(first);
      if (event.defaultPrevented) return;
      leaving = true;
      saving.leave();
      write(missingText, "sending …");
    });
    addEventListener("pageshow", (event) => {
      if (!event.persisted) return;
      leaving = false;
      show();
    });
    columns.addEventListener("change", show);
    undoButton.addEventListener("click", undo);
    const wrong = sheet.fields.find((field) => field.box.matches(".wrong"));
    const begin = () => go(wrong ?? sheet.missing()[0] ?? at);
    return { choose, move, turn, undo, submit, begin, leave: saving.leave, left: () => leaving };
  }

  /** Format numbers as `3, 5–8`. */
  function formatRanges(numbers) {
    const runs = [];
    for (const number of numbers) {
      if (runs.length && runs.at(-1)[1] === number - 1) runs.at(-1)[1] = number;
      else runs.push([number, number]);
    }
    return runs.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
  }

  // Drafts -----------------------------------------------------------------------------------------------------------

  /** Show whether the entries are saved. htmx sends the drafts and reports by events. */
  function watchSaving(form) {
    const status = document.getElementById("saved");
    const address = new URL(form.getAttribute("hx-post"), location.href).pathname;
    let changes = 0;
    let sent = 0;
    let saved = 0;
    let failures = 0;
    let leaving = false;
    let warned = false;
    let timer = null;

    function tryLater() {
      clearTimeout(timer);
      timer = setTimeout(() => form.dispatchEvent(new Event("again")), Math.min(30, 2 ** failures) * 1000);
    }
    function report(message, again = true) {
      if (leaving) return;
      failures += 1;
      write(status, `not saved: ${message}`, true);
      if (again) tryLater();
    }
    form.addEventListener("change", () => {
      changes += 1;
      warned = false;
      if (!failures) write(status, "…");
    });
    form.addEventListener("htmx:beforeRequest", () => { sent = changes; });
    form.addEventListener("htmx:afterRequest", ({ detail: { xhr } }) => {
      if (!xhr.status) return;
      // After a logout the request may be redirected to the login page, which is not a saved draft.
      const redirected = xhr.responseURL && new URL(xhr.responseURL).pathname !== address;
      if (redirected || [401, 403].includes(xhr.status)) return report("you are logged out. Reload the page", false);
      if ([404, 409, 422].includes(xhr.status)) return report("this pass is closed. Go to the overview", false);
      if (xhr.status >= 300) return report("the server has a problem. Trying again");
      saved = sent;
      failures = 0;
      // Later choices are still being sent.
      if (saved === changes) write(status, "saved");
    });
    for (const name of ["htmx:sendError", "htmx:timeout"]) {
      form.addEventListener(name, () => report("no connection. Trying again"));
    }
    addEventListener("offline", () => write(status, "no connection: continue, entries are saved when it is back", true));
    addEventListener("online", () => {
      if (saved < changes) form.dispatchEvent(new Event("again"));
      else write(status, "");
    });
    addEventListener("beforeunload", (event) => { if (saved < changes && !leaving) event.preventDefault(); });
    return {
      /** Return whether a submission can succeed; a second press tries in any case. */
      settled() {
        if ((navigator.onLine && !failures) || warned) return true;
        warned = true;
        write(status, "no connection: your entries are kept here. Press again to try", true);
        return false;
      },
      leave() {
        leaving = true;
        clearTimeout(timer);
      },
    };
  }

  // Keys -------------------------------------------------------------------------------------------------------------

  function bindKeys(desk) {
    const acts = {
      j: () => desk.move(1),
      k: () => desk.move(-1),
      arrowdown: () => desk.move(1),
      arrowup: () => desk.move(-1),
      l: () => desk.turn(1),
      h: () => desk.turn(-1),
      arrowright: () => desk.turn(1),
      arrowleft: () => desk.turn(-1),
      u: desk.undo,
      enter: desk.submit,
      y: () => desk.choose("y"),
      n: () => desk.choose("n"),
    };
    function handle(event, act) {
      event.preventDefault();
      act();
    }
    document.addEventListener("keydown", (event) => {
      const { target } = event;
      const key = event.key.toLowerCase();
      if (event.defaultPrevented || event.isComposing || isTyping(target)) return;
      if (document.querySelector("dialog[open]") || desk.left()) return;
      const controlled = event.ctrlKey || event.metaKey;
      if (controlled && key === "z" && !event.shiftKey) return handle(event, desk.undo);
      if (controlled || event.altKey) return;
      // The list of keys can always be opened: it holds the switch that turns single keys on again.
      if (key === "?") return handle(event, page.onKey.get("?"));
      if (stored("keys") === "off") return;
      // Controls and scrollable texts keep their own keys.
      const free = target === document.body || target.matches?.(".step, .field, .steps");
      if (!free && (key === " " || key.startsWith("arrow"))) return;
      if (key === "enter" && target.closest?.("button, a, summary")) return;
      // A key held down moves through steps and matches, but decides nothing.
      if (event.repeat && !/^(arrow.*|[jk., ])$/.test(key)) return event.preventDefault();
      // A digit is a code where one is asked, and the number of a passage elsewhere.
      if (/^\d$/.test(key) && !page.passageExpected?.() && desk.choose(key)) return event.preventDefault();
      const act = /^\d$/.test(key) ? () => page.goToPassage?.(key) : key === " " ? () => page.scroll?.(event.shiftKey ? -1 : 1) : page.onKey.get(key) ?? acts[key];
      if (act) handle(event, act);
    });
  }
})();
