// Applies syntax highlighting once a code block is complete. A web worker (highlight_worker.ts) finds the classes; they are
// applied in short slices. Only colors change, so the layout does not move.
import type { HighlightResult } from './highlight_worker';

const kMaxChars = 24_000; // longer code is not highlighted: its layout alone would be a long task
const kSliceMs = 8;

let worker: Worker | null | undefined;
let nRequests = 0;
const pending = new Map<number, HTMLElement>();

// Not supported by every browser, nor by TypeScript's types yet.
interface TrustedTypes {
  createPolicy(name: string, rules: object): { createScriptURL(url: string): string };
}
const { trustedTypes } = window as { trustedTypes?: TrustedTypes };

// Trusted Types accept script URLs only from this policy, which knows a single one.
function startWorker(): Worker | null {
  try {
    const url = document.body.dataset.highlightWorker!;
    const rules = { createScriptURL: (requested: string) => (requested === url ? requested : '') };
    const trusted = trustedTypes?.createPolicy('zinc-colors', rules).createScriptURL(url) ?? url;
    const started = new Worker(trusted, { type: 'module' });
    started.onmessage = (event: MessageEvent<HighlightResult>) => applyResult(event.data);
    started.onerror = () => (worker = null);
    return started;
  } catch {
    return null; // without highlighting
  }
}

export function highlight(block: HTMLElement): void {
  for (const code of block.querySelectorAll<HTMLElement>('pre > code[data-lang]:not([data-highlighted])')) {
    const text = code.textContent ?? '';
    if (!code.dataset.lang || text.length > kMaxChars) continue;
    code.dataset.highlighted = '1';
    worker = worker === undefined ? startWorker() : worker;
    if (!worker) return;
    pending.set(++nRequests, code);
    worker.postMessage({ id: nRequests, language: code.dataset.lang.toLowerCase(), text });
  }
}

function applyResult({ id, text, pieces }: HighlightResult): void {
  const code = pending.get(id);
  pending.delete(id);
  if (!code || pieces.length === 0) return;
  const fragment = document.createDocumentFragment();
  let next = 0;
  const applySlice = () => {
    if (!code.isConnected || code.textContent !== text) return; // the block changed in the meantime
    const until = performance.now() + kSliceMs;
    while (next < pieces.length && performance.now() < until) {
      const [name, part] = pieces[next++];
      if (name) {
        const span = document.createElement('span');
        span.className = name;
        span.textContent = part;
        fragment.append(span);
      } else {
        fragment.append(part);
      }
    }
    if (next < pieces.length) setTimeout(applySlice);
    else code.replaceChildren(fragment);
  };
  applySlice();
}
