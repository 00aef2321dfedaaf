// Brings what changes into the store. What is not there yet when the page goes away is written at once, to where that is
// possible, and taken over when a page opens next: no word that was on the screen is lost.
import { signal } from '@preact/signals';
import * as db from './db';
import { tell } from './tabs';
import type { Conversation, Draft, Message } from './types';

// Why conversations cannot be kept, for as long as that holds.
export const storeError = signal('');
export const storeFailed = (error: unknown) => {
  storeError.value = error instanceof Error ? error.message : String(error);
};

// Small things, where there is room for them.
export function keepSmall(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // It holds until the page is closed.
  }
}

// Answers under way in this tab, also of conversations that are not shown.
export interface Writing {
  message: Message;
  stop: () => void;
  ended: Promise<void>; // and stored
}
export const writings = new Map<string, Writing>();

// What was handed to the store and is not known to be there yet, by id; of a record only the latest.
const unsaved = {
  turn: 0,
  hasFailed: false, // something of it was tried and could not be stored
  conversations: new Map<string, { turn: number; record: Conversation }>(),
  messages: new Map<string, { turn: number; record: Message }>(),
};
// How much of an answer under way the store has.
const nStored = new Map<string, { content: number; reasoning: number }>();
const lengths = ({ content, reasoning = '' }: Message) => ({ content: content.length, reasoning: reasoning.length });

export const isUnsaved = (id: string) => unsaved.conversations.has(id) || unsaved.messages.has(id) || writings.has(id);

// The messages of a conversation: those of the store, and over them what it does not have yet.
export function withUnsaved(conversation: string, fromStore: Message[]): Message[] {
  const all = new Map(fromStore.map((message) => [message.id, message]));
  for (const { record } of unsaved.messages.values()) if (record.conversation === conversation) all.set(record.id, record);
  for (const { message } of writings.values()) if (message.conversation === conversation) all.set(message.id, message);
  return [...all.values()];
}

// A conversation that is deleted is not stored later.
export function forgetUnsaved(conversation: string): void {
  unsaved.conversations.delete(conversation);
  for (const [id, { record }] of unsaved.messages) if (record.conversation === conversation) unsaved.messages.delete(id);
}

// A browser that is short of room throws away what it was not asked to keep.
let isAsked = false;
function keepForGood(): void {
  if (!isAsked) void navigator.storage?.persist?.().catch(() => undefined);
  isAsked = true;
}

// Whether it is stored now; what is not is tried again once something else could be.
export async function store(entries: Conversation[], changed: Message[]): Promise<boolean> {
  const turn = ++unsaved.turn;
  for (const record of entries) unsaved.conversations.set(record.id, { turn, record });
  for (const record of changed) unsaved.messages.set(record.id, { turn, record });
  const before = changed.map((message) => [message.id, lengths(message)] as const);
  try {
    await db.save(entries, changed);
  } catch (error) {
    unsaved.hasFailed = true;
    storeFailed(error);
    return false;
  }
  if (changed.length > 0) keepForGood();
  for (const { id } of entries) if (unsaved.conversations.get(id)?.turn === turn) unsaved.conversations.delete(id);
  for (const { id } of changed) if (unsaved.messages.get(id)?.turn === turn) unsaved.messages.delete(id);
  for (const [id, size] of before) {
    if (writings.has(id)) nStored.set(id, size);
    else nStored.delete(id);
  }
  tell({ conversations: entries.map(({ id }) => id), messages: changed.map(({ id }) => id) });
  if (unsaved.hasFailed) storeLeft();
  if (unsaved.conversations.size + unsaved.messages.size === 0) storeError.value = '';
  return true;
}

function storeLeft(): void {
  unsaved.hasFailed = false;
  const [entries, changed] = [unsaved.conversations, unsaved.messages].map((left) => [...left.values()].map(({ record }) => record));
  if (entries.length + changed.length > 0) void store(entries as Conversation[], changed as Message[]);
}

// What of a message the store does not have: all but the beginnings of its texts.
interface Rest {
  message: Omit<Message, 'content' | 'reasoning' | 'tokens'>;
  content: { from: number; text: string };
  reasoning: { from: number; text: string };
}
interface Tail {
  conversations: Conversation[];
  messages: Rest[];
  drafts: LeftDraft[];
}
type LeftDraft = { id: string; text: string; at?: number; attachments?: Draft['attachments'] }; // without: those of the store

function restOf(message: Message, withFiles: boolean): Rest {
  const { content, reasoning = '', tokens: _, attachments, ...rest } = message;
  const from = nStored.get(message.id) ?? { content: 0, reasoning: 0 };
  return {
    message: { ...rest, ...(withFiles && attachments ? { attachments } : {}) },
    content: { from: from.content, text: content.slice(from.content) },
    reasoning: { from: from.reasoning, text: reasoning.slice(from.reasoning) },
  };
}

const kTailName = 'zinc.tail.';
const tailName = kTailName + Math.random().toString(36).slice(2); // of this tab
let unsavedDrafts: () => LeftDraft[] = () => [];
export const keepDraftsOnLeaving = (ask: typeof unsavedDrafts) => (unsavedDrafts = ask);

function writeTail(withFiles: boolean): boolean {
  const open = new Map([...unsaved.messages].map(([id, { record }]) => [id, record]));
  for (const [id, { message }] of writings) open.set(id, message);
  const drafts = unsavedDrafts();
  const tail: Tail = {
    conversations: [...unsaved.conversations.values()].map(({ record }) => record),
    messages: [...open.values()].map((message) => restOf(message, withFiles)),
    drafts: withFiles ? drafts : drafts.map(({ id, text, at }) => ({ id, text, at })),
  };
  if (tail.conversations.length + tail.messages.length + drafts.length === 0) return true;
  try {
    localStorage.setItem(tailName, JSON.stringify(tail));
    return true;
  } catch {
    return false; // larger than what the browser keeps this way
  }
}

addEventListener('pagehide', () => {
  if (!writeTail(true)) writeTail(false);
  if (writings.size > 0) tell({ left: [...writings.keys()] });
});
// It was only put aside and goes on.
addEventListener('pageshow', (event) => event.persisted && localStorage.removeItem(tailName));

async function joined({ message, content, reasoning }: Rest): Promise<Message | null> {
  const known = await db.messageOf(message.id);
  const whole = (stored: string, part: { from: number; text: string }) =>
    stored.length < part.from ? stored : stored.slice(0, part.from) + part.text;
  const out: Message = { ...known, ...message, content: whole(known?.content ?? '', content) };
  const thought = whole(known?.reasoning ?? '', reasoning);
  if (thought) out.reasoning = thought;
  const nBefore = known ? lengths(known) : { content: 0, reasoning: 0 };
  const nNow = lengths(out);
  return nNow.content >= nBefore.content && nNow.reasoning >= nBefore.reasoning ? out : null;
}

function readTail(text: string): Partial<Tail> {
  try {
    return JSON.parse(text) as Partial<Tail>;
  } catch {
    return {}; // cut short
  }
}

// Of a draft the one that was written later stays.
async function takeDraft({ id, text, at = 0, attachments }: LeftDraft): Promise<void> {
  const known = await db.draftOf(id);
  if ((known?.at ?? 0) > at) return;
  await db.saveDraft(id, { text, at, attachments: attachments ?? known?.attachments ?? [] });
}

async function takeTail(name: string): Promise<void> {
  const { conversations = [], messages = [], drafts = [] } = readTail(localStorage.getItem(name) ?? '');
  const found = await Promise.all(messages.map(joined));
  await db.save(conversations, found.filter((message) => message !== null));
  for (const left of drafts) await takeDraft(left);
  localStorage.removeItem(name);
}

// Takes over what pages that are gone had not stored. What cannot be stored now either stays where it is.
export async function takeTails(): Promise<void> {
  const names = Object.keys(localStorage).filter((name) => name.startsWith(kTailName) && name !== tailName);
  for (const name of names) await takeTail(name).catch(storeFailed);
}
