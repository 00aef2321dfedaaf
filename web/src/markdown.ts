// Markdown that streams. A text is cut into blocks; only the last, open one is drawn again while the text grows, and of
// it only the nodes that differ. What a model writes is hostile: markup in it is shown as text, everything that is made
// of it goes through the sanitiser, and nothing is ever fetched.
import DOMPurify from 'dompurify';
import { Marked, Parser, type Token, type Tokens } from 'marked';
import { highlight } from './highlight';
import { BoundedLexer, boundedTokenizer } from './lexer';
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
  extensions: mathExtensions,
});

const tokenizer = new BoundedLexer(marked.defaults).options.tokenizer!;

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
    } else if (isSameMath(before, b[i]) || isSameCode(before, b[i]) || before.isEqualNode(b[i])) {
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

// What a reader has set, and what was put on a block that had come to its end, does not count.
const kOwnAttributes = new Set(['data-colored', 'data-drawn']);

function canBecome(old: Element, now: Element): boolean {
  if (old.tagName !== now.tagName || old.classList.contains('math')) return false;
  if (old.tagName === 'CODE' && old.hasAttribute('data-lang')) {
    old.setAttribute('data-lang', now.getAttribute('data-lang') ?? '');
    old.removeAttribute('data-colored');
    return true;
  }
  if (old.hasAttribute('data-act') || old.tagName === 'PRE') return old.getAttribute('data-act') === now.getAttribute('data-act');
  const own = [...old.attributes].filter(({ name }) => !kOwnAttributes.has(name));
  return own.length === now.attributes.length && [...now.attributes].every(({ name, value }) => old.getAttribute(name) === value);
}

const isSameCode = (old: Node, now: Node) =>
  old instanceof HTMLElement && now instanceof HTMLElement && old.tagName === 'CODE' && old.dataset.lang !== undefined &&
  old.dataset.lang === now.dataset.lang && old.textContent === now.textContent;

function isSameMath(old: Node, now: Node): boolean {
  return (
    old instanceof HTMLElement && now instanceof HTMLElement && now.classList.contains('math') &&
    old.dataset.tex === now.dataset.tex && old.dataset.display === now.dataset.display
  );
}

// Whether the first letter is of a script written so. dir="auto" would say it too, and costs 30 ms where code of 4,000
// tokens is coloured: the browser looks again at every change below it.
const kRightToLeft = /^[^\p{L}]*[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

const kSliceMs = 8;
const kLongBlocks = 30; // of more than these, only what is in the window is laid out

// A text on its way to the screen.
interface Job {
  tokens: Token[];
  rest: string; // what they are of
  isWhole: boolean;
  hasLinks: boolean; // defined somewhere
  next: number; // token
  last: number; // token that is not only space
  child: number; // block of the next token
  begin: number; // of `rest` in the text
  at: number; // in `rest`
  isFaithful: boolean; // the lexer changes some white space; from there on it is not known where a block ends
}

// Draws a growing text into `root`, whose children are its blocks. A long one is drawn over several frames, busy meanwhile.
export class MarkdownView {
  private nSettled = 0; // blocks
  private at = 0; // where in the text the first block that is not settled begins
  private readonly links = Object.create(null) as Record<string, { href: string; title: string }>; // defined in what is settled
  private shown = '';
  private place: ParentNode & Node; // where blocks go: aside until the first whole text is done
  private job: Job | null = null;
  private isBroken = false; // something in the text cannot be drawn: it is shown as it was written

  constructor(private readonly root: HTMLElement) {
    this.place = root;
  }

  update(source: string, isWhole: boolean): void {
    const text = source.includes('\r') ? source.replace(/\r\n?/g, '\n') : source;
    if (!text.startsWith(this.shown)) this.clear();
    if (isWhole && this.shown === '' && text) this.drawAside(text);
    this.shown = text;
    this.trying(() => this.begin(text, isWhole));
  }

  private trying(draw: () => void): void {
    try {
      if (!this.isBroken) return draw();
    } catch {
      this.isBroken = true;
    }
    this.job = null;
    this.place = this.root;
    this.root.removeAttribute('aria-busy');
    this.root.textContent = this.shown;
    this.root.classList.add('is-plain');
  }

  private begin(text: string, isWhole: boolean): void {
    const rest = text.slice(this.at);
    const lexer = new BoundedLexer(marked.defaults);
    Object.assign(lexer.tokens.links, this.links); // which has no prototype whose names would be links
    const tokens = lexer.lex(rest);
    const last = tokens.findLastIndex((token) => token.type !== 'space');
    const hasLinks = Object.keys(lexer.tokens.links).length > 0;
    this.job = { tokens, rest, isWhole, hasLinks, next: 0, last, child: this.nSettled, begin: this.at, at: 0, isFaithful: true };
    this.work(this.job, performance.now() + kSliceMs);
  }

  // The plain text stands there until the drawn one takes its place at once.
  private drawAside(text: string): void {
    if (this.place === this.root) this.place = document.createDocumentFragment();
    this.root.textContent = text;
    this.root.classList.add('is-plain');
  }

  private work(job: Job, until: number): void {
    if (job !== this.job) return;
    while (job.next < job.tokens.length) {
      if (performance.now() > until) {
        this.root.setAttribute('aria-busy', 'true');
        setTimeout(() => this.trying(() => this.work(job, performance.now() + kSliceMs)));
        return;
      }
      this.take(job, job.tokens[job.next], job.next);
      ++job.next;
    }
    this.finish(job);
  }

  private take(job: Job, token: Token, i: number): void {
    job.at += this.skipDefinitions(job.rest, job.at, token);
    job.isFaithful &&= job.rest.startsWith(token.raw, job.at);
    job.at += token.raw.length;
    // The last block may go on, even where the text has ended for now.
    const isOpen = i >= job.last || !job.isFaithful;
    if (token.type !== 'space') this.draw(job.child++, token, !isOpen || job.isWhole);
    if (isOpen) return;
    this.nSettled = job.child;
    this.at = job.begin + job.at;
  }

  private finish(job: Job): void {
    this.job = null;
    this.root.removeAttribute('aria-busy');
    while (this.place.children.length > job.child) this.place.lastElementChild!.remove();
    if (this.place !== this.root) {
      this.root.classList.remove('is-plain');
      this.root.classList.toggle('is-long', job.child > kLongBlocks);
      this.root.replaceChildren(this.place);
      this.place = this.root;
      for (const block of this.root.children) highlight(block as HTMLElement);
    }
    if (job.isWhole && job.hasLinks) this.resolveLinks();
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
  private resolveLinks(): void {
    const blocks = new BoundedLexer(marked.defaults).lex(this.shown).filter((token) => token.type !== 'space');
    if (blocks.length !== this.root.children.length) return;
    blocks.forEach((token, i) => {
      if (!/\]\[|\[[^\]]+\](?!\()/.test(token.raw)) return;
      const block = this.root.children[i] as HTMLElement;
      if (!block.querySelector('figure')) morph(block, fragment([token]));
      drawMath(block);
    });
  }

  private draw(index: number, token: Token, settles: boolean): void {
    let block = this.place.children[index] as HTMLElement | undefined;
    if (!block) {
      block = document.createElement('div');
      block.className = 'block';
      this.place.appendChild(block);
    }
    if (token.type !== 'code' && kRightToLeft.test(token.raw)) block.dir = 'rtl';
    morph(block, fragment([token]));
    drawMath(block);
    if (settles && this.place === this.root) highlight(block);
  }

  private clear(): void {
    this.root.replaceChildren();
    this.root.classList.remove('is-plain');
    this.root.removeAttribute('aria-busy');
    this.place = this.root;
    this.job = null;
    this.isBroken = false;
    this.shown = '';
    this.nSettled = 0;
    this.at = 0;
  }
}
