// What pages do besides charts: steps of pictures, filters of tables, and live parts that keep what a person has chosen.
"use strict";
(() => {
  document.querySelectorAll(".strip").forEach((strip) => {
    const steps = strip.dataset.steps.split(",");
    const picture = strip.querySelector("img");
    strip.querySelector("input").addEventListener("input", (event) => {
      const step = steps[event.target.value];
      strip.querySelector("output").value = step;
      picture.src = strip.dataset.base + step;
      picture.alt = picture.alt.replace(/\d+$/, step);
    });
  });

  document.querySelectorAll("[data-filter-rows]").forEach((input) => input.addEventListener("input", () => {
    const text = input.value.toLowerCase();
    input.closest(".section").querySelectorAll("tr[data-text]").forEach((row) => { row.hidden = !row.dataset.text.includes(text); });
  }));

  document.querySelectorAll("[data-submit]").forEach((input) => input.addEventListener("change", () => input.form.submit()));

  document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  }));

  const log = document.getElementById("log");
  if (log) log.scrollTop = log.scrollHeight;

  // A live part is replaced only where it has changed, and keeps marked runs, focus and the place in a log.
  const last = new WeakMap();
  let kept = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const target = event.detail.target;
    if (document.hidden || last.get(target) === event.detail.serverResponse || event.detail.xhr.status >= 400) {
      event.detail.shouldSwap = false;
      return;
    }
    last.set(target, event.detail.serverResponse);
    const focus = target.contains(document.activeElement) ? document.activeElement : null;
    kept = {
      marked: [...target.querySelectorAll("input[name=run]:checked")].map((input) => input.value),
      focus: focus && { href: focus.getAttribute("href"), value: focus.value },
      atEnd: target.id === "log" && target.scrollHeight - target.scrollTop - target.clientHeight < 40,
      left: target.querySelector(".scroll")?.scrollLeft,
    };
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const target = document.getElementById(event.detail.target.id);
    if (!kept || !target) return;
    const inputs = [...target.querySelectorAll("input[name=run]")];
    inputs.forEach((input) => { input.checked = kept.marked.includes(input.value); });
    if (kept.focus) {
      const same = [...target.querySelectorAll("a, input, button")].find((each) => (kept.focus.href
        ? each.getAttribute("href") === kept.focus.href : kept.focus.value && each.value === kept.focus.value));
      same?.focus({ preventScroll: true });
    }
    if (kept.atEnd) target.scrollTop = target.scrollHeight;
    if (kept.left && target.querySelector(".scroll")) target.querySelector(".scroll").scrollLeft = kept.left;
    kept = null;
  });
})();
