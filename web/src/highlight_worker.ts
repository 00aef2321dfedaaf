// Syntax highlighting in a web worker: returns pieces of the text, each with its CSS class or none.
import { hljs } from './languages';

export interface HighlightRequest {
  id: number;
  language: string;
  text: string;
}
export interface HighlightResult {
  id: number;
  text: string;
  pieces: [name: string, text: string][]; // empty: unknown language
}

const kEntities: Record<string, string> = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#x27;': "'" };
const unescapeHtml = (text: string) => text.replace(/&(?:amp|lt|gt|quot|#x27);/g, (entity) => kEntities[entity]);

// The library returns HTML; only the innermost class of each text is used.
function piecesOf(markup: string): HighlightResult['pieces'] {
  const out: HighlightResult['pieces'] = [];
  const open: string[] = [];
  for (const [, name, end, text] of markup.matchAll(/<span class="([\w\s-]*)">|(<\/span>)|([^<]+)/g)) {
    if (name !== undefined) open.push(name);
    else if (end) open.pop();
    else out.push([open.at(-1) ?? '', unescapeHtml(text)]);
  }
  return out;
}

addEventListener('message', ({ data: { id, language, text } }: MessageEvent<HighlightRequest>) => {
  const isKnown = hljs.getLanguage(language) !== undefined;
  const pieces = isKnown ? piecesOf(hljs.highlight(text, { language, ignoreIllegals: true }).value) : [];
  const isLossless = pieces.map(([, part]) => part).join('') === text;
  postMessage({ id, text, pieces: isLossless ? pieces : [] } satisfies HighlightResult);
});
