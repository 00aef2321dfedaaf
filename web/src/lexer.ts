// The Markdown lexer with bounded work. A pathological text can be expensive: the lexer searches the whole text for the end
// of every unclosed marker, and recurses for every level of quotes or lists. Beyond these limits markers are literal.
import { Lexer, Tokenizer, type Token, type Tokens, type TokenizerObject } from 'marked';

const kMaxDepth = 50; // nesting of quotes and lists
const kMaxPiece = 2048; // characters of a paragraph within which a marker must close
const kScanBase = 50_000; // scan budget: characters scanned for the end of emphasis, per text
const kScanPerCharacter = 8; // of the text, added to the base

// Where to split a paragraph longer than kMaxPiece: between lines, else sentences, else words.
function endOfPiece(text: string, from: number): number {
  const limit = from + kMaxPiece;
  if (limit >= text.length) return text.length;
  for (const separator of ['\n', '. ', ' ']) {
    const at = text.lastIndexOf(separator, limit - separator.length) + separator.length;
    if (at > from + kMaxPiece / 2) return at;
  }
  return /[\ud800-\udbff]/.test(text[limit - 1]) ? limit - 1 : limit;
}

export class BoundedLexer extends Lexer {
  private depth = 0;
  private scanBudget = 0; // remaining characters to scan

  override lex(text: string) {
    this.scanBudget = kScanBase + kScanPerCharacter * text.length;
    return super.lex(text);
  }

  override blockTokens(text: string, tokens: Token[] = [], isClipped?: boolean): never {
    if (this.depth >= kMaxDepth) {
      tokens.push({ type: 'text', raw: text, text, tokens: this.inline(text) } satisfies Tokens.Text);
      return tokens as never;
    }
    ++this.depth;
    super.blockTokens(text, tokens, isClipped);
    --this.depth;
    return tokens as never;
  }

  override inlineTokens(text: string, tokens: Token[] = []): Token[] {
    for (let at = 0; at < text.length; ) {
      const end = endOfPiece(text, at);
      super.inlineTokens(text.slice(at, end), tokens);
      at = end;
    }
    return tokens;
  }

  findEmphasis(text: string, masked: string, before?: string): Tokens.Em | Tokens.Strong | undefined {
    if (this.scanBudget < 0) return undefined;
    const found = Tokenizer.prototype.emStrong.call(this.options.tokenizer!, text, masked, before);
    this.scanBudget -= found?.raw.length ?? text.length;
    return found;
  }
}

export const boundedTokenizer: TokenizerObject = {
  emStrong(text, masked, before) {
    if (!/^[*_]/.test(text)) return undefined;
    return (this.lexer as BoundedLexer).findEmphasis(text, masked, before);
  },
};
