// UI state and all its updates. Views render signals; changes are written to the store.
import { batch, computed, effect, signal } from '@preact/signals';
import { getFigures, getLibrary, getProps } from './api';
import * as db from './db';
import { saveSmall, store, storeFailed, withPendingWrites, streams } from './persist';
import { broadcast, streamedElsewhere } from './tabs';
import type { Conversation, Figures, Library, Message, Props, Settings } from './types';

export const conversations = signal<Conversation[]>([]);
export const openId = signal<string | null>(null);
// Messages of the open conversation. The map is replaced when the tree changes; messages are modified in place.
export const messages = signal<Map<string, Message>>(new Map());
export const props = signal<Props | null>(null);
export const library = signal<Library | null>(null);
export const figures = signal<Map<string, Figures>>(new Map());
export const isServerUnreachable = signal(false);
export interface Toast {
  text: string;
  action?: string;
  run?: () => void;
}
export const toasts = signal<Toast[]>([]);
const kMaxToasts = 3; // toasts with a button are kept beyond this limit until they time out
export const showToast = (text: string, action?: string, run?: () => void) => {
  const list = [...toasts.value.filter((other) => other.action || other.text !== text), { text, action, run }];
  let nExcess = list.length - kMaxToasts;
  toasts.value = list.filter((toast) => toast.action || toast.text === text || nExcess-- <= 0);
};
export type Panel = 'settings' | 'models' | 'compare' | 'help' | null;
export const panel = signal<Panel>(null);
export const sidebarIsOpen = signal(false); // on a phone, where it covers the conversation
export const sidebarIsFolded = signal(localStorage.getItem('zinc.folded') === '1'); // on a desktop
effect(() => saveSmall('zinc.folded', sidebarIsFolded.value ? '1' : ''));

// Newest first.
export const sorted = computed(() => [...conversations.value].sort((a, b) => b.updated - a.updated));
export const conversation = computed(() => conversations.value.find((entry) => entry.id === openId.value) ?? null);

effect(() => {
  document.title = conversation.value ? `${conversation.value.title} · zinc` : 'zinc';
});

// crypto.randomUUID() exists only in secure contexts (localhost or TLS).
export const newId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

// The displayed path, first message first.
export const path = computed<Message[]>(() => pathTo(messages.value, conversation.value?.head ?? null));

export function pathTo(all: Map<string, Message>, head: string | null): Message[] {
  const out: Message[] = [];
  const seen = new Set<string>();
  for (let id = head; id && !seen.has(id); ) {
    const message = all.get(id);
    if (!message) break;
    seen.add(id);
    out.push(message);
    id = message.parent;
  }
  return out.reverse();
}

export function siblings(message: Message): Message[] {
  return childrenOf(message.parent).filter((other) => other.role === message.role);
}

function childrenOf(parent: string | null): Message[] {
  const out = [...messages.value.values()].filter((message) => message.parent === parent);
  return out.sort((a, b) => a.created - b.created);
}

// The model of a conversation: its own if the server has it, else the server's first.
export const model = computed(() => {
  const models = props.value?.models ?? [];
  const wanted = conversation.value?.settings.model ?? defaults.value.model;
  return models.find((entry) => entry.name === wanted) ?? models[0] ?? null;
});

// Default settings of a new conversation.
const kDefaultsName = 'zinc.defaults';
export const defaults = signal<Settings>(JSON.parse(localStorage.getItem(kDefaultsName) ?? '{}') as Settings);
effect(() => saveSmall(kDefaultsName, JSON.stringify(defaults.value)));

// Memory, cache and timing figures.
export const showsFigures = signal(localStorage.getItem('zinc.figures') === '1');
effect(() => saveSmall('zinc.figures', showsFigures.value ? '1' : ''));

export const theme = signal(localStorage.getItem('zinc.theme') ?? 'system');
effect(() => {
  saveSmall('zinc.theme', theme.value);
  if (theme.value === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

// Stores messages together with their conversation.
export function storeMessages(changed: Message[], entry = conversation.value): Promise<boolean> {
  return store(entry ? [entry] : [], changed);
}

export function changeConversation(id: string, change: Partial<Conversation>): void {
  conversations.value = conversations.value.map((entry) => (entry.id === id ? { ...entry, ...change } : entry));
  const changed = conversations.value.find((entry) => entry.id === id);
  if (changed) void store([changed], []);
}

export function changeSettings(change: Partial<Settings>): void {
  const entry = conversation.value;
  const merge = (old: Settings): Settings => {
    const all = { ...old, ...change } as Record<string, unknown>;
    for (const name of Object.keys(all)) if (all[name] === undefined || all[name] === '') delete all[name];
    return all;
  };
  if (entry) changeConversation(entry.id, { settings: merge(entry.settings) });
  else defaults.value = merge(defaults.value);
}

export const settings = computed<Settings>(() => conversation.value?.settings ?? defaults.value);

export function messageChanged(): void {
  messages.value = new Map(messages.value);
}

export function addMessage(message: Message): Promise<boolean> {
  const all = new Map(messages.value);
  all.set(message.id, message);
  batch(() => {
    messages.value = all;
    changeConversation(message.conversation, { head: message.id, updated: Date.now() });
  });
  return storeMessages([message]);
}

export function showBranch(message: Message): void {
  let head = message;
  const seen = new Set([head.id]);
  for (;;) {
    const next = childrenOf(head.id).at(-1);
    if (!next || seen.has(next.id)) break;
    seen.add(next.id);
    head = next;
  }
  changeConversation(message.conversation, { head: head.id });
}

export function startConversation(first: string): Conversation {
  const now = Date.now();
  const entry: Conversation = {
    id: newId(),
    title: titleOf(first),
    created: now,
    updated: now,
    head: null,
    settings: { ...defaults.value },
  };
  batch(() => {
    conversations.value = [entry, ...conversations.value];
    messages.value = new Map();
    openId.value = entry.id;
  });
  setAddress(entry.id);
  return entry;
}

const kMaxTitle = 200; // characters; views cut it to their width
export function titleOf(text: string): string {
  const line = text.trim().split('\n')[0].replace(/\s+/g, ' ');
  return line.length > kMaxTitle ? `${line.slice(0, kMaxTitle).trimEnd()}…` : line || 'New conversation';
}

// If the store cannot be read, uses what this tab still has in memory.
async function messagesOf(id: string): Promise<Message[]> {
  const fromStore = await db.messagesOf(id).catch((error: unknown) => {
    storeFailed(error);
    return [];
  });
  return withPendingWrites(id, fromStore);
}

let nOpened = 0;
export async function openConversation(id: string | null): Promise<void> {
  const request = ++nOpened;
  if (id && id === openId.value) {
    sidebarIsOpen.value = false;
    return;
  }
  const list = id ? await messagesOf(id) : [];
  await markInterrupted(list);
  if (request !== nOpened) return; // another conversation was opened in the meantime
  batch(() => {
    messages.value = new Map(withPendingWrites(id ?? '', list).map((message) => [message.id, message]));
    openId.value = id;
    sidebarIsOpen.value = false;
  });
  setAddress(id);
}

const sizeOf = ({ content, reasoning = '' }: Message) => content.length + reasoning.length;

function interrupt(message: Message): void {
  message.writing = false;
  message.notice = { kind: 'stopped', text: 'The page was closed while this answer was streaming.' };
}

// Marks answers that no tab is streaming as interrupted. The check takes a while; an answer that grew or ended in the
// meantime is left unchanged.
export async function markInterrupted(list: Message[]): Promise<void> {
  const open = list.filter((message) => message.writing && !streams.has(message.id));
  const elsewhere = await streamedElsewhere(open.map((message) => message.id));
  for (const message of open.filter(({ id }) => !elsewhere.has(id))) {
    const update = (stored: Message) => {
      const isAbandoned = Boolean(stored.writing) && sizeOf(stored) <= sizeOf(message);
      if (isAbandoned) interrupt(stored);
      return isAbandoned;
    };
    const stored = await db.updateMessage(message.id, update).catch(storeFailed);
    if (stored) Object.assign(message, stored);
    else interrupt(message);
    broadcast({ messages: [message.id] });
  }
}

function setAddress(id: string | null): void {
  const hash = id ? `#${id}` : '';
  if (location.hash !== hash) history.pushState(null, '', hash || '/');
}

export async function refreshProps(): Promise<void> {
  props.value = await getProps();
  isServerUnreachable.value = false;
}

export async function refreshLibrary(): Promise<void> {
  library.value = await getLibrary();
}

export async function refreshFigures(): Promise<void> {
  try {
    const loaded = (await getFigures()).data.filter((entry) => entry.figures);
    if (!library.value || loaded.length === 0) void refreshLibrary().catch(() => undefined); // which model is being loaded
    figures.value = new Map(loaded.map((entry) => [entry.id, entry.figures!]));
    if (isServerUnreachable.value || loaded.map(({ id }) => id).join() !== props.value?.models.map(({ name }) => name).join()) {
      await refreshProps();
      void refreshLibrary().catch(() => undefined);
    }
    isServerUnreachable.value = false;
  } catch {
    isServerUnreachable.value = true;
  }
}

export async function openFromAddress(): Promise<void> {
  const id = location.hash.slice(1);
  await openConversation(conversations.value.some((entry) => entry.id === id) ? id : null);
}
