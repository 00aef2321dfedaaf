// Writes changes to IndexedDB. When the page closes, pending writes go synchronously to localStorage and are restored when
// the page opens next, so no visible text is lost.
import { signal } from '@preact/signals';
import * as db from './db';
import { broadcast } from './tabs';
import type { Conversation, Draft, Message } from './types';

// Why conversations cannot be stored; empty while storage works.
export const storeError = signal('');
export const storeFailed = (error: unknown) => {
  storeError.value = error instanceof Error ? error.message : String(error);
};

// Small values in localStorage.
export function saveSmall(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // The value lasts until the page is closed.
  }
}

// Answers streaming in this tab, including those of conversations that are not displayed.
export interface AnswerStream {
  message: Message;
  stop: () => void;
  ended: Promise<void>; // resolves once the answer is stored
}
export const streams = new Map<string, AnswerStream>();

// Pending writes by id; only the latest version of a record.
const unsaved = {
  lastWriteId: 0,
  hasFailed: false, // a write failed
  conversations: new Map<string, { writeId: number; record: Conversation }>(),
  messages: new Map<string, { writeId: number; record: Message }>(),
};
// How much of a streaming answer is stored.
const storedLengths = new Map<string, { content: number; reasoning: number }>();
const lengths = ({ content, reasoning = '' }: Message) => ({ content: content.length, reasoning: reasoning.length });

export const hasPendingWrite = (id: string) => unsaved.conversations.has(id) || unsaved.messages.has(id) || streams.has(id);

// The messages of a conversation: the stored ones, overridden by pending writes.
export function withPendingWrites(conversation: string, fromStore: Message[]): Message[] {
  const all = new Map(fromStore.map((message) => [message.id, message]));
  for (const { record } of unsaved.messages.values()) if (record.conversation === conversation) all.set(record.id, record);
  for (const { message } of streams.values()) if (message.conversation === conversation) all.set(message.id, message);
  return [...all.values()];
}

// Drops pending writes of a deleted conversation.
export function dropPendingWrites(conversation: string): void {
  unsaved.conversations.delete(conversation);
  for (const [id, { record }] of unsaved.messages) if (record.conversation === conversation) unsaved.messages.delete(id);
}

export function dropPendingMessages(ids: Set<string>): void {
  for (const id of ids) unsaved.messages.delete(id);
}

// Asks for persistent storage: a browser short of disk space evicts everything else.
let wasPersistenceRequested = false;
function requestPersistentStorage(): void {
  if (!wasPersistenceRequested) void navigator.storage?.persist?.().catch(() => undefined);
  wasPersistenceRequested = true;
}

// Returns whether the record was stored; failed writes are retried after the next successful one.
export async function store(entries: Conversation[], changed: Message[]): Promise<boolean> {
  const writeId = ++unsaved.lastWriteId;
  for (const record of entries) unsaved.conversations.set(record.id, { writeId, record });
  for (const record of changed) unsaved.messages.set(record.id, { writeId, record });
  const lengthsBefore = changed.map((message) => [message.id, lengths(message)] as const);
  try {
    await db.save(entries, changed);
  } catch (error) {
    unsaved.hasFailed = true;
    storeFailed(error);
    return false;
  }
  if (changed.length > 0) requestPersistentStorage();
  for (const { id } of entries) if (unsaved.conversations.get(id)?.writeId === writeId) unsaved.conversations.delete(id);
  for (const { id } of changed) if (unsaved.messages.get(id)?.writeId === writeId) unsaved.messages.delete(id);
  for (const [id, size] of lengthsBefore) {
    if (streams.has(id)) storedLengths.set(id, size);
    else storedLengths.delete(id);
  }
  broadcast({ conversations: entries.map(({ id }) => id), messages: changed.map(({ id }) => id) });
  if (unsaved.hasFailed) retryFailedWrites();
  if (unsaved.conversations.size + unsaved.messages.size === 0) storeError.value = '';
  return true;
}

function retryFailedWrites(): void {
  unsaved.hasFailed = false;
  const [entries, changed] = [unsaved.conversations, unsaved.messages].map((pending) => [...pending.values()].map(({ record }) => record));
  if (entries.length + changed.length > 0) void store(entries as Conversation[], changed as Message[]);
}

// The part of a message that is not stored: everything except the stored prefixes of its texts.
interface PendingMessage {
  message: Omit<Message, 'content' | 'reasoning' | 'tokens'>;
  content: { from: number; text: string };
  reasoning: { from: number; text: string };
}
interface PendingWrites {
  conversations: Conversation[];
  messages: PendingMessage[];
  drafts: PendingDraft[];
}
type PendingDraft = { id: string; text: string; at?: number; attachments?: Draft['attachments'] }; // absent: the stored ones

function pendingPartOf(message: Message, withAttachments: boolean): PendingMessage {
  const { content, reasoning = '', tokens: _, attachments, ...rest } = message;
  const from = storedLengths.get(message.id) ?? { content: 0, reasoning: 0 };
  return {
    message: { ...rest, ...(withAttachments && attachments ? { attachments } : {}) },
    content: { from: from.content, text: content.slice(from.content) },
    reasoning: { from: from.reasoning, text: reasoning.slice(from.reasoning) },
  };
}

const kPendingPrefix = 'zinc.tail.';
const pendingName = kPendingPrefix + Math.random().toString(36).slice(2); // of this tab
let unsavedDrafts: () => PendingDraft[] = () => [];
export const saveDraftsOnClose = (drafts: typeof unsavedDrafts) => (unsavedDrafts = drafts);

function savePendingWrites(withAttachments: boolean): boolean {
  const messages = new Map([...unsaved.messages].map(([id, { record }]) => [id, record]));
  for (const [id, { message }] of streams) messages.set(id, message);
  const drafts = unsavedDrafts();
  const pending: PendingWrites = {
    conversations: [...unsaved.conversations.values()].map(({ record }) => record),
    messages: [...messages.values()].map((message) => pendingPartOf(message, withAttachments)),
    drafts: withAttachments ? drafts : drafts.map(({ id, text, at }) => ({ id, text, at })),
  };
  if (pending.conversations.length + pending.messages.length + drafts.length === 0) return true;
  try {
    localStorage.setItem(pendingName, JSON.stringify(pending));
    return true;
  } catch {
    return false; // exceeds the quota of localStorage
  }
}

addEventListener('pagehide', () => {
  if (!savePendingWrites(true)) savePendingWrites(false);
  if (streams.size > 0) broadcast({ closed: [...streams.keys()] });
});
// The page was only in the background and continues.
addEventListener('pageshow', (event) => event.persisted && localStorage.removeItem(pendingName));

async function mergeWithStored({ message, content, reasoning }: PendingMessage): Promise<Message | null> {
  const stored = await db.messageOf(message.id);
  const join = (prefix: string, part: { from: number; text: string }) =>
    prefix.length < part.from ? prefix : prefix.slice(0, part.from) + part.text;
  const out: Message = { ...stored, ...message, content: join(stored?.content ?? '', content) };
  const allReasoning = join(stored?.reasoning ?? '', reasoning);
  if (allReasoning) out.reasoning = allReasoning;
  const nBefore = stored ? lengths(stored) : { content: 0, reasoning: 0 };
  const nNow = lengths(out);
  return nNow.content >= nBefore.content && nNow.reasoning >= nBefore.reasoning ? out : null;
}

function parsePendingWrites(text: string): Partial<PendingWrites> {
  try {
    return JSON.parse(text) as Partial<PendingWrites>;
  } catch {
    return {}; // truncated
  }
}

// The newer draft wins.
async function restoreDraft({ id, text, at = 0, attachments }: PendingDraft): Promise<void> {
  const stored = await db.draftOf(id);
  if ((stored?.at ?? 0) > at) return;
  await db.saveDraft(id, { text, at, attachments: attachments ?? stored?.attachments ?? [] });
}

async function restoreFrom(name: string): Promise<void> {
  const { conversations = [], messages = [], drafts = [] } = parsePendingWrites(localStorage.getItem(name) ?? '');
  const found = await Promise.all(messages.map(mergeWithStored));
  await db.save(conversations, found.filter((message) => message !== null));
  for (const draft of drafts) await restoreDraft(draft);
  localStorage.removeItem(name);
}

// Restores pending writes of closed pages. A write that fails again stays in localStorage.
export async function restorePendingWrites(): Promise<void> {
  const names = Object.keys(localStorage).filter((name) => name.startsWith(kPendingPrefix) && name !== pendingName);
  for (const name of names) await restoreFrom(name).catch(storeFailed);
}
