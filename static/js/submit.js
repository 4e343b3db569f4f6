// Progressive enhancement of the submit pages: progress of each file, and resumable uploads of large files, which start
// when a file is chosen. Without this script the form is submitted as plain HTML.
(function () {
  "use strict";

  const lists = new Map(); // resumable uploads, by name of the file input
  let sending = null; // the request that submits the form
  let alone = false; // whether the request only checks the chosen files and leaves the rest of the page unchanged

  const form = () => document.querySelector("form[data-uploads]");
  // Read attributes instead of `form().action` or `form().dataset`: fields with these names shadow the properties.
  const bar = () => form().querySelector(".submit-bar > .actions");
  const target = () => new URL(form().getAttribute("action") || "", location.href);
  const part = (name, className, text) => {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text || "";
    return made;
  };
  const size = (bytes) => {
    const units = ["bytes", "KB", "MB", "GB"];
    let power = 0;
    while (bytes >= 1000 && power < 3) { bytes /= 1000; power += 1; }
    return `${power && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[power]}`;
  };
  const share = (sent, whole) => (whole ? Math.floor((100 * sent) / whole) : 100);

  // Create a row with the progress of a file. Screen readers announce each state and every 10 %.
  function row(name, buttons) {
    const box = part("div", "upload");
    const meter = part("progress", "");
    meter.max = 100;
    meter.setAttribute("aria-label", name);
    const said = part("p", "upload-state small");
    const heard = part("p", "visually-hidden");
    heard.setAttribute("role", "status");
    const actions = part("div", "actions");
    for (const [text, act] of buttons) {
      const button = part("button", "button is-small", text);
      button.type = "button";
      button.setAttribute("aria-label", `${text}: ${name}`);
      button.addEventListener("click", act);
      actions.append(button);
    }
    box.append(part("p", "upload-name", name), meter, said, actions, heard);
    let last = "";
    return {
      box,
      show(percent, text, step, state) {
        if (percent === null) meter.removeAttribute("value");
        else meter.value = percent;
        said.textContent = text;
        box.dataset.state = state;
        if (step !== last) heard.textContent = `${name}: ${text}`;
        last = step;
      },
      button(text) { return [...actions.children].find((each) => each.textContent === text); },
    };
  }

  function listOf(input) {
    if (!lists.has(input.name)) lists.set(input.name, { box: part("div", "upload-list"), uploads: [] });
    const list = lists.get(input.name);
    if (list.box.previousElementSibling !== input) input.after(list.box);
    return list;
  }

  const WORDS = {
    starting: () => "Checking for an earlier upload …",
    paused: (upload) => `Paused at ${share(upload.sent, upload.size)}%.`,
    waiting: (upload) => `The connection was lost at ${share(upload.sent, upload.size)}%. Trying again in ${upload.seconds} s.`,
    sending: (upload) => `${share(upload.sent, upload.size)}%, ${size(upload.sent)} of ${size(upload.size)}`,
    done: (upload) => `Uploaded ${size(upload.size)}`,
    failed: (upload) => upload.message,
    cancelled: () => "Canceled.",
  };

  function begin(input, file) {
    const list = listOf(input);
    let upload = null;
    const shown = row(file.name, [
      ["Pause", () => upload.pause()],
      ["Resume", () => upload.resume()],
      ["Cancel", () => { upload.cancel(); drop(); }],
    ]);
    const drop = () => {
      list.uploads = list.uploads.filter((each) => each !== upload);
      shown.box.remove();
      input.value = "";
      allowSubmission(valid);
      input.focus();
    };
    list.box.append(shown.box);
    const changed = (now) => {
      const percent = share(now.sent, now.size);
      shown.show(percent, WORDS[now.state](now), `${now.state}${Math.floor(percent / 10)}`, now.state);
      shown.button("Pause").hidden = !["starting", "sending"].includes(now.state);
      shown.button("Resume").hidden = !["paused", "waiting"].includes(now.state);
      if (sending && sending.waits) submitWhenReady();
    };
    upload = window.resumable(file, {
      address: form().getAttribute("data-uploads"),
      kind: input.dataset.kind,
      token: () => form().elements.csrfmiddlewaretoken.value,
      changed,
    });
    list.uploads.push(upload);
    changed(upload);
  }

  document.addEventListener("change", (event) => {
    const input = event.target;
    if (!(input instanceof HTMLInputElement) || input.type !== "file" || !form() || !form().contains(input)) return;
    const list = listOf(input);
    for (const upload of list.uploads) if (!upload.ended()) upload.pause();
    list.uploads = [];
    list.box.replaceChildren();
    for (const file of input.files) if (file.size > Number(form().getAttribute("data-large"))) begin(input, file);
    // Check chosen or dropped files immediately. The check detects their dataset and stores them.
    if (input.hasAttribute("data-check-at-once") && input.files.length) checkAlone();
  });

  // Required inputs: the selector of the field, and of the inputs that can hold its value. Each page has some of them,
  // because some engines need no model and determine the architecture.
  const REQUIRED = {
    run: ["[data-kind=run]", "[data-kind=run], [name='upload:several']:checked"],
    model: ["#checkpoint", "#checkpoint, [name='upload:checkpoint']:checked, [name=checkpoint_id], [name=hub_model], [name=image]"],
    datasets: ["[name=dataset][type=checkbox]", "[name=dataset]:checked, [name=benchmark]"],
    name: ["[name=new-name]", "[name=new-name]"],
    architecture: ["[name=new-architecture]", "[name=new-architecture]"],
  };
  function missingInputs() {
    const hasValue = (selector) => [...form().querySelectorAll(selector)].some((each) => each.value.trim());
    const names = form() ? Object.keys(REQUIRED) : [];
    return names.filter((name) => form().querySelector(REQUIRED[name][0]) && !hasValue(REQUIRED[name][1]));
  }

  // A file that cannot be scored is not submitted until it, or its dataset, changes. The page has the reason for each
  // word of `data-blocked`.
  let valid = true;
  function allowSubmission(isFileValid) {
    valid = isFileValid;
    const blocked = valid ? missingInputs().join(" ") : "file";
    if (form()) form().setAttribute("data-blocked", blocked);
    for (const button of document.querySelectorAll("form[data-uploads] button[value=submit]")) {
      button.disabled = Boolean(blocked) || button.hasAttribute("data-unready");
    }
  }
  const isValid = () => !document.querySelector("#check-result .is-invalid");
  document.addEventListener("change", (event) => {
    const isNewFile = event.target.matches("input[type=file], input[name^='upload:'], select[data-dataset]");
    allowSubmission(isNewFile || valid);
  });

  // Highlight the zone that a dragged file would be dropped on.
  for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      const zone = event.target.closest && event.target.closest(".drop-zone");
      if (zone) zone.classList.toggle("is-over", name === "dragenter" || name === "dragover");
    });
  }

  function checkAlone() {
    const check = form().querySelector("button[value=check]");
    if (!check || sending) return;
    alone = true;
    form().requestSubmit(check);
  }

  // List the chosen datasets of a model in the summary, with the estimated times.
  function listDatasets() {
    const list = document.querySelector("[data-chosen-datasets]");
    if (!list) return;
    const rows = [...form().querySelectorAll("input[name=dataset]:checked")].map((box) => box.closest("tr"));
    list.replaceChildren(...rows.map((row) => {
      const time = row.cells[2] ? `: ${row.cells[2].textContent.trim()}` : "";
      return part("li", "", row.querySelector("label").firstChild.textContent.trim() + time);
    }));
  }
  document.addEventListener("change", listDatasets);
  listDatasets();

  // Check the files again when the dataset of one of them changes.
  document.addEventListener("change", (event) => {
    const select = event.target;
    if (!form() || !form().contains(select) || !select.matches("select[data-dataset]")) return;
    const row = select.closest(".file-row");
    const input = form().querySelector("[data-check-at-once]");
    if (row ? row.querySelector("input:checked") : input && input.files.length) checkAlone();
  });

  // Select the architecture of an existing system, and hide the fields of a new one.
  function showSystem() {
    const name = form() && form().elements.namedItem("new-name");
    if (!name || !name.list) return;
    const known = [...name.list.options].find((each) => each.value === name.value.trim());
    const architecture = form().elements.namedItem("new-architecture");
    if (known && architecture) architecture.value = known.dataset.architecture;
    form().querySelector("[data-own-system]").hidden = !known;
    for (const each of form().querySelectorAll("[data-new-system]")) each.hidden = each.disabled = Boolean(known);
  }
  document.addEventListener("input", (event) => {
    if (event.target.name === "new-name") showSystem();
    if (form() && form().contains(event.target)) allowSubmission(valid);
  });
  showSystem();
  allowSubmission(isValid());

  // Show the fields that a round requires if a chosen dataset has an open round.
  function showRounds() {
    const rounds = form() && form().querySelector("[data-rounds]");
    if (!rounds) return;
    const chosen = [...form().querySelectorAll("select[data-dataset], input[name=dataset]:checked")].map((each) => each.value);
    rounds.hidden = !rounds.dataset.rounds.split(/\s+/).some((slug) => slug && chosen.includes(slug));
  }
  document.addEventListener("change", showRounds);
  showRounds();

  // Return the form data, with small files themselves and the ids of the uploads of large files.
  function content(submitter) {
    const data = new FormData(form(), submitter);
    for (const [name, list] of lists) {
      const input = form().elements.namedItem(name);
      if (!list.uploads.length || !input) continue;
      data.delete(name);
      for (const file of input.files) {
        if (!list.uploads.some((upload) => upload.file === file)) data.append(name, file);
      }
      const there = data.getAll(`upload:${name}`);
      for (const upload of list.uploads) {
        if (upload.id && !there.includes(upload.id)) data.append(`upload:${name}`, upload.id);
      }
    }
    return data;
  }

  const underWay = () => [...lists.values()].flatMap((list) => list.uploads).filter((upload) => !upload.ended());

  document.addEventListener("submit", (event) => {
    if (event.target !== form()) return;
    event.preventDefault();
    if (sending) {
      if (sending.alone) sending.next = event.submitter; // submit again after the check of the chosen files
      return;
    }
    const shown = row(alone ? "Check" : "This submission", [["Cancel", stop]]);
    const panel = alone && form().querySelector("#check-result");
    if (panel) panel.prepend(shown.box);
    else bar().after(shown.box);
    sending = { shown, alone, submitter: event.submitter, request: null, waits: true };
    alone = false;
    submitWhenReady();
  });

  function submitWhenReady() {
    const waiting = underWay();
    if (waiting.length) {
      const paused = waiting.some((upload) => upload.state === "paused");
      const text = paused ? "An upload above is paused. Resume or cancel it." : "Waiting for the uploads above …";
      return sending.shown.show(null, text, text, "waiting");
    }
    sending.waits = false;
    send();
  }

  function send() {
    const request = new XMLHttpRequest(), { shown } = sending;
    sending.request = request;
    shown.show(0, "Sending …", "sending", "sending");
    request.open("POST", target());
    request.upload.onprogress = (event) => {
      const percent = share(event.loaded, event.total);
      shown.show(percent, `${percent}%, ${size(event.loaded)} of ${size(event.total)}`, `sending${Math.floor(percent / 10)}`, "sending");
    };
    request.upload.onload = () => shown.show(null, "Uploaded. The site is checking it …", "arrived", "starting");
    request.onload = () => answered(request);
    request.onerror = () => {
      end();
      say("The connection was lost, and nothing was submitted. Uploaded files are stored. Send the form again.");
    };
    request.send(content(sending.submitter));
  }

  function stop() {
    if (sending && sending.request) sending.request.abort();
    end();
  }

  function end() {
    if (sending) sending.shown.box.remove();
    sending = null;
  }

  function say(text) {
    const old = form().querySelector(".send-fault");
    if (old) old.remove();
    const notice = part("p", "notice is-error send-fault", text);
    notice.setAttribute("role", "alert");
    bar().after(notice);
  }

  function answered(request) {
    const asked = target();
    const came = new URL(request.responseURL || asked, location.href);
    if (came.pathname !== asked.pathname) {
      for (const list of lists.values()) for (const upload of list.uploads) if (upload.id) upload.forget();
      return location.assign(came);
    }
    const only = sending && sending.alone && form().querySelector("#check-result");
    const next = sending && sending.next;
    end();
    const page = new DOMParser().parseFromString(request.responseText, "text/html").querySelector("main");
    if (!page || !page.querySelector("form[data-uploads]")) {
      const reason = page && page.querySelector("[data-reason]");
      return say(reason ? reason.textContent : `The site answered with status ${request.status}, and nothing was submitted. Try again later.`);
    }
    exchange(page, only);
    if (next && request.status === 200) form().requestSubmit(next);
  }

  // Replace the page or a part of it with the response. Keep the chosen files, which a reload would lose. The response
  // lists the files that the site has stored.
  function exchange(page, only) {
    const chosen = [...form().querySelectorAll("input[type=file]")];
    const main = document.querySelector("main");
    const active = document.activeElement;
    const typing = only && form().contains(active) && active.type !== "file" && active !== main;
    if (only) {
      // Replace the content of the live region, so that screen readers announce it.
      for (const id of ["#step-files", "#check-result"]) {
        form().querySelector(id).replaceChildren(...document.importNode(page.querySelector(id), true).childNodes);
      }
    } else main.replaceChildren(...document.importNode(page, true).childNodes);
    for (const input of chosen) {
      const fresh = form().elements.namedItem(input.name);
      if (!fresh) continue;
      const known = (lists.get(input.name) || { uploads: [] }).uploads.map((upload) => upload.id);
      const kept = [...main.querySelectorAll("input[name^='upload:']:checked")].filter((box) => box.name === `upload:${input.name}`);
      if (kept.some((box) => input.hasAttribute("data-check-at-once") || !known.includes(box.value))) {
        lists.delete(input.name);
        continue;
      }
      fresh.replaceWith(input);
      if (lists.has(input.name)) listOf(input);
    }
    showRounds();
    showSystem();
    showNote();
    listDatasets();
    allowSubmission(isValid());
    const shown = new Set([...lists.values()].flatMap((list) => list.uploads).map((upload) => upload.id));
    for (const box of main.querySelectorAll("input[name^='upload:']")) if (shown.has(box.value)) box.closest(".kept-upload").remove();
    const found = ["#verdict", ".notice.is-error, .notice.is-warning", "h1"].map((each) => main.querySelector(each)).find(Boolean);
    if (typing) {
      const again = active.id && document.getElementById(active.id); // the field, if it was replaced
      if (again && !again.isSameNode(active)) again.focus({ preventScroll: true });
      if (document.activeElement !== document.body) return;
    }
    found.tabIndex = -1;
    found.focus({ preventScroll: true });
    (only ? main.querySelector("#check-result") : found).scrollIntoView({ block: only ? "nearest" : "start" });
  }

  function showNote() {
    const note = document.querySelector("[data-keeps-note]");
    if (note) note.hidden = false;
  }
  showNote();

  // Store the run file of a visitor in the browser while they sign in. The form restores it in the same tab and deletes
  // the copy. Each page with the form deletes a copy that is older than one hour.
  const STORAGE_KEY = "run-before-sign-in";
  const MAX_AGE = 60 * 60 * 1000;
  const input = form() && form().querySelector("[data-check-at-once]");
  const signIn = document.querySelector("[data-keeps-file]");

  // Run `operation` on the store of files, and call `onResult` with the result of its request, or with nothing after an
  // error. This throws where the browser blocks storage.
  function withStore(operation, onResult) {
    const opening = indexedDB.open("runboard", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("files");
    opening.onerror = () => onResult();
    opening.onsuccess = () => {
      const transaction = opening.result.transaction("files", "readwrite");
      let request = null;
      transaction.oncomplete = () => onResult(request && request.result);
      transaction.onabort = () => onResult();
      request = operation(transaction.objectStore("files"));
    };
  }

  function restore(storedRun) {
    const files = new DataTransfer();
    files.items.add(storedRun.file);
    input.files = files.files;
    form().elements.namedItem("dataset").value = storedRun.dataset;
    const text = `Your browser kept ${storedRun.file.name} while you signed in. If it is valid, it is stored for one day.`;
    const notice = part("p", "notice", text);
    notice.setAttribute("role", "status");
    form().before(notice);
    input.dispatchEvent(new Event("change", { bubbles: true }));
  }

  function restoreOrExpire() {
    const isReturning = !signIn && sessionStorage.getItem(STORAGE_KEY);
    if (isReturning) sessionStorage.removeItem(STORAGE_KEY);
    withStore((store) => store.get(STORAGE_KEY), (storedRun) => {
      if (!storedRun) return;
      const isFresh = Date.now() - storedRun.storedAt < MAX_AGE;
      if (isFresh && !isReturning) return;
      withStore((store) => store.delete(STORAGE_KEY), () => isFresh && restore(storedRun));
    });
  }

  try {
    if (input) restoreOrExpire();
  } catch {
    // The browser blocks storage, so there is no copy.
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-keeps-file]");
    const file = link && form().querySelector("[data-check-at-once]").files[0];
    if (!file) return;
    event.preventDefault();
    const leave = () => location.assign(link.href);
    try {
      const storedRun = { file, dataset: form().elements.namedItem("dataset").value, storedAt: Date.now() };
      withStore((store) => store.put(storedRun, STORAGE_KEY), leave);
      sessionStorage.setItem(STORAGE_KEY, "yes");
    } catch {
      leave();
    }
  });
})();
