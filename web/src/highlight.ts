// Colours of code, put on when a block will not change any more. Found on a thread of their own (colors.ts), put on a
// few at a time. Colours only: nothing moves.
import type { Colored } from './colors';

const kMaxChars = 24_000; // longer code stays plain: its layout alone would be a long task
const kSliceMs = 8;

let worker: Worker | null | undefined;
let nAsked = 0;
const waiting = new Map<number, HTMLElement>();

// Not every browser has them, nor does the language know them yet.
interface TrustedTypes {
  createPolicy(name: string, rules: object): { createScriptURL(url: string): string };
}
const { trustedTypes } = window as { trustedTypes?: TrustedTypes };

// The policy takes no address of a script but from here, and here there is one.
function startWorker(): Worker | null {
  try {
    const url = document.body.dataset.colors!;
    const rules = { createScriptURL: (asked: string) => (asked === url ? asked : '') };
    const trusted = trustedTypes?.createPolicy('zinc-colors', rules).createScriptURL(url) ?? url;
    const made = new Worker(trusted, { type: 'module' });
    made.onmessage = (event: MessageEvent<Colored>) => take(event.data);
    made.onerror = () => (worker = null);
    return made;
  } catch {
    return null; // code stays plain
  }
}

export function highlight(block: HTMLElement): void {
  for (const code of block.querySelectorAll<HTMLElement>('pre > code[data-lang]:not([data-colored])')) {
    const text = code.textContent ?? '';
    if (!code.dataset.lang || text.length > kMaxChars) continue;
    code.dataset.colored = '1';
    worker = worker === undefined ? startWorker() : worker;
    if (!worker) return;
    waiting.set(++nAsked, code);
    worker.postMessage({ id: nAsked, language: code.dataset.lang.toLowerCase(), text });
  }
}

function take({ id, text, pieces }: Colored): void {
  const code = waiting.get(id);
  waiting.delete(id);
  if (!code || pieces.length === 0) return;
  const made = document.createDocumentFragment();
  let next = 0;
  const work = () => {
    if (!code.isConnected || code.textContent !== text) return; // it has gone on
    const until = performance.now() + kSliceMs;
    while (next < pieces.length && performance.now() < until) {
      const [name, part] = pieces[next++];
      if (name) {
        const span = document.createElement('span');
        span.className = name;
        span.textContent = part;
        made.append(span);
      } else {
        made.append(part);
      }
    }
    if (next < pieces.length) setTimeout(work);
    else code.replaceChildren(made);
  };
  work();
}
