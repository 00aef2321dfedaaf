// Markdown that streams. A text is cut into blocks; only the last, open one is drawn again while the text grows, and of
// it only the nodes that differ. What a model writes is hostile: markup in it is shown as text, everything that is made
// of it goes through the sanitiser, and nothing is ever fetched.
import DOMPurify from 'dompurify';
import { Lexer, Marked, Parser, type Token, type Tokens } from 'marked';
import { highlight } from './highlight';
import { drawMath, mathExtensions } from './math';

export const escapeHtml = (text: string) =>
  text.replace(/[&<>"']/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' })[c]!);

// Only what a click may open: no scripts, no data, no files.
function safeUrl(text: string): string | null {
  try {
    const url = new URL(text, 'https://relative.invalid');
    if (url.hostname === 'relative.invalid') return null;
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(href: string, inner: string): string {
  const url = safeUrl(href);
  if (!url) return inner;
  const shown = escapeHtml(url);
  return `<a href="${shown}" title="${shown}" target="_blank" rel="noopener noreferrer nofollow">${inner}</a>`;
}

const kFirstHeading = 3; // the page has its own above

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }) => (/^<br\s*\/?>$/i.test(text.trim()) ? '<br>' : escapeHtml(text)),
    image: ({ href, text }) => link(href, `[image: ${escapeHtml(text || href)}]`),
    link({ href, tokens }) {
      return link(href, this.parser.parseInline(tokens));
    },
    heading({ tokens, depth }) {
      const level = Math.min(depth + kFirstHeading - 1, 6);
      return `<h${level} class="h${depth}">${this.parser.parseInline(tokens)}</h${level}>`;
    },
    checkbox: ({ checked }) => (checked ? '☑ ' : '☐ '),
    code({ text, lang }) {
      const name = /^[\w+#.-]+/.exec(lang ?? '')?.[0] ?? '';
      return (
        `<figure class="code"><figcaption><span>${escapeHtml(name || 'text')}</span>` +
        '<button type="button" data-act="wrap" aria-pressed="false">Wrap</button>' +
        '<button type="button" data-act="copy">Copy</button></figcaption>' +
        `<pre tabindex="0"><code data-lang="${escapeHtml(name)}">${escapeHtml(text)}</code></pre></figure>`
      );
    },
    table(token) {
      const row = (cells: Tokens.TableCell[], tag: string) =>
        `<tr>${cells
          .map((cell) => `<${tag}${cell.align ? ` class="to-${cell.align}"` : ''}>${this.parser.parseInline(cell.tokens)}</${tag}>`)
          .join('')}</tr>`;
      return (
        `<div class="table" tabindex="0"><table><thead>${row(token.header, 'th')}</thead>` +
        `<tbody>${token.rows.map((cells) => row(cells, 'td')).join('')}</tbody></table></div>`
      );
    },
  },
  extensions: mathExtensions,
});

const tokenizer = new Lexer(marked.defaults).options.tokenizer!;

const kPolicy = {
  ALLOWED_TAGS: [
    'a', 'b', 'blockquote', 'br', 'button', 'code', 'del', 'div', 'em', 'figcaption', 'figure', 'h3', 'h4', 'h5', 'h6',
    'hr', 'i', 'li', 'ol', 'p', 'pre', 'span', 'strong', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul',
  ],
  ALLOWED_ATTR: [
    'href', 'title', 'target', 'rel', 'class', 'start', 'type', 'tabindex', 'aria-pressed', 'data-act', 'data-lang', 'data-tex',
    'data-display',
  ],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  // The sanitiser takes the value of any attribute for an address unless it is told.
  ADD_URI_SAFE_ATTR: ['target', 'rel', 'start', 'type', 'tabindex', 'aria-pressed', 'data-act', 'data-lang', 'data-tex', 'data-display'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true as const,
};

function fragment(tokens: Token[]): DocumentFragment {
  return DOMPurify.sanitize(new Parser(marked.defaults).parse(tokens), kPolicy);
}

// Makes `old` what `now` is, touching only what differs.
function morph(old: Node, now: Node): void {
  const a = old.childNodes;
  const b = [...now.childNodes];
  for (let i = 0; i < b.length; ++i) {
    const before = a[i];
    if (!before) {
      old.appendChild(b[i]);
    } else if (isSameMath(before, b[i]) || before.isEqualNode(b[i])) {
      continue;
    } else if (before instanceof Text && b[i] instanceof Text) {
      const text = (b[i] as Text).data;
      if (text.startsWith(before.data)) before.appendData(text.slice(before.data.length));
      else before.data = text;
    } else if (before instanceof Element && b[i] instanceof Element && canBecome(before, b[i] as Element)) {
      morph(before, b[i]);
    } else {
      old.replaceChild(b[i], before);
    }
  }
  while (a.length > b.length) old.removeChild(old.lastChild!);
}

function canBecome(old: Element, now: Element): boolean {
  if (old.tagName !== now.tagName || old.classList.contains('math')) return false;
  if (old.tagName === 'CODE' && old.hasAttribute('data-lang')) {
    old.setAttribute('data-lang', now.getAttribute('data-lang') ?? '');
    return true;
  }
  return old.attributes.length === now.attributes.length && [...now.attributes].every(({ name, value }) => old.getAttribute(name) === value);
}

function isSameMath(old: Node, now: Node): boolean {
  return (
    old instanceof HTMLElement && now instanceof HTMLElement && now.classList.contains('math') &&
    old.dataset.tex === now.dataset.tex && old.dataset.display === now.dataset.display
  );
}

// Draws a growing text into `root`, whose children are its blocks.
export class MarkdownView {
  private nSettled = 0; // blocks
  private at = 0; // where in the text the first block that is not settled begins
  private readonly links: Record<string, { href: string; title: string }> = {}; // defined in what is settled
  private shown = '';

  constructor(private readonly root: HTMLElement) {}

  update(source: string, isWhole: boolean): void {
    const text = source.includes('\r') ? source.replace(/\r\n?/g, '\n') : source;
    if (!text.startsWith(this.shown)) this.clear();
    this.shown = text;
    const rest = text.slice(this.at);
    const lexer = new Lexer(marked.defaults);
    lexer.tokens.links = { ...this.links };
    const tokens = lexer.lex(rest);
    const last = tokens.findLastIndex((token) => token.type !== 'space');
    let child = this.nSettled;
    const begin = this.at;
    let at = 0;
    let isFaithful = true; // the lexer changes some white space; from there on it is not known where a block ends
    tokens.forEach((token, i) => {
      at += this.skipDefinitions(rest, at, token);
      isFaithful &&= rest.startsWith(token.raw, at);
      at += token.raw.length;
      const isOpen = !isWhole && (i >= last || !isFaithful);
      if (token.type !== 'space') this.draw(child++, token, !isOpen);
      if (isOpen) return;
      this.nSettled = child;
      this.at = begin + at;
    });
    while (this.root.children.length > child) this.root.lastElementChild!.remove();
    if (isWhole && Object.keys(lexer.tokens.links).length > 0) this.resolveLinks(text);
  }

  // Definitions of links are no tokens; how much of them stands before one.
  private skipDefinitions(rest: string, from: number, token: Token): number {
    let at = from;
    while (!rest.startsWith(token.raw, at)) {
      const found = tokenizer.def(rest.slice(at));
      if (!found) return 0;
      this.links[found.tag] ??= { href: found.href, title: found.title };
      at += found.raw.length;
    }
    return at - from;
  }

  // Links may be defined after they are used. Only at the end it is known to what; only they are drawn again.
  private resolveLinks(text: string): void {
    const blocks = new Lexer(marked.defaults).lex(text).filter((token) => token.type !== 'space');
    if (blocks.length !== this.root.children.length) return;
    blocks.forEach((token, i) => {
      const block = this.root.children[i] as HTMLElement;
      if (!block.querySelector('figure')) morph(block, fragment([token]));
      drawMath(block);
    });
  }

  private draw(index: number, token: Token, settles: boolean): void {
    let block = this.root.children[index] as HTMLElement | undefined;
    if (!block) {
      block = document.createElement('div');
      block.className = 'block';
      this.root.appendChild(block);
    }
    morph(block, fragment([token]));
    drawMath(block);
    if (settles) highlight(block);
  }

  private clear(): void {
    this.root.replaceChildren();
    this.nSettled = 0;
    this.at = 0;
  }
}
