// Formulas: found by the markdown lexer, drawn by KaTeX, which is fetched when the first one appears. One that cannot
// be drawn stays as it was written.
import type { TokenizerAndRendererExtension } from 'marked';

const escapeText = (text: string) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');

interface Shape {
  name: string;
  level: 'block' | 'inline';
  open: string;
  close: string; // looked for first: the rule goes on to the end where there is none
  rule: RegExp;
  isDisplay: boolean;
}

const kShapes: Shape[] = [
  { name: 'blockDollars', level: 'block', open: '$$', close: '$$', rule: /\$\$([^$]+)\$\$[ \t]*(?:\n+|$)/, isDisplay: true },
  { name: 'blockBrackets', level: 'block', open: '\\[', close: '\\]', rule: /\\\[([\s\S]{1,4000}?)\\\][ \t]*(?:\n+|$)/, isDisplay: true },
  { name: 'inlineDisplay', level: 'inline', open: '$$', close: '$$', rule: /\$\$([^$\n]+)\$\$/, isDisplay: true },
  // A price is no formula: no space inside the dollars, no digit behind them.
  { name: 'inlineDollars', level: 'inline', open: '$', close: '$', rule: /\$(?!\s|\$)((?:\\.|[^$\\\n])+?)(?<!\s)\$(?!\d)/, isDisplay: false },
  { name: 'inlineParens', level: 'inline', open: '\\(', close: '\\)', rule: /\\\((.+?)\\\)/, isDisplay: false },
  { name: 'inlineBrackets', level: 'inline', open: '\\[', close: '\\]', rule: /\\\[(.+?)\\\]/, isDisplay: true },
];

// Where the next may begin. A paragraph is cut there, and all that follows looked at anew: only a whole block is worth it.
function startOf({ level, open, close, rule }: Shape, source: string): number | undefined {
  const opened = source.indexOf(open);
  const at = opened < 0 || level === 'inline' ? opened : source.includes(close, opened + open.length) ? source.search(rule) : -1;
  return at < 0 ? undefined : at;
}

const extensionOf = (shape: Shape): TokenizerAndRendererExtension => ({
  name: shape.name,
  level: shape.level,
  start: (source: string) => startOf(shape, source),
  tokenizer(source: string) {
    const indent = shape.level === 'block' ? /^ {0,3}/.exec(source)![0].length : 0;
    if (!source.startsWith(shape.open, indent) || !source.includes(shape.close, indent + shape.open.length)) return undefined;
    const found = new RegExp(shape.rule, 'y').exec(source.slice(indent));
    return found ? { type: shape.name, raw: source.slice(0, indent) + found[0], tex: found[1].trim() } : undefined;
  },
  renderer(token) {
    const tex = escapeText(String(token.tex));
    const tag = shape.level === 'block' ? 'div' : 'span';
    return `<${tag} class="math" data-tex="${tex}"${shape.isDisplay ? ' data-display="1"' : ''}>${tex}</${tag}>`;
  },
});
export const mathExtensions = kShapes.map((shape) => extensionOf(shape));

type Katex = typeof import('katex').default;
let katex: Katex | undefined;
let waiting: Set<HTMLElement> | undefined;

async function load(): Promise<void> {
  const style = document.createElement('link');
  style.rel = 'stylesheet';
  style.href = document.body.dataset.mathStyle!;
  const styled = new Promise((resolve) => (style.onload = style.onerror = resolve));
  document.head.append(style);
  katex = (await import('katex')).default;
  await styled;
  for (const block of waiting!) drawMath(block);
  waiting!.clear();
}

export function drawMath(block: HTMLElement): void {
  const formulas = block.querySelectorAll<HTMLElement>('.math:not([data-drawn])');
  if (formulas.length === 0) return;
  if (!katex) {
    if (!waiting) {
      waiting = new Set();
      load().catch(() => undefined); // formulas stay as they were written
    }
    waiting.add(block);
    return;
  }
  for (const formula of formulas) {
    formula.dataset.drawn = '1';
    const place = document.createElement('span');
    try {
      katex.render(formula.dataset.tex!, place, {
        displayMode: formula.dataset.display === '1',
        throwOnError: true,
        trust: false,
        strict: 'ignore',
        maxSize: 20,
        maxExpand: 300,
      });
      formula.replaceChildren(...place.childNodes);
    } catch {
      formula.classList.add('is-raw');
    }
  }
}
