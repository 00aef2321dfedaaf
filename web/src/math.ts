// Formulas: found by the Markdown lexer, rendered by KaTeX, which is loaded on first use. A formula that cannot be rendered
// is displayed as source.
import type { TokenizerAndRendererExtension } from 'marked';

const escapeText = (text: string) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');

interface FormulaSyntax {
  name: string;
  level: 'block' | 'inline';
  open: string;
  close: string; // checked first: without it the regex scans to the end of the text
  rule: RegExp;
  isDisplay: boolean;
}

const kSyntaxes: FormulaSyntax[] = [
  { name: 'blockDollars', level: 'block', open: '$$', close: '$$', rule: /\$\$([^$]+)\$\$[ \t]*(?:\n+|$)/, isDisplay: true },
  { name: 'blockBrackets', level: 'block', open: '\\[', close: '\\]', rule: /\\\[([\s\S]{1,4000}?)\\\][ \t]*(?:\n+|$)/, isDisplay: true },
  { name: 'inlineDisplay', level: 'inline', open: '$$', close: '$$', rule: /\$\$([^$\n]+)\$\$/, isDisplay: true },
  // A price is not a formula: no space inside the dollars, no digit after them.
  { name: 'inlineDollars', level: 'inline', open: '$', close: '$', rule: /\$(?!\s|\$)((?:\\.|[^$\\\n])+?)(?<!\s)\$(?!\d)/, isDisplay: false },
  { name: 'inlineParens', level: 'inline', open: '\\(', close: '\\)', rule: /\\\((.+?)\\\)/, isDisplay: false },
  { name: 'inlineBrackets', level: 'inline', open: '\\[', close: '\\]', rule: /\\\[(.+?)\\\]/, isDisplay: true },
];

// Where the next formula may start. The lexer splits the paragraph there and rescans the rest, so only complete blocks try.
function startOf({ level, open, close, rule }: FormulaSyntax, source: string): number | undefined {
  const opening = source.indexOf(open);
  const at = opening < 0 || level === 'inline' ? opening : source.includes(close, opening + open.length) ? source.search(rule) : -1;
  return at < 0 ? undefined : at;
}

const extensionOf = (syntax: FormulaSyntax): TokenizerAndRendererExtension => ({
  name: syntax.name,
  level: syntax.level,
  start: (source: string) => startOf(syntax, source),
  tokenizer(source: string) {
    const indent = syntax.level === 'block' ? /^ {0,3}/.exec(source)![0].length : 0;
    if (!source.startsWith(syntax.open, indent) || !source.includes(syntax.close, indent + syntax.open.length)) return undefined;
    const found = new RegExp(syntax.rule, 'y').exec(source.slice(indent));
    return found ? { type: syntax.name, raw: source.slice(0, indent) + found[0], tex: found[1].trim() } : undefined;
  },
  renderer(token) {
    const tex = escapeText(String(token.tex));
    const tag = syntax.level === 'block' ? 'div' : 'span';
    return `<${tag} class="math" data-tex="${tex}"${syntax.isDisplay ? ' data-display="1"' : ''}>${tex}</${tag}>`;
  },
});
export const mathExtensions = kSyntaxes.map((syntax) => extensionOf(syntax));

type Katex = typeof import('katex').default;
let katex: Katex | undefined;
let pendingBlocks: Set<HTMLElement> | undefined;

async function load(): Promise<void> {
  const style = document.createElement('link');
  style.rel = 'stylesheet';
  style.href = document.body.dataset.mathStyle!;
  const styleLoaded = new Promise((resolve) => (style.onload = style.onerror = resolve));
  document.head.append(style);
  katex = (await import('katex')).default;
  await styleLoaded;
  for (const block of pendingBlocks!) renderMath(block);
  pendingBlocks!.clear();
}

export function renderMath(block: HTMLElement): void {
  const formulas = block.querySelectorAll<HTMLElement>('.math:not([data-rendered])');
  if (formulas.length === 0) return;
  if (!katex) {
    if (!pendingBlocks) {
      pendingBlocks = new Set();
      load().catch(() => undefined); // formulas are displayed as source
    }
    pendingBlocks.add(block);
    return;
  }
  for (const formula of formulas) {
    formula.dataset.rendered = '1';
    const output = document.createElement('span');
    try {
      katex.render(formula.dataset.tex!, output, {
        displayMode: formula.dataset.display === '1',
        throwOnError: true,
        trust: false,
        strict: 'ignore',
        maxSize: 20,
        maxExpand: 300,
      });
      formula.replaceChildren(...output.childNodes);
    } catch {
      formula.classList.add('is-raw');
    }
  }
}
