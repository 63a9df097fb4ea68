// The layout of the page of work: width of the columns, folded passages, jumps to a passage, dialogs, and what is kept
// from pass to pass.
"use strict";
(() => {
  const desk = document.querySelector(".desk");
  const page = window.annotate;
  if (!desk || !page) return;
  const passages = document.getElementById("passages");

  // Width of the columns ---------------------------------------------------------------------------------------------

  const split = desk.querySelector(".split");

  /** Return the name of the setting: the left column holds the passages, or the reasoning where they are folded. */
  function splitName() {
    return desk.classList.contains("folded") || !passages ? "split.folded" : "split";
  }

  /** Set the share of the left column, in percent; without one, the default of the style sheet holds. */
  function setSplit(percent) {
    if (!percent) {
      desk.style.removeProperty("--left");
      return split.setAttribute("aria-valuenow", "50");
    }
    const share = Math.min(75, Math.max(25, percent));
    desk.style.setProperty("--left", `${share / (100 - share)}fr`);
    split.setAttribute("aria-valuenow", String(Math.round(share)));
  }

  function moveSplit(percent) {
    setSplit(percent);
    page.keep(splitName(), split.getAttribute("aria-valuenow"));
  }

  split.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    split.setPointerCapture(event.pointerId);
    const box = desk.getBoundingClientRect();
    const follow = (move) => moveSplit((100 * (move.clientX - box.left)) / box.width);
    split.addEventListener("pointermove", follow);
    split.addEventListener("lostpointercapture", () => split.removeEventListener("pointermove", follow), { once: true });
  });
  split.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -3, ArrowRight: 3 }[event.key];
    if (!by) return;
    event.preventDefault();
    const box = desk.getBoundingClientRect();
    const here = split.getBoundingClientRect();
    moveSplit((100 * (here.left + here.width / 2 - box.left)) / box.width + by);
  });
  split.addEventListener("dblclick", () => {
    setSplit(0);
    page.keep(splitName(), "0");
  });
  const restoreSplit = () => setSplit(Number(page.stored(splitName()) ?? 0));
  restoreSplit();

  // Folded passages --------------------------------------------------------------------------------------------------

  const fold = document.getElementById("fold");

  /** Fold the passages away or bring them back; they keep their scroll position. */
  function setFolded(folded) {
    if (!fold || folded === desk.classList.contains("folded")) return;
    const top = passages.scrollTop || Number(memory.scroll ?? 0);
    desk.classList.toggle("folded", folded);
    fold.setAttribute("aria-expanded", String(!folded));
    fold.querySelector("span").textContent = folded ? "Show the passages" : "Hide the passages";
    restoreSplit();
    setGuide();
    if (!folded) passages.scrollTop = top;
    page.back();
  }
  fold?.addEventListener("click", () => setFolded(!desk.classList.contains("folded")));
  page.onKey.set("v", () => setFolded(!desk.classList.contains("folded")));
  page.unfold = () => setFolded(false);
  page.scroll = (by) => passages?.scrollBy({ top: by * 0.85 * passages.clientHeight });

  // Jumps to a passage -----------------------------------------------------------------------------------------------

  const PAUSE = 900;
  let digits = "";
  let expected = false;
  let timer = null;

  function showPassage(index) {
    const passage = document.getElementById(`p-${index}`);
    if (!passage) return false;
    setFolded(false);
    passages.querySelector(".hit")?.classList.remove("hit");
    passage.classList.add("hit");
    passages.scrollTop += passage.getBoundingClientRect().top - passages.getBoundingClientRect().top;
    return true;
  }
  function forgetDigits() {
    clearTimeout(timer);
    digits = "";
    expected = false;
  }
  function waitForDigit() {
    clearTimeout(timer);
    timer = setTimeout(forgetDigits, PAUSE);
  }
  /** Go to the passage of a digit; a second one soon after it makes a number of two digits. */
  page.goToPassage = (digit) => {
    digits = showPassage(Number(digits + digit)) ? digits + digit : showPassage(Number(digit)) ? digit : "";
    waitForDigit();
  };
  page.passageExpected = () => expected || digits !== "";
  page.onKey.set("p", () => {
    forgetDigits();
    expected = true;
    waitForDigit();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a.cite");
    if (link && showPassage(link.hash.slice(3))) event.preventDefault();
  });

  // Dialogs and the guideline ----------------------------------------------------------------------------------------

  const keys = document.getElementById("keys");
  function showKeys() {
    keys.showModal();
    // On the button: Space and Enter close the list, and switch nothing off.
    keys.querySelector("button").focus();
  }
  page.onKey.set("?", showKeys);
  document.getElementById("show-keys").addEventListener("click", showKeys);
  keys.addEventListener("keydown", (event) => {
    if (event.key !== "?") return;
    event.preventDefault();
    keys.close();
  });
  keys.addEventListener("close", page.back);

  const guide = document.querySelector(".guide details");
  const roomy = matchMedia("(min-width: 75rem) and (min-height: 46rem)");

  /** Open the guideline as the person left it; at first, where there is room for it. */
  function setGuide() {
    const short = desk.matches(".folded, .no-evidence, .pass-s");
    const state = page.stored("guide");
    guide.open = state ? state === "open" : roomy.matches || short;
  }
  roomy.addEventListener("change", setGuide);
  setGuide();
  page.onKey.set("e", () => {
    guide.open = !guide.open;
    page.keep("guide", guide.open ? "open" : "folded");
  });
  guide.querySelector("summary").addEventListener("click", () => page.keep("guide", guide.open ? "folded" : "open"));
  // The guideline opens in a tab of its own, which is used again.
  page.onKey.set("g", () => document.querySelector(".guide a").click());

  const theme = document.getElementById("theme");
  theme.value = page.stored("theme") ?? "";
  theme.addEventListener("change", () => {
    page.keep("theme", theme.value);
    if (theme.value) document.documentElement.dataset.theme = theme.value;
    else delete document.documentElement.dataset.theme;
  });
  const single = document.getElementById("keys-on");
  single.checked = page.stored("keys") !== "off";
  single.addEventListener("change", () => page.keep("keys", single.checked ? "on" : "off"));

  // What is kept from pass to pass -----------------------------------------------------------------------------------

  // Of this task alone, in this tab alone: scroll position of the passages and the search.
  const place = `eclose.${document.getElementById("form").getAttribute("action").split("/").slice(0, 3).join("/")}`;
  function remembered() {
    try {
      return JSON.parse(sessionStorage.getItem(place)) ?? {};
    } catch {
      return {};
    }
  }
  const memory = (page.memory = remembered());
  if (passages) {
    passages.scrollTop = Number(memory.scroll ?? 0);
    passages.addEventListener("scroll", () => { memory.scroll = passages.scrollTop; });
    addEventListener("pagehide", () => {
      try {
        sessionStorage.setItem(place, JSON.stringify(memory));
      } catch {
        // Storage is blocked: the next pass begins at the top.
      }
    });
  }
})();
