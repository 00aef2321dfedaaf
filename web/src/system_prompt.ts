// The system prompt that a model's chat template adds by itself, found by rendering a conversation with and without one.
import { applyTemplate } from './api';

const kQuestion = 'zincquestion';
const kMarker = 'zincsystem';
const kMinWords = 4; // fewer are names of roles

const known = new Map<string, Promise<string>>();

// The rest of the text before the question, without control tokens.
function textBefore(prompt: string): string {
  const head = prompt.slice(0, Math.max(0, prompt.indexOf(kQuestion))).replace(/<\|[^|<>]*\|>|<[^<>\s]*>|\[[A-Z_/]+\]/g, '\n');
  const lines = head.split('\n').map((line) => line.trim()).filter((line) => line.split(/\s+/).length >= kMinWords);
  return lines.join('\n');
}

async function find(model: string): Promise<string> {
  const question = { role: 'user', content: kQuestion };
  const { prompt } = await applyTemplate({ model, messages: [question] });
  const marked = await applyTemplate({ model, messages: [{ role: 'system', content: kMarker }, question] }).then((answer) => answer.prompt, () => '');
  const at = marked.indexOf(kMarker);
  const [before, after] = [marked.slice(0, at), marked.slice(at + kMarker.length)];
  const replaces = at >= 0 && prompt.startsWith(before) && prompt.endsWith(after) && prompt.length > before.length + after.length;
  return replaces ? prompt.slice(before.length, prompt.length - after.length).trim() : textBefore(prompt);
}

// Empty: the template adds none.
export function templateSystemPrompt(model: string): Promise<string> {
  const text = known.get(model) ?? find(model);
  known.set(model, text);
  text.catch(() => known.delete(model));
  return text;
}
