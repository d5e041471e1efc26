// Keeps the page for use without a network, and isolates it, as threads in the browser need.
// KEPT, the name of this export's cache, is defined by the line that Python puts in front.

self.addEventListener("message", () => self.skipWaiting()); // "take over", from a page that has loaded.
self.addEventListener("activate", (event) => event.waitUntil((async () => {
  for (const name of await caches.keys()) {
    if (name.startsWith("captioner-") && name !== KEPT) await caches.delete(name);
  }
  await clients.claim();
})()));

const isolated = (answer) => {
  if (!answer.ok) return answer; // A redirect cannot be built anew.
  const headers = new Headers(answer.headers);
  headers.set("Cross-Origin-Opener-Policy", "same-origin");
  headers.set("Cross-Origin-Embedder-Policy", "require-corp");
  return new Response(answer.body, { status: answer.status, statusText: answer.statusText, headers });
};

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || !request.url.startsWith(registration.scope)) return;
  event.respondWith((async () => {
    const cache = await caches.open(KEPT);
    const kept = await cache.match(request);
    if (kept) return isolated(kept);
    const answer = await fetch(request, { cache: "no-cache" }); // None of an older export's.
    if (answer.ok) event.waitUntil(cache.put(request, answer.clone()));
    return isolated(answer);
  })());
});
