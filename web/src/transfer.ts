// Export and import: JSON (complete) and Markdown (readable).
import * as db from './db';
import { withPendingWrites } from './persist';
import { conversationOfMarkdown, markdownOf } from './markdown_file';
import { conversations, newId, openConversation, pathTo, showToast, titleOf } from './state';
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
  for (const entry of list) out.conversations.push({ ...entry, messages: withPendingWrites(entry.id, await db.messagesWithTokens(entry.id)) });
  const name = list.length === 1 ? fileName(list[0].title) : 'zinc-conversations';
  download(`${name}.json`, 'application/json', JSON.stringify(out, null, 1));
}

export async function exportMarkdown(entry: Conversation): Promise<void> {
  const all = new Map(withPendingWrites(entry.id, await db.messagesOf(entry.id)).map((message) => [message.id, message]));
  download(`${fileName(entry.title)}.md`, 'text/markdown', markdownOf(entry, pathTo(all, entry.head)));
}

// Imported files are untrusted: only known fields of the right type are accepted.
type JsonObject = Record<string, unknown>;
const isRecord = (value: unknown): value is JsonObject => typeof value === 'object' && value !== null && !Array.isArray(value);
const text = (value: unknown) => (typeof value === 'string' ? value : undefined);
const number = (value: unknown) => (typeof value === 'number' && Number.isFinite(value) ? value : undefined);
const records = (value: unknown): JsonObject[] => (Array.isArray(value) ? value.filter(isRecord) : []);

// Numeric records that views display; undefined if a field is missing or has the wrong type.
function numericRecord<T>(value: unknown, names: (keyof T & string)[]): T | undefined {
  return isRecord(value) && names.every((name) => number(value[name]) !== undefined) ? (value as T) : undefined;
}

function noticeOf(value: unknown): Notice | undefined {
  const kinds = ['length', 'context', 'stopped', 'empty', 'lost', 'model', 'error'];
  if (!isRecord(value) || !kinds.includes(value.kind as string)) return undefined;
  return { kind: value.kind as Notice['kind'], text: text(value.text) ?? '' };
}

const attachmentsOf = (value: unknown): Attachment[] =>
  records(value).map((file) => ({ name: text(file.name) ?? 'file', text: text(file.text) ?? '' }));
const callsOf = (value: unknown): ToolCall[] =>
  records(value).map((call) => ({ id: text(call.id) ?? '', name: text(call.name) ?? '', arguments: text(call.arguments) ?? '' }));
const choiceOf = (token: JsonObject) => ({ text: text(token.text) ?? '', p: number(token.p) ?? 0 });
const tokensOf = (value: unknown): TokenChoice[] =>
  records(value).map((token) => ({ ...choiceOf(token), top: records(token.top).map(choiceOf) }));
const nonEmpty = <T>(list: T[]) => (list.length > 0 ? list : undefined);

function messageOf(source: JsonObject, conversation: string, ids: Map<unknown, string>): Message {
  if (text(source.content) === undefined || !['user', 'assistant', 'tool'].includes(source.role as string)) {
    throw new Error('a message is malformed');
  }
  return {
    id: ids.get(source.id)!,
    conversation,
    parent: ids.get(source.parent) ?? null,
    role: source.role as Role,
    content: text(source.content)!,
    created: number(source.created) ?? 0,
    reasoning: text(source.reasoning),
    reasoningMs: number(source.reasoningMs),
    reasoningTokens: number(source.reasoningTokens),
    attachments: nonEmpty(attachmentsOf(source.attachments)),
    toolCalls: nonEmpty(callsOf(source.toolCalls)),
    toolCallId: text(source.toolCallId),
    model: text(source.model),
    finish: text(source.finish),
    timings: numericRecord<Timings>(source.timings, ['queued_ms', 'prompt_n', 'prompt_ms', 'predicted_n', 'predicted_per_second', 'cache_n']),
    usage: numericRecord<Usage>(source.usage, ['prompt_tokens', 'completion_tokens', 'total_tokens']),
    tokens: nonEmpty(tokensOf(source.tokens)),
    edited: source.edited === true || undefined,
    notice: noticeOf(source.notice),
  };
}

// A cycle of parents has no root: break it.
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

const kStringSettings = ['model', 'system', 'tools', 'effort'];
const kNumberSettings = [
  'temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'frequency_penalty', 'presence_penalty', 'seed', 'max_tokens',
  'thinking_budget',
];

function settingsOf(value: unknown): Settings {
  if (!isRecord(value)) return {};
  const out: JsonObject = {};
  for (const name of kStringSettings) if (text(value[name]) !== undefined) out[name] = value[name];
  for (const name of kNumberSettings) if (number(value[name]) !== undefined) out[name] = value[name];
  for (const name of ['thinking', 'probabilities']) if (typeof value[name] === 'boolean') out[name] = value[name];
  return out;
}

// Imported under new ids, so that no existing conversation is replaced.
function importConversation(source: unknown): [Conversation, Message[]] {
  if (!isRecord(source)) throw new Error('a conversation is malformed');
  const entries = records(source.messages);
  const ids = new Map<unknown, string>(entries.map((message) => [message.id, newId()]));
  const id = newId();
  const list = entries.map((message) => messageOf(message, id, ids));
  cutCycles(list);
  const head = ids.get(source.head) ?? list.at(-1)?.id ?? null;
  const now = Date.now();
  const from = isRecord(source.context) ? ids.get(source.context.from) : undefined;
  const context = from ? { from, summary: text((source.context as JsonObject).summary) } : undefined;
  const isHere = conversations.value.some((other) => other.id === source.id);
  const title = (text(source.title) || 'Imported') + (isHere ? ' (copy)' : '');
  const entry = { id, head, title, settings: settingsOf(source.settings), context };
  return [{ ...entry, created: number(source.created) ?? now, updated: number(source.updated) ?? now }, list];
}

// A conversation in the format of the API, as `/save` of `zinc chat` writes it: `messages`, one after the other.
function conversationOfMessages({ messages, model }: JsonObject): JsonObject {
  const all = records(messages);
  const system = all.find(({ role }) => role === 'system');
  const list = all.filter((message) => message !== system).map((message, i) => ({
    id: i + 1, parent: i, role: message.role, content: message.content, reasoning: message.reasoning_content,
    model: message.role === 'assistant' ? model : undefined,
  }));
  return { title: titleOf(text(list[0]?.content) ?? ''), messages: list, settings: { system: system?.content } };
}

function readJson(content: string): [Conversation, Message[]][] {
  const file: unknown = JSON.parse(content);
  if (isRecord(file) && records(file.messages).length > 0) return [importConversation(conversationOfMessages(file))];
  if (!isRecord(file) || file.format !== kFormat || !Array.isArray(file.conversations)) throw new Error('neither an export of this page nor a conversation saved by zinc chat');
  if ((number(file.version) ?? 0) > kVersion) throw new Error('exported by a newer version of this page');
  return file.conversations.map(importConversation);
}

export async function importFile(file: File): Promise<void> {
  try {
    const content = await file.text();
    const isMarkdown = /\.(md|markdown|txt)$/i.test(file.name);
    const imported = isMarkdown ? [importConversation(conversationOfMarkdown(content, fileName(file.name.replace(/\.\w+$/, ''))))] : readJson(content);
    await db.save(imported.map(([entry]) => entry), imported.flatMap(([, list]) => list));
    conversations.value = [...imported.map(([entry]) => entry), ...conversations.value];
    if (imported.length > 0) await openConversation(imported[0][0].id);
    showToast(`Imported ${imported.length} conversation${imported.length === 1 ? '' : 's'}`);
  } catch (error) {
    showToast(`${file.name} could not be imported: ${error instanceof Error ? error.message : String(error)}`);
  }
}
