// Scripts that run outside the page: web workers and the service worker. Trusted Types accept script URLs only from this
// policy, which knows no others.

// Not supported by every browser, nor by TypeScript's types yet.
interface TrustedTypes {
  createPolicy(name: string, rules: object): { createScriptURL(url: string): string };
}
const { trustedTypes } = window as { trustedTypes?: TrustedTypes };

const kServiceWorker = '/sw.js';
const { highlightWorker, pdfWorker } = document.body.dataset as { highlightWorker: string; pdfWorker: string };
const kUrls = [kServiceWorker, highlightWorker, pdfWorker];
const policy = trustedTypes?.createPolicy('zinc-workers', { createScriptURL: (url: string) => (kUrls.includes(url) ? url : '') });
const trusted = (url: string) => policy?.createScriptURL(url) ?? url;

export const startHighlightWorker = () => new Worker(trusted(highlightWorker), { type: 'module' });
export const startPdfWorker = () => new Worker(trusted(pdfWorker), { type: 'module' });

// With the service worker the page also opens while the server is away. Browsers offer it only in secure contexts
// (localhost or TLS).
export function registerServiceWorker(): void {
  void navigator.serviceWorker?.register(trusted(kServiceWorker)).catch(() => undefined);
}
