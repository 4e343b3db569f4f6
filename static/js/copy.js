// A button that copies: beside whatever has `data-copy` (its value, else its text), and on every block of code.
(() => {
  "use strict";
  if (!navigator.clipboard) return;
  const status = document.createElement("span");
  status.className = "visually-hidden";
  status.setAttribute("role", "status");

  function button(text, what) {
    const element = document.createElement("button");
    element.type = "button";
    element.className = "copy";
    element.textContent = "Copy";
    element.setAttribute("aria-label", what);
    element.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text());
      element.textContent = status.textContent = "Copied";
      setTimeout(() => { element.textContent = "Copy"; status.textContent = ""; }, 2000);
    });
    return element;
  }

  function addTo(root) {
    for (const block of root.querySelectorAll("pre.code-block:not([data-copied])")) {
      block.dataset.copied = "";
      const frame = document.createElement("div");
      frame.className = "copy-frame";
      block.replaceWith(frame);
      frame.append(block, button(() => block.textContent.trim(), "Copy this block"));
    }
    for (const one of root.querySelectorAll("[data-copy]:not([data-copied])")) {
      one.dataset.copied = "";
      one.after(" ", button(() => one.dataset.copy || one.textContent.trim(), one.dataset.copyLabel || "Copy"));
    }
  }

  document.body.append(status);
  addTo(document);
  document.addEventListener("htmx:afterSwap", () => addTo(document));
})();
