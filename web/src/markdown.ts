// Streaming Markdown. The text is split into blocks; only the last, open block is rendered again while the text grows, and
// only its changed DOM nodes. The model's output is untrusted: HTML in it is displayed as text, all generated markup passes
// the sanitizer, and no resource is ever loaded.
import DOMPurify from 'dompurify';
import { Marked, Parser, type Token, type Tokens } from 'marked';
import { highlight } from './highlight';
import { BoundedLexer, boundedTokenizer } from './lexer';
import { detailsExtension } from './details';
import { renderMath, mathExtensions } from './math';

export const escapeHtml = (text: string) =>
  text.replace(/[&<>"']/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' })[c]!);

// Link schemes that may open: no scripts, data or files.
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
  const address = escapeHtml(url);
  return `<a href="${address}" title="${address}" target="_blank" rel="noopener noreferrer nofollow">${inner}</a>`;
}

const kFirstHeading = 3; // the page uses the levels above

const marked = new Marked({
  gfm: true,
  tokenizer: boundedTokenizer,
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
  extensions: [...mathExtensions, detailsExtension],
});

const tokenizer = new BoundedLexer(marked.defaults).options.tokenizer!;

const kSanitizerOptions = {
  ALLOWED_TAGS: [
    'a', 'b', 'blockquote', 'br', 'button', 'code', 'del', 'details', 'div', 'em', 'figcaption', 'figure', 'h3', 'h4', 'h5', 'h6',
    'hr', 'i', 'li', 'ol', 'p', 'pre', 'span', 'strong', 'summary', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul',
  ],
  ALLOWED_ATTR: [
    'href', 'title', 'target', 'rel', 'class', 'start', 'type', 'tabindex', 'aria-pressed', 'data-act', 'data-lang', 'data-tex',
    'data-display',
  ],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  // The sanitizer treats every attribute value as a URL unless configured.
  ADD_URI_SAFE_ATTR: ['target', 'rel', 'start', 'type', 'tabindex', 'aria-pressed', 'data-act', 'data-lang', 'data-tex', 'data-display'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true as const,
};

function fragment(tokens: Token[]): DocumentFragment {
  return DOMPurify.sanitize(new Parser(marked.defaults).parse(tokens), kSanitizerOptions);
}

// Patches `old` to equal `now`, changing only nodes that differ.
function morph(old: Node, next: Node): void {
  const a = old.childNodes;
  const b = [...next.childNodes];
  for (let i = 0; i < b.length; ++i) {
    const before = a[i];
    if (!before) {
      old.appendChild(b[i]);
    } else if (isSameMath(before, b[i]) || isSameCode(before, b[i]) || before.isEqualNode(b[i])) {
      continue;
    } else if (isGrownCode(before, b[i])) {
      growCode(before as HTMLElement, b[i] as HTMLElement);
    } else if (before instanceof Text && b[i] instanceof Text) {
      const text = (b[i] as Text).data;
      if (text.startsWith(before.data)) before.appendData(text.slice(before.data.length));
      else before.data = text;
    } else if (before instanceof Element && b[i] instanceof Element && canMorph(before, b[i] as Element)) {
      morph(before, b[i]);
    } else {
      old.replaceChild(b[i], before);
    }
  }
  while (a.length > b.length) old.removeChild(old.lastChild!);
}

// Ignores attributes set by the reader or by highlighting of complete blocks.
const kOwnAttributes = new Set(['data-highlighted', 'data-rendered', 'open']);

function canMorph(old: Element, next: Element): boolean {
  if (old.tagName !== next.tagName || old.classList.contains('math')) return false;
  if (old.tagName === 'CODE' && old.hasAttribute('data-lang')) {
    old.setAttribute('data-lang', next.getAttribute('data-lang') ?? '');
    old.removeAttribute('data-highlighted');
    return true;
  }
  if (old.hasAttribute('data-act') || old.tagName === 'PRE') return old.getAttribute('data-act') === next.getAttribute('data-act');
  const own = [...old.attributes].filter(({ name }) => !kOwnAttributes.has(name));
  return own.length === next.attributes.length && [...next.attributes].every(({ name, value }) => old.getAttribute(name) === value);
}

const isSameCode = (old: Node, next: Node) =>
  old instanceof HTMLElement && next instanceof HTMLElement && old.tagName === 'CODE' && old.dataset.lang !== undefined &&
  old.dataset.lang === next.dataset.lang && old.textContent === next.textContent;

const isGrownCode = (old: Node, next: Node) =>
  old instanceof HTMLElement && next instanceof HTMLElement && old.tagName === 'CODE' && next.tagName === 'CODE' && old.dataset.lang !== undefined &&
  old.dataset.lang === next.dataset.lang && (next.textContent ?? '').startsWith(old.textContent ?? '');

// Appends, so that the colors of the earlier text stay.
function growCode(old: HTMLElement, next: HTMLElement): void {
  const added = next.textContent!.slice(old.textContent!.length);
  if (old.lastChild instanceof Text) old.lastChild.appendData(added);
  else old.append(added);
  old.removeAttribute('data-highlighted');
}

function isSameMath(old: Node, next: Node): boolean {
  return (
    old instanceof HTMLElement && next instanceof HTMLElement && next.classList.contains('math') &&
    old.dataset.tex === next.dataset.tex && old.dataset.display === next.dataset.display
  );
}

// Whether the first letter belongs to a right-to-left script. dir="auto" would do the same but costs 30 ms when code of
// 4,000 tokens is highlighted: the browser re-evaluates it at every change below.
const kRightToLeft = /^[^\p{L}]*[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

const kSliceMs = 8;
const kLongBlocks = 30; // above this, only visible blocks are laid out

// A text being rendered.
interface Job {
  tokens: Token[];
  rest: string; // the lexed text
  isComplete: boolean;
  hasLinks: boolean; // link definitions exist
  next: number; // token
  last: number; // last token that is not white space
  child: number; // block of the next token
  begin: number; // of `rest` in the text
  at: number; // in `rest`
  hasExactOffsets: boolean; // false once the lexer has normalized white space and block offsets are unknown
}

// Renders a growing text into `root`, one child per block. Long texts take several frames; aria-busy is set until the last.
export class MarkdownView {
  private nFinished = 0; // blocks
  private offset = 0; // offset of the first block that may still change
  private readonly links = Object.create(null) as Record<string, { href: string; title: string }>; // defined in finished blocks
  private text = '';
  private container: ParentNode & Node; // parent of the blocks: detached until the first complete render
  private job: Job | null = null;
  private isBroken = false; // rendering failed: the text is displayed as plain text

  constructor(private readonly root: HTMLElement) {
    this.container = root;
  }

  update(source: string, isComplete: boolean): void {
    const text = source.includes('\r') ? source.replace(/\r\n?/g, '\n') : source;
    if (!text.startsWith(this.text)) this.clear();
    if (isComplete && this.text === '' && text) this.renderDetached(text);
    this.text = text;
    this.orPlainText(() => this.startJob(text, isComplete));
  }

  private orPlainText(render: () => void): void {
    try {
      if (!this.isBroken) return render();
    } catch {
      this.isBroken = true;
    }
    this.job = null;
    this.container = this.root;
    this.root.removeAttribute('aria-busy');
    this.root.textContent = this.text;
    this.root.classList.add('is-plain');
  }

  private startJob(text: string, isComplete: boolean): void {
    const rest = text.slice(this.offset);
    const lexer = new BoundedLexer(marked.defaults);
    Object.assign(lexer.tokens.links, this.links); // no prototype, whose property names would match as links
    const tokens = lexer.lex(rest);
    const last = tokens.findLastIndex((token) => token.type !== 'space');
    const hasLinks = Object.keys(lexer.tokens.links).length > 0;
    this.job = { tokens, rest, isComplete, hasLinks, next: 0, last, child: this.nFinished, begin: this.offset, at: 0, hasExactOffsets: true };
    this.renderSlice(this.job, performance.now() + kSliceMs);
  }

  // The plain text is displayed until the rendered one replaces it in one step.
  private renderDetached(text: string): void {
    if (this.container === this.root) this.container = document.createDocumentFragment();
    this.root.textContent = text;
    this.root.classList.add('is-plain');
  }

  private renderSlice(job: Job, until: number): void {
    if (job !== this.job) return;
    while (job.next < job.tokens.length) {
      if (performance.now() > until) {
        this.root.setAttribute('aria-busy', 'true');
        setTimeout(() => this.orPlainText(() => this.renderSlice(job, performance.now() + kSliceMs)));
        return;
      }
      this.renderToken(job, job.tokens[job.next], job.next);
      ++job.next;
    }
    this.finish(job);
  }

  private renderToken(job: Job, token: Token, i: number): void {
    job.at += this.skipDefinitions(job.rest, job.at, token);
    job.hasExactOffsets &&= job.rest.startsWith(token.raw, job.at);
    job.at += token.raw.length;
    // The last block may continue, even if the text ends here for now.
    const isOpen = i >= job.last || !job.hasExactOffsets;
    if (token.type !== 'space') this.renderBlock(job.child++, token, !isOpen || job.isComplete);
    if (isOpen) return;
    this.nFinished = job.child;
    this.offset = job.begin + job.at;
  }

  private finish(job: Job): void {
    this.job = null;
    this.root.removeAttribute('aria-busy');
    while (this.container.children.length > job.child) this.container.lastElementChild!.remove();
    if (this.container !== this.root) {
      this.root.classList.remove('is-plain');
      this.root.classList.toggle('is-long', job.child > kLongBlocks);
      this.root.replaceChildren(this.container);
      this.container = this.root;
      for (const block of this.root.children) highlight(block as HTMLElement, true);
    }
    if (job.isComplete && job.hasLinks) this.resolveLinks();
  }

  // Link definitions are not tokens; the length of definitions before a token.
  private skipDefinitions(rest: string, from: number, token: Token): number {
    let at = from;
    while (!rest.startsWith(token.raw, at)) {
      const definition = tokenizer.def(rest.slice(at));
      if (!definition) return 0;
      this.links[definition.tag] ??= { href: definition.href, title: definition.title };
      at += definition.raw.length;
    }
    return at - from;
  }

  // Links may be defined after their use; at the end, blocks with such links are rendered again.
  private resolveLinks(): void {
    const blocks = new BoundedLexer(marked.defaults).lex(this.text).filter((token) => token.type !== 'space');
    if (blocks.length !== this.root.children.length) return;
    blocks.forEach((token, i) => {
      if (!/\]\[|\[[^\]]+\](?!\()/.test(token.raw)) return;
      const block = this.root.children[i] as HTMLElement;
      if (!block.querySelector('figure')) morph(block, fragment([token]));
      renderMath(block);
    });
  }

  private renderBlock(index: number, token: Token, isFinal: boolean): void {
    let block = this.container.children[index] as HTMLElement | undefined;
    if (!block) {
      block = document.createElement('div');
      block.className = 'block';
      this.container.appendChild(block);
    }
    if (token.type !== 'code' && kRightToLeft.test(token.raw)) block.dir = 'rtl';
    morph(block, fragment([token]));
    renderMath(block);
    if (this.container === this.root) highlight(block, isFinal);
  }

  private clear(): void {
    this.root.replaceChildren();
    this.root.classList.remove('is-plain');
    this.root.removeAttribute('aria-busy');
    this.container = this.root;
    this.job = null;
    this.isBroken = false;
    this.text = '';
    this.nFinished = 0;
    this.offset = 0;
  }
}
