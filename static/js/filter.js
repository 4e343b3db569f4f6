// Hide the rows of tables that do not contain the words in the filter field. On a page that the server has filtered by
// words, and without JavaScript, the form sends the words. A field without a form is hidden until this script shows it.
(() => {
  "use strict";
  const field = document.querySelector("[data-filter]");
  if (!field || field.value) return;
  field.closest("[hidden]")?.removeAttribute("hidden");
  const rows = [...document.querySelectorAll("[data-filtered] tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const apply = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, number) => { row.hidden = !words.every((word) => texts[number].includes(word)); });
    for (const part of document.querySelectorAll("[data-filter-hides]")) part.hidden = words.length > 0;
    document.querySelector("[data-filter-empty]").hidden = rows.some((row) => !row.hidden);
    for (const fold of document.querySelectorAll(".reported-only, .code-list")) {
      if (words.length) fold.open = rows.some((row) => !row.hidden && fold.contains(row));
    }
  };
  field.addEventListener("input", apply);
})();
