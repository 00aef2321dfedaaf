// The markdown lexer, with bounds. What a model writes may be made to cost: markers that never close are looked for to the
// end of the text each time, and each level of quotes or lists is a call inside a call. Beyond what people write, markers
// stay as they are written.
import { Lexer, Tokenizer, type Token, type Tokens, type TokenizerObject } from 'marked';

const kMaxDepth = 50; // of quotes and lists
const kMaxPiece = 2048; // characters of a paragraph in which a marker finds its end
const kWork = 50_000; // characters looked through for the end of emphasis, and for each character of the text
const kWorkPerCharacter = 8;

// Where a paragraph that is longer than a piece is cut: between lines, else sentences, else words.
function endOfPiece(text: string, from: number): number {
  const most = from + kMaxPiece;
  if (most >= text.length) return text.length;
  for (const mark of ['\n', '. ', ' ']) {
    const at = text.lastIndexOf(mark, most - mark.length) + mark.length;
    if (at > from + kMaxPiece / 2) return at;
  }
  return /[\ud800-\udbff]/.test(text[most - 1]) ? most - 1 : most;
}

export class BoundedLexer extends Lexer {
  private depth = 0;
  private work = 0; // characters that may still be looked through

  override lex(text: string) {
    this.work = kWork + kWorkPerCharacter * text.length;
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
    if (this.work < 0) return undefined;
    const found = Tokenizer.prototype.emStrong.call(this.options.tokenizer!, text, masked, before);
    this.work -= found?.raw.length ?? text.length;
    return found;
  }
}

export const boundedTokenizer: TokenizerObject = {
  emStrong(text, masked, before) {
    if (!/^[*_]/.test(text)) return undefined;
    return (this.lexer as BoundedLexer).findEmphasis(text, masked, before);
  },
};
