// Hides the rows of tables that lack the words in the filter field. Without JavaScript, the form sends the words.
(() => {
  "use strict";
  const field = document.querySelector("[data-filter]");
  if (!field) return;
  const rows = [...document.querySelectorAll("[data-filtered] tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const apply = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, number) => { row.hidden = !words.every((word) => texts[number].includes(word)); });
    for (const part of document.querySelectorAll("[data-filter-hides]")) part.hidden = words.length > 0;
    for (const fold of document.querySelectorAll(".reported-only")) if (words.length) fold.open = true;
  };
  field.addEventListener("input", apply);
  if (field.value) apply();
})();
