// Progressive enhancement of boards. Without this script, links and forms work as plain HTML.
(function () {
  "use strict";

  const part = () => document.getElementById("board-part");
  const scroller = () => document.querySelector("#board-part .board-scroll");
  // Disable htmx's history cache: a cached board would be large and stale.
  if (window.htmx) window.htmx.config.historyCacheSize = 0;
  const search = () => document.getElementById("board-text");
  let opened = [];
  let offset = 0;
  // The last submitted search text, the current text, and whether a search is pending.
  let sent = "";
  let typed = null;
  let later = false;

  // Omit empty fields from the URL.
  document.addEventListener("submit", (event) => {
    if (event.target.id !== "board-form") return;
    const empty = [...event.target.elements].filter((field) => field.name && field.value === "" && !field.disabled);
    for (const field of empty) field.disabled = true;
    setTimeout(() => { for (const field of empty) field.disabled = false; });
  });
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.elt.id !== "board-form") return;
    sent = search().value;
    const data = event.detail.formData;
    // htmx replaces a form's values with the value of a button of the same name. A new pin must be added to the others.
    const button = (event.detail.triggeringEvent || {}).submitter;
    if (button && button.name) {
      data.delete(button.name);
      for (const field of event.detail.elt.querySelectorAll(`input[name="${button.name}"]`)) data.append(field.name, field.value);
      data.append(button.name, button.value);
    }
    for (const name of new Set(data.keys())) {
      const values = data.getAll(name).filter((value) => value !== "");
      data.delete(name);
      for (const value of values) data.append(name, value);
    }
  });

  // Restore open panels, the scroll position, and text that was typed during the request.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target !== part()) return;
    opened = [...document.querySelectorAll("#board-part details[open]")].map((details) => details.id);
    offset = scroller() ? scroller().scrollLeft : 0;
    typed = search() && document.activeElement === search() ? search().value : null;
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const id of opened) {
      const details = document.getElementById(id);
      if (details) details.open = true;
    }
    if (scroller()) scroller().scrollLeft = offset;
    if (typed === null || !search()) return;
    if (search().value !== typed) search().value = typed;
    later = typed !== sent;
    typed = null;
  });
  // Keep at most one panel open; Escape closes it.
  const panels = () => [...document.querySelectorAll(".board-bar details[open]")];
  document.addEventListener("toggle", (event) => {
    if (!event.target.open || !event.target.matches("#board-panel, #board-columns")) return;
    for (const other of panels()) if (other !== event.target && !event.target.contains(other)) other.open = false;
  }, true);
  document.addEventListener("keydown", (event) => {
    // The buttons that unfold sections are styled checkboxes, which only the space bar would activate.
    if (event.key === "Enter" && event.target.matches(".block input")) event.target.click();
    if (event.key !== "Escape") return;
    for (const details of panels()) {
      details.open = false;
      if (details.matches("#board-panel, #board-columns")) details.querySelector("summary").focus();
    }
  });
  document.addEventListener("htmx:afterSettle", () => {
    if (later) search().form.requestSubmit();
    later = false;
    // Focus the board if the focused control no longer exists.
    if (document.activeElement === document.body && scroller()) scroller().focus({ preventScroll: true });
  });

  // Use one history entry per search instead of one per letter.
  document.addEventListener("htmx:beforeHistoryUpdate", (event) => {
    const { history, requestConfig } = event.detail;
    const typing = requestConfig.triggeringEvent && requestConfig.triggeringEvent.type === "input";
    const here = history.path === window.location.pathname + window.location.search;
    if (history.type === "push" && (here || (typing && /[?&]q=/.test(window.location.search)))) history.type = "replace";
  });

  // Open the full page on an unknown choice: it lists the valid ones.
  document.addEventListener("htmx:responseError", (event) => {
    if (event.detail.target === part()) window.location.assign(event.detail.pathInfo.finalRequestPath);
  });
})();
