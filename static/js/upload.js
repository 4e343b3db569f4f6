// A resumable upload of a file by tus 1.0.0. It resumes automatically after a lost connection, and after a page reload
// when the same file is chosen again. The interface is `resumable(file, options)`.
(function () {
  "use strict";

  const PIECE = 8 * 1024 * 1024;
  const WAITS = [1, 2, 4, 8, 15, 30]; // seconds before each retry; the last value repeats
  const wait = (tries) => WAITS[Math.min(tries, WAITS.length - 1)];

  // Identify a file without reading it, by name, size, and modification time.
  const mark = (file, kind) => `upload:${kind}:${file.name}:${file.size}:${file.lastModified}`;
  const remembered = {
    get(key) { try { return localStorage.getItem(key); } catch { return null; } },
    set(key, value) { try { localStorage.setItem(key, value); } catch { /* the upload cannot be resumed after a reload */ } },
    drop(key) { try { localStorage.removeItem(key); } catch { /* storage is not available */ } },
  };
  const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));

  // Return the message of an error response for the user.
  function reason(answer) {
    try {
      const told = JSON.parse(answer.responseText);
      const hint = (told.problems || []).map((problem) => problem.hint).filter(Boolean)[0];
      return [told.detail, hint].filter(Boolean).join(" ");
    } catch {
      return `The site answered with status ${answer.status}. Try again later.`;
    }
  }

  // `options`: address (endpoint that creates uploads), token (CSRF), kind, changed(upload).
  function resumable(file, options) {
    const key = mark(file, options.kind);
    const upload = { file, state: "starting", sent: 0, size: file.size, id: "", message: "", seconds: 0 };
    let url = remembered.get(key), asked = null, timer = 0, tries = 0;

    const tell = (state, message) => {
      upload.state = state;
      upload.message = message || "";
      options.changed(upload);
    };
    const ended = () => ["done", "failed", "cancelled"].includes(upload.state);

    function ask(method, address, headers, body, answered) {
      asked = new XMLHttpRequest();
      asked.open(method, address);
      const all = { "Tus-Resumable": "1.0.0", "X-CSRFToken": options.token(), ...headers };
      for (const [name, value] of Object.entries(all)) asked.setRequestHeader(name, value);
      const before = upload.sent;
      asked.upload.onprogress = (event) => {
        if (body && upload.state === "sending") { upload.sent = before + event.loaded; tell("sending"); }
      };
      asked.onload = () => answered(asked);
      asked.onerror = again;
      asked.send(body || null);
    }

    // Retry later after a lost connection or if the site is busy.
    function again() {
      if (upload.state === "paused" || ended()) return;
      upload.seconds = wait(tries++);
      tell("waiting");
      timer = setTimeout(start, upload.seconds * 1000);
    }

    function refused(answer) {
      if (answer.status === 0 || answer.status === 409 || answer.status === 423 || answer.status >= 500) return again();
      if (url && (answer.status === 404 || answer.status === 410)) {
        remembered.drop(key); // the upload was discarded or belongs to another user
        url = null;
        upload.sent = 0;
        return start();
      }
      tell("failed", reason(answer));
    }

    function start() {
      clearTimeout(timer);
      if (upload.state === "paused" || ended()) return;
      if (url) return ask("HEAD", url, {}, null, resume);
      const metadata = `filename ${base64(file.name.slice(0, 200))},kind ${base64(options.kind)}`;
      ask("POST", options.address, { "Upload-Length": String(file.size), "Upload-Metadata": metadata }, null, (answer) => {
        if (answer.status !== 201) return refused(answer);
        // Use this page's origin: the site may have another name behind a proxy.
        url = new URL(answer.getResponseHeader("Location"), location.href).pathname;
        remembered.set(key, url);
        send();
      });
    }

    function resume(answer) {
      if (answer.status !== 200) return refused(answer);
      if (Number(answer.getResponseHeader("Upload-Length")) !== file.size) {
        remembered.drop(key);
        url = null;
        return start();
      }
      upload.sent = Number(answer.getResponseHeader("Upload-Offset"));
      send();
    }

    function send() {
      if (upload.state === "paused" || ended()) return;
      if (upload.sent >= file.size) return finish();
      tell("sending");
      const offset = upload.sent;
      const headers = { "Content-Type": "application/offset+octet-stream", "Upload-Offset": String(offset) };
      ask("PATCH", url, headers, file.slice(offset, offset + PIECE), (answer) => {
        if (answer.status !== 204) return refused(answer);
        tries = 0;
        upload.sent = Number(answer.getResponseHeader("Upload-Offset"));
        send();
      });
    }

    function finish() {
      upload.id = url.split("/").filter(Boolean).pop();
      tell("done");
    }

    const stop = (state) => {
      clearTimeout(timer);
      tell(state);
      if (asked) asked.abort();
    };
    upload.pause = () => { if (!ended()) stop("paused"); };
    upload.resume = () => { if (upload.state === "paused" || upload.state === "waiting") { upload.state = "starting"; tries = 0; start(); } };
    upload.cancel = () => {
      stop("cancelled");
      remembered.drop(key);
      if (!url) return;
      const gone = new XMLHttpRequest();
      gone.open("DELETE", url);
      gone.setRequestHeader("Tus-Resumable", "1.0.0");
      gone.setRequestHeader("X-CSRFToken", options.token());
      gone.send();
    };
    upload.ended = ended;
    upload.forget = () => remembered.drop(key);
    window.addEventListener("online", () => { if (upload.state === "waiting") upload.resume(); });
    start();
    return upload;
  }

  window.resumable = resumable;
})();
