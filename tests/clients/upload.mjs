// Uploads a file with the published JavaScript client: node upload.mjs ENDPOINT TOKEN FILE [BREAK_AT]
// With BREAK_AT it stops there, as a closed laptop does, and a second client goes on from the same address.
import { createReadStream, statSync } from "node:fs";
import { createRequire } from "node:module";

const [endpoint, token, path, breakAt] = process.argv.slice(2);
const tus = createRequire(`${process.env.CLIENT_MODULES}/`)("tus-js-client");

const send = (more) => new Promise((resolve, reject) => {
  const upload = new tus.Upload(createReadStream(path), {
    endpoint,
    uploadSize: statSync(path).size,
    chunkSize: 1024 * 1024,
    headers: { Authorization: `Bearer ${token}` },
    metadata: { filename: "from-javascript.txt", kind: "run" },
    retryDelays: [0, 200, 500],
    onError: reject,
    onSuccess: () => resolve(upload),
    ...more(() => { upload.abort(); resolve(upload); }),
  });
  upload.start();
});

let upload = await send((stop) => (breakAt ? { onChunkComplete: (_, sent) => { if (sent >= Number(breakAt)) stop(); } } : {}));
if (breakAt) {
  const { url } = upload;
  upload = await send(() => ({ uploadUrl: url }));
}
console.log(upload.url);
