// A conversation as a Markdown file. Headings are for readers; next to each is a marker for import, with a random number
// that occurs in no message, so that a message that looks like such a file stays a message. Files of other programs are
// imported by their headings.
import { textOf } from './answer';
import type { Conversation, Message } from './types';

// Two dashes would end the comment.
const jsonInMarker = (value: unknown) => JSON.stringify(value).replaceAll('--', '-\\u002d');
const markerOf = (number: number, kind: string) => `<!-- zinc:${number} ${kind} -->`;

export function markdownOf(entry: Conversation, list: Message[]): string {
  const texts = list.flatMap((message) => [textOf(message), message.reasoning ?? '', ...(message.toolCalls ?? []).map((call) => call.arguments)]);
  const all = [entry.settings.system ?? '', ...texts].join('\n');
  let number = 1;
  while (all.includes(`<!-- zinc:${number} `)) ++number;
  const parts = [`${markerOf(number, 'conversation')}\n# ${entry.title}\n`];
  const add = (kind: string, heading: string, text: string) => parts.push(`${markerOf(number, kind)}\n## ${heading}\n\n${text}\n`);
  if (entry.settings.system) add('system', 'System', entry.settings.system);
  for (const message of list) {
    const speaker = { user: 'You', assistant: message.model ?? 'Assistant', tool: 'Tool' }[message.role];
    if (message.reasoning) add('thought', `${speaker}, thinking`, message.reasoning);
    const isAnswer = message.role === 'assistant';
    if (message.content || message.attachments || (isAnswer && !message.toolCalls?.length)) {
      add(message.role === 'tool' ? `tool ${jsonInMarker(message.toolCallId ?? '')}` : message.role, speaker, textOf(message));
    }
    for (const call of message.toolCalls ?? []) {
      add(`call ${jsonInMarker({ id: call.id, name: call.name })}`, `${speaker} calls ${call.name}`, `\`\`\`json\n${call.arguments}\n\`\`\``);
    }
  }
  return parts.join('\n');
}

interface Part {
  kind: string;
  attributes: string; // JSON
  heading: string;
  text: string;
}

function partsByMarker(content: string): Part[] {
  const number = /^<!-- zinc:(\d+) conversation -->\n/.exec(content)?.[1];
  if (!number) return [];
  const found = [...content.matchAll(new RegExp(`^<!-- zinc:${number} (\\w+) ?(.*?) -->\\n#+ (.*)\\n\\n?`, 'gm'))];
  return found.map((marker, i) => ({
    kind: marker[1],
    attributes: marker[2],
    heading: marker[3],
    text: content.slice(marker.index + marker[0].length, found[i + 1]?.index ?? content.length).replace(/\n\n?$/, ''),
  }));
}

const kRoles: Record<string, string> = {
  you: 'user', user: 'user', human: 'user', me: 'user', question: 'user', assistant: 'assistant', ai: 'assistant', model: 'assistant',
  bot: 'assistant', chatgpt: 'assistant', claude: 'assistant', answer: 'assistant', system: 'system',
};

// "## User", "**Assistant:**", "### You:" on a line of their own.
function partsByHeading(content: string): Part[] {
  const lines = [...content.matchAll(/^(?:#{1,6} +|\*\*)([A-Za-z]+)(?::?\*\*:?|:?) *$/gm)].filter((line) => line[1].toLowerCase() in kRoles);
  return lines.map((line, i) => ({
    kind: kRoles[line[1].toLowerCase()],
    attributes: '',
    heading: line[1],
    text: content.slice(line.index + line[0].length, lines[i + 1]?.index ?? content.length).trim(),
  }));
}

const parseJson = (json: string): unknown => {
  try {
    return JSON.parse(json);
  } catch {
    return {};
  }
};

// In the schema of the JSON export.
export function conversationOfMarkdown(source: string, name: string): unknown {
  const content = source.replace(/\r\n?/g, '\n');
  const marked = partsByMarker(content);
  const parts = marked.length > 0 ? marked : partsByHeading(content);
  const messages: Record<string, unknown>[] = [];
  let title = /^# +(.+)$/m.exec(content)?.[1] ?? name;
  let system: string | undefined;
  let reasoning: string | undefined;
  const add = (message: Record<string, unknown>) => {
    messages.push({ id: messages.length, parent: messages.length - 1, created: messages.length, ...message });
  };
  for (const part of parts) {
    if (part.kind === 'conversation') title = part.heading;
    else if (part.kind === 'system') system = part.text;
    else if (part.kind === 'thought') reasoning = part.text;
    else if (part.kind === 'user') add({ role: 'user', content: part.text });
    else if (part.kind === 'tool') add({ role: 'tool', content: part.text, toolCallId: parseJson(part.attributes) });
    else if (part.kind === 'assistant') add({ role: 'assistant', content: part.text, reasoning, model: marked.length > 0 ? part.heading : undefined });
    else if (part.kind === 'call') {
      const last = messages.at(-1);
      if (last?.role !== 'assistant') add({ role: 'assistant', content: '', reasoning });
      const call = { ...(parseJson(part.attributes) as object), arguments: part.text.replace(/^```json\n|\n```$/g, '') };
      messages.at(-1)!.toolCalls = [...((messages.at(-1)!.toolCalls as object[]) ?? []), call];
      messages.at(-1)!.finish = 'tool_calls';
    }
    if (part.kind === 'assistant' || part.kind === 'call') reasoning = undefined;
  }
  if (messages.length === 0) throw new Error('no conversation found; expected headings such as “## User” and “## Assistant”');
  return { title, head: messages.length - 1, settings: system ? { system } : {}, messages };
}
