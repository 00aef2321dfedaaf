// Syntax highlighting, also while a block of code grows. A web worker (highlight_worker.ts) finds the classes; only nodes that
// changed are replaced, in short slices. Only colors change, so the layout does not move.
import type { HighlightResult } from './highlight_worker';
import { startHighlightWorker } from './workers';

const kMaxChars = 24_000; // longer code is not highlighted: its layout alone would be a long task
const kMaxGrowingChars = 6000; // the rest of a longer block is colored once it is complete: thousands of spans are laid out slowly
const kSliceMs = 8;
const kPauseMs = 250; // between two requests for a block that grows

let worker: Worker | null | undefined;
let nRequests = 0;
const pending = new Map<number, HTMLElement>();
const running = new WeakSet<HTMLElement>(); // blocks of code with a request
const complete = new WeakSet<HTMLElement>();

function start(): Worker | null {
  try {
    const started = startHighlightWorker();
    started.onmessage = (event: MessageEvent<HighlightResult>) => applyResult(event.data);
    started.onerror = () => (worker = null);
    return started;
  } catch {
    return null; // without highlighting
  }
}

export function highlight(block: HTMLElement, isComplete: boolean): void {
  for (const code of block.querySelectorAll<HTMLElement>('pre > code[data-lang]:not([data-highlighted])')) {
    if (isComplete) complete.add(code);
    request(code);
  }
}

function request(code: HTMLElement): void {
  const text = code.textContent ?? '';
  const limit = complete.has(code) ? kMaxChars : kMaxGrowingChars;
  if (!code.dataset.lang || text.length > limit || running.has(code)) return;
  worker = worker === undefined ? start() : worker;
  if (!worker) return;
  code.dataset.highlighted = '1';
  running.add(code);
  pending.set(++nRequests, code);
  worker.postMessage({ id: nRequests, language: code.dataset.lang.toLowerCase(), text });
}

// The text may have grown since the request; the new part waits for the next one.
function finish(code: HTMLElement): void {
  setTimeout(() => {
    running.delete(code);
    if (code.isConnected && !code.dataset.highlighted) request(code);
  }, kPauseMs);
}

type Piece = HighlightResult['pieces'][number];
const isSamePiece = (node: ChildNode | undefined, [name, text]: Piece) =>
  node?.textContent === text && (node instanceof HTMLElement ? node.className : '') === name;

function nodeOf([name, text]: Piece): Node {
  if (!name) return document.createTextNode(text);
  const span = document.createElement('span');
  span.className = name;
  span.textContent = text;
  return span;
}

function applyResult({ id, text, pieces }: HighlightResult): void {
  const code = pending.get(id);
  pending.delete(id);
  if (!code) return;
  const fragment = document.createDocumentFragment();
  let first = 0; // piece that differs from what is displayed
  while (first < pieces.length && isSamePiece(code.childNodes[first], pieces[first])) ++first;
  let next = first;
  const applySlice = () => {
    const until = performance.now() + kSliceMs;
    while (next < pieces.length && performance.now() < until) fragment.append(nodeOf(pieces[next++]));
    if (next < pieces.length) return void setTimeout(applySlice);
    const shown = code.textContent ?? '';
    if (code.isConnected && pieces.length > 0 && shown.startsWith(text)) {
      while (code.childNodes.length > first) code.lastChild!.remove();
      code.append(fragment, shown.slice(text.length));
    }
    finish(code);
  };
  applySlice();
}
