// Serves the page while the server is away, so that stored conversations can be read. The network always comes first for the
// page itself, so a new version is never hidden; the API is not touched. The build fills in the shell: the page and what it
// loads at once. Other assets (formulas, highlighting) are kept when they are first used; their names contain a hash.
declare const SHELL: string[];
declare const VERSION: string;

// The part of the service worker's types that is used here; TypeScript's "webworker" types exclude those of the page.
interface ExtendableEvent extends Event {
  waitUntil(promise: Promise<unknown>): void;
}
interface FetchEvent extends ExtendableEvent {
  request: Request;
  respondWith(response: Promise<Response>): void;
}
const worker = self as unknown as {
  addEventListener(name: 'install' | 'activate', run: (event: ExtendableEvent) => void): void;
  addEventListener(name: 'fetch', run: (event: FetchEvent) => void): void;
  skipWaiting(): Promise<void>;
  clients: { claim(): Promise<void> };
};

const kCache = `zinc-page-${VERSION}`;
const kPatienceMs = 4000; // a host that sleeps does not refuse connections, it is silent

worker.addEventListener('install', (event) => {
  event.waitUntil(caches.open(kCache).then((cache) => cache.addAll(SHELL)).then(() => worker.skipWaiting()));
});

worker.addEventListener('activate', (event) => {
  const removeOld = async () => {
    for (const name of await caches.keys()) if (name.startsWith('zinc-page-') && name !== kCache) await caches.delete(name);
    await worker.clients.claim();
  };
  event.waitUntil(removeOld());
});

async function pageFromNetwork(request: Request): Promise<Response> {
  const cached = (await caches.open(kCache)).match('/');
  const silence = new Promise<undefined>((resolve) => setTimeout(resolve, kPatienceMs));
  const answer = await Promise.race([fetch(request).catch(() => undefined), silence]);
  return answer ?? (await cached) ?? fetch(request);
}

async function assetFromCache(request: Request): Promise<Response> {
  const cache = await caches.open(kCache);
  const cached = await cache.match(request);
  if (cached) return cached;
  const response = await fetch(request);
  if (response.ok) await cache.put(request, response.clone());
  return response;
}

worker.addEventListener('fetch', (event) => {
  const { method, url } = event.request;
  const { origin, pathname } = new URL(url);
  if (method !== 'GET' || origin !== location.origin) return;
  if (pathname === '/' || pathname === '/chat') event.respondWith(pageFromNetwork(event.request));
  else if (pathname.startsWith('/assets/') || SHELL.includes(pathname)) event.respondWith(assetFromCache(event.request));
});
