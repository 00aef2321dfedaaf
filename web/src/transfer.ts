// Conversations as files: JSON, which can be taken back in, and Markdown, for people.
import * as db from './db';
import { conversations, newId, openConversation, pathTo, toast } from './state';
import { textOf } from './answer';
import type { Conversation, Message } from './types';

const kFormat = 'zinc-conversations';
const kVersion = 1;

interface Exported {
  format: string;
  version: number;
  conversations: (Conversation & { messages: Message[] })[];
}

function download(name: string, type: string, text: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const fileName = (title: string) => title.replace(/[^\p{L}\p{N} _-]/gu, '').trim().slice(0, 60) || 'conversation';

export async function exportJson(list: Conversation[]): Promise<void> {
  const out: Exported = { format: kFormat, version: kVersion, conversations: [] };
  for (const entry of list) out.conversations.push({ ...entry, messages: await db.messagesOf(entry.id) });
  const name = list.length === 1 ? fileName(list[0].title) : 'zinc-conversations';
  download(`${name}.json`, 'application/json', JSON.stringify(out, null, 1));
}

export async function exportMarkdown(entry: Conversation): Promise<void> {
  const all = new Map((await db.messagesOf(entry.id)).map((message) => [message.id, message]));
  const parts = [`# ${entry.title}\n`];
  if (entry.settings.system) parts.push(`## System\n\n${entry.settings.system}\n`);
  for (const message of pathTo(all, entry.head)) {
    const who = { user: 'You', assistant: message.model ?? 'Assistant', tool: 'Tool' }[message.role];
    if (message.reasoning) parts.push(`## ${who}, thinking\n\n${message.reasoning}\n`);
    for (const call of message.toolCalls ?? []) parts.push(`## ${who} calls ${call.name}\n\n\`\`\`json\n${call.arguments}\n\`\`\`\n`);
    if (message.content || message.attachments) parts.push(`## ${who}\n\n${textOf(message)}\n`);
  }
  download(`${fileName(entry.title)}.md`, 'text/markdown', parts.join('\n'));
}

const isText = (value: unknown): value is string => typeof value === 'string';

// What is in the file is added under ids of its own, so that nothing that is here is replaced.
function adopted(entry: Conversation & { messages: Message[] }): [Conversation, Message[]] {
  const ids = new Map(entry.messages.map((message) => [message.id, newId()]));
  const id = newId();
  const list = entry.messages.map((message) => {
    if (!isText(message.content) || !['user', 'assistant', 'tool'].includes(message.role)) throw new Error('a message is malformed');
    const parent = message.parent === null ? null : (ids.get(message.parent) ?? null);
    return { ...message, id: ids.get(message.id)!, conversation: id, parent, writing: false };
  });
  const head = entry.head === null ? null : (ids.get(entry.head) ?? list.at(-1)?.id ?? null);
  const { messages: _, ...rest } = entry;
  return [{ ...rest, id, head, title: String(entry.title), settings: entry.settings ?? {} }, list];
}

export async function importJson(file: File): Promise<void> {
  try {
    const read = JSON.parse(await file.text()) as Exported;
    if (read.format !== kFormat) throw new Error('it is no export of this page');
    if (read.version > kVersion) throw new Error('it was made by a newer version of this page');
    const made = read.conversations.map(adopted);
    await db.save(made.map(([entry]) => entry), made.flatMap(([, list]) => list));
    conversations.value = [...made.map(([entry]) => entry), ...conversations.value];
    if (made.length > 0) await openConversation(made[0][0].id);
    toast.value = { text: `Imported ${made.length} conversation${made.length === 1 ? '' : 's'}` };
  } catch (error) {
    toast.value = { text: `${file.name} could not be imported: ${error instanceof Error ? error.message : String(error)}` };
  }
}
