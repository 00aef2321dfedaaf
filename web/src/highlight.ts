// Colours of code, put on when the browser has time and the block will not change any more. Colours only: nothing moves.
import DOMPurify from 'dompurify';
import type { HLJSApi } from 'highlight.js';

const kMaxChars = 40_000; // longer code stays plain
let loaded: Promise<HLJSApi> | undefined;
const waiting: HTMLElement[] = [];
let isScheduled = false;

const idle: (run: () => void) => void =
  'requestIdleCallback' in window ? (run) => requestIdleCallback(run, { timeout: 2000 }) : (run) => setTimeout(run, 50);

export function highlight(block: HTMLElement): void {
  for (const code of block.querySelectorAll<HTMLElement>('pre > code[data-lang]:not([data-colored])')) {
    if (!code.dataset.lang) continue;
    code.dataset.colored = '1';
    waiting.push(code);
  }
  if (waiting.length > 0) schedule();
}

function schedule(): void {
  if (isScheduled) return;
  isScheduled = true;
  idle(() => {
    isScheduled = false;
    loaded ??= import('./languages').then((module) => module.hljs);
    void loaded.then(colorNext, () => waiting.splice(0));
  });
}

function colorNext(hljs: HLJSApi): void {
  const code = waiting.shift();
  const language = code?.dataset.lang?.toLowerCase();
  const text = code?.textContent ?? '';
  if (code?.isConnected && language && text.length <= kMaxChars && hljs.getLanguage(language)) {
    const html = hljs.highlight(text, { language, ignoreIllegals: true }).value;
    code.replaceChildren(DOMPurify.sanitize(html, { ALLOWED_TAGS: ['span'], ALLOWED_ATTR: ['class'], RETURN_DOM_FRAGMENT: true }));
  }
  if (waiting.length > 0) schedule();
}
