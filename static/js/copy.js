// Adds a copy button to every code block and to every element with `data-copy`. The button copies the attribute's value
// or, if that is empty, the element's text; for a link with `data-copy-target`, the text that it links to.
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
      await navigator.clipboard.writeText(await text());
      element.textContent = status.textContent = "Copied";
      setTimeout(() => { element.textContent = "Copy"; status.textContent = ""; }, 2000);
    });
    return element;
  }

  // Copy only the commands of a terminal session, without prompts and output.
  function typed(block) {
    const lines = block.textContent.trim().split("\n");
    if (!lines[0].startsWith("$ ")) return lines.join("\n");
    return lines.filter((line) => /^[$>] /.test(line)).map((line) => line.slice(2)).join("\n");
  }

  function addTo(root) {
    for (const block of root.querySelectorAll("pre.code-block:not([data-copied])")) {
      block.dataset.copied = "";
      const frame = document.createElement("div");
      frame.className = "copy-frame";
      block.replaceWith(frame);
      frame.append(block, button(() => typed(block), "Copy this block"));
    }
    for (const one of root.querySelectorAll("[data-copy]:not([data-copied])")) {
      one.dataset.copied = "";
      one.after(" ", button(() => one.dataset.copy || one.textContent.trim(), one.dataset.copyLabel || "Copy"));
    }
    for (const link of root.querySelectorAll("[data-copy-target]:not([data-copied])")) {
      link.dataset.copied = "";
      link.after(" ", button(async () => (await fetch(link.href)).text(), link.dataset.copyTarget));
    }
  }

  document.body.append(status);
  addTo(document);
  document.addEventListener("htmx:afterSwap", () => addTo(document));
})();
