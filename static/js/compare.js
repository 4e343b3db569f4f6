// Keeps the last comparisons in this browser and lists them on the page without a comparison. Nothing is sent.
(() => {
  "use strict";
  const KEY = "runboard-comparisons";
  const LIMIT = 6;

  function read() {
    try {
      const stored = JSON.parse(localStorage.getItem(KEY));
      return Array.isArray(stored) ? stored : [];
    } catch { return []; }
  }

  function write(comparisons) {
    try { localStorage.setItem(KEY, JSON.stringify(comparisons)); } catch { /* storage is not available */ }
  }

  const compared = [...document.querySelectorAll("[data-compared]")].map((link) => link.dataset.compared);
  if (compared.length) {
    const comparison = { name: compared.join(", "), query: location.search };
    write([comparison, ...read().filter((one) => one.name !== comparison.name)].slice(0, LIMIT));
  }

  const section = document.querySelector("[data-recent-comparisons]");
  const comparisons = section ? read() : [];
  if (comparisons.length) {
    section.querySelector("ul").append(...comparisons.map((one) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.textContent = one.name;
      link.href = location.pathname + one.query;
      item.append(link);
      return item;
    }));
    section.querySelector("button").addEventListener("click", () => {
      try { localStorage.removeItem(KEY); } catch { /* storage is not available */ }
      section.hidden = true;
    });
    section.hidden = false;
  }
})();
