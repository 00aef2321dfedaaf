// A conversation as a Markdown file. Headings are for people; beside each stands a mark that this page finds again, with
// a number that occurs in no text, so that a text that looks like a file stays a text. Files of other programs are read
// by their headings.
import { textOf } from './answer';
import type { Conversation, Message } from './types';

// Two dashes would end the mark.
const inMark = (value: unknown) => JSON.stringify(value).replaceAll('--', '-\\u002d');
const markOf = (number: number, kind: string) => `<!-- zinc:${number} ${kind} -->`;

export function markdownOf(entry: Conversation, list: Message[]): string {
  const texts = list.flatMap((message) => [textOf(message), message.reasoning ?? '', ...(message.toolCalls ?? []).map((call) => call.arguments)]);
  const all = [entry.settings.system ?? '', ...texts].join('\n');
  let number = 1;
  while (all.includes(`<!-- zinc:${number} `)) ++number;
  const parts = [`${markOf(number, 'conversation')}\n# ${entry.title}\n`];
  const add = (kind: string, heading: string, text: string) => parts.push(`${markOf(number, kind)}\n## ${heading}\n\n${text}\n`);
  if (entry.settings.system) add('system', 'System', entry.settings.system);
  for (const message of list) {
    const who = { user: 'You', assistant: message.model ?? 'Assistant', tool: 'Tool' }[message.role];
    if (message.reasoning) add('thought', `${who}, thinking`, message.reasoning);
    const answers = message.role === 'assistant';
    if (message.content || message.attachments || (answers && !message.toolCalls?.length)) {
      add(message.role === 'tool' ? `tool ${inMark(message.toolCallId ?? '')}` : message.role, who, textOf(message));
    }
    for (const call of message.toolCalls ?? []) {
      add(`call ${inMark({ id: call.id, name: call.name })}`, `${who} calls ${call.name}`, `\`\`\`json\n${call.arguments}\n\`\`\``);
    }
  }
  return parts.join('\n');
}

interface Part {
  kind: string;
  more: string; // JSON
  heading: string;
  text: string;
}

function markedParts(content: string): Part[] {
  const number = /^<!-- zinc:(\d+) conversation -->\n/.exec(content)?.[1];
  if (!number) return [];
  const found = [...content.matchAll(new RegExp(`^<!-- zinc:${number} (\\w+) ?(.*?) -->\\n#+ (.*)\\n\\n?`, 'gm'))];
  return found.map((mark, i) => ({
    kind: mark[1],
    more: mark[2],
    heading: mark[3],
    text: content.slice(mark.index + mark[0].length, found[i + 1]?.index ?? content.length).replace(/\n\n?$/, ''),
  }));
}

const kNames: Record<string, string> = {
  you: 'user', user: 'user', human: 'user', me: 'user', question: 'user', assistant: 'assistant', ai: 'assistant', model: 'assistant',
  bot: 'assistant', chatgpt: 'assistant', claude: 'assistant', answer: 'assistant', system: 'system',
};

// "## User", "**Assistant:**", "### You:" on a line of their own.
function headedParts(content: string): Part[] {
  const lines = [...content.matchAll(/^(?:#{1,6} +|\*\*)([A-Za-z]+)(?::?\*\*:?|:?) *$/gm)].filter((line) => line[1].toLowerCase() in kNames);
  return lines.map((line, i) => ({
    kind: kNames[line[1].toLowerCase()],
    more: '',
    heading: line[1],
    text: content.slice(line.index + line[0].length, lines[i + 1]?.index ?? content.length).trim(),
  }));
}

const read = (json: string): unknown => {
  try {
    return JSON.parse(json);
  } catch {
    return {};
  }
};

// In the form an exported conversation has in JSON.
export function conversationOfMarkdown(source: string, name: string): unknown {
  const content = source.replace(/\r\n?/g, '\n');
  const marked = markedParts(content);
  const parts = marked.length > 0 ? marked : headedParts(content);
  const messages: Record<string, unknown>[] = [];
  let title = /^# +(.+)$/m.exec(content)?.[1] ?? name;
  let system: string | undefined;
  let thought: string | undefined;
  const add = (message: Record<string, unknown>) => {
    messages.push({ id: messages.length, parent: messages.length - 1, created: messages.length, ...message });
  };
  for (const part of parts) {
    if (part.kind === 'conversation') title = part.heading;
    else if (part.kind === 'system') system = part.text;
    else if (part.kind === 'thought') thought = part.text;
    else if (part.kind === 'user') add({ role: 'user', content: part.text });
    else if (part.kind === 'tool') add({ role: 'tool', content: part.text, toolCallId: read(part.more) });
    else if (part.kind === 'assistant') add({ role: 'assistant', content: part.text, reasoning: thought, model: marked.length > 0 ? part.heading : undefined });
    else if (part.kind === 'call') {
      const last = messages.at(-1);
      if (last?.role !== 'assistant') add({ role: 'assistant', content: '', reasoning: thought });
      const call = { ...(read(part.more) as object), arguments: part.text.replace(/^```json\n|\n```$/g, '') };
      messages.at(-1)!.toolCalls = [...((messages.at(-1)!.toolCalls as object[]) ?? []), call];
      messages.at(-1)!.finish = 'tool_calls';
    }
    if (part.kind === 'assistant' || part.kind === 'call') thought = undefined;
  }
  if (messages.length === 0) throw new Error('no conversation was found in it; expected headings such as “## User” and “## Assistant”');
  return { title, head: messages.length - 1, settings: system ? { system } : {}, messages };
}
