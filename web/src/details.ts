// <details> and <summary>, the only block of HTML that is rendered: models use it to fold long parts. Its content is Markdown;
// attributes are dropped. An element that is not closed yet extends to the end of the text.
import type { Token, TokenizerAndRendererExtension, Tokens } from 'marked';

const kBegin = /^<details(?:\s[^<>]*)?>\s*(?:<summary(?:\s[^<>]*)?>([\s\S]{0,400}?)<\/summary>)?/i;
const kTag = /<(\/?)details(?:\s[^<>]*)?>/gi;

// Where the element ends: at its own closing tag, not that of a nested one.
function endOf(source: string): { content: number; end: number } {
  let depth = 0;
  for (const tag of source.matchAll(kTag)) {
    depth += tag[1] ? -1 : 1;
    if (depth === 0) return { content: tag.index, end: tag.index + tag[0].length };
  }
  return { content: source.length, end: source.length };
}

interface DetailsToken extends Tokens.Generic {
  summary: Token[];
  tokens: Token[];
}

export const detailsExtension: TokenizerAndRendererExtension = {
  name: 'details',
  level: 'block',
  tokenizer(source: string) {
    const begin = kBegin.exec(source);
    if (!begin) return undefined;
    const { content, end } = endOf(source);
    const body = source.slice(begin[0].length, Math.max(begin[0].length, content));
    const token: DetailsToken = { type: 'details', raw: source.slice(0, end) + (/^[ \t]*\n*/.exec(source.slice(end))?.[0] ?? ''), summary: [], tokens: [] };
    this.lexer.inline(begin[1]?.trim() || 'Details', token.summary);
    this.lexer.blockTokens(`${body.trim()}\n`, token.tokens);
    return token;
  },
  renderer(token) {
    const { summary, tokens } = token as DetailsToken;
    return `<details><summary>${this.parser.parseInline(summary)}</summary>${this.parser.parse(tokens)}</details>\n`;
  },
};
