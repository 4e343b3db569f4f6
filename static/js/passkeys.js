// Shows buttons for passkeys where the browser supports them, and reports the errors of allauth's script.
(() => {
  "use strict";
  const problem = document.querySelector("[data-passkey-problem]");
  const report = (name) => {
    problem.replaceChildren(document.getElementById(`passkey-${name}`).content.cloneNode(true));
  };

  problem.replaceChildren();
  // Passkeys belong to a host name, so browsers refuse addresses such as 127.0.0.1.
  const hasName = !/^\[|^[\d.]+$/.test(location.hostname);
  if (hasName && window.webauthnJSON.supported()) {
    for (const element of document.querySelectorAll("[data-passkey-only]")) element.hidden = false;
  } else if (!("optional" in problem.dataset)) {
    report(hasName ? "unsupported" : "address");
  }
  document.addEventListener("allauth.error", (event) => {
    event.preventDefault();
    report(event.detail.exception.name === "InvalidStateError" ? "known" : "cancelled");
  });
})();
