// Shows search results while the user types in the header. htmx is loaded when the field gets the focus.
(() => {
  "use strict";
  const script = document.currentScript;
  const field = document.querySelector("[data-site-search]");
  const found = document.getElementById("search-found");
  const typing = (element) => element.closest("input, select, textarea, [contenteditable]");
  const links = () => [...found.querySelectorAll("a")];
  const close = () => { found.replaceChildren(); };

  field.addEventListener("focus", () => {
    if (window.htmx || document.getElementById("htmx")) return;
    const element = document.createElement("script");
    element.id = "htmx";
    element.src = script.dataset.htmx;
    // Search for text that was typed before htmx was loaded.
    element.onload = () => { if (field.value) window.htmx.trigger(field, "find"); };
    document.head.append(element);
  }, { once: true });

  document.addEventListener("keydown", (event) => {
    const inside = event.target.closest(".site-search");
    if (event.key === "/" && !typing(event.target) && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      field.focus();
      field.select();
    } else if (event.key === "Escape") {
      close();
      if (inside) field.focus();
      const menu = document.querySelector(".menu[open]");
      if (menu) {
        menu.open = false;
        menu.querySelector("summary").focus();
      }
    } else if (inside && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const places = [field, ...links()];
      const next = places.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
      event.preventDefault();
      places[(next + places.length) % places.length].focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".site-search")) close();
    for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  field.addEventListener("input", () => { if (!field.value) close(); });
})();
