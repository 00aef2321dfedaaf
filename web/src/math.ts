// Formulas: found by the markdown lexer, drawn by KaTeX, which is fetched when the first one appears. One that cannot
// be drawn stays as it was written.
import type { TokenizerAndRendererExtension } from 'marked';

const escapeText = (text: string) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');

interface Shape {
  name: string;
  level: 'block' | 'inline';
  start: RegExp;
  rule: RegExp;
  isDisplay: boolean;
}

const kShapes: Shape[] = [
  { name: 'blockDollars', level: 'block', start: /\$\$/, rule: /^ {0,3}\$\$([^$]+)\$\$[ \t]*(?:\n+|$)/, isDisplay: true },
  { name: 'blockBrackets', level: 'block', start: /\\\[/, rule: /^ {0,3}\\\[([\s\S]+?)\\\][ \t]*(?:\n+|$)/, isDisplay: true },
  { name: 'inlineDisplay', level: 'inline', start: /\$\$/, rule: /^\$\$([^$\n]+)\$\$/, isDisplay: true },
  // A price is no formula: no space inside the dollars, no digit behind them.
  { name: 'inlineDollars', level: 'inline', start: /\$/, rule: /^\$(?!\s|\$)((?:\\.|[^$\\\n])+?)(?<!\s)\$(?!\d)/, isDisplay: false },
  { name: 'inlineParens', level: 'inline', start: /\\\(/, rule: /^\\\((.+?)\\\)/, isDisplay: false },
  { name: 'inlineBrackets', level: 'inline', start: /\\\[/, rule: /^\\\[(.+?)\\\]/, isDisplay: true },
];

export const mathExtensions: TokenizerAndRendererExtension[] = kShapes.map((shape) => ({
  name: shape.name,
  level: shape.level,
  start: (source: string) => {
    const at = source.search(shape.start);
    return at < 0 ? undefined : at;
  },
  tokenizer(source: string) {
    const found = shape.rule.exec(source);
    return found ? { type: shape.name, raw: found[0], tex: found[1].trim() } : undefined;
  },
  renderer(token) {
    const tex = escapeText(String(token.tex));
    const tag = shape.level === 'block' ? 'div' : 'span';
    return `<${tag} class="math" data-tex="${tex}"${shape.isDisplay ? ' data-display="1"' : ''}>${tex}</${tag}>`;
  },
}));

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
