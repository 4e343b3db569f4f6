// A board's comforts. Everything works without them: links and forms are plain ones.
(function () {
  "use strict";

  const part = () => document.getElementById("board-part");
  const scroller = () => document.querySelector("#board-part .board-scroll");
  // Going back asks the server for the board again: a copy kept here would be large, and old.
  if (window.htmx) window.htmx.config.historyCacheSize = 0;
  const search = () => document.getElementById("board-text");
  let opened = [];
  let offset = 0;
  // What was searched for, what was typed since, and whether that is still to be searched for.
  let sent = "";
  let typed = null;
  let later = false;

  // An empty field is no choice: it stays out of the address.
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
    // htmx lets the value of a button take the place of the form's own of that name; a pin comes to those there are.
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

  // What was open stays open, the table stays where it was scrolled to, and what was typed meanwhile is not lost.
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
  // One panel is open at a time, and Escape closes it.
  const panels = () => [...document.querySelectorAll(".board-bar details[open]")];
  document.addEventListener("toggle", (event) => {
    if (!event.target.open || !event.target.matches("#board-panel, #board-columns")) return;
    for (const other of panels()) if (other !== event.target && !event.target.contains(other)) other.open = false;
  }, true);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const details of panels()) {
      details.open = false;
      if (details.matches("#board-panel, #board-columns")) details.querySelector("summary").focus();
    }
  });
  document.addEventListener("htmx:afterSettle", () => {
    if (later) search().form.requestSubmit();
    later = false;
    // Where the control that had the focus is gone, the board has it.
    if (document.activeElement === document.body && scroller()) scroller().focus({ preventScroll: true });
  });

  // Going back leaves a search as a whole, not letter by letter.
  document.addEventListener("htmx:beforeHistoryUpdate", (event) => {
    const { history, requestConfig } = event.detail;
    const typing = requestConfig.triggeringEvent && requestConfig.triggeringEvent.type === "input";
    const here = history.path === window.location.pathname + window.location.search;
    if (history.type === "push" && (here || (typing && /[?&]q=/.test(window.location.search)))) history.type = "replace";
  });

  // A choice that the board does not have: its own page says what it has.
  document.addEventListener("htmx:responseError", (event) => {
    if (event.detail.target === part()) window.location.assign(event.detail.pathInfo.finalRequestPath);
  });
})();
