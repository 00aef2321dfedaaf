// Conversations as files: JSON, with everything, and Markdown, for people; both can be taken back in.
import * as db from './db';
import { withUnsaved } from './keep';
import { conversationOfMarkdown, markdownOf } from './markdown_file';
import { conversations, newId, openConversation, pathTo, say } from './state';
import type { Attachment, Conversation, Message, Notice, Role, Settings, Timings, TokenChoice, ToolCall, Usage } from './types';

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
  for (const entry of list) out.conversations.push({ ...entry, messages: withUnsaved(entry.id, await db.wholeMessagesOf(entry.id)) });
  const name = list.length === 1 ? fileName(list[0].title) : 'zinc-conversations';
  download(`${name}.json`, 'application/json', JSON.stringify(out, null, 1));
}

export async function exportMarkdown(entry: Conversation): Promise<void> {
  const all = new Map(withUnsaved(entry.id, await db.messagesOf(entry.id)).map((message) => [message.id, message]));
  download(`${fileName(entry.title)}.md`, 'text/markdown', markdownOf(entry, pathTo(all, entry.head)));
}

// A file is from anywhere. What is taken from it are the fields this page knows, where they have the type they should.
type Record_ = Record<string, unknown>;
const isRecord = (value: unknown): value is Record_ => typeof value === 'object' && value !== null && !Array.isArray(value);
const text = (value: unknown) => (typeof value === 'string' ? value : undefined);
const number = (value: unknown) => (typeof value === 'number' && Number.isFinite(value) ? value : undefined);
const records = (value: unknown): Record_[] => (Array.isArray(value) ? value.filter(isRecord) : []);

// Records of numbers that views show; anything missing or of another kind, and there is none.
function figures<T>(value: unknown, names: (keyof T & string)[]): T | undefined {
  return isRecord(value) && names.every((name) => number(value[name]) !== undefined) ? (value as T) : undefined;
}

function noticeOf(value: unknown): Notice | undefined {
  const kinds = ['length', 'context', 'stopped', 'empty', 'lost', 'error'];
  if (!isRecord(value) || !kinds.includes(value.kind as string)) return undefined;
  return { kind: value.kind as Notice['kind'], text: text(value.text) ?? '' };
}

const attachmentsOf = (value: unknown): Attachment[] =>
  records(value).map((file) => ({ name: text(file.name) ?? 'file', text: text(file.text) ?? '' }));
const callsOf = (value: unknown): ToolCall[] =>
  records(value).map((call) => ({ id: text(call.id) ?? '', name: text(call.name) ?? '', arguments: text(call.arguments) ?? '' }));
const choiceOf = (token: Record_) => ({ text: text(token.text) ?? '', p: number(token.p) ?? 0 });
const tokensOf = (value: unknown): TokenChoice[] =>
  records(value).map((token) => ({ ...choiceOf(token), top: records(token.top).map(choiceOf) }));
const orNone = <T>(list: T[]) => (list.length > 0 ? list : undefined);

function messageOf(read: Record_, conversation: string, ids: Map<unknown, string>): Message {
  if (text(read.content) === undefined || !['user', 'assistant', 'tool'].includes(read.role as string)) {
    throw new Error('a message is malformed');
  }
  return {
    id: ids.get(read.id)!,
    conversation,
    parent: ids.get(read.parent) ?? null,
    role: read.role as Role,
    content: text(read.content)!,
    created: number(read.created) ?? 0,
    reasoning: text(read.reasoning),
    reasoningMs: number(read.reasoningMs),
    reasoningTokens: number(read.reasoningTokens),
    attachments: orNone(attachmentsOf(read.attachments)),
    toolCalls: orNone(callsOf(read.toolCalls)),
    toolCallId: text(read.toolCallId),
    model: text(read.model),
    finish: text(read.finish),
    timings: figures<Timings>(read.timings, ['queued_ms', 'prompt_n', 'prompt_ms', 'predicted_n', 'predicted_per_second', 'cache_n']),
    usage: figures<Usage>(read.usage, ['prompt_tokens', 'completion_tokens', 'total_tokens']),
    tokens: orNone(tokensOf(read.tokens)),
    notice: noticeOf(read.notice),
  };
}

// A chain of parents that comes back to itself has no beginning: it is cut there.
function cutCycles(list: Message[]): void {
  const all = new Map(list.map((message) => [message.id, message]));
  for (const message of list) {
    const seen = new Set([message.id]);
    for (let at = message; at.parent; ) {
      const next = all.get(at.parent);
      if (!next || seen.has(next.id)) {
        at.parent = null;
        break;
      }
      seen.add(next.id);
      at = next;
    }
  }
}

const kTexts = ['model', 'system', 'tools'];
const kNumbers = [
  'temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'frequency_penalty', 'presence_penalty', 'seed', 'max_tokens',
  'thinking_budget',
];

function settingsOf(value: unknown): Settings {
  if (!isRecord(value)) return {};
  const out: Record_ = {};
  for (const name of kTexts) if (text(value[name]) !== undefined) out[name] = value[name];
  for (const name of kNumbers) if (number(value[name]) !== undefined) out[name] = value[name];
  for (const name of ['thinking', 'probabilities']) if (typeof value[name] === 'boolean') out[name] = value[name];
  return out;
}

// Added under ids of its own, so that nothing that is here is replaced.
function adopted(read: unknown): [Conversation, Message[]] {
  if (!isRecord(read)) throw new Error('a conversation is malformed');
  const inside = records(read.messages);
  const ids = new Map<unknown, string>(inside.map((message) => [message.id, newId()]));
  const id = newId();
  const list = inside.map((message) => messageOf(message, id, ids));
  cutCycles(list);
  const head = ids.get(read.head) ?? list.at(-1)?.id ?? null;
  const now = Date.now();
  const entry = { id, head, title: text(read.title) || 'Imported', settings: settingsOf(read.settings) };
  return [{ ...entry, created: number(read.created) ?? now, updated: number(read.updated) ?? now }, list];
}

function readJson(content: string): [Conversation, Message[]][] {
  const read: unknown = JSON.parse(content);
  if (!isRecord(read) || read.format !== kFormat || !Array.isArray(read.conversations)) throw new Error('it is no export of this page');
  if ((number(read.version) ?? 0) > kVersion) throw new Error('it was made by a newer version of this page');
  return read.conversations.map(adopted);
}

export async function importFile(file: File): Promise<void> {
  try {
    const content = await file.text();
    const isMarkdown = /\.(md|markdown|txt)$/i.test(file.name);
    const made = isMarkdown ? [adopted(conversationOfMarkdown(content, fileName(file.name.replace(/\.\w+$/, ''))))] : readJson(content);
    await db.save(made.map(([entry]) => entry), made.flatMap(([, list]) => list));
    conversations.value = [...made.map(([entry]) => entry), ...conversations.value];
    if (made.length > 0) await openConversation(made[0][0].id);
    say(`Imported ${made.length} conversation${made.length === 1 ? '' : 's'}`);
  } catch (error) {
    say(`${file.name} could not be imported: ${error instanceof Error ? error.message : String(error)}`);
  }
}
