// Applies the chosen color scheme before the first paint. The default is the system's scheme.
(() => {
  "use strict";
  const NAMES = ["system", "light", "dark"];
  const root = document.documentElement;
  const kept = () => {
    try {
      return NAMES.includes(localStorage.theme) ? localStorage.theme : "system";
    } catch {
      return "system"; // storage is not available
    }
  };
  function set(name) {
    if (name === "system") delete root.dataset.theme;
    else root.dataset.theme = name;
    for (const label of document.querySelectorAll("[data-theme-name]")) label.textContent = `Theme: ${name}`;
    for (const button of document.querySelectorAll("[data-theme-switch]")) button.title = `Theme: ${name}`;
  }
  set(kept());
  addEventListener("storage", () => set(kept()));
  document.addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll("[data-theme-switch]")) {
      button.hidden = false;
      button.addEventListener("click", () => {
        const next = NAMES[(NAMES.indexOf(root.dataset.theme ?? "system") + 1) % NAMES.length];
        try {
          localStorage.theme = next;
        } catch { /* the choice applies to this page only */ }
        set(next);
        document.dispatchEvent(new Event("themechange"));
      });
    }
    set(kept());
  });
})();
