// Finds the colours of code, on a thread of its own: pieces of the text, each with the class of its colour or none.
import { hljs } from './languages';

export interface Asked {
  id: number;
  language: string;
  text: string;
}
export interface Colored {
  id: number;
  text: string;
  pieces: [name: string, text: string][]; // none: the language is not known
}

const kEntities: Record<string, string> = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#x27;': "'" };
const plain = (text: string) => text.replace(/&(?:amp|lt|gt|quot|#x27);/g, (entity) => kEntities[entity]);

// The library answers with markup; of it only the innermost class around each text is wanted.
function piecesOf(markup: string): Colored['pieces'] {
  const out: Colored['pieces'] = [];
  const open: string[] = [];
  for (const [, name, end, text] of markup.matchAll(/<span class="([\w\s-]*)">|(<\/span>)|([^<]+)/g)) {
    if (name !== undefined) open.push(name);
    else if (end) open.pop();
    else out.push([open.at(-1) ?? '', plain(text)]);
  }
  return out;
}

addEventListener('message', ({ data: { id, language, text } }: MessageEvent<Asked>) => {
  const known = hljs.getLanguage(language);
  const pieces = known ? piecesOf(hljs.highlight(text, { language, ignoreIllegals: true }).value) : [];
  const isTrue = pieces.map(([, part]) => part).join('') === text;
  postMessage({ id, text, pieces: isTrue ? pieces : [] } satisfies Colored);
});
